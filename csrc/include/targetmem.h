/* targetmem.h - the public C interface of targetmem, the target-independent memory manager.
 *
 * Words: a *backend* is the pair of functions that obtain memory from one device and give it back;
 * a *block* is one range obtained from it; *live* blocks are handed out, *cached* ones are free and
 * kept for reuse, *held* is both together. All sizes are bytes.
 *
 * Threads: every function may be called from any thread, except where it says otherwise.
 * No lock of the library is held while a backend function or a hook runs.
 * Null: tm_free(NULL) is a no-op, a size of 0 gives a null pointer and never reaches the device.
 */
#ifndef TARGETMEM_H
#define TARGETMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define TM_API __declspec(dllexport)
#else
#define TM_API __attribute__((visibility("default")))
#endif

#define TM_ABI_VERSION 1u
#define TM_BUCKETS 64u             /* bucket b holds the sizes 2^b .. 2^(b+1)-1 */
#define TM_DEFAULT_THRESHOLD 8192u /* bytes; the original's default */
#define TM_UNLIMITED SIZE_MAX

typedef struct tm_manager tm_manager;

typedef enum tm_status {
    TM_OK = 0,
    TM_OUT_OF_MEMORY = 1,    /* the device refused, and the whole ladder did not help */
    TM_INVALID_FREE = 2,     /* double free, interior pointer, wrong size: nothing was changed */
    TM_INVALID_ARGUMENT = 3, /* unknown policy, alignment no power of two, missing function, ... */
    TM_BACKEND_ERROR = 4,    /* the backend broke its contract; see tm_error.reason */
    TM_CLOSED = 5,           /* the manager was closed */
    TM_FORKED = 6            /* the device belongs to the parent process */
} tm_status;

typedef enum tm_reason {
    TM_REASON_NONE = 0,
    TM_REASON_REFUSED,       /* the backend gave null or an error status (tm_error.native) */
    TM_REASON_OVERFLOW,      /* size plus alignment padding does not fit in size_t */
    TM_REASON_METADATA,      /* no host memory left for the manager's own tables */
    TM_REASON_DOUBLE_FREE,   /* the block is already free (or went back to the device) */
    TM_REASON_INTERIOR,      /* the pointer lies inside a block, not at its start */
    TM_REASON_SIZE_MISMATCH, /* tm_free_sized with another size than was requested */
    TM_REASON_OWNED,         /* the block belongs to an owning handle, which must free it */
    TM_REASON_MISALIGNED,    /* the backend's address breaks the alignment (it was given back) */
    TM_REASON_OVERLAP,       /* the backend's range overlaps a tracked block (not given back) */
    TM_REASON_ALREADY_LIVE,  /* the backend gave an address that is tracked (not given back) */
    TM_REASON_RELEASE_FAILED /* the backend's release gave an error status (tm_error.native) */
} tm_reason;

/* What went wrong in the calling thread's latest failing call. */
typedef struct tm_error {
    tm_status status;
    tm_reason reason;
    int native;            /* the backend's own status, 0 when it had none */
    uintptr_t address;     /* the pointer given to free, or the backend's address */
    size_t size;           /* requested bytes, or the size given to free */
    uintptr_t hit_address; /* the tracked block that was hit, 0 when none */
    size_t hit_size;
} tm_error;

/* One device's allocate and release, as plain C functions.
 *
 * allocate: pre: size > 0, alignment a power of two >= min_alignment. Stores the address and gives 0,
 *   or gives a native error status (any other value); a null address counts as a refusal too.
 * release: pre: address came from allocate. size is what allocate was asked for; 0 means "not known"
 *   (a pointer that the manager never gave out).
 * The remaining functions may be null.
 */
typedef struct tm_backend {
    uint32_t version;     /* TM_ABI_VERSION */
    uint32_t flags;       /* TM_BACKEND_... */
    size_t min_alignment; /* bytes, power of two; every address of allocate has at least this */
    void *context;        /* first argument of each function */
    int (*allocate)(void *context, size_t size, size_t alignment, void **address);
    int (*release)(void *context, void *address, size_t size);
    /* Grow or shrink a range, moving it if it must; *address is updated. 0, or an error status and no change. */
    int (*resize)(void *context, void **address, size_t old_size, size_t new_size, int may_move);
    /* Make a range read as zeros. fresh: it comes straight from allocate. */
    void (*clear)(void *context, void *address, size_t size, int fresh);
    /* Free and total bytes of the device; 0 when known. */
    int (*memory_info)(void *context, size_t *free_bytes, size_t *total_bytes);
} tm_backend;

#define TM_BACKEND_ALIGNS 1u          /* allocate honours any alignment; else the manager pads */
#define TM_BACKEND_FORK_SAFE 2u       /* memory stays usable in a forked child (host memory) */
#define TM_BACKEND_HOST_ACCESSIBLE 4u /* the host may dereference the addresses */
#define TM_BACKEND_IMMORTAL 8u        /* release works for ever: live blocks outlive tm_manager_close */
#define TM_BACKEND_PLAIN_COPIES 16u   /* a transfer is a memcpy: whoever copies need not ask the target */

