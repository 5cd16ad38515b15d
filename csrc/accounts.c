/* accounts.c - see accounts.h. */
#include <string.h>

#include "cache.h"

typedef struct tm_sums {
    int64_t live, cached;
} tm_sums;

void tmi_accounts_init(tm_accounts *accounts, size_t cached_limit)
{
    memset(accounts, 0, sizeof *accounts);
    pthread_mutex_init(&accounts->lock, NULL);
    accounts->cached_limit = cached_limit > INT64_MAX ? INT64_MAX : (int64_t)cached_limit;
}

/* The next slot of a bit set, which it leaves; the caller checks that one is left. */
static tm_slot *next_slot(tm_cache *cache, uint64_t *bits)
{
    tm_slot *slot = &cache->slots[__builtin_ctzll(*bits)];
    *bits &= *bits - 1;
    return slot;
}

static bool in_row(size_t size, unsigned row)
{
    return size && (row == TM_WHOLE || tm_bucket_of(size) == row);
}

/* What the slots may come to within their floors and ceilings. */
static tm_sums sum_of_bounds(tm_cache *cache, unsigned row)
{
    tm_sums sums = {0, 0};
    for (uint64_t bits = tm_get(&cache->active); bits;) {
        const tm_slot *slot = next_slot(cache, &bits);
        size_t size = tmi_slot_size(slot);
        if (!in_row(size, row))
            continue;
        sums.live += (int64_t)size * (tm_get(&slot->moved) - tm_get(&slot->floor));
        sums.cached += (int64_t)size * tm_get(&slot->ceiling);
    }
    return sums;
}

/* What the slots come to now; they may not leave that any more without asking. limited: not even ceilings are
 * lowered, since the owner may be just passing them; the grants must stay above what is there. */
static tm_sums close_around_tops(tm_cache *cache, unsigned row, bool limited)
{
    tm_sums sums = {0, 0};
    for (uint64_t bits = tm_get(&cache->active); bits;) {
        tm_slot *slot = next_slot(cache, &bits);
        size_t size = tmi_slot_size(slot);
        uint32_t top = tm_get(&slot->top);
        if (!in_row(size, row))
            continue;
        sums.live += (int64_t)size * (tm_get(&slot->moved) - top);
        sums.cached += (int64_t)size * top;
        tm_put(&slot->floor, top);
        if (!limited)
            tm_put(&slot->ceiling, top);
    }
    return sums;
}

/* --- the owner, without a lock ------------------------------------------------------------------- */

#if TM_STATISTICS
typedef enum tm_side { LIVE, CACHED } tm_side;

/* Bytes that a row's grant leaves. */
static int64_t room_in(tm_cache *cache, unsigned row, tm_side side)
{
    tm_sums bounds = sum_of_bounds(cache, row);
    return side == LIVE ? tm_get(&cache->cells[row].live) - bounds.live
                        : tm_get(&cache->cells[row].cached) - bounds.cached;
}

static int64_t room(tm_cache *cache, unsigned bucket, tm_side side)
{
    int64_t one = room_in(cache, bucket, side), all = room_in(cache, TM_WHOLE, side);
    return one < all ? one : all;
}

static void close_slots(tm_cache *cache, tm_side side)
{
    for (uint64_t bits = tm_get(&cache->active); bits;) {
        tm_slot *slot = next_slot(cache, &bits);
        tm_put(side == LIVE ? &slot->floor : &slot->ceiling, tm_get(&slot->top));
    }
}

/* How many more blocks of a size may leave (LIVE) or enter (CACHED) the slot; at least one, or 0. */
static uint32_t allowance(tm_cache *cache, size_t size, tm_side side)
{
    unsigned bucket = tm_bucket_of(size);
    int64_t bytes = room(cache, bucket, side);
    if (bytes < (int64_t)size) { /* take the slack of the thread's other slots first */
        close_slots(cache, side);
        bytes = room(cache, bucket, side);
    }
    if (bytes < (int64_t)size)
        return 0;
    int64_t blocks = bytes / 2 / (int64_t)size;
    return blocks < 1 ? 1 : blocks > TM_SLOT_BLOCKS ? TM_SLOT_BLOCKS : (uint32_t)blocks;
}
#else
#define allowance(cache, size, side) ((void)(cache), (void)(size), TM_SLOT_BLOCKS)
#endif

