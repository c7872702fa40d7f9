"""How do OTLP trace bytes become columns? `decode_spans`: request bodies in, flat columns out, without a Python loop over spans.

Compiled loops (wire.py) read the protobuf bytes once, at about 4 M spans/s of one core; here their columns get names. What those loops do not
know goes to protobuf's own decoder (otlp_spans_upb.py), which is also the slow, obvious decoder that the tests hold this one against.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValueList
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from overrun.collector.decode import wire
from overrun.collector.errors import BadPayload

Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

# Deeper nesting than this in an attribute value is cut to null, whatever the settings allow (normalise/limits.py): Python's own recursion has to hold.
MAX_VALUE_DEPTH = 24
BROKEN_VALUE = "a value inside an array or map is broken, not UTF-8, or nested more than a hundred deep"
NOT_A_REQUEST = "the body is not an OTLP trace export request in protobuf"
# Under which keys the counts of what a sender's limits took are stored, of attributes, events and links: OpenTelemetry's own for formats without such fields.
DROPPED_KEYS = ("otel.dropped_attributes_count", "otel.dropped_events_count", "otel.dropped_links_count")
ARRAY, MAP, BLOB = 5, 6, 7  # field numbers of AnyValue: what `Attributes.others` holds
# Descriptions of sources up to this many bytes are remembered: they repeat with every body of a sender.
_REMEMBERED_BYTES = 4_096
# Tables up to this size are kept from call to call: those of 20,000 spans have 15 MB together.
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of many owners, flat: attribute i belongs to row owner[i] and has the key keys[code[i]].

    `kind` (wire.NOTHING ... wire.OTHER) says where its value stands: in `text` (null for the rest), as a whole number or a boolean (0 or 1) in `number`,
    as a fraction in `fraction` (both may share their memory). Arrays, maps and bytes stand in `others`, as protobuf bytes without their tag; others[j]
    is the value of attribute other_at[j].
    """

    owner: Ints
    keys: list[str]
    code: Ints
    kind: Bytes
    text: pa.StringArray
    number: Ints
    fraction: np.ndarray[Any, np.dtype[np.float64]]
    other_at: Ints
    other_member: Bytes
    others: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.owner)

    def other(self, at: int) -> Any:
        """The array, map or bytes of attribute `at` as a Python value; None if it is none of them."""
        j = int(np.searchsorted(self.other_at, at))
        if j == len(self.other_at) or self.other_at[j] != at:
            return None
        return nested(int(self.other_member[j]), self.others[j].as_py())


@dataclass(frozen=True, slots=True)
class Events:
    """Span events, flat; owner[i] is the row of the span. `dropped` says how many attributes the sender's limits took from each."""

    owner: Ints
    time_ns: Ints
    name: pa.StringArray
    attributes: Attributes
    dropped: Ints


@dataclass(frozen=True, slots=True)
class Links:
    """Span links, flat; owner[i] is the row of the span. `whole_ids` says where both ids have their width; elsewhere they are 0. `dropped` as of events."""

    owner: Ints
    trace_hi: Words
    trace_lo: Words
    span_id: Words
    whole_ids: Bools
    attributes: Attributes
    dropped: Ints


@dataclass(frozen=True, slots=True)
class Source:
    """What all spans of one resource and scope have in common; attribute values are plain Python values."""

    resource: tuple[tuple[str, Any], ...]
    scope_name: str
    scope_version: str
    scope: tuple[tuple[str, Any], ...]
    resource_schema_url: str
    scope_schema_url: str


@dataclass(frozen=True, slots=True)
class RawSpans:
    """n spans as sent: `body` and `source` are indices per span. An id that has not its width is 0, which is no id; times are unsigned, as sent.

    `dropped` has three rows: how many attributes, events and links each span lost to its sender's limits.
    """

    body: Ints
    source: Ints
    sources: list[Source]
    trace_hi: Words
    trace_lo: Words
    span_id: Words
    parent_id: Words
    start: Words
    end: Words
    kind: Ints
    status: Ints
    flags: Ints
    name: pa.StringArray
    trace_state: pa.StringArray
    attributes: Attributes
    events: Events
    links: Links
    dropped: Ints

    def __len__(self) -> int:
        return len(self.body)


