/* endings.c - threads that end while they still have something to free: destructors of thread-specific data that
 * allocate and free, up to the last round that POSIX promises, when nothing is run for them any more. */
#include "arena.h"

#include <limits.h>

#define ROUNDS PTHREAD_DESTRUCTOR_ITERATIONS
#define THREADS 8u

static tm_manager *manager;
static pthread_key_t late;
static _Atomic unsigned destroyed;
static pthread_barrier_t barrier;

/* Runs again in each round, the last one included. */
static void use_late(void *count)
{
    uintptr_t round = (uintptr_t)count;
    void *block = tm_allocate(manager, 100 + round);
    EXPECT(block != NULL, "round %zu", (size_t)round);
    EXPECT(tm_free(manager, block) == TM_OK, "round %zu", (size_t)round);
    destroyed++;
    if (round < ROUNDS)
        (void)pthread_setspecific(late, (void *)(round + 1)); /* NOLINT: a count, not an address */
}

static void live_and_end(unsigned number)
{
    (void)pthread_setspecific(late, (void *)(uintptr_t)1);
    void *block = tm_allocate(manager, 64 + number);
    EXPECT(block != NULL, "thread %u", number);
    EXPECT(tm_free(manager, block) == TM_OK, "thread %u", number);
    (void)pthread_barrier_wait(&barrier);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    (void)alarm(60);
    tm_options options = options_of(8192, TM_UNLIMITED);
    manager = manager_of(tm_host_backend(), &options);
    EXPECT(pthread_key_create(&late, use_late) == 0, "a key");
    (void)pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned i = 0; i < 20; i++) {
        run_threads(THREADS, live_and_end);
        EXPECT_VALID(manager);
        tm_manager *other = manager_of(tm_host_backend(), &options);
        (void)tm_free(other, tm_allocate(other, 10));
        tm_manager_destroy(other);
    }
    EXPECT(destroyed == 20 * THREADS * ROUNDS, "%u destructors", destroyed);
    tm_manager_destroy(manager);
    return 0;
}