bool tmi_cache_lower_floor(tm_cache *cache, size_t size)
{
    tm_slot *slot = tm_slot_of(cache, size);
    uint64_t sequence;
    if (!tm_slot_enter(slot, size, &sequence))
        return false;
    uint32_t top = tm_get(&slot->top), blocks = top ? allowance(cache, size, LIVE) : 0;
    if (blocks)
        tm_put(&slot->floor, blocks < top ? top - blocks : 0);
    tm_put_release(&slot->sequence, sequence);
    return blocks != 0;
}

bool tmi_cache_raise_ceiling(tm_cache *cache, size_t size)
{
    tm_slot *slot = tm_slot_of(cache, size);
    uint64_t sequence;
    if (!tm_slot_enter(slot, size, &sequence))
        return false;
    uint32_t top = tm_get(&slot->top), most = TM_SLOT_BLOCKS - top;
    uint32_t blocks = most ? allowance(cache, size, CACHED) : 0;
    if (blocks)
        tm_put(&slot->ceiling, top + (blocks < most ? blocks : most));
    tm_put_release(&slot->sequence, sequence);
    return blocks != 0;
}

/* --- under the lock -------------------------------------------------------------------------------- */

static bool is_limited(const tm_accounts *accounts) { return accounts->cached_limit != INT64_MAX; }

/* Close every grant of a row around what is there, which is given: exactly, when it is quiet. */
static tm_sums tighten(tm_accounts *accounts, unsigned at)
{
    tm_row *row = &accounts->rows[at];
    tm_sums all = {row->live, row->cached};
    row->live_bound = row->live;
    row->cached_bound = row->cached;
    for (tm_cache *cache = accounts->caches; cache; cache = cache->next) {
        tm_cell *cell = &cache->cells[at];
        tm_sums sums = close_around_tops(cache, at, is_limited(accounts));
        tm_put(&cell->live, sums.live);
        if (!is_limited(accounts))
            tm_put(&cell->cached, sums.cached);
        row->live_bound += sums.live;
        row->cached_bound += tm_get(&cell->cached);
        all.live += sums.live;
        all.cached += sums.cached;
    }
    return all;
}

static void raise_to(int64_t *peak, int64_t value)
{
    if (value > *peak)
        *peak = value;
}

static void settle(tm_accounts *accounts, unsigned at)
{
    tm_row *row = &accounts->rows[at];
    if (row->live_bound > row->live_peak || row->cached_bound > row->cached_peak) {
        tm_sums all = tighten(accounts, at);
        raise_to(&row->live_peak, all.live);
        raise_to(&row->cached_peak, all.cached);
    }
    raise_to(&row->held_peak, row->held);
}

static void add_flows(tm_flows *sum, const tm_flows *more)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)more;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void apply(tm_accounts *accounts, unsigned at, const tm_event *event)
{
    tm_row *row = &accounts->rows[at];
    row->live += event->live;
    row->live_bound += event->live;
    row->cached += event->cached;
    row->cached_bound += event->cached;
    row->held += event->held;
    row->padding += event->padding;
    add_flows(&row->flows, &event->flows);
    settle(accounts, at);
}

static bool fits(const tm_accounts *accounts, int64_t more)
{
    return !is_limited(accounts) || accounts->rows[TM_WHOLE].cached_bound + more <= accounts->cached_limit;
}

static bool record(tm_accounts *accounts, unsigned bucket, const tm_event *event, bool limited)
{
    pthread_mutex_lock(&accounts->lock);
    bool good = !limited || fits(accounts, event->cached);
    if (good) {
        apply(accounts, bucket, event);
        apply(accounts, TM_WHOLE, event);
    }
    pthread_mutex_unlock(&accounts->lock);
    return good;
}

void tmi_accounts_record(tm_accounts *accounts, unsigned bucket, const tm_event *event)
{
    (void)record(accounts, bucket, event, false);
}

bool tmi_accounts_record_limited(tm_accounts *accounts, unsigned bucket, const tm_event *event)
{
    return record(accounts, bucket, event, true);
}

/* What the slots may come to already must be granted. */
static void cover(tm_accounts *accounts, tm_cache *cache, unsigned at)
{
    tm_row *row = &accounts->rows[at];
    tm_cell *cell = &cache->cells[at];
    tm_sums bounds = sum_of_bounds(cache, at);
    if (bounds.live > tm_get(&cell->live)) {
        row->live_bound += bounds.live - tm_get(&cell->live);
        tm_put(&cell->live, bounds.live);
    }
    if (bounds.cached > tm_get(&cell->cached)) {
        row->cached_bound += bounds.cached - tm_get(&cell->cached);
        tm_put(&cell->cached, bounds.cached);
    }
    settle(accounts, at);
}

