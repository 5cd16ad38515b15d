/* lifetime.c - making, closing and destroying a manager (M11). */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "manager.h"

static bool options_are_valid(const tm_backend *backend, const tm_options *options)
{
    return backend && options && backend->version == TM_ABI_VERSION && options->version == TM_ABI_VERSION &&
           backend->allocate && backend->release && tm_is_power_of_two(backend->min_alignment) &&
           tmi_policy_find(options->policy);
}

static bool init(tm_manager *manager, const tm_backend *backend, const tm_options *options)
{
    manager->backend = *backend;
    manager->options = *options;
    manager->policy = tmi_policy_find(options->policy);
    manager->options.policy = manager->policy->name;
    pthread_mutex_init(&manager->caches_lock, NULL);
    tmi_accounts_init(&manager->accounts, options->cached_limit);
    manager->kept = manager->policy->create();
    return tmi_tables_init(&manager->tables) && manager->kept;
}

void tmi_manager_dispose(tm_manager *manager)
{
    if (manager->kept)
        manager->policy->destroy(manager->kept);
    tmi_tables_destroy(&manager->tables);
    pthread_mutex_destroy(&manager->accounts.lock);
    pthread_mutex_destroy(&manager->caches_lock);
    free(manager);
}

tm_status tm_manager_create(const tm_backend *backend, const tm_options *options, tm_manager **out)
{
    *out = NULL;
    if (!options_are_valid(backend, options))
        return tmi_fail(TM_INVALID_ARGUMENT, TM_REASON_NONE, 0, 0);
    tm_manager *manager = calloc(1, sizeof *manager);
    if (!manager)
        return tmi_fail(TM_OUT_OF_MEMORY, TM_REASON_METADATA, 0, sizeof *manager);
    if (!init(manager, backend, options)) {
        tmi_manager_dispose(manager);
        return tmi_fail(TM_OUT_OF_MEMORY, TM_REASON_METADATA, 0, sizeof *manager);
    }
    tmi_register_manager(manager);
    *out = manager;
    return TM_OK;
}

static void wait_until_quiet(tm_manager *manager)
{
    const struct timespec pause = {.tv_nsec = 50000};
    while (atomic_load(&manager->in_flight) > 0)
        (void)nanosleep(&pause, NULL);
}

/* Live blocks go too, unless they may stay valid for ever. */
static void release_live(tm_manager *manager)
{
    tm_block *block;
    while ((block = tmi_tables_any(&manager->tables)) != NULL) {
        size_t size = tm_get(&block->size);
        tm_event event = {.live = -(int64_t)size, .flows = {.frees = 1}};
        tm_put(&block->state, TM_UNUSED);
        (void)tmi_release_block(manager, block, &event);
        tmi_accounts_record(&manager->accounts, tm_bucket_of(size), &event);
    }
}

tm_status tm_manager_close(tm_manager *manager)
{
    if (atomic_exchange(&manager->closed, 1))
        return TM_OK;
    wait_until_quiet(manager);
    if (tm_get(&manager->forked))
        return TM_OK;
    tmi_close_caches(manager);
    while (tmi_release_one(manager, TM_LARGEST, false)) {
    }
    if (!(manager->backend.flags & TM_BACKEND_IMMORTAL))
        release_live(manager);
    return TM_OK;
}

void tm_manager_destroy(tm_manager *manager)
{
    if (!manager)
        return;
    (void)tm_manager_close(manager);
    tmi_unregister_manager(manager);
}
