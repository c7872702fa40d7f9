"""What do slow requests share that others do not? Over-represented values of every attribute, in the slow set or in any box of time and latency.

As in Honeycomb's BubbleUp, but tested: lift, Fisher's exact test with the false discovery rate held at 5 % (Benjamini-Hochberg), values that
always come together merged, and what P99 would be without them. Numbers are cut where their distributions differ most (Kolmogorov-Smirnov).

Sampled requests count for those that they stand for: shares and P99 are weighted, and the tests take each side for what its requests are worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.comparison.box_shape import (
    Group,
    Spread,
    StageSides,
    conditions,
    groups,
    spread,
    stage_sides,
)
from overrun.analysis.numbers.coverage.sampling import Kind, assess
from overrun.analysis.numbers.latency.percentiles import Percentiles, percentiles, quantile, worth
from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.numbers.requests.request_list import Extent, extent, known_metric
from overrun.analysis.numbers.stages.budget import STAGES, path_of, stage_times
from overrun.analysis.numbers.window import RequestFrame, Window, load_judged, query, with_share
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import printable, say_ms, say_ratio
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.times import parse_time, rfc3339
from overrun.collector.store.answers import fetch_frame

TEXTS: Final = (
    *("service", "instance", "route", "model", "provider", "tenant", "version", "session"),
    *("user_hash", "finish", "error_type", "calls_of", "engine_instance", "operation", "host"),
)
NUMBERS: Final = (
    *("input_tokens", "output_tokens", "cached_ratio", "reasoning_tokens", "max_tokens"),
    *("llm_calls", "tool_calls", "attempts"),
)
# A value must be in at least 5 slow requests and a fifth of them; an attribute with more values than half the requests is an identifier. Own defaults.
LEAST_HITS: Final = 5
LEAST_COVERAGE: Final = 0.2
MOST_DISTINCT: Final = 0.5
RATE: Final = 0.05
# Fewer slow requests than this share nothing that could not be chance, and the slowest 10 % stand in below 30 breaches.
LEAST_SLOW: Final = 10
FEW_BREACHES: Final = 30
SLOWEST: Final = 90.0
# Values whose presence correlates more than this (Cramer's V of two by two) are one finding.
SAME: Final = 0.9
MOST_LISTED: Final = 20
# A value must be at least this much more common among the slow to be told, however certain the difference; own default.
LEAST_LIFT: Final = 1.2
# What only spans show.
TRACED: Final = ("operation", "host")
# Traces of either side whose spans are read for the operation that took longest and its host: a share of 1,000 is right within 3 points in 95 of 100 samples.
MOST_TRACED: Final = 1000


class Cohort(msgspec.Struct, kw_only=True):
    """One value (or range) of an attribute that slow requests have more often. Ratios 0..1.

    `lift` = slow_ratio / rest_ratio (null if no other request has it), `log_odds` with Haldane's 0.5, `p_value` of Fisher's exact test (for ranges of the
    Kolmogorov-Smirnov test), `q_value` after Benjamini-Hochberg. `slow` and `rest` count stored requests, ratios are of those that they stand for.
    `p99_without_ms` is the window's P99 without these requests (null below the sample
    minimum). `same_as` names values of other attributes that come with it.
    """

    attribute: str
    value: str
    slow: int
    rest: int
    slow_ratio: float
    rest_ratio: float
    lift: float | None
    log_odds: float
    p_value: float
    q_value: float
    p99_ms: float | None
    p99_without_ms: float | None
    same_as: list[str]
    reasons: dict[str, str] = {}


class Cohorts(msgspec.Struct, kw_only=True):
    """What `n_slow` selected requests share against `n_rest` others of the same window; `selection` says in words which were selected.

    `skipped` has, per attribute that was not looked at, why. Where `sampling` is biased or unknown there are the two counts and the reason alone.
    `where` are the conditions that all of these requests meet, `stages` the mean stage times (ms) of both sides on the path to the metric, `spreads` the
    values of each attribute on both sides, those that differ most first, and `groups` the selected requests by the attribute `by`. `engine_instance` is the
    engine of a request's longest model call; `operation` and `host` are of its longest span without a child, read of at most 1,000 traces a side.
    """

    metric: str
    selection: str
    n_slow: int
    n_rest: int
    cohorts: list[Cohort]
    skipped: dict[str, str]
    where: list[str] = []
    stages: list[StageSides] = []
    spreads: list[Spread] = []
    by: str | None = None
    groups: list[Group] = []
    sampling: Kind = "all"
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Box:
    """A box in time and latency: start in [start, end), min_ms <= metric < max_ms; None leaves a side open."""

    start: datetime | None = None
    end: datetime | None = None
    min_ms: float | None = None
    max_ms: float | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was drawn."""
        return self == Box()

    @property
    def inverted(self) -> bool:
        """Whether a side lies behind its opposite, so that nothing can be inside."""
        ends = self.start is not None and self.end is not None and self.start >= self.end
        return ends or (
            self.min_ms is not None and self.max_ms is not None and self.min_ms >= self.max_ms
        )


