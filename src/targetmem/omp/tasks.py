"""Copies that go on by themselves: tasks of hidden threads, with dependences between them."""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from targetmem.omp import numbering
from targetmem.omp.addresses import host_memory, memory_on
from targetmem.omp.copies import Plan, plan_copy, plan_rectangle
from targetmem.omp.memory import fill
from targetmem.omp.outcome import SUCCESS, attempt, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from targetmem.omp.addresses import Pointer

__all__ = [
    "Depend",
    "omp_target_memcpy_async",
    "omp_target_memcpy_rect_async",
    "omp_target_memset_async",
    "taskwait",
]

THREADS = 8  # as LIBOMP_NUM_HIDDEN_HELPER_THREADS
Kind = Literal["in", "out", "inout", "mutexinoutset", "inoutset"]
KINDS: tuple[Kind, ...] = ("in", "out", "inout", "mutexinoutset", "inoutset")


class Depend:
    """A depend object: what a task waits for at one place of memory, like `depend(out: x)`.

        Depend("out", array), Depend("in", 0x7f00)

    Any number of "in" tasks of a place run at once, or of "inoutset" ones; everything else there runs in the
    order in which the tasks were made ("mutexinoutset" too: that is one of the orders it allows). The place
    is the address of the first byte, whatever the size. Raises ValueError for another kind.
    """

    __slots__ = ("address", "kind")

    def __init__(self, kind: Kind, place: Pointer) -> None:
        if kind not in KINDS:
            raise ValueError(f"Depend: expected one of {', '.join(KINDS)}, got {kind!r}")
        self.kind = kind
        self.address = host_memory(place, "place").address

    def __repr__(self) -> str:
        return f"Depend({self.kind!r}, {self.address:#x})"


@dataclass(eq=False, slots=True)
class _Task:
    """One copy; `blockers` counts the tasks before it that are not done."""

    run: Callable[[], object]
    blockers: int = 0
    followers: list[_Task] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


@dataclass(slots=True)
class _Place:
    """The latest tasks at one place: a set that may run at once, and the set that it waits for."""

    kind: str = ""
    latest: list[_Task] = field(default_factory=list)
    before: list[_Task] = field(default_factory=list)

    def join(self, kind: str, task: _Task) -> list[_Task]:
        """Note a new task; gives those that it must wait for."""
        if kind != self.kind or kind not in ("in", "inoutset"):
            self.kind, self.before, self.latest = kind, self.latest, []
        self.latest.append(task)
        return self.before


class _Tasks:
    """All tasks of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # around the lists of tasks, never while a task runs
        self._places: dict[int, _Place] = {}
        self._unfinished = 0
        self._own = threading.local()
        self._threads: ThreadPoolExecutor | None = None

    def add(self, run: Callable[[], object], depends: Sequence[Depend]) -> None:
        """Make a task that runs once all are done that it depends on."""
        task = _Task(run)
        with self._lock:
            self._unfinished += 1
            before = {id(other): other for depend in depends for other in self._join(depend, task)}
            waited = [other for other in before.values() if other is not task and not other.done.is_set()]
            for other in waited:
                other.followers.append(task)
            task.blockers = len(waited)
        self.mine().append(task)
        if not waited:
            self._start(task)

    def mine(self) -> list[_Task]:
        """Give the calling thread's tasks that it has not waited for."""
        tasks: list[_Task] | None = getattr(self._own, "tasks", None)
        if tasks is None:
            tasks = self._own.tasks = []
        tasks[:] = [task for task in tasks if task.error is not None or not task.done.is_set()]
        return tasks

    def at(self, addresses: Iterable[int]) -> list[_Task]:
        """Give the latest tasks at some places."""
        with self._lock:
            places = [self._places[address] for address in addresses if address in self._places]
            return [task for place in places for task in (*place.before, *place.latest)]

    def _join(self, depend: Depend, task: _Task) -> list[_Task]:
        return self._places.setdefault(depend.address, _Place()).join(depend.kind, task)

    def _start(self, task: _Task) -> None:
        if not self._submit(task):
            self._run(task)

    def _submit(self, task: _Task) -> bool:
        """Give a task to a thread. False: the interpreter exits, and there is no new work for threads."""
        with self._lock:
            self._threads = self._threads or ThreadPoolExecutor(THREADS, "targetmem-omp")
        try:
            self._threads.submit(self._run, task)
        except RuntimeError:
            return False
        return True

    def _run(self, task: _Task) -> None:
        """Run a task, and those behind it for which there is no thread any more: one by one, however many."""
        ready = deque([task])
        while ready:
            current = ready.popleft()
            try:
                current.run()
            except Exception as error:  # noqa: BLE001 - taskwait raises it
                current.error = error
            current.run = _nothing  # with the memory that it held
            ready.extend(follower for follower in self._finish(current) if not self._submit(follower))

    def _finish(self, task: _Task) -> list[_Task]:
        """Note that a task is done; gives those that may now run."""
        with self._lock:
            task.done.set()
            self._unfinished -= 1
            if not self._unfinished:
                self._places.clear()
            for follower in task.followers:
                follower.blockers -= 1
            return [follower for follower in task.followers if not follower.blockers]


