"""What is told of a recording does not change by what happens to spans on their way here: a sender or a collector in between that speaks JSON, puts values into
strings, writes keys with underscores, sends traces in pieces minutes apart and some of them again, and processes whose clocks differ by seconds."""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import zstandard
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from overrun.collector.decode import otlp_json
from tests.collector.dialects.test_instrumentations import FIELDS, FOLDERS, SENDERS
from tests.collector.ingest.test_order import Sent, body
from tests.collector.oracle_store import Held, held, pipeline, send

# `host.name` and its kin are looked at as they are.
_KEPT = ("service.", "telemetry.")
_SKEW_NS = 3_000_000_000


@functools.cache
def spans(name: str) -> tuple[Sent, ...]:
    bodies = [
        zstandard.ZstdDecompressor().decompress(path.read_bytes())
        for path in sorted((SENDERS / name).glob("*.traces.pb.zst"))
    ]
    return tuple(
        (by_resource.resource, by_scope.scope, span)
        for one in bodies
        for by_resource in ExportTraceServiceRequest.FromString(one).resource_spans
        for by_scope in by_resource.scope_spans
        for span in by_scope.spans
    )


def service(sent: Sent) -> str:
    return next(
        (kv.value.string_value for kv in sent[0].attributes if kv.key == "service.name"), ""
    )


SEVERAL = [name for name in FOLDERS if len({service(sent) for sent in spans(name)}) > 1]


def taken_in(*rounds: Iterable[bytes]) -> Held:
    """The views after these rounds of bodies, assembled after each round."""
    with pipeline() as one:
        for bodies in rounds:
            send(one, list(bodies))
        return held(one)


def told(of: Held) -> list[list[str]]:
    """Calls and requests as text, without salted hashes."""
    return [
        sorted(
            repr({key: value for key, value in row.items() if key != "user_hash"}) for row in rows
        )
        for rows in (of.calls, of.requests)
    ]


@functools.cache
def as_sent(name: str) -> Held:
    return taken_in([body(list(spans(name)))])


def in_strings(attributes: Iterable[KeyValue]) -> None:
    for kv in attributes:
        kind = kv.value.WhichOneof("value")
        if kind in ("int_value", "double_value", "bool_value", "array_value"):
            value = MessageToDict(kv.value)
            [said] = value.values()
            items = (
                [next(iter(item.values()), None) for item in said.get("values", [])]
                if isinstance(said, dict)
                else said
            )
            kv.value.string_value = items if isinstance(items, str) else json.dumps(items)
        if not kv.key.startswith(_KEPT):
            kv.key = kv.key.replace(".", "_")


def rewritten(sent: bytes) -> bytes:
    """A body with keys and values as above, after a way as OTLP/JSON: protobuf's own, but for ids, which are in hex."""
    request = ExportTraceServiceRequest.FromString(sent)
    for by_resource in request.resource_spans:
        in_strings(by_resource.resource.attributes)
        for told_of in by_resource.scope_spans[0].spans:
            in_strings(told_of.attributes)
            for event in told_of.events:
                in_strings(event.attributes)
    document: dict[str, Any] = MessageToDict(request)
    for span in (
        s
        for by_resource in document["resourceSpans"]
        for by_scope in by_resource["scopeSpans"]
        for s in by_scope["spans"]
    ):
        for ids in (span, *span.get("links", ())):
            ids |= {
                key: base64.b64decode(ids[key]).hex()
                for key in ("traceId", "spanId", "parentSpanId")
                if key in ids
            }
    return otlp_json.to_protobuf("traces", json.dumps(document).encode())


def pieces(name: str) -> list[bytes]:
    """A recording rewritten, in two halves and a third of it once more."""
    sent = list(spans(name))
    random.Random(7).shuffle(sent)
    size = -(-len(sent) // 2)
    return [rewritten(body(part)) for part in (sent[:size], sent[size:], sent[::3])]


def of_each(found: Held) -> dict[str, Held]:
    """The rows of each recording."""
    names = {span.trace_id.hex(): name for name in FOLDERS for _, _, span in spans(name)}
    return {
        name: Held(
            *(
                [row for row in rows if names[row["trace_id"]] == name]
                for rows in (found.calls, found.requests, found.spans)
            )
        )
        for name in FOLDERS
    }


@pytest.fixture(scope="module")
def both_ways() -> tuple[dict[str, Held], dict[str, Held]]:
    """All recordings beside one another in one store, as they were sent and rewritten: a store for each takes fifty times as long."""
    return of_each(taken_in(body(list(spans(name))) for name in FOLDERS)), of_each(
        taken_in(*zip(*map(pieces, FOLDERS), strict=True))
    )


@pytest.mark.parametrize("name", FOLDERS)
def test_json_in_pieces_with_values_in_strings_and_underscores_in_keys(
    name: str, both_ways: tuple[dict[str, Held], dict[str, Held]]
) -> None:
    as_it_was, found = (way[name] for way in both_ways)
    assert found.calls
    assert told(found) == told(as_it_was)
    assert "SECRET" not in repr(found)


@pytest.mark.parametrize("which", [min, max], ids=lambda which: str(which.__name__))
@pytest.mark.parametrize("name", SEVERAL)
def test_clocks_that_differ_by_seconds(name: str, which: Callable[[set[str]], str]) -> None:
    ahead = which({service(one) for one in spans(name)})
    request = ExportTraceServiceRequest.FromString(body(list(spans(name))))
    for by_resource, sent in zip(request.resource_spans, spans(name), strict=True):
        for span in by_resource.scope_spans[0].spans if service(sent) == ahead else ():
            span.start_time_unix_nano += _SKEW_NS
            span.end_time_unix_nano += _SKEW_NS
            for event in span.events:
                event.time_unix_nano += _SKEW_NS
    found, true = taken_in([request.SerializeToString()]), as_sent(name)
    # When its first token came is as far off as the clocks cannot tell, whether one came is not.
    wanted = [
        [
            {field: call[field] for field in FIELDS} | {"first": call["ttft_ms"] is None}
            for call in by_id(of)
        ]
        for of in (found, true)
    ]
    assert wanted[0] == wanted[1]
    assert len(found.requests) == len(true.requests)


def by_id(of: Held) -> list[dict[str, Any]]:
    return sorted(of.calls, key=lambda call: str(call["span_id"]))
