# Part of _core.pyx: backends, in C and written in Python.

cdef int _note(void *context, str method, object error) except -1:
    """Remember what a Python function raised, or forget it when the latest call went well."""
    if error is not None:
        _note_interruption(error)
        _causes[get_ident(), <uintptr_t>context, method] = error
    elif _causes:
        _causes.pop((get_ident(), <uintptr_t>context, method), None)
    return 0


cdef int _note_interruption(object error) except -1:
    """Remember what is no failure of the function: a Ctrl-C, or the exit that a signal's handler asks for."""
    if not isinstance(error, Exception):
        _interruptions[get_ident()] = error
    return 0


cdef int raise_interruption() except -1:
    """Raise what ended a Python function of this thread from outside, now that the core is done."""
    if _interruptions:
        error = _interruptions.pop(get_ident(), None)
        if error is not None:
            raise error
    return 0


cdef int _call_allocate(void *context, size_t size, size_t alignment, void **address) noexcept with gil:
    address[0] = NULL
    try:
        given = (<Backend>context).allocate(size, alignment)
        address[0] = <void *>_address(given, "allocate")
        _note(context, "allocate", None)
        return 0
    except BaseException as error:
        _note(context, "allocate", error)
        return 1


cdef int _call_release(void *context, void *address, size_t size) noexcept with gil:
    try:
        (<Backend>context).release(<uintptr_t>address, size)
        _note(context, "release", None)
        return 0
    except BaseException as error:
        _note(context, "release", error)
        return 1


cdef int _call_info(void *context, size_t *free_bytes, size_t *total) noexcept with gil:
    try:
        given = (<Backend>context).info()
        if given is None:
            return 1
        free_bytes[0], total[0] = given[0], given[1]
        return 0
    except BaseException as error:
        _note_interruption(error)
        return 1  # only a hint; the call that matters will tell


cdef uint32_t _flags(bint aligns, bint host_accessible, bint fork_safe):
    return ((TM_BACKEND_ALIGNS if aligns else 0) | (TM_BACKEND_HOST_ACCESSIBLE if host_accessible else 0)
            | (TM_BACKEND_FORK_SAFE if fork_safe else 0))


@cython.no_gc_clear
cdef class Backend:
    """Where memory comes from: a pair of functions that obtain it from one device and give it back.

    `allocate(size, alignment)` gives an address as an int; 0, None or a MemoryError is a refusal, any other
    exception one that ends as a PluginError. `release(address, size)` takes it back; all sizes are bytes.
    Both are called with the GIL and with no lock of the core held. `min_alignment` (bytes, a power of two) is
    what every address has; `aligns` says that larger alignments are honoured too; `memory_info()` gives
    (free, total) bytes or None. Raises ValueError for an alignment that is no power of two.
    """

    def __cinit__(self):
        self.table.version = TM_ABI_VERSION
        self.table.context = <void *>self

    def __init__(self, allocate, release, *, size_t min_alignment=1, bint aligns=False,
                 bint host_accessible=False, bint fork_safe=False, memory_info=None):
        for name, function in (("allocate", allocate), ("release", release)):
            if not callable(function):
                raise TypeError(f"Backend: expected {name} to be callable, got {type(function).__name__}")
        self.allocate, self.release, self.info = allocate, release, memory_info
        self.table.allocate = _call_allocate
        self.table.release = _call_release
        if memory_info is not None:
            self.table.memory_info = _call_info
        self.table.flags = _flags(aligns, host_accessible, fork_safe)
        _set_alignment(self, min_alignment)

    @staticmethod
    def host():
        """Give the host's memory: plain C functions, which never take the GIL."""
        cdef Backend backend = Backend.__new__(Backend)
        backend.table = tm_host_backend()[0]
        return backend

    @staticmethod
    def from_pointers(uintptr_t allocate, uintptr_t release, uintptr_t context=0, *, size_t min_alignment=1,
                      bint aligns=False, bint host_accessible=False, bint fork_safe=False):
        """Give a backend over two C functions, by address, with the signatures of `tm_backend`."""
        if not allocate or not release:
            raise ValueError("Backend: expected the addresses of two C functions, got 0")
        cdef Backend backend = Backend.__new__(Backend)
        backend.table.allocate = <int (*)(void *, size_t, size_t, void **) noexcept nogil>allocate
        backend.table.release = <int (*)(void *, void *, size_t) noexcept nogil>release
        backend.table.context = <void *>context
        backend.table.flags = _flags(aligns, host_accessible, fork_safe)
        _set_alignment(backend, min_alignment)
        return backend

    @property
    def host_accessible(self):
        """Whether the host may dereference the addresses."""
        return bool(self.table.flags & TM_BACKEND_HOST_ACCESSIBLE)

    @property
    def min_alignment(self):
        """The alignment in bytes that every address has."""
        return self.table.min_alignment


cdef _set_alignment(Backend backend, size_t alignment):
    if alignment == 0 or alignment & (alignment - 1):
        raise ValueError(f"Backend: expected min_alignment to be a power of two, got {alignment}")
    backend.table.min_alignment = alignment
