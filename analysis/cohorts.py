"""What do slow requests share that others do not? Over-represented values of every attribute, in the slow set or in any box of time and latency.

As in Honeycomb's BubbleUp, but tested: lift, Fisher's exact test with the false discovery rate held at 5 % (Benjamini-Hochberg), values that
always come together merged, and what P99 would be without them. Numbers are cut where their distributions differ most (Kolmogorov-Smirnov).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

import duckdb
import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import AnalysisError
from analysis.finding import printable, say_ms, say_ratio
from analysis.latency import MIN_N, sorted_quantile
from analysis.requests import known_metric
from analysis.slo import Slo
from analysis.window import Window, filter_of, query, rfc3339

BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]

TEXTS: Final = ("service", "instance", "route", "model", "provider", "tenant", "version", "session", "user_hash", "finish", "error_type", "calls_of")
NUMBERS: Final = ("input_tokens", "output_tokens", "cached_ratio", "reasoning_tokens", "max_tokens", "llm_calls", "tool_calls", "attempts")
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


class Cohort(msgspec.Struct, kw_only=True):
    """One value (or range) of an attribute that slow requests have more often. Ratios 0..1.

    `lift` = slow_ratio / rest_ratio (null if no other request has it), `log_odds` with Haldane's 0.5, `p_value` of Fisher's exact test (for ranges of the
    Kolmogorov-Smirnov test), `q_value` after Benjamini-Hochberg. `p99_without_ms` is the window's P99 without these requests (null below the sample
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

    `skipped` has, per attribute that was not looked at, why.
    """

    metric: str
    selection: str
    n_slow: int
    n_rest: int
    cohorts: list[Cohort]
    skipped: dict[str, str]
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
        return ends or (self.min_ms is not None and self.max_ms is not None and self.min_ms >= self.max_ms)


@dataclass
class _Candidate:
    attribute: str
    value: str
    has: BoolArray
    p_value: float


def cohorts(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str, box: Box | None = None) -> Cohorts:
    """Return what the slow requests of a window (or those in a box) share; failed requests take part where no latency is asked of the box.

    Raises:
        ListError: an unknown metric. AnalysisError: a box that ends before it starts.
    """
    metric = known_metric(metric)
    if box is not None and box.inverted:
        raise AnalysisError("the box is empty: its start must lie before its end and min_ms below max_ms")
    rows = con.sql(query("cohorts"), params=filter_of(window)).pl()
    return of_rows(rows, slo, metric, box)


def of_rows(rows: pl.DataFrame, slo: Slo, metric: str, box: Box | None = None) -> Cohorts:
    """Return what selected rows (columns of cohorts.sql) share."""
    rows = rows.filter(pl.col(f"{metric}_ms").is_not_null() & ~pl.col("error"))
    values = rows[f"{metric}_ms"].to_numpy()
    slow, selection = _select(rows, values, slo, metric, box)
    n_slow, n_rest = int(slow.sum()), int((~slow).sum())
    answer = Cohorts(metric=metric, selection=selection, n_slow=n_slow, n_rest=n_rest, cohorts=[], skipped={})
    if min(n_slow, n_rest) < LEAST_SLOW:
        answer.reasons = {"cohorts": f"{n_slow} selected and {n_rest} other requests: at least {LEAST_SLOW} of each are needed"}
        return answer
    found = [c for name in TEXTS for c in _of_text(rows, name, slow, answer.skipped)]
    found += [c for name in NUMBERS for c in _of_number(rows, name, slow, answer.skipped)]
    kept = _significant(found)
    answer.cohorts = [_cohort(c, q, slow, values, same) for c, q, same in _merged(kept)][:MOST_LISTED]
    return answer


def _select(rows: pl.DataFrame, values: FloatArray, slo: Slo, metric: str, box: Box | None) -> tuple[BoolArray, str]:
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
    limit = slo.limits().get(metric)
    if limit is not None and int((values > limit).sum()) >= FEW_BREACHES:
        return values > limit, f"requests whose {metric.upper()} is over {say_ms(limit)}"
    if not len(values):
        return np.zeros(0, np.bool_), "no request"
    edge = float(np.percentile(values, SLOWEST))
    return values > edge, f"the slowest {say_ratio(1.0 - SLOWEST / 100.0)} by {metric.upper()} (over {say_ms(edge)})"


def _of_text(rows: pl.DataFrame, name: str, slow: BoolArray, skipped: dict[str, str]) -> list[_Candidate]:
    column = rows[name]
    known = len(column) - column.null_count()
    if known == 0:
        skipped[name] = "not recorded"
        return []
    distinct = column.n_unique() - (column.null_count() > 0)
    if distinct < 2 and known == len(column):
        skipped[name] = "one value in all requests"
        return []
    if distinct > MOST_DISTINCT * known and distinct > LEAST_HITS:
        skipped[name] = "almost every request has a value of its own"
        return []
    hits = column.filter(pl.Series(slow)).drop_nulls().value_counts(sort=True)
    least = max(LEAST_HITS, LEAST_COVERAGE * int(slow.sum()))
    found = []
    for value, n in hits.iter_rows():
        if n < least:
            break
        has = (column == value).fill_null(False).to_numpy()
        found.append(_Candidate(name, str(value), has, fisher_greater(int((has & slow).sum()), int(has.sum()), int(slow.sum()), len(slow))))
    return found


def _of_number(rows: pl.DataFrame, name: str, slow: BoolArray, skipped: dict[str, str]) -> list[_Candidate]:
    """Return the range above (or below) the point where the distributions of slow and other requests differ most."""
    column = rows[name].cast(pl.Float64)
    known = column.is_not_null().to_numpy()
    values = column.fill_null(0.0).to_numpy()
    if not known.any() or len(np.unique(values[known])) < 2:
        skipped[name] = "not recorded" if not known.any() else "one value in all requests"
        return []
    a, b = np.sort(values[known & slow]), np.sort(values[known & ~slow])
    if min(len(a), len(b)) < LEAST_SLOW:
        skipped[name] = "recorded in too few requests"
        return []
    points = np.unique(values[known])
    gap = np.searchsorted(b, points, side="right") / len(b) - np.searchsorted(a, points, side="right") / len(a)
    at = int(np.argmax(np.abs(gap)))
    above = gap[at] > 0.0
    has = known & ((values > points[at]) if above else (values <= points[at]))
    if int((has & slow).sum()) < max(LEAST_HITS, LEAST_COVERAGE * int(slow.sum())):
        return []
    said = f"{'>' if above else '<='} {points[at]:,.4g}"
    return [_Candidate(name, said, has, kolmogorov(abs(float(gap[at])), len(a), len(b)))]


def fisher_greater(hits: int, marked: int, slow: int, n: int) -> float:
    """Return P(at least `hits` of the `marked` of n requests fall among `slow` drawn without replacement): Fisher's exact test, one-sided."""
    most = min(marked, slow)
    if hits <= max(0, marked + slow - n):
        return 1.0
    k = np.arange(hits, most + 1, dtype=np.float64)
    first = _log_choose(marked, hits) + _log_choose(n - marked, slow - hits) - _log_choose(n, slow)
    steps = np.log((marked - k[:-1]) * (slow - k[:-1]) / ((k[:-1] + 1.0) * (n - marked - slow + k[:-1] + 1.0)))
    return float(min(1.0, np.exp(first + np.concatenate([[0.0], np.cumsum(steps)])).sum()))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def kolmogorov(distance: float, n: int, m: int) -> float:
    """Return the p-value of a two-sample Kolmogorov-Smirnov distance (asymptotic series, with Stephens' correction)."""
    root = math.sqrt(n * m / (n + m))
    x = (root + 0.12 + 0.11 / root) * distance
    if x < 0.2:
        return 1.0
    return float(min(1.0, max(0.0, 2.0 * sum((-1.0) ** (j - 1) * math.exp(-2.0 * j * j * x * x) for j in range(1, 101)))))


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