@dataclass
class _Candidate:
    attribute: str
    value: str
    has: BoolArray
    p_value: float


class _Sides:
    """The selected requests against the others, each standing for `weights` of all."""

    def __init__(self, slow: BoolArray, weights: FloatArray) -> None:
        self.slow, self.weights = slow, weights
        self.n_slow, self.n_rest = int(slow.sum()), int((~slow).sum())
        self.weight_slow, self.weight_rest = float(weights[slow].sum()), float(weights[~slow].sum())
        # Tests count these, which are the numbers themselves where all requests of a side weigh the same.
        self.worth_slow, self.worth_rest = round(worth(weights[slow])), round(worth(weights[~slow]))

    def ratios(self, has: BoolArray) -> tuple[float, float]:
        """The share of what the slow and the other requests stand for that has something."""
        return float(self.weights[has & self.slow].sum()) / self.weight_slow, float(
            self.weights[has & ~self.slow].sum()
        ) / self.weight_rest

    def lift(self, has: BoolArray) -> float:
        """How many times as common it is among the slow ones; infinite where no other request has it."""
        slow, rest = self.ratios(has)
        return slow / rest if rest > 0.0 else math.inf

    def p_value(self, has: BoolArray) -> float:
        """Fisher's exact test that the slow ones have it more often."""
        slow, rest = self.ratios(has)
        hits = round(slow * self.worth_slow)
        return fisher_greater(
            hits,
            hits + round(rest * self.worth_rest),
            self.worth_slow,
            self.worth_slow + self.worth_rest,
        )


def cohorts(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    metric: str,
    box: Box | None = None,
    *,
    where: str | None = None,
    by: str | None = None,
) -> Cohorts:
    """Return what the slow requests of a window (or those in a box) share; failed requests take part where no latency is asked of the box.

    `where` are conditions that requests of both sides must meet (see `box_shape.conditions`), `by` an attribute to group the selected requests by.

    Raises:
        ListError: an unknown metric. AnalysisError: a box that ends before it starts, a condition that cannot be read, or an unknown attribute.
    """
    metric = known_metric(metric)
    if box is not None and box.inverted:
        raise AnalysisError(
            "the box is empty: its start must lie before its end and min_ms below max_ms"
        )
    asked = conditions(where, (*TEXTS, *NUMBERS))
    if by is not None and by not in (*TEXTS, *NUMBERS):
        raise AnalysisError(f"attribute {by[:64]!r} is unknown: {nearest(by, (*TEXTS, *NUMBERS))}")
    covered = extent(con, window)
    rows, sampled_kind, sampled_why, refused = _rows(con, window, covered, metric)
    values, weights = rows[f"{metric}_ms"].to_numpy(), rows["sample_weight"].to_numpy()
    # Which requests are selected is decided before conditions: the limit of the slowest tenth must not move with them.
    slow, selection = _select(rows, values, weights, slo, metric, box)
    rows = _with_longest(con, rows, slow, covered)
    for one in asked:
        met = one.of(rows)
        rows, slow = rows.filter(pl.Series(met)), slow[met]
    values, weights = rows[f"{metric}_ms"].to_numpy(), rows["sample_weight"].to_numpy()
    sides = _Sides(slow, weights)
    answer = Cohorts(
        metric=metric,
        selection=selection,
        n_slow=sides.n_slow,
        n_rest=sides.n_rest,
        cohorts=[],
        skipped={},
        where=[one.text() for one in asked],
        by=by,
        sampling=sampled_kind,
    )
    if refused:
        answer.reasons = {"cohorts": sampled_why}
        return answer
    _describe(answer, rows, slow, weights)
    if min(sides.n_slow, sides.n_rest) < LEAST_SLOW:
        answer.reasons = {
            "cohorts": f"{sides.n_slow} selected and {sides.n_rest} other requests: at least {LEAST_SLOW} of each are needed"
        }
        return answer
    found = [c for name in TEXTS for c in _of_text(rows, name, sides, answer.skipped)]
    found += [c for name in NUMBERS for c in _of_number(rows, name, sides, answer.skipped)]
    kept = [(c, q) for c, q in _significant(found) if sides.lift(c.has) >= LEAST_LIFT]
    whole = percentiles(values, weights=weights)
    answer.cohorts = [
        _cohort(c, q, sides, values, whole, same) for c, q, same in _merged(kept)[:MOST_LISTED]
    ]
    return answer


