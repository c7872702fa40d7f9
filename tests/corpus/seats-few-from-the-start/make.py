"""Four seats from the beginning, and a little more to do than they can."""

from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(folder, seats=lambda _: 4, every_ms=lambda _: 790.0, kv_per_token=1 / 100_000, seed=33)
