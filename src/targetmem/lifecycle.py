"""Steps that happen at most once, and gates that let no call into a plugin that was closed.

No lock is held while a step or a call runs: the one lock here guards a few words of state, for nanoseconds.
It is taken around `fork`, so that a child never finds it locked, and is reentrant, because a finaliser or a
signal handler may run anywhere.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from targetmem.errors import DeviceClosed, PluginError, TargetMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

__all__ = ["Gate", "Once", "take_all", "tell"]

T = TypeVar("T")
_state = threading.RLock()
os.register_at_fork(before=_state.acquire, after_in_parent=_state.release, after_in_child=_state.release)


def take_all(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step in turn, whatever others raise; then raise the first error, the others as its notes."""
    errors: list[BaseException] = []
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(tell(other))
        raise errors[0]


def tell(error: BaseException) -> str:
    """Give an error in one line, with its notes: what else failed."""
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])


class Once(Generic[T]):
    """A step that the first thread to need it takes, while others wait; its result or error is kept for all.

    `what` names it in errors: "plugin host", "device host:0".
    """

    __slots__ = ("_action", "_done", "_error", "_process", "_result", "_thread", "what")

    def __init__(self, action: Callable[[], T], what: str) -> None:
        self._action = action
        self.what = what
        self._done = threading.Event()
        self._thread = 0  # of the thread that takes the step, 0 before it began
        self._process = 0
        self._error: TargetMemoryError | None = None
        self._result: T

    def __call__(self) -> T:
        """Take the step, or give what came of it. Raises its error, the same one to everybody."""
        if self._claim():
            self._take()
        elif not self._done.is_set():
            self._wait()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._result

    @property
    def succeeded(self) -> bool:
        """Whether the step was taken and ended well."""
        return self._done.is_set() and self._error is None

    @property
    def finished(self) -> bool:
        """Whether the step was taken, however it ended."""
        return self._done.is_set()

    @property
    def begun(self) -> bool:
        """Whether a thread has begun to take the step."""
        return self._thread != 0

    def _claim(self) -> bool:
        with _state:
            if self._thread:
                return False
            self._thread, self._process = threading.get_ident(), os.getpid()
            return True

    def _take(self) -> None:
        try:
            self._result = self._action()
        except TargetMemoryError as error:
            self._error = error
        except BaseException as error:
            self._error = PluginError(f"{self.what}: {type(error).__name__} while it was initialised")
            raise
        finally:
            self._done.set()

    def _wait(self) -> None:
        if self._thread == threading.get_ident():
            raise PluginError(
                f"{self.what}: expected init to leave it alone, got a use of it: wait until init is done"
            )
        if self._process != os.getpid():
            raise DeviceClosed(
                f"{self.what}: was being initialised in the parent process: use it first, then fork"
            )
        self._done.wait()


class Gate:
    """A with-statement around each call into a plugin: closing waits for those inside, and ends them."""

    __slots__ = ("_inside", "_left", "_refusal")

    def __init__(self) -> None:
        self._inside = 0
        self._refusal = ""
        self._left = threading.Condition(_state)

    def __enter__(self) -> None:
        with _state:
            if not self._refusal:
                self._inside += 1
                return
        raise DeviceClosed(self._refusal)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with self._left:
            self._inside -= 1
            self._left.notify_all()

    @property
    def closed(self) -> bool:
        """Whether calls are refused."""
        return bool(self._refusal)

    def close(self, refusal: str) -> bool:
        """Refuse calls from now on with this text, and wait for those inside. False: it was closed before."""
        with self._left:
            if self._refusal:
                return False
            self._refusal = refusal
            self._left.wait_for(lambda: self._inside <= 0)
            return True

    def close_in_child(self, refusal: str) -> None:
        """Refuse calls in a forked child, where whoever was inside is gone."""
        self._refusal = self._refusal or refusal
        self._inside = 0
