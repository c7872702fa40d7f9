"""What does analysis read that no view gives? The spans of whole requests in nanoseconds, as the assembly wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS
from overrun.collector.ingest.recent_rows import arranged
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.normalise.stages import MODEL_ROLES, derived, wrappers
from overrun.collector.store.answers import BY_EXECUTE
from overrun.collector.store.database import sql

# A call's partners may have partners of their own (a request whose calls are all reported twice, one trace each).
_HOPS = 3


LAST_SEQ = 2**63 - 1
LINK_COLUMNS = ("link_hi", "link_lo", "link_span")


@dataclass(frozen=True, slots=True)
class Unread:
    """Traces (trace_hi, trace_lo) to be read from the store, all of whose spans are numbered `since` or later and before `until`."""

    traces: pa.Table
    since: int = 0
    until: int = LAST_SEQ

    @property
    def bounds(self) -> dict[str, int]:
        """Those numbers as parameters."""
        return {"since": self.since, "until": self.until}


@dataclass(frozen=True, slots=True)
class Known:
    """What need not be asked of the store: all spans of some of the traces (recent_rows.py) in the order below, which traces those are not, whose calls are
    reported by more than one instrumentation, and which response ids are stored."""

    held: pa.Table | None
    unread: Sequence[Unread]
    doubled: pa.Table
    response_ids: ResponseIds


@derived
def _wrapped() -> pa.Table:
    """Spans of client wrappers under a framework's scope."""
    names = wrappers()
    return pa.table(
        {
            "scope_name": pa.array([scope for scope, _ in names], pa.string()),
            "span_name": pa.array([name for _, name in names], pa.string()),
        }
    )


def doubled_sources(cursor: duckdb.DuckDBPyConnection) -> pa.Table:
    """Sources whose process reports its model calls through more than one instrumentation."""
    return _asked(cursor, "doubled_sources", {})


def quiet_spans(
    cursor: duckdb.DuckDBPyConnection, quiet: pa.Table, known: Known | None = None
) -> pa.Table:
    """The stored spans of these traces (trace_hi, trace_lo, start_ns), and of traces that report the same model calls or that their spans are linked with.

    The spans of a trace, and repeats of a span, are neighbours; what arrived first comes first. Where there are links to other traces, `link_hi`, `link_lo`
    and `link_span` name the span that each is linked to.
    """
    floor = {"floor": int(quiet.column("start_ns").to_numpy().min()) - LOOK_BACK_NS}
    held = None if known is None else known.held
    wanted = fresh = quiet.select(["trace_hi", "trace_lo"])
    read = [Unread(wanted)] if known is None else [*known.unread]
    doubled = doubled_sources(cursor) if known is None else known.doubled
    parts = [] if held is None else [joining_ids(held, "seq")]
    asked = read
    linked = bool(
        cursor.execute(
            "select 1 from span_links where trace_lo <> linked_trace_lo limit 1"
        ).fetchall()
    )
    for _ in range(_HOPS):
        parts += [
            _asked(cursor, "model_calls", floor | one.bounds, fresh=one.traces)
            for one in asked
            if one.traces.num_rows
        ]
        mine = pa.concat_tables(parts).filter(pc.field("response_id").is_valid()).combine_chunks()
        if known is not None and mine.num_rows:
            mine = mine.filter(
                pa.array(
                    known.response_ids.elsewhere(
                        mine.column("response_id").combine_chunks(), floor["floor"]
                    )
                )
            )
        found = (
            [_asked(cursor, "partner_traces", floor, wanted=wanted, mine=mine)]
            if mine.num_rows
            else []
        )
        if doubled.num_rows:
            found.append(
                _asked(cursor, "twin_traces", floor, wanted=wanted, fresh=fresh, doubled=doubled)
            )
        if linked:
            found.append(
                _asked(
                    cursor,
                    "linked_traces",
                    floor,
                    wanted=wanted,
                    fresh=fresh.select(["trace_hi", "trace_lo"]),
                )
            )
        # A trace may be found both ways, and a repeat does no harm.
        fresh = pa.concat_tables(found) if found else wanted.slice(0, 0)
        if not fresh.num_rows:
            break
        asked, parts = [Unread(fresh)], []
        wanted, read = pa.concat_tables([wanted, fresh]), [*read, *asked]
    spans = held
    unread = [one for one in read if one.traces.num_rows]
    if unread or spans is None:
        rows = pa.concat_tables(
            [_asked(cursor, "quiet_spans", floor | one.bounds, wanted=one.traces) for one in unread]
        )
        rows = rows.take(pa.array(np.argsort(rows.column("seq").to_numpy(), kind="stable")))
        rows = arranged(
            rows,
            *(
                column.to_numpy()
                for column in pa.concat_tables([one.traces for one in unread]).columns
            ),
        )
        spans = rows if spans is None else pa.concat_tables([spans.select(rows.column_names), rows])
    spans = _with_notes(cursor, spans.drop_columns(["seq"]), wanted)
    return _with_links(cursor, spans, wanted) if linked else spans


