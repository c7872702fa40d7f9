"""What is told of a recording depends on its spans alone: not on how senders and collectors between put them into bodies, in which order these come, how often,
or what was assembled meanwhile."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.collector.ingest.writer import TRACES
from tests.collector.oracle_otlp import bodies
from tests.collector.oracle_store import Held, held, pipeline, send

RECORDINGS = ("vllm-joined", "openinference-langgraph-double", "vercel-ai-sdk", "litellm-sdk")
Sent = tuple[Resource, InstrumentationScope, Span]


@functools.cache
def spans(name: str) -> tuple[Sent, ...]:
    """The spans of a recording by start, each with where it comes from."""
    found = [
        (by_resource.resource, by_scope.scope, span)
        for body in bodies(name)
        for by_resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for by_scope in by_resource.scope_spans
        for span in by_scope.spans
    ]
    return tuple(sorted(found, key=lambda sent: sent[2].start_time_unix_nano))


def body(sent: list[Sent]) -> bytes:
    """One body, a resource and a scope for each span, its attributes in another order."""
    request = ExportTraceServiceRequest()
    for resource, scope, span in sent:
        into = request.resource_spans.add()
        into.resource.CopyFrom(resource)
        by_scope = into.scope_spans.add()
        by_scope.scope.CopyFrom(scope)
        moved = by_scope.spans.add()
        moved.CopyFrom(span)
        del moved.attributes[:]
        moved.attributes.extend(reversed(span.attributes))
    return request.SerializeToString()


def shuffled(sent: list[Sent]) -> list[list[Sent]]:
    return [random.Random(7).sample(sent, len(sent))]


def as_they_end(sent: list[Sent]) -> list[list[Sent]]:
    """In eight bodies by end, as batching exporters send them: children before their parents."""
    sent.sort(key=lambda one: one[2].end_time_unix_nano)
    size = -(-len(sent) // 8)
    return [sent[at : at + size] for at in range(0, len(sent), size)]


def again(sent: list[Sent]) -> list[list[Sent]]:
    """The requests' spans first, then the others; then half of all once more, in another body."""
    return [
        [s for s in sent if not s[2].parent_span_id],
        [s for s in sent if s[2].parent_span_id],
        sent[::2],
    ]


def told(of: Held) -> list[list[str]]:
    """Rows as text, without salted hashes and the attributes that no column took, whose order is the sender's."""
    return [
        sorted(
            repr(
                {key: value for key, value in row.items() if key not in ("user_hash", "attributes")}
            )
            for row in rows
        )
        for rows in (of.calls, of.requests, of.spans)
    ]


@functools.cache
def as_sent(name: str) -> list[list[str]]:
    with pipeline() as one:
        send(one, bodies(name))
        return told(held(one))


@pytest.mark.parametrize("put", [shuffled, as_they_end, again], ids=lambda put: str(put.__name__))
@pytest.mark.parametrize("name", RECORDINGS)
def test_calls_requests_and_spans_are_the_same(
    name: str, put: Callable[[list[Sent]], list[list[Sent]]]
) -> None:
    with pipeline() as one:
        for part in put(list(spans(name))):
            one.writer.submit(TRACES, body(part)).result()
            one.drain()
        assert told(held(one)) == as_sent(name)
