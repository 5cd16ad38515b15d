# Part of _core.pyx: the constructs that enter, exit and update mapped data, all or nothing.

# --- enter -----------------------------------------------------------------------------------------------


cdef int enter_item(PresentTable table, Construct *construct, Item *item) except -1:
    cdef tm_overlap overlap = look_up(table, construct, item, True)
    if overlap == TM_CONTAINED or (overlap != TM_ABSENT and construct.flags & IMPLICIT):
        return reuse(table, construct, item, item.entry, overlap)
    if overlap != TM_ABSENT:
        raise overlap_error(construct, item)
    if construct.flags & PRESENT and not table.unified:
        raise absent_error(construct, item)
    return make(table, construct, item) if item.size else 0


cdef int reuse(
    PresentTable table, Construct *construct, Item *item, Entry *entry, tm_overlap overlap
) except -1:
    """Count an entry once more. One that was leaving on this construct's queue is as good as new."""
    cdef bint fresh = entry.m.state == TM_LEAVING or entry.m.construct == construct.number
    entry.m.users += 1
    if entry.m.state == TM_LEAVING:
        entry.m.state, entry.m.construct = TM_READY, construct.number
    tm_mapping_add(&entry.m, construct.flags & HOLD != 0, 1)
    item.counted = 1
    if item.what & TO and (fresh or construct.flags & ALWAYS) and overlap == TM_CONTAINED:
        return to_device(table, construct, item, entry)
    return 0


cdef int make(PresentTable table, Construct *construct, Item *item) except -1:
    """Map a range anew. On an error there is no entry."""
    cdef Entry *entry = new_entry(item.host, item.size)
    entry.m.state, entry.m.construct = TM_ENTERING, construct.number
    entry.m.thread = PyThread_get_thread_ident()
    tm_mapping_add(&entry.m, construct.flags & HOLD != 0, 1)
    if not tmi_present_insert(&table.present, &entry.m):
        free(entry)
        raise MemoryError("present table: no host memory for an entry")
    entry.m.users = 1
    entry.view = item.view
    item.view.obj = NULL
    item.made = True
    try:
        fill_in(table, construct, item, entry)
    except BaseException:
        abandon(table, construct, entry)
        raise
    item.entry, item.counted = entry, 1
    entry.m.state = TM_READY
    return wake(entry)


cdef inline int fill_in(PresentTable table, Construct *construct, Item *item, Entry *entry) except -1:
    if table.unified and not construct.flags & CLOSE:
        entry.m.target, entry.alias = entry.m.host, True
        return 0
    obtain(table, entry)
    return to_device(table, construct, item, entry) if item.what & TO else 0


cdef abandon(PresentTable table, Construct *construct, Entry *entry):
    """Take back an entry whose memory or first copy failed; the error that is on its way matters more."""
    try:
        quieten(construct)
    finally:
        remove(table, entry)


cdef quieten(Construct *construct):
    """Have the queue done with what an undone construct gave to it, whatever that raises."""
    if construct.queue is not NULL:
        try:
            (<object>construct.queue).synchronize()
        except Exception:
            PyErr_WriteUnraisable(<object>construct.queue)


cdef undo_enter(PresentTable table, Construct *construct, Py_ssize_t count, object error):
    """Take the counts of the first items back, the last one first; what nothing counts any more goes."""
    cdef Item *item
    quieten(construct)
    while count:
        count -= 1
        item = &construct.items[count]
        if item.entry is not NULL:
            let_go(construct, item, item.entry, False)
            leave_noting(table, item.entry, error)


cdef leave_noting(PresentTable table, Entry *entry, object error):
    """End a use while an error is on its way, which gets a note when that fails too."""
    try:
        leave(table, entry)
    except Exception as other:
        error.add_note(f"{type(other).__name__}: {other}")


cdef inline let_go(Construct *construct, Item *item, Entry *entry, bint everything):
    """Take one (or everything) from the entry's count; with nothing left it is LEAVING."""
    item.counted = tm_mapping_take(&entry.m, construct.flags & HOLD != 0, everything)
    if item.counted and not tm_mapping_counted(&entry.m):
        entry.m.state, entry.m.construct = TM_LEAVING, construct.number
        entry.m.thread = PyThread_get_thread_ident()


cdef enter_all(PresentTable table, Construct *construct):
    cdef Py_ssize_t i = 0
    try:
        for i in range(construct.count):
            enter_item(table, construct, &construct.items[i])
    except BaseException as error:
        blame(construct, &construct.items[i], error)
        undo_enter(table, construct, i + 1, error)
        raise
    for i in range(construct.count):
        if construct.items[i].entry is not NULL:
            leave(table, construct.items[i].entry)


# --- exit ------------------------------------------------------------------------------------------------


