"""A serving process does not load what it has no use for."""

import subprocess
import sys


def test_a_command_loads_no_pandas() -> None:
    code = """
import atexit, sys
import overrun

def ended():
    print("pandas" in sys.modules, "pyarrow" in sys.modules)

atexit.register(ended)
sys.argv = ["overrun", "report", "--db", "/nowhere/at/all.db"]
overrun.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "False True\n", done.stderr


def test_pages_of_libraries_leave_the_process_and_come_back_when_used() -> None:
    code = """
from collector import footprint
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
