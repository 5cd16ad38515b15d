/* block.c - records in chunks that double in size up to a huge page. */
#include "block.h"

#define FIRST_CHUNK ((size_t)16 << 10)
#define LARGEST_CHUNK ((size_t)2 << 20)

typedef struct tm_chunk {
    struct tm_chunk *next;
    size_t bytes;
    size_t used; /* records taken from the front; the rest was never used */
    char padding[TM_LINE - 3 * sizeof(size_t)];
    tm_block blocks[];
} tm_chunk;

_Static_assert(sizeof(tm_block) == TM_LINE, "a record fills one cache line");
_Static_assert(sizeof(tm_chunk) == TM_LINE, "records start on a cache line");

static size_t capacity(const tm_chunk *chunk) { return (chunk->bytes - sizeof(tm_chunk)) / sizeof(tm_block); }

static tm_chunk *grow(tm_block_store *store)
{
    size_t bytes = store->next_chunk ? store->next_chunk : FIRST_CHUNK;
    tm_chunk *chunk = tmi_os_map(bytes);
    if (!chunk)
        return NULL;
    chunk->bytes = bytes;
    chunk->next = store->chunks;
    store->chunks = chunk;
    store->next_chunk = bytes < LARGEST_CHUNK ? bytes * 2 : bytes;
    return chunk;
}

tm_block *tmi_block_new(tm_block_store *store)
{
    tm_chunk *chunk = store->chunks;
    if (chunk && chunk->used < capacity(chunk))
        return &chunk->blocks[chunk->used++];
    tm_block *block = store->oldest;
    if (!block) {
        chunk = grow(store);
        return chunk ? &chunk->blocks[chunk->used++] : NULL;
    }
    store->oldest = block->next;
    if (!store->oldest)
        store->newest = NULL;
    return block;
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
}

void tmi_block_store_destroy(tm_block_store *store)
{
    for (tm_chunk *chunk = store->chunks, *next; chunk; chunk = next) {
        next = chunk->next;
        tmi_os_unmap(chunk, chunk->bytes);
    }
    *store = (tm_block_store){0};
}
