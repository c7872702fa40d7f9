"""sequential_calls: searches or tool calls of one step run one after the other, although they could run in parallel.

Detects
    Siblings of one operation under one parent (vector searches, tool calls) that do not overlap, with nothing in between and
    no declared dependency, in at least 80 % of the requests of that shape; with a baseline, only if they overlapped there.
    Without one, half of the slow requests will do where usual ones of the same time have them side by side.
    Siblings of several operations (three stores asked one question) too where others show that they overlapped.

Why it hurts
    In a row they take the sum of their times, in parallel only the longest.

Evidence
    How many siblings there are, their sum and their longest per slow request, the overlap before and now, and the share of
    requests in which they run in a row.

Fix
    Start them together and gather the results, each with a timeout. The gain replaces the sum by the longest: exact if they
    are independent, and the number of calls at the same time does not slow them down.

False alarms
    A call that needs the answer of the one before cannot run beside it: embedding, search and prompt of one turn depend on each
    other. Declare it with `overrun.depends_on`. Different operations in a row count only where they ran side by side before.

Source
    Gap below 5 ms in at least 80 % of the traces of a shape, gain above 10 % of the request: published rule; cases of 5.2 to
    2.8 s with two tools side by side, and 3 s to 0.9 s.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls_in_a_row import groups, rows_of
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.operations import MOST_TOLD
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "sequential_calls"
STAGES: Final = ("retrieval", "tool")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the calls in a row, None when there are none or they were in a row before."""
    stage = case.worst(*STAGES)
    if case.tail.share(stage) < 0.25:
        return None
    told = case.tree_before is not None and len(case.tree_before) > 0
    # Several stores asked for one question are siblings of several names: that they could run side by side, only a time in which they did can tell.
    rows = [
        one
        for mixed in (False, True)[: 1 + told]
        for one in rows_of(case.slow_tree, case.tree_before, stage, told, mixed)
    ]
    if not told:
        # Where nothing older tells, requests of the same time do in which they run side by side.
        rows += [
            one
            for mixed in (False, True)
            for one in rows_of(case.slow_tree, case.usual_tree, stage, True, mixed)
            if one.changed
        ]
    if not rows:
        return None
    held = next((one for one in rows if one.changed), None)
    if held is None:
        said = f", {say_ratio(rows[0].before)} before" if rows[0].before is not None else ""
        return RuledOut(
            what=RULE,
            figure=f"calls of {printable(rows[0].operation)} run in a row in {say_ratio(rows[0].now)} of the slow requests{said}",
        )
    operation, now, row_now, row_before = held.operation, held.groups, held.now, held.before
    gain = case.slow_tree.per_request(
        now, "gain_ms", case.slow["trace_key"], case.values[case.tail.tail_index]
    )
    claims = {stage: float(gain.mean())}
    if not enough(case, claims):
        return None
    every = groups(
        case.tree, stage, inside=told or held.before is not None, mixed=held.mixed
    ).filter((pl.col("operation") == operation) & pl.col("in_row"))
    every = every.with_columns(pl.col("gain_ms") * held.part)
    name = printable(operation.partition("/")[2])
    n = float(now["n"].to_numpy().mean())
    fix = bound_fix(
        case,
        "fan_out",
        f"Run the {n:.0f} calls of {name} at the same time",
        "Start them together (asyncio.gather, a thread pool), each with a timeout and a partial result; "
        f"{say_ms(float(now['sum_ms'].to_numpy().mean()))} in a row become {say_ms(float(now['longest_ms'].to_numpy().mean()))} in parallel.",
        "none of them needs the answer of another, and they are not slower when they run together",
        np.minimum(
            case.tree.per_request(every, "gain_ms", case.rows["trace_key"], case.values),
            case.spent(stage),
        ),
        whatif="fan_out",
        parameters={"stage": stage},
    )
    found = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            "Roll back the change that made them run in a row, or make only the first call on interactive routes.",
            "Call all of them again.",
            fix,
        ),
        headline=f"{n:.1f} calls of {name} run one after the other in {say_ratio(row_now)} of the slow requests"
        f"{f' ({say_ratio(row_before)} {case.when})' if row_before is not None else ''}; in parallel they would save {say_ms(float(gain.mean()))}",
        because=f"{n:.0f} calls of {name} run in a row instead of in parallel",
        evidence={
            "operation": printable(operation),
            "calls": n,
            "in_row_now": row_now,
            "in_row_before": row_before if told else None,
            "sum_ms": float(now["sum_ms"].to_numpy().mean()),
            "longest_ms": float(now["longest_ms"].to_numpy().mean()),
            "gain_ms": float(gain.mean()),
            "operations": [one.told() for one in case.operations.of_stage(stage)[:MOST_TOLD]],
        },
        service=printable(operation.partition("/")[0]),
    )
    return found
