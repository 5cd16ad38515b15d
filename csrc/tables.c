/* tables.c - see tables.h. */
#include "tables.h"

#include <stdlib.h>

#define FIRST_INDEX 64u /* lines: one page */
#define HUGE_PAGE ((size_t)2 << 20)

static size_t bytes_of(size_t lines) { return lines * sizeof(tm_line); }

static tm_index *new_index(size_t lines)
{
    size_t bytes = bytes_of(lines);
    tm_index *index = malloc(sizeof *index);
    tm_line *table = !index ? NULL : bytes < HUGE_PAGE ? tmi_os_map(bytes) : tmi_os_map_huge(bytes);
    if (!table) {
        free(index);
        return NULL;
    }
    *index = (tm_index){.lines = table, .shift = (unsigned)__builtin_clzll(lines) + 1, .mask = lines - 1};
    return index;
}

/* Blocks that found no lane in this line and went on; at 255 the count sticks, which only costs time. */
static void count_overflow(tm_line *line, int change)
{
    uint64_t checks = tm_get(&line->checks), many = UINT64_C(255) << TM_OVERFLOW_SHIFT;
    if (checks < many)
        tm_put(&line->checks, checks + ((uint64_t)(int64_t)change << TM_OVERFLOW_SHIFT));
}

static void index_put(tm_index *index, uintptr_t address, tm_block *block)
{
    uint64_t hash = tm_hash(address), marks;
    size_t at = hash >> index->shift;
    while ((marks = tm_match(tm_get(&index->lines[at].checks), 0)) == 0) {
        count_overflow(&index->lines[at], 1);
        at = (at + 1) & index->mask;
    }
    tm_line *line = &index->lines[at];
    unsigned lane = tm_lane_of(marks);
    tm_put(&line->blocks[lane], block);
    tm_put_release(&line->checks, tm_get(&line->checks) | tm_check_of(hash) << (8 * lane));
}

static int lane_with(const tm_line *line, const tm_block *block)
{
    for (unsigned lane = 0; lane < TM_LANES; lane++)
        if (tm_get(&line->checks) >> (8 * lane) & 255 && tm_get(&line->blocks[lane]) == block)
            return (int)lane;
    return -1;
}

/* pre: the block is in. */
static void index_remove(tm_index *index, const tm_block *block)
{
    size_t at = tm_hash(tm_get(&block->address)) >> index->shift;
    int lane;
    while ((lane = lane_with(&index->lines[at], block)) < 0) {
        count_overflow(&index->lines[at], -1);
        at = (at + 1) & index->mask;
    }
    tm_line *line = &index->lines[at];
    tm_put_release(&line->checks, tm_get(&line->checks) & ~(UINT64_C(255) << (8 * lane)));
}

static void copy_line(tm_index *index, const tm_line *line)
{
    for (unsigned lane = 0; lane < TM_LANES; lane++)
        if (tm_get(&line->checks) >> (8 * lane) & 255) {
            tm_block *block = tm_get(&line->blocks[lane]);
            index_put(index, tm_get(&block->address), block);
        }
}

static void publish(tm_tables *tables, tm_index *index)
{
    tables->index = index;
    tm_put_release(&tables->hot, (uintptr_t)index->lines | index->shift);
}

/* Publish an index of twice the size; readers of the old one find nothing there and ask under the lock. */
static bool grow(tm_tables *tables)
{
    tm_index *old = tables->index;
    tm_index *index = new_index((old->mask + 1) * 2);
    if (!index)
        return false;
    for (size_t at = 0; at <= old->mask; at++)
        copy_line(index, &old->lines[at]);
    index->next = old;
    publish(tables, index);
    tmi_os_discard(old->lines, bytes_of(old->mask + 1));
    return true;
}

bool tmi_tables_init(tm_tables *tables)
{
    pthread_mutex_init(&tables->lock, NULL);
    tables->index = new_index(FIRST_INDEX);
    if (tables->index)
        publish(tables, tables->index);
    return tables->index != NULL;
}

void tmi_tables_destroy(tm_tables *tables)
{
    for (tm_index *index = tables->index, *next; index; index = next) {
        next = index->next;
        tmi_os_unmap(index->lines, bytes_of(index->mask + 1));
        free(index);
    }
    tmi_ranges_destroy(&tables->ranges);
    tmi_block_store_destroy(&tables->store);
    pthread_mutex_destroy(&tables->lock);
}

static uintptr_t *grave_of(tm_tables *tables, uintptr_t address)
{
    return &tables->graves[tm_hash(address) >> 54];
}

static void describe(const tm_block *block, tm_block_info *info)
{
    uint64_t state = tm_get(&block->state);
    *info = (tm_block_info){.address = tm_get(&block->address),
                            .size = tm_get(&block->size),
                            .requested = tm_get(&block->size), /* policy exact: no padding inside a block */
                            .tag = (uint32_t)(state >> TM_TAG_SHIFT),
                            .live = tm_phase(state) == TM_LIVE,
                            .direct = (state & TM_DIRECT) != 0,
                            .owned = (state & TM_OWNED) != 0};
}

/* The tracked block that shares a byte with [base, base+size). locks: tables. */
static tm_block *in_the_way(const tm_ranges *ranges, uintptr_t base, size_t size)
{
    tm_place place;
    bool below = tmi_ranges_floor(ranges, base, &place);
    if (below) {
        tm_block *block = tmi_ranges_at(ranges, place);
        tm_range range = tm_block_range(block);
        if (base - range.base < range.size)
            return block;
    }
    if (!(below ? tmi_ranges_next(ranges, &place) : tmi_ranges_first(ranges, &place)))
        return NULL;
    tm_block *block = tmi_ranges_at(ranges, place);
    return tm_block_range(block).base - base < size ? block : NULL;
}

