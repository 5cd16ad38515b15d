/* ranges.h - things that have an address, in the order of their addresses: for overlap checks, interior
 * pointers, listing. The blocks of a manager, the mappings of a present table.
 *
 * A sorted list of sorted leaves: O(log n) to find, a short memmove to change. Only slow paths come here.
 * locks: the caller's, for everything.
 */
#ifndef TM_RANGES_H
#define TM_RANGES_H

#include "base.h"

typedef struct tm_range {
    uintptr_t base;
    size_t size;
} tm_range;

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

/* The place of the last item with a key <= key; false when there is none. */
bool tmi_ranges_floor(const tm_ranges *ranges, uintptr_t key, tm_place *place);
/* Step to the next place; false at the end. */
bool tmi_ranges_next(const tm_ranges *ranges, tm_place *place);
/* The first place; false when there is none. */
bool tmi_ranges_first(const tm_ranges *ranges, tm_place *place);
void *tmi_ranges_at(const tm_ranges *ranges, tm_place place);
/* pre: no item with this key, the base of its range. false: no host memory, nothing changed. */
bool tmi_ranges_insert(tm_ranges *ranges, uintptr_t key, void *item);
/* pre: an item with this key is in. */
void tmi_ranges_remove(tm_ranges *ranges, uintptr_t key);
void tmi_ranges_destroy(tm_ranges *ranges);
/* Null, or the broken invariant. range_of gives the range of an item, whose base is its key. */
const char *tmi_ranges_check(const tm_ranges *ranges, tm_range (*range_of)(const void *item));

#endif
