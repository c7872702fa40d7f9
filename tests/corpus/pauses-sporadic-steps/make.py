"""From the second half on the engine stands still at random, every four seconds in the mean, for 0.7 to 2 s; all its streams wait."""

import random
from pathlib import Path

from tests.corpus.pauses_world import streams


def make(folder: Path) -> None:
    draw, at, pauses = random.Random(48), 120_000.0, []
    while at < 300_000:
        at += draw.expovariate(1 / 4_000)
        pauses.append((at, draw.uniform(700, 2_000)))
    streams(folder, lambda _n, _at: pauses, engine=True, every_ms=400.0, n=600)
