/* stress.c - everything at once: threads that come and go, blocks that change threads, several managers on devices
 * that are small, slow and refuse, a manager that is closed under everybody's hands, reclaim, trim, limits and
 * statistics meanwhile. Each block carries a cookie from birth to death; every structure is walked between phases. */
#include "arena.h"

#define LANES 6u
#define GENERATIONS 3u
#define PHASES 4u
#define MOST_ITEMS 160u
#define EXCHANGE 48u
#define MANAGERS 5u
#define DOOMED 4u

typedef struct item {
    void *pointer;
    size_t size;
    unsigned manager;
    uint64_t cookie;
} item;

typedef struct worker {
    random_t random;
    item *items[MOST_ITEMS];
    unsigned count;
} worker;

static arena shared_device, faulty_device, doomed_device;
static tm_manager *managers[MANAGERS];
static const size_t limits[MANAGERS] = {TM_UNLIMITED, TM_UNLIMITED, 64 << 10, 4096, 16 << 10};
static _Atomic(item *) exchange[EXCHANGE];
static _Atomic unsigned phase, hooks;

/* --- cookies --------------------------------------------------------------------------------------- */

/* The doomed manager's memory may go at any moment: nobody looks at it. */
static bool has_cookie(const item *it) { return it->manager != DOOMED; }

static unsigned char *last_byte(const item *it) { return (unsigned char *)it->pointer + it->size - 1; }

static void write_cookie(item *it)
{
    if (!has_cookie(it))
        return;
    if (it->size >= sizeof it->cookie)
        memcpy(it->pointer, &it->cookie, sizeof it->cookie);
    *last_byte(it) = (unsigned char)(it->cookie >> 56);
}

static void check_cookie(const item *it)
{
    uint64_t found;
    if (!has_cookie(it))
        return;
    EXPECT(*last_byte(it) == (unsigned char)(it->cookie >> 56), "%zu bytes at %p", it->size, it->pointer);
    if (it->size < sizeof found + 1)
        return;
    memcpy(&found, it->pointer, sizeof found);
    EXPECT(found == it->cookie, "%zu bytes at %p", it->size, it->pointer);
}

/* --- allocation -------------------------------------------------------------------------------------- */

static size_t draw_size(random_t *random)
{
    static const size_t usual[] = {1,   8,    24,   64,   65,   100,  128,  256,
                                   512, 1000, 1024, 2048, 2049, 4096, 8192, 8193};
    size_t kind = random_below(random, 100);
    if (kind < 75)
        return usual[random_below(random, sizeof usual / sizeof *usual)];
    return 1 + random_below(random, kind < 95 ? 8192 : 40000);
}

static void expect_refusal(unsigned manager)
{
    tm_error error;
    tm_last_error(&error);
    bool closed = manager == DOOMED && error.status == TM_CLOSED;
    bool refused = error.status == TM_OUT_OF_MEMORY && error.reason == TM_REASON_REFUSED;
    EXPECT(closed || refused, "status %d, %s", (int)error.status, tm_reason_text(error.reason));
}

static void *allocate_zeroed(tm_manager *manager, size_t size)
{
    char *pointer = tm_allocate_zeroed(manager, size);
    if (pointer)
        EXPECT(pointer[0] == 0 && memcmp(pointer, pointer + 1, size - 1) == 0, "%zu bytes at %p", size,
               (void *)pointer);
    return pointer;
}

static void *allocate_aligned(tm_manager *manager, size_t size, random_t *random)
{
    size_t alignment = (size_t)64 << random_below(random, 6);
    void *pointer = tm_allocate_aligned(manager, size, alignment);
    EXPECT(((uintptr_t)pointer & (alignment - 1)) == 0, "%p aligned to %zu", pointer, alignment);
    return pointer;
}

static void *allocate_some_way(random_t *random, unsigned which, size_t size)
{
    tm_manager *manager = managers[which];
    size_t way = random_below(random, 100);
    if (way < 10)
        return allocate_aligned(manager, size, random);
    if (way < 15 && which != DOOMED) /* clearing would touch memory that a close has taken away */
        return allocate_zeroed(manager, size);
    void *pointer = way < 30 ? tm_try_allocate(manager, size) : NULL;
    return pointer ? pointer : tm_allocate(manager, size);
}

