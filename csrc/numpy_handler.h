/* numpy_handler.h - serve NumPy's array data from managers, without NumPy's headers and without Python.h.
 *
 * NumPy asks for array data through a table of functions (NEP 49), which it finds in a capsule. This file
 * offers such a table. Requests of at least a pool's min_size come from the pool's manager; everything else
 * goes to the *original* table untouched, so that NumPy keeps its own cache of tiny blocks.
 *
 * Who frees a block is decided by its address, never by the size that NumPy tells (which may be wrong):
 * pooled blocks all start on a page, so most addresses of others are told apart by a single test.
 *
 * Threads: NumPy calls the table with the GIL held, and so must whoever calls the functions below. The
 * table's own state is atomic all the same: without a GIL only the capsule's way back is unsafe (see
 * tmi_numpy_when_drained).
 */
#ifndef TM_NUMPY_HANDLER_H
#define TM_NUMPY_HANDLER_H

#include "base.h"

/* As NumPy 1.22 laid it out. Version 1; a later version may only add functions at the end. */
typedef struct tm_numpy_table {
    char name[127];
    uint8_t version;
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t count, size_t size);
    void *(*realloc)(void *context, void *address, size_t size);
    void (*free)(void *context, void *address, size_t size);
} tm_numpy_table;

/* One manager over the host's memory that serves arrays. It is never closed: arrays may outlive everything. */
typedef struct tm_numpy_pool tm_numpy_pool;

/* Make a pool that serves requests of min_size bytes and more. pre: min_size >= 1. */
tm_status tmi_numpy_pool_create(const tm_options *options, size_t min_size, tm_numpy_pool **out);
tm_manager *tmi_numpy_pool_manager(const tm_numpy_pool *pool);
/* Blocks of this pool that arrays hold now. */
size_t tmi_numpy_pool_live(const tm_numpy_pool *pool);

/* The table to put into the capsule instead of `original`, whose name and version it takes over: code that
 * asks for the handler's name gets the answer that it gets without a pool.
 * pre: original stays valid for ever, is no table of ours, and is the same at each call. */
tm_numpy_table *tmi_numpy_table(const tm_numpy_table *original);
/* Serve new arrays from this pool, or (null) from the original table. The pool that served until now gives
 * its cached blocks back, and from then on each block as soon as it is freed. */
void tmi_numpy_serve(tm_numpy_pool *pool);
/* Blocks that arrays hold now, of all pools. While there are any, the table must stay in the capsule. */
size_t tmi_numpy_live(void);
/* Have set(capsule, original) called each time that no pool serves any more and no block is live: in
 * tmi_numpy_serve, or inside NumPy's free, both with the GIL held (set is PyCapsule_SetPointer). Never called on:
 * the table stays in the capsule for good. So it must be without a GIL, where another thread may have read the
 * table from the capsule and be about to allocate. */
void tmi_numpy_when_drained(int (*set)(void *capsule, void *table), void *capsule);

#endif
