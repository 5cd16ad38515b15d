# NumPy's capsules and csrc/numpy_handler.c; what is served when is decided in integrations/numpy.py.

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetPointer
from cpython.ref cimport Py_INCREF, PyObject

import sys

cdef extern from "numpy_handler.h" nogil:
    ctypedef struct tm_numpy_table:
        char name[127]
        unsigned char version
    ctypedef struct tm_numpy_pool:
        pass
    tm_status tmi_numpy_pool_create(const tm_options *, size_t, tm_numpy_pool **)
    tm_manager *tmi_numpy_pool_manager(const tm_numpy_pool *)
    size_t tmi_numpy_pool_live(const tm_numpy_pool *)
    tm_numpy_table *tmi_numpy_table(const tm_numpy_table *)
    void tmi_numpy_serve(tm_numpy_pool *)
    void tmi_numpy_when_drained(int (*)(void *, void *) noexcept, void *)

cdef const char *_HANDLER = "mem_handler"
cdef int _DEFAULT_HANDLER = 306  # its place in NumPy's table of functions, since NumPy 1.22
cdef const tm_numpy_table *_original = NULL


cdef object _capsule_of(api):
    """Give the capsule of the default handler. Raises ValueError that says what was found instead."""
    cdef void **functions = <void **>PyCapsule_GetPointer(api, NULL)
    capsule = <object>(<PyObject **>functions[_DEFAULT_HANDLER])[0]
    if not PyCapsule_IsValid(capsule, _HANDLER):
        raise ValueError(f"expected a capsule named mem_handler, got {capsule!r}")
    return capsule


cdef int _set_table(void *capsule, void *table) noexcept with gil:
    try:
        return PyCapsule_SetPointer(<object>capsule, table)
    except BaseException:
        PyErr_WriteUnraisable(<object>capsule)
        return -1


cdef object _attach(api):
    """Put our table into the capsule, unless it is there."""
    global _original
    capsule = _capsule_of(api)
    cdef tm_numpy_table *found = <tm_numpy_table *>PyCapsule_GetPointer(capsule, _HANDLER)
    if _original is not NULL and found is tmi_numpy_table(_original):
        return
    if found.version != 1:
        raise ValueError(f"expected version 1 of a handler's table, got {found.version}")
    if _original is NULL:
        _original = found
        Py_INCREF(capsule)  # arrays may be freed after NumPy's module is gone
        has_gil = getattr(sys, "_is_gil_enabled", None)
        if has_gil is None or has_gil():
            tmi_numpy_when_drained(_set_table, <void *>capsule)
    elif found is not _original:
        raise ValueError("expected NumPy's own table in the default handler, got one put in meanwhile")
    PyCapsule_SetPointer(capsule, tmi_numpy_table(found))


cdef int _press_numpy(void *context, size_t wanted, unsigned int step) noexcept with gil:
    pool = <NumpyPool>context
    try:
        return 1 if pool.pressure(wanted, step) else 0
    except BaseException:
        PyErr_WriteUnraisable(pool)
        return 0


cdef class NumpyPool:
    """A manager over the host's memory that serves NumPy's arrays of min_size bytes and more.

    `pressure(wanted, step)` is asked to free something when there is no memory left, like
    `ManagerCore._pressure`. Never closed and never destroyed: arrays may outlive everything in Python.
    Raises MemoryError when there is no memory for the manager, ValueError for options that it refuses.
    """

    cdef tm_numpy_pool *handle
    cdef object pressure

    def __init__(self, str policy, *, threshold, cached_limit, size_t min_size, pressure):
        cdef bytes name = policy.encode()
        cdef tm_options options
        if self.handle is not NULL:
            raise RuntimeError("NumpyPool: already initialised")
        if min_size < 1:
            raise ValueError(f"min_size: expected at least 1 byte, got {min_size}")
        options.version = TM_ABI_VERSION
        options.flags = TM_OPTION_NO_THREAD_CACHE  # big blocks, often freed by another thread
        options.policy = name
        options.threshold = min(threshold, TM_UNLIMITED)
        options.cached_limit = min(cached_limit, TM_UNLIMITED)
        options.device = 0
        options.pressure = _press_numpy
        options.pressure_context = <void *>self
        self.pressure = pressure
        cdef tm_status status = tmi_numpy_pool_create(&options, min_size, &self.handle)
        if _STATUS.get(status) == "out_of_memory":
            raise MemoryError("NumpyPool: no memory for the manager")
        if status != TM_OK:
            raise ValueError(f"policy: expected one that the core knows, got {policy!r}")
        Py_INCREF(self)

    cdef tm_manager *manager(self) except NULL:
        if self.handle is NULL:
            raise RuntimeError("NumpyPool: __init__ was not called")
        return tmi_numpy_pool_manager(self.handle)

    def serve(self, api, /):
        """Serve every new array of the process from now on, in every thread and context.

        `api` is NumPy's `_ARRAY_API`, whose table of functions leads to the capsule of the default handler,
        which all arrays name whose memory NumPy obtains. It holds our table from now on, and the original one
        again once nothing serves and no pooled array is left. Raises ValueError, which says what was found,
        when NumPy is not built as expected; nothing is changed then.
        """
        self.manager()
        _attach(api)
        tmi_numpy_serve(self.handle)

    @property
    def live_blocks(self):
        """How many arrays hold a block of this pool now."""
        self.manager()
        return tmi_numpy_pool_live(self.handle)

    def trim(self, keep=0, /):
        """Give cached blocks back to the system until at most keep bytes stay; gives the bytes."""
        return tm_trim(self.manager(), _size(keep))

    def raw_statistics(self):
        """Give the fields of tm_statistics by name; gauges as (now, peak, total), all in bytes."""
        cdef tm_statistics counted
        tm_get_statistics(self.manager(), &counted)
        return counted_to_dict(&counted)

    def raw_bucket_statistics(self, unsigned int bucket, /):
        """The same for one bucket, that of the sizes 2**bucket to 2**(bucket + 1) - 1."""
        if bucket >= TM_BUCKETS:
            raise ValueError(f"bucket: expected 0 to {TM_BUCKETS - 1}, got {bucket}")
        cdef tm_statistics counted
        tm_get_bucket_statistics(self.manager(), bucket, &counted)
        return counted_to_dict(&counted)

    def check(self):
        """Walk every structure. Raises AssertionError that names a broken invariant."""
        cdef const char *broken = tm_check(self.manager())
        if broken is not NULL:
            raise AssertionError((<bytes>broken).decode())


def numpy_stop():
    """Serve no further arrays. Those that are live keep their blocks until they are freed."""
    tmi_numpy_serve(NULL)


def numpy_attached(api, /):
    """Tell whether NumPy's default handler holds the table that can serve arrays from a pool."""
    cdef void *found = PyCapsule_GetPointer(_capsule_of(api), _HANDLER)
    return _original is not NULL and found is tmi_numpy_table(_original)
