"""When is a kernel compiled, and where is it kept? At its first call; in one cache folder per user, which is named before numba is imported.

Importing a module with kernels loads no compiler, so a command that only asks a server waits for none. Compiling takes half a minute, once per machine and
version: a server that finds none of the kernels that arriving telemetry meets in its cache runs them as the Python that they are until then (`interpret`).
That costs 0.4 s of CPU for a body of 512 spans instead of 0.01 (tests/benchmarks/first_body.py), and answers at once.
Where no folder can be written, nothing is kept and nothing fails.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, overload

import numpy as np

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def cache_folder() -> str | None:
    """Where compiled kernels are kept: the user's cache folder, or a temporary one where that cannot be written; None without either."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("CACHE_DIRECTORY")  # systemd's
        wanted = (Path(base) if base else Path.home() / ".cache") / "overrun" / "numba"
        wanted.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only; or a user without a home
        return _temporary_folder()
    return str(wanted) if os.access(wanted, os.W_OK) else _temporary_folder()


def _temporary_folder() -> str | None:
    """A temporary folder of this user's alone, the same for every process: what is kept there is code that will run."""
    with contextlib.suppress(OSError):
        if hasattr(os, "getuid"):
            wanted = Path(tempfile.gettempdir()) / f"overrun-numba-{os.getuid()}"
            wanted.mkdir(mode=0o700, exist_ok=True)
            found = wanted.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if mine and not found.st_mode & 0o077:
                return str(wanted)
    with contextlib.suppress(OSError):
        return tempfile.mkdtemp(prefix="overrun-numba-")  # somebody else's, or open to others
    return None


# SciPy's linear algebra, which numba looks for when it loads what a compiler needs, and none of our kernels uses: a tenth of every start's CPU, and 9 MB.
_BLAS: Final = "scipy.linalg.cython_blas"


@functools.cache
def _compiler() -> Any:
    """Return numba. Needs `_LOCK`."""
    # Must be set before numba is imported; a read-only installation then still works.
    if "NUMBA_CACHE_DIR" not in os.environ and (folder := cache_folder()):
        os.environ["NUMBA_CACHE_DIR"] = folder
    return importlib.import_module("numba")


@contextlib.contextmanager
def _without_blas() -> Iterator[None]:
    """Let numba find no SciPy for as long as the block lasts."""
    hidden = _BLAS not in sys.modules
    if hidden:
        sys.modules[_BLAS] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            del sys.modules[_BLAS]


def _from_cache(cache: Any, usual: Callable[..., Any], signature: Any, context: Any) -> Any:
    """Return the cached code of a kernel, None without any.

    numba first loads all that it needs to compile (0.3 s of CPU), also for code that is compiled already. That needs no more than its runtime.
    """
    importlib.import_module("numba.core.runtime").rtsys.initialize(context)
    with _without_blas():
        found = cache._load_overload(signature, context)
        return usual(signature, context) if found is None else found


# Loading the compiler and a room's kernels takes 0.4 s of CPU, the walk of assembly as Python 11 us a span, compiled 0.1 us (cProfile, 2 cores, 2026-11-26).
FEW_ROWS: Final = 20_000
_LOCK = threading.RLock()
# The kernels that are interpreted while they are not compiled: those that arriving telemetry meets. Others are for questions, and compile when asked.
_ARRIVING: Final = ("overrun.collector.", "overrun.analysis.assembly.")


class _Absent(Exception):
    """No cache holds a kernel, and it is not to be compiled now."""


class _State(threading.local):
    """Whether this thread's kernels have too little to do for loading a compiler."""

    few = False


_state = _State()
_interpreting = threading.Event()
_absent: set[Any] = set()


def interpret(wanted: bool) -> None:
    """From now on, run kernels of arriving telemetry that are in no cache as Python, or (False) compile them where they are called, as usual.

    Called again, it forgets which ones were absent: another process may have compiled them.
    """
    if wanted:
        _interpreting.set()
    else:
        _interpreting.clear()
    _absent.clear()


@contextlib.contextmanager
def of_rows(rows: int) -> Iterator[None]:
    """Run the kernels of arriving telemetry as Python in this block where they walk through few `rows` and no compiler is loaded: a command ends before that pays."""
    before = _state.few
    _state.few = rows <= FEW_ROWS and "numba" not in sys.modules
    try:
        yield
    finally:
        _state.few = before


@contextlib.contextmanager
def for_few(wanted: bool) -> Iterator[None]:
    """Run kernels of arriving telemetry in all threads as Python in this block: what takes in a small file ends before a compiler is loaded."""
    before, _State.few = _State.few, wanted or _State.few
    try:
        yield
    finally:
        _State.few = before


