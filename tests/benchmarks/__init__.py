"""Measured claims: each script here prints its table and, with --write, records its headlines in docs/results. None is a timed test."""
