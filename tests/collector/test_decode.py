"""The fast decoder reads what protobuf's own decoder reads, and broken bytes are refused, never a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.descriptor import Descriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from collector import decode, decode_upb, nested
from collector.decode import MAX_VALUE_DEPTH, RawSpans
from collector.errors import BadPayload
from tests.collector import oracle_otlp as otlp

SETTINGS = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=70)


def test_the_fixture_has_all_recordings() -> None:
    assert len(otlp.RECORDINGS) == 17


@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_both_decoders_agree_on_every_recorded_body(name: str) -> None:
    bodies = otlp.bodies(name)
    assert otlp.plain_columns(decode.decode_spans(bodies)) == otlp.plain_columns(decode_upb.decode_spans(bodies))
    for body in bodies:
        assert otlp.plain_columns(decode.decode_spans([body])) == otlp.plain_columns(decode_upb.decode_spans([body]))


@SETTINGS
@given(st.lists(otlp.requests(), max_size=3))
def test_both_decoders_agree_on_any_request(requests: list[ExportTraceServiceRequest]) -> None:
    bodies = [request.SerializeToString() for request in requests]
    assert otlp.plain_columns(decode.decode_spans(bodies)) == otlp.plain_columns(decode_upb.decode_spans(bodies))


@pytest.mark.parametrize("bodies", [[], [b""], [b"", b""]])
def test_nothing_sent_is_nothing_decoded(bodies: list[bytes]) -> None:
    for decoder in (decode, decode_upb):
        assert len(decoder.decode_spans(bodies)) == 0


def _outcome(decoder: object, body: bytes) -> RawSpans | None:
    try:
        raw: RawSpans = decoder.decode_spans([body])  # type: ignore[attr-defined]
        nested.check(raw)
    except BadPayload as error:
        assert error.http_status == 400
        return None
    return raw


def _check(body: bytes) -> None:
    """Refused by both, or read alike. One flaw the fast one may overlook: an unknown group, a thing of protobuf's past that no OTLP sender writes,
    closed by another number than it was opened with (it is skipped)."""
    fast, slow = _outcome(decode, body), _outcome(decode_upb, body)
    if fast is not None and slow is not None:
        assert otlp.plain_columns(fast) == otlp.plain_columns(slow)
    elif fast is not None:
        assert _overlooked(ExportTraceServiceRequest.DESCRIPTOR, body)


def _overlooked(message: Descriptor, body: bytes) -> bool:
    """Whether the bytes, as far as they can be followed, hold a group."""
    at = 0
    while at < len(body):
        tag, at = _read_varint(body, at)
        number, wire = tag >> 3, tag & 7
        if wire in (3, 4):
            return True
        if wire == 0:
            _, at = _read_varint(body, at)
        elif wire == 2:
            size, at = _read_varint(body, at)
            field = message.fields_by_number.get(number)
            inner = body[at : at + size]
            if field is not None and field.message_type is not None and _overlooked(field.message_type, inner):
                return True
            at += size
        else:
            at += {1: 8, 5: 4}.get(wire, len(body))
    return False


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while at < len(body):
        value |= (body[at] & 127) << shift
        shift += 7
        at += 1
        if not body[at - 1] & 128:
            break
    return value, at


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
@pytest.mark.parametrize("depth", [1, 2, MAX_VALUE_DEPTH - 1, MAX_VALUE_DEPTH, MAX_VALUE_DEPTH + 1, MAX_VALUE_DEPTH + 5])
def test_a_value_is_cut_at_the_same_depth_by_every_way_of_reading_it(build: Callable[[int], AnyValue], depth: int) -> None:
    value = build(depth)
    raw = decode.decode_spans([_in_span(value)])
    expected = decode.any_value(value)
    assert decode.plain(raw.attributes.value[0].as_py()) == expected
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
    assert _outcome(decode, span) is None
    assert _outcome(decode_upb, span) is None


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def test_times_after_2262_are_cut_to_the_last_that_fits() -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(start_time_unix_nano=2**64 - 1)
    span.events.add(time_unix_nano=2**63)
    for decoder in (decode, decode_upb):
        raw = decoder.decode_spans([request.SerializeToString()])
        assert decode.to_ns(raw.span.field("start_time_unix_nano")).tolist() == [2**63 - 1]
        assert raw.events.time_ns.tolist() == [2**63 - 1]


def test_one_bad_body_fails_the_call_so_that_the_culprit_can_be_found_alone() -> None:
    good, bad = otlp.bodies("vllm-joined")[0], b"\x0a\xff"
    for decoder in (decode, decode_upb):
        with pytest.raises(BadPayload, match="not an OTLP trace export request"):
            decoder.decode_spans([good, bad, good])
        assert len(decoder.decode_spans([good])) == 40
