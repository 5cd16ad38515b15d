# Objects of another library around blocks, each used again with its block. Part of _core.pyx.
#
# Making such an object (a pyopencl.Buffer, say) costs more than all else. When one is dropped, its block is
# freed and the object itself stays beside it, at a place that the address picks; whoever gets the block
# next gets the object with it. If the place is taken, the object dies as it would without us. Only under the
# GIL: a free-threaded interpreter makes objects anew.

cdef extern from *:
    """
    #ifdef Py_GIL_DISABLED
    #define TMX_RECYCLES 0
    #else
    #define TMX_RECYCLES 1
    #endif
    /* Take away the attributes that somebody gave an object. */
    static void tmx_clear_attributes(PyObject *object)
    {
        Py_ssize_t offset = Py_TYPE(object)->tp_dictoffset;
        if (offset > 0)
            Py_CLEAR(*(PyObject **)((char *)object + offset));
    #if PY_VERSION_HEX >= 0x030D0000
        if (Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT)
            PyObject_ClearManagedDict(object);
    #elif PY_VERSION_HEX >= 0x030C0000
        if (Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT)
            _PyObject_ClearManagedDict(object);
    #endif
    }
    /* Let an object of a recycled class die: as one of the class below, which has the destructor of Python's
     * classes. That one takes the first class with another destructor for a base in C: it would call ours. */
    static void tmx_die(PyObject *object)
    {
        PyTypeObject *type = Py_TYPE(object), *base = type->tp_base;
        Py_INCREF((PyObject *)base);
        Py_SET_TYPE(object, base);
        Py_DECREF((PyObject *)type);
        base->tp_dealloc(object);
    }
    """
    const bint TMX_RECYCLES
    void tmx_clear_attributes(PyObject *)
    void tmx_die(PyObject *)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        Py_ssize_t tp_basicsize
        Py_ssize_t tp_weaklistoffset
        void (*tp_dealloc)(PyObject *) noexcept
    PyTypeObject *type_of "Py_TYPE"(PyObject *) noexcept
    void set_references "Py_SET_REFCNT"(PyObject *, Py_ssize_t) noexcept
    void decrease_references "Py_DECREF"(PyObject *)
    void clear_weak_references "PyObject_ClearWeakRefs"(PyObject *)

cdef enum:
    PLACES = 4096  # a power of two; 32 KiB an allocator


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Lease:
    """A wrapper's hold on a block: it frees the block when it goes. Between two uses it has no source."""

    def __dealloc__(self):
        if self.source is not None:
            self.give_back()

    def release(self):
        """Free the block now; a second call does nothing."""
        self.give_back()

    cdef give_back(self):
        cdef Wrapping source = self.source
        if source is None:
            return
        self.source = None
        if not tm_push_owned(source.source.handle, self.block):
            source.source.new_buffer(self.block, self.address, self.bytes)  # dropped: frees it the slow way


cdef inline PyObject **lease_of(PyObject *wrapper) noexcept:
    """Give where a wrapper keeps its lease: the one slot that its class adds, at the end."""
    return <PyObject **>(<char *>wrapper + type_of(wrapper).tp_basicsize - sizeof(PyObject *))


cdef inline PyObject **place_of(Wrappers wrappers, void *address) noexcept:
    cdef uint64_t mixed = <uint64_t><uintptr_t>address * 0x9E3779B97F4A7C15u
    return &wrappers.kept[mixed >> 52]


@cython.final
@cython.no_gc
cdef class Wrappers:
    """Wrappers of blocks that are not in use."""

    def __dealloc__(self):
        for i in range(PLACES):
            discard(&self.kept[i])

    def forget(self, uintptr_t address, /):
        """Drop the wrapper of a block that goes back to the device."""
        cdef PyObject **place = place_of(self, <void *>address)
        if place[0] is not NULL and not elsewhere(place[0], <void *>address):
            discard(place)


cdef inline void discard(PyObject **place) noexcept:
    cdef PyObject *wrapper = place[0]
    if wrapper is not NULL:
        place[0] = NULL
        decrease_references(wrapper)


