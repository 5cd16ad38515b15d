/* driver.c - one peer, driven by commands on stdin, one line of answer for each on stdout.
 *
 *   version                     name and version
 *   largest                     largest size in bytes that the peer caches (0: no limit)
 *   hot SIZE PAIRS              ns for an allocate+free of SIZE bytes
 *   live COUNT SIZE             have COUNT live blocks of SIZE bytes
 *   churn DEPTH SEED PAIRS      free DEPTH random ones of them, allocate as many; ns for a free+allocate
 *   threads SIZE0 SIZE1 PAIRS   ns for a pair in a thread of its own (mean of both sizes), and the pairs
 *                               that two threads at once get done for each one of one thread
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
#include <sys/resource.h>
#include <time.h>

#define ATTEMPTS 20
#define SEQUENCE (1u << 22) /* length of the random sequence; longer than any cache at 4 bytes an entry */

typedef struct bench_blocks {
    void **pointers;
    uint32_t *order;
    size_t count, size, position;
    uint64_t seed;
} bench_blocks;

static bench_blocks blocks;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* The compiler must believe that the pointer is used. */
static inline void *escape(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer)::"memory");
    if (__builtin_expect(!pointer, 0))
        fail("allocate gave null");
    return pointer;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

/* --- patterns --------------------------------------------------------------------------------- */

static void hot_pairs(size_t size, size_t pairs)
{
    for (size_t i = 0; i < pairs; i++)
        peer_free(escape(peer_allocate(size)));
}

static double hot(size_t size, size_t pairs)
{
    hot_pairs(size, pairs / 10 + 1);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    hot_pairs(size, pairs);
    return (now(CLOCK_THREAD_CPUTIME_ID) - start) / (double)pairs;
}

static void live(size_t count, size_t size)
{
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
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void draw_order(uint64_t seed)
{
    uint64_t state = seed;
    if (!blocks.order && !(blocks.order = malloc(SEQUENCE * sizeof *blocks.order)))
        fail("malloc");
    for (size_t i = 0; i < SEQUENCE; i++)
        blocks.order[i] = (uint32_t)(((next_random(&state) >> 32) * blocks.count) >> 32);
    blocks.seed = seed;
    blocks.position = 0;
}

/* A block may be drawn twice in one go: its place is null between free and allocate. */
static void churn_go(const uint32_t *which, size_t depth)
{
    for (size_t i = 0; i < depth; i++)
        if (blocks.pointers[which[i]]) {
            peer_free(blocks.pointers[which[i]]);
            blocks.pointers[which[i]] = NULL;
        }
    for (size_t i = 0; i < depth; i++)
        if (!blocks.pointers[which[i]])
            blocks.pointers[which[i]] = escape(peer_allocate(blocks.size));
}

static void churn_pairs(size_t depth, size_t pairs)
{
    for (size_t done = 0; done < pairs; done += depth) {
        if (blocks.position + depth > SEQUENCE)
            blocks.position = 0;
        churn_go(blocks.order + blocks.position, depth);
        blocks.position += depth;
    }
}

static double churn(size_t depth, uint64_t seed, size_t pairs)
{
    if (blocks.seed != seed) {
        draw_order(seed);
        churn_pairs(depth, blocks.count < SEQUENCE ? blocks.count
                                                   : SEQUENCE); /* the first visit is no steady state */
    }
    pairs = (pairs + depth - 1) / depth * depth;
    churn_pairs(depth, pairs / 10 + 1);
    double start = now(CLOCK_THREAD_CPUTIME_ID);
    churn_pairs(depth, pairs);
    return (now(CLOCK_THREAD_CPUTIME_ID) - start) / (double)pairs;
}

/* --- two threads ------------------------------------------------------------------------------ */

typedef struct bench_worker {
    int cpu;
    size_t size, pairs;
    atomic_int *waiting; /* each worker counts it down and starts when it is 0 */
    double nanoseconds;
    long preempted; /* how often another process took the core meanwhile */
} bench_worker;

static long preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nivcsw;
}

static void *work(void *argument)
{
    bench_worker *worker = argument;
    pin(worker->cpu);
    hot_pairs(worker->size, worker->pairs / 10 + 1);
    atomic_fetch_sub(worker->waiting, 1);
    while (atomic_load_explicit(worker->waiting, memory_order_acquire) > 0)
        sched_yield();
    long before = preemptions();
    double start = now(CLOCK_MONOTONIC);
    hot_pairs(worker->size, worker->pairs);
    worker->nanoseconds = now(CLOCK_MONOTONIC) - start;
    worker->preempted = preemptions() - before;
    return NULL;
}

/* Run `count` threads at once, each with its own size, on its own core. *preempted: did another process disturb? */
static double throughput_once(int count, const size_t *sizes, size_t pairs, long *preempted)
{
    atomic_int waiting = count;
    bench_worker workers[2];
    pthread_t threads[2];
    for (int i = 0; i < count; i++) {
        workers[i] = (bench_worker){i, sizes[i], pairs, &waiting, 0, 0};
        if (pthread_create(&threads[i], NULL, work, &workers[i]))
            fail("pthread_create");
    }
    double sum = 0;
    *preempted = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += (double)pairs / workers[i].nanoseconds;
        *preempted += workers[i].preempted;
    }
    return sum;
}

/* Pairs per nanosecond. The wall clock also counts what other processes take: then try again. Waiting for a
 * lock is no preemption, so it always counts. */
static double throughput(int count, const size_t *sizes, size_t pairs)
{
    double result = 0;
    long preempted = 1;
    for (int attempt = 0; attempt < ATTEMPTS && preempted; attempt++)
        result = throughput_once(count, sizes, pairs, &preempted);
    return result;
}

static void threads(const size_t *sizes, size_t pairs, double *nanoseconds, double *ratio)
{
    double first = throughput(1, sizes, pairs), second = throughput(1, sizes + 1, pairs);
    double both = throughput(2, sizes, pairs);
    *nanoseconds = (1 / first + 1 / second) / 2;
    *ratio = both / ((first + second) / 2);
}

/* --- commands --------------------------------------------------------------------------------- */

static int serve(const char *line)
{
    size_t a, b, c;
    if (!strncmp(line, "version", 7)) {
        printf("%s\n", peer_version());
    } else if (!strncmp(line, "largest", 7)) {
        printf("%zu\n", peer_largest());
    } else if (sscanf(line, "hot %zu %zu", &a, &b) == 2) {
        printf("%.6g\n", hot(a, b));
    } else if (sscanf(line, "live %zu %zu", &a, &b) == 2) {
        live(a, b);
        printf("%zu\n", a);
    } else if (sscanf(line, "churn %zu %zu %zu", &a, &b, &c) == 3 && a && a <= SEQUENCE && blocks.count) {
        printf("%.6g\n", churn(a, b, c));
    } else if (sscanf(line, "threads %zu %zu %zu", &a, &b, &c) == 3) {
        double nanoseconds, ratio;
        threads((const size_t[]){a, b}, c, &nanoseconds, &ratio);
        printf("%.6g %.6g\n", nanoseconds, ratio);
    } else {
        return 0;
    }
    return !fflush(stdout);
}

int main(void)
{
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
