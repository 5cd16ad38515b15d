/* ladder.c - calls to the device: allocation with the out-of-memory ladder (M8), release, the clock around both. */
#include "manager.h"

typedef struct tm_request {
    tm_manager *manager;
    size_t ask, alignment; /* as the device is asked */
    uintptr_t base;
    tm_block *found; /* a cached block that a hook freed, instead of a new one */
    int native;
    tm_event *event;
} tm_request;

static bool try_device(tm_request *request)
{
    const tm_backend *backend = &request->manager->backend;
    void *address = NULL;
    uint64_t start = tmi_os_nanoseconds();
    request->native = backend->allocate(backend->context, request->ask, request->alignment, &address);
    request->event->flows.device_nanoseconds += tmi_os_nanoseconds() - start;
    request->base = request->native == 0 ? (uintptr_t)address : 0;
    request->event->flows.device_failures += request->base == 0;
    return request->base != 0;
}

/* Whether another try has a chance: not while the device itself counts fewer free bytes than are asked for. */
static bool could_succeed(const tm_request *request)
{
    const tm_backend *backend = &request->manager->backend;
    size_t free_bytes, total;
    if (!backend->memory_info || backend->memory_info(backend->context, &free_bytes, &total) != 0)
        return true;
    return free_bytes >= request->ask;
}

/* Give the cached blocks of a manager back, largest first, until the request succeeds. At most as many as there are
 * blocks now: else somebody who frees as fast as this gives back would keep it busy for ever. */
static bool reclaim_from(tm_manager *owner, tm_request *request)
{
    tm_statistics now;
    tmi_accounts_read(&owner->accounts, TM_WHOLE, &now);
    tmi_flush_caches(owner);
    for (uint64_t left = now.live_blocks + now.cached_blocks;
         left && tmi_release_one(owner, TM_LARGEST, true); left--)
        if (could_succeed(request) && try_device(request))
            return true;
    return false;
}

static bool reclaim_from_siblings(tm_request *request)
{
    tm_manager *sibling = NULL;
    while ((sibling = tmi_next_sibling(request->manager, sibling)) != NULL) {
        bool done = tmi_enter(sibling) && reclaim_from(sibling, request);
        tmi_leave(sibling);
        if (done) {
            tmi_give_back(sibling);
            return true;
        }
    }
    return false;
}

/* The hook runs outside of the call's in-flight mark, so that it may close managers. */
static bool ask_for_pressure(tm_manager *manager, size_t wanted, unsigned step)
{
    if (!manager->options.pressure)
        return false;
    tmi_leave(manager);
    bool freed = manager->options.pressure(manager->options.pressure_context, wanted, step) != 0;
    return tmi_enter(manager) && freed;
}

static bool any_way(tm_request *request)
{
    return try_device(request) || reclaim_from(request->manager, request) || reclaim_from_siblings(request);
}

/* post: true with request->base or request->found. */
static bool climb(tm_request *request, size_t size, size_t alignment)
{
    tm_manager *manager = request->manager;
    if (any_way(request))
        return true;
    for (unsigned step = 0; ask_for_pressure(manager, request->ask, step); step++) {
        tmi_flush_caches(manager);
        request->found = tmi_take_kept(manager, size, alignment);
        if (request->found || any_way(request))
            return true;
    }
    return false;
}

static tm_block *refuse(tm_request *request, tm_reason reason, size_t size, const tm_block_info *hit)
{
    tm_status status = reason == TM_REASON_METADATA ? TM_OUT_OF_MEMORY : TM_BACKEND_ERROR;
    bool give_back = reason == TM_REASON_MISALIGNED || reason == TM_REASON_METADATA;
    if (give_back)
        (void)tmi_device_release(request->manager, request->base, request->ask, request->event);
    (void)tmi_fail_at(status, reason, request->base, size, hit);
    return NULL;
}

static tm_block *track(tm_request *request, size_t size, size_t alignment)
{
    tm_manager *manager = request->manager;
    tm_reason reason;
    tm_block_info hit = {0};
    if (!tm_is_aligned(request->base, request->alignment))
        return refuse(request, TM_REASON_MISALIGNED, size, NULL);
    uintptr_t address = (request->base + alignment - 1) & ~(uintptr_t)(alignment - 1);
    tm_block *block = tmi_tables_insert(&manager->tables, (tm_range){request->base, request->ask}, address,
                                        size, &reason, &hit);
    if (!block)
        return refuse(request, reason, size, &hit);
    tm_event *event = request->event;
    event->held += (int64_t)request->ask;
    event->padding += (int64_t)(request->ask - size);
    event->flows.held += request->ask;
    event->flows.device_allocations++;
    return block;
}

tm_block *tmi_device_block(tm_manager *manager, size_t size, size_t alignment, tm_event *event, bool *reused)
{
    size_t least = manager->backend.min_alignment;
    bool natural = alignment <= least || (manager->backend.flags & TM_BACKEND_ALIGNS);
    size_t extra = natural ? 0 : alignment - least;
    tm_request request = {.manager = manager, .event = event, .alignment = natural ? alignment : least};
    if (request.alignment < least)
        request.alignment = least;
    if (size > SIZE_MAX - extra || size + extra > PTRDIFF_MAX) {
        (void)tmi_fail(TM_OUT_OF_MEMORY, TM_REASON_OVERFLOW, 0, size);
        return NULL;
    }
    request.ask = size + extra;
    if (!climb(&request, size, alignment)) {
        (void)tmi_fail(TM_OUT_OF_MEMORY, TM_REASON_REFUSED, 0, size);
        tmi_self.error.native = request.native;
        return NULL;
    }
    *reused = request.found != NULL;
    return *reused ? request.found : track(&request, size, alignment);
}

int tmi_device_release(tm_manager *manager, uintptr_t base, size_t size, tm_event *event)
{
    const tm_backend *backend = &manager->backend;
    uint64_t start = tmi_os_nanoseconds();
    int native = backend->release(backend->context, (void *)base, size);
    event->flows.device_nanoseconds += tmi_os_nanoseconds() - start;
    return native;
}
