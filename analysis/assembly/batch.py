"""What do the steps of assembly work on? The spans of a batch of traces as columns, which each step changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.columns import (
    ABSENT,
    ERROR,
    codes_at,
    grouped,
    int_column,
    numpy_column,
)
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.process.compiled import read_only

MOST_AT_ONCE = 32  # calls of a trace among which one is looked for: among more nothing shows which it is, and all of them would be compared with all
NEARLY_ALL = 0.8  # how much of what is within a step lies in its time: the step may end as it has its answer, before its server does
TURN, AROUND = 1, 2  # what is in a turn of a session, and what else is in the session
_NESTED = 8  # spans between a chain's step and the model call in it


class Batch:
    """The spans of a batch of traces as columns, re-sorted by the trace that they count for."""

    stage: IntArray  # of each span; the last step sets it

    def __init__(self, spans: pa.Table) -> None:
        self.spans = spans
        hi, lo = numpy_column(spans, "trace_hi"), numpy_column(spans, "trace_lo")
        new = np.ones(len(hi), dtype=bool)
        new[1:] = (hi[1:] != hi[:-1]) | (lo[1:] != lo[:-1])
        self.trace: IntArray = np.cumsum(new) - 1
        self.parent = _parent_rows(
            np.append(np.flatnonzero(new), len(hi)),
            numpy_column(spans, "span_id"),
            numpy_column(spans, "parent_id"),
        )
        role = self.ints("role")
        # Requests over the network and parts of requests until steps find that they are calls and turns.
        role = np.where(role == cp.MODEL_REQUEST, cp.PLAIN, role)
        self.role: IntArray = np.where(role == cp.TURN, cp.CONTAINER, role)
        self.turn: IntArray = np.zeros(len(role), dtype=np.int64)  # TURN, AROUND or 0
        self.start = self.ints("start_ns")
        self.end: IntArray = self.start + self.ints("duration_ns")
        # By the span id of a call: when the last of its attempts without a span began, in ns from its start.
        self.last_began: dict[int, int] = {}

    @property
    def spans(self) -> pa.Table:
        """The spans, a row each."""
        return self._spans

    @spans.setter
    def spans(self, spans: pa.Table) -> None:
        self._spans = spans
        self._read: dict[str, IntArray] = {}

    def ints(self, column: str) -> IntArray:
        """An integer column of the spans with ABSENT for null, read once."""
        if column not in self._read:
            self._read[column] = int_column(self._spans, column)
        return self._read[column]

    def prefill(self) -> IntArray:
        """Prefill times; absent where no queue was separated, for then the number holds it (SGLang's runs from dispatch on)."""
        return np.where(self.ints("queue_ns") >= 0, self.ints("prefill_ns"), ABSENT)

    def make_containers(self, rows: list[int]) -> None:
        """Make containers of spans that seemed model calls."""
        if rows:
            self.role = self.role.copy()
            self.role[rows] = cp.CONTAINER
            self.spans = duplicate_spans.replaced(
                self.spans, "stage", dict.fromkeys(rows, cp.OTHER)
            )

    def clock_slack(self, row: int) -> int:
        """By how much a span may stand out of what it is in, by another clock."""
        return int(self.end[row] - self.start[row]) // 20 + duplicate_spans.CLOCK_SLACK_NS

    def tried_before(self) -> dict[int, list[int]]:
        """Model calls that were asked for under one id (LiteLLM's call id), by the one of them that ended last, with which the others were tried before."""
        given = self.spans.column("depends_on")
        if given.null_count == len(given):
            return {}
        rows = np.flatnonzero((self.role == cp.LLM) & given.is_valid().to_numpy())
        code = codes_at(rows, given)
        rows = rows[np.bincount(code[rows], minlength=1)[code[rows]] > 1]
        failed = numpy_column(self.spans, "status") == ERROR
        last: dict[int, list[int]] = {}
        for calls in grouped(rows, code[rows].tolist()).values():
            final = max(calls, key=lambda row: (not failed[row], self.end[row], row))
            tried = [row for row in calls if row != final and failed[row]]
            if tried:
                last[final] = sorted(tried, key=lambda row: (self.start[row], row))
        return last

    def only_prefills(self, engines: IntArray) -> BoolArray:
        """Which of these engine requests only prefill: one token is all that they have to make (vLLM, Dynamo); SGLang says it in the name."""
        names = pc.starts_with(
            self.spans.column("name").take(pa.array(engines)), "prefill"
        ).to_numpy()
        only: BoolArray = names | (self.ints("output_tokens")[engines] == 1)
        return only

    def turn_ids(self, roots: IntArray) -> pa.Array:
        """The span ids of these roots of requests where they are turns."""
        ids = numpy_column(self.spans, "span_id")[roots]
        return pa.array(ids, pa.uint64(), mask=self.turn[roots] != TURN)

    def calling(self) -> IntArray:
        """The rows of model calls and of the steps that they are in, but for roots."""
        above = np.flatnonzero(self.role == cp.LLM)
        holds = np.zeros(len(self.role), dtype=np.bool_)
        for _ in range(_NESTED):
            holds[above] = True
            above = self.parent[above]
            above = above[above >= 0]
            above = above[~holds[above]]
        return np.flatnonzero(holds & (self.parent >= 0))

    def by_start(self, rows: IntArray) -> IntArray:
        out: IntArray = rows[np.argsort(self.start[rows], kind="stable")]
        return out

    def sort_by_trace(self) -> None:
        order = np.argsort(self.trace, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        parent = self.parent[order]
        self.parent = np.where(parent >= 0, place[parent], -1)
        self.spans = self.spans.take(pa.array(order))
        columns = (self.trace, self.role, self.start, self.end)
        self.trace, self.role, self.start, self.end = (column[order] for column in columns)
        # Only the step that parts turns sets it, and no later one adds spans.
        self.turn = self.turn[order] if len(self.turn) == len(order) else 0 * order


def _parent_rows(bounds: IntArray, span_id: Any, parent_id: Any) -> IntArray:
    """Row of each span's parent within its trace, -1 if it has none or it is not there. Rows of a trace are sorted by span id."""
    return cp.find_parents(*map(read_only, (bounds, span_id, parent_id)))  # type: ignore[no-any-return]
