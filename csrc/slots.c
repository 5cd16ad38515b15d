/* slots.c - blocks moving between a thread's slots and the policy, with the accounts kept right. */
#include "manager.h"

#define RIVALS 16u /* requests of another size before an idle slot with blocks in it changes hands */

static void record(tm_manager *manager, size_t size, const tm_event *event)
{
    tmi_accounts_record(&manager->accounts, tm_bucket_of(size), event);
}

void tmi_uncount_free(tm_manager *manager, size_t size)
{
    tm_event event = {.live = (int64_t)size,
                      .cached = -(int64_t)size,
                      .flows = {.frees = (uint64_t)-1, .cached = (uint64_t)0 - size}};
    record(manager, size, &event);
}

/* A block counts only in the container that its home names; see block.h. */
static bool belongs(const tm_block *block, uint64_t word) { return tm_get(&block->state) == word; }

/* Move the blocks that belong to a container to the front; how many they are. The others are uncounted. */
static uint32_t sift(tm_manager *manager, tm_block **blocks, uint32_t count, uint64_t word, size_t size)
{
    uint32_t ours = 0;
    for (uint32_t i = 0; i < count; i++)
        if (belongs(blocks[i], word))
            blocks[ours++] = blocks[i];
        else
            tmi_uncount_free(manager, size);
    return ours;
}

/* How many the policy keeps; those left over have the state that they had. pre: all have that state, and one size. */
static uint32_t give_to_policy(tm_manager *manager, tm_block *const *blocks, uint32_t count)
{
    uint64_t former = tm_get(&blocks[0]->state);
    for (uint32_t i = 0; i < count; i++)
        tm_put(&blocks[i]->state, tm_cached_word(0));
    uint32_t kept = (uint32_t)manager->policy->keep(manager->kept, blocks, count);
    for (uint32_t i = kept; i < count; i++)
        tm_put(&blocks[i]->state, former);
    return kept;
}

bool tmi_flush_slot(tm_manager *manager, tm_cache *cache, tm_slot *slot, uint32_t leave)
{
    tm_block *blocks[TM_SLOT_BLOCKS];
    uint32_t top = tm_get(&slot->top);
    if (top <= leave)
        return true;
    tmi_accounts_unplug(&manager->accounts, cache, slot, 0, blocks, top - leave);
    uint32_t count = sift(manager, blocks, top - leave, cache->cached_word, tmi_slot_size(slot));
    uint32_t kept = count ? give_to_policy(manager, blocks, count) : 0;
    if (kept < count)
        tmi_accounts_plug(&manager->accounts, cache, slot, 0, blocks + kept, count - kept);
    return kept == count;
}

static uint64_t bit_of(const tm_cache *cache, const tm_slot *slot)
{
    return UINT64_C(1) << (slot - cache->slots);
}

void tmi_slot_retire(tm_manager *manager, tm_cache *cache, tm_slot *slot)
{
    size_t size = tmi_slot_size(slot);
    uint64_t pops, pushes;
    if (size == 0)
        return;
    tm_slot_counts(slot, &pops, &pushes);
    tm_event event = {.live = (int64_t)size * tm_get(&slot->moved),
                      .flows = {.allocations = pops,
                                .hits = pops,
                                .frees = pushes,
                                .live = pops * size,
                                .cached = pushes * size}};
    tm_put(&cache->active, tm_get(&cache->active) & ~bit_of(cache, slot));
    tm_put(&slot->size, 0);
    tm_put(&slot->saved_size, 0);
    tm_put(&slot->moved, 0);
    tm_put(&slot->floor, 0);
    tm_put(&slot->ceiling, 0);
    tm_put(&slot->sequence, tm_get(&slot->sequence) & 1);
    tmi_accounts_retire(&manager->accounts, cache, tm_bucket_of(size), &event);
}

static void start(tm_cache *cache, tm_slot *slot, size_t size)
{
    slot->rivals = 0;
    slot->rivals_since = 0;
    tm_put_release(&slot->size, size);
    tm_put(&cache->active, tm_get(&cache->active) | bit_of(cache, slot));
}

/* Whether a slot that serves another size should change hands: it is empty, or nobody used it for a while. */
static bool yields(tm_slot *slot)
{
    uint64_t now = tm_get(&slot->sequence);
    slot->rivals = slot->rivals_since == now ? slot->rivals + 1 : 1;
    slot->rivals_since = now;
    return tm_get(&slot->top) == 0 || slot->rivals > RIVALS;
}

/* The slot for a size; null while another size needs it. locks: the cache, as its owner. */
static tm_slot *slot_for(tm_manager *manager, tm_cache *cache, size_t size)
{
    tm_slot *slot = tm_slot_of(cache, size);
    size_t served = tmi_slot_size(slot);
    if (served == size)
        return slot;
    if (served) {
        if (!yields(slot) || !tmi_flush_slot(manager, cache, slot, 0))
            return NULL;
        tmi_slot_retire(manager, cache, slot);
    }
    start(cache, slot, size);
    return slot;
}

