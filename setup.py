"""Build the one extension module, `targetmem._core`: the C core of `csrc/` and its thin Cython binding.

Everything else stands in `pyproject.toml`. Environment switches, all of which `make build` passes on:

  TARGETMEM_SANITIZE=address,undefined  compile and link with these sanitizers
  TARGETMEM_COVERAGE=1                  count executed C lines (gcov)
  TARGETMEM_DEBUG=1                     no optimisation, asserts on
  TARGETMEM_STATISTICS=0                leave the statistics out, to measure what they cost
"""

from __future__ import annotations

import os
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

# binding=False: a call costs what one of hand-written C costs. clinic: inspect.signature() still works.
DIRECTIVES = {
    "language_level": 3,
    "binding": False,
    "embedsignature": True,
    "embedsignature.format": "clinic",
}
# What Cython generates breaks these two habits of -Wextra; `make lint` compiles csrc/ without them.
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]


def switched_on(name: str) -> bool:
    """Tell whether an environment switch is set to something other than 0."""
    return os.environ.get(name, "0") not in ("", "0")


def platform_flags() -> tuple[list[str], list[str]]:
    """Give the compiler's and the linker's flags that only Linux's tools know."""
    if sys.platform != "linux":
        return [], []
    # initial-exec: a thread's own cache is one load away, not a function call. No interposition: the
    # binding calls the exported tm_* functions directly, not through the PLT.
    return ["-ftls-model=initial-exec", "-fno-semantic-interposition"], ["-Wl,-Bsymbolic-functions"]


def flags() -> tuple[list[str], list[str]]:
    """Give the compiler's and the linker's flags, the environment's switches included."""
    compiler, linker = platform_flags()
    compiler += ["-std=c11", "-O3", "-fvisibility=hidden", *WARNINGS]
    if switched_on("TARGETMEM_DEBUG"):
        compiler += ["-O0", "-g3", "-UNDEBUG", "-DTM_DEBUG=1"]
    if switched_on("TARGETMEM_COVERAGE"):
        compiler += ["-O0", "--coverage"]
        linker += ["--coverage"]
    if os.environ.get("TARGETMEM_STATISTICS") == "0":
        compiler += ["-DTM_STATISTICS=0"]
    if sanitizers := os.environ.get("TARGETMEM_SANITIZE"):
        compiler += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
        linker += [f"-fsanitize={sanitizers}"]
    return compiler, linker


compiler_flags, linker_flags = flags()
core = Extension(
    "targetmem._core",
    sources=["src/targetmem/_core.pyx", *sorted(glob("csrc/*.c"))],
    depends=sorted(glob("csrc/*.h") + glob("csrc/include/*.h")),
    include_dirs=["csrc", "csrc/include"],
    extra_compile_args=compiler_flags,
    extra_link_args=linker_flags,
)

setup(
    ext_modules=cythonize(
        [core],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
        force=True,  # a changed directive leaves no other trace; `make` decides when a build is due
    ),
)
