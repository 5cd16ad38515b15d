/* exact.c - policy `exact`: a free block serves a request of exactly its size, newest first (M6). */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

/* Free blocks of one size, oldest first: blocks[first .. first + count). */
typedef struct tm_list {
    size_t size;
    size_t first; /* places in front whose blocks left: the oldest goes without moving the others */
    size_t count, capacity;
    uint64_t used; /* the tick of its latest change */
    tm_block **blocks;
} tm_list;

/* The lists of one power of two, sorted by size. */
typedef struct tm_bucket {
    _Alignas(TM_LINE) pthread_mutex_t lock;
    tm_list *lists;
    size_t count, capacity;
    _Atomic size_t blocks; /* so that an empty bucket is passed over without its lock */
} tm_bucket;

typedef struct tm_exact {
    tm_bucket buckets[TM_BUCKETS];
    _Atomic uint64_t tick;
} tm_exact;

static void *create(void)
{
    tm_exact *state = aligned_alloc(TM_LINE, sizeof *state);
    if (!state)
        return NULL;
    memset(state, 0, sizeof *state);
    for (unsigned i = 0; i < TM_BUCKETS; i++)
        pthread_mutex_init(&state->buckets[i].lock, NULL);
    return state;
}

static void destroy(void *opaque)
{
    tm_exact *state = opaque;
    for (unsigned i = 0; i < TM_BUCKETS; i++) {
        tm_bucket *bucket = &state->buckets[i];
        for (size_t k = 0; k < bucket->count; k++)
            free(bucket->lists[k].blocks);
        free(bucket->lists);
        pthread_mutex_destroy(&bucket->lock);
    }
    free(state);
}

static size_t block_size(size_t requested) { return requested; }

