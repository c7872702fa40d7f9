"""Rows under anybody's names mean what their words say, and whatever a row or a log's line holds, the reader answers or refuses it in words."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.decode import otlp_json
from overrun.collector.errors import BadPayload
from overrun.collector.sources.exports import as_otlp, of_rows, otlp

T0 = 1_790_000_000
CALL = {"created_at": "2026-09-21T14:13:20Z", "model": "m", "duration_ms": 2_300}


def spans_of(rows: list[dict[str, Any]], notes: list[str] | None = None) -> list[dict[str, Any]]:
    found = of_rows(rows, notes)
    assert found is not None
    return [
        span
        for document in found
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def told_of(row: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the first of two such rows."""
    values = spans_of([row, row])[0]["attributes"]
    return {one["key"]: next(iter(one["value"].values())) for one in values}


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("tokens_prompt", "input_tokens"),
        ("usage.promptTokens", "input_tokens"),
        ("nPromptTokens", "input_tokens"),
        ("token_count.prompt", "input_tokens"),
        ("input_token", "input_tokens"),
        ("output_token_count", "output_tokens"),
        ("usage.completion_tokens", "output_tokens"),
        ("tokens_out", "output_tokens"),
        ("completion_tokens_details.reasoning_tokens", "reasoning.output_tokens"),
        ("thoughts_token_count", "reasoning.output_tokens"),
        ("cached_content_token_count", "cache_read.input_tokens"),
        ("prompt_tokens_details.cached_tokens", "cache_read.input_tokens"),
    ],
)
def test_a_count_of_tokens_is_known_by_the_words_of_its_name(name: str, column: str) -> None:
    assert told_of(CALL | {name: 7})[f"gen_ai.usage.{column}"] == "7"


@pytest.mark.parametrize(
    "name",
    [
        "max_output_tokens",
        "input_token_cost",
        "output_tokens_per_second",
        "cache_creation_input_tokens",
        "total_tokens",
    ],
)
def test_limits_prices_and_rates_of_tokens_are_no_counts(name: str) -> None:
    assert not any(key.startswith("gen_ai.usage") for key in told_of(CALL | {name: 7}))


def test_of_two_families_of_counts_the_fuller_one_is_taken() -> None:
    row = CALL | {"tokens_prompt": 790, "tokens_completion": 96}
    native = {f"native_tokens_{of}": n for of, n in (("prompt", 800), ("completion", 100))}
    told = told_of(row | native | {"native_tokens_reasoning": 40})
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == ("800", "100")


def test_an_object_as_text_is_read_as_an_object() -> None:
    row = {"time": "2026-09-21T14:13:20Z", "durationMs": "2300", "operationName": "Chat_Create"}
    span = spans_of([row | {"properties": json.dumps({"modelName": "gpt-4o"})}])[0]
    assert {"key": "gen_ai.response.model", "value": {"stringValue": "gpt-4o"}} in span[
        "attributes"
    ]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2_300 * 10**6


@pytest.mark.parametrize(
    ("took", "output", "ns"),
    [(2_300, 100, 2_300 * 10**6), (2.3, 100, 2_300 * 10**6), (2_300_000, 100, 2_300 * 10**6)],
)
def test_a_unit_follows_from_how_fast_models_write(took: float, output: int, ns: int) -> None:
    notes: list[str] = []
    row = {"timestamp": T0, "model": "m", "latency": took, "output_tokens": output}
    span = spans_of([row] * 3, notes)[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == ns
    assert ["without a unit" in note for note in notes] == [True]


@pytest.mark.parametrize(
    "row",
    [
        {"latency": 100, "output_tokens": 100},  # 1 token/s or 1,000 of them
        {"latency": 2_300},  # nothing written
        {"latency": 2_300, "input_tokens": 100},
    ],
)
def test_a_unit_that_does_not_follow_is_asked_for(row: dict[str, Any]) -> None:
    with pytest.raises(BadPayload, match="latency_ms"):
        of_rows([{"timestamp": T0, "model": "m"} | row] * 3)


@pytest.mark.parametrize(
    ("told", "failed"),
    [
        ({"status": 429}, True),
        ({"response_code": "503"}, True),
        ({"is_success": 0}, True),
        ({"success": "false"}, True),
        ({"level": "ERROR"}, True),
        ({"success": True, "status": 200}, False),
        ({"error": "null"}, False),
    ],
)
def test_a_failure_is_known_by_status_success_or_error(told: dict[str, Any], failed: bool) -> None:
    assert (spans_of([CALL | told])[0]["status"]["code"] == otlp.ERROR) is failed


def test_rows_of_the_same_log_that_name_no_model_are_left_out() -> None:
    other = {"created_at": "2026-09-21T14:13:20Z", "duration_ms": 3, "path": "/"}
    assert len(spans_of([other, CALL, other, CALL])) == 2
    assert of_rows([other, other]) is None


def test_rows_without_ids_and_with_zero_as_one_are_all_kept() -> None:
    ids = [span["spanId"] for span in spans_of([CALL, CALL, CALL | {"id": 0}, CALL | {"id": 7}])]
    assert len({one for one in ids if one.strip("0")}) == 4


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"operationName": "Embeddings_Create"}, "EMBEDDING"),
        ({"path": "/v1/rerank"}, "RERANKER"),
        ({"url": "https://h/v1/chat/completions"}, "LLM"),
        ({"model": "text-embedding-3-small", "input_tokens": 9}, "EMBEDDING"),
        ({"input_tokens": 9}, "LLM"),
        ({}, "CHAIN"),
    ],
)
def test_what_was_asked_follows_from_name_address_or_model(
    asked: dict[str, Any], kind: str
) -> None:
    assert told_of(CALL | asked)["openinference.span.kind"] == kind


