"""What did the inference servers say over time, and did they say it before latency broke? Indicators per step beside the judged metric's P95.

Reads `v_metric_points` through a cursor that is passed in. Thresholds are priors, marked unlearned: KV usage over 90 %, a request waiting, a preemption.
An alert must hold for four samples; its lead is the time from there to the first of three steps in a row with P95 over the limit, negative when it came
after.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.over_time.series import MOST_POINTS, Series, series, step_of
from overrun.analysis.numbers.requests.request_list import Extent
from overrun.analysis.numbers.window import SCRAPE_GRACE, Window, read_samples
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.times import parse_time
from overrun.analysis.words.timestamps import from_us

Combined = Literal["sum", "max", "mean"]
# In the order of cause to effect as one reads down from the effect: what is full, what waits, what runs, what is saved, what is thrown away. The unit,
# how servers are put together, and the prior threshold (a value at least this high, held; null: none is known).
SHOWN: Final[tuple[tuple[str, str, Combined, float | None], ...]] = (
    ("kv_cache_usage", "ratio", "max", 0.9),
    ("queue_depth", "requests", "sum", 1.0),
    ("running", "requests", "sum", None),
    ("prefix_cache_hit_rate", "ratio", "mean", None),
    ("preemptions", "1/s", "sum", 1e-9),
    ("output_tokens", "tokens/s", "sum", None),
    ("spec_accept_rate", "ratio", "mean", None),
    ("gpu_util", "ratio", "max", None),
)
# What an engine must send for the page to explain anything; the others are named only where they come.
EXPECTED: Final = (
    "kv_cache_usage",
    "queue_depth",
    "running",
    "prefix_cache_hit_rate",
    "preemptions",
)
# One sample over a threshold is noise; a breach that lasts one step is a blip. Own defaults, as in the page's words.
HELD_SAMPLES: Final = 4
HELD_STEPS: Final = 3


class IndicatorCourse(msgspec.Struct, kw_only=True):
    """One indicator per step: the mean of each server's samples, servers put together as `combined`; null where nothing was scraped.

    `crossed_at` is the first sample of the first run of four at or over `threshold` on any server, `lead_s` how long before the breach that was
    (negative: after it). Both null without a threshold, a crossing or a breach; see `reasons`.
    """

    indicator: str
    unit: str
    combined: Combined
    instances: int
    samples: int
    threshold: float | None
    learned: bool
    crossed_at: datetime | None
    lead_s: float | None
    values: list[float | None]
    reasons: dict[str, str] = {}


class EngineCourse(msgspec.Struct, kw_only=True):
    """Indicators of a window in steps of `step_s` from `start`; `effect_p95_ms` is the judged metric's P95 in the same steps.

    `limit_ms` is the common limit; `own_limits` requests came with limits of their own, by which they are judged. `breach_at` is the onset that
    was asked about, else the start of the first of three steps in a row with P95 over the limit. `missing` names expected indicators that nobody sent.
    """

    metric: str
    limit_ms: float | None
    start: datetime | None
    step_s: int
    effect_p95_ms: list[float | None]
    effect_n: int
    breach_at: datetime | None
    indicators: list[IndicatorCourse]
    missing: list[str]
    own_limits: int = 0
    reasons: dict[str, str] = {}


def engine_course(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str, onset: str | None = None
) -> EngineCourse:
    """Return the indicators of a window beside a metric (ttft, itl, tpot, e2e).

    `onset` (RFC 3339) is when the breach began, where that is known better than by steps: leads are counted to it.

    Raises:
        ListError: an unknown metric.
    """
    course = series(con, window, slo, metric)
    points = read_samples(
        con,
        "metric_points",
        window.start,
        window.end + SCRAPE_GRACE if window.end else None,
        window.model,
        indicators=[name for name, *_ in SHOWN],
    )
    found = set(points["indicator"].to_list())
    answer = EngineCourse(
        metric=course.metric,
        limit_ms=course.limit_ms,
        start=None,
        step_s=course.step_s,
        effect_p95_ms=[],
        effect_n=course.n,
        breach_at=None,
        indicators=[],
        missing=[name for name in EXPECTED if name not in found],
        own_limits=course.own_limits,
    )
    first_us, last_us = _bounds(course, points, window)
    if first_us is None or last_us is None:
        answer.reasons = {"indicators": "neither a request nor an engine metric in the window"}
        return answer
    if not course.points:
        answer.step_s = step_of(
            Extent(n=0, start=from_us(first_us), end=from_us(last_us), first=None, last=None),
            MOST_POINTS,
        )
    step_us = answer.step_s * 1_000_000
    origin = first_us // step_us
    steps = (last_us - 1) // step_us - origin + 1
    answer.start = from_us(origin * step_us)
    answer.effect_p95_ms = _placed(
        {
            int(point.start.timestamp()) // answer.step_s - origin: point.p95
            for point in course.points
        },
        steps,
    )
    answer.breach_at = parse_time(onset, datetime.now(UTC)) if onset else _breach(answer, course)
    answer.indicators = [
        _indicator(
            points.filter(pl.col("indicator") == name),
            (name, unit, combined, threshold),
            origin,
            steps,
            step_us,
            answer.breach_at,
        )
        for name, unit, combined, threshold in SHOWN
        if name in found
    ]
    if not answer.indicators:
        answer.reasons["indicators"] = (
            "no engine metric in the window: scrape the inference server's /metrics, or send them over OTLP"
        )
    return answer


def _bounds(course: Series, points: pl.DataFrame, window: Window) -> tuple[int | None, int | None]:
    if course.points:
        return int(course.points[0].start.timestamp()) * 1_000_000, (
            int(course.points[-1].start.timestamp()) + course.step_s
        ) * 1_000_000
    if points.is_empty():
        return None, None
    times = points["time_us"].to_numpy()
    start = int(window.start.timestamp() * 1e6) if window.start else int(times.min())
    return start, int(window.end.timestamp() * 1e6) if window.end else int(times.max()) + 1


def _placed(values: dict[int, float | None], steps: int) -> list[float | None]:
    return [values.get(i) for i in range(steps)]


def _breach(answer: EngineCourse, course: Series) -> datetime | None:
    if answer.limit_ms is None and all(point.p95_over is None for point in course.points):
        answer.reasons["breach_at"] = f"the SLO has no {answer.metric} limit"
        return None
    run, first = 0, None
    for point in course.points:
        if point.p95_over is None:
            continue  # too few requests in the step: it says neither
        run = run + 1 if point.p95_over else 0
        first = point.start if run == 1 else first
        if run == HELD_STEPS:
            return first
    answer.reasons["breach_at"] = (
        f"{answer.metric.upper()} P95 was never over its limit in {HELD_STEPS} steps in a row"
    )
    return None


def _indicator(
    points: pl.DataFrame,
    shown: tuple[str, str, Combined, float | None],
    origin: int,
    steps: int,
    step_us: int,
    breach_at: datetime | None,
) -> IndicatorCourse:
    name, unit, combined, threshold = shown
    together = {
        "sum": pl.col("value").sum(),
        "max": pl.col("value").max(),
        "mean": pl.col("value").mean(),
    }[combined]
    stepped = (
        points.with_columns(step=pl.col("time_us") // step_us - origin)
        .group_by("step", "instance")
        .agg(pl.col("value").mean())
        .group_by("step")
        .agg(together)
    )
    values = {int(step): float(value) for step, value in stepped.iter_rows() if value is not None}
    made = IndicatorCourse(
        indicator=name,
        unit=unit,
        combined=combined,
        instances=points["instance"].n_unique(),
        samples=points.height,
        threshold=threshold,
        learned=False,
        crossed_at=None,
        lead_s=None,
        values=_placed(dict(values), steps),
    )
    if threshold is None:
        made.reasons = dict.fromkeys(
            ("crossed_at", "lead_s"), "no threshold of this indicator gives a known warning"
        )
        return made
    crossed = [
        at
        for _, part in points.partition_by("instance", as_dict=True).items()
        if (at := _first_held(part, threshold)) is not None
    ]
    if not crossed:
        made.reasons = dict.fromkeys(
            ("crossed_at", "lead_s"), f"never at its threshold for {HELD_SAMPLES} samples in a row"
        )
        return made
    made.crossed_at = from_us(min(crossed))
    if breach_at is None:
        made.reasons = {"lead_s": "no lasting breach in the window, so no warning was needed"}
    else:
        made.lead_s = (breach_at - made.crossed_at).total_seconds()
    return made


def _first_held(points: pl.DataFrame, threshold: float) -> int | None:
    """The time (us) of the first sample of the first run of `HELD_SAMPLES` at or over the threshold, None without such a run."""
    ordered = points.sort("time_us")
    over = ordered["value"].to_numpy() >= threshold
    if len(over) < HELD_SAMPLES:
        return None
    held = np.convolve(over, np.ones(HELD_SAMPLES), "valid") >= HELD_SAMPLES
    return int(ordered["time_us"][int(np.argmax(held))]) if held.any() else None
