# Part of _core.pyx: copies between mapped host memory and the device, elements only, attached pointers kept.

cdef size_t _QUIET = 65536  # bytes: below, letting go of the GIL costs more than the copy


cdef int copy(void *to, const void *source, size_t size) except -1:
    if size < _QUIET:
        memcpy(to, source, size)
    else:
        with nogil:
            memcpy(to, source, size)
    return 0


cdef int submit(PresentTable table, uintptr_t target, uintptr_t host, size_t size, object queue) except -1:
    if table.plain and queue is None:
        return copy(<void *>target, <void *>host, size)
    if queue is None:
        table.plugin.submit(table.index, target, host, size)
    else:
        table.plugin.submit(table.index, target, host, size, queue.native)
    return 0


cdef int retrieve(PresentTable table, uintptr_t host, uintptr_t target, size_t size, object queue) except -1:
    if table.plain and queue is None:
        return copy(<void *>host, <void *>target, size)
    if queue is None:
        table.plugin.retrieve(table.index, host, target, size)
    else:
        table.plugin.retrieve(table.index, host, target, size, queue.native)
    return 0


cdef inline int to_device(PresentTable table, Construct *construct, Item *item, Entry *entry) except -1:
    """Copy the item's elements to the device. Before: the entry contains them and is pinned."""
    cdef uintptr_t target = entry.m.target + (item.host - entry.m.host)
    if entry.alias or item.size == 0:
        return 0
    if item.dense and table.plain and construct.queue is NULL and entry.shadows is NULL:
        return copy(<void *>target, <void *>item.host, item.size)
    return to_device_slow(table, construct, item, entry, target)


cdef int to_device_slow(
    PresentTable table, Construct *construct, Item *item, Entry *entry, uintptr_t target
) except -1:
    cdef tm_layout layout
    cdef size_t number, offset
    queue = queue_of(table, construct, item, entry)
    if item.dense or (item.made and not table.plain):
        submit(table, target, item.host, item.size, queue)  # the gaps of new memory hold nothing yet
    elif table.plain and queue is None:
        layout_of(item, &layout)
        with nogil:
            tmi_layout_copy(&layout, <void *>target, <void *>item.host)
    else:
        layout_of(item, &layout)
        for number in range(tmi_layout_pieces(&layout)):
            offset = tmi_layout_offset(&layout, number)
            submit(table, target + offset, item.host + offset, layout.piece, queue)
    for shadow, content in shadows_in(entry, item):
        keep_on(queue, content)
        submit(table, entry.m.target + <uintptr_t>shadow, <uintptr_t><char *>content, len(content), queue)
    return 0 if queue is None else use_on(table, entry, queue)


cdef inline int to_host(PresentTable table, Construct *construct, Item *item, Entry *entry) except -1:
    """Copy the item's elements back, nothing in the gaps between them. Before: as for to_device."""
    cdef uintptr_t target = entry.m.target + (item.host - entry.m.host)
    if entry.alias or item.size == 0:
        return 0
    if item.dense and table.plain and construct.queue is NULL and entry.shadows is NULL:
        return copy(<void *>item.host, <void *>target, item.size)
    return to_host_slow(table, construct, item, entry, target)


cdef int to_host_slow(
    PresentTable table, Construct *construct, Item *item, Entry *entry, uintptr_t target
) except -1:
    cdef Scatter scatter = Scatter.__new__(Scatter)
    cdef uintptr_t staged
    queue = queue_of(table, construct, item, entry)
    scatter.save_pointers(entry, item)
    if not item.dense:
        layout_of(item, &scatter.layout)
        scatter.host = item.host
    if item.dense:
        retrieve(table, item.host, target, item.size, queue)
    elif table.plain and queue is None:
        with nogil:
            tmi_layout_copy(&scatter.layout, <void *>item.host, <void *>target)
    else:
        scatter.staging = bytearray(item.size)
        staged = <uintptr_t><char *>scatter.staging
        retrieve(table, staged, target, item.size, queue)
    if queue is None:
        scatter()
        return 0
    queue.defer(scatter)
    return use_on(table, entry, queue)


cdef class Scatter:
    """What is left to do on the host when bytes have come back: spread them, restore attached pointers."""

    cdef tm_layout layout
    cdef uintptr_t host
    cdef bytearray staging
    cdef list pointers

    cdef save_pointers(self, Entry *entry, Item *item):
        cdef uintptr_t at
        for offset, content in shadows_in(entry, item):
            at = entry.m.host + <uintptr_t>offset
            self.pointers = self.pointers or []
            self.pointers.append((at, (<char *>at)[:len(content)]))

    def __call__(self):
        cdef uintptr_t at
        cdef bytes content
        if self.staging is not None:
            tmi_layout_copy(&self.layout, <void *>self.host, <char *>self.staging)
        for at, content in self.pointers or ():
            memcpy(<void *>at, <char *>content, len(content))


cdef list shadows_in(Entry *entry, Item *item):
    """Give offset and device bytes of the pointers attached in the item's range."""
    cdef size_t low = item.host - entry.m.host
    if entry.shadows is NULL:
        return []
    return [
        (offset, content)
        for offset, content in (<dict>entry.shadows).items()
        if offset >= low and offset + len(content) <= low + item.size
    ]


cdef object queue_of(PresentTable table, Construct *construct, Item *item, Entry *entry):
    """Give the construct's queue, or None; the queue then keeps the host's memory and uses the entry.

    Once the work is given to the queue, it must be told of the entry again: another thread may have
    synchronised it meanwhile.
    """
    if construct.queue is NULL:
        return None
    queue = <object>construct.queue
    if item.view.obj is not NULL:
        keep_on(queue, <object>item.view.obj)
    use_on(table, entry, queue)
    return queue


cdef keep_on(object queue, object used):
    """Have a queue hold memory where it is, if there is a queue."""
    if queue is not None:
        try:
            queue.keep(memoryview(used))  # which also keeps a bytearray from being resized
        except ValueError:
            queue.keep(used)  # NumPy's dates and the like have no such view


cdef layout_of(Item *item, tm_layout *layout):
    tmi_layout_make(layout, item.view.ndim, item.view.shape, item.view.strides, item.view.itemsize)
