"""Tests that need the lake's DuckDB; `tests/lake/test_checks.py` runs them there."""
