# Part of _core.pyx: the present table of a device; its entries, who works on them, and their end.
#
# The GIL guards the table. What may let it go, so that other threads or a finaliser change the table
# meanwhile: anything that runs Python, an allocation, a copy. Around those an entry is pinned: `users` keeps
# its memory on the device, `references` the record itself. Nobody waits for another thread while one might
# wait for him: an entry is ENTERING only while its own memory is obtained and its own first copy made.

cdef struct Entry:
    tm_mapping m         # first: the table knows only this part
    size_t references    # the table, and who waits for the entry
    tm_block *block      # its memory on the device; null: it is the host's own, or the user's
    HostView view       # keeps the host's memory where it is; obj null when only an address was given
    PyObject *memory     # associated: what keeps the target's memory
    PyObject *queue      # work on this queue uses the entry
    PyObject *event      # set when the entry is ready or gone, once somebody waits for that
    PyObject *shadows    # {offset: the bytes on the device} of attached pointers
    bint alias           # the device uses the host's own memory
    uint64_t forks       # how often the process had been forked when it was made


cdef uint64_t _forks = 0


def _count_fork():
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


cdef Entry *new_entry(uintptr_t host, size_t size) except NULL:
    cdef Entry *entry = <Entry *>calloc(1, sizeof(Entry))
    if entry is NULL:
        raise MemoryError("present table: no host memory for an entry")
    entry.m.host, entry.m.end = host, host + size
    entry.references = 1
    entry.forks = _forks
    return entry


cdef drop_reference(Entry *entry):
    """Let go of the record; its last holder drops what it keeps. Runs finalisers."""
    entry.references -= 1
    if entry.references == 0:
        if entry.view.obj is not NULL:
            release_buffer(&entry.view)
        if entry.memory is not NULL or entry.queue is not NULL or entry.event is not NULL or (
            entry.shadows is not NULL
        ):
            Py_CLEAR(entry.memory)
            Py_CLEAR(entry.queue)
            Py_CLEAR(entry.event)
            Py_CLEAR(entry.shadows)
        free(entry)


cdef int wake(Entry *entry) except -1:
    """Tell those who wait that the entry's state has changed."""
    cdef object event
    if entry.event is not NULL:
        event = <object>entry.event
        Py_CLEAR(entry.event)
        event.set()
    return 0


cdef int wait(Entry *entry) except -1:
    """Wait until an entry is ready or gone. Raises MappingError when that can't come."""
    if entry.m.thread == PyThread_get_thread_ident():
        text = f"{span_of(entry)} is being mapped by the very call that led here: do it afterwards"
        raise mapping_error(text)
    if entry.forks != _forks:
        raise mapping_error(f"{span_of(entry)} was being mapped by the parent when this process was forked")
    entry.references += 1
    try:
        event = Event()
        if entry.m.state != TM_ENTERING and entry.m.state != TM_LEAVING:
            return 0  # making the event took long enough
        if entry.event is NULL:
            Py_INCREF(event)
            entry.event = <PyObject *>event
        (<object>entry.event).wait()
    finally:
        drop_reference(entry)
    return 0


cdef int obtain(PresentTable table, Entry *entry) except -1:
    """Obtain the entry's memory on the device. Raises what `Device.allocate` does."""
    cdef tm_manager *handle = table.manager.handle
    cdef size_t size = entry.m.end - entry.m.host
    cdef void *address
    cdef bint fresh
    cdef tm_block *block = tm_pop(handle, size, TM_OWNED)
    if block is NULL:
        with nogil:
            address = tmi_allocate(handle, size, 0, TM_OWNED, &fresh)
        if address is NULL:
            raise table.manager.failure()
        block = tm_block_at(handle, address)
        entry.block, entry.m.target = block, <uintptr_t>address
        return raise_interruption()
    entry.block, entry.m.target = block, <uintptr_t>tm_block_address(block)
    return 0


cdef int give_back(PresentTable table, Entry *entry) except -1:
    """Give the entry's memory on the device back to the manager."""
    cdef tm_block *block = entry.block
    cdef tm_manager *handle = table.manager.handle
    cdef void *address = <void *>entry.m.target
    cdef tm_status status
    entry.block = NULL
    if block is NULL or tm_push_owned(handle, block):
        return 0
    with nogil:
        status = tmi_free(handle, address, TM_OWNED, TM_SIZE_UNKNOWN)
    if status != TM_OK:
        raise table.manager.failure()
    return raise_interruption()


cdef int remove(PresentTable table, Entry *entry) except -1:
    """Take an entry out of the table and give its memory back."""
    tmi_present_remove(&table.present, &entry.m)
    try:
        wake(entry)
        give_back(table, entry)
    finally:
        drop_reference(entry)
    return 0