def decode_spans(bodies: Sequence[bytes]) -> RawSpans:
    """Flatten ExportTraceServiceRequest bodies.

    Raises:
        BadPayload: one of the bodies is not such a message, or so unusual that it wants to be decoded alone (the whole call fails: decode one by one).
    """
    found = _read(bodies)
    if found is not None:
        return found
    if len(bodies) > 1:
        raise BadPayload(f"{NOT_A_REQUEST}, or an unusual one")
    from overrun.collector.decode.otlp_spans_upb import decode_spans as slowly

    return slowly(bodies)


class _Tables(threading.local):
    """Room for what the compiled loops write, kept from call to call: fresh memory costs the kernel more than they cost."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def get(self, name: str, columns: int, rows: int) -> Ints:
        """A table of so many columns with room for at least so many rows; it holds whatever was in it."""
        found: Ints | None = self._kept.get(name)
        if found is None or found.shape[1] < rows:
            found = np.empty((columns, rows + rows // 4), dtype=np.int64)
            if found.nbytes <= _KEPT_BYTES:
                self._kept[name] = found
        return found

    def joined(self, bodies: Sequence[bytes], size: int) -> Any:
        """The bodies one behind the other."""
        out = self.get("bytes", 1, size // 8 + 1).view(np.uint8)[0, :size]
        at = 0
        for body in bodies:
            out[at : at + len(body)] = np.frombuffer(body, dtype=np.uint8)
            at += len(body)
        return out

    def pairs(self, name: str, items: int, keys: int) -> tuple[Ints, Ints, Ints]:
        """Tables for so many attributes and half as many keys as `keys`, a power of two."""
        table = np.empty((wire.GUESS + 1, keys + 1), dtype=np.int64)
        table[wire.SLOT], table[wire.GUESS] = -1, 0
        return self.get(name, wire.MEMBER + 1, items), table, np.zeros(3, dtype=np.int64)


_tables = _Tables()


def _read(bodies: Sequence[bytes]) -> RawSpans | None:
    """The spans; None if something in the bodies is unusual."""
    bounds = np.cumsum([0, *map(len, bodies)])
    data = _tables.joined(bodies, int(bounds[-1]))
    counts = np.zeros(3, dtype=np.int64)
    nothing = np.empty((0, 2), dtype=np.int64)
    if wire.index(data, bounds, nothing, nothing[:, 0], nothing[:, 0], nothing, counts) != wire.GOOD:
        return None
    n, n_sources, lone = counts.tolist()
    extents, places = np.empty((max(n, 1), 2), dtype=np.int64), np.empty((n_sources + lone, 8), dtype=np.int64)
    body, source = np.empty(max(n, 1), dtype=np.int64), np.empty(max(n, 1), dtype=np.int64)
    wire.index(data, bounds, extents, body, source, places, counts)
    extents, body, source = extents[:n], body[:n], source[:n]
    spans, seen = np.empty((wire.DROPPED_LINKS + 1, n), dtype=np.int64), np.zeros(2, dtype=np.int64)
    # An attribute has 2 bytes at least; in practice it has 20, and few of them are an event's.
    for bytes_each, share, n_keys in ((16, 8, 4_096), (2, 1, 1 << len(data).bit_length())):
        room = len(data) // bytes_each + 64
        of_spans, of_events, of_links = (_tables.pairs(f"{owner} attributes", size, n_keys)
                                         for owner, size in (("span", room), ("event", room // share), ("link", room // share)))
        events, links = (_tables.get(name, wire.DROPPED + 1, room // share) for name in ("events", "links"))
        seen[:] = 0
        outcome = wire.fill(data, extents, spans, *of_spans, events, *of_events, links, *of_links, seen)
        if outcome != wire.FULL:
            break
    sources = _sources(data, places)
    if outcome != wire.GOOD or sources is None:
        return None
    events, links = events[:, : seen[0]].copy(), links[:, : seen[1]].copy()
    # Rows are kept for seconds until their traces are assembled: their ids must not hold the whole table.
    ids = spans[: wire.START].view(np.uint64).copy()
    words, linked = spans.view(np.uint64), links.view(np.uint64)
    return RawSpans(
        body, source, sources[:n_sources],
        ids[wire.TRACE_HI], ids[wire.TRACE_LO], ids[wire.SPAN], ids[wire.PARENT], words[wire.START], words[wire.STOP],
        spans[wire.SPAN_KIND], spans[wire.STATUS], spans[wire.FLAGS],
        _texts(data, spans[wire.NAME], spans[wire.NAME_END]), _texts(data, spans[wire.STATE], spans[wire.STATE_END]), _attributes(data, *of_spans),
        Events(events[wire.OWNER], to_ns(events[wire.TIME].view(np.uint64)), _texts(data, events[wire.FIRST], events[wire.END]), _attributes(data, *of_events),
               events[wire.DROPPED]),
        Links(links[wire.OWNER], linked[wire.LINKED_HI], linked[wire.LINKED_LO], linked[wire.LINKED_SPAN], links[wire.WHOLE] != 0,
              _attributes(data, *of_links), links[wire.DROPPED]),
        spans[wire.DROPPED_ATTRIBUTES :])


def _texts(data: Any, first: Ints, end: Ints, valid: Bools | None = None) -> pa.StringArray:
    ends, joined = wire.gather(data, first, end, np.ones(len(first), dtype=np.bool_) if valid is None else valid)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(len(first), pa.py_buffer(ends), pa.py_buffer(joined), bitmap)


def _attributes(data: Any, items: Ints, keys: Ints, count: Ints) -> Attributes:
    n, n_keys = int(count[wire.ITEMS]), int(count[wire.KEYS])
    names = [data[a:b].tobytes().decode() for a, b in keys[[wire.KEY, wire.KEY_END], :n_keys].T.tolist()]
    items = items[:, :n]
    kind = items[wire.KIND].astype(np.uint8)
    others = np.flatnonzero(kind == wire.OTHER)
    ends, joined = wire.gather(data, items[wire.FIRST][others], items[wire.END][others], np.ones(len(others), dtype=np.bool_))
    raw = pa.BinaryArray.from_buffers(pa.binary(), len(others), [None, pa.py_buffer(ends), pa.py_buffer(joined)])
    number = items[wire.NUMBER].copy()
    return Attributes(items[wire.OWNER].copy(), names, items[wire.CODE].copy(), kind, _texts(data, items[wire.FIRST], items[wire.END], kind == wire.STRING),
                      number, number.view(np.float64), others, items[wire.MEMBER][others].astype(np.uint8), raw)


def _sources(data: Any, places: Ints) -> list[Source] | None:
    """The source of each scope; None if one is broken."""
    out = []
    for place in places.tolist():
        parts = [b"" if first < 0 else data[first:end].tobytes() for first, end in zip(place[::2], place[1::2], strict=True)]
        try:
            read = _source if sum(map(len, parts)) <= _REMEMBERED_BYTES else _source.__wrapped__
            out.append(read(*parts))
        except (DecodeError, UnicodeDecodeError):
            return None
    return out


@functools.lru_cache(maxsize=1_024)
def _source(resource: bytes, resource_url: bytes, scope: bytes, scope_url: bytes) -> Source:
    return source(Resource.FromString(resource), resource_url.decode(), InstrumentationScope.FromString(scope), scope_url.decode())


def source(resource: Resource, resource_url: str, scope: InstrumentationScope, scope_url: str) -> Source:
    """A resource and a scope of it as plain values."""
    of_resource, of_scope = (
        tuple((a.key, any_value(a.value)) for a in owner.attributes) + (((DROPPED_KEYS[0], n),) if (n := owner.dropped_attributes_count) else ())
        for owner in (resource, scope))
    return Source(of_resource, scope.name, scope.version, of_scope, resource_url, scope_url)


def to_ns(times: Words) -> Ints:
    """OTLP's fixed64 nanoseconds as signed 64-bit; what does not fit (after the year 2262) is cut to the largest value."""
    return np.minimum(times, np.uint64(2**63 - 1)).astype(np.int64)


def nested(member: int, raw: bytes) -> Any:
    """The content of an AnyValue's ARRAY, MAP or BLOB as a Python value.

    Raises:
        BadPayload: the bytes are broken, not UTF-8, or nested more than a hundred deep.
    """
    if member == BLOB:
        return raw
    try:
        if member == ARRAY:
            return [any_value(item, 1) for item in ArrayValue.FromString(raw).values]
        return {item.key: any_value(item.value, 1) for item in KeyValueList.FromString(raw).values}
    except DecodeError as error:
        raise BadPayload(BROKEN_VALUE) from error


def any_value(value: AnyValue, depth: int = 0) -> Any:
    """A protobuf AnyValue as a Python value; deeper than MAX_VALUE_DEPTH it is None."""
    kind = value.WhichOneof("value")
    if kind is None or depth > MAX_VALUE_DEPTH:
        return None
    if kind == "array_value":
        return [any_value(item, depth + 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: any_value(item.value, depth + 1) for item in value.kvlist_value.values}
    return getattr(value, kind)