/* The newest block in the slot with the alignment, UNUSED. locks: the cache. */
static tm_block *take_from_slot(tm_manager *manager, tm_cache *cache, tm_slot *slot, size_t alignment)
{
    for (uint32_t at = tm_get(&slot->top); at-- > 0;) {
        tm_block *block = slot->blocks[at];
        bool ours = belongs(block, cache->cached_word);
        if (ours && !tm_is_aligned(tm_get(&block->address), alignment))
            continue;
        tmi_accounts_unplug(&manager->accounts, cache, slot, at, &block, 1);
        if (ours) {
            tm_put(&block->state, TM_UNUSED);
            return block;
        }
        tmi_uncount_free(manager, tm_get(&slot->size));
    }
    return NULL;
}

/* The newest blocks that the policy has, newest first, UNUSED; how many there are. */
static uint32_t take_kept(tm_manager *manager, size_t size, size_t alignment, tm_block **blocks,
                          uint32_t most)
{
    uint32_t ours = 0, taken;
    while (ours == 0 &&
           (taken = (uint32_t)manager->policy->take(manager->kept, size, alignment, blocks, most)) > 0)
        ours = sift(manager, blocks, taken, tm_cached_word(0), size);
    for (uint32_t i = 0; i < ours; i++)
        tm_put(&blocks[i]->state, TM_UNUSED);
    return ours;
}

tm_block *tmi_take_kept(tm_manager *manager, size_t size, size_t alignment)
{
    tm_block *block;
    return take_kept(manager, size, alignment, &block, 1) ? block : NULL;
}

/* Bring some more blocks of the size along, so that the next requests stay on the hot path. */
static void refill(tm_manager *manager, tm_cache *cache, tm_slot *slot, size_t size)
{
    tm_block *blocks[TM_SLOT_BLOCKS / 2];
    uint32_t count = take_kept(manager, size, 1, blocks, size >= ((size_t)1 << 20) ? 1 : TM_SLOT_BLOCKS / 2);
    for (uint32_t i = 0; i < count / 2; i++) { /* the newest came first, and belongs on top */
        tm_block *newer = blocks[i];
        blocks[i] = blocks[count - 1 - i];
        blocks[count - 1 - i] = newer;
    }
    if (count)
        tmi_accounts_plug(&manager->accounts, cache, slot, 0, blocks, count);
}

tm_block *tmi_serve_own(tm_manager *manager, tm_cache *cache, size_t size, size_t alignment)
{
    tm_block *block = NULL;
    tmi_cache_lock_own(cache);
    tm_slot *slot = slot_for(manager, cache, size);
    if (slot) {
        if (tm_get(&slot->top) == 0)
            refill(manager, cache, slot, size);
        block = take_from_slot(manager, cache, slot, alignment);
    }
    tmi_cache_unlock_own(cache);
    return block;
}

bool tmi_keep_own(tm_manager *manager, tm_cache *cache, tm_block *block)
{
    tmi_cache_lock_own(cache);
    tm_slot *slot = slot_for(manager, cache, tm_get(&block->size));
    bool kept = slot != NULL;
    if (kept && tm_get(&slot->top) == TM_SLOT_BLOCKS)
        kept = tmi_flush_slot(manager, cache, slot, TM_SLOT_BLOCKS / 2);
    if (kept)
        tmi_accounts_plug(&manager->accounts, cache, slot, tm_get(&slot->top), &block, 1);
    tmi_cache_unlock_own(cache);
    return kept;
}

bool tmi_keep_in_policy(tm_manager *manager, tm_block *block)
{
    return give_to_policy(manager, &block, 1) == 1;
}

tm_block *tmi_retry_hot(tm_manager *manager, size_t size, unsigned flags)
{
    tm_cache *cache = tmi_cache_of(manager);
    tm_block *block = cache ? tm_cache_pop(cache, size, flags) : NULL;
    if (!cache || block)
        return block;
    if (!tmi_cache_lower_floor(cache, size)) {
        const tm_slot *slot = tm_slot_of(cache, size);
        if (tmi_slot_size(slot) != size || !tm_get(&slot->top))
            return NULL; /* another size's blocks: nothing is handed out, and no peak rises */
        tmi_accounts_grant(&manager->accounts, cache, tm_bucket_of(size), size, false);
        (void)tmi_cache_lower_floor(cache, size);
    }
    return tm_cache_pop(cache, size, flags);
}

bool tmi_retry_push(tm_manager *manager, tm_block *block, uintptr_t address, unsigned bits)
{
    size_t size = tm_get(&block->size);
    tm_cache *cache = tmi_cache_of(manager);
    if (!cache)
        return false;
    if (!tmi_cache_raise_ceiling(cache, size)) {
        if (tmi_slot_size(tm_slot_of(cache, size)) != size)
            return false;
        tmi_accounts_grant(&manager->accounts, cache, tm_bucket_of(size), size, true);
        (void)tmi_cache_raise_ceiling(cache, size);
    }
    return tm_cache_push(cache, block, address, bits);
}
