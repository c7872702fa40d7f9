"""client_throttled: the application itself holds its calls back, by a semaphore, a pool or back-off after a refusal.

Detects
    Waiting inside the application in front of model calls: spans named after a semaphore, pool, rate limit or back-off, or
    pauses between refused calls (429) and the next attempt, or pauses whose end is another call's end (a place became free),
    that grew and explain the excess.

Why it hurts
    The provider's dashboard shows fast calls while users wait: the time passes before the call begins.

Evidence
    Waiting spans per slow and reference request with their names, pauses after refused calls, share of calls that were
    refused, Retry-After where it is recorded.

Fix
    Raise the concurrency limit if the far side has room, ask for a higher quota, spread load over deployments, respect
    Retry-After instead of long exponential back-off, shed early. The gain gives back the former waiting: exact.

False alarms
    A limit that protects an engine is doing its job: look at the engine's queue. Waiting inside the call is the provider's
    (`provider_queueing`).

Source
    Gap before the client span, attempts, Retry-After: published signature; a quarter of the excess: own default.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.handed_over import _pauses, handed_over
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ms, say_ratio

RULE: Final = "client_throttled"
STAGES: Final = ("queue", "other")
_WAITING: Final = r"(?i)(?:^|[^a-z])(?:semaphore|throttl\w*|rate.?limit\w*|back.?off|acquire|pool.?wait|connection.?pool|retry.?sleep|limiter|token.?bucket)(?:$|[^a-z])"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the application's own brake with its gain, None when nothing waits in front of calls."""
    held = handed_over(case)
    now, before = (
        _held_ms(case.slow_tree, case.slow, held),
        _held_ms(case.usual_tree, case.reference, held),
    )
    more = now - before
    if more <= 0.0:
        return None
    stage = case.worst(*STAGES)
    claims = {stage: more}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    refused = _refused(case.tree)
    name = _name(case.slow_tree, held)
    every = case.tree.per_request(_holds(case.tree, held), "held_ms", case.rows["trace_key"])
    fix = bound_fix(
        case,
        "client_limits",
        "Lift the application's own brake",
        f"Calls are held back{f' ({name})' if name else ' after refusals'}: raise the concurrency limit while the far side has room, ask for a higher "
        "quota or spread the load over deployments, wait for Retry-After rather than longer, and refuse early what would wait past its limit.",
        "calls wait inside the application as little as before",
        np.maximum(np.minimum(every - before, case.spent(stage)), 0.0),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            "Raise the limit of concurrent calls, or switch to the other deployment.",
            "Restore the limit.",
            fix,
        ),
        headline=f"slow requests wait {say_ms(now)} inside the application in front of their calls{f' ({name})' if name else ''}, {case.tail.reference} ones "
        f"{say_ms(before)}; {say_ratio(refused)} of the calls were refused",
        because=f"the application holds its own calls back for {say_ms(now)}{f' ({name})' if name else ''}",
        evidence={
            "held_ms_slow": now,
            "held_ms_reference": before,
            "refused_ratio": refused,
            "operation": name,
        },
        weight=0.96,
    )


def _holds(tree: Tree, handed: bool) -> pl.DataFrame:
    """Time that a request was held back, one row per wait: waiting spans outside engines, and pauses after refused calls.

    With `handed`, pauses in front of calls count too: their calls begin as others end.
    """
    frame = tree.frame
    waits = frame.filter(
        pl.col("name").str.contains(_WAITING)
        & (pl.col("role") != "engine")
        & (pl.col("parent_role") != "engine").fill_null(True)
    ).select("trace_key", held_ms="duration_ms", name="name")
    calls = (
        frame.filter(pl.col("role") == "llm")
        .sort("trace_key", "start_s")
        .with_columns(
            refused=(pl.col("http_status") == 429)
            | pl.col("error_type").fill_null("").str.contains("(?i)rate.?limit|429|quota")
        )
    )
    pauses = (
        calls.with_columns(
            held_ms=(pl.col("start_s") - pl.col("end_s").shift(1).over("trace_key")) * 1e3,
            after=pl.col("refused").shift(1).over("trace_key"),
        )
        .filter(pl.col("after").fill_null(False) & (pl.col("held_ms") > 0.0))
        .select("trace_key", "held_ms", name=pl.lit("back-off after a refusal"))
    )
    # A wait with a span of its own leaves no pause.
    return pl.concat(
        [waits, _pauses(tree).select("trace_key", "held_ms", "name") if handed else pauses]
    )


def _held_ms(tree: Tree, rows: pl.DataFrame, handed: bool) -> float:
    return (
        float(_holds(tree, handed)["held_ms"].sum()) / max(tree.requests, 1)
        if rows.height and len(tree)
        else 0.0
    )


def _name(tree: Tree, handed: bool) -> str | None:
    top = (
        _holds(tree, handed)
        .group_by("name")
        .agg(pl.col("held_ms").sum())
        .sort("held_ms", "name", descending=[True, False])
    )
    return printable(top["name"][0]) if top.height else None


def _refused(tree: Tree) -> float:
    calls = tree.frame.filter(pl.col("role") == "llm")
    if calls.is_empty():
        return 0.0
    hit = (calls["http_status"] == 429).fill_null(False) | calls["error_type"].fill_null(
        ""
    ).str.contains("(?i)rate.?limit|429")
    return float(hit.to_numpy().mean())
