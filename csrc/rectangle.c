/* rectangle.c - see rectangle.h. */
#include "rectangle.h"

#include <string.h>

static const char TOO_LARGE[] = "an array has more bytes than there are addresses";

static inline bool multiply(size_t *product, size_t factor)
{
    return !__builtin_mul_overflow(*product, factor, product);
}

/* Add one more axis, further out than those before. */
static void add_axis(tm_rectangle *r, size_t count, size_t to, size_t from)
{
    tm_axis *inner = r->axes ? &r->axis[r->axes - 1] : NULL;
    if (!inner && to == r->piece && from == r->piece)
        r->piece *= count;
    else if (inner && to == inner->to * inner->count && from == inner->from * inner->count)
        inner->count *= count;
    else
        r->axis[r->axes++] = (tm_axis){count, to, from};
}

static bool lies_in(size_t offset, size_t count, size_t dimension)
{
    return offset <= dimension && count <= dimension - offset;
}

static void measure(tm_rectangle *r)
{
    r->pieces = 1;
    r->to_end = r->to + r->piece;
    r->from_end = r->from + r->piece;
    for (unsigned i = 0; i < r->axes; i++) {
        const tm_axis *axis = &r->axis[i];
        r->pieces *= axis->count;
        r->to_end += (axis->count - 1) * axis->to;
        r->from_end += (axis->count - 1) * axis->from;
    }
}

/* Whether something is to be copied; if so, the block lies in an array, so no product below overflows. */
static bool is_empty(size_t dimensions, const size_t *volume)
{
    for (size_t i = 0; i < dimensions; i++)
        if (!volume[i])
            return true;
    return false;
}

const char *tmi_rectangle_make(tm_rectangle *r, size_t element, size_t dimensions, const size_t *volume,
                               tm_side to, tm_side from)
{
    size_t to_stride = element, from_stride = element;
    bool empty = is_empty(dimensions, volume);
    *r = (tm_rectangle){.piece = element};
    for (size_t i = dimensions; i-- > 0;) {
        if (!lies_in(to.offsets[i], volume[i], to.dimensions[i]))
            return "the block doesn't lie in the destination's dimensions";
        if (!lies_in(from.offsets[i], volume[i], from.dimensions[i]))
            return "the block doesn't lie in the source's dimensions";
        if (empty)
            continue;
        r->to += to.offsets[i] * to_stride;
        r->from += from.offsets[i] * from_stride;
        if (volume[i] > 1)
            add_axis(r, volume[i], to_stride, from_stride);
        if (!multiply(&to_stride, to.dimensions[i]) || !multiply(&from_stride, from.dimensions[i]))
            return TOO_LARGE;
    }
    if (empty)
        r->piece = 0;
    else
        measure(r);
    return NULL;
}

static inline void copy_pieces(const tm_axis *axis, size_t piece, char *restrict to,
                               const char *restrict from)
{
    for (size_t i = 0; i < axis->count; i++)
        memcpy(to + i * axis->to, from + i * axis->from, piece);
}

/* A row of pieces. With a size that the compiler knows, a piece is a load and a store. */
static void copy_row(const tm_axis *axis, size_t piece, char *restrict to, const char *restrict from)
{
    if (piece == 1)
        copy_pieces(axis, 1, to, from);
    else if (piece == 2)
        copy_pieces(axis, 2, to, from);
    else if (piece == 4)
        copy_pieces(axis, 4, to, from);
    else if (piece == 8)
        copy_pieces(axis, 8, to, from);
    else if (piece == 16)
        copy_pieces(axis, 16, to, from);
    else
        copy_pieces(axis, piece, to, from);
}

static void copy_axes(const tm_rectangle *r, unsigned axes, char *to, const char *from)
{
    const tm_axis *axis = &r->axis[axes - 1];
    if (axes == 1) {
        copy_row(axis, r->piece, to, from);
        return;
    }
    for (size_t i = 0; i < axis->count; i++)
        copy_axes(r, axes - 1, to + i * axis->to, from + i * axis->from);
}

void tmi_rectangle_copy(const tm_rectangle *r, void *to, const void *from)
{
    char *to_block = (char *)to + r->to;
    const char *from_block = (const char *)from + r->from;
    if (!r->piece)
        return;
    if (r->axes)
        copy_axes(r, r->axes, to_block, from_block);
    else
        memcpy(to_block, from_block, r->piece);
}

void tmi_rectangle_piece(const tm_rectangle *r, size_t number, size_t *to, size_t *from)
{
    *to = r->to;
    *from = r->from;
    for (unsigned i = 0; i < r->axes; i++) {
        size_t place = number % r->axis[i].count;
        number /= r->axis[i].count;
        *to += place * r->axis[i].to;
        *from += place * r->axis[i].from;
    }
}
