"""Every prompt takes twice as long to read after ten minutes, short or long; answers are written as fast as before."""

from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        seats=lambda _: 32,
        every_ms=lambda _: 780.0,
        read_ms=lambda at, read: (1.0 if at < 600_000 else 2.0) * (20.0 + 0.08 * read),
        seed=37,
    )
