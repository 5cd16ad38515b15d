"""The thin binding of the C core: argument checks, lifetimes, exceptions. No policy lives here."""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_CheckBuffer, PyObject_GetBuffer
)
from cpython.exc cimport PyErr_Clear, PyErr_SetInterrupt, PyErr_WriteUnraisable
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

cdef extern from "Python.h":
    Py_ssize_t quick_size "PyLong_AsSsize_t"(object) noexcept  # -1: negative, or an error is set
    ctypedef struct PyMethodDef:
        pass
    ctypedef struct PyMethodDescrObject:
        PyMethodDef *d_method
    object new_method "PyDescr_NewMethod"(type, PyMethodDef *)
    # Cython's own Py_buffer counts the references of obj; here a view is moved about like any other bytes.
    ctypedef struct HostView "Py_buffer":
        void *buf
        PyObject *obj
        Py_ssize_t len
        Py_ssize_t itemsize
        int ndim
        const char *format
        Py_ssize_t *shape
        Py_ssize_t *strides
    int get_buffer "PyObject_GetBuffer"(object, HostView *, int) except -1
    void release_buffer "PyBuffer_Release"(HostView *)
    bint is_contiguous "PyBuffer_IsContiguous"(const HostView *, char)

import os
from collections import namedtuple
from threading import Event, get_ident
from types import MethodDescriptorType

__all__ = ["Backend", "BlockInfo", "Buffer", "BufferView", "DeviceCore", "HostMemory", "Lease",
           "ManagerCore", "NumpyPool", "PresentTable", "Rectangle", "Wrappers", "Wrapping",
           "begin_queue_use", "copy_host", "end_queue_use", "fill_host", "numpy_attached", "numpy_stop",
           "own_methods", "recycled", "set_tag"]

BlockInfo = namedtuple("BlockInfo", "address size requested tag live direct owned")
BlockInfo.__doc__ = """A tracked block: address, block bytes, requested bytes, tag number, and whether it is
live, above the threshold (direct), and owned by a Buffer."""

cdef char *_BYTE = b"B"
cdef dict _STATUS = {1: "out_of_memory", 2: "invalid_free", 3: "invalid_argument", 4: "backend_error",
                     5: "closed", 6: "forked"}
cdef dict _causes = {}  # (thread, backend, method) -> what the Python function raised when it was called last
cdef dict _interruptions = {}  # thread -> the KeyboardInterrupt or the like to raise when its call is over


def own_methods(type cls, /):
    """Give a class its own descriptors of the C methods that it inherits, and give the class: a decorator.

    CPython specialises a call of a C method only if the object's type is the very one that the descriptor was
    made for: inherited, the same call costs twice as much.
    """
    for name in ("allocate", "free", "enter", "exit", "update"):
        found = getattr(cls, name, None)
        if type(found) is MethodDescriptorType and name not in vars(cls):
            setattr(cls, name, new_method(cls, (<PyMethodDescrObject *>found).d_method))
    return cls


include "_backend.pxi"


# --- the manager ----------------------------------------------------------------------------------------


cdef int _press(void *context, size_t wanted, unsigned int step) noexcept with gil:
    manager = <ManagerCore>context
    try:
        return 1 if manager._pressure(wanted, step) else 0
    except Exception:
        PyErr_WriteUnraisable(manager)
        return 0
    except BaseException as error:
        _note_interruption(error)
        return 0


cdef inline size_t _size(object size, str what="size") except? 42:
    """Give a request's bytes; more than any device has is SIZE_MAX, which the core refuses.

    Raises ValueError when it is negative, TypeError when it is no integer.
    """
    cdef Py_ssize_t small
    if PyLong_CheckExact(size):
        small = quick_size(size)
        if small >= 0:
            return <size_t>small
        PyErr_Clear()
    return _odd_size(size, what)


cdef size_t _odd_size(object size, str what) except? 42:
    if not PyLong_CheckExact(size):
        if not hasattr(size, "__index__"):
            raise TypeError(f"{what}: expected an integer number of bytes, got {type(size).__name__}")
        size = size.__index__()
    if size < 0:
        raise ValueError(f"{what}: expected 0 bytes or more, got {size}")
    return <size_t>-1 if size >= <size_t>-1 else size


