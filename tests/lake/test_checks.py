"""The tests of the lake, in its own environment: DuckDB's extensions are packaged for another version than the one that a file has."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PYTHON = Path(sys.prefix) / "lake" / "bin" / "python"


@pytest.mark.timeout(1_200)  # some fifty servers and a PostgreSQL: minutes on a busy machine
def test_a_lake_holds_what_a_file_does() -> None:
    if not PYTHON.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{PYTHON} is not there: `make test` installs requirements-lake.lock for it")  # fmt: skip
        pytest.skip("the lake's DuckDB is not installed: `make .venv/.lake` installs it apart")
    done = subprocess.run(
        [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/lake/checks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
