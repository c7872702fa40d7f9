"""A serving process does not load what it has no use for."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import new_store


def test_a_command_loads_neither_pandas_nor_linear_algebra(tmp_path: Path) -> None:
    """Arrow looks for the one, numba for the other, with the first kernel. Who needs SciPy finds all of it afterwards."""
    new_store(tmp_path / "t.db").close()
    code = f"""
import atexit, sys
from overrun import cli

def ended():
    from overrun.collector.ingest.quiet_traces import QuietTraces
    import numpy as np
    one = np.ones(1, np.uint64)
    QuietTraces(0).note(one, one, np.ones(1, np.int64), 1, 0.0)  # a kernel
    print("pandas" in sys.modules, "scipy.linalg" in sys.modules, "pyarrow" in sys.modules, "numba" in sys.modules)
    import scipy.linalg.cython_blas

atexit.register(ended)
sys.argv = ["overrun", "report", "--db", {str(tmp_path / "t.db")!r}, "--output", "json"]
cli.main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert not done.stderr
    assert done.stdout.endswith("False False True True\n")


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
