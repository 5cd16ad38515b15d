/* watch.c - statistics, blocks and peaks looked at without pause while one thread allocates and another frees: not
 * exact then, but never nonsense; and exact again as soon as it is quiet. */
#include "arena.h"

#define RING 32u
#define SIZE 192u

static tm_manager *manager;
static _Atomic(void *) ring[RING];
static _Atomic unsigned running;

static unsigned steps(void) { return 200 * test_scale; }

static void produce(void)
{
    for (unsigned i = 0; i < steps(); i++) {
        void *block = tm_allocate(manager, SIZE);
        EXPECT(block != NULL, "block %u", i);
        while (block) {
            void *none = NULL;
            if (atomic_compare_exchange_strong(&ring[i % RING], &none, block))
                block = NULL;
            else
                (void)sched_yield();
        }
    }
}

static void consume(void)
{
    for (unsigned i = 0; i < steps(); i++) {
        void *block;
        while ((block = atomic_exchange(&ring[i % RING], NULL)) == NULL)
            (void)sched_yield();
        EXPECT(tm_free(manager, block) == TM_OK, "block %u", i);
    }
}

static void expect_sense(const tm_statistics *now)
{
    const uint64_t most = UINT64_C(1) << 40;
    EXPECT(now->allocations < most && now->frees < most && now->hits < most, "%llu allocations, %llu frees",
           (unsigned long long)now->allocations, (unsigned long long)now->frees);
    EXPECT(now->live_blocks < most && now->cached_blocks < most, "%llu live, %llu cached blocks",
           (unsigned long long)now->live_blocks, (unsigned long long)now->cached_blocks);
    EXPECT(now->live.now < most && now->cached.now < most && now->padding_bytes < most, "%llu bytes live",
           (unsigned long long)now->live.now);
    EXPECT(now->live.total < most && now->cached.total < most, "%llu bytes in all",
           (unsigned long long)now->live.total);
}

static void watch(void)
{
    while (running > 1) {
        tm_statistics whole, bucket;
        tm_block_info infos[8];
        tm_get_statistics(manager, &whole);
        expect_sense(&whole);
        tm_get_bucket_statistics(manager, 7, &bucket);
        expect_sense(&bucket);
        (void)tm_list_blocks(manager, 0, infos, 8);
    }
}

static void run(unsigned number)
{
    void (*const what[])(void) = {produce, consume, watch};
    what[number]();
    running--;
}

static void check_end(void)
{
    tm_statistics counted;
    tm_get_statistics(manager, &counted);
    EXPECT(counted.allocations == steps() && counted.frees == steps(), "%llu",
           (unsigned long long)counted.frees);
    EXPECT(counted.live.now == 0 && counted.live_blocks == 0, "%llu", (unsigned long long)counted.live.now);
    EXPECT(counted.live.peak >= SIZE && counted.live.peak <= (RING + 2) * SIZE, "%llu bytes at most",
           (unsigned long long)counted.live.peak);
    EXPECT(counted.live.total == (uint64_t)steps() * SIZE, "%llu", (unsigned long long)counted.live.total);
    EXPECT_VALID(manager);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    tm_options options = options_of(TM_UNLIMITED, TM_UNLIMITED);
    manager = manager_of(tm_host_backend(), &options);
    running = 3;
    run_threads(3, run);
    check_end();
    tm_manager_destroy(manager);
    return 0;
}
