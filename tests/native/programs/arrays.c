/* arrays.c - arrays as NumPy makes them: threads allocate, clear, resize, check, swap and free through
 * the table, while one of them has pools serve in turn, or none. Nothing may be freed by who didn't give it
 * (the address sanitizer sees that), lost, or changed; at the end no block is live and no pool holds memory. */
#include "numpy_handler.h"

#include "support.h"

#define THREADS 6u
#define STEPS 400u
#define PLACES 16u
#define POOLS 4u

typedef struct array_t {
    unsigned char *data;
    size_t size;
    unsigned char value;
} array_t;

static int context;
static _Atomic long original_blocks;
static tm_numpy_pool *pools[POOLS];
static const tm_numpy_table *table;
static array_t places[PLACES];
static pthread_mutex_t place_locks[PLACES];
static int restored;

/* --- the table that is there first: the C library, with a count -------------------------------------- */

static void *original_malloc(void *given, size_t size)
{
    EXPECT(given == &context, "another context");
    original_blocks++;
    return malloc(size);
}

static void *original_calloc(void *given, size_t count, size_t size)
{
    EXPECT(given == &context, "another context");
    original_blocks++;
    return calloc(count, size);
}

static void *original_realloc(void *given, void *address, size_t size)
{
    EXPECT(given == &context, "another context");
    return realloc(address, size);
}

static void original_free(void *given, void *address, size_t size)
{
    (void)size;
    EXPECT(given == &context, "another context");
    original_blocks--;
    free(address);
}

static const tm_numpy_table original = {.name = "default_allocator",
                                        .version = 1,
                                        .context = &context,
                                        .malloc = original_malloc,
                                        .calloc = original_calloc,
                                        .realloc = original_realloc,
                                        .free = original_free};

/* --- arrays ------------------------------------------------------------------------------------------- */

/* Mostly small, at times over the size from which huge pages are asked for. */
static size_t some_size(random_t *random)
{
    unsigned bits = random_percent(random, 4) ? 22 : 3 + (unsigned)random_below(random, 16);
    return ((size_t)1 << bits) + random_below(random, (size_t)1 << bits);
}

/* A big array is looked at here and there. */
static size_t stride_of(size_t size) { return size > 65536 ? 1021 : 1; }

static void expect_all(const unsigned char *data, size_t size, unsigned char value)
{
    for (size_t i = 0; i < size; i += stride_of(size))
        EXPECT(data[i] == value, "byte %zu of %zu is %u, not %u", i, size, data[i], value);
    EXPECT(data[size - 1] == value, "the last byte of %zu is %u, not %u", size, data[size - 1], value);
}

static array_t make(random_t *random)
{
    array_t array = {.size = some_size(random), .value = (unsigned char)(1 + random_below(random, 255))};
    bool zeroed = random_percent(random, 40);
    array.data =
        zeroed ? table->calloc(table->context, 1, array.size) : table->malloc(table->context, array.size);
    EXPECT(array.data != NULL, "%zu bytes", array.size);
    if (zeroed)
        expect_all(array.data, array.size, 0);
    memset(array.data, array.value, array.size);
    return array;
}

static void resize(random_t *random, array_t *array)
{
    size_t size = some_size(random);
    unsigned char *data = table->realloc(table->context, array->data, size);
    EXPECT(data != NULL, "%zu bytes", size);
    expect_all(data, array->size < size ? array->size : size, array->value);
    memset(data, array->value, size);
    array->data = data;
    array->size = size;
}

/* The size that free is told may be wrong. */
static void drop(random_t *random, array_t *array)
{
    if (!array->data)
        return;
    expect_all(array->data, array->size, array->value);
    table->free(table->context, array->data, random_percent(random, 50) ? array->size : 1);
}

static void swap(array_t *array, unsigned place)
{
    pthread_mutex_lock(&place_locks[place]);
    array_t other = places[place];
    places[place] = *array;
    *array = other;
    pthread_mutex_unlock(&place_locks[place]);
}

static void work(unsigned number)
{
    random_t random = random_of(number);
    for (unsigned step = 0; step < STEPS * test_scale / 100; step++) {
        array_t array = make(&random);
        if (random_percent(&random, 40))
            resize(&random, &array);
        swap(&array, (unsigned)random_below(&random, PLACES));
        drop(&random, &array);
        if (number == 0)
            tmi_numpy_serve(random_percent(&random, 20) ? NULL : pools[random_below(&random, POOLS)]);
    }
}

/* --- the whole ---------------------------------------------------------------------------------------- */

static void create_pools(void)
{
    static const size_t smallest[POOLS] = {1, 4096, 100000, (size_t)1 << 20};
    for (unsigned i = 0; i < POOLS; i++) {
        tm_options options = options_of(i == 1 ? 300000 : TM_UNLIMITED, (size_t)4 << (20 + i));
        options.flags = TM_OPTION_NO_THREAD_CACHE;
        EXPECT(tmi_numpy_pool_create(&options, smallest[i], &pools[i]) == TM_OK, "pool %u", i);
    }
}

static int put_back(void *capsule, void *found)
{
    EXPECT(capsule == &restored, "another capsule");
    EXPECT(found == (const void *)&original, "another table");
    restored++;
    return 0;
}

static void expect_nothing_left(void)
{
    EXPECT(tmi_numpy_live() == 0, "%zu blocks live", tmi_numpy_live());
    EXPECT(original_blocks == 0, "%ld blocks of the original", original_blocks);
    for (unsigned i = 0; i < POOLS; i++) {
        tm_statistics counted;
        tm_manager *manager = tmi_numpy_pool_manager(pools[i]);
        tm_get_statistics(manager, &counted);
        EXPECT(counted.held.now == 0, "pool %u holds %llu", i, (unsigned long long)counted.held.now);
        EXPECT(tmi_numpy_pool_live(pools[i]) == 0, "pool %u", i);
        EXPECT_VALID(manager);
    }
}

/* With the pools out of service the last free brings the original back, and no free before it. */
static void end_in_order(void)
{
    random_t random = random_of(1000);
    tmi_numpy_when_drained(put_back, &restored);
    tmi_numpy_serve(pools[0]);
    array_t last = make(&random);
    tmi_numpy_serve(NULL);
    for (unsigned i = 0; i < PLACES; i++)
        drop(&random, &places[i]);
    EXPECT(restored == 0, "restored %d times while an array is alive", restored);
    drop(&random, &last);
    EXPECT(restored == 1, "restored %d times", restored);
    tmi_numpy_serve(NULL);
    tmi_numpy_when_drained(NULL, NULL);
}

int main(int argc, char **argv)
{
    test_start(argc, argv);
    for (unsigned i = 0; i < PLACES; i++)
        pthread_mutex_init(&place_locks[i], NULL);
    table = tmi_numpy_table(&original);
    EXPECT(strcmp(table->name, original.name) == 0, "%s", table->name);
    create_pools();
    run_threads(THREADS, work);
    end_in_order();
    expect_nothing_left();
    return 0;
}
