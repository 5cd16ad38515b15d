/* arena.h - a device in a fixed range of memory, which checks how it is used.
 *
 * It hands out the lowest gap that fits, so that an address comes back soon, with another size; what is not
 * handed out is poisoned under AddressSanitizer. It can refuse at random, as null or with a status, and dawdle
 * before and after its work to widen races. A release of what is not handed out, or with another size than was
 * asked for, ends the program.
 */
#ifndef ARENA_H
#define ARENA_H

#include "support.h"

#define ARENA_UNIT ((size_t)64) /* bytes: the alignment of every range */
#define ARENA_STATUS 77         /* its native status for a refusal */

typedef struct arena {
    pthread_mutex_t lock;
    char *memory;
    size_t units;
    unsigned char *used;     /* a byte a unit */
    size_t *sizes;           /* as asked, at a range's first unit; 0 elsewhere */
    size_t first_gap;        /* no unit below is free */
    unsigned refuse_percent; /* at random, although there is room */
    unsigned dawdle_percent;
    bool tells_free; /* memory_info works */
    random_t random; /* behind the lock */
    size_t held, allocations, releases, refusals;
} arena;

void arena_init(arena *device, size_t bytes);
void arena_destroy(arena *device); /* pre: everything was given back */
/* A backend over it: any alignment, host accessible. */
tm_backend arena_backend(arena *device, unsigned flags);
bool arena_contains(const arena *device, const void *address);
/* A consistent copy of the counts. */
arena arena_look(arena *device);
/* The device and a quiet manager that is alone on it agree on what is held. */
void arena_agrees(arena *device, tm_manager *manager);

#endif
