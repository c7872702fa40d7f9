"""Stage times and budgets as SQL, for engines that no row of millions leaves: the same definitions as `budget` and `tail`, from the same tables.

Every text is one that DuckDB and Spark both read: no macro, no list, doubles with an exponent (Spark takes 1.0 for a decimal).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from overrun.analysis.numbers.stages.budget import GROUPS, OTHER, STAGES, Budgets

JUDGED: Final = "judged_ms"


def times_of(path: str) -> dict[str, str]:
    """Return each stage's time on a path (`ttft` or `e2e`) of a row of sql/judged_stages.sql; they sum to the path's metric as in `budget.stage_times`."""
    prefix = "ttft_" if path == "ttft" else ""
    given = {stage: f"coalesce({prefix}{stage}_ms, 0e0)" for stage in STAGES}
    rest = f"({path}_ms - ({' + '.join(given.values())}))"
    given[OTHER] = f"{given[OTHER]} + case when abs({rest}) < 1e-6 then 0e0 else {rest} end"
    return given


def group_of(group: str, times: Mapping[str, str] | None = None) -> str:
    """Return the time of a whole group, as `budget.group_time`: of the columns of `path_rows`, or of the stages' `times`."""
    members = GROUPS.get(group, (group,))
    terms = members if times is None else [times[stage] for stage in members]
    return f"({' + '.join(('0e0', *terms))})"


def path_rows(requests: str, path: str) -> str:
    """Return a query with one row per request of `requests` (sql/judged_stages.sql) that has the metric of a path: its value as `judged_ms`, and a column
    per stage, in ms."""
    columns = ", ".join(f"{text} as {stage}" for stage, text in times_of(path).items())
    return (
        f"select {path}_ms as {JUDGED}, {columns} from ({requests}) t where {path}_ms is not null"
    )


def sums(rows: str) -> str:
    """Return a query for one row: `n` requests, the sum of each stage's time, and in how many requests each took any (`<stage>_n`)."""
    columns = ", ".join(
        f"sum({stage}) as {stage}, count(case when {stage} <> 0e0 then 1 end) as {stage}_n"
        for stage in STAGES
    )
    return f"select count(*) as n, {columns} from ({rows}) t"


def band_sums(rows: str, low: float, high: float, name: str) -> str:
    """Return a query for the sums of each stage's time below, at, between and above two values of the judged metric.

    One row per `part`: 0 below `low`, 1 equal to it, 2 between, 3 equal to `high`, 4 above.
    """
    value = _double(low), _double(high)
    part = (
        f"case when {JUDGED} < {value[0]} then 0 when {JUDGED} = {value[0]} then 1 when {JUDGED} < {value[1]} then 2 "
        f"when {JUDGED} = {value[1]} then 3 else 4 end"
    )
    columns = ", ".join(f"sum({stage}) as {stage}" for stage in STAGES)
    inner = f"select {part} as part, t.* from ({rows}) t"
    return f"select '{name}' as band, part, count(*) as n, {columns} from ({inner}) b group by part"


def breach_sums(rows: str, budgets: Budgets, limit_ms: float) -> str | None:
    """Return a query for the overrun shares of the requests over a limit, summed: one row of `breaching`, `some` that overran a budget, a column per group
    (`budget.overrun_shares`) and per stage (`budget.stage_shares`). None where no group has a budget."""
    limits = {group: budgets.group_ms[group] for group in GROUPS if group in budgets.group_ms}
    if not limits:
        return None
    over = {
        group: f"greatest({group_of(group)} - {_double(limit)}, 0e0)"
        for group, limit in limits.items()
    }
    over[OTHER] = OTHER
    names = {group: f"over_{k}" for k, group in enumerate(over)}
    held = ", ".join(f"{text} as {names[group]}" for group, text in over.items())
    inner = f"select t.*, {held} from ({rows}) t where {JUDGED} > {_double(limit_ms)}"
    total = f"({' + '.join(('0e0', *names.values()))})"
    shares = [
        f"sum(case when {total} > 0e0 then {name} / {total} else 0e0 end) as share_{name}"
        for name in names.values()
    ]
    for group, name in names.items():
        for stage in GROUPS.get(group, (group,)):
            whole = group_of(group)
            part = f"case when {whole} > 0e0 then {stage} / {whole} else 0e0 end"
            shares.append(
                f"sum(case when {total} > 0e0 then {part} * ({name} / {total}) else 0e0 end) as {stage}"
            )
    some = f"count(case when {total} > 0e0 then 1 end) as some_over"
    return f"select count(*) as breaching, {some}, {', '.join(shares)} from ({inner}) o"


def groups_held(budgets: Budgets) -> list[str]:
    """The groups in the order of the columns `share_over_<k>` of `breach_sums`."""
    return [*(group for group in GROUPS if group in budgets.group_ms), OTHER]


def _double(value: float) -> str:
    return f"cast('{value!r}' as double)"
