/* mimalloc's own functions. Debian's library also replaces malloc for the whole process once linked,
 * which only this process sees: each peer has its own executable. */
#include <mimalloc.h>

static char peer_version_text[32];

static const char *peer_version(void)
{
    int version = mi_version(); /* 209 = 2.0.9 */
    snprintf(peer_version_text, sizeof peer_version_text, "%d.%d.%d", version / 100, version / 10 % 10,
             version % 10);
    return peer_version_text;
}
static int peer_create(void) { return 0; }
static size_t peer_largest(void) { return 0; }
static inline void *peer_allocate(size_t size) { return mi_malloc(size); }
static inline void peer_free(void *pointer) { mi_free(pointer); }
static void peer_destroy(void) {}
