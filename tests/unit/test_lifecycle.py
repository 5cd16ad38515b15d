"""A plugin's life: everything once and in order, errors kept, no call after deinit."""

from __future__ import annotations

import threading
import time

import pytest

from targetmem import manager
from targetmem.errors import DeviceClosed, LeakWarning, PluginError, TargetMemoryWarning
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import forked, in_threads, methods, registry_of, registry_with


def test_a_whole_life() -> None:
    """Nothing is called before use; init is first; all memory is back before deinit, which is last."""
    plugin = SimulatedPlugin()
    registry = registry_with(plugin)
    assert [] == plugin.calls
    device = registry.device("x:0")
    assert ["init"] == methods(plugin)
    kept, freed = device.allocate(100), device.allocate(200, kind="host")
    freed.release()
    registry.close()
    assert ["init", "init_device", "allocate", "allocate"] == methods(plugin)[:4]
    assert ["release", "release", "deinit_device", "deinit"] == methods(plugin)[4:]
    kept.release()
    registry.close()
    assert ["deinit_device", "deinit"] == methods(plugin)[-2:]


def test_init_once_for_all_threads() -> None:
    """Threads that use a plugin at once all get its device, initialised once."""
    plugin = SimulatedPlugin(latency={"init": 0.02, "init_device": 0.02})
    registry = registry_with(plugin)
    devices = in_threads(8, lambda: registry.device("x:0"))
    assert 1 == len({id(device) for device in devices})
    assert 8 == len(in_threads(8, lambda: registry.device("x:0").allocate(10).pointer))
    assert (1, 1) == (methods(plugin).count("init"), methods(plugin).count("init_device"))
    registry.close()


def test_a_failing_init_is_kept() -> None:
    """A plugin whose init raises is not asked again and gets no deinit; everyone is told why."""
    plugin = SimulatedPlugin(fail_init=True)
    registry = registry_with(plugin)
    for _ in range(2):
        with pytest.raises(PluginError, match="init failed"):
            registry.device("x:0")
    registry.close()
    assert ["init"] == methods(plugin)
    assert isinstance(registry.survey()["x"], PluginError)


def test_a_failing_device_is_kept() -> None:
    """A device whose init raises is not asked again and gets no deinit; the plugin gets its own."""
    plugin = SimulatedPlugin(fail_init_device=True)
    registry = registry_with(plugin)
    for _ in range(2):
        with pytest.raises(PluginError, match="init_device failed"):
            registry.device("x:0").allocate(10)
    registry.close()
    assert ["init", "init_device", "deinit"] == methods(plugin)


def test_a_failing_count_ends_the_plugin() -> None:
    """A plugin that initialised but cannot count its devices is not available, and is ended at once."""

    class Countless(SimulatedPlugin):
        def device_count(self) -> int:
            raise OSError("bus error")

    plugin = Countless()
    registry = registry_with(plugin)
    with pytest.raises(PluginError, match="not available: OSError: bus error"):
        registry.device("x:0")
    registry.close()
    assert ["init", "deinit"] == methods(plugin)


def test_close_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """When ending one plugin fails, the others are still ended, and the failure is not lost."""

    class Stubborn(SimulatedPlugin):
        def deinit_device(self, device: int) -> None:
            raise PluginError("won't go")

        def deinit(self) -> None:
            super().deinit()
            raise PluginError("won't go either")

    first, second = Stubborn(), SimulatedPlugin()
    registry = registry_of(a=lambda: lambda: first, b=lambda: lambda: second)
    for name in ("a:0", "b:0"):
        registry.device(name).allocate(10)
    monkeypatch.setattr(manager, "close_all", lambda: None)  # this process goes on
    with pytest.warns(TargetMemoryWarning, match="won't go; PluginError: won't go either"):
        registry.close_at_exit()
    assert methods(first)[-1] == methods(second)[-1] == "deinit"


def test_close_waits_for_calls_inside() -> None:
    """A call that is inside the plugin when it is closed ends before deinit; none comes after."""
    plugin = SimulatedPlugin(latency={"synchronize": 0.05})
    registry = registry_with(plugin)
    device = registry.device("x:0")
    device.allocate(10)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                device.synchronize()
            except DeviceClosed:
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    registry.close()
    for thread in threads:
        thread.join(10)
    assert "deinit" == methods(plugin)[-1]


def test_after_close_everything_is_refused() -> None:
    """A closed registry starts no plugin and lends no device; one that was lent refuses."""
    plugin, late = SimulatedPlugin(), SimulatedPlugin()
    registry = registry_of(x=lambda: lambda: plugin, late=lambda: lambda: late)
    device = registry.device("x:0")
    registry.plugins()
    registry.close()
    for use in (
        lambda: device.allocate(10),
        lambda: device.allocate(10, kind="host"),
        device.synchronize,
        device.memory_info,
        lambda: registry.device("late:0"),
    ):
        with pytest.raises(DeviceClosed, match="closed"):
            use()
    assert [] == late.calls


def test_leaks_are_told_on_close_and_not_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a device tells its live memory; closing all at exit does so only when asked."""
    plugin = SimulatedPlugin(devices=3)
    registry = registry_with(plugin)
    kept = [registry.device("x:0").allocate(10), registry.device("x:1").allocate(10)]
    with pytest.warns(LeakWarning, match="x:0: closed with 1 live block, 10 B"):
        registry.device("x:0").close()
    monkeypatch.setenv("TARGETMEM_REPORT_LEAKS", "1")
    kept.append(registry.device("x:2").allocate(20))
    with pytest.warns(LeakWarning) as told:
        registry.close()
    assert ["x:2: closed with 1 live block, 20 B"] == [
        str(warning.message).partition(" requested")[0] for warning in told
    ]


def test_a_forked_child_leaves_the_parents_plugins_alone() -> None:
    """In a forked child every use of the parent's device is refused, and no call reaches its plugin."""
    plugin, fresh = SimulatedPlugin(), SimulatedPlugin()
    registry = registry_of(x=lambda: lambda: plugin, fresh=lambda: lambda: fresh)
    device = registry.device("x:0")
    live, freed = device.allocate(100), device.allocate(200)
    freed.release()
    calls = len(plugin.calls)

    def child() -> None:
        registry.after_fork_in_child()  # what os.fork does for the registry of the process
        refused = (
            lambda: device.allocate(200),
            lambda: device.allocate(300),
            lambda: device.allocate(10, kind="host"),
            device.synchronize,
            device.memory_info,
        )
        for use in refused:
            with pytest.raises(DeviceClosed, match=r"x:0.*belongs to the parent process"):
                use()
        live.release()
        assert registry.device("fresh:0").allocate(10).pointer
        registry.close()
        assert calls == len(plugin.calls)
        assert "deinit" == methods(fresh)[-1]

    assert 0 == forked(child)
    assert freed is not device.allocate(200)
    live.release()
    registry.close()
    assert ["release", "release", "deinit_device", "deinit"] == methods(plugin)[-4:]


def test_the_host_goes_on_in_a_forked_child() -> None:
    """In a forked child the host's memory, live and cached, can be used and freed; so can new memory."""
    registry = registry_of(host=lambda: HostPlugin)
    device = registry.device("host:0")
    live, freed = device.allocate(100), device.allocate(200)
    memoryview(live)[:] = b"x" * 100
    freed.release()

    def child() -> None:
        registry.after_fork_in_child()
        assert b"x" * 100 == bytes(live)
        live.release()
        assert device.allocate(200).pointer
        assert device.allocate(5000, kind="shared").pointer
        assert device.memory_info() is not None
        registry.close()

    assert 0 == forked(child)
    live.release()
    registry.close()
