/* loop.c - the hot pair for functions that are known by address only: those of the installed extension module. */
#include <stddef.h>
#include <time.h>

typedef void *bench_allocate(void *manager, size_t size);
typedef int bench_free(void *manager, void *pointer);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* ns for an allocate+free of size bytes. */
double bench_hot(bench_allocate *allocate, bench_free *release, void *manager, size_t size, size_t pairs)
{
    double start = 0;
    for (size_t i = 0, warm = pairs / 10 + 1; i < warm + pairs; i++) {
        if (i == warm)
            start = now();
        release(manager, allocate(manager, size));
    }
    return (now() - start) / (double)pairs;
}
