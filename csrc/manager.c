/* manager.c - the public calls: allocate, free, resize, trim; what each does when the hot path cannot. */
#include <string.h>

#include "manager.h"

/* --- errors ------------------------------------------------------------------------------------- */

tm_status tmi_fail_at(tm_status status, tm_reason reason, uintptr_t address, size_t size,
                      const tm_block_info *hit)
{
    tmi_self.error = (tm_error){.status = status, .reason = reason, .address = address, .size = size};
    if (hit) {
        tmi_self.error.hit_address = hit->address;
        tmi_self.error.hit_size = hit->size;
    }
    return status;
}

tm_status tmi_fail(tm_status status, tm_reason reason, uintptr_t address, size_t size)
{
    return tmi_fail_at(status, reason, address, size, NULL);
}

void tm_last_error(tm_error *out) { *out = tmi_self.error; }

/* --- calls in flight ------------------------------------------------------------------------------ */

bool tmi_enter(tm_manager *manager)
{
    atomic_fetch_add(&manager->in_flight, 1);
    if (tm_unlikely(atomic_load(&manager->closed))) {
        (void)tmi_fail(TM_CLOSED, TM_REASON_NONE, 0, 0);
        return false;
    }
    if (tm_unlikely(tm_get(&manager->forked))) {
        (void)tmi_fail(TM_FORKED, TM_REASON_NONE, 0, 0);
        return false;
    }
    return true;
}

void tmi_leave(tm_manager *manager) { atomic_fetch_sub(&manager->in_flight, 1); }

static void record(tm_manager *manager, size_t size, const tm_event *event)
{
    tmi_accounts_record(&manager->accounts, tm_bucket_of(size), event);
}

/* --- allocation ------------------------------------------------------------------------------------ */

/* pre: the thread owns the block. post: it is live, with the thread's tag. */
static void *hand_out(tm_block *block, unsigned flags)
{
    tm_put_release(&block->state, (uint64_t)tmi_self.tag << TM_TAG_SHIFT | TM_LIVE | flags);
    return (void *)tm_get(&block->address);
}

/* A cached block, from wherever one is; the event says what it means for the accounts. */
static tm_block *serve_cached(tm_manager *manager, tm_cache *cache, size_t size, size_t alignment,
                              tm_event *event)
{
    *event = (tm_event){.live = (int64_t)size,
                        .cached = -(int64_t)size,
                        .flows = {.allocations = 1, .hits = 1, .live = size}};
    tm_block *block = cache ? tmi_serve_own(manager, cache, size, alignment) : NULL;
    if (!block)
        block = tmi_take_kept(manager, size, alignment);
    while (!block && tmi_steal(manager, size) && !(block = tmi_take_kept(manager, size, alignment)))
        if (alignment > manager->backend.min_alignment)
            break;
    return block;
}

static tm_block *obtain_new(tm_manager *manager, size_t size, size_t alignment, bool *fresh)
{
    tm_event event = {0};
    bool reused = false, direct = size > manager->options.threshold;
    tm_block *block = tmi_device_block(manager, size, alignment, &event, &reused);
    if (block) {
        event.live = (int64_t)size;
        event.cached = reused ? -(int64_t)size : 0;
        event.flows.live = size;
        event.flows.allocations = 1;
        event.flows.hits = reused;
        event.flows.misses = !reused && !direct;
        event.flows.direct = !reused && direct;
    }
    *fresh = !reused;
    record(manager, size, &event);
    return block;
}

static void *allocate_entered(tm_manager *manager, size_t size, size_t alignment, unsigned flags, bool *fresh)
{
    if (size > manager->options.threshold) {
        tm_block *block = obtain_new(manager, size, alignment, fresh);
        return block ? hand_out(block, flags | TM_DIRECT) : NULL;
    }
    size_t block_size = manager->policy->block_size(size);
    tm_cache *cache = tmi_cache_of(manager);
    tm_event event;
    *fresh = false;
    tm_block *block = serve_cached(manager, cache, block_size, alignment, &event);
    if (block)
        record(manager, block_size, &event);
    else
        block = obtain_new(manager, block_size, alignment, fresh);
    return block ? hand_out(block, flags) : NULL;
}

