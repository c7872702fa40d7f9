"""What is exact of a window whose requests are too many to be read? Counts, shares and percentiles of all its requests, counted by the database.

Memory stays bounded: counts come by combination, and a percentile as the values between two edges, which a sample shows to lie on either side of it. The
count below the lower edge says whether they do; if not, the edges are moved apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.order_statistics import (
    FAR,
    NEAR,
    Piece,
    between,
    pieces,
    stretch_of,
)
from overrun.analysis.numbers.latency.percentiles import (
    MIN_N,
    MIN_N_INTERVAL,
    Latency,
    Percentiles,
    interval_places,
    latency,
    source_of,
    why_too_few,
)
from overrun.analysis.numbers.outcomes.failures import ABANDONED, Errors
from overrun.analysis.numbers.outcomes.goodput import FailedBy, Goodput
from overrun.analysis.numbers.window import RequestFrame, Window, answers, filter_of, query
from overrun.analysis.words.slo import METRICS, Slo
from overrun.collector.store.answers import fetch_frame

# Types of errors that are counted; the rest is counted as failed alone.
MOST_TYPES: Final = 1_000
# Up to so many values of a latency the database puts them in order itself: 160 MB each, and a third of the CPU.
MOST_SORTED: Final = 20_000_000
# Values between edges that are read one by one: 24 MB.
MOST_VALUES: Final = 1_000_000


Value: TypeAlias = tuple[float, tuple[float, float] | None]
"""A percentile in ms with its 95 % interval, None where n is too small."""


@dataclass(frozen=True)
class Exact:
    """Counts of all requests of a window. `counts` has a row per combination, see sql/judged_counts.sql, of complete requests alone."""

    counts: pl.DataFrame
    incomplete: int
    slo: Slo

    @property
    def requests(self) -> int:
        return int(self.counts["n"].sum())

    @property
    def llm_calls(self) -> int:
        return int(self.counts["llm_calls"].sum())

    @property
    def spans(self) -> int:
        return int(self.counts["spans"].sum())

    @property
    def even(self) -> bool:
        """Whether each stored request stands for as many: only then are counts and percentiles those of all that happened."""
        return bool(self.counts["least_weight"].min() == self.counts["most_weight"].max())

    def successful(self, metric: str) -> int:
        """How many successful requests carry a metric."""
        return int(self.counts.filter(~pl.col("error") & pl.col(metric).is_not_null())["n"].sum())


def count_exactly(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, spoiled: Collection[str]
) -> Exact:
    """Count the requests of a window by outcome; latencies among `spoiled` count as not known."""
    limits = {metric: slo.limits().get(metric) for metric in METRICS}
    found = fetch_frame(
        con, query("judged_counts"), {**filter_of(window), **limits, "spoiled": list(spoiled)}
    )
    complete = found.filter("complete")
    return Exact(complete, int(found["n"].sum()) - int(complete["n"].sum()), slo)


def exact_goodput(exact: Exact, seconds: float, weight: float = 1.0) -> Goodput:
    """Return goodput as `outcomes.goodput.goodput` does of all requests; each stands for `weight`."""
    limited = list(exact.slo.limits())
    error = pl.col("error")
    passes = {
        metric: pl.col("one_token") if metric in ("itl", "tpot") else pl.lit(value=False)
        for metric in limited
    }
    known = {m: (pl.col(m).is_not_null() | passes[m]) & ~error for m in limited}
    missed = {m: (pl.col(m).fill_null(value=False) & ~passes[m]) & ~error for m in limited}
    rows = exact.counts.select(
        "n",
        "error",
        measurable=pl.all_horizontal([*known.values(), ~error]),
        misses=pl.sum_horizontal([one.cast(pl.Int32) for one in missed.values()]),
        **{f"missed_{m}": one for m, one in missed.items()},
        **{f"known_{m}": one for m, one in known.items()},
    )

    def n(*conditions: pl.Expr | str) -> int:
        return int(rows.filter(*conditions)["n"].sum())

    failed = n("error")
    measured = n("measurable") > 0 or failed == exact.requests
    good = n("measurable", pl.col("misses") == 0)
    bad = n("measurable", pl.col("misses") > 0) + (failed if measured else 0)
    out = Goodput(
        ratio=None,
        rps=None,
        good=good,
        bad=bad,
        unmeasurable=exact.requests - good - bad,
        failed_by=FailedBy(**{m: n("measurable", f"missed_{m}") for m in limited}, error=failed),
        failed_alone=FailedBy(
            **{m: n("measurable", f"missed_{m}", pl.col("misses") == 1) for m in limited},
            error=failed,
        ),
        failed_together=n("measurable", pl.col("misses") > 1),
        reasons={},
    )
    if good + bad == 0:
        missing = [m for m in limited if n(f"known_{m}") == 0]
        why = (
            f"none of {out.unmeasurable} requests carries every limited metric ({', '.join(missing)} missing)"
            if out.unmeasurable
            else "no request in the window"
        )
        out.reasons = {"ratio": why, "rps": why}
        return out
    out.ratio = good / (good + bad)
    if seconds > 0.0:
        out.rps = weight * good / seconds
    else:
        out.reasons = {"rps": "the window has no length"}
    return out


def exact_errors(con: duckdb.DuckDBPyConnection, window: Window, exact: Exact) -> Errors:
    """Return the account of failed, abandoned and truncated requests, of all of a window."""
    return errors_of(
        exact, answers(con, "failure_counts", {**filter_of(window), "most": MOST_TYPES})
    )


def errors_of(exact: Exact, kinds: Sequence[Mapping[str, Any]]) -> Errors:
    """Return the account of failed, abandoned and truncated requests from their counts; `kinds` are the rows of the query `failure_counts`."""
    counts = exact.counts
    failed = int(counts.filter("error")["n"].sum())
    cut = counts.drop_nulls("truncated")
    unnamed = sum(row["n"] for row in kinds if row["error_type"] is None)
    named = [row for row in kinds if row["error_type"] is not None]
    gone = [row for row in named if ABANDONED.search(row["error_type"].lower())]
    left = sum(row["n"] for row in gone)
    out = Errors(
        ratio=failed / exact.requests if exact.requests else None,
        abandoned_ratio=left / exact.requests if exact.requests else None,
        truncated_ratio=int(cut.filter("truncated")["n"].sum()) / int(cut["n"].sum())
        if cut.height
        else None,
        # Of several types it is the median of the one that most have: those of each are not kept.
        abandoned_after_ms=float(gone[0]["waited_ms"]) if gone else None,
        error_types={row["error_type"][:128]: int(row["n"]) for row in named[:10]},
        reasons={},
    )
    if not cut.height:
        out.reasons["truncated_ratio"] = "no request carries a finish reason"
    if unnamed * 2 > failed:
        out.abandoned_ratio = None
        out.reasons["abandoned_ratio"] = (
            f"{unnamed:,} of {failed:,} failed requests carry no error type: record error.type"
        )
    if not gone:
        out.reasons["abandoned_after_ms"] = "no request is known to be abandoned by its client"
    return out


def exact_latency(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    exact: Exact,
    further: Collection[float] = (),
) -> tuple[Latency, dict[tuple[str, float], Value]]:
    """Return the percentiles of all successful requests of a sampled window, and the `further` ones (0..100) by metric and percentile.

    What is null has the reason that the sample's percentiles have.
    """
    places = places_of(exact, further)
    sizes = {metric: exact.successful(metric) for metric in places}
    found = values_at(con, frame, sizes, places)
    return latency_of(frame.rows.filter(~pl.col("error")), exact, places, found, further)


def places_of(exact: Exact, further: Collection[float] = ()) -> dict[str, list[float]]:
    """Return, for each metric that requests carry, the places among its ascending values that its percentiles and their intervals lie at."""
    sizes = ((metric, exact.successful(metric)) for metric in METRICS)
    return {metric: _places(n, further) for metric, n in sizes if n}


def latency_of(
    sample: pl.DataFrame,
    exact: Exact,
    places: Mapping[str, list[float]],
    found: Mapping[str, list[float]],
    further: Collection[float] = (),
) -> tuple[Latency, dict[tuple[str, float], Value]]:
    """Return the percentiles of all requests from the values at `places_of`, and the `further` ones; `sample` has some successful requests."""
    out = latency(sample)
    sources = exact.counts.filter(~pl.col("error")).drop_nulls("ttft_source")
    counted = sources.group_by("ttft_source").agg(pl.col("n").sum())
    asked: dict[tuple[str, float], Value] = {}
    for metric in places:
        n = exact.successful(metric)
        value = dict(zip(places[metric], found[metric], strict=True))
        stats = _stats(n, value)
        stats.source = source_of(metric, dict(counted.iter_rows()))
        setattr(out, f"{metric}_ms", stats)
        asked |= {(metric, p): _with_interval(n, p, value) for p in further}
    return out, asked


def _with_interval(n: int, percentile: float, value: Mapping[float, float]) -> Value:
    both = interval_places(n, percentile / 100.0)
    at = value[_place(n, percentile)]
    return at, None if both is None else (value[both[0]], value[both[1]])


def _place(n: int, percentile: float) -> float:
    return percentile / 100.0 * (n - 1)


def _places(n: int, further: Collection[float]) -> list[float]:
    """The places among `n` ascending values that percentiles and their intervals lie at; the last one is the maximum's."""
    out = [_place(n, p) for p in MIN_N if n >= MIN_N[p]] + [_place(n, p) for p in further]
    for p in {*MIN_N_INTERVAL, *further}:
        out += interval_places(n, p / 100.0) or ()
    return [*out, float(n - 1)]


