"""The extension module as it is installed, called from C: `hot SIZE PAIRS`, in a process of its own."""

from __future__ import annotations

import ctypes
import os

from benchmarks.measure import BUILD
from benchmarks.worker import serve


class Options(ctypes.Structure):
    """The header's tm_options."""

    _fields_ = (
        ("version", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("policy", ctypes.c_char_p),
        ("threshold", ctypes.c_size_t),
        ("cached_limit", ctypes.c_size_t),
        ("device", ctypes.c_size_t),
        ("pressure", ctypes.c_void_p),
        ("pressure_context", ctypes.c_void_p),
    )


def main() -> None:
    """Serve a manager of the host in which every size is managed."""
    import targetmem._core as core

    os.sched_setaffinity(0, {0})
    library = ctypes.CDLL(core.__file__)
    library.tm_host_backend.restype = ctypes.c_void_p
    loop = ctypes.CDLL(str(BUILD / "extension.so"))
    loop.bench_hot.restype = ctypes.c_double
    unlimited = ctypes.c_size_t(-1).value
    options = Options(version=1, threshold=unlimited, cached_limit=unlimited)
    manager = ctypes.c_void_p()
    backend = ctypes.c_void_p(library.tm_host_backend())
    if status := library.tm_manager_create(backend, ctypes.byref(options), ctypes.byref(manager)):
        raise RuntimeError(f"tm_manager_create: status {status}")

    def answer(words: list[str]) -> float:
        size, pairs = (ctypes.c_size_t(int(word)) for word in words[1:])
        return float(loop.bench_hot(library.tm_allocate, library.tm_free, manager, size, pairs))

    serve(answer)


if __name__ == "__main__":
    main()
