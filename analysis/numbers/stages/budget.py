"""What may each stage take, and which one took more?

Budgets per group, stage rows, and the overrun share of breaching requests.
"""

import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import MIN_N, sorted_quantile
from overrun.analysis.words.arrays import BoolArray, FloatArray, IndexArray
from overrun.analysis.words.errors import BudgetError, nearest
from overrun.analysis.words.slo import Slo

# The settings' tables: milliseconds per group or stage, by the route or model that they are for; `EVERYONE` for all others.
Configured: TypeAlias = Mapping[str, Mapping[str, float]]

OTHER: Final = "other"
LATER: Final = "after_first_token"
GROUPS: Final = {
    "network+gateway": ("network", "gateway"),
    "retrieval": ("retrieval",),
    "prompt+guardrail": ("prompt", "guardrail"),
    "model": ("queue", "kv_transfer", "prefill", "first_token", "decode", "generation"),
    "tool+post": ("tool", "post"),
}
GROUP_OF: Final = {stage: group for group, stages in GROUPS.items() for stage in stages} | {
    OTHER: OTHER
}
STAGES: Final = tuple(GROUP_OF)

# Names of the budgets that are no route's and no model's: the settings' table for all others, and the split below.
EVERYONE: Final = "*"
PUBLISHED: Final = "published split"

# A 2.5 s P95 chat turn: 150 network + 300 retrieval + 150 prompt + 1,600 model + 300 tools (published budget, sums to
# 2,500).
E2E_BUDGET_MS: Final = {
    "network+gateway": 150.0,
    "retrieval": 300.0,
    "prompt+guardrail": 150.0,
    "model": 1600.0,
    "tool+post": 300.0,
}
# The same turn up to its first token, which chat wants within 1.5 s at P95: the other groups stand before it unchanged,
# so 600 ms of the model's 1,600 are left for queue and prefill and 1,000 for what follows.
TTFT_BUDGET_MS: Final = E2E_BUDGET_MS | {"model": 600.0}


@dataclass(frozen=True)
class StageTimes:
    """Exclusive time per stage on one path: arrays of shape (n,) in ms, the stages sum to `total_ms`.

    `path` is `ttft` (up to the first token) or `e2e`. Stages that took no time in any request are left out. `whose` (n,) says which budgets each request
    is held to (`Budgets.whose`); None where all are held to the same.
    """

    path: str
    total_ms: FloatArray
    ms: dict[str, FloatArray]
    whose: IndexArray | None = None

    def take(self, index: IndexArray | BoolArray) -> "StageTimes":
        """Return the same stages for some of the requests."""
        whose = None if self.whose is None else self.whose[index]
        return StageTimes(
            self.path,
            self.total_ms[index],
            {stage: times[index] for stage, times in self.ms.items()},
            whose,
        )


@dataclass(frozen=True)
class Budgets:
    """Limits of one path in milliseconds: per group, and per stage only where configured.

    `own` are the budgets of single routes and models, under their names; requests of no such route or model are held to the others.
    """

    metric: str
    group_ms: Mapping[str, float] = field(default_factory=dict)
    stage_ms: Mapping[str, float] = field(default_factory=dict)
    name: str = PUBLISHED
    own: tuple["Budgets", ...] = ()

    def whose(self, rows: pl.DataFrame) -> IndexArray | None:
        """Return which budgets each request (columns route, model) is held to: k > 0 is the k-th of `own`, its route's before its model's; 0 none of them."""
        if not self.own:
            return None
        held = np.zeros(rows.height, np.intp)
        for column in ("model", "route"):
            for k, one in enumerate(self.own, start=1):
                held[(rows[column] == one.name).fill_null(False).to_numpy()] = k
        return held

    def limit_ms(self, name: str, times: StageTimes) -> float | FloatArray | None:
        """Return what a group or stage may take: one number, one per request where these are held to different budgets (infinite: no limit), or None."""
        alone = [{**one.group_ms, **one.stage_ms}.get(name) for one in (self, *self.own)]
        if times.whose is None or all(ms == alone[0] for ms in alone):
            return alone[0]
        return np.array([np.inf if ms is None else ms for ms in alone])[times.whose]

    def held_ms(
        self, stage: str, whose: IndexArray | None, usual_ms: Mapping[str, float]
    ) -> float | FloatArray:
        """Return what a stage may take: its own budget, else what its group's leaves beside the other members' `usual_ms`; one number, or one per request.

        Where that is nothing, or no budget exists (TPOT or ITL judged, time without a span), it is the stage's own usual time.
        """
        each = [one._left_ms(stage, usual_ms) for one in (self, *self.own)]
        return each[0] if whose is None or len(set(each)) == 1 else np.array(each)[whose]

    def _left_ms(self, stage: str, usual_ms: Mapping[str, float]) -> float:
        known = {**self.group_ms, **self.stage_ms}
        group = GROUP_OF[stage]
        if stage in known:
            return known[stage]
        left_ms = known.get(group, 0.0) - sum(
            usual_ms.get(other, 0.0) for other in GROUPS.get(group, ()) if other != stage
        )
        return left_ms if left_ms > 0.0 else usual_ms.get(stage, 0.0)

    def mean_ms(self, name: str, times: StageTimes) -> float | None:
        """Return the mean of what these requests may spend on a group or stage; None where one of them has no limit there."""
        limit = self.limit_ms(name, times)
        if limit is None or isinstance(limit, float):
            return limit
        mean = float(limit.mean()) if len(limit) else math.inf
        return mean if math.isfinite(mean) else None

    def said(self, times: StageTimes) -> str:
        """Return which budget these requests are held to, for people."""
        if times.whose is None or not len(times.whose):
            return self.name
        names = [(self, *self.own)[k].name for k in np.unique(times.whose)]
        return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


