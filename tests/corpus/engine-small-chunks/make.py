"""Prompts are read in steps of 2,048 tokens, of 128 after ten minutes; each step takes 15 ms beside what it reads."""

import math
from pathlib import Path

from tests.corpus.seats_world import calls


def make(folder: Path) -> None:
    calls(
        folder,
        seats=lambda _: 32,
        every_ms=lambda _: 780.0,
        read_ms=lambda at, read: (
            15.0 * math.ceil(read / (2_048 if at < 600_000 else 128)) + 0.05 * read
        ),
        seed=36,
    )
