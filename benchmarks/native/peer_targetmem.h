/* targetmem over its host backend, every size managed. */
#include <targetmem.h>

static tm_manager *peer_manager;

static const char *peer_version(void) { return PEER_BUILD; }

static int peer_create(void)
{
    tm_options options = {.version = TM_ABI_VERSION, .threshold = TM_UNLIMITED, .cached_limit = TM_UNLIMITED};
    tm_status status = tm_manager_create(tm_host_backend(), &options, &peer_manager);
    if (status != TM_OK)
        fprintf(stderr, "targetmem: tm_manager_create failed with status %d\n", (int)status);
    return status != TM_OK;
}

static size_t peer_largest(void) { return 0; }
static inline void *peer_allocate(size_t size) { return tm_allocate(peer_manager, size); }
static inline void peer_free(void *pointer) { tm_free(peer_manager, pointer); }
static void peer_destroy(void) { tm_manager_destroy(peer_manager); }
