"""Was one trace in so many kept by its id? The SDKs' ratio samplers write nothing on what they keep, but the ids of what is left give them away.

A sampler that decides by the id keeps those whose number lies below (or above) a bound, so that the ids that are left fill the room up to that bound
evenly and leave the rest empty. Which number of the id it is differs by SDK; each is tried. The chance that all of n ids that nobody chose lie in a part x of
the room is x to the power of n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from overrun.analysis.words.arrays import FloatArray

# As many ids as tell a share to within a few parts in a thousand; fewest that are looked at; own defaults.
MOST_IDS: Final = 1_024
FEWEST_IDS: Final = 50
# Chance below which ids were not left by chance, with all that a store is ever asked.
UNLIKELY: Final = 1e-9
# Shares that are told. Half and more is what an id of 63 random bits looks like, below one in a thousand one of a counter or a clock; own defaults.
LOWEST, HIGHEST = 0.001, 0.45
# Kolmogorov's distance times the root of n above which the ids do not fill their room evenly (1 in 1,000 by chance).
UNEVEN: Final = 1.95
_WHOLE: Final = 2.0**64


def _signed(values: FloatArray) -> FloatArray:
    """Size of 64 bits read as a signed number, 0..1."""
    return np.where(values < 0.5, values, 1.0 - values) * 2.0


# The number (0..1) by which each SDK decides, of the upper and the lower 64 bits of the id; low ones are kept.
_NUMBERS: Final[dict[str, Callable[[Sequence[int], Sequence[int]], FloatArray]]] = {
    "Python, Go, Rust": lambda hi, lo: np.array([one / _WHOLE for one in lo]),
    "Java": lambda hi, lo: _signed(np.array([one / _WHOLE for one in lo])),
    ".NET": lambda hi, lo: _signed(np.array([one / _WHOLE for one in hi])),
    "JavaScript": lambda hi, lo: np.array(
        [((a >> 32) ^ a ^ (b >> 32) ^ b) % 2**32 / 2.0**32 for a, b in zip(hi, lo, strict=True)]
    ),
    "consistent probability": lambda hi, lo: np.array([1.0 - one % 2**56 / 2.0**56 for one in lo]),
}


def share_kept(trace_ids: Sequence[str]) -> float | None:
    """Return the share (0..1, two digits) of all traces that a sampler by id kept, None where these ids (32 hexadecimal digits) show none."""
    if len(trace_ids) < FEWEST_IDS:
        return None
    hi, lo = [int(one[:16], 16) for one in trace_ids], [int(one[16:], 16) for one in trace_ids]
    shares = [
        share
        for share in (_room(number(hi, lo)) for number in _NUMBERS.values())
        if share is not None
    ]
    return float(f"{min(shares):.2g}") if shares else None


def _room(numbers: FloatArray) -> float | None:
    """Return the part of 0..1 that these numbers fill from below, None where that is chance, or they do not fill it evenly."""
    n, top = len(numbers), float(numbers.max())
    share = top * (n + 1) / n
    if not LOWEST <= share <= HIGHEST or n * math.log(top) > math.log(UNLIKELY):
        return None
    filled = np.sort(numbers) / share
    distance = float(np.abs(filled - (np.arange(n) + 0.5) / n).max())
    return share if distance * math.sqrt(n) <= UNEVEN else None
