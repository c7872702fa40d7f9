"""The fast decoder reads what protobuf's own decoder reads, and broken bytes are refused, never a crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overrun.collector.decode import columns, nested, otlp_spans, otlp_spans_upb
from overrun.collector.decode.columns import MAX_VALUE_DEPTH, RawSpans
from overrun.collector.errors import BadPayload
from tests.collector import oracle_otlp as otlp

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=70
)


def test_the_fixture_has_all_recordings() -> None:
    assert len(otlp.RECORDINGS) == 17


@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_both_decoders_agree_on_every_recorded_body(name: str) -> None:
    bodies = otlp.bodies(name)
    assert otlp.plain_columns(otlp_spans.decode_spans(bodies)) == otlp.plain_columns(
        otlp_spans_upb.decode_spans(bodies)
    )
    for body in bodies:
        assert otlp.plain_columns(otlp_spans.decode_spans([body])) == otlp.plain_columns(
            otlp_spans_upb.decode_spans([body])
        )


def test_ids_do_not_hold_what_else_was_read() -> None:
    """They are kept until their traces are assembled, for every span of the last seconds."""
    found = otlp_spans.decode_spans(otlp.bodies(otlp.RECORDINGS[0]))
    table = found.trace_hi.base
    assert isinstance(table, np.ndarray)
    assert found.span_id.base is table
    assert (table.nbytes, found.start.base is table) == (4 * 8 * len(found), False)


@SETTINGS
@given(st.lists(otlp.requests(), max_size=3))
def test_both_decoders_agree_on_any_request(requests: list[ExportTraceServiceRequest]) -> None:
    bodies = [request.SerializeToString() for request in requests]
    assert otlp.plain_columns(otlp_spans.decode_spans(bodies)) == otlp.plain_columns(
        otlp_spans_upb.decode_spans(bodies)
    )


@pytest.mark.parametrize("bodies", [[], [b""], [b"", b""]])
def test_nothing_sent_is_nothing_decoded(bodies: list[bytes]) -> None:
    for decoder in (otlp_spans, otlp_spans_upb):
        assert len(decoder.decode_spans(bodies)) == 0


def _outcome(decoder: object, body: bytes) -> RawSpans | None:
    try:
        raw: RawSpans = decoder.decode_spans([body])  # type: ignore[attr-defined]
        nested.check(raw)
    except BadPayload as error:
        assert error.http_status == 400
        return None
    return raw


def _read_alike(body: bytes) -> None:
    """Refused by both, or read alike."""
    fast, slow = _outcome(otlp_spans, body), _outcome(otlp_spans_upb, body)
    assert (fast is None) == (slow is None)
    if fast is not None and slow is not None:
        assert otlp.plain_columns(fast) == otlp.plain_columns(slow)


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def _field(number: int, wire_type: int, content: bytes) -> bytes:
    size = _varint(len(content)) if wire_type == 2 else b""
    return _varint(number << 3 | wire_type) + size + content


def _request(span: bytes, scope_spans: bytes = b"", resource_spans: bytes = b"") -> bytes:
    """A request of one span and whatever else stands beside it."""
    return _field(1, 2, resource_spans + _field(2, 2, scope_spans + _field(2, 2, span)))


_SPAN = (
    _field(1, 2, b"\1" * 16)
    + _field(2, 2, b"\2" * 8)
    + _field(5, 2, b"name")
    + _field(7, 1, b"\1" * 8)
    + _field(8, 1, b"\2" * 8)
)
_KEY = _field(1, 2, b"key")
# What protobuf allows and no sender writes, or what it forbids.
_UNUSUAL = {
    "a span's name twice": _SPAN + _field(5, 2, b"later"),
    "a status twice": _SPAN
    + _field(15, 2, _field(3, 0, b"\2"))
    + _field(15, 2, _field(2, 2, b"message")),
    "a value set twice": _SPAN
    + _field(9, 2, _KEY + _field(2, 2, _field(1, 2, b"text") + _field(3, 0, b"\7"))),
    "a value in two parts": _SPAN
    + _field(9, 2, _KEY + _field(2, 2, _field(1, 2, b"text")) + _field(2, 2, _field(3, 0, b"\7"))),
    "an array in two parts": _SPAN
    + _field(
        9,
        2,
        _KEY
        + _field(
            2, 2, _field(5, 2, _field(1, 2, _field(3, 0, b"\1"))) + _field(5, 2, _field(1, 2, b""))
        ),
    ),
    "a key twice": _SPAN + _field(9, 2, _KEY + _field(1, 2, b"other")),
    "a key that is not UTF-8": _SPAN + _field(9, 2, _field(1, 2, b"k\xff")),
    "a value that is not UTF-8": _SPAN
    + _field(9, 2, _KEY + _field(2, 2, _field(1, 2, b"\xed\xa0\x80"))),
    "a value of four-byte characters": _SPAN
    + _field(9, 2, _KEY + _field(2, 2, _field(1, 2, "\U0010ffffé\u0800".encode()))),
    "a status message that is not UTF-8": _SPAN + _field(15, 2, _field(2, 2, b"\xc0\xaf")),
    "a state that is not UTF-8": _SPAN + _field(3, 2, b"\xf5\x80\x80\x80"),
    "a name of a number's type": _SPAN + _field(5, 0, b"\7"),
    "flags of a number's type": _SPAN + _field(16, 0, b"\7"),
    "a kind of a text's type": _SPAN + _field(6, 2, b"\3"),
    "a negative kind": _SPAN + _field(6, 0, b"\xff" * 9 + b"\1"),
    "a kind beyond 32 bits": _SPAN + _field(6, 0, _varint(2**40 + 3)),
    "a number of eleven bytes": _SPAN + _field(6, 0, b"\xff" * 10 + b"\1"),
    "a number whose tenth byte is too large": _SPAN + _field(6, 0, b"\xff" * 9 + b"\x7f"),
    "a number longer than needed": _SPAN + _field(6, 0, b"\x83\x80\x80\x00"),
    "a tag longer than needed": _SPAN + b"\xb0\x80\x00\x03",
    "an unknown group": _SPAN + _field(99, 3, b"") + _field(1, 0, b"\1") + _field(99, 4, b""),
    "a group closed by another": _SPAN + _field(99, 3, b"") + _field(98, 4, b""),
    "an end without a group": _SPAN + _field(99, 4, b""),
    "a field of number 0": _SPAN + b"\x02\x00",
    "a wire type that there is not": _SPAN + b"\x56\x00",
    "unknown fields of each type": _SPAN
    + _field(900, 0, b"\1")
    + _field(901, 1, b"\1" * 8)
    + _field(902, 2, b"\xff")
    + _field(903, 5, b"\1" * 4),
    "unknown fields in a value": _SPAN
    + _field(
        9,
        2,
        _KEY + _field(2, 2, _field(20, 2, b"\xff") + _field(2, 0, b"\2")) + _field(7, 5, b"\1" * 4),
    ),
    "a string of another table": _SPAN + _field(9, 2, _KEY + _field(2, 2, _field(8, 0, b"\5"))),
    "a length beyond the body": _SPAN + b"\x2a\x7f",
    "a length beyond all bounds": _SPAN + b"\x2a" + b"\xff" * 9 + b"\1",
    "a time cut short": _SPAN + b"\x39\1\1",
    "ids of wrong widths": _field(1, 2, b"\1" * 15)
    + _field(2, 2, b"\2" * 9)
    + _field(13, 2, _field(1, 2, b"\1" * 16) + _field(2, 2, b"\1")),
    "counts beyond 32 bits": _SPAN
    + _field(10, 0, _varint(2**40 + 3))
    + _field(12, 0, b"\xff" * 9 + b"\1")
    + _field(14, 0, b"\x83\x80\x00"),
    "counts of a text's type": _SPAN
    + _field(12, 2, b"\3")
    + _field(11, 2, _field(4, 2, b"\3"))
    + _field(13, 2, _field(5, 5, b"\3" * 4)),
    "an event without anything": _SPAN
    + _field(11, 2, b"")
    + _field(13, 2, b"")
    + _field(9, 2, b""),
    "an event's name that is not UTF-8": _SPAN + _field(11, 2, _field(2, 2, b"\x80")),
    "a link's state that is not UTF-8": _SPAN + _field(13, 2, _field(3, 2, b"\xe0\x80\x80")),
}


@pytest.mark.parametrize("span", _UNUSUAL.values(), ids=_UNUSUAL)
def test_what_is_unusual_is_read_or_refused_as_protobuf_does_it(span: bytes) -> None:
    _read_alike(_request(span))


@pytest.mark.parametrize(
    ("scope_spans", "resource_spans"),
    [
        (_field(1, 2, _field(1, 2, b"one")) * 2, b""),
        (b"", _field(1, 2, _field(1, 2, _KEY)) * 2),
        (_field(1, 2, b"\xff"), b""),
        (b"", _field(1, 2, b"\x0a")),
        (_field(3, 2, b"\xff"), b""),
        (b"", _field(3, 2, b"\xff")),
        (_field(3, 2, b"a") + _field(3, 2, b"b"), _field(3, 2, b"c")),
        (_field(3, 2, b"\xff") + _field(3, 2, b"b"), b""),
        (b"", _field(3, 2, b"\xff") + _field(3, 2, b"b")),
        (_field(1, 0, b"\1"), b""),
        (b"", _field(1, 5, b"\1" * 4)),
        (_field(77, 2, b"x"), _field(78, 0, b"\1")),
    ],
)
def test_an_unusual_source_is_read_or_refused_as_protobuf_does_it(
    scope_spans: bytes, resource_spans: bytes
) -> None:
    _read_alike(_request(_SPAN, scope_spans, resource_spans))


@SETTINGS
@given(otlp.requests(), st.integers(0, 2**32), st.binary(max_size=3), st.integers(0, 4))
def test_bytes_that_were_cut_or_overwritten_are_read_or_refused_as_protobuf_does_it(
    request: ExportTraceServiceRequest, at: int, put: bytes, cut: int
) -> None:
    body = request.SerializeToString()
    at %= len(body) + 1
    _read_alike(body[:at] + put + body[at + cut :])


def test_more_attributes_and_keys_than_usual_are_all_read() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    for i in range(5_000):
        span.attributes.add(key=f"{i:x}")
    for _ in range(5_000):
        span.events.add()
        span.links.add()
    _read_alike(request.SerializeToString())


def test_keys_made_to_collide_are_read_all_the_same() -> None:
    hashes: dict[int, list[bytes]] = {}
    for i in range(60_000):
        key, spot = f"{i:04x}".encode(), 1469598103934665603
        for byte in key:
            spot = (spot ^ byte) * 1099511628211 % 2**64
        hashes.setdefault((spot ^ spot >> 32) % 4_096, []).append(key)
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    for key in max(hashes.values(), key=len)[:100]:
        span.attributes.add(key=key.decode()).value.int_value = 1
    _read_alike(request.SerializeToString())


def _arrays(depth: int) -> AnyValue:
    value = AnyValue(string_value="leaf")
    for _ in range(depth):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    return value


def _maps(depth: int) -> AnyValue:
    value = AnyValue(string_value="leaf")
    for _ in range(depth):
        outer = AnyValue()
        outer.kvlist_value.values.add(key="k", value=value)
        value = outer
    return value


def _in_span(value: AnyValue) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.add(key="r", value=value)
    resource_spans.scope_spans.add().spans.add(attributes=[KeyValue(key="k", value=value)])
    return request.SerializeToString()


@pytest.mark.parametrize("build", [_arrays, _maps])
@pytest.mark.parametrize(
    "depth", [1, 2, MAX_VALUE_DEPTH - 1, MAX_VALUE_DEPTH, MAX_VALUE_DEPTH + 1, MAX_VALUE_DEPTH + 5]
)
def test_a_value_is_cut_at_the_same_depth_by_every_way_of_reading_it(
    build: Callable[[int], AnyValue], depth: int
) -> None:
    value = build(depth)
    raw = otlp_spans.decode_spans([_in_span(value)])
    expected = columns.any_value(value)
    assert raw.attributes.other(0) == expected
    assert raw.sources[0].resource == (("r", expected),)
    assert ("leaf" in repr(expected)) == (depth <= MAX_VALUE_DEPTH)


@pytest.mark.parametrize("build", [_arrays, _maps])
def test_a_value_nested_beyond_reason_is_refused(build: Callable[[int], AnyValue]) -> None:
    # Protobuf itself stops at 100 messages deep, so such bytes can only be made by hand: wrap the bytes, not the objects.
    body = build(20).SerializeToString()
    for _ in range(2_000):
        tag = b"\x2a" if build is _arrays else b"\x32"
        if build is _maps:
            body = b"\x0a\x01k\x12" + _varint(len(body)) + body
        body = b"\x0a" + _varint(len(body)) + body
        body = tag + _varint(len(body)) + body
    pair = b"\x0a\x01k\x12" + _varint(len(body)) + body
    span = b"\x4a" + _varint(len(pair)) + pair
    for tag in (b"\x12", b"\x12", b"\x0a"):  # scope spans, resource spans, request
        span = tag + _varint(len(span)) + span
    assert _outcome(otlp_spans, span) is None
    assert _outcome(otlp_spans_upb, span) is None


def test_times_after_2262_are_cut_to_the_last_that_fits() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(start_time_unix_nano=2**64 - 1)
    span.events.add(time_unix_nano=2**63)
    for decoder in (otlp_spans, otlp_spans_upb):
        raw = decoder.decode_spans([request.SerializeToString()])
        assert columns.to_ns(raw.start).tolist() == [2**63 - 1]
        assert raw.events.time_ns.tolist() == [2**63 - 1]


def test_what_limits_of_the_sender_took_is_decoded() -> None:
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(
            trace_id=b"\1" * 16,
            span_id=b"\1" * 8,
            dropped_attributes_count=1,
            dropped_events_count=872,
            dropped_links_count=3,
        )
    )
    span.events.add(dropped_attributes_count=4)
    span.links.add(dropped_attributes_count=5)
    request.resource_spans[0].resource.dropped_attributes_count = 6
    for decoder in (otlp_spans, otlp_spans_upb):
        raw = decoder.decode_spans([request.SerializeToString()])
        assert raw.dropped.tolist() == [[1], [872], [3]]
        assert (raw.events.dropped.tolist(), raw.links.dropped.tolist()) == ([4], [5])
        assert raw.sources[0].resource == (("otel.dropped_attributes_count", 6),)


def test_one_bad_body_fails_the_call_so_that_the_culprit_can_be_found_alone() -> None:
    good, bad = otlp.bodies("vllm-joined")[0], b"\x0a\xff"
    for decoder in (otlp_spans, otlp_spans_upb):
        with pytest.raises(BadPayload, match="not an OTLP trace export request"):
            decoder.decode_spans([good, bad, good])
        assert len(decoder.decode_spans([good])) == 40
