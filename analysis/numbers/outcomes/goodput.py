"""What share of requests met every limit at once, and how many per second? Takes the rows of a `RequestFrame`."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.slo import METRICS, Slo


class FailedBy(msgspec.Struct, kw_only=True):
    """Requests that missed each limit; one request may count in several. `error` counts failed requests."""

    ttft: int = 0
    itl: int = 0
    tpot: int = 0
    e2e: int = 0
    error: int = 0


class Goodput(msgspec.Struct, kw_only=True):
    """Requests meeting every SLO: as a share of those that could be judged, and per second of the window.

    `failed_alone` counts requests that missed this limit and no other, `failed_together` those that missed more than one. `own_limits` of them were judged
    by limits that they came with (x-slo headers).
    """

    ratio: float | None
    rps: float | None
    good: int
    bad: int
    unmeasurable: int
    failed_by: FailedBy
    failed_alone: FailedBy = msgspec.field(default_factory=FailedBy)
    failed_together: int = 0
    own_limits: int = 0
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Judged:
    """One verdict per request, as boolean arrays of shape (n,) in row order; good + bad + unmeasurable = n.

    `misses` has, per limited metric, the successful requests known to miss it; `known` those with a value to judge.
    """

    good: BoolArray
    bad: BoolArray
    unmeasurable: BoolArray
    error: BoolArray
    misses: dict[str, BoolArray]
    known: dict[str, BoolArray]


def judge(rows: pl.DataFrame, slo: Slo) -> Judged:
    """Judge every request against all limits at once; a limit that the request came with (`slo_<metric>_ms`) replaces the common one.

    Failed requests are bad. A successful one that lacks a limited metric is unmeasurable, whatever its other metrics
    say: counting only its misses would bias the share. An answer of at most one token has no token gap, so it passes
    TPOT and ITL. Where no successful request carries every limited metric, failed ones are unmeasurable too: a share of them alone would
    say that all requests are bad.
    """
    error = rows["error"].to_numpy().astype(np.bool_)
    one_token = (rows["output_tokens"] <= 1).fill_null(False).to_numpy().astype(np.bool_)
    misses: dict[str, BoolArray] = {}
    known: dict[str, BoolArray] = {}
    for metric in METRICS:
        limit_ms = limits_of(rows, slo, metric)
        if limit_ms is None:
            continue
        values = rows[f"{metric}_ms"].fill_null(math.nan).to_numpy()
        passes_anyway = one_token if metric in ("itl", "tpot") else np.zeros(len(values), np.bool_)
        if not isinstance(limit_ms, float):
            passes_anyway = passes_anyway | np.isinf(limit_ms)
        known[metric] = (~np.isnan(values) | passes_anyway) & ~error
        misses[metric] = (values > limit_ms) & ~passes_anyway & ~error
    measurable = np.logical_and.reduce([*known.values(), ~error])
    missed = np.logical_or.reduce([*misses.values(), np.zeros(len(error), np.bool_)])
    measured = bool(measurable.any() or error.all())
    return Judged(
        measurable & ~missed,
        (error & measured) | (measurable & missed),
        ~measurable & ~(error & measured),
        error,
        misses,
        known,
    )


def limits_of(rows: pl.DataFrame, slo: Slo, metric: str) -> float | FloatArray | None:
    """The limit of a metric: one for all, one per request (infinite where a request has none), or None where nobody limits it."""
    common = slo.limits().get(metric)
    if f"slo_{metric}_ms" not in rows.columns:
        return common
    own: FloatArray = (
        rows[f"slo_{metric}_ms"].fill_null(math.inf if common is None else common).to_numpy()
    )
    return own if common is not None or bool(np.isfinite(own).any()) else None


def with_own(rows: pl.DataFrame, slo: Slo) -> tuple[pl.DataFrame, Slo]:
    """Return rows and an SLO that also names what only requests limit for themselves, at the median of those limits; the others stay unlimited in it."""
    for metric in METRICS:
        name = f"slo_{metric}_ms"
        if (
            metric in slo.limits()
            or name not in rows.columns
            or rows[name].null_count() == rows.height
        ):
            continue
        middle = float(np.median(rows[name].drop_nulls().to_numpy()))
        rows, slo = (
            rows.with_columns(pl.col(name).fill_null(math.inf)),
            msgspec.structs.replace(slo, **{f"{metric}_ms": middle}),
        )
    return rows, slo


def own_limits(rows: pl.DataFrame) -> int:
    """How many requests came with a limit of their own."""
    columns = [name for metric in METRICS if (name := f"slo_{metric}_ms") in rows.columns]
    return (
        rows.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in columns)).height
        if columns
        else 0
    )


def goodput(judged: Judged, seconds: float, weights: FloatArray | None = None) -> Goodput:
    """Return goodput over a window of `seconds`; `weights` as in `weights_of`.

    Counts are of stored requests, ratio and rps of those that they stand for; null with their reason where nothing could be judged.
    """
    good, bad, unmeasurable = (
        int(part.sum()) for part in (judged.good, judged.bad, judged.unmeasurable)
    )
    met, missed = (
        float(part.sum() if weights is None else weights[part].sum())
        for part in (judged.good, judged.bad)
    )
    measurable = judged.good | judged.bad
    failed = {
        metric: int((judged.misses[metric] & measurable).sum())
        for metric in METRICS
        if metric in judged.misses
    }
    counts = sum(
        (part.astype(np.int8) for part in judged.misses.values()),
        np.zeros(len(judged.error), np.int8),
    )
    alone = {
        metric: int((judged.misses[metric] & measurable & (counts == 1)).sum()) for metric in failed
    }
    reasons = {}
    if good + bad == 0:
        missing = [metric for metric, known in judged.known.items() if not known.any()]
        why = (
            f"none of {unmeasurable} requests carries every limited metric ({', '.join(missing)} missing)"
            if unmeasurable
            else "no request in the window"
        )
        reasons = {"ratio": why, "rps": why}
    elif seconds <= 0.0:
        reasons = {"rps": "the window has no length"}
    return Goodput(
        ratio=met / (met + missed) if good + bad else None,
        rps=met / seconds if good + bad and seconds > 0.0 else None,
        good=good,
        bad=bad,
        unmeasurable=unmeasurable,
        failed_by=FailedBy(**failed, error=int(judged.error.sum())),
        failed_alone=FailedBy(**alone, error=int(judged.error.sum())),
        failed_together=int((measurable & (counts > 1)).sum()),
        reasons=reasons,
    )


def clearly_below(met: BoolArray, target: float, least_effect: float = 1.0) -> bool:
    """Return whether a share (`met` in order of time) is below a target by more than chance: one-sided 95 % Wilson bound at the effective sample size.

    Requests that share a queue share its fate: slow ones come in runs, and n of them tell as much as n / `design_effect` independent ones, of which
    at least `least_effect` is taken.
    """
    n = len(met)
    if n == 0 or met.mean() >= target:
        return False
    effective = n / max(design_effect(met), least_effect)
    return wilson(float(met.mean()) * effective, effective, Z_ONE_SIDED)[1] < target


def design_effect(hits: BoolArray) -> float:
    """Return how many times the variance of a share exceeds that of independent draws, at least 1 (batch means; Kish, Survey Sampling, 1965).

    `hits` are in order of time; 20 batches, 10 where there are fewer than 200.
    """
    batches = 20 if len(hits) >= 200 else 10
    share = float(hits.mean()) if len(hits) else 0.0
    size = len(hits) // batches
    if size < 2 or share in (0.0, 1.0):
        return 1.0
    means = hits[len(hits) - size * batches :].reshape(batches, size).mean(axis=1)
    return max(1.0, float(means.var(ddof=1)) * size / (share * (1.0 - share)))
