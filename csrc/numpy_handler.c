/* numpy_handler.c - see numpy_handler.h. */
#include "numpy_handler.h"

#include <stdlib.h>
#include <string.h>

#define PAGE ((size_t)4096)
#define MAPPED ((size_t)64 << 10)                    /* the host maps blocks from here on */
#define SMALL ((size_t)32 << 10)                     /* too little to give memory back for */
#define CLASS_BITS 2                                 /* four classes of sizes between powers of two */
#define LARGEST_RECYCLED (((size_t)32 << 20) - PAGE) /* the GNU C library never recycles more at once */

struct tm_numpy_pool {
    tm_manager *manager;
    size_t min_size;
    _Atomic size_t live;
    tm_numpy_pool *next; /* set before the pool is published, then constant */
};

static struct {
    tm_numpy_table table;
    tm_numpy_table plain; /* a copy of the original, to be called without a detour */
    const tm_numpy_table *original;
    tm_numpy_pool *_Atomic serving;
    _Atomic size_t smallest;      /* of the sizes that the serving pool takes; no pool: more than any size */
    _Atomic size_t small;         /* smaller sizes are NumPy's, without a second look */
    tm_numpy_pool *_Atomic pools; /* all that ever were: few, one for each set of settings */
    _Atomic size_t live;
    _Atomic uintptr_t lowest, highest; /* of the addresses that pools ever gave */
    int (*set)(void *capsule, void *table);
    void *capsule;
} handler = {.smallest = SIZE_MAX, .lowest = UINTPTR_MAX};

/* --- one pool ------------------------------------------------------------------------------------ */

/* Sizes that are close share blocks. What is added at the end of an array is not touched, and so costs
 * addresses rather than memory; without it a program whose sizes vary would meet new memory each time, which
 * costs more than the C library's own recycling. */
static size_t class_of(size_t size)
{
    size_t step = (size_t)1 << tm_bucket_of(size) >> CLASS_BITS;
    step = step < PAGE ? PAGE : step;
    return size > SIZE_MAX - step ? size : (size + step - 1) & ~(step - 1);
}

/* Below the size of a mapping a block starts on a page only if that is asked for. */
static void *allocate(tm_numpy_pool *pool, size_t size)
{
    size = class_of(size);
    return size < MAPPED ? tm_allocate_aligned(pool->manager, size, PAGE) : tm_allocate(pool->manager, size);
}

/* A reused block is cleared as far as the array reaches; a new mapping reads as zeros already. */
static void *allocate_zeroed(tm_numpy_pool *pool, size_t size)
{
    const tm_backend *host = tm_host_backend();
    bool mapped = class_of(size) >= MAPPED;
    void *address = mapped ? tm_try_allocate(pool->manager, class_of(size)) : allocate(pool, size);
    if (address)
        host->clear(host->context, address, size, 0);
    else if (mapped)
        address = tm_allocate_zeroed(pool->manager, class_of(size));
    return address;
}

static void pool_count(tm_numpy_pool *pool, size_t blocks)
{
    tm_add(&pool->live, blocks);
    tm_add(&handler.live, blocks);
}

/* The C library's heap usually lies far from all mappings: two comparisons spare its blocks a look-up.
 * post: whoever is handed this address passes may_be_pooled with it. */
static void widen(uintptr_t address)
{
    uintptr_t lowest = tm_get(&handler.lowest), highest = tm_get(&handler.highest);
    while (address < lowest && !atomic_compare_exchange_weak(&handler.lowest, &lowest, address))
        ;
    while (address > highest && !atomic_compare_exchange_weak(&handler.highest, &highest, address))
        ;
}

static bool may_be_pooled(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    return tm_is_aligned(at, PAGE) && at >= tm_get(&handler.lowest) && at <= tm_get(&handler.highest);
}

/* Null when the pool has no memory; the original table is asked then. */
static __attribute__((noinline)) void *pool_take(size_t size, void *(*take)(tm_numpy_pool *pool, size_t size))
{
    tm_numpy_pool *pool = tm_get_acquire(&handler.serving);
    void *address = pool ? take(pool, size) : NULL;
    if (!address)
        return NULL;
    if (tm_unlikely(!tm_is_aligned((uintptr_t)address, PAGE))) {
        (void)tm_free(pool->manager, address); /* its address would not tell whose it is */
        return NULL;
    }
    widen((uintptr_t)address);
    pool_count(pool, 1);
    return address;
}

