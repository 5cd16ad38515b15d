/* resize.c - tm_reallocate: in place or moved by the system where the backend can, else by a copy. */
#include <string.h>

#include "manager.h"

static tm_block *track(tm_manager *manager, tm_range range)
{
    tm_reason reason;
    tm_block_info hit;
    return tmi_tables_insert(&manager->tables, range, range.base, range.size, &reason, &hit);
}

/* The old block left, the new one came: for the accounts a release and a new block without a device call. */
static void record(tm_manager *manager, size_t old_size, size_t new_size)
{
    bool direct = new_size > manager->options.threshold;
    int64_t less = -(int64_t)old_size, more = (int64_t)new_size;
    tm_event gone = {.live = less, .held = less, .flows = {.frees = 1, .device_releases = 1}};
    tm_event come = {.live = more,
                     .held = more,
                     .flows = {.live = new_size,
                               .held = new_size,
                               .allocations = 1,
                               .device_allocations = 1,
                               .direct = direct,
                               .misses = !direct}};
    tmi_accounts_record(&manager->accounts, tm_bucket_of(old_size), &gone);
    tmi_accounts_record(&manager->accounts, tm_bucket_of(new_size), &come);
}

static void hand_out(tm_manager *manager, tm_block *block, uint64_t state)
{
    unsigned direct = tm_get(&block->size) > manager->options.threshold ? TM_DIRECT : 0;
    tm_put_release(&block->state, (state & ~(uint64_t)TM_DIRECT) | direct);
}

/* pre: the thread claimed the block, whose state was this. Null: the block is live again, unchanged. */
static void *resize_range(tm_manager *manager, tm_block *block, uint64_t state, size_t size)
{
    tm_range range = tm_block_range(block);
    void *address = (void *)range.base;
    size_t old_size = range.size;
    tmi_tables_remove(&manager->tables, block); /* before the system may hand the old range out again (M9) */
    bool done = manager->backend.resize(manager->backend.context, &address, old_size, size, 1) == 0;
    if (done)
        range = (tm_range){(uintptr_t)address, size};
    tm_block *tracked = track(manager, range);
    if (!tracked) { /* no host memory for the record that was just given up: the range cannot be kept */
        tm_event event = {.live = -(int64_t)old_size,
                          .held = -(int64_t)old_size,
                          .flows = {.frees = 1, .device_releases = 1}};
        (void)tmi_device_release(manager, range.base, range.size, &event);
        tmi_accounts_record(&manager->accounts, tm_bucket_of(old_size), &event);
        (void)tmi_fail(TM_OUT_OF_MEMORY, TM_REASON_METADATA, range.base, size);
        return NULL;
    }
    hand_out(manager, tracked, state);
    if (done)
        record(manager, old_size, size);
    return done ? address : NULL;
}

static void *copy_over(tm_manager *manager, void *pointer, size_t old_size, size_t size)
{
    void *address = tm_allocate(manager, size);
    if (!address)
        return NULL;
    memcpy(address, pointer, old_size < size ? old_size : size);
    (void)tm_free(manager, pointer);
    return address;
}

static bool claim(tm_manager *manager, tm_block *block, uint64_t state)
{
    return tm_block_claim(block, state) && ((state & TM_DIRECT) || tmi_owns_alone(manager, block));
}

static void *reallocate_block(tm_manager *manager, tm_block *block, void *pointer, size_t size)
{
    uint64_t state = tm_get_acquire(&block->state);
    size_t old_size = tm_get(&block->size);
    if (tm_phase(state) != TM_LIVE || (state & TM_OWNED)) {
        tm_reason reason = tm_phase(state) == TM_LIVE ? TM_REASON_OWNED : TM_REASON_DOUBLE_FREE;
        (void)tmi_fail(TM_INVALID_FREE, reason, (uintptr_t)pointer, size);
        return NULL;
    }
    if (size == old_size)
        return pointer;
    bool whole = !block->padded;
    if (manager->backend.resize && whole && claim(manager, block, state)) {
        void *address = resize_range(manager, block, state, size);
        if (address)
            return address;
    }
    return copy_over(manager, pointer, old_size, size);
}

static void *reallocate_entered(tm_manager *manager, void *pointer, size_t size)
{
    tm_block *block = tmi_tables_find_locked(&manager->tables, (uintptr_t)pointer);
    if (block)
        return reallocate_block(manager, block, pointer, size);
    (void)tmi_fail(TM_INVALID_FREE, TM_REASON_DOUBLE_FREE, (uintptr_t)pointer, size);
    return NULL;
}

void *tm_reallocate(tm_manager *manager, void *pointer, size_t size)
{
    void *address = NULL;
    if (!pointer)
        return tm_allocate(manager, size);
    if (!(manager->backend.flags & TM_BACKEND_HOST_ACCESSIBLE)) {
        (void)tmi_fail(TM_INVALID_ARGUMENT, TM_REASON_NONE, (uintptr_t)pointer, size);
        return NULL;
    }
    if (size == 0) {
        (void)tm_free(manager, pointer);
        return NULL;
    }
    if (tmi_enter(manager))
        address = reallocate_entered(manager, pointer, size);
    tmi_leave(manager);
    return address;
}
