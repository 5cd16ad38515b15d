/* threads.c - threads, caches and managers finding each other; thread exit and fork. */
#include <sched.h>

#include "manager.h"

TM_TLS _Thread_local tm_thread tmi_self;

#define NO_MANAGER ((tm_manager *)1) /* equal to no manager, not even to a null one */

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER; /* the outermost lock */
static tm_manager *managers;
static tm_thread *threads;
static pthread_key_t exit_key;

/* --- caches ------------------------------------------------------------------------------------- */

static tm_cache *find_own(const tm_manager *manager)
{
    tm_cache *cache = tmi_self.caches;
    while (cache && cache->manager != manager)
        cache = cache->sibling;
    return cache;
}

/* locks: registry. */
static void register_thread(void)
{
    if (tmi_self.registered)
        return;
    tmi_self.registered = true;
    tmi_self.next = threads;
    threads = &tmi_self;
    (void)pthread_setspecific(exit_key, &tmi_self);
}

/* locks: registry. */
static tm_cache *adopt(tm_manager *manager)
{
    tm_cache *cache = tmi_cache_new();
    if (!cache)
        return NULL;
    register_thread();
    cache->manager = manager;
    cache->thread = &tmi_self;
    tm_put(&cache->live_word, (uint64_t)tmi_self.tag << TM_TAG_SHIFT | TM_LIVE);
    cache->sibling = tmi_self.caches;
    tmi_self.caches = cache;
    pthread_mutex_lock(&manager->caches_lock);
    tmi_accounts_join(&manager->accounts, cache);
    pthread_mutex_unlock(&manager->caches_lock);
    return cache;
}

tm_cache *tmi_cache_of(tm_manager *manager)
{
    tm_cache *cache = tm_cache_mine(manager);
    if (cache || tmi_self.ending || (manager->options.flags & TM_OPTION_NO_THREAD_CACHE) ||
        !tmi_os_has_fence())
        return cache;
    pthread_mutex_lock(&registry);
    cache = find_own(manager);
    if (!cache)
        cache = adopt(manager);
    if (cache) {
        tmi_self.recent_cache = cache;
        tm_put(&tmi_self.recent_manager, manager);
    }
    pthread_mutex_unlock(&registry);
    return cache;
}

static void wait_for_windows(tm_cache *cache)
{
    for (unsigned i = 0; i < TM_SLOTS; i++)
        while (tm_get_acquire(&cache->slots[i].sequence) & 1)
            (void)sched_yield();
}

void tmi_grace(tm_manager *manager)
{
    pthread_mutex_lock(&manager->caches_lock);
    bool fenced = false;
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next) {
        if (cache->thread == &tmi_self)
            continue;
        if (!fenced)
            tmi_os_heavy_fence();
        fenced = true;
        wait_for_windows(cache);
    }
    pthread_mutex_unlock(&manager->caches_lock);
}

void tmi_flush_caches(tm_manager *manager)
{
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next) {
        tmi_cache_lock(cache);
        for (unsigned i = 0; i < TM_SLOTS; i++)
            (void)tmi_flush_slot(manager, cache, &cache->slots[i], 0);
        tmi_cache_unlock(cache);
    }
    pthread_mutex_unlock(&manager->caches_lock);
}

void tmi_close_caches(tm_manager *manager)
{
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next) {
        tmi_cache_lock(cache);
        for (unsigned i = 0; i < TM_SLOTS; i++) {
            (void)tmi_flush_slot(manager, cache, &cache->slots[i], 0);
            tmi_slot_retire(manager, cache, &cache->slots[i]);
        }
        tmi_cache_unlock(cache);
    }
    pthread_mutex_unlock(&manager->caches_lock);
}

static bool may_have(const tm_slot *slot, size_t size)
{
    return tm_get(&slot->size) == size && tm_get(&slot->top);
}

