"""DLPack as a consumer written in C sees it: every field, who frees what, and when a deleter may run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import targetmem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from targetmem import MemoryManager

API = ctypes.pythonapi
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Managed(ctypes.Structure):
    """DLManagedTensor: capsules of before DLPack 1.0."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned: capsules since DLPack 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


KINDS = pytest.mark.parametrize(
    ("kind", "name", "max_version"),
    [(Managed, b"dltensor", None), (Versioned, b"dltensor_versioned", (1, 0))],
    ids=["plain", "versioned"],
)


@pytest.fixture
def manager() -> Iterator[MemoryManager]:
    """Give the host's manager, of which nothing may be live afterwards that was not before."""
    found = targetmem.device("host:0").memory
    before = found.counters().live_blocks
    yield found
    assert before == found.counters().live_blocks


def read(capsule: object, kind: Any, name: bytes) -> Any:
    """Give the structure that a capsule holds."""
    API.PyCapsule_GetPointer.restype = ctypes.c_void_p
    API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(API.PyCapsule_GetPointer(capsule, name))


def rename(capsule: object, name: bytes) -> None:
    """Take a capsule over, as a consumer does."""
    API.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    API.PyCapsule_SetName(capsule, name)


@KINDS
@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [("i2", 0, 16), ("u8", 1, 64), ("f4", 2, 32), ("complex64", 5, 64), ("bool", 6, 8)],
)
def test_every_field(
    manager: MemoryManager, kind: Any, name: bytes, max_version: Any, dtype: str, code: int, bits: int
) -> None:
    """The structure says what the view is: address, type, shape, and strides in elements."""
    buffer = manager.allocate(400)
    step = bits // 8
    view = buffer.view(dtype, (2, 3), strides=(-4 * step, step), offset=8 * step)
    capsule = view.__dlpack__(max_version=max_version)
    managed = read(capsule, kind, name)
    tensor = managed.tensor
    assert (buffer.pointer + 8 * step, 0) == (tensor.data, tensor.byte_offset)
    assert (1, 0) == (tensor.device_type, tensor.device_id)
    assert (code, bits, 1) == (tensor.code, tensor.bits, tensor.lanes)
    assert (2, [2, 3], [-4, 1]) == (tensor.ndim, tensor.shape[:2], tensor.strides[:2])
    if kind is Versioned:
        assert (1, 0, 0) == (managed.major, managed.minor, managed.flags)
    del capsule, tensor, managed
    buffer.release()


@KINDS
def test_a_consumer_frees_once(manager: MemoryManager, kind: Any, name: bytes, max_version: Any) -> None:
    """A capsule that was taken over frees nothing when dropped; the consumer's call of the deleter does."""
    buffer = manager.allocate(64)
    capsule = buffer.view("i4").__dlpack__(max_version=max_version)
    managed = read(capsule, kind, name)
    rename(capsule, b"used_" + name)
    del capsule
    with pytest.raises(BufferError, match=r"1 view\(s\)"):
        buffer.release()
    DELETER(managed.deleter)(ctypes.addressof(managed))
    buffer.release()


def test_a_copy_is_flagged(manager: MemoryManager) -> None:
    """A consumer that may write is told whether the memory is a copy."""
    buffer = manager.allocate(64)
    capsule = buffer.view("i4").__dlpack__(max_version=(1, 1), copy=True)
    assert read(capsule, Versioned, b"dltensor_versioned").flags == 2


@KINDS
def test_a_thread_that_python_does_not_know(
    manager: MemoryManager, kind: Any, name: bytes, max_version: Any
) -> None:
    """A deleter may run in any thread, without the GIL, as the last holder of the memory."""
    capsule = manager.allocate(64).view("i4").__dlpack__(max_version=max_version)
    managed = read(capsule, kind, name)
    rename(capsule, b"used_" + name)
    del capsule
    library, thread = ctypes.CDLL(None), ctypes.c_ulong()
    started = library.pthread_create(
        ctypes.byref(thread), None, ctypes.c_void_p(managed.deleter), ctypes.byref(managed)
    )
    assert 0 == started
    assert 0 == library.pthread_join(thread, None)


CONSUMER = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct managed { char tensor[48]; void *context; void (*deleter)(struct managed *); };
static struct managed *late[2];
static int done;

static void *drop(void *managed)
{
    ((struct managed *)managed)->deleter(managed);
    done++;
    return 0;
}
int drop_in_thread(struct managed *managed)
{
    pthread_t thread;
    done = 0;
    return pthread_create(&thread, 0, drop, managed) || pthread_join(thread, 0) ? -1 : done;
}
static void at_end(void)
{
    drop(late[0]);
    printf("after the end: %d", done);
    printf(" and %d\\n", drop_in_thread(late[1]));
}
int keep_to_the_end(struct managed *first, struct managed *second)
{
    late[0] = first;
    late[1] = second;
    return atexit(at_end);
}
"""
PROGRAM = """
import ctypes, os, sys, targetmem

library = ctypes.CDLL(sys.argv[1])
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
device = targetmem.device("host:0")

def taken():
    capsule = device.allocate(1000).view("i4").__dlpack__()
    address = get(capsule, b"dltensor")
    rename(capsule, b"used_dltensor")
    return ctypes.c_void_p(address)

class Last:
    def __init__(self):
        self.drop, self.managed, self.write = library.drop_in_thread, taken(), os.write

    def __del__(self):
        self.write(1, b"while it ends: %d\\n" % self.drop(self.managed))
"""


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a library that calls deleters."""
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "consumer.c").write_text(CONSUMER)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) in the path")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-pthread", "consumer.c", "-o", "consumer.so"], cwd=folder, check=True
    )
    return folder / "consumer.so"


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("sys.last = Last()", "while it ends: 1\n"),
        ("kept = taken(); device.close(); print(library.drop_in_thread(kept))", "1\n"),
        ("library.keep_to_the_end(taken(), taken())", "after the end: 1 and 1\n"),
        ("library.keep_to_the_end(taken(), taken()); device.close()", "after the end: 1 and 1\n"),
    ],
    ids=["while it ends", "device closed", "after the end", "device closed, after the end"],
)
def test_at_the_end(consumer: Path, step: str, told: str) -> None:
    """A consumer's thread may drop its memory while the interpreter ends, and after it has."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + step, consumer],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (0, told, "") == (done.returncode, done.stdout, done.stderr)