def is_kept(room: str) -> bool:
    """Whether the cache has compiled code of the kernels in the folder `room`; numba names theirs after it."""
    folder = os.environ.get("NUMBA_CACHE_DIR") or cache_folder()
    return folder is not None and any(Path(folder).glob(f"{room}_*/*.nbc"))


def any_absent() -> bool:
    """Whether a kernel has been interpreted since `interpret` because no cache holds it."""
    return bool(_absent)


def _made(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """numba's function, which keeps its compiled code where a folder can be written."""
    njit_of_numba = _compiler().njit
    try:
        return njit_of_numba(**options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return njit_of_numba(**options | {"cache": False})(function)


def _patient(made: Any, function: Callable[..., Any]) -> Any:
    """The compiled function, which may be interpreted; as it is where numba is told not to compile at all."""
    cache: Any = getattr(made, "_cache", None)
    if hasattr(cache, "_load_overload"):
        cache.load_overload = functools.partial(_from_cache, cache, cache.load_overload)
    if made is not function and function.__module__.startswith(_ARRIVING):
        # numba calls what this method returns, once for each call that it has no compiled code for.
        made._compile_for_args = functools.partial(_code_for, made, made._compile_for_args)
        made._compiler.compile = functools.partial(_compiled, made._compiler.compile)
    return made


def _code_for(made: Any, usual: Callable[..., Any], *arguments: Any) -> Any:
    """The compiled code for a call, or the function as Python."""
    if not _interpreting.is_set():
        return usual(*arguments)
    if made not in _absent:
        try:
            return usual(*arguments)
        except _Absent:
            _absent.add(made)
    return functools.partial(_interpreted, made.py_func)


def _compiled(usual: Callable[..., Any], *arguments: Any) -> Any:
    if _interpreting.is_set():
        raise _Absent
    return usual(*arguments)


def _interpreted(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a kernel as Python. Whole numbers wrap in it as in compiled code; NumPy would warn of that."""
    with np.errstate(over="ignore"):
        return _plain(function)(*arguments)


_namespaces: dict[int, dict[str, Any]] = {}


@functools.cache
def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with plain ones in place of the kernels that it calls: going through a kernel costs more than most of them do, and a body makes 300,000 calls."""
    names = function.__globals__
    if id(names) not in _namespaces:
        _namespaces[id(names)] = mine = dict(names)
        for name, value in names.items():
            if (inner := _as_python(value)) is not None:
                mine[name] = _plain(inner)
    own: Any = function
    return FunctionType(
        own.__code__, _namespaces[id(names)], own.__name__, own.__defaults__, own.__closure__
    )


def _as_python(value: Any) -> Callable[..., Any] | None:
    """The Python function of a kernel, compiled or not; None of anything else."""
    if isinstance(value, Kernel):
        return value._function
    found = getattr(value, "py_func", None)  # numba's
    return found if isinstance(found, FunctionType) else None


class Kernel:
    """A function that numba compiles at its first call; from then on its module's name for it is the compiled one."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Return what the compiled function returns."""
        if self._compiled is not None:
            return self._compiled(*arguments)
        if _state.few and self._function.__module__.startswith(_ARRIVING):
            return _interpreted(self._function, *arguments)
        return self.compiled()(*arguments)

    def compiled(self) -> Any:
        """Return numba's function, made with those that it calls."""
        with _LOCK:
            if self._compiled is None:
                names = self._function.__globals__
                made = _made(self._function, self._options)
                self._compiled = _patient(made, self._function)
                for name in self._function.__code__.co_names:
                    if isinstance(called := names.get(name), Kernel):
                        names[name] = called.compiled()
                if names.get(self._function.__name__) is self:
                    names[self._function.__name__] = self._compiled
            return self._compiled


@overload
def njit(function: Compiled, **options: Any) -> Compiled: ...
@overload
def njit(**options: Any) -> Callable[[Compiled], Compiled]: ...
def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Decorate a kernel, with numba's options of that name: `@njit` or `@njit(cache=True)`."""
    return (
        functools.partial(Kernel, options=options)
        if function is None
        else Kernel(function, options)
    )


# For loops that make no arrays: without counting references to those they are given, which cost half of the time of short functions (numba 0.65 has
# no public name for it). `inlined` ones become part of their caller, or handing their arguments on costs the other half.
lean: Any = functools.partial(njit, cache=True, nogil=True, _nrt=False)
inlined: Any = functools.partial(lean, forceinline=True)


def read_only(array: np.ndarray[Any, Any]) -> Any:
    """The array for a kernel that only reads it. Arrow's memory may not be written to and numpy's may: two types, each of which is compiled for."""
    view = array.view()
    view.flags.writeable = False
    return view
