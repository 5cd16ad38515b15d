/* cache.h - one thread's own cached blocks of one manager: what makes the hot path a few nanoseconds.
 *
 * A cache has slots, one a block size; a slot is a short stack of blocks, newest on top. The owner thread
 * works on a slot without any lock, inside a window in which the slot's sequence number is odd. Anyone
 * else takes the cache's lock, revokes the owner's right (each slot's size is set to 0, which no request
 * has), fences every thread, and waits until no slot is inside a window. While revoked, and on its own
 * slow paths, the owner takes the lock like everyone.
 */
#ifndef TM_CACHE_H
#define TM_CACHE_H

#include "accounts.h"
#include "block.h"

#define TM_SLOTS 64u
#define TM_SLOT_BLOCKS 120u /* with its head a slot takes 1 KiB: no multiplication to find it */

typedef struct tm_slot {
    _Alignas(TM_LINE) _Atomic size_t size; /* 0 = not in use, or revoked */
    _Atomic uint64_t sequence;             /* odd inside a window; half of it counts hot pops and pushes */
    _Atomic uint32_t top;                  /* blocks in the stack */
    _Atomic uint32_t floor, ceiling;       /* the hot path moves top between these; see accounts.h */
    uint32_t rivals;                       /* requests of other sizes with no use of this one in between */
    _Atomic int64_t moved;                 /* blocks put in minus taken out by slow paths */
    uint64_t rivals_since;                 /* the sequence number when they began */
    _Atomic size_t saved_size;             /* while revoked */
    _Alignas(TM_LINE) tm_block *blocks[TM_SLOT_BLOCKS];
} tm_slot;

struct tm_manager;
struct tm_thread;

typedef struct tm_cache {
    uint64_t cached_word;       /* the state of a block in this cache */
    _Atomic uint64_t live_word; /* the state of a block that the owner hands out: its tag */
    tm_slot *slot;              /* used last: known before the block's size is */
    tm_block *latest;           /* handed out last, and likely to be freed first; never null */
    _Atomic uint64_t active;    /* a bit for each slot in use */
    tm_cell cells[TM_ROWS];
    tm_slot slots[TM_SLOTS];
    pthread_mutex_t lock;
    uint32_t home;
    struct tm_manager *manager; /* null: in the pool of unused caches */
    struct tm_thread *thread;
    struct tm_cache *next;    /* of the manager's list, or of the pool */
    struct tm_cache *sibling; /* next cache of the same thread */
} tm_cache;

static inline tm_slot *tm_slot_of(tm_cache *cache, size_t size)
{
    tm_slot *slot = &cache->slots[tm_hash(size) >> 58];
    __asm__("" : "+r"(slot)); /* keep the sum in one register: compilers compute it anew for each field */
    return slot;
}

/* Hot pops and pushes of a slot, from its sequence number, its height and what slow paths moved. */
static inline void tm_slot_counts(const tm_slot *slot, uint64_t *pops, uint64_t *pushes)
{
    int64_t calls = (int64_t)(tm_get(&slot->sequence) / 2);
    int64_t rise = (int64_t)tm_get(&slot->top) - tm_get(&slot->moved); /* pushes - pops */
    *pops = (uint64_t)((calls - rise) / 2);
    *pushes = (uint64_t)((calls + rise) / 2);
}

/* Owner: enter the slot's window; false when it has another size or is revoked. */
static inline bool tm_slot_enter(tm_slot *slot, size_t size, uint64_t *sequence)
{
    *sequence = tm_get(&slot->sequence);
    tm_put(&slot->sequence, *sequence + 1);
    tm_light_fence();
    if (tm_likely(tm_get_acquire(&slot->size) == size))
        return true;
    tm_put_release(&slot->sequence, *sequence);
    return false;
}

/* Owner: the newest block of this size, now live; null when it must be had the slow way. */
static inline tm_block *tm_cache_pop(tm_cache *cache, size_t size, unsigned flags)
{
    tm_slot *slot = tm_slot_of(cache, size);
    uint64_t sequence;
    if (tm_unlikely(!tm_slot_enter(slot, size, &sequence)))
        return NULL;
    uint32_t top = tm_get(&slot->top);
    if (tm_likely(top > tm_get(&slot->floor))) {
        tm_block *block = slot->blocks[top - 1];
        if (tm_likely(tm_get(&block->state) == cache->cached_word)) {
            tm_put(&block->state, tm_get(&cache->live_word) | flags);
            cache->latest = block;
            tm_put(&slot->top, top - 1);
            tm_put_release(&slot->sequence, sequence + 2);
            return block;
        }
    }
    tm_put_release(&slot->sequence, sequence);
    return NULL;
}

/* Owner: keep the block with this address, phase and flags; false when it has others, or when it must go the slow way.
 * Whoever gives a block back to the device waits until every window that was open is closed (tmi_grace), so what
 * is read of the state in here still holds when it is overwritten, or else somebody freed the block twice. */
static inline bool tm_cache_push(tm_cache *cache, tm_block *block, uintptr_t address, unsigned bits)
{
    size_t size = tm_get(&block->size);
    tm_slot *slot = cache->slot;
    if (tm_unlikely(tm_get(&slot->size) != size)) {
        slot = tm_slot_of(cache, size);
        cache->slot = slot;
    }
    uint64_t sequence;
    if (tm_unlikely(!tm_slot_enter(slot, size, &sequence)))
        return false;
    uint32_t top = tm_get(&slot->top);
    bool plain = (tm_get_acquire(&block->state) & TM_BITS) == bits && tm_get(&block->address) == address;
    if (tm_likely(plain) && tm_likely(top < tm_get(&slot->ceiling))) {
        tm_put(&block->state, cache->cached_word);
        slot->blocks[top] = block;
        tm_put(&slot->top, top + 1);
        tm_put_release(&slot->sequence, sequence + 2);
        return true;
    }
    tm_put_release(&slot->sequence, sequence);
    return false;
}

/* Owner: lower the floor or raise the ceiling of the size's slot as far as the cells allow, without any lock;
 * true when the hot path can then go on. */
bool tmi_cache_lower_floor(tm_cache *cache, size_t size);
bool tmi_cache_raise_ceiling(tm_cache *cache, size_t size);

/* An unused cache, from the pool or new; null: no host memory. A cache's memory is never given back, only
 * reused, and its home number stays its own. */
tm_cache *tmi_cache_new(void);
void tmi_cache_recycle(tm_cache *cache); /* pre: empty, out of every list */

/* Around fork. */
void tmi_cache_pool_lock(void);
void tmi_cache_pool_unlock(void);

/* Take the cache from outside. post: the owner is in no window and stays out until unlock. */
void tmi_cache_lock(tm_cache *cache);
void tmi_cache_unlock(tm_cache *cache);
/* The same for the owner itself, which is in no window: the lock alone will do. */
void tmi_cache_lock_own(tm_cache *cache);
void tmi_cache_unlock_own(tm_cache *cache);

/* locks: the cache, for all that follow. */

/* The size that a slot serves, revoked or not; 0 = unused. */
size_t tmi_slot_size(const tm_slot *slot);
/* Put blocks, oldest first, into the stack from place at on (0 is the oldest), as cached here; take some out.
 * pre: there is room; there are that many. Only for accounts.c. */
void tmi_slot_insert(tm_cache *cache, tm_slot *slot, uint32_t at, tm_block *const *blocks, uint32_t count);
void tmi_slot_remove(tm_slot *slot, uint32_t at, tm_block **blocks, uint32_t count);

#endif
