"""What changed between two windows or two versions, beyond chance and beyond other traffic?

Quantile differences with block-bootstrap intervals, the same after the first window was given the second one's mix, stage differences that sum
exactly, values that came or went, and when the change happened. Reads the store through a cursor that is passed in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.comparison.traffic_changes import Changed, changed
from overrun.analysis.numbers.comparison.traffic_mix import Mix, mix
from overrun.analysis.numbers.coverage.sampling import assess, evened
from overrun.analysis.numbers.latency.percentiles import MIN_N, sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import Judged, goodput, judge
from overrun.analysis.numbers.requests.stored_names import refuse_unstored
from overrun.analysis.numbers.stages.budget import path_of, stage_times
from overrun.analysis.numbers.stages.tail import TAIL_POINTS, band
from overrun.analysis.numbers.statistics.bootstrap import block_of, blocks, shares
from overrun.analysis.numbers.statistics.change_points import find_onset
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.numbers.window import RequestFrame, Window, load
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS, Slo
from overrun.analysis.words.times import parse_range
from overrun.analysis.words.timestamps import from_us

Outcome = Literal["regressed", "improved", "mixed", "unchanged", "not_enough_data"]

SCHEMA: Final = "overrun.compare/1"
QUANTILES: Final = (50.0, 95.0, 99.0)
# Chance of any false alarm in one comparison, and the smallest change worth a word: below 5 % nobody acts, however certain. Own defaults.
RATE: Final = 0.01
LEAST_CHANGE: Final = 0.05
LEAST_POINTS: Final = 0.01
# A value of an attribute that holds less than this share of a window is noise in a list of what came and went.
LEAST_COHORT: Final = 0.01
_COHORTS: Final = ("route", "model", "tenant", "version", "service", "instance", "error_type")
_MOST_LISTED: Final = 20
_SEED: Final = 20_251
_ADJUSTED: Final = ("mix_ms", "adjusted_ms", "adjusted_interval", "adjusted_significant")
_VALUES: Final = (
    *("before_ms", "after_ms", "difference_ms", "ratio", "interval", "significant"),
    *_ADJUSTED,
)


class Side(msgspec.Struct, kw_only=True):
    """One of the two windows: what was asked, its bounds and its numbers. Ratios 0..1; percentiles are of successful requests."""

    asked: str
    start: datetime | None
    end: datetime | None
    requests: int
    rps: float | None
    error_ratio: float | None
    goodput_ratio: float | None
    reasons: dict[str, str] = {}


class QuantileChange(msgspec.Struct, kw_only=True):
    """One quantile of one metric in both windows, in ms. `difference_ms` = after - before, `interval` is its 95 % block-bootstrap interval.

    `mix_ms` is the part that other traffic explains, `adjusted_ms` = difference - mix is what remains. `significant` holds for a change of at least
    5 % that is beyond chance over all questions of the comparison; `adjusted_significant` says the same of what remains.
    """

    quantile: float
    before_ms: float | None
    after_ms: float | None
    difference_ms: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    significant: bool | None
    mix_ms: float | None
    adjusted_ms: float | None
    adjusted_interval: tuple[float, float] | None
    adjusted_significant: bool | None
    reasons: dict[str, str] = {}


class MetricChange(msgspec.Struct, kw_only=True):
    """One latency in both windows. `cliffs_delta` (-1..1) is the effect size: above 0 when a later request tends to be slower."""

    metric: str
    n_before: int
    n_after: int
    cliffs_delta: float | None
    quantiles: list[QuantileChange]
    reasons: dict[str, str] = {}


class StageChange(msgspec.Struct, kw_only=True):
    """Mean time of one stage per request, over all successful requests and around the SLO percentile; each column sums to the request's own."""

    stage: str
    before_ms: float
    after_ms: float
    difference_ms: float
    tail_before_ms: float
    tail_after_ms: float
    tail_difference_ms: float


class CohortChange(msgspec.Struct, kw_only=True):
    """A value that only one of the windows has, and its share of that window's requests."""

    attribute: str
    value: str
    requests: int
    ratio: float


