"""How long does an application hold its own calls back? In front of them (semaphores, back-off) or inside of them (a full pool, retries within the SDK).

From spans that are named after a wait, pauses after refused calls, pauses that end when another call ends, and the HTTP requests below a call. Where these have
no spans, from calls that reach their engine only as others end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import polars as pl

from overrun.analysis.evidence.call_inside import (
    TOLERANCE_S,
    counted_attempts,
    inside_calls,
    most_at_once,
)
from overrun.analysis.evidence.call_slots import Slots, asked_directly, held_ms
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.handed_over import handed_over, pauses
from overrun.analysis.evidence.refusals import refused
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import printable

# Stages in which a wait in front of a call is counted, and those of the time inside a call before the answer's own HTTP request.
IN_FRONT: Final = ("queue", "other")
INSIDE: Final = ("first_token", "generation", "network")
NO_PLACE: Final = "no free connection for their HTTP requests"
REFUSED: Final = "refusals with 429 and back-off within the SDK"
FAILED: Final = "failed attempts and back-off within the SDK"
TRIED: Final = "failed attempts and the pauses after them"
_WAITING: Final = r"(?i)(?:^|[^a-z])(?:semaphore|throttl\w*|rate.?limit\w*|back.?off|acquire|pool.?wait|connection.?pool|retry.?sleep|limiter|token.?bucket)(?:$|[^a-z])"


class Held(NamedTuple):
    """Time held back in `stage`, in ms: per slow request now, per reference request, and per request (shape (n,)); what holds it, how many calls run at
    a time there at most, and how many of them needed several attempts by their sender's count (None: not known)."""

    stage: str
    now_ms: float
    usual_ms: float
    each_ms: FloatArray
    what: str | None
    at_once: int | None = None
    several: int | None = None

    @property
    def more_ms(self) -> float:
        """What a slow request waits longer."""
        return self.now_ms - self.usual_ms


def in_front(case: Case) -> Held:
    """Return what passes in front of calls."""
    handed = handed_over(case)
    slow, usual, every = (
        _waits(tree, handed) for tree in (case.slow_tree, case.usual_tree, case.tree)
    )
    top = (
        slow.group_by("name")
        .agg(pl.col("held_ms").sum())
        .sort("held_ms", "name", descending=[True, False])
    )
    # An attempt that failed is a call as well: its own time is counted where calls' is.
    tried = top.height > 0 and top["name"][0] == TRIED
    return Held(
        case.worst(*IN_FRONT, *INSIDE) if tried else case.worst(*IN_FRONT),
        _mean(slow, case.slow_tree),
        _mean(usual, case.usual_tree),
        case.tree.per_request(every, "held_ms", case.rows["trace_key"], case.values),
        printable(top["name"][0]) if top.height else None,
    )


def inside(case: Case) -> Held:
    """Return what passes inside calls before the HTTP request that is answered, by its spans, else by calls that reach the engine as others end."""
    sides = [
        inside_calls(tree).with_columns(held_ms=pl.col("waited_ms") + pl.col("lost_ms"))
        for tree in (case.slow_tree, case.usual_tree, case.tree)
    ]
    several = _several(case) if sides[2].is_empty() else None
    slots = (
        case.call_slots
        if sides[2].is_empty() and several is None and asked_directly(case)
        else None
    )
    if slots is not None:
        return Held(
            case.worst("network"),
            held_ms(case.slow_calls, case.slow.height),
            held_ms(case.usual_calls, case.reference.height),
            case.spent("network"),
            _slots(slots),
            slots.at_once,
        )
    slow, usual, every = several or sides
    waited, lost = (
        _mean(slow, case.slow_tree, part) - _mean(usual, case.usual_tree, part)
        for part in ("waited_ms", "lost_ms")
    )
    most = most_at_once(case.tree)
    return Held(
        case.worst(*INSIDE),
        _mean(slow, case.slow_tree),
        _mean(usual, case.usual_tree),
        case.tree.per_request(every, "held_ms", case.rows["trace_key"], case.values),
        f"{NO_PLACE}: never more than {most} are under way at once"
        if waited >= lost
        else (REFUSED if int(every["refused"].sum()) else FAILED),
        most,
        None if several is None else every.height,
    )