cdef inline int leave(PresentTable table, Entry *entry) except -1:
    """End one use of an entry; the last user removes it when nothing counts it any more."""
    entry.m.users -= 1
    if entry.m.state == TM_LEAVING:
        if entry.m.users == 0:
            return remove(table, entry)
        entry.m.thread = 0  # the last user's affair
    return 0


cdef object mapping_error(str text):
    from targetmem.errors import MappingError

    return MappingError(text)


cdef str span_text(uintptr_t host, size_t size):
    return f"{size} bytes at {host:#x}"


cdef str span_of(Entry *entry):
    return span_text(entry.m.host, entry.m.end - entry.m.host)


cdef class QueueUse:
    """The use that a queue makes of an entry, until it is synchronised: then called, once."""

    cdef PresentTable table
    cdef Entry *entry
    cdef object queue

    def __call__(self):
        cdef Entry *entry = self.entry
        if entry is NULL:
            return
        self.entry = NULL
        if entry.queue is <PyObject *>self.queue:
            Py_CLEAR(entry.queue)
        try:
            if entry.m.state != TM_GONE:
                leave(self.table, entry)
        finally:
            drop_reference(entry)


cdef int use_on(PresentTable table, Entry *entry, object queue) except -1:
    """Note that work on a queue uses the entry. Before: no other queue does."""
    cdef QueueUse use
    if entry.queue is <PyObject *>queue:
        return 0
    use = QueueUse.__new__(QueueUse)
    use.table, use.queue, use.entry = table, queue, entry
    entry.references += 1
    entry.m.users += 1
    Py_INCREF(queue)
    entry.queue = <PyObject *>queue
    try:
        queue.defer(use)  # another thread may synchronise the queue as soon as this is done
    except BaseException:
        use()
        raise
    return 0


cdef bint settle(Entry *entry, PyObject *queue) except -1:
    """Have what other queues do with the entry done. False: that took time, so look the entry up again."""
    if entry.queue is NULL or entry.queue is queue:
        return True
    (<object>entry.queue).synchronize()
    return False


@cython.no_gc_clear
cdef class PresentTable:
    """What of the host's memory is mapped to one device, and where to. `Device.enter` and the like use it.

    `manager` is where the memory comes from. Raises DeviceClosed after its device was closed.
    """

    def __init__(self, device, ManagerCore manager not None):
        self.device, self.manager, self.plugin, self.index = device, manager, device.plugin, device.index
        self.plain = bool(manager.backend.table.flags & TM_BACKEND_PLAIN_COPIES)

    def __dealloc__(self):
        if self.present.count:
            forget(self)
        tmi_present_destroy(&self.present)

    @property
    def ranges(self):
        """How many ranges are mapped."""
        return self.present.count

    @property
    def bytes(self):
        """How many bytes of the host's memory are mapped."""
        return self.present.bytes

    def entries(self):
        """List the mapped ranges by host address: (host, target, bytes, dynamic, hold, kind of memory).

        An infinite count is None; the memory is "device", "host" (an alias) or "associated".
        """
        cdef tm_mapping *mapping = tmi_present_next(&self.present, 0)
        cdef Entry *entry
        found = []
        while mapping is not NULL:
            entry = <Entry *>mapping
            if mapping.state != TM_LEAVING:
                memory = "host" if entry.alias else "device" if entry.block is not NULL else "associated"
                found.append((
                    mapping.host,
                    mapping.target,
                    mapping.end - mapping.host,
                    None if mapping.dynamic == TM_INFINITE else mapping.dynamic,
                    mapping.hold,
                    memory,
                ))
            mapping = tmi_present_next(&self.present, mapping.end)
        return found

    def check(self):
        """Walk the table; raises AssertionError with the broken invariant. For tests."""
        cdef const char *broken = tmi_present_check(&self.present)
        if broken is not NULL:
            raise AssertionError(broken.decode())

    def close(self):
        """Refuse everything, wait for the constructs under way, and give all memory back. Idempotent."""
        self.closed = True
        while self.inside:
            self.left = self.left or Event()
            if self.inside:
                self.left.wait()
        cdef tm_mapping *mapping = tmi_present_next(&self.present, 0)
        failed = None
        while mapping is not NULL:
            try:
                remove(self, <Entry *>mapping)
            except Exception as error:
                failed = failed or error
            mapping = tmi_present_next(&self.present, 0)
        if failed is not None:
            raise failed

    def disown(self):
        """Refuse everything: the table belongs to the parent of this forked process."""
        self.closed = True


cdef forget(PresentTable table):
    """Drop the entries of a table that nobody closed; its manager gives the memory back."""
    cdef tm_mapping *mapping = tmi_present_next(&table.present, 0)
    while mapping is not NULL:
        tmi_present_remove(&table.present, mapping)
        drop_reference(<Entry *>mapping)
        mapping = tmi_present_next(&table.present, 0)
