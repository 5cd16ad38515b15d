/* accounts.h - statistics that cost the hot path nothing and are exact when it is quiet (M14).
 *
 * What is live and cached now, and how many calls there were, follows from the slots' stacks themselves (see
 * tm_slot_counts). Peaks need more: each slot has a floor and a ceiling, which the hot path compares its stack's
 * height with anyway, since a stack may be empty or full. A cell of the cache grants, per bucket and for the
 * whole, how many bytes its slots together may add to what is live (down to the floors) or cached (up to the
 * ceilings). While no slot leaves its bounds, no sum can have passed a known peak. Leaving them is a slow path:
 * slack is first taken from the thread's other slots, then from the accounts; and only when all grants together
 * could exceed a peak are they all closed around what is there, and the exact sum becomes the peak.
 */
#ifndef TM_ACCOUNTS_H
#define TM_ACCOUNTS_H

#include <pthread.h>

#include "base.h"

#define TM_ROWS (TM_BUCKETS + 1u) /* one a bucket, and the whole manager */
#define TM_WHOLE TM_BUCKETS

/* Granted to a cache, in bytes: changed under the accounts' lock, read by the owner without. */
typedef struct tm_cell {
    _Atomic int64_t live;   /* most of sum(size * (moved - floor)) over its slots */
    _Atomic int64_t cached; /* most of sum(size * ceiling) */
} tm_cell;

/* Sums that only rise. */
typedef struct tm_flows {
    uint64_t live, cached, held; /* bytes */
    uint64_t allocations, hits, misses, direct, frees;
    uint64_t device_allocations, device_releases, device_failures, device_nanoseconds;
    uint64_t reclaims, reclaimed_bytes, trims, trimmed_bytes;
} tm_flows;

typedef struct tm_row {
    int64_t live, cached;             /* bytes outside the slots */
    int64_t live_bound, cached_bound; /* the same plus all grants */
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

/* What one slow call changed, in bytes. */
typedef struct tm_event {
    int64_t live, cached, held, padding;
    tm_flows flows;
} tm_event;

void tmi_accounts_init(tm_accounts *accounts, size_t cached_limit);

/* locks: these take the accounts' lock; the caller may hold any other. */

void tmi_accounts_record(tm_accounts *accounts, unsigned bucket, const tm_event *event);
/* The same, unless more than the limit would be cached then: false, and no change. */
bool tmi_accounts_record_limited(tm_accounts *accounts, unsigned bucket, const tm_event *event);
struct tm_slot;
struct tm_block;
/* locks: the cache, too. Blocks counted as cached in the rows go into a slot (oldest first, from place at on), and
 * some come out of it: together with their accounts, so that nobody ever sees a block twice, or above the limit. */
void tmi_accounts_plug(tm_accounts *accounts, struct tm_cache *cache, struct tm_slot *slot, uint32_t at,
                       struct tm_block *const *blocks, uint32_t count);
void tmi_accounts_unplug(tm_accounts *accounts, struct tm_cache *cache, struct tm_slot *slot, uint32_t at,
                         struct tm_block **blocks, uint32_t count);
/* Count what an empty slot of the cache counted, now that it serves no size any more. locks: the cache, too. */
void tmi_accounts_retire(tm_accounts *accounts, struct tm_cache *cache, unsigned bucket,
                         const tm_event *event);
/* Owner: lower the slots' ceilings to what is there, and give the room back under the limit. locks: the cache, too. */
void tmi_accounts_yield(tm_accounts *accounts, struct tm_cache *cache);
/* Owner: grant room for a block of this size that it is just allocating, or freeing; and, as far as that passes no
 * peak and not the limit, for some more live and cached bytes. */
void tmi_accounts_grant(tm_accounts *accounts, struct tm_cache *cache, unsigned bucket, size_t size,
                        bool freed);
void tmi_accounts_join(tm_accounts *accounts, struct tm_cache *cache);
/* pre: no slot of the cache is in use. */
void tmi_accounts_leave(tm_accounts *accounts, struct tm_cache *cache);
void tmi_accounts_read(tm_accounts *accounts, unsigned row, tm_statistics *out);
void tmi_accounts_reset_peaks(tm_accounts *accounts);

#endif
