# Part of _core.pyx: what one construct is asked for, and the memory that its caller names.

cdef enum:  # what one construct, or one of its items, asks for
    ALWAYS = 1
    PRESENT = 2
    CLOSE = 4
    HOLD = 8
    IMPLICIT = 16
    TO = 32
    FROM = 64
    DELETE = 128

cdef struct Item:
    const char *clause
    Py_ssize_t position   # in the clause's list; -1: the clause has just this one
    unsigned int what     # TO, FROM, DELETE
    HostView view        # obj null: not held, or the entry holds it
    uintptr_t host        # the lowest byte of the elements
    size_t size           # from there to the end of the highest
    Entry *entry          # that it works on, pinned; null: none
    size_t counted        # how much it changed the entry's count, to be undone
    bint dense            # no gaps between the elements
    bint made             # the entry is new

cdef enum:
    FEW = 2

cdef struct Construct:
    const char *method
    unsigned int flags
    PyObject *queue       # borrowed; null: none
    uint64_t number
    Item *items
    Py_ssize_t count, room
    Item few[FEW]


# --- items: the memory that a caller names ---------------------------------------------------------------


cdef object name_of(Construct *construct, Item *item):
    """Name an argument in an error: "enter: to[1]"."""
    place = "" if item.position < 0 else f"[{item.position}]"
    return f"{construct.method.decode()}: {item.clause.decode()}{place}"


cdef object wrong(Construct *construct, Item *item, str text):
    return mapping_error(f"{name_of(construct, item)}: {text}")


cdef Item *next_item(Construct *construct) except NULL:
    """Give room for one more item."""
    cdef Item *more
    if construct.count == construct.room:
        more = <Item *>malloc(2 * construct.room * sizeof(Item))
        if more is NULL:
            raise MemoryError(f"{construct.method.decode()}: no host memory for a list of arguments")
        memcpy(more, construct.items, construct.count * sizeof(Item))
        if construct.items is not construct.few:
            free(construct.items)
        construct.items = more
        construct.room *= 2
    return &construct.items[construct.count]


cdef bint has_objects(const char *format) noexcept:
    """Tell whether a buffer's format has Python objects in it; names stand between colons."""
    cdef bint name = False
    while format[0]:
        if format[0] == b":":
            name = not name
        elif format[0] == b"O" and not name:
            return True
        format += 1
    return False


cdef int get_view(Construct *construct, object thing, Item *item) except -1:
    """Get hold of an argument's memory. Raises TypeError or MappingError for what has none to copy."""
    cdef int flags = PyBUF_STRIDES | (PyBUF_WRITABLE if item.what & FROM else 0)
    cdef bint objects
    item.view.obj = NULL
    if not PyObject_CheckBuffer(thing):
        kind = type(thing).__name__
        name = name_of(construct, item)
        raise TypeError(f"{name}: expected an array (anything with the buffer protocol), got {kind}")
    try:
        get_buffer(thing, &item.view, flags | PyBUF_FORMAT)
        objects = item.view.format is not NULL and has_objects(item.view.format)
    except (BufferError, ValueError):
        objects = bool(getattr(getattr(thing, "dtype", None), "hasobject", False))
        if not objects:
            get_view_without_format(construct, thing, item, flags)
    if objects:
        release_buffer(&item.view)
        raise wrong(construct, item, "expected numbers or bytes, got Python objects, which no device can use")
    return 0


cdef int get_view_without_format(Construct *construct, object thing, Item *item, int flags) except -1:
    """Get hold of memory whose elements the buffer protocol has no format for, like NumPy's dates."""
    try:
        get_buffer(thing, &item.view, flags)
    except (BufferError, ValueError) as error:
        wanted = "memory that the host can write" if item.what & FROM else "memory that the host can read"
        raise wrong(construct, item, f"expected {wanted}, got a {type(thing).__name__}: {error}") from error
    return 0


