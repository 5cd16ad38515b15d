/* reenter.c - whatever the manager calls out to may call the manager again, from the same thread and from another
 * one that it waits for: no lock is held while a backend function or the hook runs. A deadlock ends by an alarm. */
#include "arena.h"

#include <semaphore.h>

#define THRESHOLD 4096u

typedef enum place { ALLOCATE, RELEASE, INFO, CLEAR, PRESSURE, PLACES } place;

static arena device;
static tm_backend plain; /* the device's own functions */
static tm_manager *manager, *sibling;
static sem_t go, done;
static _Atomic bool over;
static _Atomic unsigned visits[PLACES];
static _Thread_local bool inside;

/* Every kind of call, with sizes that are cached, new, and above the threshold. */
static void call_everything(tm_manager *which)
{
    tm_statistics counted;
    tm_block_info info;
    void *small = tm_allocate(which, 300), *aligned = tm_allocate_aligned(which, 200, 1024);
    void *large = tm_allocate(which, THRESHOLD + 1), *zeroed = tm_allocate_zeroed(which, 128);
    EXPECT(small && aligned && large && zeroed, "no memory inside a callback");
    EXPECT(tm_find_block(which, small, &info) && info.live, "a block inside a callback");
    EXPECT(tm_free(which, small) == TM_OK && tm_free_sized(which, aligned, 200) == TM_OK, "a free inside");
    EXPECT(tm_free(which, large) == TM_OK && tm_free(which, zeroed) == TM_OK, "a free inside");
    (void)tm_list_blocks(which, 0, &info, 1);
    tm_get_statistics(which, &counted);
    tm_get_bucket_statistics(which, 8, &counted);
    tm_reset_peaks(which);
    (void)tm_set_tag(3);
    (void)tm_trim(which, counted.cached.now / 2);
}

static void live_another_life(void)
{
    tm_options options = options_of(THRESHOLD, TM_UNLIMITED);
    tm_manager *other = manager_of(tm_host_backend(), &options);
    call_everything(other);
    tm_manager_destroy(other);
}

static void *help(void *unused)
{
    inside = true; /* its own callbacks are plain ones */
    for (;;) {
        (void)sem_wait(&go);
        if (over)
            return unused;
        call_everything(manager);
        (void)sem_post(&done);
    }
}

static void reenter(place where)
{
    if (inside)
        return;
    inside = true;
    visits[where]++;
    call_everything(manager);
    live_another_life();
    (void)sem_post(&go);
    while (sem_wait(&done) != 0) {
    }
    inside = false;
}

static int allocate(void *context, size_t size, size_t alignment, void **address)
{
    reenter(ALLOCATE);
    return plain.allocate(context, size, alignment, address);
}

static int release(void *context, void *address, size_t size)
{
    reenter(RELEASE);
    return plain.release(context, address, size);
}

static int memory_info(void *context, size_t *free_bytes, size_t *total_bytes)
{
    reenter(INFO);
    return plain.memory_info(context, free_bytes, total_bytes);
}

static void clear(void *context, void *address, size_t size, int fresh)
{
    reenter(CLEAR);
    plain.clear(context, address, size, fresh);
}

static void *hoard; /* what the hook may free */

static int relieve(void *context, size_t wanted, unsigned step)
{
    (void)context, (void)wanted;
    if (inside || step > 0)
        return 0;
    EXPECT(tm_free(manager, hoard) == TM_OK, "the hoard");
    reenter(PRESSURE);
    EXPECT(tm_manager_close(sibling) == TM_OK, "a close in the hook");
    return 1;
}

static void start(void)
{
    arena_init(&device, 1 << 20);
    device.tells_free = true;
    plain = arena_backend(&device, TM_BACKEND_ALIGNS);
    tm_backend backend = plain;
    backend.allocate = allocate;
    backend.release = release;
    backend.memory_info = memory_info;
    backend.clear = clear;
    tm_options options = options_of(THRESHOLD, 100000);
    options.device = 5;
    options.pressure = relieve;
    manager = manager_of(&backend, &options);
    sibling = manager_of(&backend, &options);
}

/* Every way into the device: a miss, a direct request, a trim, the limit, reclaim, the hook. */
static void drive(void)
{
    void *blocks[24], *kept = tm_allocate(sibling, 2000);
    EXPECT(kept != NULL && tm_free(sibling, kept) == TM_OK, "the sibling's block");
    for (size_t i = 0; i < 24; i++)
        EXPECT((blocks[i] = tm_allocate_zeroed(manager, 250 * (i + 1))) != NULL, "block %zu", i);
    for (size_t i = 0; i < 24; i++)
        EXPECT(tm_free(manager, blocks[i]) == TM_OK, "block %zu", i);
    (void)tm_trim(manager, 1000);
    EXPECT((hoard = tm_allocate(manager, 700 << 10)) != NULL, "the hoard");
    void *big = tm_allocate(manager, 900 << 10);
    EXPECT(big != NULL, "900 KiB after the hook");
    EXPECT(tm_free(manager, big) == TM_OK, "900 KiB");
}

int main(int argc, char **argv)
{
    pthread_t helper;
    test_start(argc, argv);
    (void)alarm(120);
    (void)sem_init(&go, 0, 0);
    (void)sem_init(&done, 0, 0);
    start();
    (void)pthread_create(&helper, NULL, help, NULL);
    drive();
    for (unsigned where = 0; where < PLACES; where++)
        EXPECT(visits[where] > 0, "place %u", where);
    over = true;
    (void)sem_post(&go);
    (void)pthread_join(helper, NULL);
    EXPECT_VALID(manager);
    inside = true; /* a close must not be re-entered by the same manager's own calls */
    tm_manager_destroy(sibling);
    tm_manager_destroy(manager);
    arena_destroy(&device);
    return 0;
}