class StageRow(msgspec.Struct, kw_only=True):
    """One stage, or one group (`stage` null), on the path of the judged metric. Milliseconds.

    `budget` names what `budget_ms` is of: the table of a route or model, `*`, or the published split; of requests that are held to several it is the mean
    over those of `tail_ms`. Absent stages count as 0. `typical_ms` is the mean around the median request (P40-P60 of the judged metric),
    `tail_ms` the mean within 2 points of the SLO percentile; each column sums to the request's own. `breach_share` is
    the mean share of the overrun among breaching requests; a stage without a budget of its own gets its group's share
    in proportion to its time. `over` compares `tail_ms` with the budget, because those means add up to the percentile
    and P95s do not; `amber`: over it while the requests are within the SLO, which is no breach. Rows of group `after_first_token` are time behind the judged
    path (TTFT judged) and have no budget.
    """

    stage: str | None
    group: str
    budget_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    typical_ms: float | None
    tail_ms: float | None
    breach_share: float | None
    over: bool
    amber: bool = False
    budget: str | None = None
    reasons: dict[str, str] = {}


def path_of(metric: str) -> str:
    """Return the path on which a metric's stages stand.

    TTFT has its own, all others are judged on the whole request.
    """
    return "ttft" if metric == "ttft" else "e2e"


def budgets_for(slo: Slo, metric: str, configured: Configured | None = None) -> Budgets:
    """Return the budgets of the judged metric's path: the published split scaled to the limit, or as configured.

    A TTFT limit scales the split up to the first token, an E2E limit the whole one; TPOT and ITL have no stage
    budgets. A request is held to the table of its route, else of its model, else of all others; what that table does not name is the split's.

    Raises:
        BudgetError: an unknown name (with the nearest known one) or a value that is no time above 0.
    """
    limit_ms = slo.limits().get(metric)
    split = {"ttft": TTFT_BUDGET_MS, "e2e": E2E_BUDGET_MS}.get(metric)
    groups: dict[str, float] = {}
    if limit_ms is not None and split is not None:
        scale = limit_ms / sum(split.values())
        groups = {group: share_ms * scale for group, share_ms in split.items()}
    own = tuple(
        _budgets(metric, groups, table, name)
        for name, table in (configured or {}).items()
        if name != EVERYONE
    )
    common = (configured or {}).get(EVERYONE)
    return replace(
        _budgets(metric, groups, common or {}, PUBLISHED if common is None else EVERYONE), own=own
    )


def _budgets(
    metric: str, split: Mapping[str, float], table: Mapping[str, float], of: str
) -> Budgets:
    groups, stages = dict(split), {}
    for name, value_ms in table.items():
        if not 0.0 < value_ms < float("inf"):
            raise BudgetError(f"budget {name} = {value_ms} must be milliseconds above 0")
        if name in GROUPS:
            groups[name] = float(value_ms)
        elif name in GROUP_OF and name != OTHER:
            stages[name] = float(value_ms)
        else:
            known = [*GROUPS, *(stage for stage in STAGES if stage != OTHER)]
            raise BudgetError(
                f"budget for {name!r}, which is neither a stage nor a group: {nearest(name, known)}"
            )
    return Budgets(metric, groups, stages, of)


