/* policy.h - the seam for policies: how free blocks are kept and found, behind the thread caches.
 *
 * A policy keeps its own locks (buckets), takes no other lock and calls nothing above it. It never owns a
 * record, it only refers to the table's. A new policy is one file that fills in this struct.
 */
#ifndef TM_POLICY_H
#define TM_POLICY_H

#include "block.h"

typedef enum tm_victim { TM_LARGEST, TM_OLDEST } tm_victim;

typedef struct tm_policy {
    const char *name;
    void *(*create)(void);        /* null: no host memory */
    void (*destroy)(void *state); /* pre: empty */
    /* The block bytes that serve a request; requests of equal block bytes are interchangeable. */
    size_t (*block_size)(size_t requested);
    /* Keep free blocks of one size, oldest first, as its newest; how many were kept before host memory ran out. */
    size_t (*keep)(void *state, tm_block *const *blocks, size_t count);
    /* Take the newest blocks that serve size block bytes at this alignment, newest first; how many there were. */
    size_t (*take)(void *state, size_t size, size_t alignment, tm_block **blocks, size_t count);
    /* The block to give back to the device next; null when there is none. */
    tm_block *(*evict)(void *state, tm_victim victim);
    size_t (*largest)(void *state, unsigned bucket); /* bytes of the bucket's largest block, or 0 */
    void (*fork_lock)(void *state);
    void (*fork_unlock)(void *state);
    const char *(*check)(void *state, size_t *blocks, size_t *bytes); /* adds what it holds */
} tm_policy;

extern const tm_policy tmi_exact;

const tm_policy *tmi_policy_find(const char *name); /* null: unknown */

#endif
