/* driver.c - one peer, driven by commands on stdin, one line of answer for each on stdout.
 *
 *   version                     name and version
 *   largest                     largest size in bytes that the peer caches (0: no limit)
 *   hot SIZE PAIRS              ns for an allocate+free of SIZE bytes
 *   live COUNT SIZE             have COUNT live blocks of SIZE bytes
 *   churn PAIRS SEED            ns for a free+allocate of a random one of them
 *   threads SIZE0 SIZE1 PAIRS   ns a pair of thread 0 alone, then pairs per ns of both at once times that
 *   quit
 *
 * The caller sends the same command to each peer in turn, a few milliseconds each, so that slow phases
 * of the machine hit all of them. A single thread is timed by its CPU time (what other processes take
 * does not count), two threads by the wall clock (waiting for a lock does count).
 */
#define _GNU_SOURCE
#include "peer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define SEQUENCE (1u << 22) /* length of the random sequence; longer than any cache at 4 bytes an entry */

typedef struct bench_blocks {
    void **pointers;
    uint32_t *order;
    size_t count, size, position;
    uint64_t seed;
} bench_blocks;

static bench_blocks blocks;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* The compiler must believe that the pointer is used. */
static inline void *escape(void *pointer) {
    __asm__ volatile("" : "+r"(pointer)::"memory");
    if (__builtin_expect(!pointer, 0))
        fail("allocate gave null");
    return pointer;
}

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

/* --- patterns --------------------------------------------------------------------------------- */

static void hot_pairs(size_t size, size_t pairs) {
    for (size_t i = 0; i < pairs; i++)
        peer_free(escape(peer_allocate(size)));
}

static double hot(size_t size, size_t pairs) {
    hot_pairs(size, pairs / 10 + 1);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    hot_pairs(size, pairs);
    return (now(CLOCK_THREAD_CPUTIME_ID) - start) / (double)pairs;
}

static void live(size_t count, size_t size) {
    for (size_t i = 0; i < blocks.count; i++)
        peer_free(blocks.pointers[i]);
    blocks.pointers = realloc(blocks.pointers, (count ? count : 1) * sizeof *blocks.pointers);
    if (!blocks.pointers)
        fail("realloc");
    blocks.count = count;
    blocks.size = size;
    blocks.seed = 0;
    for (size_t i = 0; i < count; i++)
        blocks.pointers[i] = escape(peer_allocate(size));
}

/* splitmix64: the same sequence for each peer and each run. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void draw_order(uint64_t seed) {
    uint64_t state = seed;
    if (!blocks.order && !(blocks.order = malloc(SEQUENCE * sizeof *blocks.order)))
        fail("malloc");
    for (size_t i = 0; i < SEQUENCE; i++)
        blocks.order[i] = (uint32_t)(((next_random(&state) >> 32) * blocks.count) >> 32);
    blocks.seed = seed;
    blocks.position = 0;
}

static void churn_pairs(size_t pairs) {
    for (size_t i = 0; i < pairs; i++) {
        uint32_t which = blocks.order[blocks.position++ & (SEQUENCE - 1)];
        peer_free(blocks.pointers[which]);
        blocks.pointers[which] = escape(peer_allocate(blocks.size));
    }
}

static double churn(size_t pairs, uint64_t seed) {
    if (blocks.seed != seed)
        draw_order(seed);
    churn_pairs(pairs / 10 + 1);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    churn_pairs(pairs);
    return (now(CLOCK_THREAD_CPUTIME_ID) - start) / (double)pairs;
}

/* --- two threads ------------------------------------------------------------------------------ */

typedef struct bench_worker {
    int cpu;
    size_t size, pairs;
    atomic_int *waiting; /* each worker counts it down and starts when it is 0 */
    double nanoseconds;
} bench_worker;

static void *work(void *argument) {
    bench_worker *worker = argument;
    pin(worker->cpu);
    hot_pairs(worker->size, worker->pairs / 10 + 1);
    atomic_fetch_sub(worker->waiting, 1);
    while (atomic_load_explicit(worker->waiting, memory_order_acquire) > 0)
        sched_yield();
    double start = now(CLOCK_MONOTONIC);
    hot_pairs(worker->size, worker->pairs);
    worker->nanoseconds = now(CLOCK_MONOTONIC) - start;
    return NULL;
}

/* Pairs per nanosecond of `count` threads at once. */
static double throughput(int count, size_t size0, size_t size1, size_t pairs) {
    atomic_int waiting = count;
    bench_worker workers[2];
    pthread_t threads[2];
    for (int i = 0; i < count; i++) {
        workers[i] = (bench_worker){i, i ? size1 : size0, pairs, &waiting, 0};
        if (pthread_create(&threads[i], NULL, work, &workers[i]))
            fail("pthread_create");
    }
    double sum = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += (double)pairs / workers[i].nanoseconds;
    }
    return sum;
}

/* --- commands --------------------------------------------------------------------------------- */

static void answer(double value) {
    printf("%.6g\n", value);
    fflush(stdout);
}

static int serve(const char *line) {
    size_t a, b, c;
    if (!strncmp(line, "version", 7))
        printf("%s\n", peer_version()), fflush(stdout);
    else if (!strncmp(line, "largest", 7))
        answer((double)peer_largest());
    else if (sscanf(line, "hot %zu %zu", &a, &b) == 2)
        answer(hot(a, b));
    else if (sscanf(line, "live %zu %zu", &a, &b) == 2)
        live(a, b), answer((double)a);
    else if (sscanf(line, "churn %zu %zu", &a, &b) == 2)
        answer(churn(a, b));
    else if (sscanf(line, "threads %zu %zu %zu", &a, &b, &c) == 3) {
        double one = throughput(1, a, b, c);
        printf("%.6g %.6g\n", 1 / one, throughput(2, a, b, c) / one), fflush(stdout);
    } else
        return 0;
    return 1;
}

int main(void) {
    char line[256];
    if (peer_create())
        return 3;
    pin(0);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4))
        if (!serve(line)) {
            fprintf(stderr, "bench: unknown command: %s", line);
            return 2;
        }
    live(0, 0);
    peer_destroy();
    return 0;
}