def _rows(
    con: duckdb.DuckDBPyConnection, window: Window, covered: Extent, metric: str
) -> tuple[pl.DataFrame, Kind, str, bool]:
    """The successful requests with the metric and their stage times on its path; how they were sampled, and whether they stand for all."""
    path = path_of(metric)
    others = [f"{'' if path == 'ttft' else 'ttft_'}{stage}_ms" for stage in STAGES]
    rows = with_share(
        con, load_judged(con, window, query("cohorts"), without=others), covered.start, covered.end
    )
    sampled = assess(con, RequestFrame(window, rows, pl.DataFrame(), 0, covered.start, covered.end))
    rows = rows.filter(
        pl.col(f"{metric}_ms").is_not_null() & pl.col(f"{path}_ms").is_not_null() & ~pl.col("error")
    ).with_columns(
        # Who reports cached tokens leaves them out where there are none; of who never does nothing is known.
        cached_ratio=pl.when(pl.col("tells_cached").any().over("service", "model")).then(
            "cached_ratio"
        )
    )
    return rows, sampled.kind, sampled.why, sampled.refused


def _with_longest(
    con: duckdb.DuckDBPyConnection, rows: pl.DataFrame, slow: BoolArray, covered: Extent
) -> pl.DataFrame:
    """The rows with the engine of the longest call, and of at most `MOST_TRACED` a side the operation that took longest and its host."""
    empty = [
        pl.lit(None, pl.String).alias(name) for name in ("engine_instance", "operation", "host")
    ]
    if rows.is_empty() or covered.start is None:
        return rows.with_columns(empty)
    ends_us = rows["start_us"].to_numpy() + 1000.0 * rows["e2e_ms"].fill_null(0.0).to_numpy()
    until = datetime.fromtimestamp(float(ends_us.max()) / 1e6 + 1.0, UTC)
    span = {"start": covered.start, "end": until}
    engines = fetch_frame(con, query("cohort_engines"), span)
    keys = pl.concat(
        [
            rows.filter(pl.Series(side))["trace_key"].sort().head(MOST_TRACED)
            for side in (slow, ~slow)
        ]
    )
    longest = fetch_frame(con, query("cohort_spans"), span | {"traces": keys.to_list()})
    return rows.join(engines, on="trace_key", how="left", maintain_order="left").join(
        longest, on="trace_key", how="left", maintain_order="left"
    )


def _describe(answer: Cohorts, rows: pl.DataFrame, slow: BoolArray, weights: FloatArray) -> None:
    """Put in both sides' stages, the spread of every attribute, and the groups that were asked for."""
    if not len(rows):
        return
    times = stage_times(rows, path_of(answer.metric))
    answer.stages = stage_sides(times, slow, weights)
    if answer.by is not None:
        known = _read_of(rows, answer.by)
        answer.groups = groups(
            rows.filter(pl.Series(known)),
            answer.by,
            times.take(np.flatnonzero(known)),
            slow[known],
            weights[known],
        )
    found = []
    for name in (*TEXTS, *NUMBERS):
        known = _read_of(rows, name)
        some = rows.filter(pl.Series(known)) if name in TRACED else rows
        if _identifies(some[name]):
            continue
        one = spread(some, name, slow[known], weights[known])
        found += [] if one is None else [one]
    answer.spreads = sorted(found, key=lambda one: one.by_chance - one.distance)


def _read_of(rows: pl.DataFrame, name: str) -> BoolArray:
    """Which rows an attribute was looked for in: of those that only spans show, the ones whose spans were read."""
    if name not in TRACED:
        return np.ones(rows.height, np.bool_)
    known: BoolArray = rows[name].is_not_null().to_numpy()
    return known


def _identifies(column: pl.Series) -> bool:
    """Whether almost every request has another text."""
    if column.dtype.is_numeric():
        return False
    known = len(column) - column.null_count()
    return column.n_unique() - (column.null_count() > 0) > max(MOST_DISTINCT * known, LEAST_HITS)


