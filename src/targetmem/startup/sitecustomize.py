"""Join a program to the pool: Python imports this file at its start, `targetmem run` put it on PYTHONPATH.

The program must not be able to tell. So this file imports nothing but what plain Python has loaded by now or
built in, and what targetmem itself needs is imported past the program (see PrivateImports): a program's own
`queue.py` must never meet the standard one, nor the other way round.
"""

from __future__ import annotations

import _frozen_importlib_external as external
import _thread
import atexit
import os
import sys

TYPE_CHECKING = False  # `typing` is not loaded yet
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from targetmem.report.session import Session

__all__: list[str] = []

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
STANDARD = os.path.dirname(os.__file__) + os.sep
SITE_PACKAGES = (STANDARD + "site-packages" + os.sep, STANDARD + "dist-packages" + os.sep)


class Program:
    """One run of a program: served once NumPy is there, and reported at the exit of its main process."""

    def __init__(self, settings: str) -> None:
        self.imports = PrivateImports([*sys.path, ROOT])
        self._settings = settings
        self._process = os.getpid()
        self._session: Session | None = None

    def serve(self) -> None:
        """Serve NumPy's arrays from the pool; a failure is told in the report, not to the program."""
        with self.imports:
            self._open().serve()

    def finish(self) -> None:
        """Report, unless this is a child of `os.fork` on its way out."""
        if os.getpid() != self._process:
            return
        interrupted = dies_of_interrupt()
        with self.imports:
            self._open().finish()
        if interrupted:
            keep_interrupted()

    def _open(self) -> Session:
        if self._session is None:
            from targetmem.report.session import Session

            self._session = Session.from_text(self._settings)
        return self._session


class PrivateImports:
    """While entered, this thread imports as if there were no program: from the path that held at the start.

    Modules of the program that go by a standard name step aside meanwhile, and the standard ones that were
    loaded here give their names back to the program where it has such a file.
    """

    def __init__(self, path: list[str]) -> None:
        self.thread = 0
        self._path = path
        self._aside: dict[str, ModuleType] = {}
        self._known: set[str] = set()

    def find(self, name: str) -> ModuleSpec | None:
        """Find a top-level module."""
        spec: ModuleSpec | None = external.PathFinder.find_spec(name, self._path)
        return spec

    def __enter__(self) -> None:
        foreign = {name for name, module in sys.modules.items() if is_standard(name) and is_foreign(module)}
        self._aside = take_out(foreign)
        self._known = set(sys.modules)
        self.thread = _thread.get_ident()

    def __exit__(self, *_: object) -> None:
        self.thread = 0
        loaded = {name.partition(".")[0] for name in sys.modules.keys() - self._known}
        take_out({name for name in loaded if is_standard(name) and hides(name)} | set(self._aside))
        sys.modules.update(self._aside)


def is_standard(name: str) -> bool:
    """Say whether a module goes by the name of one of the standard library's."""
    return name.partition(".")[0] in sys.stdlib_module_names


def is_foreign(module: object) -> bool:
    """Say whether a module's file lies outside the standard library."""
    file: str = getattr(module, "__file__", None) or STANDARD
    return not file.startswith(STANDARD) or file.startswith(SITE_PACKAGES)


def hides(name: str) -> bool:
    """Say whether the program would find another module by the name of one that is loaded."""
    spec = external.PathFinder.find_spec(name)
    return spec is not None and spec.origin != getattr(sys.modules[name], "__file__", spec.origin)


def take_out(names: set[str]) -> dict[str, ModuleType]:
    """Take modules of these names, and all below them, out of `sys.modules`; give them."""
    found = [name for name in sys.modules if name in names or name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in found}


class Finder:
    """Let targetmem import privately; find NumPy as the finders behind do, but act as soon as it is loaded.

    It stays in `sys.meta_path`: taking it out could make another thread's import skip a finder.
    """

    def __init__(self, imports: PrivateImports, action: Callable[[], None]) -> None:
        self._imports = imports
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Give the spec of a module that targetmem imports, or of NumPy; None for everything else."""
        if path is None and self._imports.thread == _thread.get_ident():
            return self._imports.find(name)
        if name != "numpy":
            return None
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        if spec is not None and spec.loader is not None:
            act_after_loading(spec.loader, self._action)
        return spec


def act_after_loading(loader: object, action: Callable[[], None]) -> None:
    """Have one loader object call the action after it executed its module, and leave no trace on it."""
    execute: Callable[[ModuleType], None] = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # type: ignore[attr-defined]
        execute(module)
        action()

    # Python leaves the import system's own frames out of a traceback; this one belongs to them.
    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")
    loader.exec_module = exec_module  # type: ignore[attr-defined]


def dies_of_interrupt() -> bool:
    """Say whether an uncaught KeyboardInterrupt ends the program: Python's own note of that can't be read."""
    trace = getattr(sys, "last_traceback", None)
    uncaught = trace is None or trace.tb_frame.f_back is None
    return uncaught and getattr(sys, "last_type", None) is KeyboardInterrupt and not sys.flags.inspect


def keep_interrupted() -> None:
    """Have Python note again that SIGINT ends the program: it forgets when text is executed."""
    try:
        exec("raise KeyboardInterrupt")  # noqa: S102
    except KeyboardInterrupt:
        return


def restore() -> str | None:
    """Take the launcher's marks out of the environment and the path; give the settings."""
    settings = os.environ.pop("TARGETMEM_RUN", None)
    if settings is None:
        return None
    former = os.environ.pop("TARGETMEM_RUN_PYTHONPATH", None)
    if former is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = former
    sys.path[:] = [entry for entry in sys.path if entry != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    return settings


def start() -> None:
    """Join this interpreter's program, if the launcher asked for it."""
    settings = restore()
    if settings is None:
        return
    program = Program(settings)
    atexit.register(program.finish)
    sys.meta_path.insert(0, Finder(program.imports, program.serve))
    if "numpy" in sys.modules:  # a .pth file was faster
        program.serve()


if __name__ == "sitecustomize":
    start()
    # Go on with the sitecustomize that this one hides; where there is none, site.py expects this very error.
    del sys.modules["sitecustomize"]
    import sitecustomize  # type: ignore[import-not-found] # noqa: F401
