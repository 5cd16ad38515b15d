/* layout.c - see layout.h. */
#include "layout.h"

#include <string.h>

/* Put a dimension where its stride belongs: descending. */
static void add_dimension(tm_layout *layout, size_t extent, size_t stride)
{
    unsigned at = layout->dimensions++;
    for (; at > 0 && layout->stride[at - 1] < stride; at--) {
        layout->stride[at] = layout->stride[at - 1];
        layout->extent[at] = layout->extent[at - 1];
    }
    layout->stride[at] = stride;
    layout->extent[at] = extent;
}

/* Merge what is dense: the innermost dimension into the piece, a dimension into the one below it. */
static void merge(tm_layout *layout)
{
    unsigned last = layout->dimensions;
    while (last > 0 && layout->stride[last - 1] == layout->piece)
        layout->piece *= layout->extent[--last];
    unsigned kept = 0;
    for (unsigned i = 0; i < last; i++) {
        bool dense = kept && layout->stride[kept - 1] == layout->stride[i] * layout->extent[i];
        layout->extent[kept - dense] = layout->extent[i] * (dense ? layout->extent[kept - 1] : 1);
        layout->stride[kept - dense] = layout->stride[i];
        kept += !dense;
    }
    layout->dimensions = kept;
}

void tmi_layout_make(tm_layout *layout, int dimensions, const ptrdiff_t *extents, const ptrdiff_t *strides,
                     size_t item)
{
    ptrdiff_t dense = (ptrdiff_t)item;
    layout->lowest = 0;
    layout->span = layout->piece = item;
    layout->dimensions = 0;
    for (int i = dimensions - 1; i >= 0; i--) {
        ptrdiff_t stride = strides ? strides[i] : dense;
        dense *= extents[i];
        if (extents[i] == 1 || stride == 0)
            continue;
        ptrdiff_t reach = stride * (extents[i] - 1);
        layout->lowest += reach < 0 ? reach : 0;
        layout->span += (size_t)(reach < 0 ? -reach : reach);
        add_dimension(layout, (size_t)extents[i], (size_t)(stride < 0 ? -stride : stride));
    }
    merge(layout);
}

size_t tmi_layout_pieces(const tm_layout *layout)
{
    size_t pieces = 1;
    for (unsigned i = 0; i < layout->dimensions; i++)
        pieces *= layout->extent[i];
    return pieces;
}

size_t tmi_layout_offset(const tm_layout *layout, size_t number)
{
    size_t offset = 0;
    for (unsigned i = layout->dimensions; i > 0; i--) {
        offset += number % layout->extent[i - 1] * layout->stride[i - 1];
        number /= layout->extent[i - 1];
    }
    return offset;
}

/* A row of pieces of a size that the compiler knows is a loop of plain moves. */
static inline void copy_row(char *to, const char *from, size_t count, size_t stride, size_t piece)
{
    for (size_t i = 0; i < count; i++, to += stride, from += stride)
        memcpy(to, from, piece);
}

static void copy_pieces(char *to, const char *from, size_t count, size_t stride, size_t piece)
{
    switch (piece) {
    case 1:
        copy_row(to, from, count, stride, 1);
        break;
    case 2:
        copy_row(to, from, count, stride, 2);
        break;
    case 4:
        copy_row(to, from, count, stride, 4);
        break;
    case 8:
        copy_row(to, from, count, stride, 8);
        break;
    case 16:
        copy_row(to, from, count, stride, 16);
        break;
    default:
        copy_row(to, from, count, stride, piece);
    }
}

static void copy_dimension(const tm_layout *layout, unsigned dimension, char *to, const char *from)
{
    size_t count = layout->extent[dimension], stride = layout->stride[dimension];
    if (dimension + 1 == layout->dimensions) {
        copy_pieces(to, from, count, stride, layout->piece);
        return;
    }
    for (size_t i = 0; i < count; i++, to += stride, from += stride)
        copy_dimension(layout, dimension + 1, to, from);
}

void tmi_layout_copy(const tm_layout *layout, void *to, const void *from)
{
    if (layout->dimensions == 0)
        memcpy(to, from, layout->piece);
    else
        copy_dimension(layout, 0, to, from);
}
