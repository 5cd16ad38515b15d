/* LLVM's libomptarget on its host device 0. The target region makes the compiler register the host
 * plugin; without one there would be no device at all.
 * Compile with clang -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu. */
#include <omp.h>

#define PEER_DEVICE 0

static const char *peer_version(void) { return __clang_version__; }

static int peer_create(void)
{
    int touched = 0;
#pragma omp target map(tofrom : touched) device(PEER_DEVICE)
    touched = 1 + omp_is_initial_device();
    if (omp_get_num_devices() > PEER_DEVICE && touched == 1)
        return 0;
    fprintf(stderr, "llvm: no offload device (%d devices, region ran %s)\n", omp_get_num_devices(),
            touched == 1 ? "on the device" : "on the initial device");
    return 1;
}

static size_t peer_largest(void) { return 8192; } /* the memory manager's default threshold */
static inline void *peer_allocate(size_t size) { return omp_target_alloc(size, PEER_DEVICE); }
static inline void peer_free(void *pointer) { omp_target_free(pointer, PEER_DEVICE); }
static void peer_destroy(void) {}