typedef struct tm_options {
    uint32_t version;    /* TM_ABI_VERSION */
    uint32_t flags;      /* TM_OPTION_... */
    const char *policy;  /* "exact"; null means "exact" */
    size_t threshold;    /* largest managed request in bytes; 0 = manager off, TM_UNLIMITED = all managed */
    size_t cached_limit; /* most cached bytes; TM_UNLIMITED = no limit */
    uintptr_t device;    /* managers with the same non-zero value reclaim from each other */
    /* Called when the device refused and nothing cached was left: free something and give non-zero to
     * have the request tried again, 0 to give up. step counts 0, 1, 2, ... within one request. */
    int (*pressure)(void *context, size_t wanted, unsigned step);
    void *pressure_context;
} tm_options;

#define TM_OPTION_NO_THREAD_CACHE 1u

typedef struct tm_gauge {
    uint64_t now, peak, total; /* bytes */
} tm_gauge;

/* Exact when no call is in flight. For the whole manager, or for one bucket. */
typedef struct tm_statistics {
    tm_gauge requested, live, cached, held;
    uint64_t allocations, hits, misses, frees; /* allocations = hits + misses + direct */
    uint64_t direct;                           /* requests above the threshold */
    uint64_t device_allocations, device_releases, device_failures;
    uint64_t device_nanoseconds;
    uint64_t reclaims, reclaimed_bytes; /* blocks (and their bytes) given back by a ladder */
    uint64_t trims, trimmed_bytes;      /* blocks given back because of tm_trim or the limit */
    uint64_t padding_bytes;             /* held - live - cached, now */
    uint64_t live_blocks, cached_blocks;
    uint64_t largest_free_block; /* bytes, 0 when nothing is cached */
} tm_statistics;

typedef struct tm_block_info {
    uintptr_t address; /* as handed out */
    size_t size;       /* block bytes from address on */
    size_t requested;  /* bytes */
    uint32_t tag;      /* of tm_set_tag at the time of the allocation */
    int live;          /* 1 live, 0 cached */
    int direct;        /* 1 above the threshold */
    int owned;         /* 1 owned by a handle */
} tm_block_info;

/* --- lifetime ------------------------------------------------------------------------------- */

/* Make a manager. backend and options are copied. TM_INVALID_ARGUMENT: see tm_last_error. */
TM_API tm_status tm_manager_create(const tm_backend *backend, const tm_options *options, tm_manager **out);
/* Give back every block and refuse further requests; a later free is a no-op. Blocks that are live on an
 * immortal backend stay valid and go back when they are freed. Waits until no call is in flight. Idempotent.
 * Not to be called from a backend function of the same manager. */
TM_API tm_status tm_manager_close(tm_manager *manager);
/* Close, then drop the memory. pre: no other thread uses the manager, now or later. */
TM_API void tm_manager_destroy(tm_manager *manager);

/* --- memory --------------------------------------------------------------------------------- */

/* Null on failure (tm_last_error) and for size 0. */
TM_API void *tm_allocate(tm_manager *manager, size_t size);
TM_API void *tm_allocate_aligned(tm_manager *manager, size_t size, size_t alignment);
/* Memory that reads as zeros. pre: the backend has clear, else TM_INVALID_ARGUMENT. */
TM_API void *tm_allocate_zeroed(tm_manager *manager, size_t size);
/* Resize, keeping min(old, new) bytes. pre: the backend is host accessible. Null: nothing changed. */
TM_API void *tm_reallocate(tm_manager *manager, void *pointer, size_t size);
TM_API tm_status tm_free(tm_manager *manager, void *pointer);
TM_API tm_status tm_free_sized(tm_manager *manager, void *pointer, size_t size);
/* Only what needs no backend call: null / non-zero when it would need one (then nothing changed). */
TM_API void *tm_try_allocate(tm_manager *manager, size_t size);
TM_API int tm_try_free(tm_manager *manager, void *pointer);
/* Give cached blocks back, largest first, until at most keep bytes stay cached. Gives the bytes given back. */
TM_API size_t tm_trim(tm_manager *manager, size_t keep);

/* --- explaining ----------------------------------------------------------------------------- */

TM_API void tm_get_statistics(tm_manager *manager, tm_statistics *out);
TM_API void tm_get_bucket_statistics(tm_manager *manager, unsigned bucket, tm_statistics *out);
TM_API void tm_reset_peaks(tm_manager *manager);
/* The tracked block that contains the address: 1 and *out, or 0. */
TM_API int tm_find_block(tm_manager *manager, const void *address, tm_block_info *out);
/* Copy up to capacity tracked blocks in address order, starting at the first with address >= from. Gives the count. */
TM_API size_t tm_list_blocks(tm_manager *manager, uintptr_t from, tm_block_info *out, size_t capacity);
/* The number that this thread's further allocations carry (any manager); gives the former one. */
TM_API uint32_t tm_set_tag(uint32_t tag);
TM_API void tm_last_error(tm_error *out);
TM_API const char *tm_reason_text(tm_reason reason);
/* Walk every structure; null when all invariants hold, else what is broken. pre: no other thread uses the manager. */
TM_API const char *tm_check(tm_manager *manager);

/* --- the host ------------------------------------------------------------------------------- */

/* Host memory: small blocks from the C library, big ones as anonymous mappings that really go back. */
TM_API const tm_backend *tm_host_backend(void);

#ifdef __cplusplus
}
#endif
#endif
