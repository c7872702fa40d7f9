"""Room for 60,000 tokens, for 4,600 after ten minutes."""

from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        seats=lambda _: 64,
        every_ms=lambda _: 780.0,
        tokens=lambda at: 60_000.0 if at < 600_000 else 4_600.0,
        seed=35,
    )
