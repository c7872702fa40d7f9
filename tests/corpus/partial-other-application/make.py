"""Simulates four minutes and keeps some of the traces; the engines' metrics stay whole."""

from pathlib import Path

from tests.benchmarks.partial_sight import THINNED, record


def make(folder: Path) -> None:
    """Write the window's export requests."""
    out = folder / "window"
    out.mkdir()
    record(out, "noisy_tenant", THINNED["beside another"], duration_s=240.0, confounders=False)
