"""From the second half on each stream stops for 250 ms now and then, each at its own moments."""

import random
from pathlib import Path

from tests.corpus.pauses_world import streams


def own(number: int, at: float) -> list[tuple[float, float]]:
    draw, moment, out = random.Random(number), at, []
    while number >= 250 and moment < at + 8_000:
        moment += draw.expovariate(1 / 1_200)
        out.append((moment, 250.0))
    return out


def make(folder: Path) -> None:
    streams(folder, own)
