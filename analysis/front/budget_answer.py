"""Who is responsible for the breaches, what should each stage be allowed, and why is the model slow? The answers of the budget page, from one window."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import msgspec
import polars as pl

from overrun.analysis.incident import impact
from overrun.analysis.incident.baseline import choose
from overrun.analysis.incident.breach import judged_metric
from overrun.analysis.numbers.coverage.sampling import assess, evened
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.outcomes.goodput import judge, limits_of, with_own
from overrun.analysis.numbers.requests.stored_names import refuse_unstored
from overrun.analysis.numbers.stages.budget import (
    Budgets,
    Configured,
    StageTimes,
    budgets_for,
    path_of,
    stage_times,
)
from overrun.analysis.numbers.stages.budget_replay import lost_ms
from overrun.analysis.numbers.stages.budget_rows import BudgetRow, budget_rows, held_to
from overrun.analysis.numbers.stages.model_time_split import ModelSplit, model_split
from overrun.analysis.numbers.stages.stage_responsibility import (
    Derived,
    Responsibility,
    derive,
    responsibility,
)
from overrun.analysis.numbers.stages.tail import attribute
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame, Window, load
from overrun.analysis.words import timestamps
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.slo import Slo


class HeldTo(BudgetRow, kw_only=True):
    """One budget, its requests, and which groups of stages are responsible for the breaches among them."""

    responsibility: Responsibility


class BudgetView(msgspec.Struct, kw_only=True):
    """Responsibility, derived budgets and the split of the model part, on the path of `metric` (null, with the reason, where nothing can be judged).

    Each request is held to the budget of its route, else of its model: `by_budget` has a row for each. `budget` names what `budget_ms` and `responsibility`
    are of; of several budgets it is the mean over the requests. `derived_from` says which healthy requests the derived budgets stand on.
    """

    metric: str | None
    path: str | None
    limit_ms: float | None
    percentile: float
    n: int
    budget_ms: dict[str, float]
    responsibility: Responsibility | None
    derived: Derived | None
    derived_from: str | None
    model: ModelSplit | None
    model_reference: str | None
    budget: str | None = None
    by_budget: list[HeldTo] = []
    reasons: dict[str, str] = {}


def budget_view(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, budgets: Configured | None = None
) -> BudgetView:
    """Answer for the metric that the report judges.

    Raises:
        BudgetError: an unknown stage or group in `budgets`. WindowError: no request, for a filter names what is stored nowhere.
    """
    whole = load(con, window, points=False)
    if whole.rows.is_empty():
        refuse_unstored(con, window)
    sampled = assess(con, whole, weigh=True)
    frame = evened(sampled.applied(whole))
    limited, slo = with_own(frame.rows, slo)
    frame = replace(frame, rows=limited)
    judged = judge(frame.rows, slo)
    metric = judged_metric(judged, frame.rows, slo)
    out = BudgetView(
        metric=metric,
        path=None,
        limit_ms=None,
        percentile=slo.percentile,
        n=0,
        budget_ms={},
        responsibility=None,
        derived=None,
        derived_from=None,
        model=None,
        model_reference=None,
    )
    if metric is None or sampled.refused:
        why = sampled.why if sampled.refused else "no request carries a limited metric"
        out.metric = None
        out.reasons = dict.fromkeys(
            (
                "metric",
                "path",
                "limit_ms",
                "budget",
                "responsibility",
                "derived",
                "derived_from",
                "model",
                "model_reference",
            ),
            why,
        )
        return out
    limit_ms, path = slo.limits()[metric], path_of(metric)
    ok = _with(frame.rows, metric)
    applied = budgets_for(slo, metric, budgets)
    times, limits = stage_times(ok, path, applied), limits_of(ok, slo, metric)
    limits = limit_ms if limits is None else limits
    out.path, out.limit_ms, out.n, out.budget = path, limit_ms, ok.height, applied.said(times)
    out.budget_ms = {
        group: ms for group in applied.group_ms if (ms := applied.mean_ms(group, times)) is not None
    }
    if metric in ("ttft", "e2e"):
        out.responsibility = responsibility(times, applied, limits, slo.percentile)
        out.by_budget = _by_budget(times, applied, limits, slo.percentile)
        lost: dict[str, float] = {}
        if frame.start and frame.end:
            out.responsibility.recomputed_n, lost = lost_ms(
                con, ok, times, applied, slo.percentile, frame.start, frame.end
            )
        for row in out.responsibility.groups:
            row.recomputed_ms = (
                max(0.0, row.alone_ms - lost[row.group]) if row.group in lost else None
            )
            row.reasons = (
                {}
                if row.group in lost
                else {"recomputed_ms": "no replayed request spends time in it"}
            )
        healthy, out.derived_from = _healthy(con, frame, slo, metric)
        if healthy is None:
            out.reasons |= dict.fromkeys(
                ("derived", "derived_from"),
                "no healthy window for deriving budgets: name one with baseline=FROM..TO",
            )
        else:
            out.derived = derive(stage_times(healthy, path), slo.percentile, limit_ms)
    else:
        out.reasons |= dict.fromkeys(
            ("responsibility", "derived", "derived_from"), f"{metric.upper()} has no stage budgets"
        )
    tail = attribute(ok[f"{metric}_ms"].to_numpy(), times, slo.percentile, limit_ms=limits)
    if tail is None:
        out.reasons |= dict.fromkeys(("model", "model_reference"), "no successful request")
    else:
        index = tail.reference_index
        out.model, out.model_reference = (
            model_split(ok, times, tail.tail_index, ok[index], times.take(index)),
            tail.reference,
        )
    return out


def _by_budget(
    times: StageTimes, budgets: Budgets, limits: float | FloatArray, percentile: float
) -> list[HeldTo]:
    responsible = {
        one.name: responsibility(
            replace(times.take(mine), whose=None),
            one,
            limits if isinstance(limits, float) else limits[mine],
            percentile,
        )
        for one, mine in held_to(times, budgets)
    }
    return [
        HeldTo(**msgspec.structs.asdict(row), responsibility=responsible[row.budget])
        for row in budget_rows(times, budgets, times.total_ms > limits, percentile)
    ]


def _with(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """The successful requests that carry the metric, oldest first: in the store's own order the last digit of a sum would depend on when each was assembled."""
    return rows.filter(~pl.col("error") & pl.col(f"{metric}_ms").is_not_null()).sort(
        "start_us", "trace_key"
    )


def _healthy(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo, metric: str
) -> tuple[pl.DataFrame | None, str | None]:
    """Return requests of a healthy time and which: the baseline, else what came before the onset, else the window itself if it meets the SLO."""
    judged = judge(frame.rows, slo)
    good, bad = int(judged.good.sum()), int(judged.bad.sum())
    if (
        good + bad >= min_n(slo.percentile)
        and wilson(good, good + bad, Z_ONE_SIDED)[1] >= slo.goodput_target
    ):
        return _with(frame.rows, metric), "this window, which meets the SLO"
    chosen = choose(con, replace(frame, window=replace(frame.window)), slo)
    if chosen is not None:
        rows = _with(chosen.frame.rows, metric)
        return (rows, chosen.choice) if rows.height >= min_n(slo.percentile) else (None, None)
    since = impact.onset(frame, judged.error | judged.misses[metric], 1.0 - slo.goodput_target)
    if since is not None:
        rows = _with(frame.rows.filter(pl.col("start_us") < timestamps.to_us(since)), metric)
        if rows.height >= min_n(slo.percentile):
            return rows, "the time before the onset in this window"
    return None, None
