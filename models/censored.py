"""How long would an answer have become that a token limit cut off?

An answer with finish_reason `length` is right-censored: its full length is unknown but not shorter than what was seen.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from overrun.collector.arrays import FloatArray


def completed(
    outputs: FloatArray, truncated: NDArray[np.bool_], routes: Sequence[str | None], seed: int
) -> FloatArray:
    """Return `outputs` (tokens) with each truncated one replaced by a draw from the longer complete answers of its route.

    Kaplan and Meier's estimate (1958) of the route's lengths, conditional on being longer than what was seen. A cut
    answer longer than every complete one keeps its length: nothing is known beyond it (Efron's convention, 1967).
    """
    if not truncated.any():
        return outputs
    dice = np.random.default_rng(seed)
    out = outputs.copy()
    names = np.array(routes, dtype=object)
    for route in dict.fromkeys(names[truncated].tolist()):
        own = names == route
        out[own] = _completed_route(outputs[own], truncated[own], dice)
    return out


def _completed_route(
    outputs: FloatArray, truncated: NDArray[np.bool_], dice: np.random.Generator
) -> FloatArray:
    out = outputs.copy()
    lengths, mass = kaplan_meier(outputs, truncated)
    beyond = np.concatenate((np.cumsum(mass[::-1])[::-1], [0.0]))
    first = np.searchsorted(lengths, outputs[truncated], side="right")
    drawn = dice.random(len(first)) * beyond[first]
    # The largest number whose tail still holds the drawn mass: each longer length with its own probability.
    chosen = np.searchsorted(-beyond, -drawn, side="left") - 1
    known = beyond[first] > 0
    out[np.flatnonzero(truncated)[known]] = lengths[np.maximum(chosen[known], first[known])]
    return out


def kaplan_meier(
    outputs: FloatArray, truncated: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return the distinct lengths of complete answers, ascending, and the probability mass of each."""
    lengths, events = np.unique(outputs[~truncated], return_counts=True)
    at_risk = len(outputs) - np.searchsorted(np.sort(outputs), lengths, side="left")
    surviving = np.concatenate(([1.0], np.cumprod(1.0 - events / at_risk)))
    return lengths, surviving[:-1] - surviving[1:]
