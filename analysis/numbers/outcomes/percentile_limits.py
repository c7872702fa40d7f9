"""Which percentile limits of an SLO are met, by how much, and of how many requests? One row a limit, for reports, gates and load tests."""

from __future__ import annotations

import duckdb
import msgspec
import polars as pl

from overrun.analysis.numbers.coverage.sampling import weights_of
from overrun.analysis.numbers.latency.percentiles import min_n, quantile, quantile_interval, worth
from overrun.analysis.numbers.outcomes.goodput import judge, limits_of
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.numbers.window import Window, load_judged, query
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import say_count, say_ms
from overrun.analysis.words.slo import Slo


class LimitRow(msgspec.Struct, kw_only=True):
    """One limit: the percentile's value in ms with its 95 % interval, of `n` requests, `missed` of which are beyond the limit.

    `met` says whether the share within the limit reaches the target, `clear` whether its interval leaves no doubt. What is null has its reason.
    """

    metric: str
    percentile: float
    limit_ms: float
    value_ms: float | None
    interval_ms: tuple[float, float] | None
    n: int
    missed: int
    met: bool | None
    clear: bool
    reasons: dict[str, str] = {}


def judged_rows(con: duckdb.DuckDBPyConnection, window: Window) -> pl.DataFrame:
    """Return what judging takes of every complete request of a window."""
    return load_judged(con, window, query("series"))


def most_missed(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> Slo:
    """Return the part of an SLO that the window's requests miss by most: bad requests over those that its target allows; the first part of equal ones."""
    rows = judged_rows(con, window)

    def excess(part: Slo) -> float:
        judged = judge(rows, part)
        known = int((judged.good | judged.bad).sum())
        bad = float(judged.bad.sum()) / known if known else 0.0
        return bad / max(1.0 - part.goodput_target, 1e-9)

    return max(slo.each(), key=excess)


def limit_rows(rows: pl.DataFrame, slo: Slo) -> list[LimitRow]:
    """Return a row per limit of each part of the SLO, over successful requests; limits of their own (x-slo headers) count for whether they are met."""
    out = []
    for part in slo.each():
        judged = judge(rows, part)
        for metric, limit_ms in part.limits().items():
            known = judged.known[metric]
            values = rows[f"{metric}_ms"].fill_null(float("nan")).to_numpy()[known]
            own = limits_of(rows, part, metric)
            missed = int(judged.misses[metric].sum())
            whole = values == values
            weights = weights_of(rows)
            weights = None if weights is None else weights[known][whole]
            row = limit_row(metric, part, limit_ms, values[whole], missed, weights)
            if not isinstance(own, float) and own is not None:
                row.reasons["limit_ms"] = "some requests came with a limit of their own"
            out.append(row)
    return out


def limit_row(
    metric: str,
    part: Slo,
    limit_ms: float,
    values: FloatArray,
    missed: int | None = None,
    weights: FloatArray | None = None,
) -> LimitRow:
    """Return the row of one limit from the values in ms that are known; `missed` where not the common limit alone decides, `weights` as in `percentiles`."""
    n = len(values)
    over = int((values > limit_ms).sum()) if missed is None else missed
    row = LimitRow(
        metric=metric,
        percentile=part.percentile,
        limit_ms=limit_ms,
        value_ms=None,
        interval_ms=None,
        n=n,
        missed=over,
        met=None,
        clear=False,
    )
    if not n:
        row.reasons = dict.fromkeys(
            ("value_ms", "interval_ms", "met"), f"no successful request carries {metric.upper()}"
        )
        return row
    ordered, p = values.copy(), part.percentile / 100.0
    ordered.sort()
    target = part.percentile / 100.0
    within, effective = (n - over) / n, float(n)
    if weights is not None and (weights != weights[0]).any():
        within = float(weights[values <= limit_ms].sum() / weights.sum())
        effective = worth(weights)
    row.met = within >= target
    low, high = wilson(within * effective, effective)
    row.clear = low >= target or high < target
    needed = min_n(part.percentile)
    if effective >= needed:
        row.value_ms = quantile(values, p, weights)
        row.interval_ms = quantile_interval(ordered, p) if effective == n else None
        if row.interval_ms is None:
            row.reasons["interval_ms"] = f"{n} requests are too few for an interval"
    else:
        why = f"P{part.percentile:g} needs at least {needed} requests, there are {n}"
        row.reasons = dict.fromkeys(("value_ms", "interval_ms"), why)
    return row


def counted_row(
    metric: str,
    part: Slo,
    limit_ms: float,
    *,
    value: tuple[float, tuple[float, float] | None] | None,
    n: int,
    missed: int,
) -> LimitRow:
    """Return the row of one limit that `missed` of `n` requests are beyond; `value` is its percentile in ms with the interval, None without any request."""
    needed = min_n(part.percentile)
    low, high = wilson(n - missed, n) if n else (0.0, 1.0)
    target = part.percentile / 100.0
    row = LimitRow(
        metric=metric,
        percentile=part.percentile,
        limit_ms=limit_ms,
        value_ms=value[0] if value is not None and n >= needed else None,
        interval_ms=value[1] if value is not None and n >= needed else None,
        n=n,
        missed=missed,
        met=(n - missed) / n >= target if n else None,
        clear=bool(n) and (low >= target or high < target),
    )
    if not n:
        why = f"no successful request carries {metric.upper()}"
        row.reasons = dict.fromkeys(("value_ms", "interval_ms", "met"), why)
    elif row.value_ms is None:
        why = f"P{part.percentile:g} needs at least {needed} requests, there are {n}"
        row.reasons = dict.fromkeys(("value_ms", "interval_ms"), why)
    elif row.interval_ms is None:
        row.reasons["interval_ms"] = f"{n} requests are too few for an interval"
    return row


def say_limit(row: LimitRow) -> str:
    """Return a limit with its numbers: `TTFT P99 1.2 s, limit 1 s, 12 of 480 requests missed it`."""
    head = f"{row.metric.upper()} P{row.percentile:g}"
    seen = say_ms(row.value_ms) if row.value_ms is not None else "not known"
    between = (
        f" ({say_ms(row.interval_ms[0])} to {say_ms(row.interval_ms[1])})"
        if row.interval_ms is not None
        else ""
    )
    if row.n == 0:
        return (
            f"{head} {seen}, limit {say_ms(row.limit_ms)}: {next(iter(row.reasons.values()), '')}"
        )
    missed = (
        f"{say_count(row.n, 'request')}"
        if "missed" in row.reasons
        else f"{row.missed:,} of {say_count(row.n, 'request')} missed it"
    )
    return f"{head} {seen}{between}, limit {say_ms(row.limit_ms)}, {missed}"