static void allocate_one(worker *self)
{
    unsigned which = (unsigned)random_below(&self->random, MANAGERS);
    size_t size = draw_size(&self->random);
    if (self->count == MOST_ITEMS)
        return;
    void *pointer = allocate_some_way(&self->random, which, size);
    if (!pointer) {
        expect_refusal(which);
        return;
    }
    item *it = malloc(sizeof *it);
    *it = (item){pointer, size, which, random_next(&self->random)};
    write_cookie(it);
    self->items[self->count++] = it;
}

/* --- free -------------------------------------------------------------------------------------------- */

static void free_item(random_t *random, item *it)
{
    tm_manager *manager = managers[it->manager];
    check_cookie(it);
    size_t way = random_below(random, 4);
    bool done = way == 0 && tm_try_free(manager, it->pointer) == 0;
    if (!done) {
        tm_status status =
            way == 1 ? tm_free_sized(manager, it->pointer, it->size) : tm_free(manager, it->pointer);
        EXPECT(status == TM_OK, "status %d", (int)status);
    }
    free(it);
}

static item *take_own(worker *self)
{
    if (self->count == 0)
        return NULL;
    unsigned at = (unsigned)random_below(&self->random, self->count);
    item *it = self->items[at];
    self->items[at] = self->items[--self->count];
    return it;
}

static void free_one(worker *self)
{
    item *it = take_own(self);
    if (it)
        free_item(&self->random, it);
}

static void exchange_one(worker *self)
{
    item *mine = take_own(self);
    item *theirs = atomic_exchange(&exchange[random_below(&self->random, EXCHANGE)], mine);
    if (!theirs)
        return;
    check_cookie(theirs);
    self->items[self->count++] = theirs;
}

/* What the device lacks may lie in the exchange. */
static int relieve(void *context, size_t wanted, unsigned step)
{
    random_t random = {wanted * 31 + step};
    (void)context;
    atomic_fetch_add(&hooks, 1);
    for (unsigned i = 0; i < EXCHANGE && step < 2; i++) {
        item *it = atomic_exchange(&exchange[random_below(&random, EXCHANGE)], NULL);
        if (it) {
            free_item(&random, it);
            return 1;
        }
    }
    return 0;
}

/* --- what goes on besides ------------------------------------------------------------------------------ */

static void reallocate_one(worker *self)
{
    item *it = take_own(self);
    if (!it)
        return;
    self->items[self->count++] = it;
    size_t size = draw_size(&self->random);
    if (it->manager == DOOMED)
        return;
    check_cookie(it);
    void *pointer = tm_reallocate(managers[it->manager], it->pointer, size);
    if (!pointer)
        return; /* refused: the block is as it was, which its cookie will show */
    uint64_t kept = it->cookie;
    if (it->size >= sizeof kept && size >= sizeof kept)
        EXPECT(memcmp(pointer, &kept, sizeof kept - 1) == 0, "%zu bytes resized to %zu", it->size, size);
    it->pointer = pointer;
    it->size = size;
    write_cookie(it);
}

static void expect_invalid(tm_status status, tm_reason reason)
{
    tm_error error;
    tm_last_error(&error);
    EXPECT(status == TM_INVALID_FREE && error.reason == reason, "status %d, %s", (int)status,
           tm_reason_text(error.reason));
}

/* Wrong frees of a block that is ours: nothing may change. */
static void misuse_one(worker *self)
{
    item *it = take_own(self);
    if (!it)
        return;
    self->items[self->count++] = it;
    if (it->manager == DOOMED || it->size < 2)
        return;
    tm_manager *manager = managers[it->manager];
    expect_invalid(tm_free(manager, (char *)it->pointer + it->size / 2), TM_REASON_INTERIOR);
    expect_invalid(tm_free_sized(manager, it->pointer, it->size + 1), TM_REASON_SIZE_MISMATCH);
    check_cookie(it);
}

static void look_for_one(worker *self)
{
    tm_block_info info;
    item *it = take_own(self);
    if (!it)
        return;
    self->items[self->count++] = it;
    if (it->manager == DOOMED)
        return;
    int found = tm_find_block(managers[it->manager], (char *)it->pointer + it->size - 1, &info);
    EXPECT(found && info.live && info.address == (uintptr_t)it->pointer && info.requested == it->size,
           "found %d, live %d, %zu bytes", found, info.live, info.requested);
}