def _nothing() -> None:
    """Stand for what a task did."""


_tasks = _Tasks()


def _start_anew() -> None:
    global _tasks  # noqa: PLW0603 - the threads and locks of the parent are not this process's
    _tasks = _Tasks()


os.register_at_fork(after_in_child=_start_anew)


def taskwait(depobj_list: Sequence[Depend] | None = None) -> None:
    """Wait for the tasks that this thread made, or for those at some places: OpenMP's `taskwait` directive.

    Raises the error of the first of this thread's tasks that failed, once all of them are done. Memory that a
    task uses may be read, written or freed only after a wait.
    """
    if depobj_list is not None:
        for task in _tasks.at(depend.address for depend in depobj_list):
            task.done.wait()
        return
    tasks = _tasks.mine()
    mine, tasks[:] = list(tasks), []
    for task in mine:
        task.done.wait()
    errors = [task.error for task in mine if task.error is not None]
    if errors:
        raise errors[0]


def omp_target_memcpy_async(
    dst: Pointer,
    src: Pointer,
    length: int,
    dst_offset: int,
    src_offset: int,
    dst_device_num: int,
    src_device_num: int,
    depobj_count: int = 0,
    depobj_list: Sequence[Depend] | None = None,
) -> int:
    """Begin a copy as `omp_target_memcpy` makes it, after the tasks it depends on; gives 0, -1 if refused.

    What goes wrong in the copy itself is raised by `taskwait`. The arrays are kept until it is done
    (OpenMP 5.2, 18.8.7).
    """
    depends = _depends(depobj_count, depobj_list)
    if not _points(dst) or not _points(src):
        return refuse("omp_target_memcpy_async: expected two pointers, got a null pointer")
    plan = plan_copy(dst, src, length, (dst_offset, src_offset), (dst_device_num, src_device_num))
    return _begin(plan, depends)


def omp_target_memcpy_rect_async(
    dst: Pointer,
    src: Pointer,
    element_size: int,
    num_dims: int,
    volume: Sequence[int],
    dst_offsets: Sequence[int],
    src_offsets: Sequence[int],
    dst_dimensions: Sequence[int],
    src_dimensions: Sequence[int],
    dst_device_num: int,
    src_device_num: int,
    depobj_count: int = 0,
    depobj_list: Sequence[Depend] | None = None,
) -> int:
    """Begin a copy as `omp_target_memcpy_rect` makes it, after the tasks it depends on; else as above.

    The sequences of numbers are read before it returns (OpenMP 5.2, 18.8.8).
    """
    depends = _depends(depobj_count, depobj_list)
    shape = (element_size, num_dims, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions)
    return _begin(plan_rectangle(dst, src, shape, (dst_device_num, src_device_num)), depends)


def omp_target_memset_async(
    ptr: Pointer,
    value: int,
    count: int,
    device_num: int,
    depobj_count: int = 0,
    depobj_list: Sequence[Depend] | None = None,
) -> Pointer:
    """Begin to set bytes as `omp_target_memset` does, after the tasks it depends on; gives the pointer."""
    depends = _depends(depobj_count, depobj_list)
    device = numbering.current.closed_device(device_num)
    memory = memory_on(device, ptr, "ptr", writable=True)
    memory.check("ptr", count)
    if memory.address and count > 0:
        _begin(Plan(partial(fill, device, memory.address, value & 0xFF, count), (memory,)), depends)
    return ptr


def _begin(plan: Plan | int, depends: Sequence[Depend]) -> int:
    """Make the task of a plan. With nothing to copy it still stands in the order of the tasks."""
    if isinstance(plan, int):
        if plan != SUCCESS or not depends:
            return plan
        plan = Plan(_nothing)
    return attempt(partial(_tasks.add, partial(_carry_out, plan), depends))


def _carry_out(plan: Plan) -> None:
    plan.run()


def _points(pointer: Pointer) -> bool:
    return pointer is not None and not (isinstance(pointer, int) and pointer == 0)


def _depends(count: int, depends: Sequence[Depend] | None) -> Sequence[Depend]:
    """Give the first `count` depend objects. Raises ValueError for too few, TypeError for something else."""
    given = [] if depends is None else list(depends)[:count]
    if len(given) != count:
        raise ValueError(f"depobj_list: expected {count} depend objects (depobj_count), got {len(given)}")
    for depend in given:
        if not isinstance(depend, Depend):
            raise TypeError(f"depobj_list: expected omp.Depend objects, got {type(depend).__name__}")
    return given
