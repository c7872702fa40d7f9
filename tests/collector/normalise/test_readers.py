"""One odd value means one thing, or nothing; whatever comes, no reader raises."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.collector.dialects import READERS
from overrun.collector.normalise import readers

NS = 10**9


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ('{"a": {"b": [1, {"c": "x"}]}}', ("a", "b", "1", "c"), "x"),
        ('{"a": 1}', ("b",), None),
        ('{"a": 1}', ("a", "b"), None),
        ("[1, 2]", ("5",), None),
        ('{"0": "zero"}', ("0",), "zero"),
        ('{"n": Infinity}', ("n",), float("inf")),
        ("{'prompt_tokens': 6, 'details': None, 'ok': True}", ("prompt_tokens",), 6),
        ("{'a': {'cached': 3}, 'b': None}", ("a", "cached"), 3),
        ("{broken", ("a",), None),
        ("plain words", ("a",), None),
        ("", ("a",), None),
        ("7", ("a",), None),
        ("[" * 100_000, ("0",), None),
        ('{"a": "' + "x" * readers.MAX_DOCUMENT + '"}', ("a",), None),
    ],
)
def test_a_document_is_looked_into_by_path(text: str, path: tuple[str, ...], found: Any) -> None:
    assert readers.at(readers.document(text), path) == found


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("plain", "plain"),
        ('"TOOL"', "TOOL"),
        ('"a \\"b\\""', 'a "b"'),
        ('"', '"'),
        ('""', None),
        ("", None),
        ('"half', '"half'),
        ('"a" or "b"', '"a" or "b"'),
        (True, "true"),
        (7, "7"),
        (None, None),
        ([], None),
        ('"\\ud800"', '"\\ud800"'),
        ("\ud800", None),
    ],
)
def test_words_lose_the_quotes_of_json(value: Any, read: str | None) -> None:
    assert readers.words(value) == read


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("1.234567s", 1_234_567_000),
        ("12.3ms", 12_300_000),
        ("456.7\u00b5s", 456_700),
        ("456.7\u03bcs", 456_700),
        ("456.7us", 456_700),
        ("80ns", 80),
        ("0ns", 0),
        ('"2s"', 2 * NS),
        ("1.5", None),
        ("1.5 s", None),
        ("-1s", None),
        ("1m", None),
        ("s", None),
        (1.5, None),
        ("9" * 19 + "s", None),
        ("999999999999s", None),
    ],
)
def test_rusts_durations_carry_their_unit(value: Any, ns: int | None) -> None:
    assert readers.duration(value) == ns


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("2026-11-20T10:23:25.503809Z", 503_809_000),
        ('"2026-11-20T10:23:25.5Z"', 500_000_000),
        ("2026-11-20T10:23:25+00:00", 0),
        ("2026-11-20 10:23:25", 0),
        ("2026-11-20T12:23:25.123456789+02:00", 123_456_789),
        ("2026-11-20T10:23:25.1234567891234Z", 123_456_789),
        ("2026-13-20T10:23:25Z", None),
        ("10:23:25", None),
        ("20261120T102325Z", None),
        ("yesterday", None),
        (1_795_170_205, 0),
        (1_795_170_205_503, 503_000_000),
        (1_795_170_205_503_809, 503_809_000),
        (1_795_170_205_503_809_001, 503_809_001),
        ("1795170205.5", 500_000_000),
        (17, None),
        (True, None),
        ("0001-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59Z", None),
    ],
)
def test_a_moment_is_read_to_the_nanosecond(value: Any, ns: int | None) -> None:
    whole = int(datetime(2026, 11, 20, 10, 23, 25, tzinfo=UTC).timestamp()) * NS
    assert readers.moment(value) == (None if ns is None else whole + ns)


@pytest.mark.parametrize(
    ("moment", "ns"),
    [
        (150, 50),
        (100, 0),
        (100 - readers.SLACK_NS, 0),
        (99 - readers.SLACK_NS, None),
        (None, None),
        (2**62, None),
    ],
)
def test_a_first_token_cannot_come_before_its_span(moment: int | None, ns: int | None) -> None:
    assert readers.since(moment, 100) == ns


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("end_turn", "stop"),
        ("FinishReason.STOP", "stop"),
        ("tool-calls", "tool_calls"),
        ("tool_call", "tool_calls"),
        ("tool_use", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content-filter", "content_filter"),
        ("MAX_TOKENS", "length"),
        ("max_tokens", "length"),
        ("length", "length"),
        ("error", "error"),
        ("something new", "something new"),
    ],
)
def test_finish_reasons_have_one_word_each(sent: str, reason: str) -> None:
    assert readers.finish_reason(sent) == reason


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("openai.chat", "openai"),
        ("openai.responses", "openai"),
        ("anthropic.messages", "anthropic"),
        ("google.generative-ai", "google"),
        ("mock.embedding", "mock"),
        ("aws.bedrock", "aws.bedrock"),
        ("azure.ai.openai", "azure.ai.openai"),
        ("gcp.vertex_ai", "gcp.vertex_ai"),
        (".chat", ".chat"),
        ("OpenAI", "openai"),
    ],
)
def test_a_provider_is_named_without_its_interface(sent: str, name: str) -> None:
    assert readers.provider(sent) == name


@pytest.mark.parametrize(
    ("provider", "tokens", "apart"),
    [
        ("anthropic", (100, 900, 0), True),
        ("anthropic", (1000, 900, 0), False),
        ("anthropic", (10, 0, 50), True),
        (None, (10, 50, 0), True),
        # These count cached tokens among the input tokens: more of them than there are is a sender's mistake.
        ("openai", (10, 50, 0), False),
        ("azure.ai.openai", (10, 50, 0), False),
    ],
)
def test_cached_tokens_that_cannot_be_a_part_stand_beside(
    provider: str | None, tokens: tuple[int, int, int], apart: bool
) -> None:
    assert readers.cached_apart(provider, *tokens) is apart


def test_every_reader_a_table_may_name_is_there() -> None:
    assert set(readers.BY_NAME) == set(READERS)


_leaf = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
_json = st.recursive(
    _leaf, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.one_of(
        st.text(),
        _json.map(json.dumps),
        _json,
        st.from_regex(r"[0-9.\-T:Z+]{1,30}"),
        _json.map(repr),
    )
)
def test_no_reader_raises_whatever_comes(value: Any) -> None:
    for read in readers.BY_NAME.values():
        found = read(value)
        if isinstance(found, str):
            found.encode()
    if isinstance(value, str):
        readers.at(readers.document(value), ("a", "0"))
        assert readers.finish_reason(value) or value == ""