static void bury(tm_tables *tables, tm_block *block)
{
    free(block->padded);
    block->padded = NULL;
    tmi_block_recycle(&tables->store, block);
}

/* Fill in a fresh record; false: no host memory. */
static bool describe_range(tm_block *block, tm_range range, uintptr_t address, size_t size)
{
    tm_put(&block->size, size);
    tm_put_release(&block->address, address);
    if (range.base == address && range.size == size)
        return true;
    block->padded = malloc(sizeof *block->padded);
    if (block->padded)
        *block->padded = range;
    return block->padded != NULL;
}

static void forget_grave(tm_tables *tables, uintptr_t address)
{
    uintptr_t *grave = grave_of(tables, address);
    if (*grave == address)
        *grave = 0;
}

static tm_block *insert_locked(tm_tables *tables, tm_range range, uintptr_t address, size_t size)
{
    if (tables->count * 2 >= (tables->index->mask + 1) * 9 && !grow(tables)) /* 4.5 of 7 lanes in use */
        return NULL;
    tm_block *block = tmi_block_new(&tables->store);
    if (!block)
        return NULL;
    if (!describe_range(block, range, address, size) ||
        !tmi_ranges_insert(&tables->ranges, range.base, block)) {
        bury(tables, block);
        return NULL;
    }
    index_put(tables->index, address, block);
    tables->count++;
    forget_grave(tables, address);
    return block;
}

tm_block *tmi_tables_insert(tm_tables *tables, tm_range range, uintptr_t address, size_t size,
                            tm_reason *reason, tm_block_info *hit)
{
    tm_block *block = NULL;
    pthread_mutex_lock(&tables->lock);
    tm_block *other = in_the_way(&tables->ranges, range.base, range.size);
    if (other) {
        describe(other, hit);
        *reason = tm_block_range(other).base == range.base ? TM_REASON_ALREADY_LIVE : TM_REASON_OVERLAP;
    } else {
        *reason = TM_REASON_METADATA;
        block = insert_locked(tables, range, address, size);
    }
    pthread_mutex_unlock(&tables->lock);
    return block;
}

void tmi_tables_remove(tm_tables *tables, tm_block *block)
{
    pthread_mutex_lock(&tables->lock);
    uintptr_t address = tm_get(&block->address);
    tmi_ranges_remove(&tables->ranges, tm_block_range(block).base);
    index_remove(tables->index, block);
    bury(tables, block);
    tables->count--;
    *grave_of(tables, address) = address;
    pthread_mutex_unlock(&tables->lock);
}

tm_block *tmi_tables_find_locked(tm_tables *tables, uintptr_t address)
{
    pthread_mutex_lock(&tables->lock);
    tm_block *block = address ? tm_tables_find(tables, address) : NULL;
    pthread_mutex_unlock(&tables->lock);
    return block;
}

bool tmi_tables_locate(tm_tables *tables, uintptr_t address, tm_block_info *info)
{
    tm_place place;
    pthread_mutex_lock(&tables->lock);
    bool found = tmi_ranges_floor(&tables->ranges, address, &place);
    if (found) {
        tm_block *block = tmi_ranges_at(&tables->ranges, place);
        tm_range range = tm_block_range(block);
        found = address - range.base < range.size;
        if (found)
            describe(block, info);
    }
    pthread_mutex_unlock(&tables->lock);
    return found;
}

bool tmi_tables_in_grave(tm_tables *tables, uintptr_t address)
{
    pthread_mutex_lock(&tables->lock);
    bool found = *grave_of(tables, address) == address;
    pthread_mutex_unlock(&tables->lock);
    return found;
}

size_t tmi_tables_list(tm_tables *tables, uintptr_t from, tm_block_info *out, size_t capacity)
{
    size_t count = 0;
    tm_place place;
    pthread_mutex_lock(&tables->lock);
    bool more = tmi_ranges_floor(&tables->ranges, from, &place) || tmi_ranges_first(&tables->ranges, &place);
    for (; more && count < capacity; more = tmi_ranges_next(&tables->ranges, &place)) {
        const tm_block *block = tmi_ranges_at(&tables->ranges, place);
        if (tm_get(&block->address) >= from && tm_phase(tm_get(&block->state)) != TM_UNUSED)
            describe(block, &out[count++]);
    }
    pthread_mutex_unlock(&tables->lock);
    return count;
}

tm_block *tmi_tables_any(tm_tables *tables)
{
    tm_place place;
    pthread_mutex_lock(&tables->lock);
    tm_block *block =
        tmi_ranges_first(&tables->ranges, &place) ? tmi_ranges_at(&tables->ranges, place) : NULL;
    pthread_mutex_unlock(&tables->lock);
    return block;
}

static tm_range range_of(const void *block) { return tm_block_range(block); }

const char *tmi_tables_check(tm_tables *tables)
{
    size_t found = 0;
    pthread_mutex_lock(&tables->lock);
    const char *broken = tmi_ranges_check(&tables->ranges, range_of);
    tm_place place;
    for (bool more = tmi_ranges_first(&tables->ranges, &place); more && !broken;
         more = tmi_ranges_next(&tables->ranges, &place), found++) {
        tm_block *block = tmi_ranges_at(&tables->ranges, place);
        if (tm_tables_find(tables, tm_get(&block->address)) != block)
            broken = "tables: a block in the ranges is not found by its address";
    }
    if (!broken && found != tables->count)
        broken = "tables: the count is wrong";
    pthread_mutex_unlock(&tables->lock);
    return broken;
}
