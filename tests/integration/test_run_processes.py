"""`targetmem run`: programs that start processes, and objects that travel between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.running import assert_same, targetmem

if TYPE_CHECKING:
    from pathlib import Path

WORKERS = """\
import multiprocessing, sys
import numpy

class Result:
    def __init__(self, value):
        self.value = value, __name__

def work(n):
    return Result(int(numpy.arange(n * 100_000).sum()))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print([result.value for result in pool.map(work, range(4))])
    print(Result.__module__)
"""


def script(folder: Path, source: str) -> str:
    """Write a program and give its path."""
    path = folder / "program.py"
    path.write_text(source)
    return str(path)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    """Workers find functions and classes of `__main__`, however they are started."""
    # 3.12 on warns of a fork with threads, which OpenBLAS may have; the warning names a process number
    outcome = assert_same(script(tmp_path, WORKERS), method, flags=["-W", "ignore"])
    module = "__main__" if method == "fork" else "__mp_main__"
    assert f"(19999900000, '{module}')" in outcome.stdout
    assert 0 == outcome.status


def test_multiprocessing_of_a_module(tmp_path: Path) -> None:
    """The same for a program started with `-m`: workers import it by its name."""
    script(tmp_path, WORKERS)
    outcome = assert_same("-m", "program", "spawn", cwd=tmp_path)
    assert "19999900000, '__mp_main__'" in outcome.stdout


def test_objects_of_main_are_pickled_by_its_name(tmp_path: Path) -> None:
    """A class of the program can be pickled and found again in `__main__`."""
    source = (
        "import pickle\n\nclass C:\n    x = 3\n\n"
        "print(pickle.dumps(C))\nprint(pickle.loads(pickle.dumps(C())).x)\n"
    )
    assert "__main__" in assert_same(script(tmp_path, source)).stdout


def test_a_subprocess_runs_plain_python(tmp_path: Path) -> None:
    """A program that starts Python again gives it the environment that it was given itself."""
    source = (
        "import subprocess, sys\n"
        "code = 'import os, sys; print(sys.path, sorted(os.environ), sys.meta_path)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    assert "TARGETMEM_RUN" not in assert_same(script(tmp_path, source)).stdout


def test_only_the_main_process_reports(tmp_path: Path) -> None:
    """A forked child that ends like a program prints no second report."""
    source = (
        "import os\nimport numpy\nchild = os.fork()\nnumpy.ones(1000)\n"
        "if child:\n    os.waitpid(child, 0)\nprint('child' if child == 0 else 'parent')\n"
    )
    outcome = targetmem("run", script(tmp_path, source), flags=["-W", "ignore"])
    assert "child\nparent\n" == outcome.stdout
    assert 1 == outcome.stderr.count("targetmem: ")