static bool steal_from(tm_manager *manager, tm_cache *cache, size_t size)
{
    tm_slot *slot = tm_slot_of(cache, size);
    tmi_cache_lock(cache);
    uint32_t top = tm_get(&slot->top);
    bool stolen = tmi_slot_size(slot) == size && top > 0;
    if (stolen)
        (void)tmi_flush_slot(manager, cache, slot, top / 2);
    tmi_cache_unlock(cache);
    return stolen;
}

bool tmi_steal(tm_manager *manager, size_t size)
{
    bool stolen = false;
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache && !stolen; cache = cache->next)
        if (may_have(tm_slot_of(cache, size), size))
            stolen = steal_from(manager, cache, size);
    pthread_mutex_unlock(&manager->caches_lock);
    return stolen;
}

/* Empty a cache whose thread is gone; false: it must stay in the list, where others can take from it. */
static bool empty(tm_manager *manager, tm_cache *cache)
{
    bool done = true;
    tmi_cache_lock(cache);
    for (unsigned i = 0; i < TM_SLOTS; i++)
        done = tmi_flush_slot(manager, cache, &cache->slots[i], 0) && done;
    for (unsigned i = 0; done && i < TM_SLOTS; i++)
        tmi_slot_retire(manager, cache, &cache->slots[i]);
    tmi_cache_unlock(cache);
    return done;
}

/* locks: registry. */
static void retire(tm_cache *cache)
{
    tm_manager *manager = cache->manager;
    pthread_mutex_lock(&manager->caches_lock);
    cache->thread = NULL;
    bool done = empty(manager, cache);
    if (done)
        tmi_accounts_leave(&manager->accounts, cache);
    pthread_mutex_unlock(&manager->caches_lock);
    if (done)
        tmi_cache_recycle(cache);
}

/* locks: registry. */
static void forget_thread(const tm_thread *thread)
{
    tm_thread **link = &threads;
    while (*link && *link != thread)
        link = &(*link)->next;
    if (*link)
        *link = thread->next;
}

/* Runs as the thread ends. What it allocates or frees even later, in a destructor of its own, goes without a cache:
 * nothing tells of its real end, when the memory of tmi_self goes. */
static void on_thread_exit(void *thread)
{
    (void)thread;
    pthread_mutex_lock(&registry);
    tm_put(&tmi_self.recent_manager, NO_MANAGER);
    for (tm_cache *cache = tmi_self.caches, *next; cache; cache = next) {
        next = cache->sibling;
        retire(cache);
    }
    tmi_self.caches = NULL;
    forget_thread(&tmi_self);
    tmi_self.registered = false;
    tmi_self.ending = true;
    pthread_mutex_unlock(&registry);
}

/* --- managers ----------------------------------------------------------------------------------- */

void tmi_register_manager(tm_manager *manager)
{
    pthread_mutex_lock(&registry);
    manager->users = 1;
    manager->next = managers;
    managers = manager;
    pthread_mutex_unlock(&registry);
}

/* locks: registry. The owner of a cache looks its list up under the same lock. */
static void detach(tm_cache *cache)
{
    tm_thread *thread = cache->thread;
    if (!thread)
        return;
    if (tm_get(&thread->recent_manager) == cache->manager)
        tm_put(&thread->recent_manager, NO_MANAGER);
    tm_cache **link = &thread->caches;
    while (*link != cache)
        link = &(*link)->sibling;
    *link = cache->sibling;
}

/* locks: registry. */
static void drop_caches(tm_manager *manager)
{
    tm_cache *cache;
    while ((cache = manager->accounts.caches) != NULL) {
        detach(cache);
        pthread_mutex_lock(&manager->caches_lock);
        tmi_accounts_leave(&manager->accounts, cache);
        pthread_mutex_unlock(&manager->caches_lock);
        for (unsigned i = 0; i < TM_SLOTS; i++)
            tm_put(&cache->slots[i].top, 0);
        tmi_cache_recycle(cache);
    }
}

