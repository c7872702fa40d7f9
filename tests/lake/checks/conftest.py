"""The checks are collected where DuckDB's extensions are, and nowhere else."""

import importlib.util
from collections.abc import Iterator

import pytest

from tests.lake.postgres import Postgres

collect_ignore_glob = [] if importlib.util.find_spec("duckdb_extension_ducklake") else ["test_*.py"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all checks."""
    made = Postgres()
    yield made
    made.close()
