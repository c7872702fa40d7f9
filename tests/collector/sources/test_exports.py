"""What other tools exported is read as far as it is theirs; anything else is none of theirs, and nothing makes the reader fail otherwise."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.decode import otlp_json
from overrun.collector.errors import BadPayload
from overrun.collector.sources import forms
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import otlp, otlp_inside, unread

_KEYS = (
    "data",
    "spans",
    "processes",
    "traceID",
    "spanID",
    "operationName",
    "startTime",
    "duration",
    "tags",
    "key",
    "value",
    "references",
    "logs",
    "fields",
    "traceId",
    "id",
    "timestamp",
    "localEndpoint",
    "serviceName",
    "annotations",
    "observations",
    "type",
    "endTime",
    "usage",
    "usageDetails",
    "metadata",
    "batches",
    "trace",
    "result",
    "resourceSpans",
    "context",
    "trace_id",
    "start_time",
    "resource",
    "attributes",
    "status",
    "events",
    "links",
    "parentId",
)


def as_otlp(value: Any) -> list[dict[str, Any]] | None:
    found = otlp_inside(value)
    return forms.of_value(value, Account()) if found is None else found


_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(("", "a1", "2026-01-01T00:00:00Z", "GENERATION", "SERVER"))
)
_documents = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)


@given(_documents)
def test_any_document_is_read_or_refused(document: Any) -> None:
    assert isinstance(unread.of_document(document), str)
    with contextlib.suppress(BadPayload):
        for request in as_otlp(document) or []:
            otlp_json.from_document("traces", request)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        5,
        None,
        "x",
        {"data": []},
        {"data": [{"traceID": "a", "spans": []}]},
        [{"id": "1"}],
        {"a": {"b": 1}},
        [[]],
    ],
)
def test_a_document_of_no_known_form_is_none(document: Any) -> None:
    assert as_otlp(document) is None


def test_a_time_that_is_none_is_refused_by_the_form() -> None:
    with pytest.raises(
        BadPayload, match=r"observations of Langfuse, and none of its 1 rows is of use .*yesterday"
    ):
        as_otlp([{"id": "a", "traceId": "b", "type": "SPAN", "startTime": "yesterday"}])


def test_ids_of_every_spelling_have_their_width() -> None:
    assert otlp.hex_id("ABC", 16) == "0000000000000abc"
    assert (
        otlp.hex_id("123e4567-e89b-12d3-a456-426614174000", 32)
        == "123e4567e89b12d3a456426614174000"
    )
    assert otlp.hex_id("0xff", 16) == "00000000000000ff"
    assert otlp.hex_id("obs-name", 16) == otlp.hex_id("obs-name", 16) != otlp.hex_id("other", 16)
    assert otlp.hex_id(None, 16) == ""


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"PK\x03\x04rest", "zip"),
        (b"SQLite format 3\0", "SQLite"),
        (b"  <!DOCTYPE HTML>", "web page"),
        (b"\0" * 257 + b"ustar", "tar"),
        (b"12345678DUCK", "--db"),
        (b"anything", ""),
        (b"", ""),
    ],
)
def test_a_file_that_is_not_read_is_named_by_its_first_bytes(head: bytes, words: str) -> None:
    found = unread.of_bytes(head)
    assert words in found if words else found == ""
