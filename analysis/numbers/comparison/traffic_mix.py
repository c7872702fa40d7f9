"""Which part of a difference between two windows is only other traffic? Weights that give the first window the second one's mix.

Propensity weighting: a logistic model of "which window is this request from" on the mix gives each request of the first window the odds of the
second (inverse odds weighting; Rosenbaum and Rubin, Biometrika 70, 1983). What remains after weighting is not explained by the mix.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.headroom import LOAD_S
from overrun.analysis.words.arrays import FloatArray

# Standardised difference of means that counts as balanced after weighting; 0.1 is the usual bound, 0.2 allows for the shape of the tail.
BALANCED: Final = 0.2
# Values of a text column that get a term of their own.
_MOST_VALUES: Final = 8
_RIDGE: Final = 1e-3
_ROUNDS: Final = 50
# A covariate whose middle 90 % in one window lies outside the range of the other cannot be adjusted for.
_OVERLAP: Final = (5.0, 95.0)


@dataclass(frozen=True)
class Mix:
    """`weights` per row of the first window (mean 1), what they adjust for, and per covariate that could not be adjusted for the reason.

    `effective_n` = (sum w)^2 / sum w^2. `weights` is None where nothing could be adjusted or balance was not reached.
    """

    weights: FloatArray | None
    effective_n: float
    adjusted_for: list[str]
    reasons: dict[str, str]


def mix(before: pl.DataFrame, after: pl.DataFrame) -> Mix:
    """Return weights that make `before` (columns of a `RequestFrame`) look like `after` in lengths, cache, load, route and model."""
    reasons: dict[str, str] = {}
    columns: dict[str, tuple[FloatArray, FloatArray]] = {}
    for name in ("input_tokens", "output_tokens", "cached_tokens"):
        pair = _numeric(before, after, name)
        if pair is not None:
            columns[name.replace("_", " ")] = pair
    columns["load"] = (_load(before), _load(after))
    columns = {name: pair for name, pair in columns.items() if _overlaps(name, pair, reasons)}
    terms = {
        name: _with_square(pair)
        for name, pair in columns.items()
        if np.std(np.concatenate(pair)) > 0.0
    }
    for name in ("route", "model"):
        made = _levels(before, after, name, reasons)
        if made is not None:
            terms[name] = made
    if not terms:
        reasons.setdefault(
            "mix", "nothing to adjust for: lengths, route and model are not recorded or do not vary"
        )
        return Mix(None, float(before.height), [], reasons)
    x = np.concatenate(
        [np.vstack([t[0] for t in terms.values()]), np.vstack([t[1] for t in terms.values()])],
        axis=1,
    )
    x = (x - x.mean(axis=1, keepdims=True)) / np.maximum(x.std(axis=1, keepdims=True), 1e-12)
    y = np.r_[np.zeros(before.height), np.ones(after.height)]
    weights = np.exp(np.clip(_logistic(x, y)[: before.height], -12.0, 12.0))
    weights *= before.height / weights.sum()
    off = np.abs(
        (x[:, : before.height] * weights).mean(axis=1) - x[:, before.height :].mean(axis=1)
    ).max()
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    if off > BALANCED:
        reasons["mix"] = (
            f"the traffic of the two windows differs too much for an adjustment (largest difference left {off:.2f} standard deviations)"
        )
        return Mix(None, effective, list(terms), reasons)
    return Mix(weights, effective, list(terms), reasons)


def _numeric(
    before: pl.DataFrame, after: pl.DataFrame, name: str
) -> tuple[FloatArray, FloatArray] | None:
    if name not in before.columns or before[name].null_count() or after[name].null_count():
        return None
    return np.log1p(before[name].to_numpy().astype(np.float64)), np.log1p(
        after[name].to_numpy().astype(np.float64)
    )


def _load(rows: pl.DataFrame) -> FloatArray:
    start = rows["start_us"].to_numpy()
    ordered = np.sort(start)
    arrived = np.searchsorted(ordered, start) - np.searchsorted(ordered, start - LOAD_S * 1e6)
    # The first requests of a window have no history: they get what comes after the window's first stretch.
    young = start < ordered[0] + LOAD_S * 1e6
    if young.all() or not young.any():
        return np.asarray(np.log1p(arrived), dtype=np.float64)
    settled: FloatArray = np.log1p(np.where(young, np.median(arrived[~young]), arrived))
    return settled


def _overlaps(name: str, pair: tuple[FloatArray, FloatArray], reasons: dict[str, str]) -> bool:
    a, b = pair
    low, high = np.percentile(b, _OVERLAP)
    inside = ((a >= min(low, np.median(b))) & (a <= high)).mean()
    if inside >= 0.02 or np.std(np.concatenate(pair)) == 0.0:
        return True
    reasons[name] = (
        f"{name} of the two windows do not overlap, so their effect and the change's cannot be separated"
    )
    return False


def _with_square(pair: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    middle = float(np.concatenate(pair).mean())
    return tuple(np.vstack([part, (part - middle) ** 2]) for part in pair)  # type: ignore[return-value]


def _levels(
    before: pl.DataFrame, after: pl.DataFrame, name: str, reasons: dict[str, str]
) -> tuple[FloatArray, FloatArray] | None:
    known = (
        pl.concat([before[name], after[name]])
        .drop_nulls()
        .value_counts(sort=True)[name]
        .head(_MOST_VALUES)
        .to_list()
    )
    if len(known) < 2:
        return None
    pair = [
        np.vstack(
            [
                (rows[name] == value).fill_null(False).to_numpy().astype(np.float64)
                for value in known
            ]
        )
        for rows in (before, after)
    ]
    one_sided = [
        value
        for value, a, b in zip(known, pair[0].mean(axis=1), pair[1].mean(axis=1), strict=True)
        if a == 0.0 or b == 0.0
    ]
    if one_sided:
        reasons[name] = f"some {name} occurs in one window only, so it cannot be adjusted"
        return None
    return pair[0], pair[1]


def _logistic(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the log odds of each row's window, without the part that the windows' sizes explain. Newton's method with a small ridge."""
    design = np.vstack([np.ones(x.shape[1]), x])
    beta = np.zeros(len(design))
    penalty = _RIDGE * x.shape[1] * np.eye(len(design)) / 100.0
    penalty[0, 0] = 0.0
    for _ in range(_ROUNDS):
        p = 1.0 / (1.0 + np.exp(-np.clip(beta @ design, -30.0, 30.0)))
        gradient = design @ (y - p) - penalty @ beta
        hessian = (design * (p * (1.0 - p))) @ design.T + penalty + 1e-9 * np.eye(len(design))
        step = np.linalg.solve(hessian, gradient)
        beta += np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-8:
            break
    odds: FloatArray = beta[1:] @ x
    return odds