cdef int exit_item(PresentTable table, Construct *construct, Item *item) except -1:
    """Let go of an entry and copy it back if need be; it stays in the table, pinned."""
    cdef tm_overlap overlap = look_up(table, construct, item, False)
    cdef Entry *entry = item.entry
    if overlap != TM_CONTAINED and (overlap == TM_ABSENT or not construct.flags & IMPLICIT):
        item.entry = NULL
        if construct.flags & PRESENT and not table.unified:
            raise absent_error(construct, item)
        return 0
    entry.m.users += 1
    if entry.m.state == TM_READY:
        let_go(construct, item, entry, item.what & DELETE != 0)
    if not item.what & FROM or overlap != TM_CONTAINED:
        return 0
    if entry.m.state == TM_LEAVING or construct.flags & ALWAYS:
        return to_host(table, construct, item, entry)
    return 0


cdef undo_exit(PresentTable table, Construct *construct, Py_ssize_t first, object error):
    """Give the counts back that the items from the first on took, the latest first."""
    cdef Item *item
    cdef Entry *entry
    for i in range(first, construct.count):
        item = &construct.items[i]
        entry = item.entry
        if entry is NULL:
            continue
        tm_mapping_add(&entry.m, construct.flags & HOLD != 0, item.counted)
        if entry.m.state == TM_LEAVING and tm_mapping_counted(&entry.m):
            entry.m.state = TM_READY
            wake(entry)
        leave_noting(table, entry, error)


cdef int leave_all(PresentTable table, Construct *construct) except -1:
    """End the uses of an exit's items; what nothing counts any more goes, on a queue when that is done."""
    cdef Py_ssize_t i
    cdef Entry *entry
    failed = None
    for i in range(construct.count - 1, -1, -1):
        entry = construct.items[i].entry
        if entry is NULL:
            continue
        try:
            if construct.queue is not NULL and entry.m.state == TM_LEAVING:
                use_on(table, entry, <object>construct.queue)
            leave(table, entry)
        except BaseException as error:
            blame(construct, &construct.items[i], error)
            failed = failed or error
    if failed is not None:
        raise failed
    return 0


cdef exit_all(PresentTable table, Construct *construct):
    cdef Py_ssize_t i = construct.count
    try:
        while i:
            i -= 1
            exit_item(table, construct, &construct.items[i])
    except BaseException as error:
        blame(construct, &construct.items[i], error)
        undo_exit(table, construct, i, error)
        raise
    leave_all(table, construct)


# --- update ----------------------------------------------------------------------------------------------


cdef int update_item(PresentTable table, Construct *construct, Item *item) except -1:
    cdef tm_overlap overlap = look_up(table, construct, item, False)
    cdef Entry *entry = item.entry
    if overlap != TM_CONTAINED:
        if construct.flags & PRESENT and not table.unified:
            raise absent_error(construct, item)
        return 0
    entry.m.users += 1
    try:
        if item.what & TO:
            return to_device(table, construct, item, entry)
        return to_host(table, construct, item, entry)
    finally:
        leave(table, entry)


cdef update_all(PresentTable table, Construct *construct):
    cdef Py_ssize_t i = 0
    try:
        for i in range(construct.count):
            update_item(table, construct, &construct.items[i])
    except BaseException as error:
        blame(construct, &construct.items[i], error)
        raise


# --- look-ups and associations ---------------------------------------------------------------------------


cdef Entry *find_entry(PresentTable table, Construct *construct, object thing) except? NULL:
    """Give the entry that contains an array's range, or an address given as an int; null when none does."""
    cdef Item *item = next_item(construct)
    if isinstance(thing, int):
        item.clause, item.position, item.what, item.host, item.size = b"address", -1, 0, thing, 1
        item.view.obj = NULL
        construct.count += 1
    else:
        add_item(construct, thing, b"array", 0, -1)
    item = &construct.items[construct.count - 1]
    if look_up(table, construct, item, False) != TM_CONTAINED:
        item.entry = NULL
    return item.entry


cdef object target_of(PresentTable table, object thing, object queue, const char *method, bint must):
    """Give the target address of mapped memory, None (or a MappingError if it must be mapped) otherwise."""
    cdef Construct construct
    cdef Entry *entry
    cdef Item *item
    begin(table, &construct, method, 0, queue)
    try:
        entry = find_entry(table, &construct, thing)
        item = construct.items
        if entry is NULL:
            if must and not table.unified:
                raise absent_error(&construct, item)
            return item.host if table.unified else None
        if queue is not None:
            use_on(table, entry, queue)
        return entry.m.target + (item.host - entry.m.host)
    finally:
        end(table, &construct)


# --- associated memory (OpenMP 5.2, 18.8.9) ----------------------------------------------------------------


