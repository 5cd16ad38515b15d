/* support.c - see support.h. */
#include "support.h"

#define MOST_THREADS 64u

uint64_t test_seed;
unsigned test_scale = 100;
const char *test_program = "test";

void test_start(int argc, char **argv)
{
    test_program = argv[0];
    test_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    test_scale = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 100;
    (void)printf("seed %llu scale %u\n", (unsigned long long)test_seed, test_scale);
    (void)fflush(stdout);
}

typedef struct start_t {
    void (*run)(unsigned number);
    unsigned number;
} start_t;

static void *enter(void *opaque)
{
    start_t *start = opaque;
    start->run(start->number);
    return NULL;
}

void run_threads(unsigned count, void (*run)(unsigned number))
{
    pthread_t threads[MOST_THREADS];
    start_t starts[MOST_THREADS];
    EXPECT(count <= MOST_THREADS, "%u threads", count);
    for (unsigned i = 0; i < count; i++) {
        starts[i] = (start_t){run, i};
        EXPECT(pthread_create(&threads[i], NULL, enter, &starts[i]) == 0, "thread %u", i);
    }
    for (unsigned i = 0; i < count; i++)
        (void)pthread_join(threads[i], NULL);
}

tm_options options_of(size_t threshold, size_t cached_limit)
{
    return (tm_options){.version = TM_ABI_VERSION, .threshold = threshold, .cached_limit = cached_limit};
}

tm_manager *manager_of(const tm_backend *backend, const tm_options *options)
{
    tm_manager *manager;
    tm_status status = tm_manager_create(backend, options, &manager);
    EXPECT(status == TM_OK, "status %d", (int)status);
    return manager;
}
