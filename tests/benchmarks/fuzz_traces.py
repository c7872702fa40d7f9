"""Do the fast and the slow decoder read the same of many bodies? Together, as bodies of one commit are, and by halves down to the body that is read in two ways."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import nested, otlp_spans, otlp_spans_upb, wire
from overrun.collector.decode.columns import Attributes, RawSpans
from overrun.collector.errors import BadPayload
from overrun.collector.normalise.spans import Rules, normalize
from tests.collector.oracle_otlp import plain_columns

RULES = Rules(salt=b"salt")


@dataclass
class Read:
    """What became of each body, by its place: `read 1` (it had a span), `read 0`, `refused` or `crashed`. Those that the decoders read in two ways, and what
    fell over, over which body."""

    said: dict[int, str] = field(default_factory=dict)
    disagreements: list[bytes] = field(default_factory=list)
    crashes: list[tuple[str, bytes]] = field(default_factory=list)


Numbered = list[tuple[int, bytes]]


def decoded(decoder: Any, bodies: list[bytes]) -> RawSpans | None:
    """What a decoder makes of bodies; None where it refuses them (of several: one of them, or one that wants to be decoded alone)."""
    try:
        raw: RawSpans = decoder.decode_spans(bodies)
        nested.check(raw)
    except BadPayload:
        return None
    return raw


def read(bodies: list[bytes]) -> Read:
    """Decode bodies both ways, compare, and normalise them."""
    out = Read()
    together: Numbered = []
    for at, data in enumerate(bodies):
        if _is_message(data):
            together.append((at, data))
        else:  # alone: with one of them no commit is decoded at once
            _alone(at, data, out)
    if together:
        _halves(together, out)
    return out


def _is_message(data: bytes) -> bool:
    try:
        ExportTraceServiceRequest.FromString(data)
    except Exception:  # whatever protobuf has against it
        return False
    return True


def _halves(numbered: Numbered, out: Read) -> None:
    if len(numbered) == 1:
        _alone(*numbered[0], out)
        return
    bodies = [data for _, data in numbered]
    before = len(out.crashes)
    try:
        fast = decoded(otlp_spans, bodies)
        slow = decoded(otlp_spans_upb, bodies) if fast is not None else None
        good = fast is not None and slow is not None and alike(fast, slow)
        if fast is not None and good:
            normalize(fast, RULES)
            spans = np.bincount(fast.body, minlength=len(bodies)).tolist()
            out.said |= {
                at: f"read {min(n, 1)}" for (at, _), n in zip(numbered, spans, strict=True)
            }
            return
    except Exception as error:  # what this looks for
        _split(numbered, out)
        if len(out.crashes) == before:
            out.crashes.append((f"together: {type(error).__name__}: {error}", b"".join(bodies)))
        return
    _split(numbered, out)


def _split(numbered: Numbered, out: Read) -> None:
    middle = len(numbered) // 2
    _halves(numbered[:middle], out)
    _halves(numbered[middle:], out)


def _alone(at: int, data: bytes, out: Read) -> None:
    out.said[at] = "crashed"
    try:
        fast, slow = decoded(otlp_spans, [data]), decoded(otlp_spans_upb, [data])
        if fast is not None:
            normalize(fast, RULES)
    except Exception as error:  # what this looks for
        out.crashes.append((f"traces: {type(error).__name__}: {error}", data))
        return
    if fast is None or slow is None:
        out.said[at] = "refused"
        if fast is not slow:
            out.disagreements.append(data)
        return
    if not alike(fast, slow):
        out.disagreements.append(data)
    out.said[at] = f"read {min(len(fast), 1)}"


def alike(fast: RawSpans, slow: RawSpans) -> bool:
    """Whether two decoders read the same. Column by column first; what is written otherwise and means the same is compared value by value."""
    columns = ("body", "source", "trace_hi", "trace_lo", "span_id", "parent_id", "start", "end")
    same = (
        fast.sources == slow.sources
        and _equal(fast, slow, (*columns, "kind", "status", "flags", "name", "trace_state"))
        and np.array_equal(fast.dropped, slow.dropped)
        and _equal(fast.events, slow.events, ("owner", "time_ns", "name", "dropped"))
        and _equal(
            fast.links,
            slow.links,
            ("owner", "trace_hi", "trace_lo", "span_id", "whole_ids", "dropped"),
        )
        and all(
            _same_attributes(a, b)
            for a, b in (
                (fast.attributes, slow.attributes),
                (fast.events.attributes, slow.events.attributes),
                (fast.links.attributes, slow.links.attributes),
            )
        )
    )
    return same or plain_columns(fast) == plain_columns(slow)


def _equal(one: Any, other: Any, names: tuple[str, ...]) -> bool:
    for name in names:
        a, b = getattr(one, name), getattr(other, name)
        if not (a.equals(b) if isinstance(a, pa.Array) else np.array_equal(a, b)):
            return False
    return True


def _same_attributes(a: Attributes, b: Attributes) -> bool:
    if not _equal(a, b, ("owner", "kind", "text", "other_at", "other_member", "others")):
        return False
    whole = np.isin(a.kind, (wire.INT, wire.BOOL))
    broken = a.kind == wire.DOUBLE
    return (
        [a.keys[code] for code in a.code.tolist()] == [b.keys[code] for code in b.code.tolist()]
        and np.array_equal(a.number[whole], b.number[whole])
        and np.array_equal(a.fraction[broken].view(np.int64), b.fraction[broken].view(np.int64))
    )