cdef int measure(Item *item) except -1:
    """Find the range of an item's elements, and whether it has gaps."""
    cdef tm_layout layout
    item.host, item.size, item.dense = <uintptr_t>item.view.buf, item.view.len, True
    if item.view.len and not is_contiguous(&item.view, b"C"):
        layout_of(item, &layout)
        item.host += layout.lowest
        item.size, item.dense = layout.span, layout.dimensions == 0
    return 0


cdef int add_item(
    Construct *construct, object thing, const char *clause, unsigned int what, Py_ssize_t position
) except -1:
    cdef Item *item = next_item(construct)
    item.clause, item.position, item.what = clause, position, what
    item.entry, item.counted, item.made = NULL, 0, False
    get_view(construct, thing, item)
    construct.count += 1  # from here on the view is the construct's to release
    return measure(item)


cdef inline int add(Construct *construct, object things, const char *clause, unsigned int what) except -1:
    """Add what a clause names: one thing, or a list or tuple of things."""
    cdef Py_ssize_t position = 0
    if not isinstance(things, (list, tuple)):
        return add_item(construct, things, clause, what, -1)
    for thing in things:
        add_item(construct, thing, clause, what, position)
        position += 1
    return 0


# --- begin and end ---------------------------------------------------------------------------------------


cdef inline int begin(
    PresentTable table, Construct *construct, const char *method, unsigned int flags, object queue
) except -1:
    if queue is not None:
        queue.check(table.device)
    if table.closed:
        with table.device._gate:
            raise RuntimeError(f"{table.device.name}: the present table is closed")
    table.inside += 1
    table.constructs += 1
    construct.number = table.constructs
    construct.method, construct.flags = method, flags
    construct.queue = NULL if queue is None else <PyObject *>queue
    construct.items, construct.count, construct.room = construct.few, 0, FEW
    return 0


cdef inline int end(PresentTable table, Construct *construct) except -1:
    cdef Py_ssize_t i
    for i in range(construct.count):
        if construct.items[i].view.obj is not NULL:
            release_buffer(&construct.items[i].view)
    if construct.items is not construct.few:
        free(construct.items)
    table.inside -= 1
    if table.inside == 0 and table.left is not None:
        table.left.set()
    return 0


cdef object blame(Construct *construct, Item *item, object error):
    """Have an error say which argument it came from."""
    if type(error).__name__ != "MappingError":
        error.add_note(f"targetmem: {name_of(construct, item)}")


cdef tm_overlap look_up(
    PresentTable table, Construct *construct, Item *item, bint entering
) except? TM_ABSENT:
    """Find what an item's range meets, once nobody else is at work on that; item.entry is the entry, or null.

    An entry that is LEAVING is given to a construct that exits only if it is the very one that let go of it,
    and to one that enters only if the wait for its end is a wait for the construct's own queue.
    """
    cdef tm_mapping *mapping = NULL
    cdef Entry *entry
    cdef tm_overlap overlap
    while True:
        item.entry = NULL
        overlap = tmi_present_find(&table.present, item.host, item.size, &mapping)
        if overlap == TM_ABSENT:
            return overlap
        entry = <Entry *>mapping
        if mapping.state == TM_ENTERING:
            wait(entry)
        elif not settle(entry, construct.queue):
            pass
        elif mapping.state == TM_READY:
            break
        elif entering and entry.queue is NULL:
            wait(entry)
        elif entering or mapping.construct == construct.number:
            break
        else:
            return TM_ABSENT
    item.entry = entry
    return overlap


cdef object overlap_error(Construct *construct, Item *item):
    cdef Entry *entry = item.entry
    item.entry = NULL
    also = "; it is not present as a whole" if construct.flags & PRESENT else ""
    return wrong(construct, item, (
        f"expected memory that is mapped as a whole or not at all, got {span_text(item.host, item.size)}, "
        f"of which a part is mapped: {span_of(entry)}{also}: map the larger range first"
    ))


cdef object absent_error(Construct *construct, Item *item):
    return wrong(construct, item, (
        f"expected memory that is present on the device, got {span_text(item.host, item.size)}, "
        f"which is not mapped: device.enter(to=[...]) maps it"
    ))
