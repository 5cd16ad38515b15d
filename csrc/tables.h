/* tables.h - which blocks there are: the one owner of all records, found by address.
 *
 * A hash from the handed-out address to the record is read without a lock; the same blocks in address
 * order are for the slow questions. An address is taken out before the device gets it back (M9).
 */
#ifndef TM_TABLES_H
#define TM_TABLES_H

#include <pthread.h>

#include "ranges.h"

#define TM_GRAVES 1024u

typedef struct tm_entry {
    _Atomic uintptr_t key; /* 0 = empty */
    _Atomic(tm_block *) block;
} tm_entry;

typedef struct tm_index {
    unsigned shift;        /* 64 - log2(entries) */
    size_t mask;           /* entries - 1 */
    size_t bytes;          /* of the mapping */
    struct tm_index *next; /* outgrown indexes: contents dropped, addresses kept for late readers */
    char padding[TM_LINE - 2 * sizeof(unsigned) - 3 * sizeof(size_t)];
    tm_entry entries[];
} tm_index;

typedef struct tm_tables {
    _Atomic(tm_index *) index;
    pthread_mutex_t lock;
    size_t count;
    tm_block_store store;
    tm_ranges ranges;
    uintptr_t graves[TM_GRAVES]; /* addresses that went back to the device lately: late double frees */
} tm_tables;

bool tmi_tables_init(tm_tables *tables);
void tmi_tables_destroy(tm_tables *tables);

/* Add the device's range [base, base+base_size), size bytes of it handed out at address. The record is UNUSED.
 * Null: *reason is METADATA, or ALREADY_LIVE / OVERLAP and *hit the block that is in the way. */
tm_block *tmi_tables_insert(tm_tables *tables, uintptr_t base, size_t base_size, uintptr_t address, size_t size,
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

/* Lock-free: a block whose address was this one when it was read, or null. Null may be wrong while
 * another thread changes the table: ask tmi_tables_find_locked before believing it. */
static inline tm_block *tm_tables_find(tm_tables *tables, uintptr_t address)
{
    tm_index *index = tm_get_acquire(&tables->index);
    size_t at = tm_hash(address) >> index->shift;
    for (;; at++) {
        tm_entry *entry = &index->entries[at & index->mask];
        uintptr_t key = tm_get_acquire(&entry->key);
        if (tm_likely(key == address)) {
            tm_block *block = tm_get_acquire(&entry->block);
            return block && tm_get_acquire(&block->address) == address ? block : NULL;
        }
        if (key == 0)
            return NULL;
    }
}

#endif
