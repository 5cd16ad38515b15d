/* ranges.h - the blocks of a manager in address order: for overlap checks, interior pointers, listing.
 *
 * A sorted list of sorted leaves: O(log n) to find, a short memmove to change. Only slow paths come here.
 * locks: the caller's tables lock, for everything.
 */
#ifndef TM_RANGES_H
#define TM_RANGES_H

#include "block.h"

typedef struct tm_leaf tm_leaf;

typedef struct tm_ranges {
    uintptr_t *lows; /* the first key of each leaf */
    tm_leaf **leaves;
    size_t count, capacity;
} tm_ranges;

typedef struct tm_place {
    size_t leaf;
    unsigned index;
} tm_place;

/* The place of the last block with base <= key; false when there is none. */
bool tmi_ranges_floor(const tm_ranges *ranges, uintptr_t key, tm_place *place);
/* Step to the next place; false at the end. */
bool tmi_ranges_next(const tm_ranges *ranges, tm_place *place);
/* The first place; false when there is none. */
bool tmi_ranges_first(const tm_ranges *ranges, tm_place *place);
tm_block *tmi_ranges_at(const tm_ranges *ranges, tm_place place);
/* pre: no block with this base. false: no host memory, nothing changed. */
bool tmi_ranges_insert(tm_ranges *ranges, tm_block *block);
/* pre: the block is in. */
void tmi_ranges_remove(tm_ranges *ranges, tm_block *block);
void tmi_ranges_destroy(tm_ranges *ranges);
/* Null, or the broken invariant. */
const char *tmi_ranges_check(const tm_ranges *ranges);

#endif