def _stats(n: int, value: Mapping[float, float]) -> Percentiles:
    most = value[float(n - 1)]
    stats = Percentiles(n=n, max=most, reasons=why_too_few(n, most))
    for p in MIN_N:
        if n >= MIN_N[p]:
            setattr(stats, f"p{p:g}".replace(".", "_"), value[_place(n, p)])
    for p in MIN_N_INTERVAL:
        both = interval_places(n, p / 100.0) if n >= MIN_N_INTERVAL[p] else None
        if both is not None:
            setattr(stats, f"p{p:g}_interval", (value[both[0]], value[both[1]]))
    return stats


def values_at(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    sizes: Mapping[str, int],
    places: Mapping[str, list[float]],
) -> dict[str, list[float]]:
    """Return the values of metrics (ms) at places of their ascending order (0 to n - 1, between two: in proportion), among the successful requests of a window
    whose sample is known; so many carry each."""
    if max(sizes.values(), default=0) > MOST_SORTED:
        return {m: at_places(con, frame, m, n, places[m]) for m, n in sizes.items()}
    shares = {m: [place / max(n - 1, 1) for place in places[m]] for m, n in sizes.items()}
    columns = [f"quantile_cont({m}_ms, {shares[m]!r}::double[])" for m in sizes]
    if not columns:
        return {}
    latencies = query("judged_latencies")
    sql = f"select {', '.join(columns)} from ({latencies})"
    [row] = con.execute(sql, filter_of(frame.window)).fetchall()
    return dict(zip(sizes, row, strict=True))


