"""Which parts of a session does a person wait for? Turns, messages and jobs that stand in one trace: each is a request, and the session is none."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import AROUND, TURN, Batch
from overrun.analysis.assembly.columns import ABSENT, grouped, numpy_column
from overrun.analysis.assembly.nesting import calls_inside, tops, under
from overrun.analysis.assembly.root_texts import ROOT_TEXT, first_known
from overrun.analysis.words.arrays import IntArray
from overrun.collector.normalise.word_lists import words
from overrun.collector.process.compiled import read_only

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def part_turns(batch: Batch) -> None:
    """Make requests of the turns of sessions, each with the session's texts and with what was waited for before it.

    A vocabulary names turns, or a session has them by its shape (`_repeated`). What the service did after a person had stopped speaking stands in the span of
    the person's own turn, and belongs to the turn that follows.
    """
    named = (batch.ints("role") == cp.TURN) & (numpy_column(batch.spans, "parent_id") != 0)
    turns = np.union1d(np.flatnonzero(named), _repeated(batch))
    if not len(turns):
        return
    is_turn = np.zeros(len(batch.role), dtype=np.bool_)
    is_turn[turns] = True
    turns = turns[~under(batch.parent, turns, is_turn)]
    _give_texts(batch, turns)
    _begin_with_waits(batch, turns)
    batch.parent[turns] = ABSENT
    top = tops(batch.parent)
    place = np.full(len(top), ABSENT, dtype=np.int64)
    place[turns] = np.arange(len(turns))
    mine = place[top]
    held = np.isin(batch.trace, batch.trace[turns])
    batch.turn = np.where(mine >= 0, TURN, np.where(held, AROUND, 0))
    batch.trace = np.where(mine >= 0, batch.trace.max() + 1 + mine, batch.trace)
    _begin_with_silence(batch, turns, top)
    batch.sort_by_trace()


def _repeated(batch: Batch) -> IntArray:
    """The turns of sessions that no vocabulary names: children of the same name with model calls in them, one after the other, under a root that waits longer
    between them than it works. Its name says that it is a session, or it has messages of a websocket: a run with steps between which nothing is seen is none."""
    names = batch.spans.column("name").combine_chunks()
    known = words("sessions")
    roots = np.flatnonzero((batch.parent < 0) & (batch.role < cp.LLM))
    folded = np.flatnonzero((batch.role == cp.FOLDED) & (batch.parent >= 0))
    of_socket = pc.match_substring(names.take(pa.array(folded)), "websocket ")
    sessions = {
        row
        for row, name in zip(roots.tolist(), names.take(pa.array(roots)).to_pylist(), strict=True)
        if not known.isdisjoint(map(str.lower, _WORDS.findall(name)))
    } | set(batch.parent[folded[of_socket.to_numpy(zero_copy_only=False)]].tolist())
    works = batch.by_start(np.flatnonzero(np.isin(batch.parent, list(sessions))))
    stage, calls = batch.ints("stage"), np.flatnonzero(batch.role == cp.LLM)
    works = works[(batch.role[works] != cp.FOLDED) & (stage[works] != cp.WAIT_USER)]
    inside = calls_inside(read_only(batch.parent), read_only(calls))
    alike = works[(inside[works] > 0) & (batch.role[works] < cp.LLM) & (stage[works] != cp.TOOL)]
    beside = grouped(works, batch.parent[works].tolist())
    kinds = pc.replace_substring_regex(names.take(pa.array(alike)), r"\d+", "").to_pylist()
    found: list[int] = []
    for (root, _), rows in grouped(
        alike, zip(batch.parent[alike].tolist(), kinds, strict=True)
    ).items():
        if len(rows) > 1 and _waits_between(batch, rows, beside[root]):
            found += rows
    return np.array(found, dtype=np.int64)


def _waits_between(batch: Batch, rows: list[int], works: list[int]) -> bool:
    """Whether these spans follow one another, and nothing is seen between them for longer than they last together."""
    begin, until = batch.end[rows][:-1], batch.start[rows][1:]
    seen = sum(
        int(
            np.clip(
                np.minimum(batch.end[row], until) - np.maximum(batch.start[row], begin), 0, None
            ).sum()
        )
        for row in set(works) - set(rows)
    )
    idle, busy = (until - begin).sum() - seen, (batch.end[rows] - batch.start[rows]).sum()
    return bool((until >= begin).all() and idle > busy)


def _give_texts(batch: Batch, turns: IntArray) -> None:
    """Give turns the session, tenant, user and workload of their trace; a session without a name goes by its trace's id."""
    ids = zip(
        *(numpy_column(batch.spans, name)[turns].tolist() for name in ("trace_hi", "trace_lo")),
        strict=True,
    )
    traces = [f"{hi:016x}{lo:016x}" for hi, lo in ids]
    for column in ROOT_TEXT:
        texts = batch.spans.column(column).combine_chunks()
        first = first_known(texts, batch.trace)[batch.trace[turns]]
        own, of_trace = (texts.take(pa.array(at, mask=at < 0)).to_pylist() for at in (turns, first))
        given = [one or other for one, other in zip(own, of_trace, strict=True)]
        if column == "session":
            given = [one or trace for one, trace in zip(given, traces, strict=True)]
        batch.spans = duplicate_spans.replaced(
            batch.spans, column, dict(zip(turns.tolist(), given, strict=True))
        )


def _begin_with_waits(batch: Batch, turns: IntArray) -> None:
    """Put what the service did in a span of a person's time into the turn that followed, which begins with it."""
    stage = batch.ints("stage")
    above = np.maximum(batch.parent, 0)
    waits = np.flatnonzero(
        (batch.parent >= 0)
        & (stage[above] == cp.WAIT_USER)
        & (batch.role == cp.PLAIN)
        & ~np.isin(stage, (cp.WAIT_USER, cp.OTHER))
    )
    batch.start = batch.start.copy()
    turns = batch.by_start(turns)
    of_session = grouped(turns, batch.parent[turns].tolist())
    began = {session: batch.start[rows].copy() for session, rows in of_session.items()}
    for row in waits.tolist():
        session = int(batch.parent[batch.parent[row]])
        rows = of_session.get(session, []) if session >= 0 else []
        at = int(np.searchsorted(began[session], batch.start[row])) if rows else 0
        if at < len(rows):
            batch.parent[row] = rows[at]
            batch.start[rows[at]] = min(batch.start[rows[at]], batch.start[row])


def _begin_with_silence(batch: Batch, turns: IntArray, top: IntArray) -> None:
    """Let a turn whose sender counts from the end of a person's speech to the first sound begin there, where it began with the speech itself.

    The first sound is taken to come with what begins after the last call's first token.
    """
    latency = batch.ints("ttft_ns")
    calls = batch.by_start(np.flatnonzero((batch.role == cp.LLM) & (batch.turn == TURN)))
    of_turn = grouped(calls, top[calls].tolist())
    for turn in turns[latency[turns] >= 0].tolist():
        rows = np.flatnonzero(batch.parent == turn)
        asked = of_turn.get(turn)
        if asked is None or bool((batch.start[rows] == batch.start[turn]).any()):
            continue
        token = int(batch.start[asked[-1]] + max(latency[asked[-1]], 0))
        later = batch.start[rows][batch.start[rows] >= token]
        sound = int(later.min()) if len(later) else token
        first = max(int(batch.start[turn]), sound - int(latency[turn]))
        batch.start[turn] = min(first, int(batch.start[asked[0]]))
