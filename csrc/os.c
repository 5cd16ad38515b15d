/* os.c - Linux and other POSIX systems. */
#define _GNU_SOURCE
#include "os.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/syscall.h>
#define MEMBARRIER_PRIVATE_EXPEDITED 8
#define MEMBARRIER_REGISTER_PRIVATE_EXPEDITED 16
#endif

#define HUGE_PAGE ((size_t)2 << 20)

#if defined(__linux__)
static _Atomic bool has_fence;
#endif

void *tmi_os_map(size_t size)
{
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* Map more, and cut off what stands over at both ends. */
void *tmi_os_map_huge(size_t size)
{
    char *pages = tmi_os_map(size + HUGE_PAGE);
    if (!pages)
        return NULL;
    size_t before = -(uintptr_t)pages & (HUGE_PAGE - 1);
    if (before)
        tmi_os_unmap(pages, before);
    tmi_os_unmap(pages + before + size, HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
    (void)madvise(pages + before, size, MADV_HUGEPAGE); /* look-ups jump about in here: fewer TLB misses */
#endif
    return pages + before;
}

void tmi_os_unmap(void *pages, size_t size) { (void)munmap(pages, size); }

void tmi_os_discard(void *pages, size_t size) { (void)madvise(pages, size, MADV_DONTNEED); }

uint64_t tmi_os_nanoseconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Registering costs nothing while the process has one thread and milliseconds later, so: once, early. */
void tmi_os_start(void)
{
#if defined(__linux__)
    tm_put(&has_fence, syscall(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0);
#endif
}

bool tmi_os_has_fence(void)
{
#if defined(__linux__)
    return tm_get(&has_fence);
#else
    return true;
#endif
}

void tmi_os_heavy_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
#if defined(__linux__)
    (void)syscall(SYS_membarrier, MEMBARRIER_PRIVATE_EXPEDITED, 0, 0);
#endif
}
