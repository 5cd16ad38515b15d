/* primitives.c - what this machine charges for the building blocks of an allocator. Prints one JSON object, ns each.
 * Build: cc -O2 -pthread primitives.c */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define MIB ((size_t)1 << 20)

static atomic_int stop;
static _Atomic uint64_t word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void empty_loop(void) { __asm__ volatile("" ::: "memory"); }
static void compare_exchange(void)
{
    uint64_t expected = 0;
    atomic_compare_exchange_strong(&word, &expected, 0);
}
static void load_store(void)
{
    uint64_t value = atomic_load_explicit(&word, memory_order_relaxed);
    atomic_store_explicit(&word, value, memory_order_release);
}
static void lock_unlock(void)
{
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}
static void barrier(void) { syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); }
static void map_unmap(void)
{
    void *range = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" : "+r"(range)::"memory");
    munmap(range, MIB);
}
static void map_fill_unmap(void)
{
    void *range = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(range, 1, MIB);
    munmap(range, MIB);
}
static void read_clock(void) { now(); }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(void (*what)(void), size_t times)
{
    double results[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (size_t i = 0; i < times; i++)
            what();
        results[round] = (now() - start) / (double)times;
    }
    qsort(results, ROUNDS, sizeof *results, ascending);
    return results[ROUNDS / 2];
}

static void *spin(void *unused)
{
    pin(1);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        empty_loop();
    return unused;
}

int main(void)
{
    pthread_t other;
    pin(0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    pthread_create(&other, NULL, spin, NULL);
    double threaded = median_of(barrier, 2000);
    atomic_store(&stop, 1);
    pthread_join(other, NULL);
    printf("{\"call\": %.3g, \"load_store\": %.3g, \"compare_exchange\": %.3g, \"mutex_pair\": %.3g, "
           "\"clock\": %.3g, "
           "\"membarrier_1_thread\": %.4g, \"membarrier_2_threads\": %.4g, \"map_unmap_1MiB\": %.4g, "
           "\"map_fill_unmap_1MiB\": %.5g}\n",
           median_of(empty_loop, 1000000), median_of(load_store, 1000000),
           median_of(compare_exchange, 1000000), median_of(lock_unlock, 1000000),
           median_of(read_clock, 300000), median_of(barrier, 20000), threaded, median_of(map_unmap, 2000),
           median_of(map_fill_unmap, 200));
    return 0;
}
