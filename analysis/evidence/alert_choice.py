"""Which threshold and which indicator alert best, and what is that worth on data which they were not chosen on? FloatArray in, choice and held-out counts out.

A window is cut midway between its breaches; each part is scored by what was learned on all others (cross-validation, Stone 1974; leave-one-group-out). What
chooses among indicators is scored so as well, each part by the indicator that was chosen without it (nested, Varma and Simon 2006: choosing by the same parts
that are shown flatters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# Rows of counts: alerts, those before a breach, those in the first minute of one, breaches that were told, and those of them early enough to act on.
ALERTS, RIGHT, LATE, TOLD, EARLY = range(5)
# Each part costs a fit; ten are the usual number of folds (Kohavi 1995), fewer where there are fewer breaches.
MOST_PARTS: Final = 10


@dataclass(frozen=True)
class Trials:
    """What the thresholds of one indicator told: `counts` per kind, threshold (rising) and part, `events` = breaches per part.

    `leads` = seconds from alert to breach per threshold and breach, NaN where it was not told; `part_of` the part of each breach.
    """

    thresholds: FloatArray
    counts: FloatArray
    leads: FloatArray
    events: FloatArray
    part_of: IntArray


@dataclass(frozen=True)
class Held:
    """One indicator with its threshold learned on everything (`row`), and with that of each part learned on all others (`rows`): `counts` per kind and part.

    `worth` and `warns` (leads, and rises before breaches rather than after) are of the whole window, `worths` and `warned` of what is left without each part.
    """

    row: int
    rows: IntArray
    counts: FloatArray
    worth: float
    warns: bool
    worths: FloatArray
    warned: BoolArray


def cuts(onsets: FloatArray, ends: FloatArray, first_s: float, last_s: float) -> FloatArray:
    """Return the edges of the parts of a window in seconds: midway between the end of a breach and the onset of the next, at most ten parts."""
    middles = (np.minimum(ends[:-1], onsets[1:]) + onsets[1:]) / 2.0
    if len(middles) >= MOST_PARTS:
        middles = middles[np.linspace(0, len(middles) - 1, MOST_PARTS - 1).round().astype(np.int64)]
    return np.concatenate([[first_s], middles, [last_s]])


def hold_out(trials: Trials, *, plain: bool) -> Held:
    """Return what an indicator is worth on parts that its threshold was not learned on; `plain` is that of the indicator to keep in doubt."""
    counts, events = trials.counts, trials.events
    parts = np.arange(len(events))
    row = int(_fitted(counts.sum(axis=-1), events.sum()))
    # fits[k, q]: the threshold learned without parts k and q, which scores q where all of k is held out.
    fits = _fitted(_without(counts), _without(events))
    rows = fits[parts, parts]
    inner = counts[:, fits, parts[None, :]]
    inner[:, parts, parts] = 0.0
    held = counts[:, rows, parts]
    left = counts.sum(axis=-1)[:, rows] - held
    total = counts[:, row, :].sum(axis=-1)
    return Held(
        row,
        rows,
        held,
        float(_worth(held.sum(axis=-1), events.sum(), plain=plain)),
        bool(_warns(total)),
        _worth(inner.sum(axis=-1), events.sum() - events, plain=plain),
        _warns(left),
    )


def choose(held: list[Held], parts: int) -> tuple[int | None, list[int | None]]:
    """Return which indicator alerts best by the whole window, and by what is left without each part; None where none warns."""
    whole = _first([one.worth if one.warns else None for one in held])
    return whole, [
        _first([float(one.worths[k]) if one.warned[k] else None for one in held])
        for k in range(parts)
    ]


def f1(precision: FloatArray, recall: FloatArray) -> FloatArray:
    """Return the harmonic mean of precision and recall, 0 where both are 0."""
    return np.asarray(2.0 * precision * recall / np.maximum(precision + recall, 1e-12), np.float64)


def _first(worths: list[float | None]) -> int | None:
    known = [(worth, -k) for k, worth in enumerate(worths) if worth is not None]
    return -max(known)[1] if known else None


def _fitted(counts: FloatArray, events: FloatArray | float) -> IntArray:
    """Return the threshold (second axis) of the best F1, the highest of equals; those that tell half of their breaches too late for use only in need."""
    good = f1(
        counts[RIGHT] / np.maximum(counts[ALERTS], 1.0), counts[TOLD] / np.maximum(events, 1.0)
    )
    good = np.where(counts[ALERTS] > 0.0, np.where(_early(counts), good, good - 1.0), -2.0)
    return np.asarray(len(good) - 1 - np.argmax(good[::-1], axis=0), np.int64)


def _early(counts: FloatArray) -> BoolArray:
    return np.asarray((counts[TOLD] > 0.0) & (2.0 * counts[EARLY] >= counts[TOLD]), np.bool_)


def _warns(counts: FloatArray) -> BoolArray:
    return np.asarray(_early(counts) & (counts[LATE] <= counts[RIGHT]), np.bool_)


def _worth(counts: FloatArray, events: FloatArray | float, *, plain: bool) -> FloatArray:
    """Return F1, less its standard error for all but the plain indicator (rule of one standard error, Breiman et al. 1984, 3.4.3).

    To choose among nine indicators by five breaches is a lottery. Load drives most breaches, and the rate of arrivals is counted from all requests instead of
    seen once a scrape. On development seeds (`tests.benchmarks.leading`, 33001 to 35006) it brought precision 0.40 at recall 0.75 instead of 0.37 at 0.68 on
    other thirds of windows of waves and changed nothing on faults, of which 0.57 instead of 0.41 is shown (later: 0.69); on fresh ones the later data was told
    as well by the best where it was learned, which flatters (docs/results/leading.json). The error is that of a share of so
    many breaches, by Laplace's rule: 3 of 3 are not certain.
    """
    good = f1(
        counts[RIGHT] / np.maximum(counts[ALERTS], 1.0), counts[TOLD] / np.maximum(events, 1.0)
    )
    if plain:
        return good
    share = (good * events + 1.0) / (events + 2.0)
    return np.asarray(good - np.sqrt(share * (1.0 - share) / (events + 2.0)), np.float64)


def _without(counts: FloatArray) -> FloatArray:
    """Return the sums over the last axis without parts k and q, for all k and q; without k alone where they are the same."""
    parts = np.arange(counts.shape[-1])
    left = counts.sum(axis=-1)[..., None, None] - counts[..., :, None] - counts[..., None, :]
    left[..., parts, parts] += counts
    return np.asarray(left, np.float64)
