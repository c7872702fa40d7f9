"""From the second half on every ninth call brings a prompt of 12,000 to 20,000 tokens, which is read while all other streams stand."""

import random
from pathlib import Path

from tests.corpus.pauses_world import streams


def read(number: int) -> int:
    long = number >= 250 and number % 9 == 4
    return int(random.Random(number).uniform(12_000, 20_000)) if long else 300


def pauses(number: int, at: float) -> list[tuple[float, float]]:
    """The others' prompts around this call, as far as they are known to begin about every 1.1 s."""
    return [
        (1_100.0 * other + 300.0, 0.05 * read(other))
        for other in range(max(0, number - 8), number + 9)
        if other != number and read(other) > 1_000
    ]


def make(folder: Path) -> None:
    streams(folder, pauses, engine=True)
