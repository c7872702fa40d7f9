"""What was a period like, of which no row is read? Percentiles, goodput, failures and stages of all its requests, as a report has them.

Everything is counted by the engine: queries and definitions are the product's own, and a test holds the numbers to those of a report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
import polars as pl

from overrun.analysis.front.batch.engines import Engine
from overrun.analysis.front.batch.order import Ordered, values_at
from overrun.analysis.numbers.coverage.sampling import by_marks
from overrun.analysis.numbers.latency.percentiles import Latency
from overrun.analysis.numbers.outcomes.exact_numbers import (
    MOST_TYPES,
    Exact,
    errors_of,
    exact_goodput,
    latency_of,
    places_of,
)
from overrun.analysis.numbers.outcomes.failures import Errors
from overrun.analysis.numbers.outcomes.goodput import Goodput
from overrun.analysis.numbers.stages import stage_sql
from overrun.analysis.numbers.stages.budget import (
    EVERYONE,
    GROUPS,
    STAGES,
    Budgets,
    MeasuredStages,
    StageRow,
    budgets_for,
    group_time,
    path_of,
    stage_times,
)
from overrun.analysis.numbers.stages.tail import TAIL_POINTS, TYPICAL, ranks_of
from overrun.analysis.numbers.statistics.request_sample import part
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import METRICS, Slo
from overrun.analysis.words.timestamps import from_us

# Requests that show where percentiles lie, at least; own default. Edges from them hold 1.4 % of all values for a median, and 34 columns of twice as many are 54 MB.
LEAST_DRAWN: Final = 100_000
QUANTILES: Final = (50.0, 90.0, 95.0, 99.0)
_MOST_MARKS: Final = 100
BELOW, AT_LOW, INSIDE, AT_HIGH = range(4)


class StagePath(msgspec.Struct, kw_only=True):
    """The stages on the way of one metric: `stages` as in a report, of `n` successful requests, `breaching` of which are over the limit.

    `gap_ms` is what the requests around the SLO percentile take longer than typical ones; it is the sum of the stages' `tail_ms - typical_ms`.
    """

    metric: str
    n: int
    breaching: int | None
    gap_ms: float | None
    stages: list[StageRow]
    mean_ms: dict[str, float]
    tail_ms: dict[str, float]


class Period(msgspec.Struct, kw_only=True):
    """All requests of a period. Counts are exact, percentiles are those of all values; times in milliseconds, ratios 0..1."""

    start: datetime
    end: datetime
    requests: int
    incomplete: int
    llm_calls: int
    spans: int
    latency: Latency
    goodput: Goodput
    errors: Errors
    paths: list[StagePath]


class NotForAll(AnalysisError):
    """Requests that do not stand for all, or none at all."""


def measure(
    engine: Engine, window: Window, slo: Slo, budgets: Mapping[str, float] | None = None
) -> Period:
    """Return the numbers of all requests of a window; `budgets` (configured, ms by stage or group) hold for all of them.

    Raises:
        NotForAll: there is no request, or the stored ones were chosen by a sampler so that they do not stand for all.
    """
    asked = filter_of(window)
    exact = _counted(engine, asked, slo)
    marks = engine.frame(query("period_extent"), {**asked, "most": _MOST_MARKS})
    weight = _weight(exact, marks)
    start = window.start or from_us(int(marks["start_us"].to_numpy().min()))
    end = window.end or from_us(int(marks["end_us"].to_numpy().max()))
    held = None if budgets is None else {EVERYONE: budgets}
    every = part(exact.requests, LEAST_DRAWN)
    rows = query("judged_stages")
    drawn = engine.frame(f"select * from ({rows}) t where trace_key % {every:d} = 0", asked)
    sample = drawn.with_columns(error=pl.lit(value=False), sample_weight=pl.lit(1.0))
    places = places_of(exact)
    columns = [
        Ordered(
            metric,
            f"{metric}_ms",
            exact.successful(metric),
            places[metric],
            sample[f"{metric}_ms"].drop_nulls().to_numpy(),
        )
        for metric in places
    ]
    paths = [
        _Path(engine, asked, slo, metric, budgets_for(slo, metric, held), drawn)
        for metric in ("ttft", "e2e")
        if exact.successful(metric)
    ]
    found = values_at(
        engine, rows, [*columns, *(column for path in paths for column in path.columns())], asked
    )
    times, _ = latency_of(sample, exact, places, found)
    kinds = engine.frame(query("failure_counts"), {**asked, "most": MOST_TYPES})
    return Period(
        start=start,
        end=end,
        requests=exact.requests,
        incomplete=exact.incomplete,
        llm_calls=exact.llm_calls,
        spans=exact.spans,
        latency=times,
        goodput=exact_goodput(exact, (end - start).total_seconds(), weight),
        errors=errors_of(exact, kinds.to_dicts()),
        paths=[path.measured(found) for path in paths],
    )


def _counted(engine: Engine, asked: Mapping[str, object], slo: Slo) -> Exact:
    limits = {metric: slo.limits().get(metric) for metric in METRICS}
    found = engine.frame(query("judged_counts"), {**asked, **limits, "spoiled": []})
    complete = found.filter("complete")
    if complete.is_empty():
        raise NotForAll(
            "the period has no complete request under these filters: choose another period, or leave filters out"
        )
    return Exact(complete, int(found["n"].sum()) - int(complete["n"].sum()), slo)


def _weight(exact: Exact, marks: pl.DataFrame) -> float:
    """For how many requests each stored one stands, by the marks of its sampler."""
    why = by_marks(marks, exact.requests)
    if why is None and not exact.even:
        why = "a sampler kept some of them with a higher probability than others"
    if why is not None:
        raise NotForAll(
            f"these requests do not stand for all: {why}. `overrun report` can weigh them by what engines counted"
        )
    return float(exact.counts["least_weight"][0])


class _Path:
    """The successful requests that carry a metric, by stage. `drawn` are some of them, with the columns of the query `judged_stages`."""

    def __init__(
        self,
        engine: Engine,
        asked: Mapping[str, object],
        slo: Slo,
        metric: str,
        budgets: Budgets,
        drawn: pl.DataFrame,
    ) -> None:
        self._engine, self._asked = engine, asked
        self._metric, self._budgets = metric, budgets
        self._limit_ms = slo.limits().get(metric)
        self._rows = stage_sql.path_rows(query("judged_stages"), path_of(metric))
        [sums] = engine.frame(stage_sql.sums(self._rows), asked).to_dicts()
        self._n = int(sums["n"])
        self._took = [stage for stage in STAGES if sums[f"{stage}_n"]]
        self._mean_ms = {stage: float(sums[stage]) / self._n for stage in self._took}
        near = slo.percentile - TAIL_POINTS, slo.percentile + TAIL_POINTS
        self._bands = {
            name: ranks_of(self._n, *points)
            for name, points in (("typical", TYPICAL), ("tail", near))
        }
        self._drawn = stage_times(
            drawn.filter(pl.col(f"{metric}_ms").is_not_null()), path_of(metric)
        )

    def columns(self) -> list[Ordered]:
        """What is asked about the order of the judged metric, of each stage and of groups of several stages."""
        edges = [float(rank) for first, last in self._bands.values() for rank in (first, last - 1)]
        places = [p / 100.0 * (self._n - 1) for p in QUANTILES]
        times = stage_sql.times_of(path_of(self._metric))
        judged = f"{self._metric}_ms"
        out = [self._ordered("", judged, edges, self._drawn.total_ms)]
        for name in self._distinct():
            time = stage_sql.group_of(name, times) if name in GROUPS else times[name]
            known = f"case when {judged} is not null then {time} end"
            out.append(self._ordered(name, known, places, group_time(self._drawn, name)))
        return out

    def _distinct(self) -> list[str]:
        """The stages that took time, and the groups that several of these belong to."""
        several = [group for group in GROUPS if len(self._members(group)) > 1]
        return list(dict.fromkeys([*self._took, *several]))

    def _members(self, group: str) -> list[str]:
        return [stage for stage in GROUPS.get(group, (group,)) if stage in self._took]

    def _ordered(self, name: str, sql: str, places: list[float], drawn: FloatArray) -> Ordered:
        return Ordered(f"{self._metric}.{name}", sql, self._n, places, drawn)

    def measured(self, found: Mapping[str, list[float]]) -> StagePath:
        """The rows of the stages, from the values at the places of `columns`."""
        edges = found[f"{self._metric}."]
        means = {
            name: self._band_means(name, ranks, (edges[2 * k], edges[2 * k + 1]))
            for k, (name, ranks) in enumerate(self._bands.items())
        }
        breaching, group_shares, shares = self._breach()
        rows = MeasuredStages(
            n=self._n,
            took=self._took,
            at=lambda name, p: self._value(found, name, p),
            budget_ms={**self._budgets.group_ms, **self._budgets.stage_ms}.get,
            budget=self._budgets.name,
            typical_ms=means["typical"],
            tail_ms=means["tail"],
            group_shares=group_shares,
            shares=shares,
        ).rows()
        return StagePath(
            metric=self._metric,
            n=self._n,
            breaching=breaching,
            gap_ms=math.fsum(means["tail"].values()) - math.fsum(means["typical"].values()),
            stages=rows,
            mean_ms=self._mean_ms,
            tail_ms=means["tail"],
        )

    def _value(self, found: Mapping[str, list[float]], name: str, p: float) -> float:
        members = self._members(name)
        if not members:  # a group with a budget and without time
            return 0.0
        name = members[0] if len(members) == 1 else name
        return found[f"{self._metric}.{name}"][QUANTILES.index(round(100.0 * p, 6))]

    def _band_means(
        self, name: str, ranks: tuple[int, int], edges: tuple[float, float]
    ) -> dict[str, float]:
        """The mean time per stage of the requests of [first, last) in the order of the judged metric. Of those with the same value as the first or the
        last one, each counts for the same part, where a report takes those that come first."""
        sums = self._engine.frame(
            stage_sql.band_sums(self._rows, *edges, name), self._asked
        ).to_dicts()
        parts = {int(row["part"]): row for row in sums}
        held = {part: int(row["n"]) for part, row in parts.items()}
        size, inside = ranks[1] - ranks[0], held.get(INSIDE, 0)
        lowest = held.get(BELOW, 0) + held[AT_LOW] - ranks[0]
        taken = {AT_LOW: min(size, lowest), INSIDE: inside}
        taken[AT_HIGH] = size - taken[AT_LOW] - inside
        return {
            stage: math.fsum(
                parts[part][stage] * (n / held[part]) for part, n in taken.items() if n
            )
            / size
            for stage in self._took
        }

    def _breach(self) -> tuple[int | None, dict[str, float], dict[str, float]]:
        """How many requests are over the limit, and what part each group and stage has in their overrun."""
        sql = (
            None
            if self._limit_ms is None
            else stage_sql.breach_sums(self._rows, self._budgets, self._limit_ms)
        )
        if sql is None:
            return None, {}, {}
        [row] = self._engine.frame(sql, self._asked).to_dicts()
        some = int(row["some_over"])
        if not some:
            return int(row["breaching"]), {}, {}
        groups = {
            group: float(row[f"share_over_{k}"]) / some
            for k, group in enumerate(stage_sql.groups_held(self._budgets))
        }
        held = {stage for group in groups for stage in GROUPS.get(group, (group,))}
        return (
            int(row["breaching"]),
            groups,
            {stage: float(row[stage]) / some for stage in self._took if stage in held},
        )
