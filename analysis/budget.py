"""What may each stage take, and which one took more?

Budgets per group, stage rows, and the overrun share of breaching requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import BudgetError, nearest
from analysis.latency import MIN_N, sorted_quantile
from analysis.slo import Slo

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

OTHER: Final = "other"
LATER: Final = "after_first_token"
GROUPS: Final = {
    "network+gateway": ("network", "gateway"),
    "retrieval": ("retrieval",),
    "prompt+guardrail": ("prompt", "guardrail"),
    "model": ("queue", "kv_transfer", "prefill", "first_token", "decode", "generation"),
    "tool+post": ("tool", "post"),
}
GROUP_OF: Final = {stage: group for group, stages in GROUPS.items() for stage in stages} | {OTHER: OTHER}
STAGES: Final = tuple(GROUP_OF)

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
class Budgets:
    """Limits of one path in milliseconds: per group, and per stage only where configured."""

    metric: str
    group_ms: Mapping[str, float] = field(default_factory=dict)
    stage_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StageTimes:
    """Exclusive time per stage on one path: arrays of shape (n,) in ms, the stages sum to `total_ms`.

    `path` is `ttft` (up to the first token) or `e2e`. Stages that took no time in any request are left out.
    """

    path: str
    total_ms: FloatArray
    ms: dict[str, FloatArray]

    def take(self, index: npt.NDArray[np.intp] | BoolArray) -> "StageTimes":
        """Return the same stages for some of the requests."""
        return StageTimes(self.path, self.total_ms[index], {stage: times[index] for stage, times in self.ms.items()})


class StageRow(msgspec.Struct, kw_only=True):
    """One stage, or one group (`stage` null), on the path of the judged metric. Milliseconds.

    Absent stages count as 0. `typical_ms` is the mean around the median request (P40-P60 of the judged metric),
    `tail_ms` the mean within 2 points of the SLO percentile; each column sums to the request's own. `breach_share` is
    the mean share of the overrun among breaching requests; a stage without a budget of its own gets its group's share
    in proportion to its time. `over` compares `tail_ms` with the budget, because those means add up to the percentile
    and P95s do not. Rows of group `after_first_token` are time behind the judged path (TTFT judged) and have no
    budget.
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
    reasons: dict[str, str] = {}


def path_of(metric: str) -> str:
    """Return the path on which a metric's stages stand.

    TTFT has its own, all others are judged on the whole request.
    """
    return "ttft" if metric == "ttft" else "e2e"


def budgets_for(slo: Slo, metric: str, configured: Mapping[str, float] | None = None) -> Budgets:
    """Return the budgets of the judged metric's path: the published split scaled to the limit, or as configured.

    A TTFT limit scales the split up to the first token, an E2E limit the whole one; TPOT and ITL have no stage
    budgets. `configured` maps group or stage names to milliseconds.

    Raises:
        BudgetError: an unknown name (with the nearest known one) or a value that is no time above 0.
    """
    limit_ms = slo.limits().get(metric)
    split = {"ttft": TTFT_BUDGET_MS, "e2e": E2E_BUDGET_MS}.get(metric)
    groups: dict[str, float] = {}
    if limit_ms is not None and split is not None:
        scale = limit_ms / sum(split.values())
        groups = {group: share_ms * scale for group, share_ms in split.items()}
    stages: dict[str, float] = {}
    for name, value_ms in (configured or {}).items():
        if not 0.0 < value_ms < float("inf"):
            raise BudgetError(f"budget {name} = {value_ms} must be milliseconds above 0")
        if name in GROUPS:
            groups[name] = float(value_ms)
        elif name in GROUP_OF and name != OTHER:
            stages[name] = float(value_ms)
        else:
            known = [*GROUPS, *(stage for stage in STAGES if stage != OTHER)]
            raise BudgetError(f"budget for {name!r}, which is no stage and no group: {nearest(name, known)}")
    return Budgets(metric, groups, stages)


def stage_times(rows: pl.DataFrame, path: str) -> StageTimes:
    """Return the stage times of `rows` on `path` (`ttft` rows must carry a TTFT), null counted as 0.

    What the stages do not cover (rows without a split) goes to `other`, so that they always sum to the total.
    """
    prefix = "ttft_" if path == "ttft" else ""
    total = rows[f"{path}_ms"].to_numpy()
    columns = {stage: rows[f"{prefix}{stage}_ms"] for stage in STAGES}
    given = {stage: (column.fill_null(0.0) if column.null_count() else column).to_numpy() for stage, column in columns.items()}
    ms = {stage: values for stage, values in given.items() if values.any()}
    rest = total - _sum(ms, len(total))
    # Sums of stored nanoseconds agree within rounding of the milliseconds; only a real gap is unattributed time.
    rest[np.abs(rest) < 1e-6] = 0.0
    if rest.any():
        ms[OTHER] = ms.get(OTHER, np.zeros(len(total))) + rest
    return StageTimes(path, total, ms)


