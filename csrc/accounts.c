/* accounts.c - see accounts.h. */
#include <string.h>

#include "cache.h"

void tmi_accounts_init(tm_accounts *accounts, size_t cached_limit)
{
    memset(accounts, 0, sizeof *accounts);
    pthread_mutex_init(&accounts->lock, NULL);
    accounts->cached_limit = cached_limit > INT64_MAX ? INT64_MAX : (int64_t)cached_limit;
}

/* Close every window of a row around what is live now: post: the bounds are exact when it is quiet. */
static void tighten(tm_accounts *accounts, unsigned at)
{
    tm_row *row = &accounts->rows[at];
    row->live_bound = row->live;
    row->cached_bound = row->cached;
    for (tm_cache *cache = accounts->caches; cache; cache = cache->next) {
        tm_cell *cell = &cache->cells[at];
        int64_t live = tm_get(&cell->live);
        tm_put(&cell->high, live);
        tm_put(&cell->low, live);
        row->live_bound += live;
        row->cached_bound += tm_get(&cell->stock) - live;
    }
}

static bool above_peak(const tm_row *row)
{
    return row->live_bound > row->live_peak || row->cached_bound > row->cached_peak;
}

static void raise_to(int64_t *peak, int64_t value)
{
    if (value > *peak)
        *peak = value;
}

static void settle(tm_accounts *accounts, unsigned at)
{
    tm_row *row = &accounts->rows[at];
    if (above_peak(row)) {
        tighten(accounts, at);
        raise_to(&row->live_peak, row->live_bound);
        raise_to(&row->cached_peak, row->cached_bound);
    }
    raise_to(&row->held_peak, row->held);
}

/* Widen the window around a cell's new live bytes, and by half of what the peaks leave as room, so that a
 * thread that goes up and down stays on the hot path. */
static void widen(tm_row *row, tm_cell *cell, int64_t limit)
{
    int64_t live = tm_get(&cell->live), high = tm_get(&cell->high), low = tm_get(&cell->low);
    if (live > high) {
        int64_t room = row->live_peak - (row->live_bound + live - high);
        int64_t wider = live + (room > 0 ? room / 2 : 0);
        row->live_bound += wider - high;
        tm_put(&cell->high, wider);
    }
    if (live < low) {
        int64_t most = row->cached_peak < limit ? row->cached_peak : limit;
        int64_t room = most - (row->cached_bound + low - live);
        int64_t wider = live - (room > 0 ? room / 2 : 0);
        row->cached_bound += low - wider;
        tm_put(&cell->low, wider);
    }
}

static void add_flows(tm_flows *sum, const tm_flows *more)
{
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)more;
    for (size_t i = 0; i < sizeof *sum / sizeof *to; i++)
        to[i] += from[i];
}

static void apply(tm_accounts *accounts, tm_cache *cache, unsigned at, const tm_event *event)
{
    tm_row *row = &accounts->rows[at];
    row->cached += event->cached;
    row->cached_bound += event->cached;
    row->held += event->held;
    row->padding += event->padding;
    add_flows(&row->flows, &event->flows);
    if (cache) {
        tm_cell *cell = &cache->cells[at];
        tm_put(&cell->stock, tm_get(&cell->stock) + event->stock);
        tm_put(&cell->live, tm_get(&cell->live) + event->live);
        row->cached_bound += event->stock;
        widen(row, cell, accounts->cached_limit);
    } else {
        row->live += event->live;
        row->live_bound += event->live;
    }
    settle(accounts, at);
}

/* How many more bytes the event makes cached: in the policy, and in the thread's cache (stock - live). */
static int64_t more_cached(const tm_cache *cache, const tm_event *event)
{
    return event->cached + (cache ? event->stock - event->live : 0);
}

static bool fits(tm_accounts *accounts, int64_t more)
{
    const tm_row *whole = &accounts->rows[TM_WHOLE];
    if (accounts->cached_limit == INT64_MAX || whole->cached_bound + more <= accounts->cached_limit)
        return true;
    tighten(accounts, TM_WHOLE);
    return whole->cached_bound + more <= accounts->cached_limit;
}