cdef uintptr_t _address(object pointer, str where) except? 42:
    """Give an address, 0 for None. Raises TypeError for no integer, ValueError for no address."""
    if pointer is None:
        return 0
    if not hasattr(pointer, "__index__"):
        raise TypeError(f"{where}: expected an address (an integer) or None, got {type(pointer).__name__}")
    number = pointer.__index__()
    if not 0 <= number <= <uintptr_t>-1:
        raise ValueError(f"{where}: expected an address of 0 to {<uintptr_t>-1:#x}, got {number}")
    return number


@cython.no_gc_clear
cdef class ManagerCore:
    """A memory manager over one backend; `targetmem.MemoryManager` adds settings and explanations."""

    def __init__(self, Backend backend not None, *, str policy="exact", threshold=8192, cached_limit=None,
                 uintptr_t group=0, str kind="device", bint thread_cache=True):
        cdef bytes name = policy.encode()
        cdef tm_options options
        if self.handle is not NULL:
            raise RuntimeError("ManagerCore: already initialised")
        options.version = TM_ABI_VERSION
        options.flags = 0 if thread_cache else TM_OPTION_NO_THREAD_CACHE
        options.policy = name
        options.threshold = min(threshold, TM_UNLIMITED)
        options.cached_limit = TM_UNLIMITED if cached_limit is None else min(cached_limit, TM_UNLIMITED)
        options.device = group
        options.pressure = _press
        options.pressure_context = <void *>self
        self.backend, self.policy, self.kind = backend, policy, kind
        self.threshold, self.cached_limit = options.threshold, cached_limit
        if tm_manager_create(&backend.table, &options, &self.handle) != TM_OK:
            raise self.failure()

    def __del__(self):
        # While what the backend calls is whole: when a cycle is collected, functions in it may be taken apart
        # before __dealloc__ comes.
        if self.handle is not NULL:
            with nogil:
                tm_manager_close(self.handle)

    def __dealloc__(self):
        if self.handle is not NULL:
            with nogil:
                tm_manager_destroy(self.handle)

    cdef tm_manager *ready(self) except NULL:
        if self.handle is NULL:
            raise RuntimeError(f"{type(self).__name__}: __init__ was not called")
        return self.handle

    cdef Buffer new_buffer(self, tm_block *block, void *address, size_t size):
        cdef Buffer buffer = Buffer.__new__(Buffer)
        buffer.manager = self
        buffer.block = block
        buffer.address = address
        buffer.bytes = <Py_ssize_t>size
        return buffer

    def allocate(self, size, /):
        """Obtain size bytes as a Buffer. Contents are not cleared; 0 bytes give an empty buffer.

        Raises OutOfDeviceMemory, PluginError, ValueError for a negative size, TypeError for no integer.
        """
        return take(self, size)

    def allocate_aligned(self, size, alignment, /):
        """Obtain size bytes at an address that is a multiple of alignment, a power of two in bytes.

        Raises like `allocate`, and ValueError for an alignment that is no power of two.
        """
        cdef size_t bytes = _size(alignment, "alignment")
        if bytes == 0 or bytes & (bytes - 1):
            raise ValueError(f"alignment: expected a power of two in bytes, got {alignment}")
        return self.allocate_slow(_size(size), bytes)

    cdef Buffer allocate_slow(self, size_t size, size_t alignment):
        cdef void *address = NULL
        cdef bint fresh
        cdef tm_manager *handle = self.ready()
        if size:
            with nogil:
                address = tmi_allocate(handle, size, alignment, TM_OWNED, &fresh)
            if address is NULL:
                raise self.failure()
        buffer = self.new_buffer(tm_block_at(self.handle, address) if size else NULL, address, size)
        raise_interruption()  # the Buffer is dropped then: nothing is lost
        return buffer

    def free(self, pointer, size=None, /):
        """Free the memory of a Buffer, or of an address that `Buffer.detach` gave; None and 0 do nothing.

        With a size (requested bytes) that is checked. Raises InvalidFree for a double free, an address inside
        a block, a wrong size, or an address that a Buffer still owns; nothing is changed then. An address
        that this manager never gave out goes to the device's own release.
        """
        if isinstance(pointer, Buffer):
            return (<Buffer>pointer).give_back(self, size)
        cdef uintptr_t address = _address(pointer, "free")
        cdef size_t bytes = TM_SIZE_UNKNOWN if size is None else _size(size)
        cdef tm_status status
        cdef tm_manager *handle = self.ready()
        with nogil:
            status = tmi_free(handle, <void *>address, 0, bytes)
        if status != TM_OK:
            raise self.failure()
        raise_interruption()

    def trim(self, keep=0, /):
        """Give cached blocks back, largest first, until at most keep bytes stay; gives the bytes."""
        cdef size_t most = _size(keep), given
        cdef tm_manager *handle = self.ready()
        with nogil:
            given = tm_trim(handle, most)
        raise_interruption()
        return given

    def close(self):
        """Give every block back and refuse further requests. Idempotent."""
        self.closed = True
        if self.handle is not NULL:
            with nogil:
                tm_manager_close(self.handle)
            raise_interruption()

    def raw_statistics(self):
        """Give the fields of tm_statistics by name; gauges as (now, peak, total), all in bytes."""
        cdef tm_statistics counted
        tm_get_statistics(self.ready(), &counted)
        return counted_to_dict(&counted)

    def raw_bucket_statistics(self, unsigned int bucket, /):
        """The same for one bucket, that of the sizes 2**bucket to 2**(bucket + 1) - 1."""
        if bucket >= TM_BUCKETS:
            raise ValueError(f"bucket: expected 0 to {TM_BUCKETS - 1}, got {bucket}")
        cdef tm_statistics counted
        tm_get_bucket_statistics(self.ready(), bucket, &counted)
        return counted_to_dict(&counted)

    def reset_peaks(self):
        """Let every peak start anew from the present value."""
        tm_reset_peaks(self.ready())

    def blocks(self):
        """List the tracked blocks, live and cached, in address order."""
        cdef size_t capacity = 1024, count, i
        cdef uintptr_t start = 0
        cdef tm_block_info *infos = <tm_block_info *>malloc(capacity * sizeof(tm_block_info))
        if infos is NULL:
            raise MemoryError("blocks: no host memory for the list")
        found = []
        try:
            while True:
                count = tm_list_blocks(self.ready(), start, infos, capacity)
                for i in range(count):
                    found.append(info_to_tuple(&infos[i]))
                if count < capacity:
                    return found
                start = infos[count - 1].address + 1
        finally:
            free(infos)

    def find(self, address, /):
        """Give the tracked block that contains the address, or None."""
        cdef tm_block_info info
        if tm_find_block(self.ready(), <void *>_address(address, "find"), &info):
            return info_to_tuple(&info)
        return None

    def memory_info(self):
        """Give the device's (free, total) bytes, or None when it does not say."""
        cdef size_t free_bytes, total
        cdef tm_backend *table = &self.backend.table
        cdef int failed = 1
        if table.memory_info is not NULL:
            with nogil:
                failed = table.memory_info(table.context, &free_bytes, &total)
        return None if failed else (free_bytes, total)

    def check(self):
        """Walk every structure of the core; raises AssertionError with the broken invariant. For tests."""
        cdef const char *broken = tm_check(self.ready())
        if broken is not NULL:
            raise AssertionError(broken.decode())

    cdef object failure(self):
        """Build the exception for the calling thread's latest error."""
        cdef tm_error error
        tm_last_error(&error)
        raise_interruption()
        status = _STATUS[<int>error.status]
        method = {"out_of_memory": "allocate", "backend_error": "release"}.get(status)
        cause = _causes.pop((get_ident(), <uintptr_t>self.backend.table.context, method), None)
        exception = self._error(status, tm_reason_text(error.reason).decode(), error.native,
                                error.address, error.size, error.hit_address, error.hit_size, cause)
        if cause is not None and exception is not cause:
            exception.__cause__ = cause
        return exception

    def _pressure(self, wanted, step):
        return False

    def _error(self, status, reason, native, address, size, hit_address, hit_size, cause):
        kind = MemoryError if status == "out_of_memory" else RuntimeError
        return kind(f"{status}: {reason} (address {address:#x}, {size} bytes)")


cdef dict counted_to_dict(tm_statistics *counted):
    cdef dict numbers = counted[0]
    for name in ("requested", "live", "cached", "held"):
        gauge = numbers[name]
        numbers[name] = (gauge["now"], gauge["peak"], gauge["total"])
    return numbers


cdef object info_to_tuple(tm_block_info *info):
    return BlockInfo(info.address, info.size, info.requested, info.tag, bool(info.live), bool(info.direct),
                     bool(info.owned))


def set_tag(unsigned int number, /):
    """Set the number that this thread's further allocations carry; gives the former one."""
    return tm_set_tag(number)


include "_buffer.pxi"
include "_present.pxi"
include "_items.pxi"
include "_transfer.pxi"
include "_mapping.pxi"
include "_device.pxi"
include "_recycled.pxi"
include "_view.pxi"
include "_copies.pxi"
include "_numpy.pxi"