cdef inline bint elsewhere(PyObject *wrapper, void *address) noexcept:
    """Whether a wrapper belongs to another address; one that a collection of garbage cleared has none."""
    cdef PyObject *lease = lease_of(wrapper)[0]
    return lease is not NULL and (<Lease>lease).address != address


cdef inline bint serves(PyObject *wrapper, void *address, size_t size) noexcept:
    cdef PyObject *held = lease_of(wrapper)[0]
    if held is NULL:
        return False
    return (<Lease>held).address == address and (<Lease>held).bytes == <Py_ssize_t>size


cdef void recycle(PyObject *wrapper) noexcept:
    """Stand in for a wrapper's destructor: free its block and put it aside, or let it die."""
    cdef PyObject *held = lease_of(wrapper)[0]
    cdef Py_ssize_t weak = type_of(wrapper).tp_weaklistoffset
    cdef PyObject **place
    cdef Lease lease
    cdef Wrapping source
    if held is NULL or (<Lease>held).source is None:
        tmx_die(wrapper)
        return
    lease = <Lease>held
    source = lease.source
    place = place_of(source.wrappers, lease.address)
    if place[0] is not NULL:
        tmx_die(wrapper)  # before its block is somebody else's
    else:
        if weak > 0 and (<PyObject **>(<char *>wrapper + weak))[0] is not NULL:
            clear_weak_references(wrapper)
        set_references(wrapper, 1)
        tmx_clear_attributes(wrapper)
        place[0] = wrapper
    lease.give_back()


def recycled(cls, /):
    """Give a class whose objects `Wrapping` recycles: one below the given, which adds one slot, `_lease`.

    A decorator. Raises TypeError for a class without that slot.
    """
    if not isinstance(cls, type) or vars(cls).get("__slots__") != ("_lease",):
        raise TypeError(f"recycled: expected a class with one slot, _lease, got {cls!r}")
    names = {"__slots__": (), "__module__": cls.__module__, "__doc__": cls.__doc__}
    made = type(cls)(cls.__name__, (cls,), names)
    if TMX_RECYCLES:
        (<PyTypeObject *>made).tp_dealloc = recycle
    return made


cdef class Wrapping:
    """A callable that obtains size bytes from a manager and gives an object around them.

    That is make(address, size), of a class that `recycled` gave; `wrappers` is where such objects wait, and
    is to be told of each block that goes back to the device. Without it make(buffer) gives one that keeps it.
    """

    def __init__(self, ManagerCore source not None, make, Wrappers wrappers=None):
        self.source, self.make, self.wrappers = source, make, wrappers

    def __call__(self, size):
        cdef size_t wanted = _size(size)
        cdef tm_block *block = tm_pop(self.source.handle, wanted, TM_OWNED)
        cdef void *address
        cdef PyObject **place
        if block is NULL:
            return self.wrap(self.source.allocate_slow(wanted, 0))
        address = tm_block_address(block)
        if self.wrappers is None:
            return self.make(self.source.new_buffer(block, address, wanted))
        place = place_of(self.wrappers, address)
        if place[0] is NULL or not serves(place[0], address, wanted):
            return self.wrap(self.source.new_buffer(block, address, wanted))
        wrapper = <object>place[0]
        discard(place)
        lease = <Lease>lease_of(<PyObject *>wrapper)[0]
        lease.source = self
        lease.block = block
        return wrapper

    cdef wrap(self, Buffer buffer):
        """Give an object around a Buffer's block, which is its own from now on."""
        if self.wrappers is None:
            return self.make(buffer)
        if buffer.bytes == 0:
            raise ValueError("an object around memory: expected at least 1 byte, got 0")
        self.wrappers.forget(<uintptr_t>buffer.address)
        cdef Lease lease = Lease.__new__(Lease)
        wrapper = self.make(<uintptr_t>buffer.address, buffer.bytes)
        lease.block, lease.address, lease.bytes = buffer.block, buffer.address, buffer.bytes
        wrapper._lease = lease
        lease.source = self
        buffer.address = NULL
        return wrapper