bool tmi_accounts_record(tm_accounts *accounts, tm_cache *cache, unsigned bucket, const tm_event *event,
                         bool limited)
{
    pthread_mutex_lock(&accounts->lock);
    bool good = !limited || fits(accounts, more_cached(cache, event));
    if (good) {
        apply(accounts, cache, bucket, event);
        apply(accounts, cache, TM_WHOLE, event);
    }
    pthread_mutex_unlock(&accounts->lock);
    return good;
}

void tmi_accounts_join(tm_accounts *accounts, tm_cache *cache)
{
    pthread_mutex_lock(&accounts->lock);
    cache->next = accounts->caches;
    accounts->caches = cache;
    pthread_mutex_unlock(&accounts->lock);
}

static void unlink_cache(tm_accounts *accounts, const tm_cache *cache)
{
    tm_cache **link = &accounts->caches;
    while (*link != cache)
        link = &(*link)->next;
    *link = cache->next;
}

void tmi_accounts_leave(tm_accounts *accounts, tm_cache *cache)
{
    pthread_mutex_lock(&accounts->lock);
    unlink_cache(accounts, cache);
    for (unsigned at = 0; at < TM_ROWS; at++) {
        tm_row *row = &accounts->rows[at];
        tm_cell *cell = &cache->cells[at];
        row->live += tm_get(&cell->live);
        row->cached += tm_get(&cell->stock) - tm_get(&cell->live);
        tighten(accounts, at);
    }
    pthread_mutex_unlock(&accounts->lock);
}

/* The hot calls of a slot that serves a size of this row. */
static void add_slot(const tm_slot *slot, unsigned row, tm_flows *flows)
{
    size_t size = tmi_slot_size(slot);
    uint64_t pops, pushes;
    if (size == 0 || (row != TM_WHOLE && row != tm_bucket_of(size)))
        return;
    tm_slot_counts(slot, &pops, &pushes);
    flows->allocations += pops;
    flows->hits += pops;
    flows->frees += pushes;
    flows->live += pops * size;
    flows->cached += pushes * size;
}

static void add_hot_flows(const tm_accounts *accounts, unsigned row, tm_flows *flows)
{
    for (const tm_cache *cache = accounts->caches; cache; cache = cache->next)
        for (unsigned i = 0; i < TM_SLOTS; i++)
            add_slot(&cache->slots[i], row, flows);
}

static uint64_t natural(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static void fill(const tm_row *row, const tm_flows *flows, tm_statistics *out)
{
    uint64_t live = natural(row->live_bound);
    *out = (tm_statistics){
        .requested = {live, natural(row->live_peak), flows->live}, /* policy exact: no padding inside a block */
        .live = {live, natural(row->live_peak), flows->live},
        .cached = {natural(row->cached_bound), natural(row->cached_peak), flows->cached},
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
        .live_blocks = flows->allocations - flows->frees,
        .cached_blocks = flows->device_allocations - flows->device_releases - (flows->allocations - flows->frees),
    };
}

void tmi_accounts_read(tm_accounts *accounts, unsigned at, tm_statistics *out)
{
    pthread_mutex_lock(&accounts->lock);
    tm_row *row = &accounts->rows[at];
    tm_flows flows = row->flows;
    add_hot_flows(accounts, at, &flows);
    tighten(accounts, at);
    settle(accounts, at);
    fill(row, &flows, out);
    pthread_mutex_unlock(&accounts->lock);
}

void tmi_accounts_reset_peaks(tm_accounts *accounts)
{
    pthread_mutex_lock(&accounts->lock);
    for (unsigned at = 0; at < TM_ROWS; at++) {
        tm_row *row = &accounts->rows[at];
        tighten(accounts, at);
        row->live_peak = row->live_bound;
        row->cached_peak = row->cached_bound;
        row->held_peak = row->held;
    }
    pthread_mutex_unlock(&accounts->lock);
}
