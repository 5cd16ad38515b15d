/* mapping_llvm.c - libomptarget's mapping of data on its host device 0, driven by commands on stdin.
 *
 *   version                  the compiler's, which brings the library
 *   others COUNT SIZE        map COUNT other ranges of SIZE bytes, and no more than these
 *   mapping SIZE PAIRS       ns for `target enter data map(to:)` and `target exit data map(from:)` of SIZE bytes
 *
 * The directives call __tgt_target_data_begin_mapper and __tgt_target_data_end_mapper.
 * Compile with clang -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEVICE 0
#define STRIDE 2 /* others lie apart: ranges that touch would do as well, but real ones don't */

static char *others;
static size_t others_count, others_size;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void map_others(size_t count, size_t size)
{
    for (size_t i = 0; i < others_count; i++) {
        char *one = others + i * STRIDE * others_size;
#pragma omp target exit data map(delete : one[0 : others_size]) device(DEVICE)
    }
    free(others);
    others = malloc(count * STRIDE * size + 1);
    if (!others)
        exit(2);
    for (size_t i = 0; i < count; i++) {
        char *one = others + i * STRIDE * size;
#pragma omp target enter data map(alloc : one[0 : size]) device(DEVICE)
    }
    others_count = count;
    others_size = size;
}

static void map_pairs(char *bytes, size_t size, size_t pairs)
{
    for (size_t i = 0; i < pairs; i++) {
#pragma omp target enter data map(to : bytes[0 : size]) device(DEVICE)
#pragma omp target exit data map(from : bytes[0 : size]) device(DEVICE)
    }
}

static double mapping(size_t size, size_t pairs)
{
    char *bytes = calloc(1, size);
    if (!bytes)
        exit(2);
    map_pairs(bytes, size, pairs / 10 + 1);
    double start = now();
    map_pairs(bytes, size, pairs);
    double each = (now() - start) / (double)pairs;
    free(bytes);
    return each;
}

static int serve(const char *line)
{
    size_t a, b;
    if (!strncmp(line, "version", 7))
        printf("%s\n", __clang_version__);
    else if (sscanf(line, "others %zu %zu", &a, &b) == 2) {
        map_others(a, b);
        printf("%zu\n", a);
    } else if (sscanf(line, "mapping %zu %zu", &a, &b) == 2)
        printf("%.6g\n", mapping(a, b));
    else
        return 0;
    return !fflush(stdout);
}

int main(void)
{
    char line[256];
    int on_host = 1;
    cpu_set_t set;
#pragma omp target map(tofrom : on_host) device(DEVICE)
    on_host = omp_is_initial_device();
    if (on_host) {
        fprintf(stderr, "llvm: no offload device\n");
        return 3;
    }
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
    while (fgets(line, sizeof line, stdin))
        if (!serve(line)) {
            fprintf(stderr, "bench: unknown command: %s", line);
            return 2;
        }
    map_others(0, 1);
    return 0;
}
