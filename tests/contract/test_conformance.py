"""The conformance suite itself: a plugin with a planted fault fails it, an absent one is skipped."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
from targetmem.conformance import DeviceConformance, PluginConformance
from targetmem.errors import PluginError
from targetmem.plugins.simulated import SimulatedPlugin

{plugin}

class TestPlugin(PluginConformance):
    make_plugin = Faulty

class TestDevice(DeviceConformance):
    make_plugin = Faulty
"""
FAULTS = {
    "test_ranges_are_aligned_and_apart": """
class Faulty(SimulatedPlugin):
    def __init__(self):
        super().__init__(misbehave={3: "overlapping"})
""",
    "test_larger_alignments": """
class Faulty(SimulatedPlugin):
    def __init__(self):
        super().__init__(aligns=True, misbehave={5: "misaligned"})
""",
    "test_too_much_is_refused": """
class Faulty(SimulatedPlugin):
    def allocate(self, device, size, kind, alignment):
        return super().allocate(device, min(size, 4096), kind, alignment)
""",
    "test_memory_info": """
class Faulty(SimulatedPlugin):
    def memory_info(self, device):
        free, total = super().memory_info(device)
        return total + 1, total
""",
    "test_data_goes_there_and_back": """
class Faulty(SimulatedPlugin):
    def fill(self, device, target, pattern, count, queue=None):
        super().fill(device, target, pattern[:1], count, queue)
""",
    "test_a_queue_keeps_order": """
class Faulty(SimulatedPlugin):
    def submit(self, device, target, host, size, queue=None):
        if queue is None:
            super().submit(device, target, host, size)
""",
    "test_exchange": """
class Faulty(SimulatedPlugin):
    def exchange(self, device, target, other, source, size, queue=None):
        pass
""",
    "test_counts_its_devices": """
class Faulty(SimulatedPlugin):
    count = 0
    def device_count(self):
        self.count += 1
        return self.count
""",
    "test_each_kind_has_its_manager": """
class Faulty(SimulatedPlugin):
    def allocate(self, device, size, kind, alignment):
        return 0 if kind == "shared" else super().allocate(device, size, kind, alignment)
""",
    "test_with_the_manager_off": """
class Faulty(SimulatedPlugin):
    def __init__(self):
        super().__init__(fail_release_on=2)
""",
    "test_close": """
class Faulty(SimulatedPlugin):
    def __init__(self):
        super().__init__(fail_release_on=1)
""",
}
ABSENT = """
class Faulty(SimulatedPlugin):
    def init(self):
        raise PluginError("no runtime here", hint="install it")
"""


def run_suite(folder: Path, plugin: str, test: str = "test") -> subprocess.CompletedProcess[str]:
    """Run the suite over a plugin, in a process of its own."""
    (folder / "test_faulty.py").write_text(SUITE.format(plugin=plugin))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
        "-k",
        test,
        "test_faulty.py",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("test", FAULTS)
def test_a_faulty_plugin_does_not_pass(tmp_path: Path, test: str) -> None:
    """The test that is meant for a fault fails when the plugin has it."""
    done = run_suite(tmp_path, FAULTS[test], test)
    assert 1 == done.returncode
    assert re.search(rf"^(FAILED|ERROR) .*::{test}\b", done.stdout, re.MULTILINE), done.stdout


def test_an_absent_plugin_is_skipped(tmp_path: Path) -> None:
    """A plugin whose runtime is missing fails nothing, and the reason is shown."""
    done = run_suite(tmp_path, ABSENT)
    assert 0 == done.returncode
    assert "no runtime here" in done.stdout
    assert " passed" not in done.stdout
