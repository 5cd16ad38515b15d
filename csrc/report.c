/* report.c - what a manager tells of itself: statistics, blocks, reasons, and the invariant walker. */
#include "manager.h"

static size_t largest_in_slots(tm_manager *manager, unsigned bucket)
{
    size_t found = 0;
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next)
        for (unsigned i = 0; i < TM_SLOTS; i++) {
            size_t size = tmi_slot_size(&cache->slots[i]);
            bool counts = size > found && tm_get(&cache->slots[i].top) != 0;
            if (counts && (bucket == TM_WHOLE || tm_bucket_of(size) == bucket))
                found = size;
        }
    pthread_mutex_unlock(&manager->caches_lock);
    return found;
}

static size_t largest_free(tm_manager *manager, unsigned bucket)
{
    size_t found = largest_in_slots(manager, bucket), kept = 0;
    unsigned first = bucket == TM_WHOLE ? TM_BUCKETS - 1 : bucket, last = bucket == TM_WHOLE ? 0 : bucket;
    for (unsigned at = first + 1; at-- > last && !kept;)
        kept = manager->policy->largest(manager->kept, at);
    return kept > found ? kept : found;
}

static void read_row(tm_manager *manager, unsigned row, tm_statistics *out)
{
    tmi_accounts_read(&manager->accounts, row, out);
    out->largest_free_block = largest_free(manager, row);
}

void tm_get_statistics(tm_manager *manager, tm_statistics *out) { read_row(manager, TM_WHOLE, out); }

void tm_get_bucket_statistics(tm_manager *manager, unsigned bucket, tm_statistics *out)
{
    *out = (tm_statistics){0};
    if (bucket < TM_BUCKETS)
        read_row(manager, bucket, out);
}

void tm_reset_peaks(tm_manager *manager) { tmi_accounts_reset_peaks(&manager->accounts); }

int tm_find_block(tm_manager *manager, const void *address, tm_block_info *out)
{
    return tmi_tables_locate(&manager->tables, (uintptr_t)address, out);
}

size_t tm_list_blocks(tm_manager *manager, uintptr_t from, tm_block_info *out, size_t capacity)
{
    return tmi_tables_list(&manager->tables, from, out, capacity);
}

const char *tm_reason_text(tm_reason reason)
{
    static const char *const texts[] = {
        [TM_REASON_NONE] = "none",
        [TM_REASON_REFUSED] = "refused",
        [TM_REASON_OVERFLOW] = "overflow",
        [TM_REASON_METADATA] = "metadata",
        [TM_REASON_DOUBLE_FREE] = "double_free",
        [TM_REASON_INTERIOR] = "interior",
        [TM_REASON_SIZE_MISMATCH] = "size_mismatch",
        [TM_REASON_OWNED] = "owned",
        [TM_REASON_MISALIGNED] = "misaligned",
        [TM_REASON_OVERLAP] = "overlap",
        [TM_REASON_ALREADY_LIVE] = "already_live",
        [TM_REASON_RELEASE_FAILED] = "release_failed",
    };
    return (size_t)reason < sizeof texts / sizeof *texts ? texts[reason] : "unknown";
}

/* --- invariants ----------------------------------------------------------------------------------- */

typedef struct tm_census {
    size_t live_blocks, cached_blocks, live, cached, base;
} tm_census;

static void count_block(tm_census *census, const tm_block *block)
{
    size_t size = tm_get(&block->size);
    bool live = tm_phase(tm_get(&block->state)) == TM_LIVE;
    *(live ? &census->live_blocks : &census->cached_blocks) += 1;
    *(live ? &census->live : &census->cached) += size;
    census->base += tm_block_range(block).size;
}

static tm_census take_census(tm_manager *manager)
{
    tm_census census = {0};
    tm_place place;
    const tm_ranges *ranges = &manager->tables.ranges;
    pthread_mutex_lock(&manager->tables.lock);
    for (bool more = tmi_ranges_first(ranges, &place); more; more = tmi_ranges_next(ranges, &place))
        count_block(&census, tmi_ranges_at(ranges, place));
    pthread_mutex_unlock(&manager->tables.lock);
    return census;
}

static const char *check_slot(const tm_cache *cache, const tm_slot *slot, size_t *blocks, size_t *bytes)
{
    for (uint32_t at = 0; at < tm_get(&slot->top); at++) {
        const tm_block *block = slot->blocks[at];
        if (tm_get(&block->state) != cache->cached_word)
            return "cache: a block in a slot is not cached there";
        if (tm_get(&block->size) != tm_get(&slot->size))
            return "cache: a block in a slot has another size";
        *blocks += 1;
        *bytes += tm_get(&block->size);
    }
    return tm_get(&slot->sequence) & 1 ? "cache: a window is open" : NULL;
}

static const char *check_caches(tm_manager *manager, size_t *blocks, size_t *bytes)
{
    const char *broken = NULL;
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache && !broken; cache = cache->next)
        for (unsigned i = 0; i < TM_SLOTS && !broken; i++)
            broken = check_slot(cache, &cache->slots[i], blocks, bytes);
    pthread_mutex_unlock(&manager->caches_lock);
    return broken;
}

static const char *check_accounts(tm_manager *manager, const tm_census *census)
{
    tm_statistics now;
    tm_get_statistics(manager, &now);
    if (now.live.now != census->live || now.live_blocks != census->live_blocks)
        return "accounts: live is wrong";
    if (now.cached.now != census->cached || now.cached_blocks != census->cached_blocks)
        return "accounts: cached is wrong";
    if (now.held.now != census->base || now.padding_bytes != census->base - census->live - census->cached)
        return "accounts: held or padding is wrong";
    if (now.live.peak < now.live.now || now.cached.peak < now.cached.now || now.held.peak < now.held.now)
        return "accounts: a peak is below its present value";
    return NULL;
}

const char *tm_check(tm_manager *manager)
{
    size_t blocks = 0, bytes = 0;
    const char *broken = tmi_tables_check(&manager->tables);
    if (!broken)
        broken = manager->policy->check(manager->kept, &blocks, &bytes);
    if (!broken)
        broken = check_caches(manager, &blocks, &bytes);
    if (broken)
        return broken;
    tm_census census = take_census(manager);
    if (census.cached_blocks != blocks || census.cached != bytes)
        return "manager: a cached block is listed nowhere, or twice";
    return TM_STATISTICS ? check_accounts(manager, &census) : NULL;
}
