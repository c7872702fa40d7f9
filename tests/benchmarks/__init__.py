"""Measured claims: each script here prints the table that docs/BENCHMARKS.md holds; none of them is a timed test."""