void *tmi_allocate(tm_manager *manager, size_t size, size_t alignment, unsigned flags, bool *fresh)
{
    if (size == 0)
        return NULL;
    if (alignment == 0)
        alignment = manager->backend.min_alignment;
    if (!tm_is_power_of_two(alignment)) {
        (void)tmi_fail(TM_INVALID_ARGUMENT, TM_REASON_NONE, alignment, size);
        return NULL;
    }
    *fresh = false;
    tm_block *block =
        alignment <= manager->backend.min_alignment ? tmi_retry_hot(manager, size, flags) : NULL;
    if (block)
        return tm_block_address(block);
    void *address = NULL;
    if (tmi_enter(manager))
        address = allocate_entered(manager, size, alignment, flags, fresh);
    tmi_leave(manager);
    return address;
}

void tmi_disown(tm_manager *manager, void *pointer)
{
    tm_block *block = tmi_tables_find_locked(&manager->tables, (uintptr_t)pointer);
    if (block)
        tm_put_release(&block->state, tm_get(&block->state) & ~(uint64_t)TM_OWNED);
}

static void *try_entered(tm_manager *manager, size_t size)
{
    tm_event event;
    if (size == 0 || size > manager->options.threshold)
        return NULL;
    size = manager->policy->block_size(size);
    tm_block *block =
        serve_cached(manager, tmi_cache_of(manager), size, manager->backend.min_alignment, &event);
    if (!block)
        return NULL;
    record(manager, size, &event);
    return hand_out(block, 0);
}

void *tm_try_allocate(tm_manager *manager, size_t size)
{
    void *address = NULL;
    tm_block *block = tm_pop(manager, size, 0);
    if (!block)
        block = tmi_retry_hot(manager, size, 0);
    if (block)
        return tm_block_address(block);
    if (tmi_enter(manager)) /* what the policy keeps needs no backend call either */
        address = try_entered(manager, size);
    tmi_leave(manager);
    return address;
}

static __attribute__((noinline)) void *allocate_cold(tm_manager *manager, size_t size)
{
    bool fresh;
    return tmi_allocate(manager, size, 0, 0, &fresh);
}

TM_HOT void *tm_allocate(tm_manager *manager, size_t size)
{
    tm_block *block = tm_pop(manager, size, 0);
    return tm_likely(block != NULL) ? tm_block_address(block) : allocate_cold(manager, size);
}

void *tm_allocate_aligned(tm_manager *manager, size_t size, size_t alignment)
{
    bool fresh;
    return tmi_allocate(manager, size, alignment, 0, &fresh);
}

void *tm_allocate_zeroed(tm_manager *manager, size_t size)
{
    bool fresh = false;
    if (!manager->backend.clear) {
        (void)tmi_fail(TM_INVALID_ARGUMENT, TM_REASON_NONE, 0, size);
        return NULL;
    }
    void *address = tmi_allocate(manager, size, 0, 0, &fresh);
    if (address)
        manager->backend.clear(manager->backend.context, address, size, fresh);
    return address;
}

/* --- free ------------------------------------------------------------------------------------------- */

bool tmi_owns_alone(tm_manager *manager, tm_block *block)
{
    tmi_grace(manager);
    return tm_get_acquire(&block->state) == TM_UNUSED;
}

tm_status tmi_release_block(tm_manager *manager, tm_block *block, tm_event *event)
{
    tm_range range = tm_block_range(block);
    event->held -= (int64_t)range.size;
    event->padding -= (int64_t)(range.size - tm_get(&block->size));
    event->flows.device_releases++;
    tmi_tables_remove(&manager->tables, block);
    int native = tmi_device_release(manager, range.base, range.size, event);
    if (native == 0)
        return TM_OK;
    event->flows.device_failures++;
    (void)tmi_fail(TM_BACKEND_ERROR, TM_REASON_RELEASE_FAILED, range.base, range.size);
    tmi_self.error.native = native;
    return TM_BACKEND_ERROR;
}

/* The next block to give back that is in no other container as well, UNUSED; null when none is left. */
static tm_block *next_victim(tm_manager *manager, tm_victim victim)
{
    tm_block *block;
    while ((block = manager->policy->evict(manager->kept, victim)) != NULL) {
        size_t size = tm_get(&block->size);
        uint64_t kept = tm_cached_word(0);
        if (atomic_compare_exchange_strong(&block->state, &kept, TM_UNUSED) && tmi_owns_alone(manager, block))
            return block;
        tmi_uncount_free(manager, size);
    }
    return NULL;
}

size_t tmi_release_one(tm_manager *manager, tm_victim victim, bool reclaim)
{
    tm_block *block = next_victim(manager, victim);
    if (!block)
        return 0;
    size_t size = tm_get(&block->size);
    tm_event event = {.cached = -(int64_t)size};
    *(reclaim ? &event.flows.reclaims : &event.flows.trims) = 1;
    *(reclaim ? &event.flows.reclaimed_bytes : &event.flows.trimmed_bytes) = size;
    (void)tmi_release_block(manager, block, &event);
    record(manager, size, &event);
    return size;
}

