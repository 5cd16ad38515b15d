# Part of _core.pyx: typed views of a Buffer, and handing it over to other libraries without a copy.

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_FULL_RO, PyBuffer_ToContiguous,
)
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from math import prod

cdef extern from "Python.h":
    int Py_IsInitialized() nogil

# DLPack 1.0, dlpack.h: its structures, as any consumer has them.
ctypedef struct DLTensor:
    void *data
    int device_type, device_id
    int32_t ndim
    uint8_t code, bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides
    uint64_t byte_offset
ctypedef struct DLManagedTensor:
    DLTensor tensor
    void *context
    void (*deleter)(DLManagedTensor *) noexcept nogil
ctypedef struct DLManagedTensorVersioned:
    uint32_t major, minor
    void *context
    void (*deleter)(DLManagedTensorVersioned *) noexcept nogil
    uint64_t flags
    DLTensor tensor
ctypedef fused AnyTensor:
    DLManagedTensor
    DLManagedTensorVersioned

cdef int _C_ORDER = PyBUF_C_CONTIGUOUS & ~PyBUF_STRIDES
cdef int _F_ORDER = PyBUF_F_CONTIGUOUS & ~PyBUF_STRIDES
cdef int _ANY_ORDER = PyBUF_ANY_CONTIGUOUS & ~PyBUF_STRIDES
cdef int _ORDERS = _C_ORDER | _F_ORDER | _ANY_ORDER
cdef uint64_t _COPIED = 2  # DLPACK_FLAG_BITMASK_IS_COPIED
cdef int _CPU = 1  # kDLCPU
# kDLCUDA, kDLROCM, kDLOneAPI: not run on hardware. An OpenCL consumer expects a cl_mem, which this is not.
cdef dict _DLPACK_DEVICES = {"cuda": 2, "hip": 10, "sycl": 14}


cdef void end_export(void *context) noexcept nogil:
    """Drop what a consumer held. It may come from any thread, and while the interpreter ends or after that.

    Then the memory goes with the process. No object here: Cython would take the GIL to drop it, and crash.
    """
    if Py_IsInitialized():
        drop_export(context)


cdef void drop_export(void *context) noexcept with gil:
    view = <BufferView>context
    view.buffer.exports -= 1
    Py_DECREF(view)


cdef void delete_plain(DLManagedTensor *managed) noexcept nogil:
    end_export(managed.context)
    free(managed)


cdef void delete_versioned(DLManagedTensorVersioned *managed) noexcept nogil:
    end_export(managed.context)
    free(managed)


cdef void drop_plain(object capsule) noexcept:
    """A capsule that nobody took over: a consumer renames it."""
    cdef DLManagedTensor *managed
    if PyCapsule_IsValid(capsule, "dltensor"):
        managed = <DLManagedTensor *>PyCapsule_GetPointer(capsule, "dltensor")
        managed.deleter(managed)


cdef void drop_versioned(object capsule) noexcept:
    cdef DLManagedTensorVersioned *managed
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        managed = <DLManagedTensorVersioned *>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        managed.deleter(managed)


cdef int describe(AnyTensor *managed, BufferView view, int64_t *numbers) except -1:
    cdef DLTensor *tensor = &managed.tensor
    cdef Py_ssize_t i
    tensor.data = <char *>view.buffer.address + view.offset
    tensor.device_type, tensor.device_id = view.dlpack_device()
    tensor.ndim = <int32_t>view.ndim
    tensor.code, tensor.bits, tensor.lanes = view.element.dlpack, view.element.size * 8, 1
    tensor.shape, tensor.strides, tensor.byte_offset = numbers, numbers + view.ndim, 0
    for i in range(view.ndim):
        numbers[i] = view.shape_[i]
        numbers[view.ndim + i] = view.strides_[i] // view.itemsize
    managed.context = <void *>view
    view.buffer.exports += 1
    Py_INCREF(view)
    return 0