def _cohort(c: _Candidate, q: float, slow: BoolArray, values: FloatArray, same: list[str]) -> Cohort:
    n_slow, n_rest = int(slow.sum()), int((~slow).sum())
    hits, rest = int((c.has & slow).sum()), int((c.has & ~slow).sum())
    odds = math.log((hits + 0.5) * (n_rest - rest + 0.5) / ((n_slow - hits + 0.5) * (rest + 0.5)))
    left = np.sort(values[~c.has])
    reasons = {}
    if rest == 0:
        reasons["lift"] = "no other request has it"
    whole, without = (sorted_quantile(part, 0.99) if len(part) >= MIN_N[99.0] else None for part in (np.sort(values), left))
    for name, value, n in (("p99_ms", whole, len(values)), ("p99_without_ms", without, len(left))):
        if value is None:
            reasons[name] = f"P99 needs at least {MIN_N[99.0]} requests, there are {n}"
    return Cohort(
        attribute=c.attribute, value=printable(c.value, 120), slow=hits, rest=rest, slow_ratio=hits / n_slow, rest_ratio=rest / n_rest,
        lift=(hits / n_slow) / (rest / n_rest) if rest else None, log_odds=odds, p_value=c.p_value, q_value=q, p99_ms=whole, p99_without_ms=without,
        same_as=same, reasons=reasons)


def parse_box(start: str | None, end: str | None, min_ms: float | None, max_ms: float | None) -> Box:
    """Return the box of query parameters (times in RFC 3339).

    Raises:
        AnalysisError: a time that cannot be read.
    """
    from analysis.window import parse_time

    now = datetime.now(UTC)
    return Box(parse_time(start, now) if start else None, parse_time(end, now) if end else None, min_ms, max_ms)