/* Without the slot its size's floors come to more than before, which must be granted: else a peak would be missed. */
void tmi_accounts_retire(tm_accounts *accounts, tm_cache *cache, unsigned bucket, const tm_event *event)
{
    pthread_mutex_lock(&accounts->lock);
    apply(accounts, bucket, event);
    apply(accounts, TM_WHOLE, event);
    cover(accounts, cache, bucket);
    cover(accounts, cache, TM_WHOLE);
    pthread_mutex_unlock(&accounts->lock);
}

static void plug_in(tm_accounts *accounts, tm_cache *cache, unsigned at, int64_t bytes)
{
    tm_row *row = &accounts->rows[at];
    row->cached -= bytes;
    row->cached_bound -= bytes;
    cover(accounts, cache, at);
}

void tmi_accounts_plug(tm_accounts *accounts, tm_cache *cache, tm_slot *slot, uint32_t at,
                       tm_block *const *blocks, uint32_t count)
{
    size_t size = tmi_slot_size(slot);
    int64_t bytes = (int64_t)size * count;
    pthread_mutex_lock(&accounts->lock);
    tmi_slot_insert(cache, slot, at, blocks, count);
    plug_in(accounts, cache, tm_bucket_of(size), bytes);
    plug_in(accounts, cache, TM_WHOLE, bytes);
    pthread_mutex_unlock(&accounts->lock);
}

/* The slot's ceiling has come down: no more than what the slots may come to needs a grant. */
static void plug_out(tm_accounts *accounts, tm_cache *cache, unsigned at, int64_t bytes)
{
    tm_row *row = &accounts->rows[at];
    tm_cell *cell = &cache->cells[at];
    int64_t needed = sum_of_bounds(cache, at).cached, granted = tm_get(&cell->cached);
    row->cached += bytes;
    row->cached_bound += bytes - (granted - needed);
    tm_put(&cell->cached, needed);
    settle(accounts, at);
}

void tmi_accounts_unplug(tm_accounts *accounts, tm_cache *cache, tm_slot *slot, uint32_t at,
                         tm_block **blocks, uint32_t count)
{
    size_t size = tmi_slot_size(slot);
    int64_t bytes = (int64_t)size * count;
    pthread_mutex_lock(&accounts->lock);
    tmi_slot_remove(slot, at, blocks, count);
    plug_out(accounts, cache, tm_bucket_of(size), bytes);
    plug_out(accounts, cache, TM_WHOLE, bytes);
    pthread_mutex_unlock(&accounts->lock);
}

/* What its other slots could still take is not cached yet: nothing shall go to the device on account of that. */
void tmi_accounts_yield(tm_accounts *accounts, tm_cache *cache)
{
    pthread_mutex_lock(&accounts->lock);
    for (uint64_t bits = tm_get(&cache->active); bits;) {
        tm_slot *slot = next_slot(cache, &bits);
        tm_put(&slot->ceiling, tm_get(&slot->top));
    }
    plug_out(accounts, cache, TM_WHOLE, 0);
    pthread_mutex_unlock(&accounts->lock);
}

/* How much of the room below a peak to grant at once: half of it, so that others find some as well. */
static int64_t share(int64_t free_room, size_t size)
{
    if (free_room < (int64_t)size)
        return 0;
    return free_room / 2 > (int64_t)size ? free_room / 2 : (int64_t)size;
}

static int64_t cached_room(const tm_accounts *accounts, const tm_row *row)
{
    int64_t most = row->cached_peak < accounts->cached_limit ? row->cached_peak : accounts->cached_limit;
    return most - row->cached_bound;
}

/* The block that the owner is just allocating (or freeing) counts from here on: together with what is live (cached)
 * in this moment it may be a new peak. Were it not counted, threads whose blocks together pass the peak would take
 * the room from each other at every call. */
static void extend(tm_accounts *accounts, tm_cache *cache, unsigned at, size_t size, bool freed)
{
    tm_row *row = &accounts->rows[at];
    tm_cell *cell = &cache->cells[at];
    int64_t free_room = freed ? cached_room(accounts, row) : row->live_peak - row->live_bound;
    if (free_room < (int64_t)size) {
        tm_sums all = tighten(accounts, at);
        if (!freed)
            raise_to(&row->live_peak, all.live + (int64_t)size);
        else if (all.cached + (int64_t)size <= accounts->cached_limit)
            raise_to(&row->cached_peak, all.cached + (int64_t)size);
    }
    int64_t live = share(row->live_peak - row->live_bound, size);
    int64_t cached = share(cached_room(accounts, row), size);
    tm_put(&cell->live, tm_get(&cell->live) + live);
    tm_put(&cell->cached, tm_get(&cell->cached) + cached);
    row->live_bound += live;
    row->cached_bound += cached;
}

