"""How long does an engine read prompts of the same size, now over before? Apart from load, which spares the quickest calls."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.token_speed import at_equal_load, equal_load_error, reads
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray


class ReadPace(NamedTuple):
    """Prefill at equal new tokens, now over before: of the median call with its standard error (log scale), of the quickest quarter, and the calls of now.

    `by_size`: longer prompts take clearly more times as long than shorter ones, as those do that are read in more pieces.
    """

    ratio: float
    error: float
    quick: float
    n: int
    by_size: bool


def read_pace(before: Calls, now: Calls) -> ReadPace | None:
    """Return the pace of reading; None where both sides share too few prompts of like size."""
    sides = [reads(side) for side in (before, now)]
    ratio, error, quick = (
        at_equal_load(sides),
        equal_load_error(sides),
        at_equal_load(sides, 0.25),
    )
    if ratio is None or error is None or quick is None:
        return None
    return ReadPace(ratio, error, quick, len(sides[1][0]), _by_size(sides))


def _by_size(sides: list[tuple[FloatArray, FloatArray]]) -> bool:
    middle = float(np.median(np.concatenate([size for size, _ in sides])))
    found = []
    for longer in (False, True):
        some = [(size[m], ms[m]) for size, ms in sides for m in [(size > middle) == longer]]
        ratio, error = at_equal_load(some), equal_load_error(some)
        if ratio is None or error is None:
            return False
        found.append((math.log(ratio), error))
    (short, short_error), (long, long_error) = found
    return long - short > Z_95 * math.hypot(short_error, long_error)
