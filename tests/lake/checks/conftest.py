"""The checks are collected where DuckDB's extensions are, and nowhere else."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("duckdb_extension_ducklake") else ["test_*.py"]
