"""A serving process does not load what it has no use for."""

import subprocess
import sys


def test_converting_lists_loads_no_pandas_and_hides_it_from_nobody() -> None:
    code = ("import sys; from collector import footprint; footprint.keep_small(); import pyarrow as pa, analysis.serve; pa.array(['a']);"
            "assert 'pandas' not in sys.modules; import pandas; assert pandas.Series([1]).sum() == 1")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