/* Not exact while others run, but never nonsense. */
static void look_at_statistics(tm_manager *manager)
{
    const uint64_t nonsense = UINT64_C(1) << 50;
    tm_statistics counted;
    tm_get_statistics(manager, &counted);
    EXPECT(counted.allocations < nonsense && counted.frees < nonsense && counted.hits < nonsense,
           "%llu allocations", (unsigned long long)counted.allocations);
    EXPECT(counted.live.now < nonsense && counted.cached.now < nonsense && counted.cached.total < nonsense,
           "%llu bytes live", (unsigned long long)counted.live.now);
    EXPECT(counted.live_blocks < nonsense && counted.cached_blocks < nonsense,
           "%llu live, %llu cached blocks", (unsigned long long)counted.live_blocks,
           (unsigned long long)counted.cached_blocks);
}

static void list_some(tm_manager *manager)
{
    tm_block_info infos[32];
    size_t count = tm_list_blocks(manager, 0, infos, 32);
    for (size_t i = 1; i < count; i++)
        EXPECT(infos[i - 1].address + infos[i - 1].size <= infos[i].address, "block %zu of %zu", i, count);
}

/* A manager of one's own, from its birth to its end. */
static void live_a_life(worker *self)
{
    tm_options options = options_of(4096, random_percent(&self->random, 50) ? TM_UNLIMITED : 8192);
    options.flags = random_percent(&self->random, 30) ? TM_OPTION_NO_THREAD_CACHE : 0;
    tm_manager *own = manager_of(tm_host_backend(), &options);
    void *blocks[12];
    for (unsigned i = 0; i < 12; i++)
        blocks[i] = tm_allocate(own, 100u + 700u * i);
    for (unsigned i = 0; i < 12; i++)
        EXPECT(tm_free(own, blocks[i]) == TM_OK, "block %u", i);
    EXPECT_VALID(own);
    if (random_percent(&self->random, 50))
        (void)tm_manager_close(own);
    tm_manager_destroy(own);
}

static void do_besides(worker *self)
{
    tm_manager *manager = managers[random_below(&self->random, MANAGERS)];
    switch (random_below(&self->random, 9)) {
    case 0:
        (void)tm_trim(manager, random_below(&self->random, 20000));
        break;
    case 1:
        look_at_statistics(manager);
        break;
    case 2:
        tm_reset_peaks(manager);
        break;
    case 3:
        list_some(manager);
        break;
    case 4:
        live_a_life(self);
        break;
    case 5:
        (void)tm_set_tag((uint32_t)random_next(&self->random));
        break;
    case 6:
        look_for_one(self);
        break;
    case 7:
        misuse_one(self);
        break;
    default:
        reallocate_one(self);
    }
}

static void step(worker *self)
{
    size_t what = random_below(&self->random, 100);
    if (what < 42)
        allocate_one(self);
    else if (what < 80)
        free_one(self);
    else if (what < 96)
        exchange_one(self);
    else
        do_besides(self);
}

/* --- threads, phases ----------------------------------------------------------------------------------- */

static void *work(void *opaque)
{
    unsigned number = *(unsigned *)opaque, steps = 2000 * test_scale / 100;
    worker self = {.random = random_of(number)};
    for (unsigned i = 0; i < steps; i++) {
        step(&self);
        if (number % LANES == 0 && i == steps / 2)
            (void)tm_manager_close(managers[DOOMED]);
    }
    while (self.count)
        random_percent(&self.random, 80) ? free_one(&self) : exchange_one(&self);
    return NULL;
}

/* One thread after another: a new one takes over what the former left in the exchange. */
static void lane(unsigned number)
{
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        pthread_t thread;
        unsigned id = (phase * GENERATIONS + generation) * LANES + number;
        EXPECT(pthread_create(&thread, NULL, work, &id) == 0, "thread %u", id);
        (void)pthread_join(thread, NULL);
    }
}

static void start_managers(void)
{
    tm_backend shared = arena_backend(&shared_device, TM_BACKEND_ALIGNS),
               faulty = arena_backend(&faulty_device, 0);
    tm_options options = options_of(8192, limits[0]);
    managers[0] = manager_of(tm_host_backend(), &options);
    options.device = 7; /* the next two reclaim from each other */
    options.pressure = relieve;
    options.threshold = 2048;
    managers[1] = manager_of(&shared, &options);
    options.threshold = TM_UNLIMITED;
    options.cached_limit = limits[2];
    managers[2] = manager_of(&shared, &options);
    options = options_of(8192, limits[3]);
    options.flags = TM_OPTION_NO_THREAD_CACHE;
    managers[3] = manager_of(&faulty, &options);
}

