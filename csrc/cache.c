/* cache.c - see cache.h. */
#include "cache.h"

#include <sched.h>
#include <string.h>

static tm_block no_block; /* has address 0 */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static tm_cache *pool;
static uint32_t homes; /* handed out so far; home 0 is the policy */

tm_cache *tmi_cache_new(void)
{
    pthread_mutex_lock(&pool_lock);
    tm_cache *cache = pool;
    if (cache) {
        pool = cache->next;
    } else if (homes + 1 < TM_HOMES && (cache = tmi_os_map(sizeof *cache)) != NULL) {
        pthread_mutex_init(&cache->lock, NULL);
        cache->home = ++homes;
        cache->cached_word = tm_cached_word(cache->home);
        cache->latest = &no_block;
        cache->slot = &cache->slots[0];
    }
    pthread_mutex_unlock(&pool_lock);
    return cache;
}

void tmi_cache_recycle(tm_cache *cache)
{
    for (unsigned i = 0; i < TM_SLOTS; i++) {
        tm_put(&cache->slots[i].size, 0);
        tm_put(&cache->slots[i].sequence, 0);
        tm_put(&cache->slots[i].moved, 0);
    }
    tm_put(&cache->active, 0);
    for (unsigned at = 0; at < TM_ROWS; at++) {
        tm_put(&cache->cells[at].live, 0);
        tm_put(&cache->cells[at].cached, 0);
    }
    cache->latest = &no_block;
    cache->manager = NULL;
    cache->thread = NULL;
    pthread_mutex_lock(&pool_lock);
    cache->next = pool;
    pool = cache;
    pthread_mutex_unlock(&pool_lock);
}

void tmi_cache_pool_lock(void) { pthread_mutex_lock(&pool_lock); }

void tmi_cache_pool_unlock(void) { pthread_mutex_unlock(&pool_lock); }

void tmi_cache_lock(tm_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    for (unsigned i = 0; i < TM_SLOTS; i++) {
        tm_put(&cache->slots[i].saved_size, tm_get(&cache->slots[i].size));
        tm_put(&cache->slots[i].size, 0);
    }
    tmi_os_heavy_fence();
    for (unsigned i = 0; i < TM_SLOTS; i++)
        while (tm_get_acquire(&cache->slots[i].sequence) & 1)
            sched_yield();
}

void tmi_cache_unlock(tm_cache *cache)
{
    for (unsigned i = 0; i < TM_SLOTS; i++) {
        tm_put_release(&cache->slots[i].size, tm_get(&cache->slots[i].saved_size));
        tm_put(&cache->slots[i].saved_size, 0);
    }
    pthread_mutex_unlock(&cache->lock);
}

void tmi_cache_lock_own(tm_cache *cache) { pthread_mutex_lock(&cache->lock); }

void tmi_cache_unlock_own(tm_cache *cache) { pthread_mutex_unlock(&cache->lock); }

size_t tmi_slot_size(const tm_slot *slot)
{
    size_t size = tm_get(&slot->size);
    return size ? size : tm_get(&slot->saved_size);
}

void tmi_slot_insert(tm_cache *cache, tm_slot *slot, uint32_t at, tm_block *const *blocks, uint32_t count)
{
    uint32_t top = tm_get(&slot->top);
    memmove(slot->blocks + at + count, slot->blocks + at, (top - at) * sizeof *slot->blocks);
    memcpy(slot->blocks + at, blocks, count * sizeof *slot->blocks);
    for (uint32_t i = 0; i < count; i++)
        tm_put_release(&blocks[i]->state, cache->cached_word);
    tm_put(&slot->top, top + count);
    tm_put(&slot->moved, tm_get(&slot->moved) + count);
    tm_put(&slot->floor, tm_get(&slot->floor) + count);
    if (tm_get(&slot->ceiling) < top + count)
        tm_put(&slot->ceiling, top + count);
}

void tmi_slot_remove(tm_slot *slot, uint32_t at, tm_block **blocks, uint32_t count)
{
    uint32_t top = tm_get(&slot->top), floor = tm_get(&slot->floor), ceiling = tm_get(&slot->ceiling);
    uint32_t behind = at + count;
    memcpy(blocks, slot->blocks + at, count * sizeof *slot->blocks);
    memmove(slot->blocks + at, slot->blocks + behind, (top - behind) * sizeof *slot->blocks);
    tm_put(&slot->top, top - count);
    tm_put(&slot->moved, tm_get(&slot->moved) - count);
    tm_put(&slot->floor, floor > count ? floor - count : 0);
    tm_put(&slot->ceiling, ceiling > top ? ceiling - count : top - count);
}
