/* The C library's malloc. Compile with -fno-builtin, else the compiler drops the pair. */
#include <gnu/libc-version.h>

static const char *peer_version(void) { return gnu_get_libc_version(); }
static int peer_create(void) { return 0; }
static size_t peer_largest(void) { return 0; }
static inline void *peer_allocate(size_t size) { return malloc(size); }
static inline void peer_free(void *pointer) { free(pointer); }
static void peer_destroy(void) {}
