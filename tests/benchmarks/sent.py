"""Does a store hold just what its senders know they sent? Bodies with fresh ids from a few templates, and the comparison with what can be read back.

Counts do not tell: a store that holds a copy of one commit in the place of another has as many rows as were acknowledged. So every acknowledged span is
looked up by its ids, and its name, start, duration, parent and output tokens are compared with those that were sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

# A span begins with its trace id (tag 0x0a, length 16); its span id follows (tag 0x12, length 8).
_IDS = re.compile(rb"\x0a\x10(?=.{16}\x12\x08)", re.DOTALL)
_RESPONSE = re.compile(rb"chatcmpl-")
_TOKENS = "gen_ai.usage.output_tokens"


@dataclass(frozen=True)
class Found:
    """Spans of a store, beside those that were sent: acknowledged ones that are missing or differ, spans that stand twice, and spans that were never sent."""

    stored: int
    lost: int
    changed: int
    doubled: int
    unknown: int

    @property
    def right(self) -> bool:
        """Whether the store holds what it should, and nothing else."""
        return not (self.lost or self.changed or self.doubled or self.unknown)


class Template:
    """A body that can be sent any number of times, each time with trace ids of its own."""

    def __init__(self, data: bytes) -> None:
        self._bytes = np.frombuffer(data, dtype=np.uint8)
        self._ids = np.array([m.start() + 2 for m in _IDS.finditer(data)])
        self._responses = np.array([m.end() for m in _RESPONSE.finditer(data)])
        self.spans = known(data)
        assert len(self._ids) == self.spans.num_rows, "the ids of the body are not where they were"

    def body(self, mask: int) -> bytes:
        """The bytes with the lower half of each trace id changed by `mask` (64 bits), and ids of answers that begin with it."""
        out = self._bytes.copy()
        for place, byte in enumerate(mask.to_bytes(8, "big")):
            out[self._ids + 8 + place] ^= byte
        if len(self._responses):
            out[self._responses[:, None] + np.arange(8)] = np.frombuffer(
                f"{mask & 0xFFFFFFFF:08x}".encode(), dtype=np.uint8
            )
        return out.tobytes()

    @cached_property
    def _low(self) -> Any:
        return self.spans.column("trace_lo").to_numpy()

    def sent(self, masks: Sequence[int]) -> pa.Table:
        """The spans of these bodies."""
        low = (np.array(masks, dtype=np.uint64)[:, None] ^ self._low[None, :]).reshape(-1)
        many = self.spans.take(pa.array(np.tile(np.arange(len(self._low)), len(masks))))
        return many.set_column(many.schema.get_field_index("trace_lo"), "trace_lo", pa.array(low))


def known(data: bytes) -> pa.Table:
    """What the sender of a body knows of its spans, decoded by protobuf's own library: a row per span."""
    rows: list[dict[str, Any]] = []
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                tokens = [a.value.int_value for a in span.attributes if a.key == _TOKENS]
                rows.append(
                    {
                        "trace_hi": int.from_bytes(span.trace_id[:8], "big"),
                        "trace_lo": int.from_bytes(span.trace_id[8:], "big"),
                        "span_id": int.from_bytes(span.span_id, "big"),
                        "parent_id": int.from_bytes(span.parent_span_id, "big"),
                        "name": span.name,
                        "start_ns": span.start_time_unix_nano,
                        "duration_ns": span.end_time_unix_nano - span.start_time_unix_nano,
                        "output_tokens": tokens[0] if tokens else None,
                    }
                )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        *((name, pa.uint64()) for name in ("trace_hi", "trace_lo", "span_id", "parent_id")),
        ("name", pa.string()),
        ("start_ns", pa.int64()),
        ("duration_ns", pa.int64()),
        ("output_tokens", pa.int64()),
    ]
)


def compare(db: Path, acknowledged: Iterable[pa.Table], unsure: Iterable[pa.Table] = ()) -> Found:
    """Compare a file that no server has open with what was acknowledged, and with what was sent and never answered."""
    import duckdb

    sure = _table(acknowledged)
    maybe = _table(unsure)
    with duckdb.connect(str(db)) as connection:
        connection.register("sure", sure)
        connection.register("maybe", maybe)
        connection.execute(
            "create temp table stored as select trace_id, span_id, count(*) as n, any_value(name) as name, any_value(epoch_us(start)) as start_us, "
            "any_value(duration_ms) as duration_ms, any_value(parent_span_id) as parent_span_id, any_value(output_tokens) as output_tokens "
            "from v_spans group by all"
        )
        ids = "format('{:016x}{:016x}', trace_hi, trace_lo) as trace_id, format('{:016x}', span_id) as span_id"
        connection.execute(
            f"create temp table sent as select {ids}, name, start_ns, duration_ns, output_tokens, "
            "case when parent_id <> 0 then format('{:016x}', parent_id) end as parent_span_id from sure"
        )
        same = (
            "t.name = s.name and t.start_us = s.start_ns // 1000 and abs(t.duration_ms - s.duration_ns / 1e6) < 1e-6 "
            "and t.parent_span_id is not distinct from s.parent_span_id and t.output_tokens is not distinct from s.output_tokens"
        )
        [(lost, changed)] = connection.execute(
            f"select count(*) filter (where t.n is null), count(*) filter (where t.n is not null and not coalesce({same}, false)) "
            "from sent s left join stored t using (trace_id, span_id)"
        ).fetchall()
        [(stored,)] = connection.execute("select count(*) from stored").fetchall()
        # The view gives each span once: whether its row stands twice, the table says.
        [(doubled,)] = connection.execute(
            "select count(*) - count(distinct (trace_hi, trace_lo, span_id)) from spans"
        ).fetchall()
        ever = f"select trace_id, span_id from sent union all select {ids} from maybe"
        [(unknown,)] = connection.execute(
            f"select count(*) from stored anti join ({ever}) using (trace_id, span_id)"
        ).fetchall()
    return Found(stored, lost, changed, doubled, unknown)


def _table(parts: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([*parts, _SCHEMA.empty_table()])
