/* host.c - the host as a backend: small blocks from the C library, big ones as anonymous mappings. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base.h"

#define MIN_ALIGNMENT 64u /* bytes: a cache line, and what the widest vector loads want */
#define PAGE ((size_t)4096)
#define MAPPED ((size_t)64 << 10) /* from here on a block is a mapping, so that its memory really goes back */
#define HUGE_FROM ((size_t)4 << 20) /* from here on huge pages are asked for, as NumPy does */
#define HUGE_PAGE ((size_t)2 << 20)
#define CHUNK ((size_t)16 << 20) /* bytes that one look at the resident pages covers */

static size_t round_up(size_t size, size_t to) { return (size + to - 1) & ~(to - 1); }

/* A mapping whose start has the alignment: map more, then cut both ends off. Null on failure. */
static void *map_aligned(size_t size, size_t alignment)
{
    size_t extra = alignment > PAGE ? alignment - PAGE : 0;
    if (size > SIZE_MAX - extra)
        return NULL;
    char *start = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = (size_t)(round_up((uintptr_t)start, alignment) - (uintptr_t)start);
    if (before)
        (void)munmap(start, before);
    if (extra > before)
        (void)munmap(start + before + size, extra - before);
    return start + before;
}

static void *map_block(size_t size, size_t alignment)
{
    size_t whole = round_up(size, PAGE);
    if (whole < size)
        return NULL;
    if (alignment < PAGE)
        alignment = PAGE;
    if (size >= HUGE_FROM && alignment < HUGE_PAGE)
        alignment = HUGE_PAGE; /* an unaligned mapping pays up to 1022 small page faults at its ends */
    void *start = map_aligned(whole, alignment);
#if defined(MADV_HUGEPAGE)
    if (start && size >= HUGE_FROM)
        (void)madvise(start, whole, MADV_HUGEPAGE);
#endif
    return start;
}

static int host_allocate(void *context, size_t size, size_t alignment, void **address)
{
    (void)context;
    *address = NULL;
    if (size < MAPPED)
        return posix_memalign(address, alignment, size);
    *address = map_block(size, alignment);
    return *address ? 0 : ENOMEM;
}

static int host_release(void *context, void *address, size_t size)
{
    (void)context;
    if (size >= MAPPED)
        return munmap(address, round_up(size, PAGE)) == 0 ? 0 : errno;
    free(address); /* also what nobody knows the size of, as the original does */
    return 0;
}

static int resize_mapping(void **address, size_t old_size, size_t new_size, int may_move)
{
#if defined(__linux__)
    void *moved =
        mremap(*address, round_up(old_size, PAGE), round_up(new_size, PAGE), may_move ? MREMAP_MAYMOVE : 0);
    if (moved == MAP_FAILED)
        return errno;
    *address = moved;
    if (new_size >= HUGE_FROM)
        (void)madvise(moved, round_up(new_size, PAGE), MADV_HUGEPAGE);
    return 0;
#else
    (void)address, (void)old_size, (void)new_size, (void)may_move;
    return ENOTSUP;
#endif
}

/* Only between mappings: what the C library gave can't be resized without losing its alignment. */
static int host_resize(void *context, void **address, size_t old_size, size_t new_size, int may_move)
{
    (void)context;
    if (old_size < MAPPED || new_size < MAPPED || new_size > SIZE_MAX - PAGE)
        return ENOTSUP;
    return resize_mapping(address, old_size, new_size, may_move);
}

/* Clear whole pages: those that are resident are overwritten, which is far cheaper than giving them back and
 * faulting them in again; those that are not stay untouched, so that lazily zeroed memory stays lazy. */
static void clear_chunk(char *start, size_t bytes)
{
    unsigned char resident[CHUNK / PAGE];
    size_t pages = bytes / PAGE;
    bool known = mincore(start, bytes, resident) == 0;
    bool alike = known && (pages == 1 || memcmp(resident, resident + 1, pages - 1) == 0);
    bool all_resident = alike && (resident[0] & 1);
    if (!known || all_resident || madvise(start, bytes, MADV_DONTNEED) != 0)
        memset(start, 0, bytes);
}

static void host_clear(void *context, void *address, size_t size, int fresh)
{
    (void)context;
    char *start = address;
    size_t whole = size & ~(PAGE - 1);
    if (fresh && size >= MAPPED)
        return; /* the system gives zeroed pages */
    if (size < HUGE_FROM) {
        memset(start, 0, size);
        return;
    }
    for (size_t done = 0; done < whole; done += CHUNK)
        clear_chunk(start + done, whole - done < CHUNK ? whole - done : CHUNK);
    memset(start + whole, 0, size - whole);
}

const tm_backend *tm_host_backend(void)
{
    static const tm_backend host = {
        .version = TM_ABI_VERSION,
        .flags = TM_BACKEND_ALIGNS | TM_BACKEND_FORK_SAFE | TM_BACKEND_HOST_ACCESSIBLE | TM_BACKEND_IMMORTAL |
                 TM_BACKEND_PLAIN_COPIES,
        .min_alignment = MIN_ALIGNMENT,
        .allocate = host_allocate,
        .release = host_release,
        .resize = host_resize,
        .clear = host_clear,
    };
    return &host;
}
