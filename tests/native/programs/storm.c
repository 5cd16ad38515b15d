/* storm.c - the storm of the original's own test: 16 threads, sizes that double from 4 bytes to 16 KiB, past the
 * threshold of 8 KiB; first allocations and frees alone, then each block is filled with its thread's number by one
 * pass and read back by another. No block may ever hold another thread's number. */
#include "arena.h"

#define THREADS 16u
#define SIZES 13u /* 4 bytes .. 16 KiB */
#define THRESHOLD 8192u

static tm_manager *manager;

static size_t size_at(unsigned i) { return (size_t)4 << i; }

static void allocate_and_free(unsigned number)
{
    (void)number;
    for (unsigned i = 0; i < SIZES; i++) {
        void *block = tm_allocate(manager, size_at(i));
        EXPECT(block != NULL, "%zu bytes", size_at(i));
        EXPECT(tm_free(manager, block) == TM_OK, "%zu bytes", size_at(i));
    }
}

static void fill(uint32_t *block, size_t size, uint32_t number)
{
    for (size_t k = 0; k < size / sizeof *block; k++)
        block[k] = number;
}

static void read_back(const uint32_t *block, size_t size, uint32_t number)
{
    for (size_t k = 0; k < size / sizeof *block; k++)
        EXPECT(block[k] == number, "word %zu of %zu bytes is %u, not %u", k, size, block[k], number);
}

static void fill_and_read(unsigned number)
{
    for (unsigned i = 0; i < SIZES; i++) {
        uint32_t *block = tm_allocate(manager, size_at(i));
        EXPECT(block != NULL, "%zu bytes", size_at(i));
        fill(block, size_at(i), number);
        read_back(block, size_at(i), number);
        EXPECT(tm_free(manager, block) == TM_OK, "%zu bytes", size_at(i));
    }
}

/* All of a thread's blocks live at once, filled first and read afterwards. */
static void fill_all_then_read(unsigned number)
{
    uint32_t *blocks[SIZES];
    for (unsigned i = 0; i < SIZES; i++) {
        blocks[i] = tm_allocate(manager, size_at(i));
        EXPECT(blocks[i] != NULL, "%zu bytes", size_at(i));
        fill(blocks[i], size_at(i), number);
    }
    for (unsigned i = 0; i < SIZES; i++) {
        read_back(blocks[i], size_at(i), number);
        EXPECT(tm_free(manager, blocks[i]) == TM_OK, "%zu bytes", size_at(i));
    }
}

static void storm(unsigned number)
{
    unsigned rounds = 1 + 20 * test_scale / 100;
    for (unsigned round = 0; round < rounds; round++) {
        allocate_and_free(number);
        fill_and_read(number);
        fill_all_then_read(number);
    }
}

/* Every request above the threshold went to the device; below it a thread needs one block a size, save that a
 * block may slip past the eyes of a thread that looks through the others. */
static void check_counts(void)
{
    tm_statistics counted;
    tm_get_statistics(manager, &counted);
    unsigned long long rounds = 1 + 20 * test_scale / 100;
    EXPECT(counted.allocations == THREADS * rounds * 3 * SIZES, "%llu",
           (unsigned long long)counted.allocations);
    EXPECT(counted.direct == THREADS * rounds * 3, "%llu", (unsigned long long)counted.direct);
    EXPECT(counted.misses <= 4ull * THREADS * (SIZES - 1), "%llu", (unsigned long long)counted.misses);
    EXPECT(counted.live.now == 0 && counted.frees == counted.allocations, "%llu bytes live",
           (unsigned long long)counted.live.now);
}

static void run_on(const tm_backend *backend)
{
    tm_options options = options_of(THRESHOLD, TM_UNLIMITED);
    manager = manager_of(backend, &options);
    run_threads(THREADS, storm);
    EXPECT_VALID(manager);
    check_counts();
    (void)tm_manager_close(manager);
    EXPECT_VALID(manager);
    tm_manager_destroy(manager);
}

int main(int argc, char **argv)
{
    arena device;
    test_start(argc, argv);
    run_on(tm_host_backend());
    arena_init(&device, (size_t)4 << 20);
    device.dawdle_percent = 20;
    tm_backend backend = arena_backend(&device, 0);
    run_on(&backend);
    arena_destroy(&device);
    return 0;
}