def _several(case: Case) -> list[pl.DataFrame] | None:
    """What slow, reference and all calls lose in attempts that their sender counted, with the sum as `held_ms`; None where it counted none."""
    found = [
        counted_attempts(calls, case.calls).with_columns(held_ms=pl.col("lost_ms"))
        for calls in (case.slow_calls, case.usual_calls, case.calls)
    ]
    return None if found[2].is_empty() else found


def refused_calls(tree: Tree) -> tuple[int, int]:
    """Return how many model calls were refused at least once (themselves, or an attempt within them), and how many there are."""
    calls = tree.frame.filter(pl.col("role") == "llm").select(
        "trace_key", call_key="span_key", hit=refused()
    )
    attempts = inside_calls(tree).select("trace_key", "call_key", again=pl.col("refused") > 0)
    hits = calls.join(attempts, on=["trace_key", "call_key"], how="left").select(
        pl.col("hit") | pl.col("again").fill_null(value=False)
    )
    return int(hits.to_series().sum()), calls.height


def _slots(slots: Slots) -> str:
    with_them = (
        ""
        if slots.at_once is None
        else f": a call goes on as another one ends, with {slots.at_once} under way"
    )
    return f"{NO_PLACE}{with_them}"


def _waits(tree: Tree, handed: bool) -> pl.DataFrame:
    """One row per wait in front of a call: waiting spans outside engines, and pauses after refused calls; with `handed` all pauses, as calls begin when others
    end."""
    frame = tree.frame
    waits = frame.filter(
        pl.col("name").str.contains(_WAITING)
        & (pl.col("role") != "engine")
        & (pl.col("parent_role") != "engine").fill_null(True)
    ).select("trace_key", held_ms="duration_ms", name="name")
    if handed:
        return pl.concat([waits, pauses(tree).select("trace_key", "held_ms", "name")])
    calls = frame.filter(pl.col("role") == "llm").sort("trace_key", "start_s")
    # A wait with a span of its own leaves no pause.
    after = (
        calls.with_columns(
            held_ms=(pl.col("start_s") - pl.col("end_s").shift(1).over("trace_key")) * 1e3,
            after=refused().shift(1).over("trace_key"),
        )
        .filter(pl.col("after").fill_null(False) & (pl.col("held_ms") > 0.0))
        .select("trace_key", "held_ms", name=pl.lit("back-off after a refusal"))
    )
    return pl.concat([waits, after, _failed_attempts(calls)])


def _failed_attempts(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per failed call that another one follows in its request: from its beginning to that of the next. `calls` are in order.

    A call that was given up since it took too long is no quick failure: what made it slow is the cause, unless another model or endpoint was asked next.
    """
    failed = pl.col("error_type").is_not_null() | (pl.col("http_status") >= 400).fill_null(False)
    usual = calls.filter(~failed)["duration_ms"].median()
    following = pl.col("start_s").shift(-1).over("trace_key")
    quick = pl.col("duration_ms") < (usual if isinstance(usual, float) else 0.0)
    other = pl.col("name").shift(-1).over("trace_key") != pl.col("name")
    after = following >= pl.col("end_s") - TOLERANCE_S
    found = calls.with_columns(
        held_ms=(following - pl.col("start_s")) * 1e3,
        counts=(failed & ~refused() & after & (quick | other)).fill_null(value=False),
    )
    return found.filter("counts").select("trace_key", "held_ms", name=pl.lit(TRIED))


def _mean(rows: pl.DataFrame, tree: Tree, column: str = "held_ms") -> float:
    return float(rows[column].sum()) / max(tree.requests, 1)
