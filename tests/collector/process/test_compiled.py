"""Kernels are compiled when they are first called, and loading their modules loads no compiler."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overrun.collector.process.compiled import FEW_ROWS, Kernel, cache_folder, njit, of_rows
from tests import programs
from tests.conftest import ROOT


@njit(nogil=True)
def _twice(value):
    return 2 * value


@njit(nogil=True)
def _twice_each(values):
    total = 0
    for value in values:
        total += _twice(value)
    return total


@njit
def _halvings(value):
    return 0 if value <= 1 else 1 + _halvings(value // 2)


def test_a_kernel_is_compiled_with_those_that_it_calls() -> None:
    first = globals()["_twice_each"]
    assert isinstance(first, Kernel)
    assert first(np.arange(5)) == 20
    assert not isinstance(globals()["_twice"], Kernel)
    assert globals()["_twice_each"].signatures  # from now on the module's name is the compiled one
    assert first(np.arange(4)) == 12


def test_a_kernel_may_call_itself() -> None:
    assert _halvings(1024) == 10


def test_threads_that_come_first_together_compile_once() -> None:
    @njit(nogil=True)
    def thrice(value):
        return 3 * value

    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(thrice.compiled())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert thrice(2) == 6


def test_modules_with_kernels_load_no_compiler() -> None:
    code = (
        "import sys, overrun.analysis.front.serve, overrun.analysis.front.commands, overrun.analysis.whatif.worker;"
        " print('numba' in sys.modules, 'llvmlite' in sys.modules)"
    )
    done = programs.fresh(code)
    assert (done.returncode, done.stdout.split()) == (0, ["False", "False"])


@pytest.mark.parametrize("home", ["a read-only one", "none"])
def test_without_a_home_kernels_are_kept_in_one_private_folder(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()  # no folder can be made below it, not even by root
    for name in ("XDG_CACHE_HOME", "CACHE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    if home == "none":
        monkeypatch.setattr(Path, "home", _no_home)
    else:
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = tmp_path / f"overrun-numba-{os.getuid()}"
    assert cache_folder() == cache_folder() == str(kept)
    assert kept.stat().st_mode & 0o777 == 0o700
    kept.chmod(0o777)  # others could put code there
    assert cache_folder() not in (None, str(kept))


def test_where_no_folder_can_be_written_kernels_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core import config

    (tmp_path / "file").touch()
    below_a_file = str(tmp_path / "file")
    for name in ("XDG_CACHE_HOME", "CACHE_DIRECTORY", "HOME"):
        monkeypatch.setenv(name, below_a_file)
    monkeypatch.setattr(tempfile, "tempdir", below_a_file)
    assert cache_folder() is None
    monkeypatch.setattr(config, "CACHE_DIR", below_a_file)
    (tmp_path / "__pycache__").touch()
    names: dict[str, Any] = {"__name__": "kept", "njit": njit}
    code = "@njit(cache=True)\ndef twice(value):\n    return 2 * value\n"
    (tmp_path / "kept.py").write_text(code)
    exec(compile(code, str(tmp_path / "kept.py"), "exec"), names)
    assert names["twice"](21) == 42
    assert sorted(path.name for path in tmp_path.iterdir()) == ["__pycache__", "file", "kept.py"]


def _no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_service_keeps_kernels_where_its_unit_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    assert cache_folder() == str(tmp_path / "overrun" / "numba")


def test_cached_code_is_loaded_without_what_compiling_needs(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(
        "import sys\n"
        "from overrun.collector.process.compiled import lean\n"
        "@lean\n"
        "def twice(value):\n"
        "    return 2 * value\n"
        "print(twice(21), 'numba.np.npyimpl' in sys.modules, 'scipy.linalg' in sys.modules)\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run(
            [sys.executable, str(tmp_path / "kept.py")],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert said == [["42", "True", "False"], ["42", "False", "False"]]


def test_few_rows_are_walked_through_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    @njit(nogil=True)
    def wrapped(value):
        return value * np.uint64(3)

    largest = np.uint64(2**64 - 1)
    monkeypatch.setattr(wrapped._function, "__module__", "overrun.collector.decode.of_a_test")
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    with of_rows(FEW_ROWS):
        assert wrapped(largest) == 2**64 - 3
        assert wrapped._compiled is None
    with of_rows(FEW_ROWS + 1):
        assert wrapped(largest) == 2**64 - 3
    assert wrapped._compiled is not None


def test_few_rows_use_what_is_compiled_where_the_compiler_is_loaded_anyway() -> None:
    @njit(nogil=True)
    def same(value):
        return value

    assert "numba" in sys.modules
    with of_rows(1):
        assert same(3) == 3
    assert same._compiled is not None
