/* tables.c - see tables.h. */
#include "tables.h"

#include <string.h>

#define FIRST_INDEX 256u /* entries */
#define PAGE ((size_t)4096)

static tm_index *new_index(size_t entries)
{
    size_t bytes = sizeof(tm_index) + entries * sizeof(tm_entry);
    tm_index *index = tmi_os_map(bytes);
    if (!index)
        return NULL;
    index->shift = (unsigned)__builtin_clzll(entries) + 1;
    index->mask = entries - 1;
    index->bytes = bytes;
    return index;
}

static size_t slot_after(const tm_index *index, size_t at) { return (at + 1) & index->mask; }

static size_t home_of(const tm_index *index, uintptr_t key) { return tm_hash(key) >> index->shift; }

static void index_put(tm_index *index, uintptr_t key, tm_block *block)
{
    size_t at = home_of(index, key);
    while (tm_get(&index->entries[at].key) != 0)
        at = slot_after(index, at);
    tm_put_release(&index->entries[at].block, block);
    tm_put_release(&index->entries[at].key, key);
}

/* Publish an index of twice the size; readers of the old one find nothing there and ask under the lock. */
static bool grow(tm_tables *tables)
{
    tm_index *old = tm_get(&tables->index);
    tm_index *index = new_index((old->mask + 1) * 2);
    if (!index)
        return false;
    for (size_t i = 0; i <= old->mask; i++)
        if (tm_get(&old->entries[i].key))
            index_put(index, tm_get(&old->entries[i].key), tm_get(&old->entries[i].block));
    index->next = old;
    tm_put_release(&tables->index, index);
    if (old->bytes > PAGE)
        tmi_os_discard((char *)old + PAGE, old->bytes - PAGE);
    return true;
}

/* Close the gap by moving later entries of the same run back, so that probes stay short for ever. */
static void index_remove(tm_index *index, uintptr_t key)
{
    size_t hole = home_of(index, key);
    while (tm_get(&index->entries[hole].key) != key)
        hole = slot_after(index, hole);
    for (size_t at = slot_after(index, hole); tm_get(&index->entries[at].key); at = slot_after(index, at)) {
        size_t home = home_of(index, tm_get(&index->entries[at].key));
        if (((at - home) & index->mask) < ((at - hole) & index->mask))
            continue;
        tm_put_release(&index->entries[hole].block, tm_get(&index->entries[at].block));
        tm_put_release(&index->entries[hole].key, tm_get(&index->entries[at].key));
        hole = at;
    }
    tm_put_release(&index->entries[hole].key, 0);
}

bool tmi_tables_init(tm_tables *tables)
{
    pthread_mutex_init(&tables->lock, NULL);
    tm_put(&tables->index, new_index(FIRST_INDEX));
    return tm_get(&tables->index) != NULL;
}

void tmi_tables_destroy(tm_tables *tables)
{
    for (tm_index *index = tm_get(&tables->index), *next; index; index = next) {
        next = index->next;
        tmi_os_unmap(index, index->bytes);
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
                            .requested = tm_get(&block->requested),
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
        if (base - block->base < block->base_size)
            return block;
    }
    if (!(below ? tmi_ranges_next(ranges, &place) : tmi_ranges_first(ranges, &place)))
        return NULL;
    tm_block *block = tmi_ranges_at(ranges, place);
    return block->base - base < size ? block : NULL;
}

static tm_block *insert_locked(tm_tables *tables, uintptr_t base, size_t base_size, uintptr_t address, size_t size)
{
    tm_index *index = tm_get(&tables->index);
    if (tables->count * 4 >= (index->mask + 1) * 3 && !grow(tables))
        return NULL;
    tm_block *block = tmi_block_new(&tables->store);
    if (!block)
        return NULL;
    block->base = base;
    block->base_size = base_size;
    if (!tmi_ranges_insert(&tables->ranges, block)) {
        tmi_block_recycle(&tables->store, block);
        return NULL;
    }
    tm_put(&block->size, size);
    tm_put(&block->requested, size);
    tm_put_release(&block->address, address);
    index_put(tm_get(&tables->index), address, block);
    tables->count++;
    uintptr_t *grave = grave_of(tables, address);
    if (*grave == address)
        *grave = 0;
    return block;
}

tm_block *tmi_tables_insert(tm_tables *tables, uintptr_t base, size_t base_size, uintptr_t address, size_t size,
                            tm_reason *reason, tm_block_info *hit)
{
    tm_block *block = NULL;
    pthread_mutex_lock(&tables->lock);
    tm_block *other = in_the_way(&tables->ranges, base, base_size);
    if (other) {
        describe(other, hit);
        *reason = other->base == base ? TM_REASON_ALREADY_LIVE : TM_REASON_OVERLAP;
    } else {
        *reason = TM_REASON_METADATA;
        block = insert_locked(tables, base, base_size, address, size);
    }
    pthread_mutex_unlock(&tables->lock);
    return block;
}

void tmi_tables_remove(tm_tables *tables, tm_block *block)
{
    pthread_mutex_lock(&tables->lock);
    uintptr_t address = tm_get(&block->address);
    index_remove(tm_get(&tables->index), address);
    tmi_ranges_remove(&tables->ranges, block);
    tmi_block_recycle(&tables->store, block);
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
        found = address - block->base < block->base_size;
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

const char *tmi_tables_check(tm_tables *tables)
{
    size_t found = 0;
    pthread_mutex_lock(&tables->lock);
    const char *broken = tmi_ranges_check(&tables->ranges);
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