def stage_times(rows: pl.DataFrame, path: str, budgets: Budgets | None = None) -> StageTimes:
    """Return the stage times of `rows` on `path` (`ttft` rows must carry a TTFT), null counted as 0; with which of `budgets` each is held to.

    What the stages do not cover (rows without a split) goes to `other`, so that they always sum to the total.
    """
    prefix = "ttft_" if path == "ttft" else ""
    total = rows[f"{path}_ms"].to_numpy()
    columns = {stage: rows[f"{prefix}{stage}_ms"] for stage in STAGES}
    given = {
        stage: (column.fill_null(0.0) if column.null_count() else column).to_numpy()
        for stage, column in columns.items()
    }
    ms = {stage: values for stage, values in given.items() if values.any()}
    rest = total - _sum(ms, len(total))
    # Sums of stored nanoseconds agree within rounding of the milliseconds; only a real gap is unattributed time.
    rest[np.abs(rest) < 1e-6] = 0.0
    if rest.any():
        ms[OTHER] = ms.get(OTHER, np.zeros(len(total))) + rest
    return StageTimes(path, total, ms, None if budgets is None else budgets.whose(rows))


def overrun_shares(times: StageTimes, budgets: Budgets) -> dict[str, float] | None:
    """Return what part each group has in the overrun of breaching requests, as a mean of shares that sums to 1.

    Per request o_g = max(0, x_g - B_g) and share_g = o_g / sum o, with its own budgets B. Unattributed time has no budget, so all of it is
    overrun. None when no request overran any budget.
    """
    found = _shares(times, budgets)
    return (
        None if found is None else {group: float(share.mean()) for group, share in found[1].items()}
    )


def stage_shares(times: StageTimes, budgets: Budgets) -> dict[str, float] | None:
    """Split each group's overrun share among its stages in proportion to their time.

    Sums to 1 like `overrun_shares`.
    """
    found = _shares(times, budgets)
    if found is None:
        return None
    some, over = found
    shares = {}
    for stage, value in times.ms.items():
        group = GROUP_OF[stage]
        whole = group_time(times, group)[some]
        part = np.divide(value[some], whole, out=np.zeros(len(whole)), where=whole > 0.0)
        shares[stage] = float((part * over[group]).mean()) if group in over else 0.0
    return shares


def _shares(times: StageTimes, budgets: Budgets) -> tuple[BoolArray, dict[str, FloatArray]] | None:
    """Which requests overran a budget, and each group's share of the overrun in every one of them; None where none did."""
    over = _overruns(times, budgets)
    total = _sum(over, len(times.total_ms))
    some = total > 0.0
    return (
        (some, {group: value[some] / total[some] for group, value in over.items()})
        if some.any()
        else None
    )


def _overruns(times: StageTimes, budgets: Budgets) -> dict[str, FloatArray]:
    """The time over its budget per group and request, that without a span under `other`; empty where no group has a budget."""
    over = {}
    for group in GROUPS:
        limit = budgets.limit_ms(group, times)
        if limit is not None:
            over[group] = np.maximum(group_time(times, group) - limit, 0.0)
    return {**over, OTHER: group_time(times, OTHER)} if over else {}


def group_time(times: StageTimes, group: str) -> FloatArray:
    """Return the time of a whole group per request, shape (n,); that of its only stage is not copied."""
    members = [stage for stage in GROUPS.get(group, (group,)) if stage in times.ms]
    return (
        times.ms[members[0]]
        if len(members) == 1
        else _sum({stage: times.ms[stage] for stage in members}, len(times.total_ms))
    )


