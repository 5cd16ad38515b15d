/* present.c - see present.h. */
#include "present.h"

static tm_mapping *at(const tm_present *present, tm_place place)
{
    return tmi_ranges_at(&present->ranges, place);
}

/* The mapping after a floor that was or was not found, or null. */
static tm_mapping *behind(const tm_present *present, bool below, tm_place place)
{
    const tm_ranges *ranges = &present->ranges;
    bool more = below ? tmi_ranges_next(ranges, &place) : tmi_ranges_first(ranges, &place);
    return more ? at(present, place) : NULL;
}

tm_overlap tmi_present_find(const tm_present *present, uintptr_t host, size_t size, tm_mapping **mapping)
{
    tm_place place;
    bool below = tmi_ranges_floor(&present->ranges, host, &place);
    if (below) {
        tm_mapping *found = *mapping = at(present, place);
        if (host < found->end)
            return size <= found->end - host ? TM_CONTAINED : TM_EXTENDS_AFTER;
    }
    if (size == 0)
        return TM_ABSENT;
    tm_mapping *next = behind(present, below, place);
    if (!next || next->host - host >= size)
        return TM_ABSENT;
    *mapping = next;
    return TM_EXTENDS_BEFORE;
}

tm_mapping *tmi_present_at(const tm_present *present, uintptr_t host)
{
    tm_place place;
    if (!tmi_ranges_floor(&present->ranges, host, &place))
        return NULL;
    tm_mapping *found = at(present, place);
    return found->host == host ? found : NULL;
}

bool tmi_present_insert(tm_present *present, tm_mapping *mapping)
{
    if (!tmi_ranges_insert(&present->ranges, mapping->host, mapping))
        return false;
    present->count++;
    present->bytes += mapping->end - mapping->host;
    return true;
}

void tmi_present_remove(tm_present *present, tm_mapping *mapping)
{
    mapping->state = TM_GONE;
    tmi_ranges_remove(&present->ranges, mapping->host);
    present->count--;
    present->bytes -= mapping->end - mapping->host;
}

tm_mapping *tmi_present_next(const tm_present *present, uintptr_t from)
{
    tm_place place;
    bool below = tmi_ranges_floor(&present->ranges, from, &place);
    if (below && at(present, place)->host == from)
        return at(present, place);
    return behind(present, below, place);
}

void tmi_present_destroy(tm_present *present)
{
    tmi_ranges_destroy(&present->ranges);
    present->count = present->bytes = 0;
}

static tm_range range_of(const void *item)
{
    const tm_mapping *mapping = item;
    return (tm_range){mapping->host, mapping->end - mapping->host};
}

static const char *check_mapping(const tm_mapping *mapping)
{
    if (mapping->end <= mapping->host)
        return "present: a mapping is empty";
    if (mapping->state == TM_GONE)
        return "present: a mapping in the table is marked as gone";
    if (mapping->state == TM_LEAVING ? tm_mapping_counted(mapping) : !tm_mapping_counted(mapping))
        return "present: a mapping's counts and state disagree";
    return NULL;
}

const char *tmi_present_check(const tm_present *present)
{
    const char *broken = tmi_ranges_check(&present->ranges, range_of);
    size_t count = 0, bytes = 0;
    for (tm_mapping *mapping = tmi_present_next(present, 0); mapping && !broken;
         mapping = tmi_present_next(present, mapping->end)) {
        broken = check_mapping(mapping);
        count++;
        bytes += mapping->end - mapping->host;
    }
    if (!broken && (count != present->count || bytes != present->bytes))
        broken = "present: the count or the bytes are wrong";
    return broken;
}