class RatioChange(msgspec.Struct, kw_only=True):
    """A share of requests (0..1) in both windows, and the 95 % block-bootstrap interval of the difference.

    `adjusted` is the difference that remains with the same traffic (of successful requests; goodput only).
    """

    before: float | None
    after: float | None
    difference: float | None
    interval: tuple[float, float] | None
    significant: bool | None
    adjusted: float | None = None
    adjusted_interval: tuple[float, float] | None = None
    reasons: dict[str, str] = {}


class Comparison(msgspec.Struct, kw_only=True):
    """Two windows side by side. `outcome` and `sentence` speak of what is certain and what other traffic does not explain.

    `stages` holds means over successful requests; `change_at` is when the metric that `sentence` names began to differ, `changed` what else did then.
    """

    schema: Literal["overrun.compare/1"] = SCHEMA
    outcome: Outcome
    sentence: str
    before: Side
    after: Side
    slo: Slo
    metrics: list[MetricChange]
    goodput: RatioChange
    errors: RatioChange
    stages: list[StageChange]
    appeared: list[CohortChange]
    vanished: list[CohortChange]
    change_at: datetime | None
    changed: list[Changed]
    adjusted_for: list[str]
    effective_n: float | None
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Sides:
    """What to compare: two windows and, where asked for, the version that each is reduced to."""

    before: Window
    after: Window
    asked: tuple[str, str]
    versions: tuple[str | None, str | None] = (None, None)


def read_sides(base: Window, before: str, after: str, now: datetime) -> Sides:
    """Read two texts: each a RANGE (`FROM..TO`) or `version=NAME`; `base` has the filters, and the window that versions are looked for in.

    Raises:
        WindowError: a text that is neither, or an empty range.
    """
    windows, versions = [], []
    for text in (before, after):
        name = text.removeprefix("version=")
        is_version = name != text and bool(name)
        versions.append(name if is_version else None)
        if is_version:
            windows.append(replace(base, baseline="none"))
        elif ".." not in text:
            raise WindowError(
                f"{text[:64]!r} cannot be compared: write a range such as -2h..-1h, or version=NAME"
            )
        else:
            start, end = parse_range(text, now)
            windows.append(replace(base, start=start, end=end, baseline="none"))
    return Sides(windows[0], windows[1], (before, after), (versions[0], versions[1]))


def compare_sides(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, before: str, after: str, now: datetime
) -> Comparison:
    """Compare two sides of a window that are given as texts.

    Raises:
        WindowError: as `read_sides` and `compare`.
    """
    return compare(con, read_sides(window, before, after, now), slo)


def compare(con: duckdb.DuckDBPyConnection, sides: Sides, slo: Slo) -> Comparison:
    """Compare two windows; null with its reason where one of them holds too little, or a selection that does not stand for all.

    Raises:
        WindowError: neither holds a request, for a filter names what is stored nowhere.
    """
    frames = [
        _reduced(load(con, window, points=False), version)
        for window, version in zip((sides.before, sides.after), sides.versions, strict=True)
    ]
    if all(frame.rows.is_empty() for frame in frames):
        refuse_unstored(con, sides.before)
    found = [assess(con, frame, weigh=True) for frame in frames]
    refused = [sampled.why for sampled in found if sampled.refused]
    if refused:
        return _refused(frames, refused[0], sides.asked, slo)
    frames = [sampled.applied(frame) for sampled, frame in zip(found, frames, strict=True)]
    return compare_frames(evened(frames[0]), evened(frames[1]), sides.asked, slo)


def _refused(frames: list[RequestFrame], why: str, asked: tuple[str, str], slo: Slo) -> Comparison:
    """The comparison of windows that cannot be compared: what they hold, and nothing said of it."""
    before, after = (replace(frame, rows=frame.rows.clear()) for frame in frames)
    found = compare_frames(before, after, asked, slo)
    found.sentence = f"Not enough data to compare: {why}."
    for side, frame in zip((found.before, found.after), frames, strict=True):
        side.requests, side.reasons = frame.rows.height, dict.fromkeys(side.reasons, why)
    return found


