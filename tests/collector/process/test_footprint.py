"""A serving process does not load what it has no use for, and frees what it no longer uses."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from overrun.collector.process import footprint
from tests import programs
from tests.conftest import new_store


def test_a_command_loads_no_library_for_nothing(tmp_path: Path) -> None:
    """Arrow looks for pandas, httpx for its own command, numba for linear algebra with the first kernel. Who needs SciPy finds all of it afterwards."""
    new_store(tmp_path / "t.db").close()
    code = f"""
import atexit, sys
from overrun import cli

def ended():
    from overrun.collector.ingest.quiet_traces import QuietTraces
    import numpy as np
    one = np.ones(1, np.uint64)
    QuietTraces(0).note(one, one, np.ones(1, np.int64), 1, 0.0)  # a kernel
    print(*({"pandas", "rich", "scipy.linalg"} & sys.modules.keys()), *sorted({"httpx", "numba", "pyarrow"} & sys.modules.keys()))
    import scipy.linalg.cython_blas

atexit.register(ended)
sys.argv = ["overrun", "report", "--db", {str(tmp_path / "t.db")!r}, "--output", "json"]
cli.main()
"""
    done = programs.fresh(code)
    assert not done.stderr
    assert done.stdout.endswith("\nnumba pyarrow\n")


def test_pages_of_libraries_leave_the_process_and_come_back_when_used() -> None:
    code = """
from overrun.collector.process import footprint
import duckdb, pyarrow.compute as pc

def resident_mb():
    return int(open("/proc/self/status").read().split("RssFile:")[1].split()[0]) / 1024

before = resident_mb()
footprint.settle()
assert resident_mb() < before / 2, (before, resident_mb())
assert duckdb.sql("select sum(i) from range(1000) t(i)").fetchall() == [(499500,)]
assert pc.sum([1, 2]).as_py() == 3
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class _Ring:
    """What only refers to itself."""

    def __init__(self) -> None:
        self.own = self


def test_what_refers_to_itself_is_freed_after_work_that_pays_for_the_search() -> None:
    """As a report leaves behind: some hundred objects that hold 100 MB, too few for Python to look for them."""
    gc.disable()
    try:
        ring = weakref.ref(_Ring())
        footprint.free_cycles(0.0)
        assert ring() is not None
        footprint.free_cycles(1e9)
        assert ring() is None
    finally:
        gc.enable()


def test_memory_that_has_grown_is_searched_for_what_refers_to_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = [100 << 20]
    monkeypatch.setattr(footprint, "own_memory", lambda: used[0])
    monkeypatch.setattr(footprint, "_EVERY_S", -1.0)
    monkeypatch.setattr(footprint, "_level", 0)
    gc.disable()
    try:
        ring = weakref.ref(_Ring())
        for used_mib in (100, 120, 90, 121):
            used[0] = used_mib << 20
            footprint.give_back()
            assert ring() is not None
        used[0] = 123 << 20
        footprint.give_back()
        assert ring() is None
    finally:
        gc.enable()
