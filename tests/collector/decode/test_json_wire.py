"""What is written straight from JSON equals, byte for byte, what protobuf's own parser makes of it; what that refuses is not written."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.collector.decode import json_wire
from overrun.collector.decode.otlp_json import REQUESTS, by_protobuf
from overrun.sample_traces.replay import load, manifest
from tests.collector.oracle_otlp import as_otlp_json

ODD = st.sampled_from(
    [
        *(None, True, "", "x", "abc=", "0a1b", "zz", "NaN", "-1", "1.0", " 7", "7" * 30, "\ud800"),
        *(0, -0.0, 1.5, 3.0, -1, 2**31, 2**63, 2**64, [], [None], {}, ["1"], [{}], {"x": 1}),
    ]
)
PLAIN: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.text(max_size=4),
    FieldDescriptor.TYPE_BYTES: st.sampled_from(["", "00", "0af7651916cd43dd", "AAE=", "-_8="]),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
}
WHOLE = st.integers(-(2**31), 2**31 - 1) | st.integers(0, 2**64 - 1)


def documents(kind: Descriptor, depth: int = 7) -> st.SearchStrategy[Any]:
    """JSON for a message: mostly as senders write it, in both spellings, sometimes with a value of another type."""
    fields = {
        name: value_of(field, depth)
        for field in kind.fields
        for name in {field.name, field.json_name}
    }
    return st.lists(st.sampled_from(sorted([*fields, "other"])), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: fields.get(name, ODD) for name in names})
    )


def value_of(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        plain = (
            st.deferred(lambda: documents(field.message_type, depth - 1)) if depth else st.just({})
        )
    elif field.type == FieldDescriptor.TYPE_ENUM:
        plain = st.sampled_from([*(value.name for value in field.enum_type.values), 0, 2, 99])
    else:
        plain = PLAIN.get(field.type, WHOLE | WHOLE.map(str))
    several = st.lists(plain, max_size=3) if field.is_repeated else plain
    return st.one_of(*[several] * 15, ODD)


def agree(signal: str, document: Any) -> bool:
    """Whether the document is plain; then both ways must give the same bytes."""
    made = json_wire.encode(REQUESTS[signal], copy.deepcopy(document))
    if made is not None:
        assert made == by_protobuf(signal, copy.deepcopy(document))
    return made is not None


@pytest.mark.parametrize("name", list(manifest()))
def test_recordings_as_json_are_written_without_protobufs_parser(name: str) -> None:
    for payload in load(name).payloads[:3]:
        if payload.request.ByteSize() > 30_000:
            continue  # the same shape again
        for snake, numbers in ((False, False), (True, True)):
            content = as_otlp_json(payload.request, snake=snake, numbers=numbers)
            assert agree(payload.signal, json.loads(content))


@settings(max_examples=100)
@given(st.data(), st.sampled_from(sorted(REQUESTS)))
def test_any_document_is_written_as_by_protobuf_or_left_to_it(
    data: st.DataObject, signal: str
) -> None:
    root = REQUESTS[signal].DESCRIPTOR
    agree(signal, data.draw(documents(root)))


@settings(max_examples=100)
@given(st.data(), st.sampled_from(["traces", "metrics", "logs"]))
def test_any_item_is_written_as_by_protobuf_or_left_to_it(data: st.DataObject, signal: str) -> None:
    """Straight to the items, which a walk from the root seldom reaches."""
    item = REQUESTS[signal].DESCRIPTOR
    path = []
    for name in {
        "traces": ("resourceSpans", "scopeSpans", "spans"),
        "metrics": ("resourceMetrics", "scopeMetrics", "metrics"),
        "logs": ("resourceLogs", "scopeLogs", "logRecords"),
    }[signal]:
        path.append(name)
        item = next(field for field in item.fields if field.json_name == name).message_type
    document: Any = data.draw(documents(item, 4))
    for name in reversed(path):
        document = {name: [document]}
    agree(signal, document)


@pytest.mark.parametrize(
    "odd",
    [
        {"name": 5},
        {"name": None},
        {"traceId": "xyz"},
        {"startTimeUnixNano": 1.5},
        {"startTimeUnixNano": -1},
        {"kind": "SPAN_KIND_OTHER"},
        {"kind": True},
        {"flags": 1 << 32},
        {"attributes": {}},
        {"attributes": [None]},
        {"attributes": [{"key": "a", "value": {"intValue": 1, "stringValue": "x"}}]},
        {"traceId": "00", "trace_id": "01"},
        {"[extension]": 1},
    ],
    ids=json.dumps,
)
def test_what_is_unusual_is_left_to_protobufs_parser(odd: dict[str, Any]) -> None:
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [odd]}]}]}
    assert json_wire.encode(REQUESTS["traces"], document) is None
