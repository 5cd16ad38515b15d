/* Unified Memory Framework: disjoint pool over the OS provider, default parameters. */
#include <umf.h>
#include <umf/memory_pool.h>
#include <umf/memory_provider.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/providers/provider_os_memory.h>

static umf_memory_provider_handle_t peer_provider;
static umf_memory_pool_handle_t peer_pool;
static char peer_version_text[32];

static const char *peer_version(void)
{
    int version = umfGetCurrentVersion();
    snprintf(peer_version_text, sizeof peer_version_text, "%d.%d", UMF_MAJOR_VERSION(version),
             UMF_MINOR_VERSION(version));
    return peer_version_text;
}

static int peer_failed(const char *what, umf_result_t result)
{
    if (result != UMF_RESULT_SUCCESS)
        fprintf(stderr, "umf: %s failed with status %d\n", what, (int)result);
    return result != UMF_RESULT_SUCCESS;
}

static int peer_create(void)
{
    umf_os_memory_provider_params_handle_t os_params;
    umf_disjoint_pool_params_handle_t pool_params;
    if (peer_failed("umfOsMemoryProviderParamsCreate", umfOsMemoryProviderParamsCreate(&os_params)) ||
        peer_failed("umfMemoryProviderCreate",
                    umfMemoryProviderCreate(umfOsMemoryProviderOps(), os_params, &peer_provider)) ||
        peer_failed("umfDisjointPoolParamsCreate", umfDisjointPoolParamsCreate(&pool_params)) ||
        peer_failed("umfPoolCreate",
                    umfPoolCreate(umfDisjointPoolOps(), peer_provider, pool_params, 0, &peer_pool)))
        return 1;
    umfOsMemoryProviderParamsDestroy(os_params);
    umfDisjointPoolParamsDestroy(pool_params);
    return 0;
}

static size_t peer_largest(void) { return (size_t)2 << 20; } /* max_poolable_size's default */
static inline void *peer_allocate(size_t size) { return umfPoolMalloc(peer_pool, size); }
static inline void peer_free(void *pointer) { umfPoolFree(peer_pool, pointer); }

static void peer_destroy(void)
{
    umfPoolDestroy(peer_pool);
    umfMemoryProviderDestroy(peer_provider);
}
