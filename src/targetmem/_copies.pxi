# Part of _core.pyx: host memory that a caller names, and copies between host addresses.

cdef size_t _QUIET_COPY = 65536  # bytes: below, letting go of the GIL costs more than the copy


cdef class HostMemory:
    """The memory of an object with the buffer protocol, held where it is while this lives.

    Raises TypeError for an object without one, BufferError or ValueError when its bytes don't lie together,
    or when they are to be written and can't be.
    """

    cdef Py_buffer view
    cdef bint held

    def __init__(self, thing, *, bint writable=False):
        if self.held:
            raise RuntimeError("HostMemory: already initialised")
        PyObject_GetBuffer(thing, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    @property
    def address(self):
        """The first byte's address."""
        return <uintptr_t>self.view.buf

    @property
    def size(self):
        """The bytes."""
        return self.view.len


def copy_host(uintptr_t to, uintptr_t source, size_t size, /):
    """Copy bytes between host addresses; they may overlap."""
    if size < _QUIET_COPY:
        memmove(<void *>to, <void *>source, size)
    else:
        with nogil:
            memmove(<void *>to, <void *>source, size)


def fill_host(uintptr_t to, unsigned char value, size_t size, /):
    """Set bytes from a host address on."""
    if size < _QUIET_COPY:
        memset(<void *>to, value, size)
    else:
        with nogil:
            memset(<void *>to, value, size)


cdef int read_sizes(object numbers, size_t *sizes, Py_ssize_t count, str name) except -1:
    cdef Py_ssize_t i
    if len(numbers) < count:
        raise ValueError(f"{name}: expected {count} numbers, one for each dimension, got {len(numbers)}")
    for i in range(count):
        sizes[i] = _size(numbers[i])
    return 0


cdef class Rectangle:
    """A block of an n-dimensional array, to be copied to a place in another array of its own shape.

    `element` is bytes, the sequences count elements, outermost dimension first. `piece` is how many bytes lie
    together in both arrays, `pieces` how often; `to_end` and `from_end` are the bytes from the start of each
    array to the end of the block (all 0 for an empty block). `wrong` says why nothing can be copied, None if
    it can: the block doesn't lie in both arrays. Raises ValueError for a number below 0, or too few of them.
    """

    cdef tm_rectangle plan
    cdef readonly object wrong

    def __init__(self, size_t element, Py_ssize_t dimensions, volume, to_offsets, from_offsets, to_dimensions,
                 from_dimensions):
        cdef const char *wrong
        cdef size_t *sizes
        if element == 0 or dimensions < 1:
            raise ValueError(f"expected 1 byte and 1 dimension or more, got {element}, {dimensions}")
        sizes = <size_t *>malloc(5 * dimensions * sizeof(size_t))
        if sizes is NULL:
            raise MemoryError("Rectangle: no host memory for the dimensions")
        try:
            read_sizes(volume, sizes, dimensions, "volume")
            read_sizes(to_offsets, sizes + dimensions, dimensions, "dst_offsets")
            read_sizes(from_offsets, sizes + 2 * dimensions, dimensions, "src_offsets")
            read_sizes(to_dimensions, sizes + 3 * dimensions, dimensions, "dst_dimensions")
            read_sizes(from_dimensions, sizes + 4 * dimensions, dimensions, "src_dimensions")
            wrong = tmi_rectangle_make(&self.plan, element, dimensions, sizes,
                                       tm_side(sizes + dimensions, sizes + 3 * dimensions),
                                       tm_side(sizes + 2 * dimensions, sizes + 4 * dimensions))
        finally:
            free(sizes)
        if wrong is not NULL:
            self.plan.piece = self.plan.pieces = 0
            self.wrong = (
                f"{wrong.decode()}: volume {list(volume)}, offsets {list(to_offsets)} and "
                f"{list(from_offsets)}, dimensions {list(to_dimensions)} and {list(from_dimensions)}"
            )

    @property
    def piece(self):
        return self.plan.piece

    @property
    def pieces(self):
        return self.plan.pieces

    @property
    def to_end(self):
        return self.plan.to_end

    @property
    def from_end(self):
        return self.plan.from_end

    def copy(self, uintptr_t to, uintptr_t source, /):
        """Copy between the arrays at two host addresses, which must not overlap."""
        if self.plan.piece * self.plan.pieces < _QUIET_COPY:
            tmi_rectangle_copy(&self.plan, <void *>to, <void *>source)
        else:
            with nogil:
                tmi_rectangle_copy(&self.plan, <void *>to, <void *>source)

    def place(self, size_t number, /):
        """Give how many bytes from the starts of the arrays one of the pieces lies: (to, from)."""
        cdef size_t to, source
        if number >= self.plan.pieces:
            raise IndexError(f"place: expected a number below {self.plan.pieces}, got {number}")
        tmi_rectangle_piece(&self.plan, number, &to, &source)
        return to, source