def compare_frames(
    before: RequestFrame, after: RequestFrame, asked: tuple[str, str], slo: Slo
) -> Comparison:
    """Compare two loaded windows."""
    ok = [frame.rows.filter(~pl.col("error")) for frame in (before, after)]
    adjusted = (
        mix(ok[0], ok[1])
        if min(part.height for part in ok) >= MIN_N[95.0]
        else Mix(None, 0.0, [], {"mix": _few(ok)})
    )
    metrics = [_metric(metric, ok[0], ok[1], adjusted) for metric in METRICS]
    _decide(
        metrics,
        max(1, sum(int(block_of(part["start_us"].to_numpy()).max()) for part in ok if part.height)),
    )
    judged = [judge(frame.rows, slo) for frame in (before, after)]
    good = _goodput(before, after, judged, ok, adjusted)
    failed = _ratio(
        [part.error for part in judged],
        [frame.rows["start_us"].to_numpy() for frame in (before, after)],
        "no request",
    )
    failed.reasons |= dict.fromkeys(
        ("adjusted", "adjusted_interval"), "errors are not adjusted: a failed request has no length"
    )
    outcome, sentence, main = _outcome(metrics, good, failed, ok, slo)
    if (
        main is not None
        and main[1].adjusted_ms is None
        and min(part.height for part in ok) >= MIN_N[95.0]
    ):
        sentence = f"{sentence.removesuffix('.')}. It is not known how much of it comes from other traffic: {adjusted.reasons.get('mix', 'too few requests are alike')}."
    missing = [
        text.removeprefix("version=")
        for text, frame in zip(asked, (before, after), strict=True)
        if text.startswith("version=") and frame.rows.is_empty()
    ]
    if missing:
        sentence = f"Not enough data: no request of version {printable(missing[0])} in the window."
    at, what = _when(before.rows, after.rows, main)
    reasons = dict(adjusted.reasons)
    if at is None:
        reasons["change_at"] = _why_no_moment(metrics, decided=main is not None)
    if adjusted.weights is None:
        reasons.setdefault("effective_n", adjusted.reasons.get("mix", "the mix was not adjusted"))
    return Comparison(
        outcome=outcome,
        sentence=sentence,
        before=_side(before, asked[0], slo),
        after=_side(after, asked[1], slo),
        slo=slo,
        metrics=metrics,
        goodput=good,
        errors=failed,
        stages=_stages(ok, slo),
        appeared=_only_in(after.rows, before.rows),
        vanished=_only_in(before.rows, after.rows),
        change_at=at,
        changed=what,
        adjusted_for=adjusted.adjusted_for if adjusted.weights is not None else [],
        effective_n=adjusted.effective_n if adjusted.weights is not None else None,
        reasons=reasons,
    )


def _goodput(
    before: RequestFrame,
    after: RequestFrame,
    judged: list[Judged],
    ok: list[pl.DataFrame],
    adjusted: Mix,
) -> RatioChange:
    """How the share of good requests changed, also with the traffic of `after` where that could be weighted for."""
    known = [part.good | part.bad for part in judged]
    good = _ratio(
        [part.good[k] for part, k in zip(judged, known, strict=True)],
        [
            frame.rows["start_us"].to_numpy()[k]
            for frame, k in zip((before, after), known, strict=True)
        ],
        "no request could be judged",
    )
    if adjusted.weights is not None and good.difference is not None:
        _adjust(
            good,
            [part.good[~part.error] for part in judged],
            [k[~part.error] for part, k in zip(judged, known, strict=True)],
            ok,
            adjusted.weights,
        )
    else:
        good.reasons |= dict.fromkeys(
            ("adjusted", "adjusted_interval"),
            adjusted.reasons.get("mix", "the mix was not adjusted"),
        )
    return good


def _why_no_moment(metrics: list[MetricChange], *, decided: bool) -> str:
    """Why no moment of a change is named."""
    if decided:
        return "no single moment separates the two"
    if any(q.significant for metric in metrics for q in metric.quantiles):
        return "with the same traffic no metric changed by more than chance"
    return "no metric changed by more than chance"


