/* block.c - records in chunks: a small first one, then huge pages. */
#include "block.h"

#define REST 1024u /* so many records wait before the first is used again */
#define FIRST_CHUNK ((size_t)64 << 10)
#define CHUNK ((size_t)2 << 20)
#define GROUP ((size_t)128)

typedef struct tm_chunk {
    struct tm_chunk *next;
    size_t bytes;
    size_t used; /* records taken; the rest was never used */
    char padding[TM_LINE - 3 * sizeof(size_t)];
    tm_block blocks[];
} tm_chunk;

_Static_assert(sizeof(tm_block) == TM_LINE / 2, "two records fill one cache line");
_Static_assert(sizeof(tm_chunk) == TM_LINE, "records start on a cache line");

static size_t capacity(const tm_chunk *chunk) { return (chunk->bytes - sizeof(tm_chunk)) / sizeof(tm_block); }

/* The place of the nth record taken: of GROUP records first every other one, then those between. Two threads that
 * start at the same time write to their records all the time, which must not lie in the same cache line. */
static size_t place(const tm_chunk *chunk, size_t n)
{
    size_t begin = n / GROUP * GROUP, inside = n % GROUP;
    if (begin + GROUP > capacity(chunk))
        return n;
    return begin + (inside < GROUP / 2 ? 2 * inside : 2 * inside - GROUP + 1);
}

static tm_chunk *grow(tm_block_store *store)
{
    size_t bytes = store->chunks ? CHUNK : FIRST_CHUNK;
    tm_chunk *chunk = store->chunks ? tmi_os_map_huge(bytes) : tmi_os_map(bytes);
    if (!chunk)
        return NULL;
    chunk->bytes = bytes;
    chunk->next = store->chunks;
    store->chunks = chunk;
    return chunk;
}

static tm_block *take_unused(tm_block_store *store)
{
    tm_chunk *chunk = store->chunks;
    if (!chunk || chunk->used == capacity(chunk))
        chunk = grow(store);
    return chunk ? &chunk->blocks[place(chunk, chunk->used++)] : NULL;
}

static tm_block *take_oldest(tm_block_store *store)
{
    tm_block *block = store->oldest;
    if (!block)
        return NULL;
    store->oldest = block->next;
    if (!store->oldest)
        store->newest = NULL;
    store->waiting--;
    block->padded = NULL;
    return block;
}

tm_block *tmi_block_new(tm_block_store *store)
{
    tm_block *block = store->waiting > REST ? NULL : take_unused(store);
    return block ? block : take_oldest(store);
}

void tmi_block_recycle(tm_block_store *store, tm_block *block)
{
    tm_put_release(&block->state, TM_UNUSED);
    tm_put(&block->address, 0);
    block->next = NULL;
    if (store->newest)
        store->newest->next = block;
    else
        store->oldest = block;
    store->newest = block;
    store->waiting++;
}

void tmi_block_store_destroy(tm_block_store *store)
{
    for (tm_chunk *chunk = store->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        tmi_os_unmap(chunk, chunk->bytes);
    }
}
