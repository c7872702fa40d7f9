"""How do OTLP trace bytes become columns? `decode_spans`: request bodies in, flat columns out, without a Python loop over spans.

Compiled loops (wire.py) read the protobuf bytes once, at about 4 M spans/s of one core; here their columns get names. What those loops do not
know goes to protobuf's own decoder (otlp_spans_upb.py), which is also the slow, obvious decoder that the tests hold this one against.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from overrun.collector.arrays import BoolArray, IntArray
from overrun.collector.decode import wire
from overrun.collector.decode.columns import (
    NOT_A_REQUEST,
    Attributes,
    Events,
    Links,
    RawSpans,
    Source,
    source,
    to_ns,
)
from overrun.collector.decode.otlp_spans_upb import decode_spans as slowly
from overrun.collector.errors import BadPayload

# Descriptions of sources up to this many bytes are remembered: they repeat with every body of a sender.
_REMEMBERED_BYTES = 4_096
# Tables up to this size are kept from call to call: those of 20,000 spans have 15 MB together.
_KEPT_BYTES = 32 << 20


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
    return slowly(bodies)


class _Tables(threading.local):
    """Room for what the compiled loops write, kept from call to call: fresh memory costs the kernel more than they cost."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def get(self, name: str, columns: int, rows: int) -> IntArray:
        """A table of so many columns with room for at least so many rows; it holds whatever was in it."""
        found: IntArray | None = self._kept.get(name)
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

    def pairs(self, name: str, items: int, keys: int) -> tuple[IntArray, IntArray, IntArray]:
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
    if (
        wire.index(data, bounds, nothing, nothing[:, 0], nothing[:, 0], nothing, counts)
        != wire.GOOD
    ):
        return None
    n, n_sources, lone = counts.tolist()
    extents, places = (
        np.empty((max(n, 1), 2), dtype=np.int64),
        np.empty((n_sources + lone, 8), dtype=np.int64),
    )
    body, source = np.empty(max(n, 1), dtype=np.int64), np.empty(max(n, 1), dtype=np.int64)
    wire.index(data, bounds, extents, body, source, places, counts)
    extents, body, source = extents[:n], body[:n], source[:n]
    spans, seen = np.empty((wire.DROPPED_LINKS + 1, n), dtype=np.int64), np.zeros(2, dtype=np.int64)
    # An attribute has 2 bytes at least; in practice it has 20, and few of them are an event's. Bodies of events alone have their own step: the last one
    # fills 260 MB of keys for a body of 4 MB.
    steps = ((16, 8, 4_096), (8, 1, 1 << 16), (2, 1, 1 << len(data).bit_length()))
    for bytes_each, share, n_keys in steps:
        room = len(data) // bytes_each + 64
        of_spans, of_events, of_links = (
            _tables.pairs(f"{owner} attributes", size, n_keys)
            for owner, size in (("span", room), ("event", room // share), ("link", room // share))
        )
        events, links = (
            _tables.get(name, wire.DROPPED + 1, room // share) for name in ("events", "links")
        )
        seen[:] = 0
        outcome = wire.fill(
            data, extents, spans, *of_spans, events, *of_events, links, *of_links, seen
        )
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
        body,
        source,
        sources[:n_sources],
        ids[wire.TRACE_HI],
        ids[wire.TRACE_LO],
        ids[wire.SPAN],
        ids[wire.PARENT],
        words[wire.START],
        words[wire.STOP],
        spans[wire.SPAN_KIND],
        spans[wire.STATUS],
        spans[wire.FLAGS],
        _texts(data, spans[wire.NAME], spans[wire.NAME_END]),
        _texts(data, spans[wire.STATE], spans[wire.STATE_END]),
        _attributes(data, *of_spans),
        Events(
            events[wire.OWNER],
            to_ns(events[wire.TIME].view(np.uint64)),
            _texts(data, events[wire.FIRST], events[wire.END]),
            _attributes(data, *of_events),
            events[wire.DROPPED],
        ),
        Links(
            links[wire.OWNER],
            linked[wire.LINKED_HI],
            linked[wire.LINKED_LO],
            linked[wire.LINKED_SPAN],
            links[wire.WHOLE] != 0,
            _attributes(data, *of_links),
            links[wire.DROPPED],
        ),
        spans[wire.DROPPED_ATTRIBUTES :],
    )


def _texts(
    data: Any, first: IntArray, end: IntArray, valid: BoolArray | None = None
) -> pa.StringArray:
    ends, joined = wire.gather(
        data, first, end, np.ones(len(first), dtype=np.bool_) if valid is None else valid
    )
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(len(first), pa.py_buffer(ends), pa.py_buffer(joined), bitmap)


def _attributes(data: Any, items: IntArray, keys: IntArray, count: IntArray) -> Attributes:
    n, n_keys = int(count[wire.ITEMS]), int(count[wire.KEYS])
    names = [
        data[a:b].tobytes().decode() for a, b in keys[[wire.KEY, wire.KEY_END], :n_keys].T.tolist()
    ]
    items = items[:, :n]
    kind = items[wire.KIND].astype(np.uint8)
    others = np.flatnonzero(kind == wire.OTHER)
    ends, joined = wire.gather(
        data,
        items[wire.FIRST][others],
        items[wire.END][others],
        np.ones(len(others), dtype=np.bool_),
    )
    raw = pa.BinaryArray.from_buffers(
        pa.binary(), len(others), [None, pa.py_buffer(ends), pa.py_buffer(joined)]
    )
    number = items[wire.NUMBER].copy()
    return Attributes(
        items[wire.OWNER].copy(),
        names,
        items[wire.CODE].copy(),
        kind,
        _texts(data, items[wire.FIRST], items[wire.END], kind == wire.STRING),
        number,
        number.view(np.float64),
        others,
        items[wire.MEMBER][others].astype(np.uint8),
        raw,
    )


def _sources(data: Any, places: IntArray) -> list[Source] | None:
    """The source of each scope; None if one is broken."""
    out = []
    for place in places.tolist():
        parts = [
            b"" if first < 0 else data[first:end].tobytes()
            for first, end in zip(place[::2], place[1::2], strict=True)
        ]
        try:
            read = _source if sum(map(len, parts)) <= _REMEMBERED_BYTES else _source.__wrapped__
            out.append(read(*parts))
        except (DecodeError, UnicodeDecodeError):
            return None
    return out


@functools.lru_cache(maxsize=1_024)
def _source(resource: bytes, resource_url: bytes, scope: bytes, scope_url: bytes) -> Source:
    return source(
        Resource.FromString(resource),
        resource_url.decode(),
        InstrumentationScope.FromString(scope),
        scope_url.decode(),
    )
