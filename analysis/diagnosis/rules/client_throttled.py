"""client_throttled: the application delays its own calls: a semaphore, a connection pool, or back-off after a refusal.

Detects
    Waiting inside the application before model calls that grew and explains the excess. It shows as spans named
    after a semaphore, pool, rate limit or back-off; as pauses between refused calls (429) and the next attempt;
    or as pauses that end when another call ends (a free slot). Inside a call, if its HTTP requests have spans:
    the time before the first of them (a full connection pool), failed attempts, and the pauses after them
    (back-off within the SDK). Without such spans: calls of which the SDK counted several attempts, and waits in front of the engine that end as other calls end,
    where calls are addressed to the engines themselves.

Why it hurts
    The provider's dashboard shows fast calls while users wait: the time passes before the call begins.

Evidence
    Waiting spans per slow and reference request with their names, pauses after refused calls, time inside calls
    before the HTTP request that was answered, the number of calls that were refused at least once, and the
    highest number of concurrent HTTP requests.

Fix
    Raise the concurrency limit if the endpoint has spare capacity, ask for a higher quota, spread load over
    deployments, respect Retry-After instead of long exponential back-off, refuse early. The gain gives back the
    former waiting: exact.

False alarms
    A limit that protects an engine does its job: look at the engine's queue. Time after the last HTTP request
    inside a call is the provider's (`provider_queueing`). So is the whole call if no HTTP request has a span.

Source
    Gap before the client span, attempts, Retry-After: published signature; a quarter of the excess: own default.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.call_inside import counted_attempts, inside_calls, most_at_once
from overrun.analysis.evidence.call_slots import Slots, asked_directly, held_ms
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.handed_over import _pauses, handed_over
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ms

RULE: Final = "client_throttled"
STAGES: Final = ("queue", "other")
# Where the time inside a call is counted that passes before the answer's own HTTP request.
INSIDE_CALL: Final = ("first_token", "generation", "network")
NO_PLACE: Final = "no free connection for their HTTP requests"
REFUSED: Final = "refusals with 429 and back-off within the SDK"
FAILED: Final = "failed attempts and back-off within the SDK"
_ATTEMPTS: Final = (REFUSED, FAILED)
_WAITING: Final = r"(?i)(?:^|[^a-z])(?:semaphore|throttl\w*|rate.?limit\w*|back.?off|acquire|pool.?wait|connection.?pool|retry.?sleep|limiter|token.?bucket)(?:$|[^a-z])"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the application's own brake with its gain, None when nothing waits in front of calls or within them."""
    held = handed_over(case)
    before_calls = _Side(
        case.worst(*STAGES),
        _held_ms(case.slow_tree, case.slow, held),
        _held_ms(case.usual_tree, case.reference, held),
    )
    own = [_inside(tree) for tree in (case.slow_tree, case.usual_tree, case.tree)]
    several = _several(case) if own[2].is_empty() else None
    own = several or own
    within = _Side(
        case.worst(*INSIDE_CALL),
        _per_request(own[0], case.slow_tree),
        _per_request(own[1], case.usual_tree),
    )
    slots = (
        case.call_slots if own[2].is_empty() and several is None and asked_directly(case) else None
    )
    if slots is not None:
        within = _Side(
            case.worst("network"),
            held_ms(case.slow_calls, case.slow.height),
            held_ms(case.usual_calls, case.reference.height),
        )
    sides = [side for side in (before_calls, within) if side.more_ms > 0.0]
    if not sides:
        return None
    claims = {side.stage: side.more_ms for side in sides}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    main = max(sides, key=lambda side: side.more_ms)
    refused, calls = _refused(case.tree, own[2])
    ratio = refused / max(calls, 1)
    if main is not within:
        name = _name(case.slow_tree, held)
    else:
        name = _inside_name(case, own) if slots is None else _slots_name(slots)
    told = f" ({name})" if name else ""
    now_ms, usual_ms = (
        sum(values) for values in zip(*((s.now_ms, s.usual_ms) for s in sides), strict=True)
    )
    each = {
        before_calls.stage: case.tree.per_request(
            _holds(case.tree, held), "held_ms", case.rows["trace_key"], case.values
        )
        - before_calls.usual_ms,
        within.stage: (
            case.tree.per_request(own[2], "held_ms", case.rows["trace_key"], case.values)
            if slots is None
            else case.spent(within.stage)
        )
        - within.usual_ms,
    }
    saved_ms = sum(
        np.maximum(np.minimum(each[side.stage], case.spent(side.stage)), 0.0) for side in sides
    )
    fix = bound_fix(
        case,
        "client_limits",
        "Have fewer attempts refused or failed"
        if name in _ATTEMPTS
        else "Raise the application's own limit",
        f"Calls are held back{told or ' after refusals'}: {_advice(name)}wait no longer than Retry-After, and refuse a call early if it would wait past its limit.",
        "calls wait inside the application no longer than before",
        np.asarray(saved_ms),
    )
    where = (
        "inside the application in front of their calls"
        if main is before_calls
        else ("inside their calls, before the request that is answered reaches the provider")
    )
    counted = (
        f"{refused:,} of {calls:,} calls were refused at least once"
        if several is None
        else f"{own[2].height:,} of {calls:,} calls needed several attempts"
    )
    answer = named(
        case,
        RULE,
        main.stage,
        claims,
        Action(
            "app",
            _at_once(name),
            "Send them as before." if name in _ATTEMPTS else "Restore the limit.",
            fix,
        ),
        headline=f"slow requests wait {say_ms(now_ms)} {where}{told}, {case.tail.reference} ones {say_ms(usual_ms)}; {counted}",
        because=(
            f"calls lose {say_ms(now_ms)} in {name}"
            if name in _ATTEMPTS
            else f"the application holds its own calls back for {say_ms(now_ms)}{told}"
        )
        + (f"; {counted}" if refused or several else ""),
        evidence={
            "held_ms_slow": now_ms,
            "held_ms_reference": usual_ms,
            "held_inside_calls_ms_slow": within.now_ms,
            "refused_ratio": ratio,
            "refused_calls": refused,
            "calls": calls,
            "most_at_once": _most(case, slots) if main is within else None,
            "operation": name,
        },
    )
    # A call that waits for a connection of its client has left no span: its wait is recorded as the way to the engine.
    return in_stage(answer, "queue") if main is within and main.stage == "network" else answer


