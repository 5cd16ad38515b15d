"""Arguments of OpenCL kernels: each is checked against what the kernel itself says that it takes."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from targetmem.abc import TargetArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from targetmem.abc import Argument

__all__ = ["bind", "entry_names"]

SCALARS: dict[str, Any] = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
}
POINTERS = (cl.kernel_arg_address_qualifier.GLOBAL, cl.kernel_arg_address_qualifier.CONSTANT)


def entry_names(program: cl.Program) -> tuple[str, ...]:
    """Give the names of a built program's kernels."""
    return tuple(program.kernel_names.split(";")) if program.kernel_names else ()


def bind(program: cl.Program, entry: str, arguments: Sequence[Argument]) -> cl.Kernel:
    """Make a kernel with its arguments set: one of its own, since two threads can't set them at once.

    Raises LookupError when there is no such kernel, TypeError for arguments that it does not take.
    """
    if entry not in entry_names(program):
        raise LookupError(f"expected an entry ({', '.join(entry_names(program))}), got {entry!r}")
    kernel = cl.Kernel(program, entry)
    if len(arguments) != kernel.num_args:
        names = ", ".join(_describe(kernel, number) for number in range(kernel.num_args))
        raise TypeError(f"{entry}: expected {kernel.num_args} arguments ({names}), got {len(arguments)}")
    for number, argument in enumerate(arguments):
        kernel.set_arg(number, _value(kernel, entry, number, argument))
    return kernel


def _info(kernel: cl.Kernel, number: int, what: Any) -> Any:
    return kernel.get_arg_info(number, what)


def _describe(kernel: cl.Kernel, number: int) -> str:
    info = cl.kernel_arg_info
    return f"{_info(kernel, number, info.TYPE_NAME)} {_info(kernel, number, info.NAME)}"


def _value(kernel: cl.Kernel, entry: str, number: int, argument: Argument) -> Any:
    is_pointer = _info(kernel, number, cl.kernel_arg_info.ADDRESS_QUALIFIER) in POINTERS
    if is_pointer == isinstance(argument, TargetArray):
        return (
            _memory(argument)
            if isinstance(argument, TargetArray)
            else _scalar(kernel, entry, number, argument)
        )
    raise _wrong(kernel, entry, number, "an array" if isinstance(argument, TargetArray) else repr(argument))


def _memory(argument: TargetArray) -> Any:
    """Give memory as an argument; of no bytes it is a null pointer."""
    if argument.size == 0:
        return None
    return cl.SVM((ctypes.c_char * argument.size).from_address(argument.address))


def _scalar(kernel: cl.Kernel, entry: str, number: int, argument: Any) -> Any:
    """Give a number in the kernel's own type; nothing is rounded away or wrapped."""
    wanted = SCALARS.get(_info(kernel, number, cl.kernel_arg_info.TYPE_NAME))
    value = getattr(argument, "value", argument)  # of a ctypes number
    if wanted is None or isinstance(value, (str, bytes)):
        raise _wrong(kernel, entry, number, repr(argument))
    if isinstance(value, np.generic) and value.dtype != np.dtype(wanted):
        raise _wrong(kernel, entry, number, f"{value.dtype} {value}")
    if issubclass(wanted, np.integer) and not _fits(value, wanted):
        raise _wrong(kernel, entry, number, repr(argument))
    try:
        return wanted(value)
    except (TypeError, ValueError):
        raise _wrong(kernel, entry, number, repr(argument)) from None


def _fits(value: Any, wanted: Any) -> bool:
    limits = np.iinfo(wanted)
    return hasattr(value, "__index__") and bool(limits.min <= int(value) <= limits.max)


def _wrong(kernel: cl.Kernel, entry: str, number: int, got: str) -> TypeError:
    return TypeError(f"{entry}: argument {number}: expected {_describe(kernel, number)}, got {got}")
