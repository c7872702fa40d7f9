"""How many items a body becomes, counted on its bytes: against protobuf's own reading, and on what is made to be costly."""

import json

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overrun.collector.decode import items
from overrun.collector.decode.otlp_json import REQUESTS
from tests.benchmarks.hardening import BOMBS, bomb
from tests.collector.conftest import attributes, body, request, span

MOST = 10**9


def elements(message: Message) -> int:
    """The slow count: elements of repeated fields, by weight."""
    found = 0
    for field, value in message.ListFields():
        if field.is_repeated:
            held = field.message_type
            found += len(value) * (items._WEIGHTS.get(held.name, 1) if held is not None else 1)
        if field.message_type is not None:
            found += sum(map(elements, value if field.is_repeated else [value]))
    return found


def test_spans_with_everything_are_counted_as_protobuf_reads_them() -> None:
    odd = span(1, 1, attributes={"a": [1, [2, "x"]], "b": {"c": {"d": None}}, "e": b"\x00"})
    odd.events.add(name="e").attributes.extend(attributes({"k": 1.5}))
    odd.links.add().attributes.extend(attributes({"k": True}))
    sent = request([odd, span(1, 2)])
    # the resource's field counts beside its attributes: these levels are walked field by field
    assert items.count("traces", sent.SerializeToString(), MOST) == elements(sent) + 1


def test_buckets_are_counted_however_they_are_packed() -> None:
    sent = ExportMetricsServiceRequest()
    metric = sent.resource_metrics.add().scope_metrics.add().metrics.add()
    point = metric.histogram.data_points.add(
        bucket_counts=[1] * 50, explicit_bounds=[float(i) for i in range(49)]
    )
    point.exemplars.add().filtered_attributes.extend(attributes({"k": 1}))
    exponential = metric.exponential_histogram  # a oneof: it replaces the histogram
    exponential.data_points.add().positive.bucket_counts.extend([1, 300, 70_000])
    assert elements(sent) == 48 + 8 + 3
    # beside what it holds, a packed field counts as one: it may be empty and come often
    assert items.count("metrics", sent.SerializeToString(), MOST) == elements(sent) + 1


@pytest.mark.parametrize("name", BOMBS)
def test_every_repeated_field_is_counted(name: str) -> None:
    signal, path = BOMBS[name]
    body = bomb(path, size=60_000)
    assert items.count(signal, body, MOST) >= 60_000 // 3 - 1


@pytest.mark.parametrize("name", BOMBS)
def test_counting_ends_soon_after_the_most_that_is_wanted(name: str) -> None:
    signal, path = BOMBS[name]
    assert 1_000 < items.count(signal, bomb(path, size=60_000), 1_000) <= 1_020


@given(st.binary(max_size=300), st.sampled_from(sorted(REQUESTS)))
def test_whatever_the_bytes_counting_ends(data: bytes, signal: str) -> None:
    assert 0 <= items.count(signal, data, MOST) <= 16 * len(data)


@given(st.binary(max_size=40), st.integers(0, 200))
def test_a_broken_body_is_counted_up_to_the_break(tail: bytes, at: int) -> None:
    good = body([span(1, i) for i in range(1, 4)])
    assert items.count("traces", good[:at] + tail, MOST) <= 16 * (at + len(tail))


def test_messages_nested_without_end_are_counted_without_recursion() -> None:
    inner = b""
    for _ in range(3_000):  # an array in an array
        inner = bomb((5, 1), inner, size=len(inner) + 1) or b"\x2a\x02\x0a\x00"
    assert items.count("traces", bomb((1, 2, 2, 9, 2), inner, size=len(inner) + 5), MOST) > 0


def test_json_counts_objects_and_values_but_nothing_in_texts() -> None:
    quiet = json.dumps({"a": 'x,{["\\",' * 1_000}).encode()
    assert items.count_json(quiet) == 1
    assert items.count_json(b"[" + b"{}," * 4_000 + b"{}]") == pytest.approx(3_000, abs=2)
    assert items.count_json(b"[" + b"1," * 4_000 + b"1]") == pytest.approx(1_000, abs=2)
