"""Which requests were made? One row of `requests` per trace with a model call or a root that serves somebody, or per turn of a session with a model call.

Stage times are from the critical path.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import AROUND, TURN, Batch
from overrun.analysis.assembly.calls import TOKENS, Calls
from overrun.analysis.assembly.columns import (
    ABSENT,
    CLIENT,
    CONSUMER,
    SERVER,
    int_column,
    numpy_column,
)
from overrun.analysis.assembly.request_identity import request_identity
from overrun.analysis.assembly.walk import Walk
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.normalise.spans import TTFT_CUT, TTFT_NONE
from overrun.collector.normalise.stages import STAGES as STAGE_NAMES

_TOOLS_WITHIN = 4  # spans from a tool up to the one that stands for it


def request_rows(batch: Batch, walk: Walk, calls: Calls) -> pa.Table:
    """Rows of `requests`: traces with a model call, or whose root serves somebody."""
    paths = walk.paths
    traces = len(paths.root)
    root = paths.root
    count = np.bincount(calls.trace, minlength=traces)
    server = _serves(batch, walk)
    stage_ns, wait_ns = _stage_sums(batch, walk, None)
    answer = _answering_call(batch, walk, calls)
    columns = {
        **request_identity(batch, walk, calls, answer, server),
        **_first_tokens(batch, walk, calls, answer),
        **_token_sums(calls, traces),
        "start_ns": paths.start[root],
        "e2e_ns": stage_ns.sum(axis=1),
        "llm_calls": count.astype(np.int32),
        "tool_calls": _tool_calls(batch, walk, calls).astype(np.int32),
        "attempts": _attempts_of(calls, count),
        "truncated": _truncated(calls, traces),
        "spans": np.diff(walk.bounds).astype(np.int32),
        "inferred_ns": _inferred(batch, walk),
        "wait_user_ns": wait_ns,
        "clipped_spans": np.bincount(
            batch.trace[paths.clipped & ~paths.skipped], minlength=traces
        ).astype(np.int32),
        "skewed_spans": np.bincount(batch.trace[paths.shifted], minlength=traces).astype(np.int32),
        **{
            f"{name}_ns": stage_ns[:, code]
            for code, name in enumerate(STAGE_NAMES)
            if name != "wait_user"
        },
    }
    wanted = ((count > 0) | server) & (batch.turn[root] != AROUND)
    return pa.table(columns).filter(pa.array(wanted))


def _serves(batch: Batch, walk: Walk) -> BoolArray:
    """Per trace, whether its root serves a request, works on a message, or is a client of a server's span (of a browser, of a load generator).

    To wait for messages is no work on one."""
    root, kind = walk.paths.root, numpy_column(batch.spans, "kind")
    works = (kind[root] == CONSUMER) & (walk.paths.stage[root] != cp.QUEUE)
    below = walk.paths.parent[(kind == SERVER) & (walk.paths.parent >= 0)]
    answered = np.zeros(len(kind), dtype=np.bool_)
    answered[below] = True
    asks = (kind[root] == CLIENT) & answered[root]
    serves: BoolArray = (kind[root] == SERVER) | works | asks
    return serves


def _attempts_of(calls: Calls, count: IntArray) -> pa.Array:
    """Attempts of all calls of a request; null if one of them hides its own."""
    number = calls.attempts.number
    unknown = np.bincount(calls.trace[number < 0], minlength=len(count)) > 0
    total = np.bincount(calls.trace, weights=np.maximum(number, 0), minlength=len(count)).astype(
        np.int32
    )
    return pa.array(total, pa.int32(), mask=unknown | (count == 0))


def _stage_sums(batch: Batch, walk: Walk, until: IntArray | None) -> tuple[Any, IntArray]:
    """Time per trace and stage on the path, shape (traces, stages), up to a moment per trace if given; and the user's time, kept apart."""
    paths = walk.paths
    trace = batch.trace[paths.piece_row]
    stop = paths.piece_to if until is None else np.minimum(paths.piece_to, until[trace])
    length = np.maximum(stop - paths.piece_from, 0)
    traces = len(paths.root)
    # Sums of integers below 2**53: exact in float64.
    flat = np.bincount(
        trace * cp.STAGES + paths.piece_stage, weights=length, minlength=traces * cp.STAGES
    )
    sums = flat.astype(np.int64).reshape(traces, cp.STAGES)
    wait = sums[:, cp.WAIT_USER].copy()
    sums[:, cp.WAIT_USER] = 0
    return sums, wait


def _answering_call(batch: Batch, walk: Walk, calls: Calls) -> IntArray:
    """Per trace, the index (into calls) of the last call on the critical path: its first token is the answer's. -1 if there is none."""
    paths = walk.paths
    own = calls.on_path & (paths.stage[calls.row] != cp.GUARDRAIL)
    order = np.flatnonzero(own)
    order = order[np.lexsort((calls.start[order], calls.trace[order]))]
    out = np.full(len(paths.root), -1, dtype=np.int64)
    out[calls.trace[order]] = order  # the last one of a trace wins
    return out


