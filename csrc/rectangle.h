/* rectangle.h - copies of an n-dimensional block between two arrays, each with its own shape.
 *
 * Axes with one element vanish and axes that touch in both arrays become one, so no more than 64 remain
 * whatever the number of dimensions: each of them at least doubles the bytes. locks: none.
 */
#ifndef TM_RECTANGLE_H
#define TM_RECTANGLE_H

#include "base.h"

#define TM_AXES 64u

typedef struct tm_axis {
    size_t count;
    size_t to, from; /* bytes from one element to the next, in each array */
} tm_axis;

typedef struct tm_rectangle {
    size_t piece;            /* bytes that lie together in both arrays; 0: there is nothing to copy */
    size_t pieces;           /* how many */
    size_t to, from;         /* bytes from the start of each array to the block */
    size_t to_end, from_end; /* and to the end of it */
    unsigned axes;
    tm_axis axis[TM_AXES]; /* the innermost first */
} tm_rectangle;

/* One side of a copy: where in an array of which shape the block lies, in elements, outermost first. */
typedef struct tm_side {
    const size_t *offsets, *dimensions;
} tm_side;

/* Null, or what is wrong: the block doesn't lie in one of the arrays, or an array has too many bytes.
 * pre: element > 0. */
const char *tmi_rectangle_make(tm_rectangle *rectangle, size_t element, size_t dimensions,
                               const size_t *volume, tm_side to, tm_side from);
/* Copy between the two arrays, which start at these addresses. pre: the blocks don't overlap. */
void tmi_rectangle_copy(const tm_rectangle *rectangle, void *to, const void *from);
/* Where one of the pieces lies, counted from the starts of the arrays. pre: number < pieces. */
void tmi_rectangle_piece(const tm_rectangle *rectangle, size_t number, size_t *to, size_t *from);

#endif