static void start_doomed(void)
{
    tm_backend backend = arena_backend(&doomed_device, 0);
    tm_options options = options_of(8192, limits[DOOMED]);
    managers[DOOMED] = manager_of(&backend, &options);
}

static void end_doomed(void)
{
    for (unsigned i = 0; i < EXCHANGE; i++) {
        item *it = exchange[i];
        if (it && it->manager == DOOMED) {
            EXPECT(tm_free(managers[DOOMED], it->pointer) == TM_OK, "a free after close");
            free(it);
            exchange[i] = NULL;
        }
    }
    (void)tm_manager_close(managers[DOOMED]);
    EXPECT_VALID(managers[DOOMED]);
    EXPECT(doomed_device.held == 0, "%zu bytes", doomed_device.held);
    tm_manager_destroy(managers[DOOMED]);
}

/* What a manager counts as live is what lies in the exchange. */
static void check_live(unsigned which)
{
    tm_statistics counted;
    uint64_t bytes = 0, blocks = 0;
    for (unsigned i = 0; i < EXCHANGE; i++)
        if (exchange[i] && exchange[i]->manager == which) {
            bytes += exchange[i]->size;
            blocks++;
        }
    tm_get_statistics(managers[which], &counted);
    EXPECT(counted.requested.now == bytes && counted.live_blocks == blocks,
           "%llu bytes live in manager %u, not %llu", (unsigned long long)counted.requested.now, which,
           (unsigned long long)bytes);
    EXPECT(counted.cached.peak <= limits[which], "%llu bytes cached in manager %u, at most %zu",
           (unsigned long long)counted.cached.peak, which, limits[which]);
}

static void check_quiet(void)
{
    tm_statistics one, other;
    for (unsigned which = 0; which < DOOMED; which++) {
        EXPECT_VALID(managers[which]);
        check_live(which);
    }
    arena_agrees(&faulty_device, managers[3]);
    tm_get_statistics(managers[1], &one);
    tm_get_statistics(managers[2], &other);
    EXPECT(one.held.now + other.held.now == shared_device.held, "%zu", shared_device.held);
}

static void run_phase(unsigned number)
{
    phase = number;
    start_doomed();
    run_threads(LANES, lane);
    end_doomed();
    check_quiet();
}

static void end(void)
{
    random_t random = random_of(0xE4D);
    for (unsigned i = 0; i < EXCHANGE; i++)
        if (exchange[i])
            free_item(&random, exchange[i]);
    for (unsigned which = 0; which < DOOMED; which++) {
        tm_statistics counted;
        (void)tm_trim(managers[which], 0);
        tm_get_statistics(managers[which], &counted);
        EXPECT(counted.held.now == 0, "%llu bytes in manager %u", (unsigned long long)counted.held.now,
               which);
        EXPECT_VALID(managers[which]);
        (void)tm_manager_close(managers[which]);
        tm_manager_destroy(managers[which]);
    }
}

/* The program met what it is for: refusals, ladders, hooks, hits. */
static void check_coverage(void)
{
    tm_statistics counted;
    tm_get_statistics(managers[1], &counted);
    EXPECT(counted.reclaims > 0 && counted.device_failures > 0 && counted.hits > 0 && counted.direct > 0,
           "%llu reclaims", (unsigned long long)counted.reclaims);
    EXPECT(hooks > 0, "no pressure");
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    arena_init(&shared_device, 256 << 10);
    arena_init(&faulty_device, 1 << 20);
    arena_init(&doomed_device, 4 << 20);
    shared_device.dawdle_percent = 10;
    shared_device.tells_free = true;
    faulty_device.refuse_percent = 5;
    doomed_device.dawdle_percent = 2;
    start_managers();
    for (unsigned number = 0; number < PHASES; number++)
        run_phase(number);
    check_coverage();
    end();
    arena_destroy(&shared_device);
    arena_destroy(&faulty_device);
    arena_destroy(&doomed_device);
    return 0;
}
