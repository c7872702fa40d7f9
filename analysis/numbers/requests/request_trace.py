"""What happened in one request? Its spans as a tree, each with the time it holds on the critical path, ready for a waterfall."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import pyarrow as pa

from overrun.analysis.assembly.assemble import assemble, walk_trace
from overrun.analysis.assembly.critical_path import Paths
from overrun.analysis.assembly.nesting import tops
from overrun.analysis.numbers.requests.stored_names import say_extent
from overrun.analysis.numbers.window import answers
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.trace_ids import digits as digits_of
from overrun.collector.ingest.reading import trace_spans
from overrun.collector.normalise.stages import ROLES
from overrun.collector.normalise.stages import STAGES as STAGE_NAMES

# An id that differs in more digits is another one; own default.
_MOST_DIGITS_OFF: Final = 6
# A panel of attributes is read by a person; more of them, or longer ones, are in an export.
_MOST_DETAILED, _MOST_ATTRIBUTES, _LONGEST_VALUE = 300, 40, 300
_SECOND_NS: Final = 1_000_000_000


class UnknownTrace(AnalysisError):
    """A trace id that the store does not hold."""


class PathPiece(msgspec.Struct, kw_only=True):
    """A piece of the critical path: [from_ms, to_ms) since the request's start belongs to this stage of this span."""

    span_id: str
    stage: str
    from_ms: float
    to_ms: float


class TraceSpan(msgspec.Struct, kw_only=True):
    """One span, in the order of a waterfall. Times in ms since the request's start, after clock repair; `path_ms` is its share of the path.

    `attributes` are what it carries beside the other fields, at most 40 of at most 300 characters. In a trace of more than 300 spans only those that hold
    most of the path, failed or took longest have them.
    """

    span_id: str
    parent_span_id: str | None
    depth: int
    service: str
    instance: str | None
    name: str
    stage: str
    role: str
    start_ms: float
    duration_ms: float
    path_ms: float
    error: bool
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    ttft_ms: float | None
    inferred_parent: bool
    clock_shifted: bool
    host: str | None = None
    error_type: str | None = None
    attributes: dict[str, str] = {}


class Trace(msgspec.Struct, kw_only=True):
    """One request with its spans and critical path. `stages` sums to `e2e_ms`; `wait_user_ms` stands outside of it."""

    trace_id: str
    service: str
    route: str | None
    start: str
    e2e_ms: float
    ttft_ms: float | None
    wait_user_ms: float
    stages: dict[str, float]
    spans: list[TraceSpan]
    path: list[PathPiece]


def load_trace(con: duckdb.DuckDBPyConnection, trace_id: str) -> Trace:
    """The request of a trace id, as digits in any case or in the form of a sender; the beginning of an id is enough where one trace has it. Of a session the
    slowest turn, or the one that a span's id is of.

    Raises:
        BadTraceId: no trace id. UnknownTrace: no span of it is stored; names the nearest one, and the time that is stored.
    """
    wanted = digits_of(trace_id)
    spans = trace_spans(con, wanted) if len(wanted) == 32 else None
    if spans is None or not spans.num_rows:
        wanted = _stored(con, wanted)
        spans = trace_spans(con, wanted)
    found, at = _view(wanted, spans, digits_of(trace_id))
    _add_details(con, found, at)
    return found


