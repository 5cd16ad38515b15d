"""The OpenMP device memory routines by their standard names, over the devices of all plugins.

    from targetmem import omp

    pointer = omp.omp_target_alloc(1024, omp.omp_get_default_device())
    omp.omp_target_memcpy(pointer, array, 1024, 0, 0, 0, omp.omp_get_initial_device())
    omp.omp_target_free(pointer)

A device number is a place in `targetmem.devices()`; the host as initial device has the number after the
last, and -1. A pointer is an int; a host pointer can also be an array (anything with the buffer protocol), a
target pointer a `Buffer`, whose sizes are then checked. Routines give the standard's codes (0: success) or
null as None, and `last_error()` says why; a wrong type, device number or free is an exception.
"""

from targetmem.omp.copies import omp_target_memcpy, omp_target_memcpy_rect
from targetmem.omp.mapping import (
    omp_get_mapped_ptr,
    omp_target_associate_ptr,
    omp_target_disassociate_ptr,
    omp_target_is_accessible,
    omp_target_is_present,
)
from targetmem.omp.memory import (
    omp_target_alloc,
    omp_target_alloc_device,
    omp_target_alloc_host,
    omp_target_alloc_shared,
    omp_target_free,
    omp_target_memset,
)
from targetmem.omp.numbering import (
    omp_get_default_device,
    omp_get_initial_device,
    omp_get_num_devices,
    omp_initial_device,
    omp_invalid_device,
    omp_set_default_device,
)
from targetmem.omp.outcome import last_error
from targetmem.omp.tasks import (
    Depend,
    omp_target_memcpy_async,
    omp_target_memcpy_rect_async,
    omp_target_memset_async,
    taskwait,
)

__all__ = [
    "Depend",
    "last_error",
    "omp_get_default_device",
    "omp_get_initial_device",
    "omp_get_mapped_ptr",
    "omp_get_num_devices",
    "omp_initial_device",
    "omp_invalid_device",
    "omp_set_default_device",
    "omp_target_alloc",
    "omp_target_alloc_device",
    "omp_target_alloc_host",
    "omp_target_alloc_shared",
    "omp_target_associate_ptr",
    "omp_target_disassociate_ptr",
    "omp_target_free",
    "omp_target_is_accessible",
    "omp_target_is_present",
    "omp_target_memcpy",
    "omp_target_memcpy_async",
    "omp_target_memcpy_rect",
    "omp_target_memcpy_rect_async",
    "omp_target_memset",
    "omp_target_memset_async",
    "taskwait",
]