void tmi_accounts_grant(tm_accounts *accounts, tm_cache *cache, unsigned bucket, size_t size, bool freed)
{
    pthread_mutex_lock(&accounts->lock);
    /* What may not be kept makes no peak, not even its bucket's. */
    if (!freed || fits(accounts, (int64_t)size)) {
        extend(accounts, cache, bucket, size, freed);
        extend(accounts, cache, TM_WHOLE, size, freed);
    }
    pthread_mutex_unlock(&accounts->lock);
}

void tmi_accounts_join(tm_accounts *accounts, tm_cache *cache)
{
    pthread_mutex_lock(&accounts->lock);
    cache->next = accounts->caches;
    accounts->caches = cache;
    pthread_mutex_unlock(&accounts->lock);
}

void tmi_accounts_leave(tm_accounts *accounts, tm_cache *cache)
{
    pthread_mutex_lock(&accounts->lock);
    tm_cache **link = &accounts->caches;
    while (*link != cache)
        link = &(*link)->next;
    *link = cache->next;
    for (unsigned at = 0; at < TM_ROWS; at++) {
        accounts->rows[at].live_bound -= tm_get(&cache->cells[at].live);
        accounts->rows[at].cached_bound -= tm_get(&cache->cells[at].cached);
    }
    pthread_mutex_unlock(&accounts->lock);
}

/* --- reading ---------------------------------------------------------------------------------------- */

static void add_hot_flows(tm_cache *cache, unsigned row, tm_flows *flows)
{
    for (uint64_t bits = tm_get(&cache->active); bits;) {
        const tm_slot *slot = next_slot(cache, &bits);
        size_t size = tmi_slot_size(slot);
        uint64_t pops, pushes;
        if (!in_row(size, row))
            continue;
        tm_slot_counts(slot, &pops, &pushes);
        flows->allocations += pops;
        flows->hits += pops;
        flows->frees += pushes;
        flows->live += pops * size;
        flows->cached += pushes * size;
    }
}

static uint64_t natural(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static void fill(const tm_row *row, const tm_flows *flows, tm_sums now, tm_statistics *out)
{
    tm_gauge live = {natural(now.live), natural(row->live_peak), flows->live};
    uint64_t live_blocks = flows->allocations - flows->frees;
    *out = (tm_statistics){
        .requested = live, /* policy exact: a block has just the bytes that were requested */
        .live = live,
        .cached = {natural(now.cached), natural(row->cached_peak), flows->cached},
        .held = {natural(row->held), natural(row->held_peak), flows->held},
        .allocations = flows->allocations,
        .hits = flows->hits,
        .misses = flows->misses,
        .frees = flows->frees,
        .direct = flows->direct,
        .device_allocations = flows->device_allocations,
        .device_releases = flows->device_releases,
        .device_failures = flows->device_failures,
        .device_nanoseconds = flows->device_nanoseconds,
        .reclaims = flows->reclaims,
        .reclaimed_bytes = flows->reclaimed_bytes,
        .trims = flows->trims,
        .trimmed_bytes = flows->trimmed_bytes,
        .padding_bytes = natural(row->padding),
        .live_blocks = live_blocks,
        .cached_blocks = flows->device_allocations - flows->device_releases - live_blocks,
    };
}

void tmi_accounts_read(tm_accounts *accounts, unsigned at, tm_statistics *out)
{
    pthread_mutex_lock(&accounts->lock);
    tm_row *row = &accounts->rows[at];
    tm_flows flows = row->flows;
    for (tm_cache *cache = accounts->caches; cache; cache = cache->next)
        add_hot_flows(cache, at, &flows);
    tm_sums now = tighten(accounts, at);
    raise_to(&row->live_peak, now.live);
    raise_to(&row->cached_peak, now.cached);
    fill(row, &flows, now, out);
    pthread_mutex_unlock(&accounts->lock);
}

void tmi_accounts_reset_peaks(tm_accounts *accounts)
{
    pthread_mutex_lock(&accounts->lock);
    for (unsigned at = 0; at < TM_ROWS; at++) {
        tm_row *row = &accounts->rows[at];
        tm_sums now = tighten(accounts, at);
        row->live_peak = now.live;
        row->cached_peak = now.cached;
        row->held_peak = row->held;
    }
    pthread_mutex_unlock(&accounts->lock);
}