/* Room that the thread was granted and does not use makes no block go. */
static void yield_room(tm_manager *manager)
{
    tm_cache *cache = tmi_cache_of(manager);
    if (!cache)
        return;
    tmi_cache_lock_own(cache);
    tmi_accounts_yield(&manager->accounts, cache);
    tmi_cache_unlock_own(cache);
}

/* Count a block as cached, making room under the limit; false: it cannot be kept, and is not counted. */
static bool admit(tm_manager *manager, size_t size)
{
    tm_event event = {.live = -(int64_t)size, .cached = (int64_t)size, .flows = {.frees = 1, .cached = size}};
    unsigned bucket = tm_bucket_of(size);
    if (size > manager->options.cached_limit)
        return false;
    if (tmi_accounts_record_limited(&manager->accounts, bucket, &event))
        return true;
    yield_room(manager);
    while (!tmi_accounts_record_limited(&manager->accounts, bucket, &event)) {
        if (tmi_release_one(manager, TM_OLDEST, false))
            continue;
        tmi_flush_caches(manager);
        if (!tmi_release_one(manager, TM_OLDEST, false))
            return false;
    }
    return true;
}

/* pre: the thread owns the block. counted: as cached already, else still as live. */
static tm_status release_freed(tm_manager *manager, tm_block *block, bool direct, bool counted)
{
    size_t size = tm_get(&block->size);
    tm_event event = {0};
    if (!direct && !tmi_owns_alone(manager, block)) {
        if (counted)
            tmi_uncount_free(manager, size);
        return tmi_fail(TM_INVALID_FREE, TM_REASON_DOUBLE_FREE, tm_get(&block->address), size);
    }
    *(counted ? &event.cached : &event.live) = -(int64_t)size;
    event.flows.frees = !counted;
    tm_status status = tmi_release_block(manager, block, &event);
    record(manager, size, &event);
    return status;
}

static tm_status keep_or_release(tm_manager *manager, tm_block *block)
{
    tm_cache *cache = tmi_cache_of(manager);
    bool counted = admit(manager, tm_get(&block->size));
    if (counted && ((cache && tmi_keep_own(manager, cache, block)) || tmi_keep_in_policy(manager, block)))
        return TM_OK;
    return release_freed(manager, block, false, counted);
}

/* A pointer that is not the start of a tracked block: inside one, freed before, or nobody's (M7). */
static tm_status free_foreign(tm_manager *manager, uintptr_t address, size_t size)
{
    tm_block_info hit = {0};
    tm_event event = {0};
    size_t shown = size == TM_SIZE_UNKNOWN ? 0 : size;
    if (tmi_tables_locate(&manager->tables, address, &hit))
        return tmi_fail_at(TM_INVALID_FREE, TM_REASON_INTERIOR, address, shown, &hit);
    if (tmi_tables_in_grave(&manager->tables, address))
        return tmi_fail(TM_INVALID_FREE, TM_REASON_DOUBLE_FREE, address, shown);
    int native = tmi_device_release(manager, address, shown, &event);
    if (native == 0)
        return TM_OK;
    (void)tmi_fail(TM_BACKEND_ERROR, TM_REASON_RELEASE_FAILED, address, shown);
    tmi_self.error.native = native;
    return TM_BACKEND_ERROR;
}

static tm_status free_wrongly(tm_block *block, tm_reason reason, uintptr_t address, size_t size)
{
    tm_block_info hit = {.address = address, .size = tm_get(&block->size)};
    return tmi_fail_at(TM_INVALID_FREE, reason, address, size == TM_SIZE_UNKNOWN ? hit.size : size, &hit);
}

static tm_status free_tracked(tm_manager *manager, tm_block *block, unsigned flags, size_t size)
{
    uint64_t state = tm_get_acquire(&block->state);
    uintptr_t address = tm_get(&block->address);
    if (tm_phase(state) != TM_LIVE)
        return free_wrongly(block, TM_REASON_DOUBLE_FREE, address, size);
    if ((state & TM_OWNED) && !(flags & TM_OWNED))
        return free_wrongly(block, TM_REASON_OWNED, address, size);
    if (size != TM_SIZE_UNKNOWN && size != tm_get(&block->size))
        return free_wrongly(block, TM_REASON_SIZE_MISMATCH, address, size);
    if (!(state & TM_DIRECT) && tmi_retry_push(manager, block, address, (unsigned)(state & TM_BITS)))
        return TM_OK;
    if (!tm_block_claim(block, state))
        return free_wrongly(block, TM_REASON_DOUBLE_FREE, address, size);
    bool direct = (state & TM_DIRECT) != 0;
    if (direct || tm_get(&manager->closed))
        return release_freed(manager, block, direct, false);
    return keep_or_release(manager, block);
}