def _first_tokens(batch: Batch, walk: Walk, calls: Calls, answer: IntArray) -> dict[str, Any]:
    """ttft_ns and its parts per stage, first_model_token_ns, first_answer_ns, usable_ns."""
    paths = walk.paths
    start, end = paths.start[paths.root], paths.end[paths.root]
    call = np.maximum(answer, 0)
    first, source = np.full(len(start), ABSENT), np.zeros(len(start), dtype=np.int64)
    if len(calls.row):
        streamed = (answer >= 0) & (calls.first[call] >= 0)
        first = np.where(streamed, calls.start[call] + calls.first[call] - start, ABSENT)
        shown = streamed | ((answer >= 0) & (calls.ttft_source[call] == TTFT_CUT))
        source = np.where(shown, calls.ttft_source[call], TTFT_NONE)
    # What the sender of a turn measured itself counts as it is: speech is heard after the first token.
    own = batch.ints("ttft_ns")[paths.root]
    at = paths.root
    turns = ((batch.turn[at] == TURN) | (batch.ints("role")[at] == cp.TURN)) & (own >= 0)
    first = np.where(turns, own, first)
    source = np.where(turns, batch.ints("ttft_source")[paths.root], source)
    has = first != ABSENT
    moment = np.where(has, np.clip(start + first, start, end), start)
    parts, waited = _stage_sums(batch, walk, moment)
    ttft = parts.sum(axis=1)
    first_model = np.full(len(start), np.iinfo(np.int64).max)
    known = np.flatnonzero(calls.first >= 0)
    np.minimum.at(first_model, calls.trace[known], calls.start[known] + calls.first[known])
    no_model = first_model == np.iinfo(np.int64).max
    first_model = np.clip(first_model, start, end) - start
    hidden = _hidden_reasoning(calls)[call] if len(calls.row) else np.zeros(len(answer), dtype=bool)
    usable = _usable(batch, walk)
    out: dict[str, Any] = {
        "ttft_ns": pa.array(ttft, mask=~has),
        "first_model_token_ns": pa.array(first_model, mask=no_model),
        "ttft_source": source.astype(np.uint8),
        "first_answer_ns": pa.array(ttft, mask=~has | hidden),
        "usable_ns": usable,
    }
    for code, name in enumerate(STAGE_NAMES):
        values = waited if name == "wait_user" else parts[:, code]
        out[f"ttft_{name}_ns"] = pa.array(values, mask=~has)
    return out


def _hidden_reasoning(calls: Calls) -> BoolArray:
    reasons = calls.tpot_reason
    return pc.fill_null(pc.equal(reasons, "hidden_reasoning"), False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _usable(batch: Batch, walk: Walk) -> pa.Array:
    """Time from the request's start to the earliest `overrun.usable_answer` event."""
    paths = walk.paths
    offset = batch.ints("usable_ns")
    marked = np.flatnonzero(offset >= 0)
    first = np.full(len(paths.root), np.iinfo(np.int64).max)
    np.minimum.at(first, batch.trace[marked], paths.start[marked] + offset[marked])
    none = first == np.iinfo(np.int64).max
    return pa.array(np.where(none, 0, first - paths.start[paths.root]), mask=none)


def _token_sums(calls: Calls, traces: int) -> dict[str, pa.Array]:
    """Tokens summed over the calls of a request, null where no call says; TPOT and ITL weighted by tokens; the worst gap."""
    out: dict[str, pa.Array] = {}
    for column in TOKENS:
        values = calls.either(column)
        known = values >= 0
        seen = np.bincount(calls.trace[known], minlength=traces) > 0
        total = np.bincount(calls.trace[known], weights=values[known], minlength=traces).astype(
            np.int64
        )
        out[column] = pa.array(total, mask=~seen)
    gaps = np.maximum(calls.output - 1, 0)
    for name, per_call in (("tpot_ns", calls.tpot), ("itl_ns", calls.itl)):
        known = ~np.isnan(per_call)
        weight = np.bincount(calls.trace[known], weights=gaps[known], minlength=traces)
        total = np.bincount(
            calls.trace[known], weights=per_call[known] * gaps[known], minlength=traces
        )
        out[name] = pa.array(total / np.maximum(weight, 1), mask=weight == 0)
    known = ~np.isnan(calls.itl_max)
    worst = np.full(traces, -1.0)
    np.maximum.at(worst, calls.trace[known], calls.itl_max[known])
    out["itl_max_ns"] = pa.array(worst, mask=worst < 0)
    return out


def _tool_calls(batch: Batch, walk: Walk, calls: Calls) -> IntArray:
    """Tool spans per trace, without those around others: the step of a graph that runs several, the client's side of a call over MCP. One that makes model
    calls of its own beside the tools in it is a call too: an agent that is another's tool."""
    paths = walk.paths
    tool = (batch.role == cp.PLAIN) & (int_column(batch.spans, "stage") == cp.TOOL)
    around = np.zeros(len(tool), dtype=bool)
    above = paths.parent[tool]
    for _ in range(_TOOLS_WITHIN):
        above = above[above >= 0]
        around[above] = True
        above = paths.parent[above]
    around &= tool
    if around.any():
        above = paths.parent[calls.row]
        while (on := (above >= 0) & ~tool[above]).any():
            above = np.where(on, paths.parent[above], above)
        around[above[above >= 0]] = False
    return np.bincount(batch.trace[tool & ~around], minlength=len(paths.root))


def _truncated(calls: Calls, traces: int) -> pa.Array:
    reason = calls.text("finish_reason")
    known = reason.is_valid().to_numpy(zero_copy_only=False)
    cut = pc.fill_null(
        pc.is_in(reason, value_set=pa.array(["length", "max_tokens", "MAX_TOKENS"])), False
    ).to_numpy(zero_copy_only=False)
    seen = np.bincount(calls.trace[known], minlength=traces) > 0
    return pa.array(np.bincount(calls.trace[cut], minlength=traces) > 0, mask=~seen)


def _inferred(batch: Batch, walk: Walk) -> IntArray:
    """Root time that rests on spans whose parent had to be inferred."""
    paths = walk.paths
    mine = paths.inferred[paths.piece_row]
    length = (paths.piece_to - paths.piece_from)[mine]
    return np.bincount(
        batch.trace[paths.piece_row[mine]], weights=length, minlength=len(paths.root)
    ).astype(np.int64)