/* The position of the first list with at least this size. */
static size_t position(const tm_bucket *bucket, size_t size)
{
    size_t low = 0, count = bucket->count;
    while (count) {
        size_t half = count / 2;
        if (bucket->lists[low + half].size < size) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

static bool reserve(void **array, size_t *capacity, size_t count, size_t item)
{
    if (count < *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 8;
    void *grown = realloc(*array, wanted * item);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static tm_list *list_of(tm_bucket *bucket, size_t size, bool make)
{
    size_t at = position(bucket, size);
    if (at < bucket->count && bucket->lists[at].size == size)
        return &bucket->lists[at];
    if (!make || !reserve((void **)&bucket->lists, &bucket->capacity, bucket->count, sizeof(tm_list)))
        return NULL;
    memmove(bucket->lists + at + 1, bucket->lists + at, (bucket->count - at) * sizeof(tm_list));
    bucket->lists[at] = (tm_list){.size = size};
    bucket->count++;
    return &bucket->lists[at];
}

static void drop_list(tm_bucket *bucket, size_t at)
{
    free(bucket->lists[at].blocks);
    memmove(bucket->lists + at, bucket->lists + at + 1, (--bucket->count - at) * sizeof(tm_list));
}

/* Room for one more at the end. Sliding is paid for by those that left in front: at least as many. */
static bool make_room(tm_list *list)
{
    size_t end = list->first + list->count;
    if (end == list->capacity && list->first > list->count) {
        memmove(list->blocks, list->blocks + list->first, list->count * sizeof(tm_block *));
        end = list->count;
        list->first = 0;
    }
    return reserve((void **)&list->blocks, &list->capacity, end, sizeof(tm_block *));
}

static size_t keep(void *opaque, tm_block *const *blocks, size_t count)
{
    tm_exact *state = opaque;
    size_t size = tm_get(&blocks[0]->size), kept = 0;
    tm_bucket *bucket = &state->buckets[tm_bucket_of(size)];
    pthread_mutex_lock(&bucket->lock);
    tm_list *list = list_of(bucket, size, true);
    for (; kept < count && list && make_room(list); kept++)
        list->blocks[list->first + list->count++] = blocks[kept];
    if (kept)
        list->used = tm_add(&state->tick, 1);
    tm_put(&bucket->blocks, tm_get(&bucket->blocks) + kept);
    pthread_mutex_unlock(&bucket->lock);
    return kept;
}

/* at: 0 is the oldest. locks: the bucket. */
static tm_block *remove_at(tm_bucket *bucket, tm_list *list, size_t at)
{
    tm_block **place = list->blocks + list->first + at, *block = *place;
    list->count--;
    if (at == 0)
        list->first = list->count ? list->first + 1 : 0;
    else
        memmove(place, place + 1, (list->count - at) * sizeof(tm_block *));
    tm_put(&bucket->blocks, tm_get(&bucket->blocks) - 1);
    return block;
}

static size_t take(void *opaque, size_t size, size_t alignment, tm_block **blocks, size_t count)
{
    tm_exact *state = opaque;
    tm_bucket *bucket = &state->buckets[tm_bucket_of(size)];
    size_t taken = 0;
    if (tm_get(&bucket->blocks) == 0)
        return 0;
    pthread_mutex_lock(&bucket->lock);
    tm_list *list = list_of(bucket, size, false);
    for (size_t at = list ? list->count : 0; at-- > 0 && taken < count;)
        if (tm_is_aligned(tm_get(&list->blocks[list->first + at]->address), alignment))
            blocks[taken++] = remove_at(bucket, list, at);
    if (taken)
        list->used = tm_add(&state->tick, 1);
    pthread_mutex_unlock(&bucket->lock);
    return taken;
}

/* The largest block; lists found empty on the way are dropped. */
static tm_block *evict_from(tm_bucket *bucket)
{
    tm_block *block = NULL;
    pthread_mutex_lock(&bucket->lock);
    while (bucket->count && bucket->lists[bucket->count - 1].count == 0)
        drop_list(bucket, bucket->count - 1);
    if (bucket->count)
        block = remove_at(bucket, &bucket->lists[bucket->count - 1], 0);
    pthread_mutex_unlock(&bucket->lock);
    return block;
}

static tm_block *evict_largest(tm_exact *state)
{
    tm_block *block = NULL;
    for (unsigned i = TM_BUCKETS; i-- > 0 && !block;)
        if (tm_get(&state->buckets[i].blocks))
            block = evict_from(&state->buckets[i]);
    return block;
}

/* The size that was used least recently: bucket and size, or false when all is empty. */
static bool find_oldest(tm_exact *state, unsigned *bucket_found, size_t *size)
{
    uint64_t oldest = UINT64_MAX;
    for (unsigned i = 0; i < TM_BUCKETS; i++) {
        tm_bucket *bucket = &state->buckets[i];
        if (tm_get(&bucket->blocks) == 0)
            continue;
        pthread_mutex_lock(&bucket->lock);
        for (size_t k = 0; k < bucket->count; k++)
            if (bucket->lists[k].count && bucket->lists[k].used < oldest) {
                oldest = bucket->lists[k].used;
                *size = bucket->lists[k].size;
                *bucket_found = i;
            }
        pthread_mutex_unlock(&bucket->lock);
    }
    return oldest != UINT64_MAX;
}

static tm_block *evict_oldest(tm_exact *state)
{
    unsigned i;
    size_t size;
    tm_block *block = NULL;
    while (!block && find_oldest(state, &i, &size)) {
        tm_bucket *bucket = &state->buckets[i];
        pthread_mutex_lock(&bucket->lock);
        tm_list *list = list_of(bucket, size, false);
        if (list && list->count)
            block = remove_at(bucket, list, 0);
        pthread_mutex_unlock(&bucket->lock);
    }
    return block;
}

static tm_block *evict(void *state, tm_victim victim)
{
    return victim == TM_LARGEST ? evict_largest(state) : evict_oldest(state);
}

static size_t largest(void *opaque, unsigned bucket_index)
{
    tm_bucket *bucket = &((tm_exact *)opaque)->buckets[bucket_index];
    size_t found = 0;
    pthread_mutex_lock(&bucket->lock);
    for (size_t at = bucket->count; at-- > 0 && !found;)
        if (bucket->lists[at].count)
            found = bucket->lists[at].size;
    pthread_mutex_unlock(&bucket->lock);
    return found;
}

static void fork_lock(void *opaque)
{
    for (unsigned i = 0; i < TM_BUCKETS; i++)
        pthread_mutex_lock(&((tm_exact *)opaque)->buckets[i].lock);
}

static void fork_unlock(void *opaque)
{
    for (unsigned i = TM_BUCKETS; i-- > 0;)
        pthread_mutex_unlock(&((tm_exact *)opaque)->buckets[i].lock);
}

static const char *check_list(const tm_list *list, unsigned bucket)
{
    if (list->size == 0 || tm_bucket_of(list->size) != bucket)
        return "exact: a list is in the wrong bucket";
    if (list->first + list->count > list->capacity)
        return "exact: a list ends behind its room";
    for (size_t i = list->first; i < list->first + list->count; i++) {
        if (tm_phase(tm_get(&list->blocks[i]->state)) != TM_CACHED)
            return "exact: a listed block is not cached";
        if (tm_get(&list->blocks[i]->size) != list->size)
            return "exact: a listed block has another size";
    }
    return NULL;
}

static const char *check(void *opaque, size_t *blocks, size_t *bytes)
{
    const tm_exact *state = opaque;
    for (unsigned i = 0; i < TM_BUCKETS; i++) {
        const tm_bucket *bucket = &state->buckets[i];
        size_t inside = 0;
        for (size_t k = 0; k < bucket->count; k++) {
            const char *broken = check_list(&bucket->lists[k], i);
            if (broken)
                return broken;
            if (k && bucket->lists[k - 1].size >= bucket->lists[k].size)
                return "exact: lists are out of order";
            inside += bucket->lists[k].count;
            *bytes += bucket->lists[k].count * bucket->lists[k].size;
        }
        if (inside != tm_get(&bucket->blocks))
            return "exact: a bucket's count is wrong";
        *blocks += inside;
    }
    return NULL;
}

const tm_policy tmi_exact = {"exact", create,  destroy,   block_size,  keep, take,
                             evict,   largest, fork_lock, fork_unlock, check};

const tm_policy *tmi_policy_find(const char *name)
{
    static const tm_policy *const policies[] = {&tmi_exact};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (!name || strcmp(name, policies[i]->name) == 0)
            return policies[i];
    return NULL;
}
