/* present.h - the present table of one device: which ranges of the host's memory are mapped, and where to.
 *
 * Only the bookkeeping: nothing is allocated on a device or copied in here. The ranges of a table never
 * overlap. Semantics: OpenMP 5.2, the map clause (5.8.3) and omp_target_associate_ptr (18.8.9).
 * locks: the caller's, for everything.
 */
#ifndef TM_PRESENT_H
#define TM_PRESENT_H

#include "ranges.h"

#define TM_INFINITE SIZE_MAX /* a count that never changes: the user keeps the target's memory */

typedef enum tm_mapping_state {
    TM_READY = 0,
    TM_ENTERING, /* its memory is being obtained, or its first copy is under way */
    TM_LEAVING,  /* nothing counts it any more; it is being copied back, or waits for its last user */
    TM_GONE      /* not in the table any more */
} tm_mapping_state;

/* One mapped range of host memory. The first member of what the binding keeps for it. */
typedef struct tm_mapping {
    uintptr_t host, end; /* the host's range [host, end) */
    uintptr_t target;    /* where host is on the device */
    size_t dynamic, hold;
    tm_mapping_state state;
    unsigned users;     /* constructs that work on it now: the last one removes it, if nothing counts it */
    uint64_t construct; /* the number of the construct that made it, or that let go of it last */
    uint64_t thread;    /* whose construct that was */
} tm_mapping;

typedef struct tm_present {
    tm_ranges ranges;
    size_t count, bytes; /* mappings, and the host bytes in them */
} tm_present;

typedef enum tm_overlap {
    TM_ABSENT,
    TM_CONTAINED,
    TM_EXTENDS_BEFORE, /* begins before a mapped range and reaches into it */
    TM_EXTENDS_AFTER   /* begins in a mapped range and reaches beyond its end */
} tm_overlap;

/* How [host, host + size) lies to the mapped ranges; *mapping is the one it meets, the lower one of several.
 * Ranges that touch don't meet. A size of 0 is contained where its address lies in a mapped range. */
tm_overlap tmi_present_find(const tm_present *present, uintptr_t host, size_t size, tm_mapping **mapping);
/* The mapping that begins exactly there, or null. */
tm_mapping *tmi_present_at(const tm_present *present, uintptr_t host);
/* pre: its range meets no mapping of the table. false: no host memory, nothing changed. */
bool tmi_present_insert(tm_present *present, tm_mapping *mapping);
/* pre: it is in. post: TM_GONE. The caller owns the mapping again. */
void tmi_present_remove(tm_present *present, tm_mapping *mapping);
/* The first mapping with host >= from, or null: for listing. */
tm_mapping *tmi_present_next(const tm_present *present, uintptr_t from);
/* Drop the table's own memory. pre: the mappings are the caller's. */
void tmi_present_destroy(tm_present *present);
/* Walk everything; null when all invariants hold, else what is broken. */
const char *tmi_present_check(const tm_present *present);

static inline size_t *tm_mapping_count(tm_mapping *mapping, bool hold)
{
    return hold ? &mapping->hold : &mapping->dynamic;
}

static inline bool tm_mapping_counted(const tm_mapping *mapping)
{
    return mapping->dynamic != 0 || mapping->hold != 0;
}

/* Add to a count; an infinite one stays. */
static inline void tm_mapping_add(tm_mapping *mapping, bool hold, size_t added)
{
    size_t *count = tm_mapping_count(mapping, hold);
    if (*count != TM_INFINITE)
        *count += added;
}

/* Take one from a count, or with all everything that is in it; gives how many that were: 0 for an infinite one. */
static inline size_t tm_mapping_take(tm_mapping *mapping, bool hold, bool all)
{
    size_t *count = tm_mapping_count(mapping, hold);
    if (*count == TM_INFINITE)
        return 0;
    size_t taken = all ? *count : *count != 0;
    *count -= taken;
    return taken;
}

#endif