@dataclass(frozen=True)
class _Side:
    """Time held back per slow and per reference request in ms, in front of calls or inside them, and the stage that has it."""

    stage: str
    now_ms: float
    usual_ms: float

    @property
    def more_ms(self) -> float:
        return self.now_ms - self.usual_ms


def _inside(tree: Tree) -> pl.DataFrame:
    """What each model call loses on its own side, see `inside_calls`, with the sum as `held_ms`."""
    return inside_calls(tree).with_columns(held_ms=pl.col("waited_ms") + pl.col("lost_ms"))


def _several(case: Case) -> list[pl.DataFrame] | None:
    """What slow, reference and all calls lose in attempts that their sender counted, with the sum as `held_ms`; None where it counted none."""
    found = [
        counted_attempts(calls, case.calls).with_columns(held_ms=pl.col("lost_ms"))
        for calls in (case.slow_calls, case.usual_calls, case.calls)
    ]
    return None if found[2].is_empty() else found


def _per_request(own: pl.DataFrame, tree: Tree) -> float:
    return float(own["held_ms"].sum()) / max(tree.requests, 1)


def _inside_name(case: Case, own: list[pl.DataFrame]) -> str:
    """What holds calls back on the inside: no free connection, or refusals and the pauses after them."""
    slow, usual, every = own
    waited, lost = (
        float(slow[part].sum()) / max(case.slow_tree.requests, 1)
        - float(usual[part].sum()) / max(case.usual_tree.requests, 1)
        for part in ("waited_ms", "lost_ms")
    )
    if waited >= lost:
        return f"{NO_PLACE}: never more than {most_at_once(case.tree)} are under way at once"
    return REFUSED if int(every["refused"].sum()) else FAILED


def _slots_name(slots: Slots) -> str:
    """What holds calls back that have no spans of their HTTP requests, but reach the engine as others end."""
    return (
        NO_PLACE
        if slots.at_once is None
        else f"{NO_PLACE}: a call goes on as another one ends, with {slots.at_once} under way"
    )


def _most(case: Case, slots: Slots | None) -> int | None:
    return most_at_once(case.tree) if slots is None else slots.at_once


def _advice(name: str | None) -> str:
    if name is not None and name.startswith(NO_PLACE):
        return (
            "raise the client's connection pool (httpx.Limits(max_connections), the SDK's http_client), share one client per process, and close "
            "responses that are not read to their end; "
        )
    if name in _ATTEMPTS:
        return "ask for a higher quota, spread the load over deployments, or send less at a time; "
    return "raise the concurrency limit while the endpoint has spare capacity, ask for a higher quota or spread the load over deployments,  "


def _at_once(name: str | None) -> str:
    if name is not None and name.startswith(NO_PLACE):
        return "Raise the limit of the client's connection pool, or start more instances."
    if name in _ATTEMPTS:
        return "Send part of the calls to another deployment, or fewer at a time."
    return "Raise the limit of concurrent calls, or switch to the other deployment."


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


def _refused(tree: Tree, own: pl.DataFrame) -> tuple[int, int]:
    """How many model calls were refused at least once (themselves, or an attempt within them), and how many there are."""
    calls = tree.frame.filter(pl.col("role") == "llm").select(
        "trace_key",
        call_key="span_key",
        hit=(pl.col("http_status") == 429).fill_null(value=False)
        | pl.col("error_type").fill_null("").str.contains("(?i)rate.?limit|429"),
    )
    hits = calls.join(own, on=["trace_key", "call_key"], how="left").select(
        pl.col("hit") | (pl.col("refused") > 0).fill_null(value=False)
    )
    return int(hits.to_series().sum()), calls.height