cdef object associate_entry(PresentTable table, object thing, object memory, size_t offset):
    """Enter memory of the device that the user keeps, with a count that never changes."""
    cdef Construct construct
    cdef Item *item
    cdef uintptr_t target
    cdef Entry *entry
    begin(table, &construct, b"associate", 0, None)
    try:
        add_item(&construct, thing, b"array", 0, -1)
        item = construct.items
        target = associated_address(&construct, item, memory, offset)
        if look_up(table, &construct, item, True) == TM_ABSENT:
            insert_associated(table, item, target, memory)
            return
        entry = item.entry
        item.entry = NULL
        same = entry.m.host == item.host and entry.m.end == item.host + item.size and entry.m.target == target
        if not (same and entry.m.dynamic == TM_INFINITE):
            raise wrong(&construct, item, (
                f"expected memory that is not mapped, got {span_text(item.host, item.size)}, which meets "
                f"{span_of(entry)}: disassociate or exit that first"
            ))
    finally:
        end(table, &construct)


cdef uintptr_t associated_address(Construct *construct, Item *item, object memory, size_t offset) except? 0:
    cdef uintptr_t target
    if item.size == 0:
        raise wrong(construct, item, "expected 1 byte or more to associate, got 0")
    if isinstance(memory, Buffer):
        if offset + item.size > <size_t>(<Buffer>memory).bytes:
            wanted, got = offset + item.size, (<Buffer>memory).bytes
            raise wrong(construct, item, f"expected a Buffer of {wanted} bytes or more, got one of {got}")
        target = <uintptr_t>(<Buffer>memory).address
    else:
        target = _address(memory, "associate")
    if target == 0:
        raise wrong(construct, item, "expected memory of the device, got none (address 0)")
    return target + offset


cdef int insert_associated(PresentTable table, Item *item, uintptr_t target, object memory) except -1:
    cdef Entry *entry = new_entry(item.host, item.size)
    entry.m.target, entry.m.dynamic, entry.m.state = target, TM_INFINITE, TM_READY
    if not tmi_present_insert(&table.present, &entry.m):
        free(entry)
        raise MemoryError("present table: no host memory for an entry")
    Py_INCREF(memory)
    entry.memory = <PyObject *>memory
    entry.view = item.view
    item.view.obj = NULL
    return 0


cdef object disassociate_entry(PresentTable table, object thing):
    cdef Construct construct
    cdef Item *item
    cdef tm_mapping *mapping
    begin(table, &construct, b"disassociate", 0, None)
    try:
        if isinstance(thing, int):
            find_entry(table, &construct, thing)
        else:
            add_item(&construct, thing, b"array", 0, -1)
        item = construct.items
        mapping = settled_at(table, item.host)
        if mapping is NULL:
            text = f"expected associated memory, got {item.host:#x}, which begins none"
            raise wrong(&construct, item, text)
        if mapping.hold:
            text = f"expected memory that nothing holds, got a hold count of {mapping.hold}"
            raise wrong(&construct, item, text)
        if mapping.dynamic != TM_INFINITE:
            raise wrong(&construct, item, "expected associated memory, got a mapping of `enter`: use exit")
        remove(table, <Entry *>mapping)
    finally:
        end(table, &construct)


cdef tm_mapping *settled_at(PresentTable table, uintptr_t host) except? NULL:
    """Give the mapping that begins exactly there, null for none, once no queue has work on it."""
    cdef tm_mapping *mapping = tmi_present_at(&table.present, host)
    while mapping is not NULL and not settle(<Entry *>mapping, NULL):
        mapping = tmi_present_at(&table.present, host)
    return mapping


# --- attached pointers (OpenMP 5.2, 5.8.3) -----------------------------------------------------------------


cdef object attach_pointer(PresentTable table, object structure, size_t offset, object pointee):
    """Have a pointer in mapped memory point to mapped memory on the device; the host's copy stays."""
    cdef Construct construct
    cdef Entry *entry
    cdef Item *item
    cdef uintptr_t value = target_of(table, pointee, None, b"attach", True)
    cdef size_t at
    begin(table, &construct, b"attach", 0, None)
    try:
        entry = find_entry(table, &construct, structure)
        item = construct.items
        if entry is NULL:
            raise absent_error(&construct, item)
        at = item.host - entry.m.host + offset
        content = (<char *>&value)[:sizeof(value)]
        entry.m.users += 1
        try:
            submit(table, entry.m.target + at, <uintptr_t><char *>content, sizeof(value), None)
            if entry.shadows is NULL:
                shadows = {}
                Py_INCREF(shadows)
                entry.shadows = <PyObject *>shadows
            (<dict>entry.shadows)[at] = content
        finally:
            leave(table, entry)
    finally:
        end(table, &construct)