/* locks: registry. */
static bool drop_user(tm_manager *manager)
{
    if (--manager->users)
        return false;
    drop_caches(manager);
    tm_manager **link = &managers;
    while (*link != manager)
        link = &(*link)->next;
    *link = manager->next;
    return true;
}

void tmi_unregister_manager(tm_manager *manager)
{
    pthread_mutex_lock(&registry);
    bool last = drop_user(manager);
    pthread_mutex_unlock(&registry);
    if (last)
        tmi_manager_dispose(manager);
}

void tmi_give_back(tm_manager *borrowed) { tmi_unregister_manager(borrowed); }

static bool is_sibling(const tm_manager *self, const tm_manager *other)
{
    return other != self && other->options.device && other->options.device == self->options.device &&
           !tm_get(&other->closed) && !tm_get(&other->forked);
}

tm_manager *tmi_next_sibling(tm_manager *self, tm_manager *previous)
{
    pthread_mutex_lock(&registry);
    tm_manager *next = previous ? previous->next : managers;
    while (next && !is_sibling(self, next))
        next = next->next;
    if (next)
        next->users++;
    pthread_mutex_unlock(&registry);
    if (previous)
        tmi_give_back(previous);
    return next;
}

uint32_t tm_set_tag(uint32_t tag)
{
    uint32_t former = tmi_self.tag;
    tmi_self.tag = tag;
    pthread_mutex_lock(&registry);
    for (tm_cache *cache = tmi_self.caches; cache; cache = cache->sibling)
        tm_put(&cache->live_word, (uint64_t)tag << TM_TAG_SHIFT | TM_LIVE);
    pthread_mutex_unlock(&registry);
    return former;
}

/* --- fork (M16) --------------------------------------------------------------------------------- */

static void lock_manager(tm_manager *manager)
{
    pthread_mutex_lock(&manager->caches_lock);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next)
        tmi_cache_lock(cache);
    manager->policy->fork_lock(manager->kept);
    pthread_mutex_lock(&manager->tables.lock);
    pthread_mutex_lock(&manager->accounts.lock);
}

static void unlock_manager(tm_manager *manager)
{
    pthread_mutex_unlock(&manager->accounts.lock);
    pthread_mutex_unlock(&manager->tables.lock);
    manager->policy->fork_unlock(manager->kept);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next)
        tmi_cache_unlock(cache);
    pthread_mutex_unlock(&manager->caches_lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&registry);
    for (tm_manager *manager = managers; manager; manager = manager->next)
        lock_manager(manager);
    tmi_cache_pool_lock();
}

static void after_fork(void)
{
    tmi_cache_pool_unlock();
    for (tm_manager *manager = managers; manager; manager = manager->next)
        unlock_manager(manager);
    pthread_mutex_unlock(&registry);
}

/* No slot serves anything any more, so that the hot path refuses as well. */
static void shut(tm_manager *manager)
{
    tm_put(&manager->forked, 1);
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next)
        for (unsigned i = 0; i < TM_SLOTS; i++)
            tm_put(&cache->slots[i].saved_size, 0);
}

/* The other threads are gone. Their caches stay in the lists without an owner, for others to take from. */
static void disown_others(tm_manager *manager)
{
    for (tm_cache *cache = manager->accounts.caches; cache; cache = cache->next)
        if (cache->thread != &tmi_self)
            cache->thread = NULL;
    tm_put(&manager->in_flight, 0);
    if (!(manager->backend.flags & TM_BACKEND_FORK_SAFE))
        shut(manager);
}

static void after_fork_in_child(void)
{
    tmi_os_start();
    threads = tmi_self.registered ? &tmi_self : NULL;
    tmi_self.next = NULL;
    for (tm_manager *manager = managers; manager; manager = manager->next)
        disown_others(manager);
    after_fork();
}

__attribute__((constructor)) static void start(void)
{
    tmi_os_start();
    (void)pthread_key_create(&exit_key, on_thread_exit);
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}
