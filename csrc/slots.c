/* slots.c - blocks moving between a thread's slots and the policy, with the accounts kept right. */
#include "manager.h"

#define RIVALS 16u /* requests of another size before an idle slot with blocks in it changes hands */

/* A block counts only in the container that its home names; see block.h. Such a double listing comes from one
 * live block freed by two threads in the same instant, so what the second free counted is taken back. */
static void discard(tm_manager *manager, tm_cache *cache, size_t size)
{
    tm_event event = {.live = (int64_t)size, .flows = {.frees = (uint64_t)-1, .cached = (uint64_t)0 - size}};
    if (!cache) {
        event.live = (int64_t)size;
        event.cached = -(int64_t)size;
    }
    (void)tmi_accounts_record(&manager->accounts, cache, tm_bucket_of(size), &event, false);
}

static bool belongs(const tm_block *block, uint64_t word) { return tm_get(&block->state) == word; }

static bool give_to_policy(tm_manager *manager, tm_block *block)
{
    uint64_t former = tm_get(&block->state);
    tm_put(&block->state, tm_cached_word(0));
    bool kept = manager->policy->keep(manager->kept, block);
    if (!kept)
        tm_put(&block->state, former);
    return kept;
}

bool tmi_flush_slot(tm_manager *manager, tm_cache *cache, tm_slot *slot, uint32_t leave)
{
    size_t size = tmi_slot_size(slot);
    int64_t moved = 0;
    bool good = true;
    while (good && tm_get(&slot->top) > leave) {
        tm_block *block = tmi_slot_remove(slot, 0);
        if (!belongs(block, cache->cached_word)) {
            discard(manager, cache, size);
            continue;
        }
        good = give_to_policy(manager, block);
        moved += good;
        if (!good)
            tmi_slot_insert(cache, slot, block, true);
    }
    tm_event event = {.stock = -moved * (int64_t)size, .cached = moved * (int64_t)size};
    if (moved)
        (void)tmi_accounts_record(&manager->accounts, cache, tm_bucket_of(size), &event, false);
    return good;
}

void tmi_slot_retire(tm_manager *manager, tm_cache *cache, tm_slot *slot)
{
    size_t size = tmi_slot_size(slot);
    uint64_t pops, pushes;
    if (size == 0)
        return;
    tm_slot_counts(slot, &pops, &pushes);
    tm_event event = {.flows = {.allocations = pops, .hits = pops, .frees = pushes, .live = pops * size,
                                .cached = pushes * size}};
    (void)tmi_accounts_record(&manager->accounts, cache, tm_bucket_of(size), &event, false);
    tm_put(&slot->size, 0);
    tm_put(&slot->saved_size, 0);
    tm_put(&slot->moved, 0);
    tm_put(&slot->sequence, tm_get(&slot->sequence) & 1);
}

static void start(tm_slot *slot, size_t size)
{
    slot->bucket = tm_bucket_of(size);
    slot->rivals = 0;
    slot->rivals_since = 0;
    tm_put_release(&slot->size, size);
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
    start(slot, size);
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
        (void)tmi_slot_remove(slot, at);
        if (ours) {
            tm_put(&block->state, TM_UNUSED);
            return block;
        }
        discard(manager, cache, tm_get(&slot->size));
    }
    return NULL;
}

tm_block *tmi_take_kept(tm_manager *manager, size_t size, size_t alignment)
{
    tm_block *block;
    while ((block = manager->policy->take(manager->kept, size, alignment)) != NULL) {
        if (belongs(block, tm_cached_word(0))) {
            tm_put(&block->state, TM_UNUSED);
            return block;
        }
        discard(manager, NULL, size);
    }
    return NULL;
}

/* Bring some more blocks of the size along, so that the next requests stay on the hot path. */
static void refill(tm_manager *manager, tm_cache *cache, tm_slot *slot, size_t size)
{
    int64_t moved = 0, most = size >= ((size_t)1 << 20) ? 1 : (int64_t)TM_SLOT_BLOCKS / 4;
    tm_block *block;
    while (moved < most && (block = tmi_take_kept(manager, size, 1)) != NULL) {
        tmi_slot_insert(cache, slot, block, true);
        moved++;
    }
    tm_event event = {.stock = moved * (int64_t)size, .cached = -moved * (int64_t)size};
    if (moved)
        (void)tmi_accounts_record(&manager->accounts, cache, tm_bucket_of(size), &event, false);
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
    size_t size = tm_get(&block->size);
    tmi_cache_lock_own(cache);
    tm_slot *slot = slot_for(manager, cache, size);
    bool kept = slot != NULL;
    if (kept && tm_get(&slot->top) == TM_SLOT_BLOCKS)
        kept = tmi_flush_slot(manager, cache, slot, TM_SLOT_BLOCKS / 2);
    if (kept)
        tmi_slot_insert(cache, slot, block, false);
    tmi_cache_unlock_own(cache);
    return kept;
}

bool tmi_keep_in_policy(tm_manager *manager, tm_cache *cache, tm_block *block)
{
    int64_t size = (int64_t)tm_get(&block->size);
    if (!give_to_policy(manager, block))
        return false;
    tm_event event = {.stock = -size, .cached = size};
    if (cache)
        (void)tmi_accounts_record(&manager->accounts, cache, tm_bucket_of((size_t)size), &event, false);
    return true;
}
