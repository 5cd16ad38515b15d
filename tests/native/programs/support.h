/* support.h - what every test program has: a generator with a seed, expectations that say where and with which seed. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "targetmem.h"

extern uint64_t test_seed;
extern const char *test_program;

/* Say what was expected, where and with which seed, then abort, so that a sanitizer or a core file shows the stack. */
#define EXPECT(condition, ...)                                                            \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s: seed %llu: %s:%d: expected %s: ", test_program,    \
                          (unsigned long long)test_seed, __FILE__, __LINE__, #condition); \
            (void)fprintf(stderr, __VA_ARGS__);                                           \
            (void)fputc('\n', stderr);                                                    \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* Every invariant of a manager holds. pre: no other thread uses it. */
#define EXPECT_VALID(manager)                    \
    do {                                         \
        const char *broken_ = tm_check(manager); \
        EXPECT(broken_ == NULL, "%s", broken_);  \
    } while (0)

/* A deterministic generator (splitmix64); each thread has its own, made from the program's seed and a number. */
typedef struct random_t {
    uint64_t state;
} random_t;

static inline uint64_t random_next(random_t *random)
{
    uint64_t z = (random->state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline random_t random_of(uint64_t number) { return (random_t){test_seed * 1000003u + number}; }

/* 0 .. below-1 */
static inline size_t random_below(random_t *random, size_t below)
{
    return (size_t)(random_next(random) % below);
}

static inline bool random_percent(random_t *random, unsigned percent)
{
    return random_below(random, 100) < percent;
}

/* Read "SEED [SCALE]" from the command line; the seed is printed, so that a failure can be had again. */
void test_start(int argc, char **argv);
extern unsigned test_scale; /* per cent of the usual number of steps */

/* Run a function in count threads, which get the numbers 0 .. count-1, to their end. */
void run_threads(unsigned count, void (*run)(unsigned number));

tm_options options_of(size_t threshold, size_t cached_limit);
tm_manager *manager_of(const tm_backend *backend, const tm_options *options);

#endif
