/* tables.h - which blocks there are: the one owner of all records, found by address.
 *
 * A hash from the handed-out address to the record is read without a lock; the same blocks in address
 * order are for the slow questions. An address is taken out before the device gets it back (M9).
 */
#ifndef TM_TABLES_H
#define TM_TABLES_H

#include <pthread.h>

#include "block.h"

#define TM_GRAVES 1024u

/* One cache line of the hash: seven blocks, and for each a byte of its address' hash, so that a look-up finds
 * the right one without a branch that could be mispredicted. Nothing in it ever moves. */
#define TM_LANES 7u
typedef struct tm_line {
    _Atomic uint64_t
        checks; /* bytes 0-6: 0 = free; byte 7: how many blocks had to go to a later line (255: many) */
    _Atomic(tm_block *) blocks[TM_LANES];
} tm_line;

typedef struct tm_index {
    tm_line *lines;
    unsigned shift;        /* 64 - log2(lines) */
    size_t mask;           /* number of lines - 1 */
    struct tm_index *next; /* outgrown indexes: contents dropped, addresses kept for late readers */
} tm_index;

typedef struct tm_tables {
    _Atomic uintptr_t
        hot;         /* the index for look-ups: its lines' address, which is that of a page, plus its shift */
    tm_index *index; /* the same for changes */
    pthread_mutex_t lock;
    tm_block_store store;
    size_t count;
    tm_ranges ranges;
    uintptr_t graves[TM_GRAVES]; /* addresses that went back to the device lately: late double frees */
} tm_tables;

bool tmi_tables_init(tm_tables *tables);
void tmi_tables_destroy(tm_tables *tables);

/* Add the device's range, of which size bytes are handed out at address. The record is UNUSED.
 * Null: *reason is METADATA, or ALREADY_LIVE / OVERLAP and *hit the block that is in the way. */
tm_block *tmi_tables_insert(tm_tables *tables, tm_range range, uintptr_t address, size_t size,
                            tm_reason *reason, tm_block_info *hit);
/* pre: the caller owns the block (no one else can hand it out). post: its record may be reused at once. */
void tmi_tables_remove(tm_tables *tables, tm_block *block);
/* The block with this handed-out address, found under the lock; null when there is none. */
tm_block *tmi_tables_find_locked(tm_tables *tables, uintptr_t address);
/* The block whose device range contains the address: true and *info. */
bool tmi_tables_locate(tm_tables *tables, uintptr_t address, tm_block_info *info);
/* Whether the address went back to the device lately and has not been seen since. */
bool tmi_tables_in_grave(tm_tables *tables, uintptr_t address);
size_t tmi_tables_list(tm_tables *tables, uintptr_t from, tm_block_info *out, size_t capacity);
/* Any tracked block, for the end: null when there is none. */
tm_block *tmi_tables_any(tm_tables *tables);
const char *tmi_tables_check(tm_tables *tables);

#define TM_EACH_BYTE UINT64_C(0x0101010101010101)
#define TM_LANE_MARKS UINT64_C(0x0080808080808080)
#define TM_OVERFLOW_SHIFT 56

static inline uint64_t tm_check_of(uint64_t hash) { return ((hash >> 8) & 255) | 1; }

/* A mark at bit 8 * lane + 7 for each lane with this check; the lowest one is never wrong. */
static inline uint64_t tm_match(uint64_t checks, uint64_t check)
{
    uint64_t differ = checks ^ (check * TM_EACH_BYTE);
    return (differ - TM_EACH_BYTE) & ~differ & TM_LANE_MARKS;
}

static inline unsigned tm_lane_of(uint64_t marks) { return (unsigned)__builtin_ctzll(marks) >> 3; }

/* Lock-free and quick: the first block whose check fits, which is nearly always the one with the address; or null. */
static inline tm_block *tm_tables_guess(tm_tables *tables, uintptr_t address)
{
    uintptr_t hot = tm_get_acquire(&tables->hot);
    uint64_t hash = tm_hash(address);
    tm_line *line = (tm_line *)(hot & ~(uintptr_t)63) + (hash >> (hot & 63));
    uint64_t marks = tm_match(tm_get_acquire(&line->checks), tm_check_of(hash));
    return tm_likely(marks != 0) ? tm_get(&line->blocks[tm_lane_of(marks)]) : NULL;
}

/* Lock-free: a block whose address was this one when it was read, or null. Null may be wrong while
 * another thread changes the table: ask tmi_tables_find_locked before believing it. */
static inline tm_block *tm_tables_find(tm_tables *tables, uintptr_t address)
{
    uintptr_t hot = tm_get_acquire(&tables->hot);
    uint64_t hash = tm_hash(address), check = tm_check_of(hash);
    tm_line *lines = (tm_line *)(hot & ~(uintptr_t)63);
    for (size_t at = hash >> (hot & 63);; at = (at + 1) & (UINT64_MAX >> (hot & 63))) {
        tm_line *line = &lines[at];
        uint64_t checks = tm_get_acquire(&line->checks);
        for (uint64_t marks = tm_match(checks, check); marks; marks &= marks - 1) {
            tm_block *block = tm_get(&line->blocks[tm_lane_of(marks)]);
            if (tm_likely(block && tm_get_acquire(&block->address) == address))
                return block;
        }
        if (checks >> TM_OVERFLOW_SHIFT == 0)
            return NULL;
    }
}

#endif