@dataclass(frozen=True)
class MeasuredStages:
    """What rows of stages are made of: `n` requests, the stages that `took` time in any, and by name of a stage or group their quantiles (0..1), limits and shares.

    `typical_ms` and `tail_ms` are means per stage, empty where there are too few requests to attribute.
    """

    n: int
    took: Collection[str]
    at: Callable[[str, float], float]
    budget_ms: Callable[[str], float | None]
    budget: str
    typical_ms: Mapping[str, float]
    tail_ms: Mapping[str, float]
    group_shares: Mapping[str, float]
    shares: Mapping[str, float]

    def rows(self) -> list[StageRow]:
        """Return one row per group that took time or has a budget, each followed by its stages."""
        rows = []
        for group in (*GROUPS, OTHER):
            members = [stage for stage in GROUPS.get(group, (OTHER,)) if stage in self.took]
            budget_ms = self.budget_ms(group)
            if not members and budget_ms is None:
                continue
            means = [
                sum(part.get(stage, 0.0) for stage in members) if part else None
                for part in (self.typical_ms, self.tail_ms)
            ]
            rows.append(
                self._row(None, group, group, budget_ms, means, self.group_shares.get(group))
            )
            for stage in members:
                means = [part.get(stage) for part in (self.typical_ms, self.tail_ms)]
                limit = self.budget_ms(stage) if stage not in GROUPS else None
                rows.append(self._row(stage, group, stage, limit, means, self.shares.get(stage)))
        return rows

    def _row(
        self,
        stage: str | None,
        group: str,
        name: str,
        budget_ms: float | None,
        means: list[float | None],
        share: float | None,
    ) -> StageRow:
        return _row(
            stage, group, self.n, lambda p: self.at(name, p), budget_ms, self.budget, means, share
        )


def stage_rows(
    times: StageTimes,
    budgets: Budgets,
    slow: StageTimes,
    typical_ms: Mapping[str, float],
    tail_ms: Mapping[str, float],
    after: StageTimes | None = None,
    around: IndexArray | None = None,
) -> list[StageRow]:
    """Return one row per group that took time or has a budget, each followed by its stages; then what lies behind.

    `slow` are the stage times of the requests over the limit, `typical_ms`/`tail_ms` the means of `tail.attribute` per stage, `around` the requests of
    the latter. `after` holds the time behind the first token.
    """
    near = times if around is None else times.take(around)
    ordered: dict[tuple[str, ...], FloatArray] = {}

    def at(name: str, p: float) -> float:
        members = tuple(stage for stage in GROUPS.get(name, (name,)) if stage in times.ms)
        if members not in ordered:
            ordered[members] = np.sort(group_time(times, name))
        return sorted_quantile(ordered[members], p)

    rows = MeasuredStages(
        n=len(times.total_ms),
        took=times.ms,
        at=at,
        budget_ms=lambda name: budgets.mean_ms(name, near),
        budget=budgets.said(near),
        typical_ms=typical_ms,
        tail_ms=tail_ms,
        group_shares=overrun_shares(slow, budgets) or {},
        shares=stage_shares(slow, budgets) or {},
    ).rows()
    for stage, value in (after.ms if after is not None else {}).items():
        behind = np.sort(value)
        rows.append(
            _row(
                stage,
                LATER,
                len(behind),
                functools.partial(sorted_quantile, behind),
                None,
                "",
                [None, None],
                None,
            )
        )
    return rows


def _row(
    stage: str | None,
    group: str,
    n: int,
    at: Callable[[float], float],
    budget_ms: float | None,
    budget: str,
    means: list[float | None],
    share: float | None,
) -> StageRow:
    quantiles: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for percentile, name in (
        (50.0, "p50_ms"),
        (90.0, "p90_ms"),
        (95.0, "p95_ms"),
        (99.0, "p99_ms"),
    ):
        quantiles[name] = at(percentile / 100.0) if n >= MIN_N[percentile] else None
        if quantiles[name] is None:
            reasons[name] = (
                f"P{percentile:g} needs at least {MIN_N[percentile]} requests, there are {n}"
            )
    typical, tail = means
    if budget_ms is None:
        reasons["budget_ms"] = reasons["budget"] = _why_no_budget(stage, group)
    if typical is None or tail is None:
        behind = group == LATER
        reasons["typical_ms"] = reasons["tail_ms"] = (
            "after the judged metric ends" if behind else "too few requests to attribute"
        )
    if share is None:
        reasons["breach_share"] = "no request overran a budget on this path"
    over = budget_ms is not None and tail is not None and tail > budget_ms
    return StageRow(
        stage=stage,
        group=group,
        budget_ms=budget_ms,
        budget=None if budget_ms is None else budget,
        typical_ms=typical,
        tail_ms=tail,
        breach_share=share,
        over=over,
        reasons=reasons,
        **quantiles,
    )


def _why_no_budget(stage: str | None, group: str) -> str:
    if group == OTHER:
        return "unattributed time has no budget: add spans to it"
    if group == LATER:
        return "after the judged metric ends"
    return (
        "the judged metric has no stage budgets"
        if stage is None
        else "only its group has a budget; configure one for the stage if wanted"
    )


def _sum(parts: Mapping[str, FloatArray], n: int) -> FloatArray:
    total = np.zeros(n)
    for value in parts.values():
        total += value
    return total