def at_places(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, metric: str, n: int, places: list[float]
) -> list[float]:
    """Return the values of a metric (ms) at places of their ascending order (0 to n - 1, between two: in proportion), among `n` successful requests of a
    window whose sample is known."""
    ok = frame.rows.filter(~pl.col("error"))
    drawn = ok.filter("is_even")[f"{metric}_ms"].drop_nulls().to_numpy()
    ordered = np.sort(drawn)
    for wide in (NEAR, FAR):
        around = pieces(ordered, sorted(p / max(n - 1, 1) for p in places), wide)
        found = _looked_up(con, frame.window, metric, around, places)
        if found is not None:
            return found
    everything = _looked_up(con, frame.window, metric, [(-math.inf, math.inf)], places)
    if everything is None:
        raise AssertionError("the counted requests are not those that are read")
    return everything


def _looked_up(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    metric: str,
    around: list[Piece],
    places: list[float],
) -> list[float] | None:
    """The values at some places, None where one lies outside of all pieces."""
    column = f"{metric}_ms"
    stretch = stretch_of(column, around)
    asked, latencies = filter_of(window), query("judged_latencies")
    cut = (
        f"select {stretch} as stretch, {column} as value from ({latencies}) "
        f"where {column} is not null"
    )
    counts = fetch_frame(con, f"select stretch, count(*) as n from ({cut}) group by all", asked)
    inside = pl.col("stretch") % 2 == 1
    # Where very many requests have one value, values are counted and not read; counting each of many is three times as slow.
    each = int(counts.filter(inside)["n"].sum()) <= MOST_VALUES
    among = f"select stretch, value, {'1' if each else 'count(*)'} as n from ({cut}) where stretch % 2 = 1{'' if each else ' group by all'}"
    rows = pl.concat(
        [
            counts.filter(~inside).select("stretch", pl.lit(None, pl.Float64).alias("value"), "n"),
            fetch_frame(con, among, asked).with_columns(pl.col("n").cast(pl.Int64)),
        ]
    ).sort("stretch", "value")
    ends = np.cumsum(rows["n"].to_numpy())
    values, known = rows["value"].to_numpy(), rows["value"].is_not_null().to_numpy()

    def at(index: int) -> float | None:
        row = int(np.searchsorted(ends, index, side="right"))
        return float(values[row]) if row < len(values) and known[row] else None

    out = []
    for place in places:
        low, high = at(math.floor(place)), at(math.ceil(place))
        if low is None or high is None:
            return None
        out.append(between(low, high, place))
    return out