def _reduced(frame: RequestFrame, version: str | None) -> RequestFrame:
    if version is None:
        return frame
    rows = frame.rows.filter(pl.col("version") == version)
    if rows.is_empty():
        return replace(frame, rows=rows)
    # A version's own time: the rate of its requests counts from its first to its last.
    return replace(
        frame,
        rows=rows,
        start=from_us(int(rows["start_us"].to_numpy().min())),
        end=from_us(int(rows["end_us"].to_numpy().max())),
    )


def _few(ok: list[pl.DataFrame]) -> str:
    return f"{ok[0].height:,} and {say_count(ok[1].height, 'successful request')}, the mix needs {MIN_N[95.0]} on both sides"


def _metric(metric: str, before: pl.DataFrame, after: pl.DataFrame, adjusted: Mix) -> MetricChange:
    column = f"{metric}_ms"
    has = [part[column].is_not_null() for part in (before, after)]
    rows = [part.filter(mask) for part, mask in zip((before, after), has, strict=True)]
    values = [part[column].to_numpy() for part in rows]
    out = MetricChange(
        metric=metric,
        n_before=len(values[0]),
        n_after=len(values[1]),
        cliffs_delta=None,
        quantiles=[],
    )
    if min(map(len, values)) == 0:
        out.reasons = {"cliffs_delta": f"only one of the windows has {metric.upper()}"}
        return out
    out.cliffs_delta = cliffs_delta(values[0], values[1])
    starts = [part["start_us"].to_numpy() for part in rows]
    weights = None if adjusted.weights is None else adjusted.weights[has[0].to_numpy()]
    p = np.array(QUANTILES) / 100.0
    rng = np.random.default_rng(_SEED)
    first, second = (blocks(v, s).quantiles(p, rng) for v, s in zip(values, starts, strict=True))
    again = (
        None
        if weights is None
        else blocks(values[0], starts[0], weights).quantiles(p, np.random.default_rng(_SEED + 1))
    )
    ordered = [np.sort(v) for v in values]
    for i, quantile in enumerate(QUANTILES):
        needed = MIN_N[quantile]
        if min(map(len, values)) < needed:
            why = f"P{quantile:g} needs at least {needed} requests, there are {len(values[0])} and {len(values[1])}"
            out.quantiles.append(
                QuantileChange(
                    quantile=quantile, **dict.fromkeys(_VALUES), reasons=dict.fromkeys(_VALUES, why)
                )
            )
            continue
        b, a = (sorted_quantile(values, quantile / 100.0) for values in ordered)
        change = _unadjusted(quantile, b, a, _interval(second[:, i] - first[:, i]))
        enough = weights is not None and float(weights.sum() ** 2 / (weights**2).sum()) >= needed
        if weights is not None and again is not None and enough:
            mixed = weighted_quantile(values[0], weights, p[i])
            change.mix_ms, change.adjusted_ms = mixed - b, a - mixed
            change.adjusted_interval = _interval(second[:, i] - again[:, i])
            change.adjusted_significant = False
        else:
            few = f"after adjusting, the first window counts like {adjusted.effective_n:.0f} requests and P{quantile:g} needs {needed}"
            change.reasons |= dict.fromkeys(_ADJUSTED, adjusted.reasons.get("mix", few))
        out.quantiles.append(change)
    return out


def _unadjusted(
    quantile: float, before: float, after: float, interval: tuple[float, float]
) -> QuantileChange:
    """A quantile's change as it was recorded."""
    change = QuantileChange(
        quantile=quantile,
        before_ms=before,
        after_ms=after,
        difference_ms=after - before,
        ratio=after / before if before > 0.0 else None,
        interval=interval,
        significant=False,
        mix_ms=None,
        adjusted_ms=None,
        adjusted_interval=None,
        adjusted_significant=None,
    )
    if change.ratio is None:
        change.reasons["ratio"] = "the first window's value is 0"
    return change


def cliffs_delta(before: FloatArray, after: FloatArray) -> float:
    """Return P(after > before) - P(after < before) over all pairs, from ranks."""
    ordered = np.sort(before)
    below = np.searchsorted(ordered, after, side="left").astype(np.float64)
    above = len(ordered) - np.searchsorted(ordered, after, side="right").astype(np.float64)
    return float((below - above).mean() / len(ordered))