def _select(
    rows: pl.DataFrame,
    values: FloatArray,
    weights: FloatArray,
    slo: Slo,
    metric: str,
    box: Box | None,
) -> tuple[BoolArray, str]:
    if box is not None and not box.empty:
        start = rows["start_us"].to_numpy()
        inside = np.ones(len(values), np.bool_)
        said = []
        if box.start is not None:
            inside &= start >= box.start.timestamp() * 1e6
            said.append(f"from {rfc3339(box.start)}")
        if box.end is not None:
            inside &= start < box.end.timestamp() * 1e6
            said.append(f"to {rfc3339(box.end)}")
        if box.min_ms is not None:
            inside &= values >= box.min_ms
            said.append(f"{metric.upper()} from {say_ms(box.min_ms)}")
        if box.max_ms is not None:
            inside &= values < box.max_ms
            said.append(f"{metric.upper()} below {say_ms(box.max_ms)}")
        return inside, "requests " + ", ".join(said)
    limit = limits_of(rows, slo, metric)
    if limit is not None and int((values > limit).sum()) >= FEW_BREACHES:
        over = say_ms(limit) if isinstance(limit, float) else "their own limit, or the common one"
        return values > limit, f"requests whose {metric.upper()} is over {over}"
    if not len(values):
        return np.zeros(0, np.bool_), "no request"
    edge = quantile(values, SLOWEST / 100.0, weights)
    return (
        values > edge,
        f"the slowest {say_ratio(1.0 - SLOWEST / 100.0)} by {metric.upper()} (over {say_ms(edge)})",
    )


def _of_text(
    rows: pl.DataFrame, name: str, sides: _Sides, skipped: dict[str, str]
) -> list[_Candidate]:
    column = rows[name]
    known = len(column) - column.null_count()
    if known == 0:
        skipped[name] = "not recorded"
        return []
    distinct = column.n_unique() - (column.null_count() > 0)
    if distinct < 2 and known == len(column):
        skipped[name] = "one value in all requests"
        return []
    if name in TRACED and known < len(column):
        skipped[name] = f"read of {known:,} traces only: see its spread"
        return []
    if _identifies(column):
        skipped[name] = "almost every request has another value"
        return []
    hits = column.filter(pl.Series(sides.slow)).drop_nulls().value_counts(sort=True)
    least = max(LEAST_HITS, LEAST_COVERAGE * sides.n_slow)
    found = []
    for value, n in hits.iter_rows():
        if n < least:
            break
        has = (column == value).fill_null(False).to_numpy()
        found.append(_Candidate(name, str(value), has, sides.p_value(has)))
    return found


def _of_number(
    rows: pl.DataFrame, name: str, sides: _Sides, skipped: dict[str, str]
) -> list[_Candidate]:
    """Return the range above (or below) the point where the distributions of slow and other requests differ most."""
    column = rows[name].cast(pl.Float64)
    known = column.is_not_null().to_numpy()
    values = column.fill_null(0.0).to_numpy()
    if not known.any() or len(np.unique(values[known])) < 2:
        skipped[name] = "not recorded" if not known.any() else "one value in all requests"
        return []
    slow, rest = known & sides.slow, known & ~sides.slow
    if min(slow.sum(), rest.sum()) < LEAST_SLOW:
        skipped[name] = "recorded in too few requests"
        return []
    points = np.unique(values[known])
    gap = _reached(values[rest], sides.weights[rest], points) - _reached(
        values[slow], sides.weights[slow], points
    )
    at = int(np.argmax(np.abs(gap)))
    above = gap[at] > 0.0
    has = known & ((values > points[at]) if above else (values <= points[at]))
    if int((has & sides.slow).sum()) < max(LEAST_HITS, LEAST_COVERAGE * sides.n_slow):
        return []
    said = f"{'>' if above else '<='} {points[at]:,.4g}"
    return [
        _Candidate(
            name,
            said,
            has,
            kolmogorov(abs(float(gap[at])), worth(sides.weights[slow]), worth(sides.weights[rest])),
        )
    ]


def _reached(values: FloatArray, weights: FloatArray, points: FloatArray) -> FloatArray:
    """The share (by weight) of the values up to each point."""
    order = np.argsort(values)
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    shares: FloatArray = sums[np.searchsorted(values[order], points, side="right")] / sums[-1]
    return shares


