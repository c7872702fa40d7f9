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
from overrun.collector.sources import forms
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import of_rows, otlp

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
    """The attributes of the first of three such rows."""
    values = spans_of([row, row, row])[0]["attributes"]
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
        ("cache_creation_input_tokens", "cache_creation.input_tokens"),
        ("totalTokenCount", "total_tokens"),
        ("answer_tokens", "output_tokens"),
        ("message_tokens", "input_tokens"),
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
        "total_token_limit",
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
        {"latency": 100, "input_tokens": 100},  # 100 ms or 100 s
    ],
)
def test_a_unit_that_does_not_follow_is_asked_for(row: dict[str, Any]) -> None:
    with pytest.raises(BadPayload, match="latency_ms"):
        of_rows([{"timestamp": T0, "model": "m"} | row] * 3)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("duration_micros", 2_300_000),
        ("latency_microseconds", 2_300_000),
        ("latency_millis", 2_300),
        ("duration_milliseconds", 2_300),
        ("elapsed_time_seconds", 2.3),
        ("span.duration.us", 2_300_000),
        ("total_duration_ns", 2_300_000_000),
        ("latency", "2.3s"),
        ("httpRequest.latency", "2300ms"),
    ],
)
def test_a_duration_has_the_unit_of_its_name_or_of_its_text(column: str, value: Any) -> None:
    row: dict[str, Any] = {"timestamp": T0, "model": "m"}
    inner = row
    *above, last = column.split(".")
    for name in above:
        inner = inner.setdefault(name, {})
    inner[last] = value
    span = spans_of([row])[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2_300 * 10**6


CHAT = {"timestamp": "2026-09-21T14:13:20.5Z", "url": "http://h/v1/chat/completions?x=1"}


@pytest.mark.parametrize(
    ("took", "unit"),
    [(2.3, "s"), (2_300, "ms"), ("2300", "ms"), (2_300_000, "us"), (2_300_000_000, "ns")],
)
def test_a_unit_follows_from_how_long_models_take(took: float, unit: str) -> None:
    notes: list[str] = []
    span = spans_of([CHAT | {"duration": took}] * 3, notes)[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2_300 * 10**6
    assert [f"read in {unit}" in note for note in notes] == [True]


def test_a_refusal_says_nothing_of_how_long_models_take() -> None:
    refused = CHAT | {"duration": 3, "status": 503}
    rows = [refused] * 5 + [CHAT | {"duration": 2_300}] * 3
    assert spans_of(rows)[-1]["endTimeUnixNano"] - T0 * 10**9 == 2_800 * 10**6


def test_embeddings_say_nothing_of_how_long_answers_take() -> None:
    with pytest.raises(BadPayload, match="duration_ms"):
        of_rows([CHAT | {"url": "/v1/embeddings", "duration": 5}] * 3)


def test_a_unit_follows_from_when_a_row_was_written() -> None:
    row = {"StartUTC": "2026-09-21T14:13:20Z", "time": "2026-09-21T14:15:40Z", "model": "m"}
    span = spans_of([row | {"Duration": 140_000}] * 3)[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 140 * 10**9


@pytest.mark.parametrize(
    "other",
    [
        {"url": "/healthz", "duration": 0.001},
        {"url": "/v1/chat/completions", "method": "OPTIONS", "duration": 0.001},
        {"level": "info", "msg": "listening"},
    ],
)
def test_of_a_log_of_http_the_posts_to_a_model_are_calls(other: dict[str, Any]) -> None:
    at = {"ts": T0 + 0.5, "level": "info", "msg": "handled"}
    call = {"request": {"method": "POST", "uri": "/v1/messages"}, "duration": 2.3, "status": 504}
    well = at | call | {"status": 200}
    span, *more = spans_of([at | call, at | other, well, well, well])
    assert len(more) == 3
    assert span["endTimeUnixNano"] == (T0 * 10 + 5) * 10**8  # a logger writes at the end
    assert span["status"]["code"] == otlp.ERROR


def test_parts_of_a_call_are_read_with_their_counts() -> None:
    part = {"queue_time": 1.0, "prompt_time": 0.25, "completion_time": 0.75, "total_time": 1.0}
    usage = {"prompt_tokens": 500, "completion_tokens": 200, "prompt_tokens_details": None}
    row = {"created": T0, "model": "m", "usage": part | usage}
    told, span = told_of(row), spans_of([row] * 3)[0]
    assert told["gen_ai.latency.time_in_queue"] == 1.0
    assert told["gen_ai.latency.time_to_first_token"] == 1.25
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == ("500", "200")
    # What it waited stands beside the total.
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2 * 10**9


@pytest.mark.parametrize(
    "timings",
    [
        {
            "cache_n": 400,
            "prompt_n": 100,
            "prompt_ms": 250.0,
            "predicted_n": 50,
            "predicted_ms": 2e3,
        },
        {
            "total_duration": 2.25e9,
            "load_duration": 0,
            "prompt_eval_count": 500,
            "prompt_eval_duration": 0.25e9,
            "eval_count": 50,
            "eval_duration": 2e9,
        },
    ],
)
def test_counts_stand_beside_the_times_of_the_parts(timings: dict[str, Any]) -> None:
    row = {"created_at": "2026-09-21T14:13:20Z", "model": "m", "timings": timings}
    told = told_of(row)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == ("500", "50")
    assert told["gen_ai.latency.time_in_model_prefill"] == 0.25
    assert told["gen_ai.latency.e2e"] == 2.25


def test_counts_of_prompts_and_completions_are_no_times() -> None:
    told = told_of(CALL | {"prompts": 3, "completions": 5, "queue": 7})
    assert not any(key.startswith("gen_ai.latency") for key in told)


def test_of_two_durations_the_longer_one_is_the_whole() -> None:
    row = {"created_at": "2026-09-21T14:13:20Z", "model": "m", "latency": 900}
    span = spans_of([row | {"generation_time": 2_300, "output_tokens": 100}] * 3)[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2_300 * 10**6


@pytest.mark.parametrize("is_end", [False, True])
def test_calls_that_follow_one_another_tell_a_begin_from_an_end(is_end: bool) -> None:
    rows, at = [], float(T0)
    for n in range(20):
        took = 1.0 + 8 * (n % 3)
        rows.append(CALL | {"created_at": at + is_end * took, "duration_ms": took * 1e3})
        at += took + 0.5
    assert spans_of(rows)[0]["startTimeUnixNano"] == T0 * 10**9


def test_what_a_gateway_did_itself_is_apart_from_the_server_behind_it() -> None:
    row = CHAT | {"TotalTime_ms": 5_000, "BackendTime_ms": 2_000, "ModelName": "gpt-4o"}
    found = {span["name"]: span for span in spans_of([row])}
    own = found["gateway"]
    assert own["endTimeUnixNano"] - own["startTimeUnixNano"] == 3 * 10**9
    call = next(span for span in found.values() if span["kind"] == otlp.KINDS["client"])
    assert call["startTimeUnixNano"] == own["endTimeUnixNano"]
    assert {span["traceId"] for span in found.values()} == {own["traceId"]}


def test_rows_are_found_inside_of_an_answer() -> None:
    deep: dict[str, Any] = {"data": {"actor": {"account": {"nrql": {"results": [CALL, CALL]}}}}}
    hits = {"took": 3, "_shards": {"total": 1}, "hits": {"total": {"value": 1}, "hits": []}}
    hits["hits"]["hits"] = [{"_index": "i", "_source": CALL}]  # type: ignore[index]
    assert (len(spans_of(deep)), len(spans_of(hits))) == (2, 1)  # type: ignore[arg-type]


def test_a_word_is_no_id_and_a_level_no_status() -> None:
    rows = [CALL | {"OperationId": "Chat_Create", "level": "info", "status": 500}] * 2
    spans = spans_of([row | {"id": n} for n, row in enumerate(rows, 1)])
    assert len({span["traceId"] for span in spans}) == 2
    assert {span["status"]["code"] for span in spans} == {otlp.ERROR}


def test_a_row_that_only_names_its_model_is_of_the_kind_of_the_others() -> None:
    refused = {"created_at": "2026-09-21T14:13:20Z", "request.model": "m", "duration_ms": 3}
    kinds = [span["attributes"] for span in spans_of([CALL | {"input_tokens": 5}] * 2 + [refused])]
    assert {"key": "openinference.span.kind", "value": {"stringValue": "LLM"}} in kinds[2]


@pytest.mark.parametrize(
    ("told", "failed"),
    [
        ({"status": 429}, True),
        ({"outcome": "failure"}, True),
        ({"level": 50}, True),
        ({"level": 30}, False),
        ({"err": {"type": "APIError"}}, True),
        ({"DownstreamStatus": 502}, True),
        ({"IsRequestSuccess": "False"}, True),
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
    answers = [CALL | {"input_tokens": n} for n in (5, 6, 7)]
    assert len(spans_of([other, *answers, other])) == 3
    assert of_rows([other, other]) is None


def test_rows_without_ids_and_with_zero_as_one_are_all_kept() -> None:
    ids = [span["spanId"] for span in spans_of([CALL, CALL, CALL | {"id": 0}, CALL | {"id": 7}])]
    assert len({one for one in ids if one.strip("0")}) == 4


def test_an_id_that_rows_share_at_other_times_is_none() -> None:
    rows = [CALL | {"id": "c1", "created_at": T0 + n} for n in (0, 5, 5)]
    assert len({span["spanId"] for span in spans_of(rows)}) == 2  # the last is a copy


def test_calls_of_one_trace_without_parents_are_requests_of_their_own_unless_one_holds_them() -> (
    None
):
    row = CALL | {"trace_id": "t1"}
    apart = spans_of([row | {"created_at": T0 + n, "id": f"a{n}"} for n in (0, 60, 120)])
    assert len({span["traceId"] for span in apart}) == 3
    whole = row | {"id": "w1", "created_at": T0, "duration_ms": 9_000}
    within = spans_of([whole, row | {"id": "a1", "created_at": T0 + 2}])
    assert len({span["traceId"] for span in within}) == 1
    assert within[1]["parentSpanId"] == within[0]["spanId"]


def test_rows_of_cells_and_rows_below_their_names_are_rows() -> None:
    cells = {"results": [[{"field": name, "value": told} for name, told in CALL.items()]] * 2}
    names = {"columns": [{"name": name} for name in CALL], "rows": [list(CALL.values())] * 2}
    for value in (cells, names):
        assert len(spans_of(value)) == 2  # type: ignore[arg-type]


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


def test_thousands_have_commas_between_them() -> None:
    row = CALL | {"duration_ms": "2,300", "output_tokens": "1,120"}
    span = spans_of([row])[0]
    assert span["endTimeUnixNano"] - span["startTimeUnixNano"] == 2_300 * 10**6
    assert told_of(row)["gen_ai.usage.output_tokens"] == "1120"


def test_figures_over_time_are_no_rows_of_calls() -> None:
    points = [{"Time": "2026-09-21 14:13:20", "P95": "0.4 s", "P50": 0.2}] * 3
    with pytest.raises(BadPayload, match="figures over time"):
        of_rows(points)


def test_times_are_read_in_the_forms_of_tables_and_of_net() -> None:
    at = datetime.fromtimestamp(T0, UTC)
    ticks = (T0 + 62_135_596_800) * 10**7
    for told in (
        T0,
        T0 * 1_000,
        str(T0),
        at.isoformat(),
        f"{at:%m/%d/%Y, %I:%M:%S.000 %p}",
        f"{at:%b %d, %Y @ %H:%M:%S.000}",
        ticks,
    ):
        span = spans_of([{"TimeGenerated [UTC]": told, "model": "m", "DurationMs": 5}])[0]
        assert span["startTimeUnixNano"] == T0 * 10**9, told


def as_otlp(value: Any) -> list[dict[str, Any]] | None:
    return forms.of_value(value, Account())


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
output request_id request_created_at response_status delay_ms $ai_latency level msg method queue_time prompt_ms predicted_ms eval_count prompt_n
load_duration columns rows field value err upstream_time total_time generation_time _source hits results time_local"""
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


@pytest.mark.parametrize(
    "told",
    [T0 + 0.5, str(T0 + 0.5), T0 * 1_000 + 500, "2026-09-21T14:13:20.500Z", 500],
)
def test_a_first_token_is_a_moment_in_any_form_or_a_duration(told: object) -> None:
    first = told_of(CALL | {"output_tokens": 7, "first_token_time": told})[
        "gen_ai.response.time_to_first_chunk"
    ]
    assert first == 0.5


def test_a_column_of_first_tokens_that_fits_no_row_is_named() -> None:
    notes: list[str] = []
    spans_of([CALL | {"completionStartTime": T0 + 900}] * 3, notes)
    assert any("first tokens (completionStartTime) left out" in note for note in notes)
