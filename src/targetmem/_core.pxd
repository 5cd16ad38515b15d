"""The C core as Cython sees it: the public header, and the few inner calls that save a look-up."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t


cdef extern from "targetmem.h" nogil:
    ctypedef struct tm_manager:
        pass
    ctypedef enum tm_status:
        TM_OK
        TM_INVALID_FREE
    ctypedef enum tm_reason:
        TM_REASON_NONE
    ctypedef struct tm_error:
        tm_status status
        tm_reason reason
        int native
        uintptr_t address
        size_t size
        uintptr_t hit_address
        size_t hit_size
    ctypedef struct tm_backend:
        uint32_t version
        uint32_t flags
        size_t min_alignment
        void *context
        int (*allocate)(void *, size_t, size_t, void **) noexcept nogil
        int (*release)(void *, void *, size_t) noexcept nogil
        int (*memory_info)(void *, size_t *, size_t *) noexcept nogil
    ctypedef struct tm_options:
        uint32_t version
        uint32_t flags
        const char *policy
        size_t threshold
        size_t cached_limit
        uintptr_t device
        int (*pressure)(void *, size_t, unsigned int) noexcept nogil
        void *pressure_context
    ctypedef struct tm_gauge:
        uint64_t now
        uint64_t peak
        uint64_t total
    ctypedef struct tm_statistics:
        tm_gauge requested
        tm_gauge live
        tm_gauge cached
        tm_gauge held
        uint64_t allocations
        uint64_t hits
        uint64_t misses
        uint64_t frees
        uint64_t direct
        uint64_t device_allocations
        uint64_t device_releases
        uint64_t device_failures
        uint64_t device_nanoseconds
        uint64_t reclaims
        uint64_t reclaimed_bytes
        uint64_t trims
        uint64_t trimmed_bytes
        uint64_t padding_bytes
        uint64_t live_blocks
        uint64_t cached_blocks
        uint64_t largest_free_block
    ctypedef struct tm_block_info:
        uintptr_t address
        size_t size
        size_t requested
        uint32_t tag
        int live
        int direct
        int owned
    const uint32_t TM_ABI_VERSION
    const uint32_t TM_BUCKETS
    const uint32_t TM_BACKEND_ALIGNS
    const uint32_t TM_BACKEND_FORK_SAFE
    const uint32_t TM_BACKEND_HOST_ACCESSIBLE
    const uint32_t TM_BACKEND_PLAIN_COPIES
    const uint32_t TM_OPTION_NO_THREAD_CACHE
    const size_t TM_UNLIMITED
    tm_status tm_manager_create(const tm_backend *, const tm_options *, tm_manager **)
    tm_status tm_manager_close(tm_manager *)
    void tm_manager_destroy(tm_manager *)
    size_t tm_trim(tm_manager *, size_t)
    void tm_get_statistics(tm_manager *, tm_statistics *)
    void tm_get_bucket_statistics(tm_manager *, unsigned int, tm_statistics *)
    void tm_reset_peaks(tm_manager *)
    int tm_find_block(tm_manager *, const void *, tm_block_info *)
    size_t tm_list_blocks(tm_manager *, uintptr_t, tm_block_info *, size_t)
    uint32_t tm_set_tag(uint32_t)
    void tm_last_error(tm_error *)
    const char *tm_reason_text(tm_reason)
    const char *tm_check(tm_manager *)
    const tm_backend *tm_host_backend()


cdef extern from "manager.h" nogil:
    ctypedef struct tm_block:
        pass
    const unsigned int TM_OWNED
    const size_t TM_SIZE_UNKNOWN
    tm_block *tm_pop(tm_manager *, size_t, unsigned int)
    void *tm_block_address(tm_block *)
    tm_block *tm_block_at(tm_manager *, void *)
    bint tm_push_owned(tm_manager *, tm_block *)
    void *tmi_allocate(tm_manager *, size_t, size_t, unsigned int, bint *)
    tm_status tmi_free(tm_manager *, void *, unsigned int, size_t)
    void tmi_disown(tm_manager *, void *)


cdef extern from "present.h" nogil:
    ctypedef enum tm_mapping_state:
        TM_READY
        TM_ENTERING
        TM_LEAVING
        TM_GONE
    ctypedef enum tm_overlap:
        TM_ABSENT
        TM_CONTAINED
        TM_EXTENDS_BEFORE
        TM_EXTENDS_AFTER
    ctypedef struct tm_mapping:
        uintptr_t host
        uintptr_t end
        uintptr_t target
        size_t dynamic
        size_t hold
        tm_mapping_state state
        unsigned int users
        uint64_t construct
        uint64_t thread
    ctypedef struct tm_present:
        size_t count
        size_t bytes
    const size_t TM_INFINITE
    tm_overlap tmi_present_find(const tm_present *, uintptr_t, size_t, tm_mapping **)
    tm_mapping *tmi_present_at(const tm_present *, uintptr_t)
    bint tmi_present_insert(tm_present *, tm_mapping *)
    void tmi_present_remove(tm_present *, tm_mapping *)
    tm_mapping *tmi_present_next(const tm_present *, uintptr_t)
    void tmi_present_destroy(tm_present *)
    const char *tmi_present_check(const tm_present *)
    bint tm_mapping_counted(const tm_mapping *)
    void tm_mapping_add(tm_mapping *, bint, size_t)
    size_t tm_mapping_take(tm_mapping *, bint, bint)


cdef extern from "layout.h" nogil:
    const int TM_DIMENSIONS
    ctypedef struct tm_layout:
        Py_ssize_t lowest
        size_t span
        size_t piece
        unsigned int dimensions
    void tmi_layout_make(tm_layout *, int, const Py_ssize_t *, const Py_ssize_t *, size_t)
    size_t tmi_layout_pieces(const tm_layout *)
    size_t tmi_layout_offset(const tm_layout *, size_t)
    void tmi_layout_copy(const tm_layout *, void *, const void *)
cdef extern from "rectangle.h" nogil:
    ctypedef struct tm_rectangle:
        size_t piece
        size_t pieces
        size_t to_end
        size_t from_end
    ctypedef struct tm_side:
        const size_t *offsets
        const size_t *dimensions
    const char *tmi_rectangle_make(tm_rectangle *, size_t, size_t, const size_t *, tm_side, tm_side)
    void tmi_rectangle_copy(const tm_rectangle *, void *, const void *)
    void tmi_rectangle_piece(const tm_rectangle *, size_t, size_t *, size_t *)


cdef class Backend:
    cdef tm_backend table
    cdef object allocate, release, info  # the Python callables, if there are any


cdef class ManagerCore:
    cdef tm_manager *handle
    cdef readonly Backend backend
    cdef readonly str policy
    cdef readonly str kind
    cdef readonly size_t threshold
    cdef readonly object cached_limit
    cdef readonly bint closed
    cdef public object owner
    cdef tm_manager *ready(self) except NULL
    cdef Buffer new_buffer(self, tm_block *block, void *address, size_t size)
    cdef Buffer allocate_slow(self, size_t size, size_t alignment)
    cdef object failure(self)


cdef class Buffer:
    cdef readonly ManagerCore manager
    cdef tm_block *block
    cdef void *address
    cdef Py_ssize_t bytes
    cdef Py_ssize_t exports
    cdef give_back(self, ManagerCore manager, size)
    cdef bint hand_over(self)
    cdef void *host_address(self) except? NULL


cdef class Lease:
    cdef Wrapping source  # None while the block is free, or has another owner
    cdef tm_block *block
    cdef void *address
    cdef Py_ssize_t bytes
    cdef give_back(self)


cdef class Wrappers:
    cdef PyObject *kept[4096]  # each a reference; PLACES


cdef class Wrapping:
    cdef readonly ManagerCore source
    cdef object make
    cdef Wrappers wrappers
    cdef wrap(self, Buffer buffer)


cdef class DeviceCore:
    cdef public ManagerCore first
    cdef public PresentTable table


cdef class PresentTable:
    cdef tm_present present
    cdef readonly ManagerCore manager
    cdef readonly object device
    cdef object plugin
    cdef int index
    cdef bint plain       # transfers are the host's own copies
    cdef public bint unified
    cdef readonly bint closed
    cdef uint64_t constructs
    cdef size_t inside    # constructs under way
    cdef object left      # set when the last one ends, once somebody waits for that
