"""Eight seats; calls come twice as often in the second half."""

from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(folder, seats=lambda _: 8, every_ms=lambda at: 820.0 if at < 600_000 else 400.0, seed=34)
