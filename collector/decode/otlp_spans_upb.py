"""How do OTLP trace bytes become columns, slowly and obviously? `decode_spans`: request bodies in, the same flat columns as otlp_spans.py out.

Protobuf's own decoder and plain loops over spans: only the result types and the reading of sources are shared with the fast decoder, so that the
tests can hold one against the other. Several times slower: of live traffic it gets the unusual bodies that the fast decoder leaves, or all of it
with `--decoder upb`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.collector.decode import wire
from overrun.collector.decode.columns import (
    ARRAY,
    BLOB,
    MAP,
    NOT_A_REQUEST,
    Attributes,
    Events,
    Links,
    RawSpans,
    Source,
    source,
)
from overrun.collector.errors import BadPayload

_MEMBERS = {"array_value": ARRAY, "kvlist_value": MAP, "bytes_value": BLOB}
_MAX_NS = 2**63 - 1


class _Flat:
    """Attributes of many owners, gathered one by one."""

    def __init__(self) -> None:
        self.owner: list[int] = []
        self.codes: dict[str, int] = {}
        self.code: list[int] = []
        self.kind: list[int] = []
        self.text: list[str | None] = []
        self.number: list[int] = []
        self.fraction: list[float] = []
        self.others: list[tuple[int, int, bytes]] = []

    def add(self, owner: int, attributes: Iterable[KeyValue]) -> None:
        for attribute in attributes:
            self.owner.append(owner)
            self.code.append(self.codes.setdefault(attribute.key, len(self.codes)))
            value, member = attribute.value, attribute.value.WhichOneof("value")
            if member in _MEMBERS:
                content = getattr(value, member)
                self.others.append(
                    (
                        len(self.kind),
                        _MEMBERS[member],
                        content if member == "bytes_value" else content.SerializeToString(),
                    )
                )
            kinds = {
                "string_value": wire.STRING,
                "int_value": wire.INT,
                "double_value": wire.DOUBLE,
                "bool_value": wire.BOOL,
            }
            self.kind.append(
                wire.OTHER if member in _MEMBERS else kinds.get(member or "", wire.NOTHING)
            )
            self.text.append(value.string_value if member == "string_value" else None)
            self.number.append(
                value.int_value
                if member == "int_value"
                else int(member == "bool_value" and value.bool_value)
            )
            self.fraction.append(value.double_value if member == "double_value" else 0.0)

    def columns(self) -> Attributes:
        at, member, raw = ([item[i] for item in self.others] for i in range(3))
        return Attributes(
            np.array(self.owner, np.int64),
            list(self.codes),
            np.array(self.code, np.int64),
            np.array(self.kind, np.uint8),
            pa.array(self.text, pa.string()),
            np.array(self.number, np.int64),
            np.array(self.fraction, np.float64),
            np.array(at, np.int64),
            np.array(member, np.uint8),
            pa.array(raw, pa.binary()),
        )


def decode_spans(bodies: Sequence[bytes]) -> RawSpans:
    """Flatten ExportTraceServiceRequest bodies.

    Raises:
        BadPayload: one of the bodies is not such a message.
    """
    sources: list[Source] = []
    body_of, source_of = [], []
    spans: list[Span] = []
    for body, data in enumerate(bodies):
        for resource_spans in _request(data).resource_spans:
            for scope_spans in resource_spans.scope_spans:
                sources.append(
                    source(
                        resource_spans.resource,
                        resource_spans.schema_url,
                        scope_spans.scope,
                        scope_spans.schema_url,
                    )
                )
                for span in scope_spans.spans:
                    body_of.append(body)
                    source_of.append(len(sources) - 1)
                    spans.append(span)
    attributes = _Flat()
    for row, span in enumerate(spans):
        attributes.add(row, span.attributes)
    ids = [_ids(span.trace_id, span.span_id, span.parent_span_id) for span in spans]
    trace_hi, trace_lo, span_id, parent_id = (
        np.array([words[i] for words in ids], np.uint64) for i in range(4)
    )
    return RawSpans(
        np.array(body_of, np.int64),
        np.array(source_of, np.int64),
        sources,
        trace_hi,
        trace_lo,
        span_id,
        parent_id,
        np.array([span.start_time_unix_nano for span in spans], np.uint64),
        np.array([span.end_time_unix_nano for span in spans], np.uint64),
        np.array([span.kind for span in spans], np.int64),
        np.array([span.status.code for span in spans], np.int64),
        np.array([span.flags for span in spans], np.int64),
        pa.array([span.name for span in spans], pa.string()),
        pa.array([span.trace_state for span in spans], pa.string()),
        attributes.columns(),
        _events(spans),
        _links(spans),
        np.array(
            [
                [s.dropped_attributes_count for s in spans],
                [s.dropped_events_count for s in spans],
                [s.dropped_links_count for s in spans],
            ],
            np.int64,
        ),
    )


def _request(data: bytes) -> ExportTraceServiceRequest:
    try:
        request = ExportTraceServiceRequest()
        request.ParseFromString(data)
    except DecodeError as error:
        raise BadPayload(f"{NOT_A_REQUEST}: {error}") from error
    return request


def _ids(trace: bytes, span: bytes, parent: bytes) -> tuple[int, int, int, int]:
    """Both halves of the trace id, the span id and the parent's; 0 where a width is wrong."""
    whole = int.from_bytes(trace, "big") if len(trace) == 16 else 0
    span_id, parent_id = (
        int.from_bytes(raw, "big") if len(raw) == 8 else 0 for raw in (span, parent)
    )
    return whole >> 64, whole & (2**64 - 1), span_id, parent_id


def _events(spans: Sequence[Span]) -> Events:
    owner: list[int] = []
    time_ns, name, attributes = [], [], _Flat()
    for row, span in enumerate(spans):
        for event in span.events:
            attributes.add(len(owner), event.attributes)
            owner.append(row)
            time_ns.append(min(event.time_unix_nano, _MAX_NS))
            name.append(event.name)
    dropped = np.array(
        [event.dropped_attributes_count for span in spans for event in span.events], np.int64
    )
    return Events(
        np.array(owner, np.int64),
        np.array(time_ns, np.int64),
        pa.array(name, pa.string()),
        attributes.columns(),
        dropped,
    )


def _links(spans: Sequence[Span]) -> Links:
    owner: list[int] = []
    ids, whole, attributes = [], [], _Flat()
    for row, span in enumerate(spans):
        for link in span.links:
            attributes.add(len(owner), link.attributes)
            owner.append(row)
            whole.append(len(link.trace_id) == 16 and len(link.span_id) == 8)
            ids.append(_ids(link.trace_id, link.span_id, b"") if whole[-1] else (0, 0, 0, 0))
    hi, lo, span_id = (np.array([words[i] for words in ids], np.uint64) for i in range(3))
    dropped = np.array(
        [link.dropped_attributes_count for span in spans for link in span.links], np.int64
    )
    return Links(
        np.array(owner, np.int64),
        hi,
        lo,
        span_id,
        np.array(whole, np.bool_),
        attributes.columns(),
        dropped,
    )