def test_times_are_read_in_the_forms_of_tables_and_of_net() -> None:
    at = datetime.fromtimestamp(T0, UTC)
    ticks = (T0 + 62_135_596_800) * 10**7
    for told in (T0, T0 * 1_000, str(T0), at.isoformat(), f"{at:%m/%d/%Y, %I:%M:%S.000 %p}", ticks):
        span = spans_of([{"TimeGenerated [UTC]": told, "model": "m", "DurationMs": 5}])[0]
        assert span["startTimeUnixNano"] == T0 * 10**9, told


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(
        [
            "",
            "-",
            "2026-09-21T14:13:20Z",
            "13/45/2026, 99:99:99 PM",
            '{"model": "m"}',
            "{",
            "9" * 30,
        ]
    )
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
_WORDS = """timestamp start_time end created_at duration latency duration_ms response_time ttft model name input_tokens output_tokens
cached_tokens trace_id id parent_id status error success kind url properties ai ai_model latencies started_at request response event modelId operation
output request_id request_created_at response_status delay_ms $ai_latency"""
_NAMES = st.sampled_from(_WORDS.split())
_ROWS = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=9), max_size=4)


@given(rows=_ROWS | _VALUES)
def test_any_rows_are_read_or_refused_in_words(rows: Any) -> None:
    for read in (as_otlp, of_rows):
        with contextlib.suppress(BadPayload):
            for document in read(rows) or []:
                otlp_json.from_document("traces", document)


_SENDERS: tuple[dict[str, Any], ...] = (
    {
        "started_at": T0 * 1_000,
        "latencies": {"request": 900, "kong": 5, "proxy": 890},
        "ai": {"proxy": {"meta": {"llm_latency": 880}, "usage": {"prompt_tokens": 5}}},
        "request": {"id": "r"},
        "response": {"status": 200},
    },
    {
        "timestamp": "2026-09-21T14:13:20Z",
        "modelId": "m",
        "operation": "Converse",
        "input": {"inputTokenCount": 5},
        "output": {"outputBodyJson": {"metrics": {"latencyMs": 900}}, "outputTokenCount": 2},
    },
    {
        "event": "$ai_generation",
        "timestamp": "2026-09-21T14:13:20Z",
        "properties": {"$ai_latency": 2.5, "$ai_model": "m"},
    },
    {
        "request_id": "r",
        "request_created_at": "2026-09-21T14:13:20Z",
        "response_status": 200,
        "delay_ms": 900,
    },
    {
        "created_at": "2026-09-21T14:13:20Z",
        "ai_model": "m",
        "response_time": 900,
        "request_url": "https://h/v1/chat/completions",
    },
)


@given(row=st.sampled_from(_SENDERS), at=st.integers(0, 40), value=_VALUES)
def test_a_changed_value_in_a_known_log_is_read_or_refused_in_words(
    row: dict[str, Any], at: int, value: Any
) -> None:
    changed = json.loads(json.dumps(row))
    places: list[tuple[dict[str, Any], str]] = []
    held = [changed]
    while held:
        inside = held.pop()
        places += [(inside, key) for key in inside]
        held += [one for one in inside.values() if isinstance(one, dict)]
    inside, key = places[at % len(places)]
    inside[key] = value
    with contextlib.suppress(BadPayload):
        for document in as_otlp(changed) or []:
            otlp_json.from_document("traces", document)


@pytest.mark.parametrize("row", _SENDERS)
def test_a_line_of_each_known_log_is_a_call(row: dict[str, Any]) -> None:
    assert as_otlp(row)
