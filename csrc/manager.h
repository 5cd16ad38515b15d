/* manager.h - what the files of the manager share: the struct, and the seams between them.
 *
 * Locks, outermost first: registry (threads.c), caches_lock, a cache's lock, a policy's or the tables' lock,
 * the accounts' lock. None of them is held while a backend function or the pressure hook runs (M10).
 */
#ifndef TM_MANAGER_H
#define TM_MANAGER_H

#include "cache.h"
#include "policy.h"
#include "tables.h"

struct tm_manager {
    tm_tables tables; /* first: its index is the hot path's first load */
    const tm_policy *policy;
    void *kept; /* the policy's state */
    tm_backend backend;
    tm_options options;
    _Atomic int closed, forked;
    _Atomic int in_flight;       /* calls between tmi_enter and tmi_leave */
    pthread_mutex_t caches_lock; /* who may add, remove or walk the list in accounts.caches */
    tm_accounts accounts;
    struct tm_manager *next; /* registry */
    unsigned users;          /* registry: one for the owner, one a borrowing reclaim */
};

/* --- threads.c: threads, caches and managers finding each other ------------------------------- */

typedef struct tm_thread {
    tm_manager *_Atomic recent_manager; /* the pair that the hot path looks at */
    tm_cache *recent_cache;
    tm_cache *caches; /* all of this thread */
    uint32_t tag;
    bool registered;
    bool ending; /* its exit was announced; no cache any more */
    tm_error error;
    struct tm_thread *next;
} tm_thread;

#if defined(__linux__)
#define TM_TLS __attribute__((tls_model("initial-exec"), visibility("hidden")))
#else
#define TM_TLS __attribute__((visibility("hidden")))
#endif
extern TM_TLS _Thread_local tm_thread tmi_self;

/* The calling thread's cache, made on first use; null: no thread caching, or no host memory. post: it is the
 * recent one. */
tm_cache *tmi_cache_of(tm_manager *manager);
/* Wait until no other thread is inside a window that was open at the call. locks: none. */
void tmi_grace(tm_manager *manager);
/* Empty every thread's cache into the policy. locks: none may be held. */
void tmi_flush_caches(tm_manager *manager);
/* The same for good: no slot serves a size any more. pre: the manager is closed and quiet. */
void tmi_close_caches(tm_manager *manager);
/* Fetch blocks of a size from another thread's cache into the policy; false when none has any. */
bool tmi_steal(tm_manager *manager, size_t size);
void tmi_register_manager(tm_manager *manager);
/* pre: closed, and no thread will use it. Frees the memory once no reclaim borrows it. */
void tmi_unregister_manager(tm_manager *manager);
/* The next open manager of the same device after another one (null: the first), borrowed; null at the end.
 * previous, when not null, is given back. self is left out. */
tm_manager *tmi_next_sibling(tm_manager *self, tm_manager *previous);
void tmi_give_back(tm_manager *borrowed);

static inline tm_cache *tm_cache_mine(tm_manager *manager)
{
    if (tm_unlikely(tm_get(&tmi_self.recent_manager) != manager))
        return NULL;
    tm_cache *cache = tmi_self.recent_cache;
    if (cache == NULL) /* which it never is then: this only tells the compiler */
        __builtin_unreachable();
    return cache;
}

/* --- manager.c ---------------------------------------------------------------------------------- */

/* Begin a call that may reach the backend; false (and the error set) when closed or forked. Either way the
 * caller owes a tmi_leave. */
