/* layout.h - where the elements of a strided view lie in its range, and copying them and nothing else.
 *
 * A view is reduced to nested loops over contiguous pieces: negative strides are turned around, dimensions
 * of extent 1 or stride 0 dropped, the rest sorted and merged where they are dense.
 */
#ifndef TM_LAYOUT_H
#define TM_LAYOUT_H

#include "base.h"

#define TM_DIMENSIONS 64 /* the most that the buffer protocol allows */

typedef struct tm_layout {
    ptrdiff_t lowest; /* of the range, from the view's first element on, in bytes: 0 or negative */
    size_t span;      /* bytes from the lowest to the end of the highest element */
    size_t piece;     /* bytes of one contiguous piece */
    unsigned dimensions;
    size_t extent[TM_DIMENSIONS], stride[TM_DIMENSIONS]; /* outermost first; strides in bytes */
} tm_layout;

/* pre: 0 <= dimensions <= TM_DIMENSIONS, all extents > 0, item > 0. strides null: C order. */
void tmi_layout_make(tm_layout *layout, int dimensions, const ptrdiff_t *extents, const ptrdiff_t *strides,
                     size_t item);
/* How many contiguous pieces there are: 1 when the view has no gaps. */
size_t tmi_layout_pieces(const tm_layout *layout);
/* The offset of a piece from the lowest element on. pre: number < pieces. */
size_t tmi_layout_offset(const tm_layout *layout, size_t number);
/* Copy the elements between two ranges that are both laid out so; from and to are their lowest bytes. */
void tmi_layout_copy(const tm_layout *layout, void *to, const void *from);

#endif
