# Part of _core.pyx: the handle that owns a block.

# address of a Buffer -> the queues whose work uses it; each counts as a view of it
cdef dict _queue_uses = {}


def begin_queue_use(Buffer buffer not None, queue, /):
    """Note that a queue's work uses a Buffer, which it holds; False when that was noted already."""
    cdef list queues = _queue_uses.setdefault(<uintptr_t><void *>buffer, [])
    if queue in queues:
        return False
    queues.append(queue)
    buffer.exports += 1
    return True


def end_queue_use(Buffer buffer not None, queue, /):
    """Note that a queue's work uses a Buffer no more: it is done, or the memory has another owner."""
    cdef list queues = _queue_uses.get(<uintptr_t><void *>buffer)
    if queues is None or queue not in queues:
        return
    queues.remove(queue)
    buffer.exports -= 1
    if not queues:
        del _queue_uses[<uintptr_t><void *>buffer]


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Buffer:
    """Memory of a device that gives itself back on `release`, at the end of a with-statement, or dropped.

    Get one from `Device.allocate` or `MemoryManager.allocate`. Where the host can reach the memory it offers
    the buffer protocol and `__array_interface__`, as bytes; `numpy.asarray(buffer)` needs no copy and keeps
    it alive.
    """

    def __init__(self):
        raise TypeError("Buffer: not made directly; call allocate() of a Device or a MemoryManager")

    def __dealloc__(self):
        if self.address is not NULL:
            if self.block is NULL or not tm_push_owned(self.manager.handle, self.block):
                drop(self)

    @property
    def pointer(self):
        """The address on the device, 0 when empty or released."""
        return <uintptr_t>self.address

    @property
    def size(self):
        """The requested bytes."""
        return self.bytes

    @property
    def device(self):
        """The device, or None for a manager on its own."""
        return self.manager.owner

    @property
    def kind(self):
        """The memory kind: "device", "host" or "shared"."""
        return self.manager.kind

    def release(self):
        """Give the memory back now; a second call does nothing. Raises BufferError while a view is in use."""
        self.give_back(self.manager, None)

    cdef give_back(self, ManagerCore manager, size):
        cdef tm_status status
        cdef void *address = self.address
        cdef size_t bytes = TM_SIZE_UNKNOWN if size is None else _size(size)
        if manager is not self.manager:
            raise ValueError("free: this Buffer belongs to another manager; call its release()")
        if self.exports:
            if self.hand_over():
                return
            raise BufferError(f"release: {self.exports} view(s) of this Buffer are in use; drop them first")
        if address is NULL:
            return
        self.address = NULL  # before the GIL is let go, so that a second thread finds nothing to give back
        with nogil:
            status = tmi_free(manager.handle, address, TM_OWNED, bytes)
        if status == TM_INVALID_FREE:
            self.address = address  # nothing was changed
        if status != TM_OK:
            raise manager.failure()
        raise_interruption()

    cdef bint hand_over(self):
        """Leave the memory to the queues whose work uses it, if nothing else does; False: that is not so."""
        cdef list queues = _queue_uses.get(<uintptr_t><void *>self)
        if queues is None or len(queues) != self.exports:
            return False
        cdef Buffer heir = self.manager.new_buffer(self.block, self.address, self.bytes)
        self.address = NULL
        for queue in queues[:]:
            queue.keep(heir)
            end_queue_use(self, queue)
        return True

    def detach(self):
        """Give up ownership: the address, now to be freed with `manager.free`; the Buffer becomes empty."""
        cdef void *address = self.address
        if self.exports:
            raise BufferError(f"detach: {self.exports} view(s) of this Buffer are in use; drop them first")
        if address is not NULL:
            self.address = NULL
            tmi_disown(self.manager.handle, address)
        return <uintptr_t>address

    def view(self, dtype, shape=None, *, strides=None, offset=0):
        """Give the memory as an array of numbers, without a copy; the view keeps the Buffer alive.

        dtype is NumPy's ("f4", "<i8", "complex64") or a struct code; shape defaults to one dimension up to
        the end, strides (bytes) to C order; offset is in bytes. Raises TypeError for a dtype of no numbers,
        ValueError for what does not fit into the memory, BufferError when it was released.
        """
        return make_view(self, dtype, shape, strides, offset)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return make_view(self, "u1", None, None, 0).__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        return make_view(self, "u1", None, None, 0).__dlpack_device__()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __len__(self):
        return self.bytes

    def __repr__(self):
        owner = self.manager.owner
        where = self.manager.kind if owner is None else f"{owner.name} {self.manager.kind}"
        state = "" if self.address is not NULL or self.bytes == 0 else " released"
        return f"<Buffer{state}: {self.bytes} bytes at {<uintptr_t>self.address:#x}, {where}>"

    cdef void *host_address(self) except? NULL:
        if not self.manager.backend.table.flags & TM_BACKEND_HOST_ACCESSIBLE:
            raise BufferError("the host cannot reach this memory; copy it with the device first")
        if self.address is NULL and self.bytes:
            raise BufferError("this Buffer was released")
        return self.address

    def __getbuffer__(self, Py_buffer *view, int flags):
        view.buf = self.host_address()
        view.obj = self
        view.len = self.bytes
        view.itemsize = 1
        view.readonly = 0
        view.ndim = 1
        view.format = _BYTE if flags & PyBUF_FORMAT else NULL
        view.shape = &self.bytes if flags & PyBUF_ND else NULL
        view.strides = &view.itemsize if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    @property
    def __array_interface__(self):
        if not self.manager.backend.table.flags & TM_BACKEND_HOST_ACCESSIBLE:
            raise AttributeError("__array_interface__: the host cannot reach this memory")
        self.host_address()
        data = (<uintptr_t>self.address, False)
        return {"shape": (self.bytes,), "typestr": "|u1", "data": data, "version": 3}


cdef drop(Buffer buffer):
    """Free what a dropped Buffer owns, the slow way. An error is unraisable: nobody could catch it."""
    cdef tm_status status
    cdef tm_manager *handle = buffer.manager.handle
    cdef void *address = buffer.address
    outer = _interruptions.pop(get_ident(), None) if _interruptions else None  # of a call around this
    with nogil:
        status = tmi_free(handle, address, TM_OWNED, TM_SIZE_UNKNOWN)
    try:
        if status != TM_OK:
            raise buffer.manager.failure()
        raise_interruption()
    except KeyboardInterrupt:
        PyErr_SetInterrupt()  # not lost: Python raises it between two steps of the program
    except BaseException:
        PyErr_WriteUnraisable(buffer.manager)
    if outer is not None:
        _note_interruption(outer)
