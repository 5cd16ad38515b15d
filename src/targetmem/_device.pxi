# The hot methods of `targetmem.Device`. Part of _core.pyx.


cdef inline Buffer take(ManagerCore manager, object size):
    """Obtain size bytes: a cached block if there is one, else the long way."""
    cdef size_t wanted = _size(size)
    cdef tm_block *block = tm_pop(manager.handle, wanted, TM_OWNED)
    if block is not NULL:
        return manager.new_buffer(block, tm_block_address(block), wanted)
    return manager.allocate_slow(wanted, 0)


cdef class DeviceCore:
    """A device's way to memory and mapped data: the manager `first` and the present table, once set."""

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

    def enter(self, *, to=(), alloc=(), bint always=False, bint present=False, bint close=False,
              bint hold=False, bint implicit=False, queue=None):
        """Map host memory to the device: `to` copies it there, `alloc` leaves the device's memory as it is.

        Each is one array, or a list or tuple of them: NumPy arrays, strided views too, and everything else
        with the buffer protocol. What is mapped already is counted once more and not copied, unless `always`.
        `present`: it must be mapped already. `close`: memory of the device even if it reaches the host's.
        `hold`: count in the hold count, which only `exit(..., hold=True)` takes from. `implicit`: memory of
        which a part is mapped counts as mapped. On a `queue` the copies are done when it is synchronised.

        All or nothing: an error undoes what the call did. Raises MappingError (a part is mapped; not present;
        Python objects), TypeError (no array), OutOfDeviceMemory, PluginError, DeviceClosed; all of them say
        which argument. Semantics: OpenMP 5.2, target enter data.
        """
        cdef Construct construct
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        cdef unsigned int flags = (
            always * ALWAYS | present * PRESENT | close * CLOSE | hold * HOLD | implicit * IMPLICIT
        )
        begin(table, &construct, b"enter", flags, queue)
        try:
            add(&construct, to, b"to", TO)
            add(&construct, alloc, b"alloc", 0)
            enter_all(table, &construct)
        finally:
            end(table, &construct)

    def exit(self, *, from_=(), release=(), delete=(), bint always=False, bint present=False, bint hold=False,
             bint implicit=False, queue=None):
        """End what `enter` began: `from_` copies back when the count drops to 0, `release` does not.

        `always` copies back at each exit; `delete` takes everything from the count. With nothing left in both
        counts the device's memory is given back; on a `queue` that is done when it is synchronised. What is
        not mapped is passed over, unless `present`. The arguments are treated last to first. All or nothing,
        and raises, as for `enter`; a host
        array that `from_` can't write is a MappingError. Semantics: OpenMP 5.2, target exit data.
        """
        cdef Construct construct
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        cdef unsigned int flags = always * ALWAYS | present * PRESENT | hold * HOLD | implicit * IMPLICIT
        begin(table, &construct, b"exit", flags, queue)
        try:
            add(&construct, from_, b"from_", FROM)
            add(&construct, release, b"release", 0)
            add(&construct, delete, b"delete", DELETE)
            exit_all(table, &construct)
        finally:
            end(table, &construct)

    def update(self, *, to=(), from_=(), bint present=False, queue=None):
        """Copy mapped memory `to` the device or `from_` it, whatever its counts, which stay as they are.

        Of a strided view only the elements are written. What is not mapped as a whole is passed over, or an
        error with `present`. Raises as for `enter`. Semantics: OpenMP 5.2, target update.
        """
        cdef Construct construct
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        begin(table, &construct, b"update", present * PRESENT, queue)
        try:
            add(&construct, to, b"to", TO)
            add(&construct, from_, b"from_", FROM)
            update_all(table, &construct)
        finally:
            end(table, &construct)

    def mapped_pointer(self, array, /):
        """Give the target address of a mapped array, or of a host address in one: OpenMP's use_device_ptr.

        With unified memory that of memory that isn't mapped is its own. Raises MappingError when it is not
        mapped, or not as a whole.
        """
        return target_of(self.table if self.table is not None else self._open_table(), array, None,
                         b"mapped_pointer", True)

    def mapped_pointer_on(self, array, queue, /):
        """Give the target address of a mapped array for work on a queue (None: on none), which uses it then.

        To be called before the work is given to the queue, and again behind that: the queue may have been
        synchronised meanwhile. Raises as `mapped_pointer` does.
        """
        return target_of(self.table if self.table is not None else self._open_table(), array, queue,
                         b"mapped_pointer", True)

    def is_present(self, array, /):
        """Tell whether an array is mapped as a whole, or the byte at a host address is."""
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        cdef Construct construct
        begin(table, &construct, b"is_present", 0, None)
        try:
            return find_entry(table, &construct, array) is not NULL
        finally:
            end(table, &construct)

    def associate(self, array, memory, /, offset=0):
        """Map an array to memory that the caller keeps on the device: a Buffer, or an address; offset: bytes.

        Its count is infinite: `exit` does not end it, `disassociate` does. Again with the same memory does
        nothing. Raises MappingError when a part of the array is mapped already, or the Buffer is too small.
        """
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        associate_entry(table, array, memory, _size(offset))

    def disassociate(self, array, /):
        """End what `associate` began; the memory stays the caller's. An array, or its first byte's address.

        Raises MappingError when it is not associated, or held.
        """
        disassociate_entry(self.table if self.table is not None else self._open_table(), array)

    def _attach(self, structure, size_t offset, pointee):
        cdef PresentTable table = self.table if self.table is not None else self._open_table()
        attach_pointer(table, structure, offset, pointee)

    def _open_table(self):
        raise NotImplementedError