def weighted_quantile(values: FloatArray, weights: FloatArray, p: float) -> float:
    """Return the p-quantile (0..1) of weighted values, linear between the middles of their weights; equal weights give numpy's default."""
    order = np.argsort(values, kind="stable")
    ordered, w = values[order], weights[order]
    middle = np.cumsum(w) - 0.5 * w
    span = middle[-1] - middle[0]
    return (
        float(np.interp(middle[0] + p * span, middle, ordered)) if span > 0.0 else float(ordered[0])
    )


def _interval(differences: FloatArray) -> tuple[float, float]:
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(low), float(high)


def _decide(metrics: list[MetricChange], freedom: int) -> None:
    """Keep `significant` only for changes of at least 5 % whose interval, widened for the number of questions asked, excludes none. In place.

    2,000 replicates have no p-values fine enough for a Benjamini-Hochberg ladder over dependent quantiles, so the interval is widened to a level
    of RATE / questions (Bonferroni) with the tails of Student's t, because few blocks (`freedom`: of both sides, less 2) know their own spread badly.
    """
    asked = [q for m in metrics for q in m.quantiles if q.interval is not None]
    z = _z(RATE / max(1, len(asked)))
    # Cornish-Fisher: t = z + (z^3 + z) / 4v + ...; Abramowitz and Stegun 26.7.5.
    wider = (
        z + (z**3 + z) / (4.0 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96.0 * freedom**2)
    ) / Z_95
    for q in asked:
        q.significant = _clear(q.difference_ms, q.interval, q.before_ms, wider)
        if q.adjusted_interval is not None and q.mix_ms is not None and q.before_ms is not None:
            q.adjusted_significant = _clear(
                q.adjusted_ms, q.adjusted_interval, q.before_ms + q.mix_ms, wider
            )


def _clear(
    difference: float | None, interval: tuple[float, float] | None, base: float | None, wider: float
) -> bool:
    if difference is None or interval is None or base is None:
        return False
    half = 0.5 * (interval[1] - interval[0]) * wider
    return abs(difference) > half and abs(difference) >= LEAST_CHANGE * max(base, 1e-9)


