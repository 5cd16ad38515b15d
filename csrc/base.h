/* base.h - what every other file needs: attributes, atomics in short form, small arithmetic. */
#ifndef TM_BASE_H
#define TM_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "targetmem.h"

#define TM_LINE 64u /* bytes of a cache line */

#ifndef TM_STATISTICS
#define TM_STATISTICS 1 /* 0: a build without peaks, totals and clocks, to measure what they cost */
#endif

#define tm_likely(x) __builtin_expect(!!(x), 1)
#define tm_unlikely(x) __builtin_expect(!!(x), 0)

#define tm_get(p) atomic_load_explicit((p), memory_order_relaxed)
#define tm_put(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define tm_get_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define tm_put_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define tm_add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)

/* Spreads regular strides evenly (Fibonacci hashing); take the high bits. */
/* What every call goes through starts a cache line: placed by chance it may cost some per cent more. */
#define TM_HOT __attribute__((aligned(TM_LINE)))

static inline uint64_t tm_hash(uint64_t value) { return value * UINT64_C(0x9E3779B97F4A7C15); }

/* pre: size > 0. The bucket of a size: floor(log2(size)), over the whole range. */
static inline unsigned tm_bucket_of(size_t size) { return 63u - (unsigned)__builtin_clzll(size); }

static inline bool tm_is_power_of_two(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

static inline bool tm_is_aligned(uintptr_t address, size_t alignment)
{
    return (address & (alignment - 1)) == 0;
}

#endif