def fisher_greater(hits: int, marked: int, slow: int, n: int) -> float:
    """Return P(at least `hits` of the `marked` of n requests fall among `slow` drawn without replacement): Fisher's exact test, one-sided."""
    most = min(marked, slow)
    if hits <= max(0, marked + slow - n):
        return 1.0
    k = np.arange(hits, most + 1, dtype=np.float64)
    first = _log_choose(marked, hits) + _log_choose(n - marked, slow - hits) - _log_choose(n, slow)
    steps = np.log(
        (marked - k[:-1]) * (slow - k[:-1]) / ((k[:-1] + 1.0) * (n - marked - slow + k[:-1] + 1.0))
    )
    return float(min(1.0, np.exp(first + np.concatenate([[0.0], np.cumsum(steps)])).sum()))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def kolmogorov(distance: float, n: float, m: float) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov distance (asymptotic series, with Stephens' correction)."""
    root = math.sqrt(n * m / (n + m))
    x = (root + 0.12 + 0.11 / root) * distance
    if x < 0.2:
        return 1.0
    return float(
        min(
            1.0,
            max(
                0.0,
                2.0
                * sum((-1.0) ** (j - 1) * math.exp(-2.0 * j * j * x * x) for j in range(1, 101)),
            ),
        )
    )


def _significant(found: list[_Candidate]) -> list[tuple[_Candidate, float]]:
    """Keep what Benjamini and Hochberg's procedure keeps at a rate of 5 %, with q-values, most certain first."""
    order = sorted(found, key=lambda c: c.p_value)
    q = 1.0
    values = [0.0] * len(order)
    for i in range(len(order) - 1, -1, -1):
        q = min(q, order[i].p_value * len(order) / (i + 1))
        values[i] = q
    return [(c, q) for c, q in zip(order, values, strict=True) if q <= RATE]


def _merged(kept: list[tuple[_Candidate, float]]) -> list[tuple[_Candidate, float, list[str]]]:
    """Put values that come together (Cramer's V over 0.9) under the most certain of them."""
    out: list[tuple[_Candidate, float, list[str]]] = []
    for candidate, q in kept:
        same = next((entry for entry in out if cramers_v(entry[0].has, candidate.has) > SAME), None)
        if same is None:
            out.append((candidate, q, []))
        else:
            same[2].append(f"{candidate.attribute} {printable(candidate.value)}")
    return out


def cramers_v(a: BoolArray, b: BoolArray) -> float:
    """Return the association of two markings (0 none, 1 the same or opposite): |phi| of the two by two table."""
    p, q, both = float(a.mean()), float(b.mean()), float((a & b).mean())
    spread = math.sqrt(p * (1.0 - p) * q * (1.0 - q))
    return abs(both - p * q) / spread if spread > 0.0 else 0.0


def _cohort(
    c: _Candidate, q: float, sides: _Sides, values: FloatArray, whole: Percentiles, same: list[str]
) -> Cohort:
    slow, rest = sides.ratios(c.has)
    hits, others = slow * sides.worth_slow, rest * sides.worth_rest
    odds = math.log(
        (hits + 0.5)
        * (sides.worth_rest - others + 0.5)
        / ((sides.worth_slow - hits + 0.5) * (others + 0.5))
    )
    lift = sides.lift(c.has)
    without = percentiles(values[~c.has], weights=sides.weights[~c.has])
    reasons = {
        name: part.reasons["p99"]
        for name, part in (("p99_ms", whole), ("p99_without_ms", without))
        if part.p99 is None
    }
    if math.isinf(lift):
        reasons["lift"] = "no other request has it"
    return Cohort(
        attribute=c.attribute,
        value=printable(c.value, 120),
        slow=int((c.has & sides.slow).sum()),
        rest=int((c.has & ~sides.slow).sum()),
        slow_ratio=slow,
        rest_ratio=rest,
        lift=None if math.isinf(lift) else lift,
        log_odds=odds,
        p_value=c.p_value,
        q_value=q,
        p99_ms=whole.p99,
        p99_without_ms=without.p99,
        same_as=same,
        reasons=reasons,
    )


def cohorts_in_box(  # noqa: PLR0913
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    metric: str,
    *,
    min_ms: float | None = None,
    max_ms: float | None = None,
    box_from: str | None = None,
    box_to: str | None = None,
    where: str | None = None,
    by: str | None = None,
) -> Cohorts:
    """Return the cohorts of the requests in a box of times (RFC 3339) and latencies (ms); without bounds, of the slow ones.

    Raises:
        AnalysisError: as `cohorts` and `parse_box`.
    """
    box = parse_box(box_from, box_to, min_ms, max_ms)
    return cohorts(con, window, slo, metric, box, where=where, by=by)


def parse_box(
    start: str | None, end: str | None, min_ms: float | None, max_ms: float | None
) -> Box:
    """Return the box of query parameters (times in RFC 3339).

    Raises:
        AnalysisError: a time that cannot be read.
    """
    now = datetime.now(UTC)
    return Box(
        parse_time(start, now) if start else None,
        parse_time(end, now) if end else None,
        min_ms,
        max_ms,
    )
