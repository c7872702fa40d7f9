"""A serving process does not load what it has no use for."""

import subprocess
import sys


def test_converting_lists_loads_no_pandas_and_hides_it_from_nobody() -> None:
    code = ("import sys; from collector import footprint; footprint.keep_small(); import pyarrow as pa, analysis.serve; pa.array(['a']);"
            "assert 'pandas' not in sys.modules; import pandas; assert pandas.Series([1]).sum() == 1")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


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
