/* peer.h - what a peer of the comparison has to offer. Each peer_NAME.h defines these six, static inline,
 * so that a call costs the same to each: no function pointer, no wrapper left after inlining.
 *
 *   peer_version()          a printable version
 *   peer_create()           0, or a message on stderr and non-zero
 *   peer_largest()          the largest size in bytes that the peer caches; 0: no limit that matters here
 *   peer_allocate(size)     bytes; null when refused
 *   peer_free(pointer)
 *   peer_destroy()          pre: every block was freed
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef PEER_HEADER
#error "compile with -DPEER_HEADER='\"peer_NAME.h\"'"
#endif
#include PEER_HEADER

#endif