@cython.final
cdef class BufferView:
    """A Buffer's memory as an array of numbers, which keeps the Buffer alive. Get one from `Buffer.view`.

    Where the host can reach the memory, it has the buffer protocol, `__array_interface__` and DLPack:
    `numpy.asarray(view)` and `numpy.from_dlpack(view)` need no copy.
    """

    cdef readonly Buffer buffer
    cdef readonly object element
    cdef bytes format_
    cdef Py_ssize_t offset, ndim, itemsize, bytes
    cdef Py_ssize_t *shape_
    cdef Py_ssize_t *strides_

    def __init__(self):
        raise TypeError("BufferView: not made directly; call view() of a Buffer")

    def __dealloc__(self):
        free(self.shape_)

    @property
    def shape(self):
        """The elements in each dimension."""
        return tuple([self.shape_[i] for i in range(self.ndim)])

    @property
    def strides(self):
        """The distance of two elements in each dimension, in bytes."""
        return tuple([self.strides_[i] for i in range(self.ndim)])

    @property
    def pointer(self):
        """The address of the first element."""
        return <uintptr_t>self.buffer.address + self.offset

    def __repr__(self):
        return f"<BufferView: {self.shape} of {self.element.typestr} in {self.buffer!r}>"

    cdef check(self):
        if self.buffer.address is NULL and self.buffer.bytes:
            raise BufferError("the Buffer of this view was released")

    def __getbuffer__(self, Py_buffer *view, int flags):
        view.buf = <char *>self.buffer.host_address() + self.offset
        if not self.suits(flags):
            got = f"{self.strides} of {self.shape}"
            raise BufferError(f"the consumer does not take these strides (bytes): {got}")
        view.obj = self
        view.len = self.bytes
        view.itemsize = self.itemsize
        view.readonly = 0
        view.ndim = <int>self.ndim
        view.format = <char *>self.format_ if flags & PyBUF_FORMAT else NULL
        view.shape = self.shape_ if flags & PyBUF_ND else NULL
        view.strides = self.strides_ if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL
        self.buffer.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.buffer.exports -= 1

    cdef bint suits(self, int flags):
        """Whether the consumer takes the order in which the elements lie."""
        cdef int orders = flags & _ORDERS
        if (flags & PyBUF_STRIDES) != PyBUF_STRIDES:
            orders = _C_ORDER
        return orders == 0 or ((orders & (_C_ORDER | _ANY_ORDER)) and self.dense(False)) or (
            (orders & (_F_ORDER | _ANY_ORDER)) and self.dense(True))

    cdef bint dense(self, bint first_fastest):
        """Whether the elements lie one behind the other, in C order or with the first index fastest."""
        cdef Py_ssize_t step = self.itemsize, i, at
        if self.bytes == 0:
            return True
        for i in range(self.ndim):
            at = i if first_fastest else self.ndim - 1 - i
            if self.shape_[at] != 1 and self.strides_[at] != step:
                return False
            step *= self.shape_[at]
        return True

    cdef dict interface(self):
        self.check()
        return {"shape": self.shape, "typestr": self.element.typestr, "strides": self.strides, "version": 3,
                "data": (<uintptr_t>self.buffer.address + self.offset, False)}

    @property
    def __array_interface__(self):
        if not self.buffer.manager.backend.table.flags & TM_BACKEND_HOST_ACCESSIBLE:
            raise AttributeError("__array_interface__: the host cannot reach this memory")
        return self.interface()

    @property
    def __cuda_array_interface__(self):
        self.need("cuda", "__cuda_array_interface__")
        return self.interface()

    @property
    def __sycl_usm_array_interface__(self):
        self.need("sycl", "__sycl_usm_array_interface__")
        return {**self.interface(), "version": 1, "syclobj": self.buffer.manager.owner.plugin.context}

    cdef need(self, str target, str name):
        if plugin_of(self.buffer) != target:
            raise AttributeError(f"{name}: this memory is not of the target {target}")

    cdef tuple dlpack_device(self):
        if self.buffer.manager.backend.table.flags & TM_BACKEND_HOST_ACCESSIBLE:
            return _CPU, 0
        if plugin_of(self.buffer) in _DLPACK_DEVICES:
            return _DLPACK_DEVICES[plugin_of(self.buffer)], self.buffer.manager.owner.index
        raise BufferError("DLPack: the host cannot reach this memory, and DLPack does not know its target")

    def __dlpack_device__(self):
        return self.dlpack_device()

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        device = self.dlpack_device()
        self.check()
        if self.element.dlpack is None:
            found = self.element.typestr
            raise BufferError(f"DLPack: expected numbers in the machine's byte order, got {found}")
        if dl_device is not None and tuple(dl_device) != device:
            wanted = tuple(dl_device)
            raise BufferError(f"DLPack: expected the device {device}, got {wanted}: copy it there first")
        if stream is not None and device[0] == _CPU:
            raise ValueError(f"DLPack: expected no stream for memory of the host, got {stream!r}")
        view = self.copied() if copy else self.in_elements()
        if max_version is not None and tuple(max_version) >= (1, 0):
            return versioned(view, _COPIED if copy else 0)
        return plain(view)

    cdef BufferView in_elements(self):
        """The view itself, if its strides are whole elements, as DLPack counts them."""
        for i in range(self.ndim):
            if self.bytes and self.strides_[i] % self.itemsize and self.shape_[i] > 1:
                wanted = f"strides in multiples of {self.itemsize} bytes"
                raise BufferError(f"DLPack: expected {wanted}, got {self.strides}: copy=True")
        return self

    cdef BufferView copied(self):
        """A copy in C order, in a Buffer of its own from the same manager."""
        if self.dlpack_device()[0] != _CPU:
            raise BufferError("DLPack: expected memory of the host to copy; use copy=None")
        cdef Buffer made = take(self.buffer.manager, self.bytes)
        cdef Py_buffer source
        if self.bytes:
            PyObject_GetBuffer(self, &source, PyBUF_FULL_RO)
            try:
                PyBuffer_ToContiguous(made.address, &source, source.len, b"C")
            finally:
                PyBuffer_Release(&source)
        return new_view(made, self.element, self.shape, dense_strides(self.itemsize, self.shape), 0)