/* The caller holds the block, so that the answer can't change while it is used. */
static bool pool_owns(const tm_numpy_pool *pool, const void *address, size_t *bytes)
{
    tm_block_info info;
    if (tm_get(&pool->live) == 0 || !tm_find_block(pool->manager, address, &info))
        return false;
    *bytes = info.size;
    return info.live && info.address == (uintptr_t)address;
}

/* pre: may_be_pooled. Null: the block is the original table's. Else *bytes is its size. */
static __attribute__((noinline)) tm_numpy_pool *owner_of(const void *address, size_t *bytes)
{
    tm_numpy_pool *pool = tm_get_acquire(&handler.pools);
    while (pool && !pool_owns(pool, address, bytes))
        pool = pool->next;
    return pool;
}

static void restore_when_drained(void)
{
    if (handler.set && !tm_get_acquire(&handler.serving) && tm_get(&handler.live) == 0)
        (void)handler.set(handler.capsule, (void *)handler.original);
}

/* pre: the block is the pool's. */
static void pool_give(tm_numpy_pool *pool, void *address)
{
    (void)tm_free(pool->manager, address);
    pool_count(pool, (size_t)-1);
    if (pool == tm_get_acquire(&handler.serving))
        return;
    (void)tm_trim(pool->manager, 0);
    restore_when_drained();
}

/* --- the table ----------------------------------------------------------------------------------- */

/* The C library has no memory: what the pool keeps may be just what it lacks. */
static bool gave_memory_back(void)
{
    tm_numpy_pool *pool = tm_get_acquire(&handler.serving);
    return pool && tm_trim(pool->manager, 0) > 0;
}

static __attribute__((noinline)) void *malloc_big(void *context, size_t size)
{
    void *address = size < tm_get(&handler.smallest) ? NULL : pool_take(size, allocate);
    if (!address)
        address = handler.plain.malloc(context, size);
    if (!address && gave_memory_back())
        address = handler.plain.malloc(context, size);
    return address;
}

static __attribute__((noinline)) void *calloc_big(void *context, size_t count, size_t size)
{
    size_t bytes;
    bool served = !__builtin_mul_overflow(count, size, &bytes) && bytes >= tm_get(&handler.smallest);
    void *address = served ? pool_take(bytes, allocate_zeroed) : NULL;
    if (!address)
        address = handler.plain.calloc(context, count, size);
    if (!address && gave_memory_back())
        address = handler.plain.calloc(context, count, size);
    return address;
}

/* Small arrays are what counts here: one comparison and a jump are all that they pay for the pool. */
static TM_HOT void *handler_malloc(void *context, size_t size)
{
    if (tm_likely(size < tm_get(&handler.small)))
        return handler.plain.malloc(context, size);
    return malloc_big(context, size);
}

static TM_HOT void *handler_calloc(void *context, size_t count, size_t size)
{
    size_t bytes;
    if (tm_likely(!__builtin_mul_overflow(count, size, &bytes) && bytes < tm_get(&handler.small)))
        return handler.plain.calloc(context, count, size);
    return calloc_big(context, count, size);
}

/* pre: the block is the pool's and has these bytes. The new one comes from where a new array would. */
static void *copy_over(tm_numpy_pool *pool, void *address, size_t bytes, size_t size)
{
    void *moved = handler_malloc(handler.plain.context, size);
    if (!moved)
        return NULL;
    memcpy(moved, address, bytes < size ? bytes : size);
    pool_give(pool, address);
    return moved;
}

/* A cached block that is there anyway, with a copy, or the system's resizing, without: the latter spends this
 * block, whose size the program will want again, and gives new pages that have to be touched. So copying pays,
 * as it does for the C library up to the size that it recycles, and beyond that when little is to be copied. */
static bool copying_pays(const tm_numpy_pool *pool, size_t bytes, size_t wanted)
{
    return pool == tm_get_acquire(&handler.serving) &&
           (bytes <= LARGEST_RECYCLED || wanted / 2 >= bytes || wanted <= bytes / 2);
}

