"""Which clients left for reasons of their own, and which because nothing came? Takes the rows of a `RequestFrame` and, where there is one, of its baseline.

A cancelled request is judged by what it had got when it was left. Where that is recorded (a first token, a pace), it speaks for itself. Where it is not,
the answered requests of the same moment show what it would have got, and the share of such clients must be what it was: a hang that sends users away
leaves the others fast.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.outcomes.failures import abandoned
from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.numbers.statistics.change_points import in_time, splits
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.slo import Slo

# The same moment: so many answered requests on either side of it, none farther away than a minute, and at least ten in all; own defaults.
NEAREST: Final = 30
MOMENT_US: Final = 60_000_000
MIN_NEAR: Final = 10
# Clients looked at in one go: 8,192 times 60 neighbours are 4 MB an array.
BLOCK: Final = 8_192
# A client that leaves after nineteen of twenty others were answered has waited longer than an answer takes; own default.
RARELY: Final = 0.05
# Two-sided 99 % normal quantile: shares of leaving clients whose intervals do not touch differ by more than chance shows in a thousand windows.
Z_RISE: Final = 2.576


def by_choice(rows: pl.DataFrame, slo: Slo, before: pl.DataFrame | None = None) -> BoolArray:
    """Return which requests were left by clients of their own choice: they show nothing of the service. `before` are the rows of the baseline."""
    unknown, served = _sides(rows, slo)
    if not unknown.any():
        return served
    start, left = in_time(rows["start_us"].to_numpy(), unknown)
    usual = None if before is None or before.is_empty() else _sides(before, slo)[0]
    more = _risen(left, usual)
    risen = more[np.searchsorted(start, rows["start_us"].to_numpy())]
    return served | (unknown & ~risen)


def _sides(rows: pl.DataFrame, slo: Slo) -> tuple[BoolArray, BoolArray]:
    """Left requests of which is not known what they had got but nothing speaks against a choice, and those known to have been served in time so far."""
    gone = abandoned(rows).to_numpy()
    none = np.zeros(len(gone), np.bool_)
    if not gone.any():
        return none, none
    limits = {
        metric: _each(limits_of(rows, slo, metric), len(gone))
        for metric in ("ttft", "tpot", "itl", "e2e")
    }
    values = {
        metric: rows[f"{metric}_ms"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for metric in limits
        if f"{metric}_ms" in rows.columns
    }
    values = {metric: values.get(metric, np.full(len(gone), np.nan)) for metric in limits}
    early = gone & ~(values["e2e"] > limits["e2e"])
    seen = ~np.isnan(values["ttft"])
    late = np.logical_or.reduce(
        [values[metric] > limits[metric] for metric in ("ttft", "tpot", "itl")]
    )
    unknown = early & ~seen
    unknown[unknown] = _plausible(rows, unknown, values["ttft"], values["e2e"], limits["ttft"])
    return unknown, early & seen & ~late


def _each(limit: float | FloatArray | None, n: int) -> FloatArray:
    return (
        np.full(n, np.inf if limit is None else limit)
        if limit is None or isinstance(limit, float)
        else limit
    )


def _plausible(
    rows: pl.DataFrame, left: BoolArray, ttft: FloatArray, e2e: FloatArray, limit: FloatArray
) -> BoolArray:
    """Per left request (of `left`): whether answered ones of its moment took longer than it waited, and had first tokens in time where its limit had passed."""
    error, start = rows["error"].to_numpy().astype(np.bool_), rows["start_us"].to_numpy()
    answered = np.flatnonzero(~error)
    answered = answered[np.argsort(start[answered], kind="stable")]
    if not len(answered):
        return np.zeros(int(left.sum()), np.bool_)
    who, parts = np.flatnonzero(left), []
    for block in np.split(who, range(BLOCK, len(who), BLOCK)):
        near = np.searchsorted(start[answered], start[block])[:, None] + np.arange(
            -NEAREST, NEAREST
        )
        inside = (near >= 0) & (near < len(answered))
        others = answered[np.clip(near, 0, len(answered) - 1)]
        inside &= np.abs(start[others] - start[block][:, None]) <= MOMENT_US
        n = inside.sum(axis=1)
        longer = (inside & (e2e[others] > e2e[block][:, None])).sum(axis=1) > RARELY * n
        known = inside & ~np.isnan(ttft[others])
        in_time_too = 2 * (known & (ttft[others] <= limit[block][:, None])).sum(
            axis=1
        ) >= known.sum(axis=1)
        parts.append((n >= MIN_NEAR) & longer & (in_time_too | (e2e[block] <= limit[block])))
    return np.concatenate(parts)


def _risen(left: BoolArray, usual: BoolArray | None) -> BoolArray:
    """Per request in order of time: whether it stands in a stretch in which clearly more clients leave than usually, or than in the first stretch."""
    n = len(left)
    edges = [0, *splits(left), n]
    pieces = list(itertools.pairwise(edges))
    reference = (
        (int(left[: edges[1]].sum()), edges[1]) if usual is None else (int(usual.sum()), len(usual))
    )
    most = wilson(*reference, Z_RISE)[1]
    out = np.zeros(n, np.bool_)
    for first, last in pieces:
        out[first:last] = wilson(int(left[first:last].sum()), last - first, Z_RISE)[0] > most
    return out