def _add_details(
    con: duckdb.DuckDBPyConnection, trace: Trace, at: Mapping[str, tuple[int, int, int]]
) -> None:
    """Fill in host, error and attributes. `at` has the halves of the trace id and the start in ns of each span, by its id."""
    wanted = sorted(
        trace.spans, key=lambda span: (-span.path_ms, not span.error, -span.duration_ms)
    )[:_MOST_DETAILED]
    places = [at[span.span_id] for span in wanted]
    ids = {(high, low) for high, low, _ in places}
    keys = answers(con, "trace_keys", {"high": [h for h, _ in ids], "low": [lo for _, lo in ids]})
    starts = [start for _, _, start in places]
    window = {
        "start": datetime.fromtimestamp(min(starts) // _SECOND_NS, UTC),
        "end": datetime.fromtimestamp(max(starts) // _SECOND_NS + 1, UTC),
        "traces": [row["trace_key"] for row in keys],
    }
    known = {
        (row["trace_id"], row["span_id"], row["service"] or "unknown_service"): row
        for row in answers(con, "span_details", window)
    }
    for span, (high, low, _) in zip(wanted, places, strict=True):
        row = known.get((f"{high:016x}{low:016x}", span.span_id, span.service))
        if row is None:
            continue
        status = row["http_status"]
        span.host = row["host"]
        span.error_type = row["error_type"] or (f"HTTP {status}" if span.error and status else None)
        said = list(dict(row["attributes"] or {}).items())[:_MOST_ATTRIBUTES]
        span.attributes = {name: str(value)[:_LONGEST_VALUE] for name, value in said}


def _stored(con: duckdb.DuckDBPyConnection, digits: str) -> str:
    """The one stored trace that these digits can mean: an id's beginning, the end of one that was 64 bits, or a span of it."""
    near = answers(con, "near_traces", {"digits": digits})
    certain = [row["trace_id"] for row in near if row["digits_off"] == 0]
    meant = certain or [row["trace_id"] for row in near if len(digits) == 16]
    if len(meant) == 1 and len(digits) < 32:
        return str(meant[0])
    if len(certain) > 1:
        raise UnknownTrace(
            f"several traces begin with {digits}: {', '.join(certain[:3])}; give more digits"
        )
    typo = [row["trace_id"] for row in near if row["digits_off"] <= _MOST_DIGITS_OFF]
    nearest = f"nearest known is {typo[0]}" if typo else "no id is near it"
    raise UnknownTrace(f"no span of trace {digits} is stored: {nearest}; {say_extent(con)}")


def _view(
    trace_id: str, spans: pa.Table, asked: str
) -> tuple[Trace, dict[str, tuple[int, int, int]]]:
    """The request, and of each span the halves of its trace's id and its stored start in ns."""
    rows, paths = walk_trace(spans)
    made = assemble(spans).requests.to_pylist()
    k = _request_of(trace_id, rows, paths, made, asked)
    mine = [
        r for r in made if r["root_span_id"] == rows.column("span_id")[int(paths.root[k])].as_py()
    ]
    row: Mapping[str, Any] = mine[0] if mine else {}
    origin = int(paths.start[paths.root[k]])
    first, last = _bounds(rows, paths, k)
    texts = rows.slice(first, last - first).to_pylist()
    on_path = np.zeros(len(paths.parent))
    np.add.at(on_path, paths.piece_row, paths.piece_to - paths.piece_from)
    pieces = [
        PathPiece(
            span_id=_hex(texts[r - first]["span_id"]),
            stage=STAGE_NAMES[s],
            from_ms=(f - origin) / 1e6,
            to_ms=(t - origin) / 1e6,
        )
        for r, s, f, t in zip(
            *(
                a.tolist()
                for a in (paths.piece_row, paths.piece_stage, paths.piece_from, paths.piece_to)
            ),
            strict=True,
        )
        if first <= r < last
    ]
    stages: dict[str, float] = {}
    for piece in pieces:
        stages[piece.stage] = stages.get(piece.stage, 0.0) + piece.to_ms - piece.from_ms
    wait = stages.pop("wait_user", 0.0)
    root = texts[int(paths.root[k]) - first]
    found = Trace(
        trace_id=trace_id,
        service=root["service"] or "unknown_service",
        route=row.get("route") or root["name"],
        start=str(np.datetime64(origin, "ns")) + "Z",
        e2e_ms=sum(stages.values()),
        ttft_ms=_ms(row.get("ttft_ns")),
        wait_user_ms=wait,
        stages=stages,
        spans=_tree(texts, paths, first, last, origin, on_path),
        path=sorted(pieces, key=lambda p: p.from_ms),
    )
    at = {
        _hex(text["span_id"]): (text["trace_hi"], text["trace_lo"], text["start_ns"])
        for text in texts
    }
    return found, at


def _request_of(
    trace_id: str, rows: pa.Table, paths: Paths, made: list[dict[str, Any]], asked: str
) -> int:
    """Which of the requests in `rows` (a trace and those joined to it) the trace id belongs to, or the span id that was asked for."""
    hi, lo, span = (rows.column(c).to_numpy() for c in ("trace_hi", "trace_lo", "span_id"))
    mine = (hi == int(trace_id[:16], 16)) & (lo == int(trace_id[16:], 16))
    named = mine & (span == int(asked, 16)) if len(asked) == 16 else np.zeros_like(mine)
    turns = [row for row in made if row["turn_span_id"] is not None]
    if turns and not named.any():
        slowest = max(turns, key=lambda row: (row["e2e_ns"], row["root_span_id"]))
        named = mine & (span == slowest["root_span_id"])
    at = int(np.flatnonzero(named if named.any() else mine)[0])
    return int(np.flatnonzero(paths.root == tops(paths.parent)[at])[0])


def _bounds(rows: pa.Table, paths: Paths, k: int) -> tuple[int, int]:
    """Rows of request k: spans of one request stand together."""
    mine = np.flatnonzero(tops(paths.parent) == paths.root[k])
    return int(mine[0]), int(mine[-1]) + 1


def _tree(
    texts: list[dict[str, Any]],
    paths: Paths,
    first: int,
    last: int,
    origin: int,
    on_path: np.ndarray[Any, np.dtype[np.float64]],
) -> list[TraceSpan]:
    """Spans depth first, siblings by start."""
    children: dict[int, list[int]] = {}
    for i in range(first, last):
        children.setdefault(int(paths.parent[i]), []).append(i)
    out: list[TraceSpan] = []
    stack = [(i, 0) for i in children.get(-1, [])]
    while stack:
        i, depth = stack.pop()
        out.append(
            _span(texts[i - first], paths, i, depth, origin, float(on_path[i]), texts, first)
        )
        stack.extend(
            (c, depth + 1)
            for c in sorted(children.get(i, []), key=lambda c: (-int(paths.start[c]), c))
        )
    return out


def _span(
    text: dict[str, Any],
    paths: Paths,
    i: int,
    depth: int,
    origin: int,
    on_path_ns: float,
    texts: list[dict[str, Any]],
    first: int,
) -> TraceSpan:
    role = int(paths.role[i])
    stage = "model" if ROLES[role] in ("llm", "engine") else STAGE_NAMES[int(paths.stage[i])]
    parent = int(paths.parent[i])
    return TraceSpan(
        span_id=_hex(text["span_id"]),
        parent_span_id=_hex(texts[parent - first]["span_id"]) if parent >= 0 else None,
        depth=depth,
        service=text["service"] or "unknown_service",
        instance=text["instance"],
        name=text["name"],
        stage=stage,
        role="folded" if paths.skipped[i] else ROLES[role],
        start_ms=(int(paths.start[i]) - origin) / 1e6,
        duration_ms=int(paths.end[i] - paths.start[i]) / 1e6,
        path_ms=on_path_ns / 1e6,
        error=text["status"] == 2,
        model=text["model"],
        input_tokens=text["input_tokens"],
        output_tokens=text["output_tokens"],
        ttft_ms=_ms(text["ttft_ns"]),
        inferred_parent=bool(paths.inferred[i]),
        clock_shifted=bool(paths.shifted[i]),
    )


def _hex(span_id: int) -> str:
    return f"{span_id:016x}"


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6