/* pre: the block is the pool's and has these bytes; wanted, a class, is mapped. Null: nothing changed. */
static void *resize(tm_numpy_pool *pool, void *address, size_t bytes, size_t wanted)
{
    void *moved = copying_pays(pool, bytes, wanted) ? tm_try_allocate(pool->manager, wanted) : NULL;
    if (moved) {
        memcpy(moved, address, bytes < wanted ? bytes : wanted);
        (void)tm_free(pool->manager, address);
    } else {
        moved = tm_reallocate(pool->manager, address, wanted);
    }
    if (moved)
        widen((uintptr_t)moved);
    return moved;
}

/* pre: the block is the pool's and has these bytes. One that is filled by more than half stays as it is. */
static void *pool_resize(tm_numpy_pool *pool, void *address, size_t bytes, size_t size)
{
    if (size <= bytes && size > bytes / 2)
        return address;
    if (size < pool->min_size || class_of(size) < MAPPED)
        return copy_over(pool, address, bytes, size);
    return resize(pool, address, bytes, class_of(size));
}

/* An array that the original table serves stays with it, however far it grows. */
static void *handler_realloc(void *context, void *address, size_t size)
{
    size_t bytes;
    if (!address)
        return handler_malloc(context, size);
    tm_numpy_pool *pool = may_be_pooled(address) ? owner_of(address, &bytes) : NULL;
    return pool ? pool_resize(pool, address, bytes, size) : handler.plain.realloc(context, address, size);
}

static __attribute__((noinline)) void free_doubtful(void *context, void *address, size_t size)
{
    size_t bytes;
    tm_numpy_pool *pool = owner_of(address, &bytes);
    if (pool)
        pool_give(pool, address);
    else
        handler.plain.free(context, address, size);
}

static TM_HOT void handler_free(void *context, void *address, size_t size)
{
    if (tm_likely(!may_be_pooled(address)))
        handler.plain.free(context, address, size);
    else
        free_doubtful(context, address, size);
}

/* --- switching ----------------------------------------------------------------------------------- */

tm_status tmi_numpy_pool_create(const tm_options *options, size_t min_size, tm_numpy_pool **out)
{
    tm_numpy_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return TM_OUT_OF_MEMORY;
    tm_status status = tm_manager_create(tm_host_backend(), options, &pool->manager);
    if (status != TM_OK) {
        free(pool);
        return status;
    }
    pool->min_size = min_size;
    pool->next = tm_get(&handler.pools);
    tm_put_release(&handler.pools, pool);
    *out = pool;
    return TM_OK;
}

tm_manager *tmi_numpy_pool_manager(const tm_numpy_pool *pool) { return pool->manager; }

size_t tmi_numpy_pool_live(const tm_numpy_pool *pool) { return tm_get(&pool->live); }

size_t tmi_numpy_live(void) { return tm_get(&handler.live); }

tm_numpy_table *tmi_numpy_table(const tm_numpy_table *original)
{
    if (handler.original == original)
        return &handler.table;
    handler.original = original;
    handler.plain = *original;
    handler.table = (tm_numpy_table){.version = original->version,
                                     .context = original->context, /* handed on with each call */
                                     .malloc = handler_malloc,
                                     .calloc = handler_calloc,
                                     .realloc = handler_realloc,
                                     .free = handler_free};
    memcpy(handler.table.name, original->name, sizeof handler.table.name);
    return &handler.table;
}

/* The GNU C library keeps little freed memory until the first big block was freed, and then in proportion to
 * the biggest: in a NumPy program that is soon an array. The arrays that would teach it come from the pool now,
 * so teach it here, or everything that stays with it would meet new pages again and again. */
static void teach_the_c_library(void)
{
    void *volatile big = malloc(LARGEST_RECYCLED - PAGE);
    free(big);
}

void tmi_numpy_serve(tm_numpy_pool *pool)
{
    if (pool)
        teach_the_c_library();
    tm_numpy_pool *former = atomic_exchange(&handler.serving, pool);
    size_t smallest = pool ? pool->min_size : SIZE_MAX;
    tm_put(&handler.smallest, smallest);
    tm_put(&handler.small, smallest < SMALL ? smallest : SMALL);
    if (former && former != pool)
        (void)tm_trim(former->manager, 0);
    restore_when_drained();
}

void tmi_numpy_when_drained(int (*set)(void *capsule, void *table), void *capsule)
{
    handler.set = set;
    handler.capsule = capsule;
}
