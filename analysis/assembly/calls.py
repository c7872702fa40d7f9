"""Which model calls were made? One row of `llm_calls` per call, with the times of its client and its engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import attempts
from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, ERROR, numpy_column
from overrun.analysis.assembly.root_texts import ROOT_TEXT, routes
from overrun.analysis.assembly.walk import Walk
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.normalise.spans import TTFT_CUT, TTFT_ENGINE, TTFT_NONE

TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "max_tokens")
# What a call's own span says.
_OWN = ("service", "instance", "turn", "prefix_hash", "streaming", "temperature", "http_status")


class Calls:
    """The model calls of a batch: one per kept LLM span, and one per engine span that no client call explains."""

    def __init__(self, batch: Batch, walk: Walk) -> None:
        self.batch, self.walk = batch, walk
        paths, s = walk.paths, batch.spans
        is_call = (
            (paths.call == np.arange(len(paths.call)))
            & ((paths.role == cp.LLM) | (paths.role == cp.ENGINE))
            & (walk.retried.later < 0)
        )
        self.row: IntArray = np.flatnonzero(is_call)
        rows = self.row
        self.trace: IntArray = batch.trace[rows]
        self.alone: BoolArray = paths.role[rows] == cp.ENGINE
        self.engine: IntArray = np.where(self.alone, rows, paths.engine[rows])
        self.start: IntArray = paths.start[rows]
        self.duration: IntArray = (paths.end - paths.start)[rows]
        self.failed: BoolArray = numpy_column(s, "status")[rows] == ERROR
        on_path = np.zeros(len(paths.call), dtype=bool)
        on_path[paths.call[paths.piece_row[paths.call[paths.piece_row] >= 0]]] = True
        self.on_path: BoolArray = on_path[rows]
        self.output = self.either("output_tokens")
        self._times()

    def _engine_value(self, values: IntArray) -> IntArray:
        return np.where(self.engine >= 0, values[np.maximum(self.engine, 0)], ABSENT)

    def either(self, column: str) -> IntArray:
        """The client's number, else the engine's."""
        values = self.batch.ints(column)
        own = values[self.row]
        return np.where(own >= 0, own, self._engine_value(values))

    def _times(self) -> None:
        s, rows = self.batch.spans, self.row
        ttft = self.batch.ints("ttft_ns")
        self.ttft_client: IntArray = np.where(self.alone, ABSENT, ttft[rows])
        self.ttft_engine = self._engine_value(ttft)
        shift = np.where(
            self.engine >= 0, self.walk.paths.start[np.maximum(self.engine, 0)] - self.start, 0
        )
        # The engine's first token seen from the call's start.
        engine_first = np.where(
            self.ttft_engine >= 0,
            self.ttft_engine + np.where(self.alone, 0, np.maximum(shift, 0)),
            ABSENT,
        )
        self.first: IntArray = np.where(self.ttft_client >= 0, self.ttft_client, engine_first)
        self.ttft: IntArray = np.where(self.ttft_client >= 0, self.ttft_client, self.ttft_engine)
        own_source = self.batch.ints("ttft_source")[rows]
        none = np.where(own_source == TTFT_CUT, TTFT_CUT, TTFT_NONE)
        self.ttft_source: IntArray = np.where(
            self.ttft_client >= 0, own_source, np.where(self.ttft_engine >= 0, TTFT_ENGINE, none)
        )
        phases = self._phase_times()
        self.queue, self.prefill, self.decode = (
            np.where(phases[stage] >= 0, phases[stage], self._engine_value(values))
            for stage, values in (
                (cp.QUEUE, self.batch.ints("queue_ns")),
                (cp.PREFILL, self.batch.prefill()),
                (cp.DECODE, self.batch.ints("decode_ns")),
            )
        )
        self.engine_e2e = np.where(
            self._engine_value(self.batch.ints("engine_e2e_ns")) >= 0,
            self._engine_value(self.batch.ints("engine_e2e_ns")),
            self._engine_value(self.batch.ints("duration_ns")),
        )
        self._token_times()
        engine = np.where(self.alone, -1, self.engine)
        self.attempts = attempts.count(
            s,
            self.walk.paths,
            self.walk.retried,
            rows,
            engine,
            (self.ttft_client, self.ttft_engine),
            self.batch.last_began,
        )

    def _phase_times(self) -> dict[int, IntArray]:
        """Per call, the summed time of an engine's own phase spans per stage (SGLang); absent where there are none."""
        paths = self.walk.paths
        phase = np.flatnonzero(
            (paths.role == cp.PHASE)
            & (paths.stage != cp.NETWORK)
            & ~paths.skipped
            & (paths.call >= 0)
        )
        phase = phase[paths.role[np.maximum(paths.parent[phase], 0)] != cp.PHASE]
        n = len(paths.call)
        any_phase = np.zeros(n, dtype=bool)
        any_phase[paths.call[phase]] = True
        out = {}
        for stage in (cp.QUEUE, cp.PREFILL, cp.DECODE):
            mine = phase[paths.stage[phase] == stage]
            total = np.bincount(
                paths.call[mine], weights=self.batch.ints("duration_ns")[mine], minlength=n
            ).astype(np.int64)
            out[stage] = np.where(any_phase, total, ABSENT)[self.row]
        return out

    def _token_times(self) -> None:
        """TPOT = (E2E - TTFT)/(output tokens - 1), on the client's clock if it saw a first token, else on the engine's; ITL from chunk events. Tools that run
        within a call (Mastra's) are none of its E2E there."""
        rows, out = self.row, self.output
        client = self.ttft_client >= 0
        after_first = np.where(
            client,
            self.duration - self.ttft_client - self._tools(),
            self.engine_e2e - self.ttft_engine,
        )
        hidden = client & (self.engine < 0) & (self.batch.ints("reasoning_tokens")[rows] > 0)
        known = (self.ttft >= 0) & (out >= 2) & ~hidden & (after_first >= 0) & ~self.failed
        self.tpot = np.where(known, after_first / np.maximum(out - 1, 1), np.nan)
        reasons = np.select(
            [known, self.failed, self.ttft_source == TTFT_CUT, self.ttft < 0, hidden, out < 0],
            [
                "",
                "failed",
                "events_dropped",
                "no_first_token",
                "hidden_reasoning",
                "no_token_count",
            ],
            default="fewer_than_2_tokens",
        )
        self.tpot_reason = pa.array(reasons.tolist(), mask=known)
        chunks, span, worst = (
            self.batch.ints(c)[rows] for c in ("chunks", "chunk_span_ns", "chunk_gap_max_ns")
        )
        chunked = (chunks >= 2) & (out >= 2) & ~self.failed
        self.itl = np.where(chunked, span / np.maximum(out - 1, 1), np.nan)
        self.itl_max = np.where(chunked, worst, np.nan)
        self.chunked: BoolArray = chunked

    def _tools(self) -> IntArray:
        """Time of the critical path that tools took within each call."""
        paths = self.walk.paths
        call = paths.call[paths.piece_row]
        inside = np.flatnonzero((paths.piece_stage == cp.TOOL) & (call >= 0))
        taken = np.bincount(
            call[inside],
            weights=(paths.piece_to - paths.piece_from)[inside],
            minlength=len(paths.call),
        )
        tools: IntArray = taken[self.row].astype(np.int64)
        return tools

    def text(self, column: str) -> pa.Array:
        """A text column: the client's, else the engine's."""
        values = self.batch.spans.column(column).combine_chunks()
        own = values.take(pa.array(self.row))
        return pc.coalesce(own, values.take(pa.array(self.engine, mask=self.engine < 0)))

    def table(self) -> pa.Table:
        """Rows of `llm_calls`."""
        return pa.table(
            {
                **self._identity(),
                **self._tokens_and_times(),
                "finish_reason": self.text("finish_reason"),
                "error": self.failed,
                "error_type": pc.if_else(
                    pa.array(self.failed), self.text("error_type"), pa.scalar(None, pa.string())
                ),
                **self._attempts(),
            }
        )

    def _identity(self) -> dict[str, Any]:
        """Which call it is, of which request, by whom and to what."""
        rows = pa.array(self.row)
        trace_row = pa.array(self.walk.paths.root[self.trace])
        engine_row = pa.array(self.engine, mask=self.engine < 0)

        def of(column: str, index: pa.Array) -> pa.Array:
            return self.batch.spans.column(column).combine_chunks().take(index)

        return {
            "trace_hi": of("trace_hi", trace_row),
            "trace_lo": of("trace_lo", trace_row),
            "turn_span_id": self.batch.turn_ids(self.walk.paths.root[self.trace]),
            "span_id": of("span_id", rows),
            "engine_span_id": of("span_id", engine_row),
            "on_path": pa.array(self.on_path),
            "response_id": self.text("response_id"),
            "start_ns": self.start,
            "duration_ns": self.duration,
            **{column: of(column, rows) for column in _OWN},
            "engine_instance": of("instance", engine_row),
            **{c: pc.coalesce(of(c, rows), of(c, trace_row)) for c in ROOT_TEXT},
            # The request's, so that a filter finds both; a workflow's or an agent's name on the call itself says less.
            "route": routes(self.batch, self.walk).take(pa.array(self.trace)),
            "model": self.text("model"),
            "provider": self.text("provider"),
        }

    def _tokens_and_times(self) -> dict[str, Any]:
        return {
            **{column: _nullable(self.either(column)) for column in TOKENS},
            "ttft_ns": _nullable(self.ttft),
            "ttft_source": self.ttft_source.astype(np.uint8),
            "ttft_client_ns": _nullable(self.ttft_client),
            "ttft_engine_ns": _nullable(self.ttft_engine),
            "engine_e2e_ns": pa.array(self.engine_e2e, mask=self.engine < 0),
            "tpot_ns": _floats(self.tpot),
            "itl_ns": _floats(self.itl),
            "itl_max_ns": _floats(self.itl_max),
            "itl_source": pa.array(
                np.where(self.chunked, "chunk", "").tolist(), mask=~self.chunked
            ),
            "tpot_reason": self.tpot_reason,
            "queue_ns": _nullable(self.queue),
            "prefill_ns": _nullable(self.prefill),
            "decode_ns": _nullable(self.decode),
        }

    def _attempts(self) -> dict[str, pa.Array]:
        made = self.attempts
        return {
            "attempts": pa.array(made.number, pa.int32(), mask=made.number < 0),
            "attempts_source": _named(attempts.SOURCES, made.source),
            "wasted_ns": _nullable(made.wasted_ns),
            "wasted_tokens": _nullable(made.wasted_tokens),
            "retry_cause": _named(attempts.CAUSES, made.cause),
        }


def _nullable(values: IntArray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def _named(names: tuple[str, ...], codes: IntArray) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(codes, mask=codes == 0))


def _floats(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))
