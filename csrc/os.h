/* os.h - the seam to the operating system: memory for our own tables, the heavy fence, the clock. */
#ifndef TM_OS_H
#define TM_OS_H

#include "base.h"

/* Zeroed pages for metadata; null when there are none. size is rounded up to whole pages by both. */
void *tmi_os_map(size_t size);
/* The same on huge pages where the system has some. pre: size is a multiple of 2 MiB. */
void *tmi_os_map_huge(size_t size);
void tmi_os_unmap(void *pages, size_t size);
/* Drop the contents (they read as zeros afterwards) but keep the addresses readable. */
void tmi_os_discard(void *pages, size_t size);
uint64_t tmi_os_nanoseconds(void);

/* The asymmetric pair of fences behind the owner's right to its cache: on Linux the owner pays a compiler
 * barrier, whoever takes the cache from outside pays a system call that fences every running thread. Where the
 * system refuses that call (tmi_os_has_fence), there are no thread caches. Elsewhere both pay a full fence. */
bool tmi_os_has_fence(void);
void tmi_os_start(void);
void tmi_os_heavy_fence(void);

static inline void tm_light_fence(void)
{
#if defined(__linux__)
    atomic_signal_fence(memory_order_seq_cst);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
