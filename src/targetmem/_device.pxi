# The one hot method of `targetmem.Device`. Part of _core.pyx.


cdef inline Buffer take(ManagerCore manager, object size):
    """Obtain size bytes: a cached block if there is one, else the long way."""
    cdef size_t wanted = _size(size)
    cdef tm_block *block = tm_pop(manager.handle, wanted, TM_OWNED)
    if block is not NULL:
        return manager.new_buffer(block, tm_block_address(block), wanted)
    return manager.allocate_slow(wanted, 0)


cdef class Wrapping:
    """A callable that obtains size bytes from a manager and gives what `wrap` makes of the Buffer."""

    def __init__(self, ManagerCore source not None, wrap):
        self.source, self.wrap = source, wrap

    def __call__(self, size):
        return self.wrap(take(self.source, size))


cdef class DeviceCore:
    """A device's way to memory: a request without wishes goes straight to the manager `first`, once set."""

    def allocate(self, size, /, *, kind=None, alignment=None):
        """Obtain size bytes as a Buffer that gives them back when it is released or dropped.

        kind is "device" (the default), "host" or "shared"; alignment a power of two in bytes. Contents are
        not cleared; 0 bytes give an empty buffer. Raises OutOfDeviceMemory, PluginError, NotSupported for a
        kind that the device lacks, ValueError for a negative size or an alignment that is no power of two.
        """
        if kind is None and alignment is None and self.first is not None:
            return take(self.first, size)
        return self._allocate(size, kind, alignment)

    def _allocate(self, size, kind, alignment):
        raise NotImplementedError
