/* arena.c - see arena.h. */
#include "arena.h"

#include <sys/mman.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONS 1
#endif
#endif

#if defined(POISONS)
#include <sanitizer/asan_interface.h>
#define hide(start, size) ASAN_POISON_MEMORY_REGION(start, size)
#define show(start, size) ASAN_UNPOISON_MEMORY_REGION(start, size)
#else
#define hide(start, size) ((void)(start), (void)(size))
#define show(start, size) ((void)(start), (void)(size))
#endif

#define PAGE ((size_t)4096)

void arena_init(arena *device, size_t bytes)
{
    *device = (arena){.units = bytes / ARENA_UNIT, .random = random_of(0xA12E7A)};
    pthread_mutex_init(&device->lock, NULL);
    device->memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(device->memory != MAP_FAILED, "%zu bytes", bytes);
    device->used = calloc(device->units, 1);
    device->sizes = calloc(device->units, sizeof *device->sizes);
    hide(device->memory, bytes);
}

void arena_destroy(arena *device)
{
    EXPECT(device->held == 0, "%zu bytes were not given back", device->held);
    show(device->memory, device->units * ARENA_UNIT);
    (void)munmap(device->memory, device->units * ARENA_UNIT);
    free(device->used);
    free(device->sizes);
    pthread_mutex_destroy(&device->lock);
}

static size_t units_of(size_t size) { return (size + ARENA_UNIT - 1) / ARENA_UNIT; }

/* The first unit of the lowest gap, or SIZE_MAX. */
static size_t find_gap(arena *device, size_t units, size_t alignment)
{
    size_t step = alignment > ARENA_UNIT ? alignment / ARENA_UNIT : 1;
    size_t at = device->first_gap;
    while (units <= device->units && at <= device->units - units) {
        size_t skew = ((uintptr_t)device->memory / ARENA_UNIT + at) & (step - 1);
        if (skew) {
            at += step - skew;
            continue;
        }
        const unsigned char *taken = memchr(device->used + at, 1, units);
        if (!taken)
            return at;
        at = (size_t)(taken - device->used) + 1;
    }
    return SIZE_MAX;
}

static void *take(arena *device, size_t size, size_t alignment)
{
    size_t units = units_of(size), at = find_gap(device, units, alignment);
    if (at == SIZE_MAX)
        return NULL;
    memset(device->used + at, 1, units);
    device->sizes[at] = size;
    while (device->first_gap < device->units && device->used[device->first_gap])
        device->first_gap++;
    device->held += size;
    device->allocations++;
    char *start = device->memory + at * ARENA_UNIT;
    show(start, size);
    return start;
}

/* A call that takes its time; how long is decided behind the lock, so that it depends on the order of calls only. */
static void dawdle(unsigned how)
{
    const struct timespec pause = {.tv_nsec = 20000};
    if (how == 0)
        (void)nanosleep(&pause, NULL);
    else if (how < 4)
        (void)sched_yield();
}

static unsigned draw_dawdle(arena *device)
{
    return random_percent(&device->random, device->dawdle_percent)
               ? (unsigned)random_below(&device->random, 4)
               : 9;
}

static int allocate(void *context, size_t size, size_t alignment, void **address)
{
    arena *device = context;
    EXPECT(size > 0 && alignment >= ARENA_UNIT, "%zu bytes, alignment %zu", size, alignment);
    pthread_mutex_lock(&device->lock);
    unsigned how = draw_dawdle(device);
    bool refuse = random_percent(&device->random, device->refuse_percent);
    bool as_null = random_percent(&device->random, 50);
    *address = refuse ? NULL : take(device, size, alignment);
    device->refusals += *address == NULL;
    bool refused = *address == NULL;
    pthread_mutex_unlock(&device->lock);
    dawdle(how);
    return refused && !as_null ? ARENA_STATUS : 0;
}

static int release(void *context, void *address, size_t size)
{
    arena *device = context;
    pthread_mutex_lock(&device->lock);
    size_t at = (size_t)((char *)address - device->memory) / ARENA_UNIT;
    EXPECT(arena_contains(device, address), "a release of %p", address);
    EXPECT(device->sizes[at] == size && size, "%zu bytes, not %zu at unit %zu", device->sizes[at], size, at);
    device->sizes[at] = 0;
    memset(device->used + at, 0, units_of(size));
    device->first_gap = at < device->first_gap ? at : device->first_gap;
    device->held -= size;
    device->releases++;
    hide(device->memory + at * ARENA_UNIT, units_of(size) * ARENA_UNIT);
    unsigned how = draw_dawdle(device);
    pthread_mutex_unlock(&device->lock);
    dawdle(how);
    return 0;
}

static void clear(void *context, void *address, size_t size, int fresh)
{
    (void)context, (void)fresh;
    memset(address, 0, size);
}

static int memory_info(void *context, size_t *free_bytes, size_t *total_bytes)
{
    arena *device = context;
    if (!device->tells_free)
        return 1;
    pthread_mutex_lock(&device->lock);
    *total_bytes = device->units * ARENA_UNIT;
    *free_bytes = *total_bytes - device->held;
    pthread_mutex_unlock(&device->lock);
    return 0;
}

tm_backend arena_backend(arena *device, unsigned flags)
{
    return (tm_backend){.version = TM_ABI_VERSION,
                        .flags = flags | TM_BACKEND_HOST_ACCESSIBLE,
                        .min_alignment = ARENA_UNIT,
                        .context = device,
                        .allocate = allocate,
                        .release = release,
                        .clear = clear,
                        .memory_info = memory_info};
}

bool arena_contains(const arena *device, const void *address)
{
    uintptr_t at = (uintptr_t)address, start = (uintptr_t)device->memory;
    return at >= start && at < start + device->units * ARENA_UNIT && (at - start) % ARENA_UNIT == 0;
}

arena arena_look(arena *device)
{
    pthread_mutex_lock(&device->lock);
    arena copy = *device;
    pthread_mutex_unlock(&device->lock);
    return copy;
}

void arena_agrees(arena *device, tm_manager *manager)
{
    tm_statistics counted;
    tm_get_statistics(manager, &counted);
    arena now = arena_look(device);
    EXPECT(counted.held.now == now.held, "%llu held, the device says %zu",
           (unsigned long long)counted.held.now, now.held);
    EXPECT(counted.device_allocations == now.allocations, "%llu allocations, the device says %zu",
           (unsigned long long)counted.device_allocations, now.allocations);
    EXPECT(counted.device_releases == now.releases, "%llu releases, the device says %zu",
           (unsigned long long)counted.device_releases, now.releases);
}
