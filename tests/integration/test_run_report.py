"""`targetmem run`: the report of a real program, on stderr and as JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.running import targetmem

if TYPE_CHECKING:
    from pathlib import Path

# Twenty arrays of 32 MiB one after the other: all but the first few are served from what was freed before.
ARRAYS = (
    "import numpy\nfor n in range(20):\n    a = numpy.empty(4 << 20)\n    a[::512] = n\nprint(int(a.sum()))\n"
)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Give a program that uses big arrays."""
    path = tmp_path / "program.py"
    path.write_text(ARRAYS)
    return str(path)


def report(*options: str, folder: Path, program: str) -> dict[str, Any]:
    """Run the program and give the JSON report."""
    outcome = targetmem("run", "--quiet", "--json", "report.json", *options, program, "-x", cwd=folder)
    assert (0, "") == (outcome.status, outcome.stderr)
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_report_of_a_program_that_gains(program: str, tmp_path: Path) -> None:
    """The numbers agree with what the program did."""
    found = report(folder=tmp_path, program=program)
    counts = found["statistics"]
    assert found["served"] is True
    assert [program, "-x"] == found["program"]
    assert counts["allocations"] >= 20
    assert counts["hits"] >= 17
    assert counts["allocations"] == counts["hits"] + counts["misses"] + counts["direct"]
    assert counts["live"]["peak"] >= 32 << 20
    assert counts["held"]["peak"] >= counts["live"]["peak"]
    assert counts["device_calls"] > 0
    assert found["estimate"]["blocks_reused"] == counts["hits"]
    assert found["estimate"]["calls_avoided"] >= 17
    assert found["estimate"]["seconds_saved"] > 0
    assert found["estimate"]["page_faults_avoided"] > 17
    assert found["page_faults"]["program"] > 0
    biggest = max(counts["buckets"], key=lambda bucket: bucket["requested"]["total"])
    assert biggest["smallest"] == 32 << 20
    assert biggest["allocations"] == 20
    assert found["versions"]["numpy"]


def test_options_are_obeyed(program: str, tmp_path: Path) -> None:
    """Policy, threshold and cap stand in the report as they were given, and do what they say."""
    found = report("--policy=exact", "--threshold", "1GiB", "--cap", "8MiB", folder=tmp_path, program=program)
    settings = found["settings"]
    assert ("exact", 1 << 30, 8 << 20) == tuple(
        settings[name] for name in ("policy", "threshold", "cached_limit")
    )
    assert 0 == found["statistics"]["hits"]
    assert found["statistics"]["cached"]["peak"] <= 8 << 20


def test_report_on_stderr(program: str) -> None:
    """The report comes on stderr, in plain text, and stdout has the program's words only."""
    outcome = targetmem("run", program)
    assert (0, f"{19 * 8192}\n") == outcome[:2]
    lines = outcome.stderr.splitlines()
    assert lines[0].startswith("targetmem: arrays of ")
    assert "came from the pool (policy exact, cap " in lines[0]
    for words in ("allocations ", "device calls ", "estimate", "memory ", "page faults ", "32 - 64 MiB "):
        assert words in outcome.stderr
    assert "\x1b" not in outcome.stderr
    assert len(lines) <= 15


def test_report_on_a_terminal(program: str) -> None:
    """A terminal gets it in colours, with the same facts."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "targetmem", "run", program]
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=child, env={**environment, "TERM": "xterm"}, check=True
    )
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    os.close(parent)
    assert f"{19 * 8192}\n".encode() == done.stdout
    assert "\x1b[" in shown
    assert "biggest buckets" in shown


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("raise ValueError('x')", 1),
        ("import sys; sys.exit(7)", 7),
        ("import signal; signal.raise_signal(2)", -2),
    ],
)
def test_report_however_the_program_ends(ending: str, status: int, program: str, tmp_path: Path) -> None:
    """An exception, an exit status and a Ctrl-C come with a report, which changes nothing of them."""
    (tmp_path / "program.py").write_text(ARRAYS + ending)
    outcome = targetmem("run", "--json", "report.json", program, cwd=tmp_path)
    assert status == outcome.status
    assert "came from the pool" in outcome.stderr
    assert json.loads((tmp_path / "report.json").read_text())["served"]
    assert outcome.stderr.startswith("Traceback") == (status != 7)


def test_no_report_where_no_python_runs_at_the_end(program: str, tmp_path: Path) -> None:
    """A program that leaves by os._exit leaves no report, and no file."""
    (tmp_path / "program.py").write_text(ARRAYS + "import os; os._exit(3)")
    outcome = targetmem("run", "--json", "report.json", program, cwd=tmp_path)
    assert (3, "") == (outcome.status, outcome.stderr)
    assert not (tmp_path / "report.json").exists()


def test_a_threshold_below_every_array(program: str) -> None:
    """A threshold that leaves nothing to serve, as one that was set for LLVM, is told."""
    outcome = targetmem("run", program, env={"LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD": "8192"})
    assert (0, f"{19 * 8192}\n") == outcome[:2]
    assert "no array was served: the threshold is below the smallest array" in outcome.stderr


def test_report_of_a_program_without_numpy(tmp_path: Path) -> None:
    """A program that does not use NumPy runs, and the report says that nothing was served."""
    (tmp_path / "program.py").write_text("print('done')\n")
    outcome = targetmem("run", "--json", "report.json", "program.py", cwd=tmp_path)
    assert (0, "done\n") == outcome[:2]
    assert "no array was served: the program did not import NumPy" in outcome.stderr
    assert json.loads((tmp_path / "report.json").read_text())["served"] is False


def test_report_of_a_program_that_has_no_numpy(tmp_path: Path) -> None:
    """Where NumPy is not installed the program gets its ImportError, and the report says what it can."""
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module named numpy', name='numpy')\n")
    (tmp_path / "program.py").write_text(
        "try:\n    import numpy\nexcept ImportError:\n    print('without')\n"
    )
    outcome = targetmem("run", "program.py", cwd=tmp_path)
    assert (0, "without\n") == outcome[:2]
    assert "no array was served" in outcome.stderr


def test_the_file_is_where_the_command_was_given(program: str, tmp_path: Path) -> None:
    """A program may change its working directory; the report goes where the user meant."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "program.py").write_text(f"import os; os.chdir({str(tmp_path / 'elsewhere')!r})")
    report(folder=tmp_path, program=program)
    assert [] == list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "ending", ["import sys; sys.stderr.close()", "import os; os.close(2)", "import sys; sys.stderr = None"]
)
def test_a_program_without_stderr(ending: str, tmp_path: Path) -> None:
    """A program that gave up stderr ends as it does without targetmem, and its file is written."""
    (tmp_path / "program.py").write_text(ending)
    plain = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, check=False)
    outcome = targetmem("run", "--json", "report.json", "program.py", cwd=tmp_path)
    assert (plain.returncode, "") == outcome[:2]
    assert (tmp_path / "report.json").exists()


def test_a_report_through_a_pipe(tmp_path: Path) -> None:
    """The file may be a pipe that another program reads: nothing opens it before the report is there."""
    (tmp_path / "program.py").write_text("pass")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        targetmem("run", "--quiet", "--json", "pipe", "program.py", cwd=tmp_path)
        assert reader.stdout is not None
        assert 1 == json.load(reader.stdout)["format"]