def joining_ids(spans: pa.Table, beside: str) -> pa.Table:
    """What the model calls among these spans may share with spans of other traces, as `response_id` beside the column named: ids of answers, what the attempts
    of a call share, and where the engines of one request meet."""
    of_models = pc.is_in(spans.column("role"), value_set=MODEL_ROLES)
    calls = spans.select([beside, "response_id"]).filter(of_models)
    if spans.column("depends_on").null_count == spans.num_rows:
        return calls
    places = spans.select([beside, "depends_on"]).filter(of_models)
    return pa.concat_tables([calls, places.rename_columns([beside, "response_id"])])


def _with_notes(cursor: duckdb.DuckDBPyConnection, spans: pa.Table, wanted: pa.Table) -> pa.Table:
    """The spans with the finish reasons that only log records carry."""
    if not cursor.execute("select 1 from span_notes limit 1").fetchall():
        return spans
    notes = _asked(cursor, "notes", {}, wanted=wanted)
    if not notes.num_rows:
        return spans
    told = {
        (hi, lo, span): reason
        for hi, lo, span, reason in zip(
            *(column.to_pylist() for column in notes.columns), strict=True
        )
    }
    ids = zip(
        *(spans.column(c).to_pylist() for c in ("trace_hi", "trace_lo", "span_id")), strict=True
    )
    at = spans.schema.get_field_index("finish_reason")
    reasons = pa.array([told.get(key) for key in ids], spans.schema.field(at).type)
    return spans.set_column(at, "finish_reason", pc.coalesce(spans.column(at), reasons))


def _with_links(cursor: duckdb.DuckDBPyConnection, spans: pa.Table, wanted: pa.Table) -> pa.Table:
    """The spans with the one span of another trace that each is linked to."""
    links = _asked(cursor, "links", {}, wanted=wanted)
    if not links.num_rows:
        return spans
    told = {
        (hi, lo, span): to
        for hi, lo, span, *to in zip(*(column.to_pylist() for column in links.columns), strict=True)
    }
    ids = zip(
        *(spans.column(c).to_pylist() for c in ("trace_hi", "trace_lo", "span_id")), strict=True
    )
    found = [told.get(key, (0, 0, 0)) for key in ids]
    for at, name in enumerate(LINK_COLUMNS):
        spans = spans.append_column(name, pa.array([to[at] for to in found], pa.uint64()))
    return spans


def _asked(
    cursor: duckdb.DuckDBPyConnection,
    query: str,
    params: Mapping[str, object],
    *,
    wanted: pa.Table | None = None,
    fresh: pa.Table | None = None,
    mine: pa.Table | None = None,
    doubled: pa.Table | None = None,
) -> pa.Table:
    """The rows of one of our queries, which reads the tables from this frame: to register each as a view takes 1 ms."""
    wrapped = _wrapped()  # noqa: F841 - read by the query
    # Tables are found by name in this frame, not in one below: so it is asked here.
    if BY_EXECUTE:
        return cursor.execute(sql(query), dict(params)).to_arrow_table()
    return cursor.sql(sql(query), params=dict(params)).to_arrow_table()


def spans_with_texts(
    cursor: duckdb.DuckDBPyConnection, keys: pa.Table, since: datetime, until: datetime
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The requests whose traces begin in [since, until) and have these keys (column trace_key): the traces found with their keys (and `turn`), their spans as `quiet_spans`
    gives them, and shape and packed attribute values of each (trace_hi, trace_lo, span_id, start_ns, shape, attribute_values)."""
    period: dict[str, object] = {"since": since, "until": until}
    traces = _asked(cursor, "traces_of_keys", period, wanted=keys)
    if not traces.num_rows:
        return traces, traces, traces
    spans = quiet_spans(cursor, traces.select(["trace_hi", "trace_lo", "start_ns"]))
    among = spans.select(["trace_hi", "trace_lo"]).group_by(["trace_hi", "trace_lo"]).aggregate([])
    floor = int(traces.column("start_ns").to_numpy().min()) - LOOK_BACK_NS
    return traces, spans, _asked(cursor, "span_texts", {"floor": floor}, wanted=among)


def trace_spans(cursor: duckdb.DuckDBPyConnection, trace_id: str) -> pa.Table:
    """The spans that make up the request of one trace (32 hex digits); empty if the store has none.

    Raises:
        ValueError: `trace_id` is not 32 hex digits.
    """
    if len(trace_id) != 32:
        raise ValueError(trace_id)
    high, low = int(trace_id[:16], 16), int(trace_id[16:], 16)
    key = {"hi": high, "lo": low}
    # fetchall: a fetchone leaves the result open, and an open result refuses the `register` that follows.
    first = cursor.execute(
        "select min(start_ns) from spans where trace_hi = $hi and trace_lo = $lo", key
    ).fetchall()[0][0]
    start = 0 if first is None else int(first)
    one = pa.table(
        {
            "trace_hi": np.array([high], np.uint64),
            "trace_lo": np.array([low], np.uint64),
            "start_ns": np.array([start], np.int64),
        }
    )
    return quiet_spans(cursor, one)