cdef object plain(BufferView view):
    cdef DLManagedTensor *managed = <DLManagedTensor *>with_room(sizeof(DLManagedTensor), view.ndim)
    describe(managed, view, <int64_t *>(managed + 1))
    managed.deleter = delete_plain
    return PyCapsule_New(managed, "dltensor", drop_plain)


cdef object versioned(BufferView view, uint64_t flags):
    cdef DLManagedTensorVersioned *managed = <DLManagedTensorVersioned *>with_room(
        sizeof(DLManagedTensorVersioned), view.ndim)
    describe(managed, view, <int64_t *>(managed + 1))
    managed.major, managed.minor, managed.flags, managed.deleter = 1, 0, flags, delete_versioned
    return PyCapsule_New(managed, "dltensor_versioned", drop_versioned)


cdef void *with_room(size_t head, Py_ssize_t ndim) except NULL:
    cdef void *made = malloc(head + 2 * <size_t>ndim * sizeof(int64_t))
    if made is NULL:
        raise MemoryError("DLPack: no host memory for the description")
    return made


cdef str plugin_of(Buffer buffer):
    owner = buffer.manager.owner
    return "" if owner is None else owner.plugin.name


cdef BufferView new_view(Buffer buffer, element, shape, strides, Py_ssize_t offset):
    """Make a view. Before: all elements lie inside the Buffer."""
    cdef BufferView view = BufferView.__new__(BufferView)
    cdef Py_ssize_t i
    view.buffer, view.element, view.offset = buffer, element, offset
    view.ndim, view.itemsize, view.format_ = len(shape), element.size, element.format.encode()
    view.shape_ = <Py_ssize_t *>malloc(max(1, 2 * view.ndim) * sizeof(Py_ssize_t))
    if view.shape_ is NULL:
        raise MemoryError("view: no host memory for the shape")
    view.strides_ = view.shape_ + view.ndim
    for i in range(view.ndim):
        view.shape_[i], view.strides_[i] = shape[i], strides[i]
    view.bytes = 0 if 0 in shape else prod(shape) * element.size
    return view


cdef tuple dense_strides(itemsize, shape):
    from targetmem.view_layout import dense
    return dense(itemsize, shape)


cdef BufferView make_view(Buffer buffer, dtype, shape, strides, offset):
    """Do what `Buffer.view` does."""
    from targetmem.view_layout import layout_of
    if buffer.address is NULL and buffer.bytes:
        raise BufferError("view: this Buffer was released")
    element, extents, steps, start = layout_of(buffer.bytes, dtype, shape, strides, offset)
    return new_view(buffer, element, extents, steps, start)