bool tmi_enter(tm_manager *manager);
void tmi_leave(tm_manager *manager);
/* The hot pair of a handle's life: like tm_try_allocate, but flags (TM_OWNED) mark the block. */
static inline tm_block *tm_pop(tm_manager *manager, size_t size, unsigned flags)
{
    tm_cache *cache = tm_cache_mine(manager);
    return tm_likely(cache != NULL) ? tm_cache_pop(cache, size, flags) : NULL;
}
static inline void *tm_block_address(tm_block *block) { return (void *)tm_get(&block->address); }
static inline tm_block *tm_block_at(tm_manager *manager, void *address)
{
    return tm_tables_find(&manager->tables, (uintptr_t)address);
}
/* Keep the block of a handle that is dropped; false when it must go the slow way. */
static inline bool tm_push_owned(tm_manager *manager, tm_block *block)
{
    tm_cache *cache = tm_cache_mine(manager);
    return tm_likely(cache != NULL) &&
           tm_cache_push(cache, block, tm_get(&block->address), TM_LIVE | TM_OWNED);
}
/* The block's owning handle lets go: from now on a bare free may free it. pre: the handle owns it. */
void tmi_disown(tm_manager *manager, void *pointer);
void *tmi_allocate(tm_manager *manager, size_t size, size_t alignment, unsigned flags, bool *fresh);
/* flags: TM_OWNED when an owning handle frees, so that its block may go. size: as for tm_free_sized, or unknown. */
tm_status tmi_free(tm_manager *manager, void *pointer, unsigned flags, size_t size);
#define TM_SIZE_UNKNOWN SIZE_MAX
/* Whether a managed block that the thread owns (UNUSED) is its alone: false when another thread freed it in the same
 * instant and keeps it now. post: no window that was open before is open any more. */
bool tmi_owns_alone(tm_manager *manager, tm_block *block);
/* Such a block, or a direct one, back to the device and out of the tables. */
tm_status tmi_release_block(tm_manager *manager, tm_block *block, tm_event *event);
/* Give one cached block back; its bytes, or 0 when none is left. locks: none. */
size_t tmi_release_one(tm_manager *manager, tm_victim victim, bool reclaim);
void tmi_manager_dispose(tm_manager *manager); /* the memory of the struct and its tables */
tm_status tmi_fail(tm_status status, tm_reason reason, uintptr_t address, size_t size);
tm_status tmi_fail_at(tm_status status, tm_reason reason, uintptr_t address, size_t size,
                      const tm_block_info *hit);

/* --- slots.c: blocks between a thread's slots and the policy ---------------------------------------- */

/* Move a slot's oldest blocks to the policy until only so many are left. locks: the cache. False: no host memory. */
bool tmi_flush_slot(tm_manager *manager, tm_cache *cache, tm_slot *slot, uint32_t leave);
/* Fold the counts of an empty slot into the accounts; it serves no size any more. locks: the cache. */
void tmi_slot_retire(tm_manager *manager, tm_cache *cache, tm_slot *slot);
/* A block of this size from the owner's slot or, by way of it, from the policy; UNUSED. Not yet accounted. */
tm_block *tmi_serve_own(tm_manager *manager, tm_cache *cache, size_t size, size_t alignment);
/* The same from the policy alone. */
tm_block *tmi_take_kept(tm_manager *manager, size_t size, size_t alignment);
/* Keep a block that the thread owns (UNUSED, counted as cached): in the owner's slot; false when none is free. */
bool tmi_keep_own(tm_manager *manager, tm_cache *cache, tm_block *block);
/* The same in the policy; false: no host memory. */
bool tmi_keep_in_policy(tm_manager *manager, tm_block *block);
/* The hot path once more, after finding the thread's cache and asking for room in its accounts. */
tm_block *tmi_retry_hot(tm_manager *manager, size_t size, unsigned flags);
bool tmi_retry_push(tm_manager *manager, tm_block *block, uintptr_t address, unsigned bits);
/* One live block was freed by two threads in the same instant, and both containers list it: what the second free
 * counted is taken back. */
void tmi_uncount_free(tm_manager *manager, size_t size);

/* --- ladder.c: calls to the device ---------------------------------------------------------------- */

/* A block from the device, UNUSED and in the tables, with the whole ladder of M8 behind it; null and the error
 * set otherwise. *reused: a hook freed a fitting block meanwhile, and it is taken from the policy. locks: none. */
tm_block *tmi_device_block(tm_manager *manager, size_t size, size_t alignment, tm_event *event, bool *reused);
/* Give a range back, timed. The native status. */
int tmi_device_release(tm_manager *manager, uintptr_t base, size_t size, tm_event *event);

#endif