def overrun_shares(times: StageTimes, budgets: Budgets) -> dict[str, float] | None:
    """Return what part each group has in the overrun of breaching requests, as a mean of shares that sums to 1.

    Per request o_g = max(0, x_g - B_g) and share_g = o_g / sum o. Unattributed time has no budget, so all of it is
    overrun. None when no request overran any budget.
    """
    if not budgets.group_ms:
        return None
    over = {}
    for group, budget_ms in (*budgets.group_ms.items(), (OTHER, 0.0)):
        over[group] = np.maximum(group_time(times, group) - budget_ms, 0.0)
    total = _sum(over, len(times.total_ms))
    some = total > 0.0
    if not some.any():
        return None
    return {group: float((value[some] / total[some]).mean()) for group, value in over.items()}


def stage_shares(times: StageTimes, budgets: Budgets) -> dict[str, float] | None:
    """Split each group's overrun share among its stages in proportion to their time.

    Sums to 1 like `overrun_shares`.
    """
    groups = overrun_shares(times, budgets)
    if groups is None:
        return None
    over = {
        group: np.maximum(group_time(times, group) - ms, 0.0) for group, ms in (*budgets.group_ms.items(), (OTHER, 0.0))
    }
    total = _sum(over, len(times.total_ms))
    some = total > 0.0
    shares = {}
    for stage, value in times.ms.items():
        group = GROUP_OF[stage]
        whole = group_time(times, group)[some]
        part = np.divide(value[some], whole, out=np.zeros(len(whole)), where=whole > 0.0)
        shares[stage] = float((part * over[group][some] / total[some]).mean()) if group in over else 0.0
    return shares


def group_time(times: StageTimes, group: str) -> FloatArray:
    """Return the time of a whole group per request, shape (n,); that of its only stage is not copied."""
    members = [stage for stage in GROUPS.get(group, (group,)) if stage in times.ms]
    return times.ms[members[0]] if len(members) == 1 else _sum({stage: times.ms[stage] for stage in members}, len(times.total_ms))


def stage_rows(
    times: StageTimes,
    budgets: Budgets,
    breaching: BoolArray,
    typical_ms: Mapping[str, float],
    tail_ms: Mapping[str, float],
    after: StageTimes | None = None,
) -> list[StageRow]:
    """Return one row per group that took time or has a budget, each followed by its stages; then what lies behind.

    `typical_ms`/`tail_ms` are the means of `tail.attribute` per stage. `after` holds the time behind the first token.
    """
    slow = times.take(breaching)
    group_shares, shares = overrun_shares(slow, budgets) or {}, stage_shares(slow, budgets) or {}
    rows = []
    for group in (*GROUPS, OTHER):
        members = [stage for stage in GROUPS.get(group, (OTHER,)) if stage in times.ms]
        if not members and group not in budgets.group_ms:
            continue
        means = [sum(part.get(stage, 0.0) for stage in members) if part else None for part in (typical_ms, tail_ms)]
        ordered = np.sort(group_time(times, group))
        rows.append(_row(None, group, ordered, budgets.group_ms.get(group), means, group_shares.get(group)))
        for stage in members:
            means = [part.get(stage) for part in (typical_ms, tail_ms)]
            own = ordered if len(members) == 1 else np.sort(times.ms[stage])
            rows.append(_row(stage, group, own, budgets.stage_ms.get(stage), means, shares.get(stage)))
    for stage, value in (after.ms if after is not None else {}).items():
        rows.append(_row(stage, LATER, np.sort(value), None, [None, None], None))
    return rows


def _row(
    stage: str | None,
    group: str,
    ordered: FloatArray,
    budget_ms: float | None,
    means: list[float | None],
    share: float | None,
) -> StageRow:
    n = len(ordered)
    quantiles: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for percentile, name in ((50.0, "p50_ms"), (90.0, "p90_ms"), (95.0, "p95_ms"), (99.0, "p99_ms")):
        quantiles[name] = sorted_quantile(ordered, percentile / 100.0) if n >= MIN_N[percentile] else None
        if quantiles[name] is None:
            reasons[name] = f"P{percentile:g} needs at least {MIN_N[percentile]} requests, there are {n}"
    typical, tail = means
    if budget_ms is None:
        reasons["budget_ms"] = _why_no_budget(stage, group)
    if typical is None or tail is None:
        behind = group == LATER
        reasons["typical_ms"] = reasons["tail_ms"] = (
            "behind the path of the judged metric" if behind else "too few requests to attribute"
        )
    if share is None:
        reasons["breach_share"] = "no request overran a budget on this path"
    over = budget_ms is not None and tail is not None and tail > budget_ms
    return StageRow(
        stage=stage,
        group=group,
        budget_ms=budget_ms,
        typical_ms=typical,
        tail_ms=tail,
        breach_share=share,
        over=over,
        reasons=reasons,
        **quantiles,
    )


def _why_no_budget(stage: str | None, group: str) -> str:
    if group == OTHER:
        return "unattributed time has no budget: instrument it"
    if group == LATER:
        return "behind the path of the judged metric"
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