def _z(alpha: float) -> float:
    """Return the two-sided normal quantile of a level, by bisection of erfc."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.erfc(middle / math.sqrt(2.0)) > alpha else (low, middle)
    return low


def _ratio(hits: list[BoolArray], starts: list[IntArray], empty: str) -> RatioChange:
    if min(map(len, hits)) == 0:
        nulls = ("before", "after", "difference", "interval", "significant")
        known = {
            name: float(part.mean()) if len(part) else None
            for name, part in zip(("before", "after"), hits, strict=True)
        }
        return RatioChange(
            **(dict.fromkeys(nulls) | known),
            reasons={n: f"{empty} in one of the windows" for n in nulls if known.get(n) is None},
        )
    b, a = (float(part.mean()) for part in hits)
    rng = np.random.default_rng(_SEED)
    first, second = (shares(part, start, rng) for part, start in zip(hits, starts, strict=True))
    low, high = _interval(second - first)
    return RatioChange(
        before=b,
        after=a,
        difference=a - b,
        interval=(low, high),
        significant=not low <= 0.0 <= high and abs(a - b) >= LEAST_POINTS,
    )


def _adjust(
    change: RatioChange,
    good: list[BoolArray],
    known: list[BoolArray],
    ok: list[pl.DataFrame],
    weights: FloatArray,
) -> None:
    """Fill in what remains of a goodput difference when the first window's requests weigh as in the second one's mix. In place."""
    if min(int(k.sum()) for k in known) == 0:
        change.reasons |= dict.fromkeys(
            ("adjusted", "adjusted_interval"), "no successful request could be judged"
        )
        return
    rng = np.random.default_rng(_SEED)
    starts = [part["start_us"].to_numpy()[k] for part, k in zip(ok, known, strict=True)]
    first = shares(good[0][known[0]], starts[0], rng, weights=weights[known[0]])
    second = shares(good[1][known[1]], starts[1], rng)
    change.adjusted = float(
        good[1][known[1]].mean() - np.average(good[0][known[0]], weights=weights[known[0]])
    )
    change.adjusted_interval = _interval(second - first)
    low, high = change.adjusted_interval
    change.significant = (
        bool(change.significant) and not low <= 0.0 <= high and abs(change.adjusted) >= LEAST_POINTS
    )


def _stages(ok: list[pl.DataFrame], slo: Slo) -> list[StageChange]:
    if min(part.height for part in ok) == 0:
        return []
    times = [stage_times(part, path_of("e2e")) for part in ok]
    tails = [
        band(part.total_ms, slo.percentile - TAIL_POINTS, slo.percentile + TAIL_POINTS)
        for part in times
    ]
    rows = []
    for stage in dict.fromkeys([*times[0].ms, *times[1].ms]):
        spent = [part.ms.get(stage, np.zeros(len(part.total_ms))) for part in times]
        (b, a), (tb, ta) = (
            (float(s.mean()) for s in spent),
            (float(s[index].mean()) for s, index in zip(spent, tails, strict=True)),
        )
        rows.append(
            StageChange(
                stage=stage,
                before_ms=b,
                after_ms=a,
                difference_ms=a - b,
                tail_before_ms=tb,
                tail_after_ms=ta,
                tail_difference_ms=ta - tb,
            )
        )
    return sorted(rows, key=lambda row: -abs(row.tail_difference_ms))


def _only_in(rows: pl.DataFrame, other: pl.DataFrame) -> list[CohortChange]:
    found = []
    for column in _COHORTS:
        there = set(other[column].drop_nulls().unique().to_list())
        for value, n in rows[column].drop_nulls().value_counts(sort=True).iter_rows():
            if value not in there and n >= max(2, LEAST_COHORT * rows.height):
                found.append(
                    CohortChange(
                        attribute=column, value=printable(value), requests=n, ratio=n / rows.height
                    )
                )
    return sorted(found, key=lambda c: -c.requests)[:_MOST_LISTED]


def _outcome(
    metrics: list[MetricChange],
    good: RatioChange,
    failed: RatioChange,
    ok: list[pl.DataFrame],
    slo: Slo,
) -> tuple[Outcome, str, tuple[str, QuantileChange] | None]:
    asked = [(m.metric, q) for m in metrics for q in m.quantiles if q.difference_ms is not None]
    if not asked and not good.significant and not failed.significant:
        return (
            "not_enough_data",
            (
                f"Not enough data: {ok[0].height:,} and {say_count(ok[1].height, 'successful request')}; P50 needs {MIN_N[50.0]} on both sides."
            ),
            None,
        )
    moved = [(name, q) for name, q in asked if _remains(q)]
    worse, better = (
        [c for c in moved if _change(c[1]) > 0.0],
        [c for c in moved if _change(c[1]) < 0.0],
    )
    shares = [("goodput", good, -1.0), ("errors", failed, 1.0)]
    bad = [
        f"{name} {_moved(r)}"
        for name, r, sign in shares
        if r.significant and (r.difference or 0.0) * sign > 0.0
    ]
    fine = [
        f"{name} {_moved(r)}"
        for name, r, sign in shares
        if r.significant and (r.difference or 0.0) * sign < 0.0
    ]
    outcome: Outcome = "unchanged"
    if (worse or bad) and (better or fine):
        outcome = "mixed"
    elif worse or bad:
        outcome = "regressed"
    elif better or fine:
        outcome = "improved"
    main = _main(moved, slo)
    traffic = max(
        [(name, q) for name, q in asked if q.significant and not _remains(q)],
        key=_size,
        default=None,
    )
    parts = [*([_said(main)] if main else []), *bad, *fine]
    if main is None and traffic is not None:
        return outcome, f"{outcome.capitalize()}: {'; '.join([*parts, _said(traffic)])}.", None
    if not parts:
        return (
            outcome,
            f"No difference beyond chance and 5 %: {ok[0].height:,} and {say_count(ok[1].height, 'successful request')} compared.",
            None,
        )
    return outcome, f"{outcome.capitalize()}: {'; '.join(parts)}.", main


def _main(moved: list[tuple[str, QuantileChange]], slo: Slo) -> tuple[str, QuantileChange] | None:
    """The change to name: of what the SLO judges and one of the windows misses, the one that misses it by most; else the largest."""
    limits = slo.limits()

    def missed(name: str, q: QuantileChange) -> float:
        slowest = max(q.before_ms or 0.0, q.after_ms or 0.0)
        return slowest / limits[name] if name in limits and q.quantile == slo.percentile else 0.0

    late = [one for one in moved if missed(*one) > 1.0]
    return max(late, key=lambda one: missed(*one)) if late else max(moved, key=_size, default=None)


def _moved(change: RatioChange) -> str:
    verb = "rose" if (change.difference or 0.0) > 0.0 else "fell"
    return f"{verb} from {say_ratio(change.before or 0.0)} to {say_ratio(change.after or 0.0)}"


def _said(main: tuple[str, QuantileChange]) -> str:
    name, q = main
    b, a, interval = q.before_ms or 0.0, q.after_ms or 0.0, q.interval or (0.0, 0.0)
    text = f"{name.upper()} P{q.quantile:g} went from {say_ms(b)} to {say_ms(a)} (difference {say_ms(interval[0])} to {say_ms(interval[1])})"
    if q.adjusted_ms is None or q.mix_ms is None:
        return text
    if q.adjusted_significant:
        return f"{text}; {say_ms(q.adjusted_ms)} of it remain with the same traffic"
    most = abs(q.adjusted_ms) > abs(q.mix_ms)
    return f"{text}; {'with the same traffic it may be chance' if most else 'the change of traffic explains it'}"


def _remains(q: QuantileChange) -> bool:
    """Whether the change is more than chance and more than other traffic, where that could be separated."""
    return bool(q.significant if q.adjusted_ms is None else q.adjusted_significant)


def _change(q: QuantileChange) -> float:
    return (q.difference_ms if q.adjusted_ms is None else q.adjusted_ms) or 0.0


def _size(changed: tuple[str, QuantileChange]) -> float:
    return abs(_change(changed[1])) / max(changed[1].before_ms or 0.0, 1e-9)


def _when(
    before: pl.DataFrame, after: pl.DataFrame, main: tuple[str, QuantileChange] | None
) -> tuple[datetime | None, list[Changed]]:
    """Return when the judged metric began to differ from the first window's usual, and what else changed then."""
    if main is None:
        return None, []
    metric, q = main
    rows = pl.concat([before, after]).filter(
        pl.col(f"{metric}_ms").is_not_null() & ~pl.col("error")
    )
    rows = rows.unique(["start_us", "end_us"], maintain_order=True).sort("start_us")
    values, usual = rows[f"{metric}_ms"].to_numpy(), before[f"{metric}_ms"].drop_nulls().to_numpy()
    slower = _change(q) > 0.0
    # A tenth of the first window lies beyond this on the side of the change: more than a tenth later on is the change.
    beyond = values > np.percentile(usual, 90.0) if slower else values < np.percentile(usual, 10.0)
    onset = find_onset(rows["start_us"].to_numpy(), beyond, 0.15)
    at = None if onset is None else from_us(onset)
    return at, changed(rows, at)


def _side(frame: RequestFrame, asked: str, slo: Slo) -> Side:
    judged = judge(frame.rows, slo)
    good = goodput(judged, frame.seconds)
    n, seconds, standing = (
        frame.rows.height,
        frame.seconds,
        float(frame.rows["sample_weight"].to_numpy().sum()),
    )
    reasons = {}
    if good.ratio is None:
        reasons["goodput_ratio"] = good.reasons["ratio"]
    if n == 0:
        reasons["error_ratio"] = "no request in the window"
    if n == 0 or seconds <= 0.0:
        reasons["rps"] = "no request in the window, or no length"
    if frame.start is None or frame.end is None:
        reasons |= dict.fromkeys(("start", "end"), "no request and no bound given")
    return Side(
        asked=asked,
        start=frame.start,
        end=frame.end,
        requests=n,
        rps=None if "rps" in reasons else standing / seconds,
        error_ratio=float(judged.error.mean()) if n else None,
        goodput_ratio=good.ratio,
        reasons=reasons,
    )
