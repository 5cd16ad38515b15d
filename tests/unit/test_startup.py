"""What runs in the program's interpreter before the program: the environment, the imports, NumPy's loader."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import types
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING, NoReturn

import pytest

from targetmem.startup import sitecustomize as startup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def unchanged() -> Iterator[None]:
    """Put modules, path and finders back after a test."""
    modules, path, finders = dict(sys.modules), list(sys.path), list(sys.meta_path)
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    sys.modules.clear()
    sys.modules.update(modules)


def test_restore_without_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that targetmem did not start is left alone."""
    monkeypatch.delenv("TARGETMEM_RUN", raising=False)
    monkeypatch.setenv("PYTHONPATH", "as it was")
    assert startup.restore() is None
    assert "as it was" == os.environ["PYTHONPATH"]


@pytest.mark.parametrize("former", [None, "", "/a:/b"])
def test_restore(former: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONPATH is what it was before the launcher, also where it was not set; the marks are gone."""
    monkeypatch.setenv("TARGETMEM_RUN", "{}")
    monkeypatch.setenv("PYTHONPATH", startup.FOLDER)
    if former is not None:
        monkeypatch.setenv("TARGETMEM_RUN_PYTHONPATH", former)
    monkeypatch.setattr(sys, "path", ["/x", startup.FOLDER, "/y"])
    assert "{}" == startup.restore()
    assert former == os.environ.get("PYTHONPATH")
    assert ["/x", "/y"] == sys.path
    assert not {"TARGETMEM_RUN", "TARGETMEM_RUN_PYTHONPATH"} & os.environ.keys()


def loader_of(path: Path, source: str) -> SourceFileLoader:
    """Give a loader of a module with this source."""
    path.write_text(source)
    return SourceFileLoader("some_module", str(path))


def test_the_action_comes_after_loading_once(tmp_path: Path) -> None:
    """The module is whole when the action runs; the loader then looks as if nothing had been."""
    loader = loader_of(tmp_path / "m.py", "x = 1\n")
    before = dict(vars(loader))
    module = types.ModuleType("some_module")
    seen: list[int] = []
    startup.act_after_loading(loader, lambda: seen.append(module.x))
    for _ in range(2):
        loader.exec_module(module)
    assert [1] == seen
    assert before == vars(loader)


def test_no_action_after_a_failure(tmp_path: Path) -> None:
    """A module that cannot be loaded raises what it raises, and nothing is done."""
    loader = loader_of(tmp_path / "m.py", "1 / 0\n")
    seen: list[int] = []
    startup.act_after_loading(loader, lambda: seen.append(1))
    with pytest.raises(ZeroDivisionError):
        loader.exec_module(types.ModuleType("some_module"))
    assert [] == seen


def fail() -> NoReturn:
    """Stand for an action that must not run."""
    raise AssertionError


def test_the_finder_finds_nothing_but_numpy() -> None:
    """Every other module is found by the finders behind."""
    finder = startup.Finder(startup.PrivateImports([]), fail)
    assert [None] * 3 == [finder.find_spec(name) for name in ("json", "numpy.linalg", "numpyx")]


@pytest.mark.usefixtures("unchanged")
def test_the_finder_finds_numpy_as_others_do(tmp_path: Path) -> None:
    """NumPy's spec comes from the finders behind; those without find_spec, as of old, are passed over."""
    (tmp_path / "numpy.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    seen: list[int] = []
    finder = startup.Finder(startup.PrivateImports([]), lambda: seen.append(1))
    sys.meta_path.insert(0, finder)
    sys.meta_path.insert(0, object())  # type: ignore[arg-type]
    spec = finder.find_spec("numpy")
    assert spec is not None
    assert spec.origin == str(tmp_path / "numpy.py")
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert [1] == seen


@pytest.mark.usefixtures("unchanged")
def test_private_imports_pass_the_program_by(tmp_path: Path) -> None:
    """Within, standard modules are the standard ones; after it, names of the program's files are free."""
    sys.modules.pop("colorsys", None)
    for name in ("colorsys", "chunk_of_mine"):
        (tmp_path / f"{name}.py").write_text("")
    imports = startup.PrivateImports(list(sys.path))
    finder = startup.Finder(imports, fail)
    sys.path.insert(0, str(tmp_path))
    sys.meta_path.insert(0, finder)
    with imports:
        import colorsys

        assert finder.find_spec("chunk_of_mine") is None
    assert "colorsys" not in sys.modules
    assert hasattr(colorsys, "rgb_to_hsv")
    assert PathFinder.find_spec("chunk_of_mine") is not None


@pytest.mark.usefixtures("unchanged")
def test_modules_of_the_program_step_aside(tmp_path: Path) -> None:
    """A module of the program with a standard name is out of the way within, and back afterwards."""
    own = types.ModuleType("colorsys")
    own.__file__ = str(tmp_path / "colorsys.py")
    sys.modules["colorsys"] = own
    imports = startup.PrivateImports(list(sys.path))
    sys.meta_path.insert(0, startup.Finder(imports, fail))
    with imports:
        import colorsys

        assert hasattr(colorsys, "rgb_to_hsv")
    assert sys.modules["colorsys"] is own


@pytest.mark.usefixtures("unchanged")
def test_other_threads_import_as_ever() -> None:
    """Only the thread that entered imports privately."""
    imports = startup.PrivateImports([])
    finder = startup.Finder(imports, fail)
    found: list[ModuleSpec | None] = []
    with imports:
        assert finder.find_spec("json") is None
        thread = threading.Thread(target=lambda: found.append(finder.find_spec("json")))
        thread.start()
        thread.join()
    assert [None] == found


def test_standard_modules_are_told_from_others() -> None:
    """A module is foreign by where its file is; one without a file is built in."""
    assert not startup.is_foreign(sys)
    assert not startup.is_foreign(os)
    assert startup.is_foreign(pytest)
    assert startup.is_foreign(startup)


def test_only_an_uncaught_interrupt_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt that someone noted deeper in the program is no end of it."""
    for name in ("last_type", "last_traceback"):
        monkeypatch.delattr(sys, name, raising=False)
    assert not startup.dies_of_interrupt()
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0
    monkeypatch.setattr(sys, "last_type", KeyboardInterrupt, raising=False)
    monkeypatch.setattr(sys, "last_traceback", caught.tb, raising=False)
    assert not startup.dies_of_interrupt()
    monkeypatch.setattr(sys, "last_traceback", None)
    assert startup.dies_of_interrupt()
    monkeypatch.setattr(sys, "last_type", ValueError)
    assert not startup.dies_of_interrupt()
