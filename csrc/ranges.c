/* ranges.c - see ranges.h. */
#include "ranges.h"

#include <stdlib.h>
#include <string.h>

#define LEAF 250u /* items: a leaf stays below one 4 KiB page */

struct tm_leaf {
    unsigned count;
    uintptr_t keys[LEAF];
    void *items[LEAF];
};

/* The number of keys <= key in a sorted array. */
static size_t rank_of(const uintptr_t *keys, size_t count, uintptr_t key)
{
    size_t low = 0;
    while (count) {
        size_t half = count / 2;
        if (keys[low + half] <= key) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

bool tmi_ranges_floor(const tm_ranges *ranges, uintptr_t key, tm_place *place)
{
    size_t leaf = rank_of(ranges->lows, ranges->count, key);
    if (leaf == 0)
        return false;
    const tm_leaf *found = ranges->leaves[leaf - 1];
    *place = (tm_place){leaf - 1, (unsigned)rank_of(found->keys, found->count, key) - 1};
    return true;
}

bool tmi_ranges_first(const tm_ranges *ranges, tm_place *place)
{
    *place = (tm_place){0, 0};
    return ranges->count != 0;
}

bool tmi_ranges_next(const tm_ranges *ranges, tm_place *place)
{
    if (++place->index < ranges->leaves[place->leaf]->count)
        return true;
    place->index = 0;
    return ++place->leaf < ranges->count;
}

void *tmi_ranges_at(const tm_ranges *ranges, tm_place place)
{
    return ranges->leaves[place.leaf]->items[place.index];
}

static bool reserve(tm_ranges *ranges)
{
    if (ranges->count < ranges->capacity)
        return true;
    size_t capacity = ranges->capacity ? ranges->capacity * 2 : 16;
    uintptr_t *lows = realloc(ranges->lows, capacity * sizeof *lows);
    if (!lows)
        return false;
    ranges->lows = lows;
    tm_leaf **leaves = realloc(ranges->leaves, capacity * sizeof *leaves);
    if (!leaves)
        return false;
    ranges->leaves = leaves;
    ranges->capacity = capacity;
    return true;
}

/* Put an empty leaf at a position. */
static tm_leaf *add_leaf(tm_ranges *ranges, size_t at)
{
    tm_leaf *leaf = reserve(ranges) ? malloc(sizeof *leaf) : NULL;
    if (!leaf)
        return NULL;
    leaf->count = 0;
    size_t behind = ranges->count - at;
    memmove(ranges->lows + at + 1, ranges->lows + at, behind * sizeof *ranges->lows);
    memmove(ranges->leaves + at + 1, ranges->leaves + at, behind * sizeof *ranges->leaves);
    ranges->leaves[at] = leaf;
    ranges->lows[at] = 0;
    ranges->count++;
    return leaf;
}

static void leaf_insert(tm_leaf *leaf, unsigned at, uintptr_t key, void *item)
{
    unsigned behind = leaf->count - at;
    memmove(leaf->keys + at + 1, leaf->keys + at, behind * sizeof *leaf->keys);
    memmove(leaf->items + at + 1, leaf->items + at, behind * sizeof *leaf->items);
    leaf->keys[at] = key;
    leaf->items[at] = item;
    leaf->count++;
}

/* Halve a full leaf; a leaf that grows at its end (rising addresses) is kept full instead. */
static bool split(tm_ranges *ranges, size_t at, bool appending)
{
    tm_leaf *upper = add_leaf(ranges, at + 1);
    if (!upper)
        return false;
    tm_leaf *lower = ranges->leaves[at];
    unsigned keep = appending ? LEAF - 1 : LEAF / 2;
    upper->count = lower->count - keep;
    memcpy(upper->keys, lower->keys + keep, upper->count * sizeof *upper->keys);
    memcpy(upper->items, lower->items + keep, upper->count * sizeof *upper->items);
    lower->count = keep;
    ranges->lows[at + 1] = upper->keys[0];
    return true;
}

bool tmi_ranges_insert(tm_ranges *ranges, uintptr_t key, void *item)
{
    if (ranges->count == 0 && !add_leaf(ranges, 0))
        return false;
    size_t at = rank_of(ranges->lows, ranges->count, key);
    at -= at != 0;
    if (ranges->leaves[at]->count == LEAF) {
        bool appending = key > ranges->leaves[at]->keys[LEAF - 1];
        if (!split(ranges, at, appending))
            return false;
        at += key >= ranges->lows[at + 1];
    }
    tm_leaf *leaf = ranges->leaves[at];
    leaf_insert(leaf, (unsigned)rank_of(leaf->keys, leaf->count, key), key, item);
    ranges->lows[at] = leaf->keys[0];
    return true;
}

static void remove_leaf(tm_ranges *ranges, size_t at)
{
    free(ranges->leaves[at]);
    size_t behind = --ranges->count - at;
    memmove(ranges->lows + at, ranges->lows + at + 1, behind * sizeof *ranges->lows);
    memmove(ranges->leaves + at, ranges->leaves + at + 1, behind * sizeof *ranges->leaves);
}

void tmi_ranges_remove(tm_ranges *ranges, uintptr_t key)
{
    tm_place place;
    if (!tmi_ranges_floor(ranges, key, &place))
        return;
    tm_leaf *leaf = ranges->leaves[place.leaf];
    unsigned behind = --leaf->count - place.index;
    memmove(leaf->keys + place.index, leaf->keys + place.index + 1, behind * sizeof *leaf->keys);
    memmove(leaf->items + place.index, leaf->items + place.index + 1, behind * sizeof *leaf->items);
    if (leaf->count == 0)
        remove_leaf(ranges, place.leaf);
    else
        ranges->lows[place.leaf] = leaf->keys[0];
}

void tmi_ranges_destroy(tm_ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++)
        free(ranges->leaves[i]);
    free(ranges->lows);
    free(ranges->leaves);
    *ranges = (tm_ranges){0};
}

const char *tmi_ranges_check(const tm_ranges *ranges, tm_range (*range_of)(const void *item))
{
    uintptr_t end = 0;
    tm_place place;
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->leaves[i]->count == 0 || ranges->lows[i] != ranges->leaves[i]->keys[0])
            return "ranges: a leaf is empty or its low key is wrong";
    for (bool more = tmi_ranges_first(ranges, &place); more; more = tmi_ranges_next(ranges, &place)) {
        tm_range range = range_of(tmi_ranges_at(ranges, place));
        if (range.base != ranges->leaves[place.leaf]->keys[place.index])
            return "ranges: a key is not its item's base";
        if (range.base < end)
            return "ranges: two overlap or are out of order";
        end = range.base + range.size;
    }
    return NULL;
}