static tm_status free_entered(tm_manager *manager, void *pointer, unsigned flags, size_t size)
{
    tm_block *block = tm_tables_find(&manager->tables, (uintptr_t)pointer);
    if (!block)
        block = tmi_tables_find_locked(&manager->tables, (uintptr_t)pointer);
    return block ? free_tracked(manager, block, flags, size)
                 : free_foreign(manager, (uintptr_t)pointer, size);
}

/* After close, and in a forked child, a free does nothing; only an immortal backend takes its live blocks. */
static bool takes_frees(tm_manager *manager, void *pointer)
{
    if (tmi_enter(manager))
        return true;
    return tm_get(&manager->closed) && (manager->backend.flags & TM_BACKEND_IMMORTAL) &&
           tmi_tables_find_locked(&manager->tables, (uintptr_t)pointer) != NULL;
}

tm_status tmi_free(tm_manager *manager, void *pointer, unsigned flags, size_t size)
{
    tm_status status = TM_OK;
    if (!pointer)
        return TM_OK;
    if (takes_frees(manager, pointer))
        status = free_entered(manager, pointer, flags, size);
    tmi_leave(manager);
    return status;
}

int tm_try_free(tm_manager *manager, void *pointer)
{
    if (!pointer)
        return 0;
    tm_cache *cache = tmi_cache_of(manager);
    tm_block *block = tm_tables_find(&manager->tables, (uintptr_t)pointer);
    if (!cache || !block || (tm_get_acquire(&block->state) & TM_BITS) != TM_LIVE)
        return 1;
    return tm_cache_push(cache, block, (uintptr_t)pointer, TM_LIVE) ||
                   tmi_retry_push(manager, block, (uintptr_t)pointer, TM_LIVE)
               ? 0
               : 1;
}

/* A block that is not the first in its line of the index with that check; and whatever else comes. */
static __attribute__((noinline)) tm_status free_searched(tm_manager *manager, void *pointer, tm_cache *cache)
{
    tm_block *block = tm_tables_find(&manager->tables, (uintptr_t)pointer);
    if (tm_likely(block != NULL) && tm_likely(tm_cache_push(cache, block, (uintptr_t)pointer, TM_LIVE)))
        return TM_OK;
    return tmi_free(manager, pointer, 0, TM_SIZE_UNKNOWN);
}

/* Any block of the thread's cache but the latest one. */
static TM_HOT __attribute__((noinline)) tm_status free_other(tm_manager *manager, void *pointer,
                                                             tm_cache *cache)
{
    tm_block *block = tm_tables_guess(&manager->tables, (uintptr_t)pointer);
    if (tm_likely(block != NULL) && tm_likely(tm_cache_push(cache, block, (uintptr_t)pointer, TM_LIVE)))
        return TM_OK;
    return free_searched(manager, pointer, cache);
}

static __attribute__((noinline)) tm_status free_cold(tm_manager *manager, void *pointer)
{
    return tmi_free(manager, pointer, 0, TM_SIZE_UNKNOWN);
}

TM_HOT tm_status tm_free(tm_manager *manager, void *pointer)
{
    tm_cache *cache = tm_cache_mine(manager);
    if (tm_unlikely(cache == NULL))
        return free_cold(manager, pointer);
    tm_block *block = cache->latest;
    if (tm_get(&block->address) == (uintptr_t)pointer &&
        tm_cache_push(cache, block, (uintptr_t)pointer, TM_LIVE))
        return TM_OK;
    return free_other(manager, pointer, cache);
}

tm_status tm_free_sized(tm_manager *manager, void *pointer, size_t size)
{
    return tmi_free(manager, pointer, 0, size);
}

/* --- trim -------------------------------------------------------------------------------------------- */

size_t tm_trim(tm_manager *manager, size_t keep)
{
    size_t given = 0;
    tm_statistics now;
    if (tmi_enter(manager)) {
        tmi_accounts_read(&manager->accounts, TM_WHOLE, &now);
        if (now.cached.now > keep)
            tmi_flush_caches(manager);
        for (size_t bytes = 1; bytes && now.cached.now > keep + given; given += bytes)
            bytes = tmi_release_one(manager, TM_LARGEST, false);
    }
    tmi_leave(manager);
    return given;
}
