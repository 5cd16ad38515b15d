/* block.h - the record of one block, and the store that owns all records of a manager.
 *
 * A record never moves and is never unmapped before its manager is destroyed, so that a thread that
 * looks an address up without a lock may read a stale record safely and find out that it is stale.
 */
#ifndef TM_BLOCK_H
#define TM_BLOCK_H

#include "os.h"
#include "ranges.h"

/* The state word: bits 0-7 phase and flags, 8-31 home, 32-63 tag.
 *
 * The home of a cached block names the one container that may hand it out: a thread cache, or 0 for the
 * policy. Frees store it without an atomic read-modify-write; should two threads free the same live block
 * in the same instant, both containers list it but only the one it names will ever use it. */
#define TM_PHASE 3u
#define TM_UNUSED 0u /* in the store, or on its way to or from the device */
#define TM_LIVE 1u
#define TM_CACHED 2u
#define TM_OWNED 4u  /* live and owned by a handle: a bare free of its address is refused */
#define TM_DIRECT 8u /* above the threshold: a free goes to the device */
#define TM_BITS 255u
#define TM_HOME_SHIFT 8
#define TM_HOMES (1u << 24)
#define TM_TAG_SHIFT 32

/* Two records fill one cache line. */
typedef struct tm_block {
    _Atomic uint64_t state;
    _Atomic uintptr_t address; /* as handed out; 0 while the record is unused */
    _Atomic size_t size;       /* block bytes from address on: the key of exact reuse */
    union {
        tm_range *padded;      /* null, or what the device gave when it padded for an alignment */
        struct tm_block *next; /* of an unused record: the queue */
    };
} tm_block;

/* Free records are reused in turn, so that a stale look-up stays harmless for long. */
typedef struct tm_block_store {
    struct tm_chunk *chunks;
    tm_block *oldest, *newest;
    size_t waiting;
} tm_block_store;

/* locks: the caller's tables lock, for both. */
tm_block *tmi_block_new(tm_block_store *store); /* null: no host memory; else UNUSED, address 0, not padded */
void tmi_block_recycle(tm_block_store *store, tm_block *block);
void tmi_block_store_destroy(tm_block_store *store);

/* The range as the device gave it. pre: nobody else can remove the block. */
static inline tm_range tm_block_range(const tm_block *block)
{
    return block->padded ? *block->padded : (tm_range){tm_get(&block->address), tm_get(&block->size)};
}

static inline unsigned tm_phase(uint64_t state) { return (unsigned)(state & TM_PHASE); }

/* The state of a block that a container keeps; home 0 is the policy. */
static inline uint64_t tm_cached_word(uint32_t home) { return (uint64_t)home << TM_HOME_SHIFT | TM_CACHED; }

/* Take a live block away from everyone else who might free it: false when it is not in this state any more. */
static inline bool tm_block_claim(tm_block *block, uint64_t state)
{
    return atomic_compare_exchange_strong_explicit(&block->state, &state, TM_UNUSED, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

#endif
