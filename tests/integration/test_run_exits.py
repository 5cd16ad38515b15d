"""`targetmem run`: a program ends as it does under plain Python, whichever way it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.running import assert_same

if TYPE_CHECKING:
    from pathlib import Path

STATUSES = {
    "end": ("pass", 0),
    "exit without a status": ("import sys; sys.exit()", 0),
    "exit with a number": ("import sys; sys.exit(7)", 7),
    "exit with a big number": ("import sys; sys.exit(0x1_0000_0103)", 3),
    "exit with a text": ("import sys; sys.exit('no more')", 1),
    "exit with an object": ("import sys; sys.exit([1, 2])", 1),
    "exit with false": ("import sys; sys.exit(False)", 0),
    "SystemExit": ("raise SystemExit(3)", 3),
    "SystemExit in a thread": (
        "import threading\nthread = threading.Thread(target=exit, args=(5,))\nthread.start()\nthread.join()",
        0,
    ),
    "os._exit": ("import os; print('lost in the buffer', end=''); os._exit(9)", 9),
    "an exception": ("1 / 0", 1),
    "an exception after output": ("print('some output')\nraise ValueError('wrong')", 1),
    "a broken stdout": ("import os; print('text'); os.close(1)", 120),
}

TRACEBACKS = {
    "in the module": "def f():\n    return [][1]\n\nf()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('k') from error\n",
    "in another's handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    undefined\n",
    "a group": "raise ExceptionGroup('both', [ValueError(1), TypeError(2)])\n",
    "with a note": "error = ValueError('x')\nerror.add_note('by the way')\nraise error\n",
    "recursion": "def f(n):\n    return f(n + 1)\n\nf(0)\n",
    "syntax": "x = 1\ndef f(:\n    pass\n",
    "indentation": "if True:\npass\n",
    "a null byte": "x = 1\0\n",
    "encoding": "# coding: no-such-coding\n",
    "import": "import no_such_module\n",
    "import of NumPy's inside": "import numpy.no_such_module\n",
    "in a thread": "import threading\nthread = threading.Thread(target=lambda: 1 / 0, name='T')\n"
    "thread.start()\nthread.join()\n",
    "in atexit": "import atexit\n\n@atexit.register\ndef last():\n    1 / 0\n\nprint('end')\n",
    "in a destructor": "class C:\n    def __del__(self):\n        1 / 0\n\nc = C()\n",
    "its own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[2].tb_next)\n1 / 0\n",
    "a hook that fails": "import sys\nsys.excepthook = lambda *a: 1 / 0\nraise ValueError\n",
    "printed by the program": "import traceback\ntry:\n    1 / 0\n"
    "except ZeroDivisionError:\n    traceback.print_exc()\n"
    "traceback.print_stack()\n",
    "a warning": "import warnings\nwarnings.warn('careful', stacklevel=2)\n",
    "a warning of this line": "import warnings\nwarnings.warn('careful')\n",
    "the outermost frame": "import inspect, sys\nprint(inspect.stack()[-1].filename)\nsys._getframe(1)\n",
}

SIGNALS = {
    "interrupt": "signal.raise_signal(signal.SIGINT)",
    "interrupt, handled": "try:\n    signal.raise_signal(2)\nexcept KeyboardInterrupt:\n    print('no')",
    "interrupt, own handler": "signal.signal(signal.SIGINT, print_number); signal.raise_signal(2)",
    "interrupt, ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.raise_signal(signal.SIGINT)",
    "interrupt in a function": "def f():\n    signal.raise_signal(signal.SIGINT)\n\nf()",
    "interrupt, then another error": "try:\n    signal.raise_signal(signal.SIGINT)\nfinally:\n    1 / 0",
    "interrupt in atexit": "import atexit; atexit.register(signal.raise_signal, signal.SIGINT)",
    "termination": "signal.raise_signal(signal.SIGTERM)",
    "hang-up": "signal.raise_signal(signal.SIGHUP)",
    "kill": "signal.raise_signal(signal.SIGKILL)",
    "abort": "import os; os.abort()",
    "pipe": "signal.raise_signal(signal.SIGPIPE); print('goes on')",
    "the handlers": "print([(s, str(signal.getsignal(s))) for s in (1, 2, 3, 13, 15, 25)])",
}


def script(folder: Path, source: str) -> str:
    """Write a program and give its path."""
    path = folder / "program.py"
    path.write_text(source)
    return str(path)


@pytest.mark.parametrize("name", STATUSES)
def test_exit_status(name: str, tmp_path: Path) -> None:
    """The exit status is the program's, and so is what Python prints on account of it."""
    source, status = STATUSES[name]
    assert status == assert_same(script(tmp_path, source)).status


@pytest.mark.parametrize("name", TRACEBACKS)
def test_traceback(name: str, tmp_path: Path) -> None:
    """A traceback has the program's frames and no others; every other word is Python's too."""
    outcome = assert_same(script(tmp_path, TRACEBACKS[name]))
    assert "targetmem" not in outcome.stderr
    assert outcome.stdout or outcome.stderr


@pytest.mark.parametrize("name", SIGNALS)
def test_signal(name: str, tmp_path: Path) -> None:
    """A signal does what it does to a plain program: an exception, a handler, or the end with its number."""
    source = f"import signal\n\ndef print_number(number, frame):\n    print(number)\n\n{SIGNALS[name]}\n"
    assert_same(script(tmp_path, source))


def test_death_by_interrupt_keeps_its_status(tmp_path: Path) -> None:
    """An uncaught Ctrl-C ends the program by the signal itself, so that a shell's loop stops too."""
    outcome = assert_same(script(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"))
    assert -signal.SIGINT == outcome.status
    assert "KeyboardInterrupt" in outcome.stderr


def test_a_signal_from_outside_reaches_the_program(tmp_path: Path) -> None:
    """The process that was started is the program: a signal to its number needs no forwarding."""
    source = "import signal\nprint('ready', flush=True)\nsignal.pause()\n"
    command = [sys.executable, "-m", "targetmem", "run", script(tmp_path, source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(100)


def test_atexit_callbacks_run_before_the_report(tmp_path: Path) -> None:
    """What the program prints at its exit comes in its own order, and all of it before the report."""
    source = "import atexit\nfor n in range(3):\n    atexit.register(print, 'exit', n)\nprint('end')\n"
    path = script(tmp_path, source)
    assert "end\nexit 2\nexit 1\nexit 0\n" == assert_same(path).stdout
    command = [sys.executable, "-m", "targetmem", "run", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    assert done.stdout.startswith("end\nexit 2\nexit 1\nexit 0\ntargetmem: ")


def test_daemon_threads_do_not_hold_the_exit(tmp_path: Path) -> None:
    """A daemon thread is left behind, a thread that is none is waited for."""
    source = (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('waited for'))).start()\n"
    )
    assert "waited for\n" == assert_same(script(tmp_path, source)).stdout
