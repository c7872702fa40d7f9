"""From the second half on all streams stop for 120 ms every 450 ms."""

from pathlib import Path

from tests.corpus.pauses_world import streams

CLOCK = [(300_000.0 + 450.0 * k, 120.0) for k in range(1_200)]


def make(folder: Path) -> None:
    streams(folder, lambda _n, _at: CLOCK, n=600, seed=49)
