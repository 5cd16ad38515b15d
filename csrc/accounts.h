/* accounts.h - statistics that cost the hot path next to nothing and are exact when it is quiet (M14).
 *
 * Every thread cache counts its own net live bytes, per bucket and in total, in cells that only its owner
 * writes. A cell also carries a window [low, high]: while live stays inside it no peak can have changed,
 * so the hot path compares and goes on. A call that would leave the window goes the slow way and widens
 * it; only when all windows together could exceed a known peak are the cells summed up exactly.
 */
#ifndef TM_ACCOUNTS_H
#define TM_ACCOUNTS_H

#include <pthread.h>

#include "base.h"

#define TM_ROWS (TM_BUCKETS + 1u) /* one a bucket, and the whole manager */
#define TM_WHOLE TM_BUCKETS

typedef struct tm_cell {
    _Atomic int64_t live; /* bytes handed out minus bytes taken back by this thread; the owner writes */
    _Atomic int64_t high, low;
    _Atomic int64_t stock; /* bytes that entered the thread's hands minus those that left: stock - live is cached */
} tm_cell;

/* Sums that only rise. */
typedef struct tm_flows {
    uint64_t live, cached, held; /* bytes */
    uint64_t allocations, hits, misses, direct, frees;
    uint64_t device_allocations, device_releases, device_failures, device_nanoseconds;
    uint64_t reclaims, reclaimed_bytes, trims, trimmed_bytes;
} tm_flows;

typedef struct tm_row {
    int64_t live, cached;              /* bytes outside the cells */
    int64_t live_bound, cached_bound;  /* at most so many with the cells */
    int64_t held, padding;
    int64_t live_peak, cached_peak, held_peak;
    tm_flows flows;
} tm_row;

struct tm_cache;

typedef struct tm_accounts {
    pthread_mutex_t lock; /* the innermost of all locks */
    int64_t cached_limit;
    struct tm_cache *caches; /* all thread caches of the manager */
    tm_row rows[TM_ROWS];
} tm_accounts;

/* What one slow call changed, in bytes. live and stock belong to the cache that is given along, if any. */
typedef struct tm_event {
    int64_t live, stock, cached, held, padding;
    tm_flows flows;
} tm_event;

void tmi_accounts_init(tm_accounts *accounts, size_t cached_limit);

/* locks: these take the accounts' lock; the caller may hold any other. */

/* Apply an event to a bucket and the whole. limited: refuse it (false, no change) when more than the limit
 * would be cached. cache may be null. */
bool tmi_accounts_record(tm_accounts *accounts, struct tm_cache *cache, unsigned bucket, const tm_event *event,
                         bool limited);
void tmi_accounts_join(tm_accounts *accounts, struct tm_cache *cache);
/* pre: the cache is empty. Its cells become part of the rows, and it leaves the list. */
void tmi_accounts_leave(tm_accounts *accounts, struct tm_cache *cache);
void tmi_accounts_read(tm_accounts *accounts, unsigned row, tm_statistics *out);
void tmi_accounts_reset_peaks(tm_accounts *accounts);

#endif
