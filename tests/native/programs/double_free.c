/* double_free.c - several threads free the same blocks in the same instant. Whatever each is told, no block may be
 * handed out twice afterwards, nothing may go to the device twice, and the structures stay whole. */
#include "arena.h"

#define THREADS 4u
#define BLOCKS 12u
#define AGAIN (2 * BLOCKS) /* blocks that each thread allocates afterwards */

typedef struct mode {
    const char *name;
    unsigned flags;
    size_t cached_limit;
    bool trims; /* meanwhile, so that blocks go to the device under the hands of those who free them */
} mode;

static const mode modes[] = {
    {"caches", 0, TM_UNLIMITED, false},
    {"no caches", TM_OPTION_NO_THREAD_CACHE, TM_UNLIMITED, false},
    {"trim", 0, TM_UNLIMITED, true},
    {"limit", 0, 1024, false},
    {"nothing cached", TM_OPTION_NO_THREAD_CACHE, 1, true},
};

static const mode *now;
static arena device;
static tm_manager *manager;
static pthread_barrier_t barrier;
static void *blocks[BLOCKS];
static void *again[THREADS][AGAIN];
static size_t sizes[BLOCKS];
static _Atomic unsigned accepted[BLOCKS], rounds_done;
static pthread_mutex_t quiet = PTHREAD_MUTEX_INITIALIZER; /* held by whoever trims, or walks the structures */

static unsigned rounds(void) { return 3 + 300 * test_scale / 100; }

static tm_status free_some_way(random_t *random, unsigned at)
{
    switch (random_below(random, 4)) {
    case 0:
        return tm_free_sized(manager, blocks[at], sizes[at]);
    case 1:
        return tm_try_free(manager, blocks[at]) == 0 ? TM_OK : tm_free(manager, blocks[at]);
    default:
        return tm_free(manager, blocks[at]);
    }
}

static void free_all(random_t *random, unsigned number)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        unsigned at = number % 2 ? BLOCKS - 1 - i : i;
        tm_error error;
        tm_status status = free_some_way(random, at);
        tm_last_error(&error);
        EXPECT(status == TM_OK || (status == TM_INVALID_FREE && error.reason == TM_REASON_DOUBLE_FREE),
               "%s: status %d, %s", now->name, (int)status, tm_reason_text(error.reason));
        accepted[at] += status == TM_OK;
    }
}

static void prepare(random_t *random)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        sizes[i] = (size_t)64 << random_below(random, 2);
        blocks[i] = tm_allocate(manager, sizes[i]);
        EXPECT(blocks[i] != NULL, "%zu bytes", sizes[i]);
        accepted[i] = 0;
    }
}

static int by_address(const void *a, const void *b)
{
    uintptr_t left = *(const uintptr_t *)a, right = *(const uintptr_t *)b;
    return left < right ? -1 : left > right;
}

static void check_distinct(void)
{
    void **all = &again[0][0];
    qsort(all, (size_t)THREADS * AGAIN, sizeof *all, by_address);
    for (unsigned i = 1; i < THREADS * AGAIN; i++)
        EXPECT(all[i - 1] != all[i], "%s: %p was handed out twice", now->name, all[i]);
}

/* A free that takes the slow way claims the block first: exactly one thread gets it. */
static void check_accepted(void)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        bool one = accepted[i] == 1 || (!(now->flags & TM_OPTION_NO_THREAD_CACHE) && accepted[i] > 1);
        EXPECT(one, "%s: %u frees of block %u were accepted", now->name, accepted[i], i);
    }
}

/* A block that two threads freed at once may be listed twice until the wrong listing is met: trim meets them all. */
static void finish(void)
{
    check_accepted();
    check_distinct();
    for (unsigned i = 0; i < THREADS * AGAIN; i++)
        EXPECT(tm_free(manager, (&again[0][0])[i]) == TM_OK, "%s: block %u", now->name, i);
    pthread_mutex_lock(&quiet);
    (void)tm_trim(manager, 0);
    EXPECT_VALID(manager);
    arena_agrees(&device, manager);
    EXPECT(device.held == 0, "%s: %zu bytes", now->name, device.held);
    pthread_mutex_unlock(&quiet);
}

static void take_again(random_t *random, unsigned number)
{
    for (unsigned i = 0; i < AGAIN; i++) {
        again[number][i] = tm_allocate(manager, (size_t)64 << random_below(random, 2));
        EXPECT(again[number][i] != NULL, "%s: block %u", now->name, i);
    }
}

static void racer(unsigned number)
{
    random_t random = random_of(number);
    for (unsigned round = 0; round < rounds(); round++) {
        if (number == 0)
            prepare(&random);
        (void)pthread_barrier_wait(&barrier);
        free_all(&random, number);
        (void)pthread_barrier_wait(&barrier);
        take_again(&random, number);
        (void)pthread_barrier_wait(&barrier);
        if (number == 0)
            finish();
    }
    rounds_done++;
}

static void race(unsigned number)
{
    if (number < THREADS)
        racer(number);
    while (number == THREADS && now->trims && rounds_done < THREADS) {
        pthread_mutex_lock(&quiet);
        (void)tm_trim(manager, 0);
        pthread_mutex_unlock(&quiet);
        (void)sched_yield();
    }
}

static void run_mode(const mode *which)
{
    now = which;
    arena_init(&device, 1 << 20);
    tm_backend backend = arena_backend(&device, 0);
    tm_options options = options_of(8192, which->cached_limit);
    options.flags = which->flags;
    manager = manager_of(&backend, &options);
    rounds_done = 0;
    run_threads(THREADS + 1, race);
    tm_manager_destroy(manager);
    arena_destroy(&device);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        run_mode(&modes[i]);
    return 0;
}
