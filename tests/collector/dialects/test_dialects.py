"""Each recorded dialect comes to the numbers that the server wrote down, or to null where the dialect does not carry them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.dialects import READERS, load
from overrun.collector.normalise.spans import INT_COLUMNS, TEXT_COLUMNS
from overrun.collector.normalise.stages import ROLES, STAGES
from tests.collector.oracle_otlp import RECORDINGS, bodies
from tests.collector.oracle_store import (
    DATA,
    Row,
    held,
    pipeline,
    recording,
    send,
    truth,
    truth_counts,
)

RAG = ("semconv-openai-v2", "semconv-genai-openai")
PATH_STAGES = tuple(f"{s}_ms" for s in STAGES if s != "wait_user")
MODEL_STAGES = (
    "queue_ms",
    "kv_transfer_ms",
    "prefill_ms",
    "decode_ms",
    "first_token_ms",
    "generation_ms",
)


@pytest.mark.parametrize("name", RECORDINGS)
def test_calls_spans_and_requests_are_counted_once(name: str) -> None:
    found = recording(name)
    assert set(RECORDINGS) == set(truth_counts())
    assert {
        "model_calls": len(found.calls),
        "spans": len(found.spans),
        # A service that asks no model has requests of its own, which the truth of calls does not count.
        "requests": len(found.requests) if found.calls else 0,
    } == truth_counts()[name]
    assert found.requests


@pytest.mark.parametrize("name", RECORDINGS)
def test_stages_fill_e2e_and_the_path_to_the_first_token_fills_ttft(name: str) -> None:
    for request in recording(name).requests:
        assert sum(request[s] for s in PATH_STAGES) == pytest.approx(request["e2e_ms"], abs=1e-6)
        to_first = [request[f"ttft_{s}"] for s in (*PATH_STAGES, "wait_user_ms")]
        if request["ttft_ms"] is None:
            assert to_first == [None] * len(to_first)
        else:
            assert sum(
                t for s, t in zip((*PATH_STAGES, "w"), to_first, strict=True) if s != "w"
            ) == pytest.approx(request["ttft_ms"], abs=1e-6)
            assert all(t <= request[s] + 1e-6 for s, t in zip(PATH_STAGES, to_first, strict=False))


# --- the RAG app under old and new GenAI conventions: requests A to G ---

# Column -> value per request A B C D E F G; `...` where truth.jsonl says it. B answers with hidden reasoning, C is not streamed, E is refused, G gives up.
NONE = [None] * 7
ANSWERED = {"A": 0, "B": 1, "C": 2, "D": 3, "F": 5}
EXPECTED: dict[str, dict[str, list[Any]]] = {
    "semconv-genai-openai": {
        "streaming": [True, True, None, True, None, True, None],
        "cached_tokens": [8, *[None] * 6],
        "reasoning_tokens": [None, 4, *[None] * 5],
        "finish_reason": ["stop", "length", "stop", "stop", None, "stop", None],
        "error_type": [None] * 4 + ["openai.BadRequestError", None, "openai.RateLimitError"],
        # D: two hidden retries are inside; F: the role chunk was flushed early. The client's number is kept as sent, and its source is said.
        "ttft_ms": [326.9, 203.63, None, 418.769, None, 13.053, None],
        "ttft_source": ["attribute", "attribute", "none", "attribute", "none", "attribute", "none"],
        "tpot_reason": [None, "hidden_reasoning", "no_first_token", None, "failed", None, "failed"],
    },
    "semconv-openai-v2": {
        "streaming": NONE,
        "cached_tokens": NONE,
        "reasoning_tokens": NONE,
        "finish_reason": [
            "stop",
            "length",
            "stop",
            "stop",
            None,
            "stop",
            None,
        ],  # of streams from the log events
        "error_type": [None] * 4 + ["BadRequestError", None, "RateLimitError"],
        "ttft_ms": NONE,
        "ttft_source": ["none"] * 7,
        "tpot_reason": ["no_first_token"] * 4 + ["failed", "no_first_token", "failed"],
    },
}
BOTH: dict[str, list[Any]] = {
    "max_tokens": [None, 32, *[None] * 5],
    "temperature": [0.2] * 7,
    "provider": ["openai"] * 7,
    "error": [False] * 4 + [True, False, True],
    "attempts": NONE,
    "model": ["mock-large-2026-01-01"] * 4 + ["mock-large", "mock-large-2026-01-01", "mock-large"],
    "route": ["/rag"] * 7,
    "service": ["rag-api"] * 7,
    "itl_ms": NONE,
    "itl_source": NONE,
    "ttft_engine_ms": NONE,
    "engine_instance": NONE,
    "queue_ms": NONE,
    "prefill_ms": NONE,
}


@pytest.mark.parametrize("name", RAG)
def test_the_calls_of_the_rag_app_are_what_was_sent(name: str) -> None:
    calls = recording(name).calls
    for column, wanted in (BOTH | EXPECTED[name]).items():
        assert [c[column] for c in calls] == [
            pytest.approx(w, abs=1e-3) if isinstance(w, float) else w for w in wanted
        ], column


@pytest.mark.parametrize("name", RAG)
def test_the_calls_of_the_rag_app_have_the_servers_tokens(name: str) -> None:
    calls = recording(name).calls
    assert len(truth(name)) == len(ANSWERED)
    for at, true in zip(ANSWERED.values(), truth(name), strict=True):
        call = calls[at]
        assert (call["response_id"], call["input_tokens"], call["output_tokens"]) == (
            true["id"],
            true["pt"],
            true["ct"],
        )
        # Absent is not 0: a dialect that knows the field still leaves out a count of none.
        assert call["finish_reason"] == true["finish"]
        if name == "semconv-genai-openai":
            assert (call["cached_tokens"] or 0, call["reasoning_tokens"] or 0) == (
                true["cached"],
                true["reason"],
            )
        assert call["e2e_ms"] >= true["e2e"] * 1000
    for at in (4, 6):
        assert [calls[at][c] for c in ("response_id", "input_tokens", "output_tokens")] == [
            None
        ] * 3


def test_ttft_of_the_client_is_that_of_the_server_where_nothing_hides_in_it() -> None:
    calls = {c["response_id"]: c for c in recording("semconv-genai-openai").calls}
    seen = [
        calls[t["id"]]["ttft_client_ms"] / (t["ttft"] * 1000)
        for t in truth("semconv-genai-openai")
        if "ttft" in t
    ]
    # A, B within a tenth; D reports its retries as TTFT, F a chunk without a token.
    assert [1 <= ratio < 1.1 for ratio in seen] == [True, True, False, False]
    assert seen[2] > 2.5
    assert seen[3] < 0.05


def test_tpot_is_the_time_after_the_first_token_over_the_gaps() -> None:
    for call in recording("semconv-genai-openai").calls:
        known = call["tpot_reason"] is None
        assert (call["tpot_ms"] is not None) == known
        if known:
            assert call["tpot_ms"] == pytest.approx(
                (call["e2e_ms"] - call["ttft_ms"]) / (call["output_tokens"] - 1)
            )


@pytest.mark.parametrize("name", RAG)
def test_the_stages_of_the_rag_app_are_those_of_its_recipe(name: str) -> None:
    found = recording(name)
    calls = {c["trace_id"]: c for c in found.calls}
    for request in found.requests:
        call = calls[request["trace_id"]]
        # 10 ms of guardrail, an embedding of about 35 ms, three HTTP requests of 20 to 30 ms, then the call; all on a busy machine.
        assert 10 <= request["guardrail_ms"] < 40
        assert 30 <= request["retrieval_ms"] < 400
        assert 60 <= request["network_ms"] < 120
        assert sum(request[s] for s in MODEL_STAGES) == pytest.approx(call["e2e_ms"], abs=1e-6)
        assert [
            request[s]
            for s in (
                "queue_ms",
                "kv_transfer_ms",
                "prefill_ms",
                "tool_ms",
                "post_ms",
                "gateway_ms",
                "wait_user_ms",
            )
        ] == [0] * 7
        if call["ttft_ms"] is None:
            assert (request["generation_ms"], request["first_token_ms"], request["decode_ms"]) == (
                pytest.approx(call["e2e_ms"]),
                0,
                0,
            )
            assert (
                request["ttft_ms"],
                request["ttft_source"],
                request["first_model_token_ms"],
            ) == (None, "none", None)
        else:
            assert (request["first_token_ms"], request["generation_ms"]) == (
                pytest.approx(call["ttft_ms"]),
                0,
            )
            assert request["ttft_ms"] == pytest.approx(
                (call["start"] - request["start"]) / 1000 + call["ttft_ms"], abs=2e-3
            )
            assert request["ttft_first_token_ms"] == pytest.approx(request["first_token_ms"])
            assert request["ttft_decode_ms"] == 0


@pytest.mark.parametrize("name", RAG)
def test_the_requests_of_the_rag_app_end_as_their_calls_did(name: str) -> None:
    requests = recording(name).requests
    assert [r["status"] for r in requests] == ["ok"] * 4 + ["error", "ok", "error"]
    assert [r["http_status"] for r in requests] == [200] * 4 + [500, 200, 500]
    assert [r["route"] for r in requests] == ["/rag"] * 7
    assert [r["complete"] for r in requests] == [True] * 7
    assert [(r["llm_calls"], r["tool_calls"], r["attempts"]) for r in requests] == [
        (1, 0, None)
    ] * 7
    # Hidden reasoning: the first chunk is known, the first answer is not.
    streamed = name == "semconv-genai-openai"
    assert [r["first_answer_ms"] is not None for r in requests] == [
        streamed,
        False,
        False,
        streamed,
        False,
        streamed,
        False,
    ]
    assert requests[1]["truncated"] is True


# --- client and engine ---


def _engine_truth() -> list[Row]:
    return list(json.loads((DATA / "truth" / "vllm-joined-engine.json").read_text()))


def _check_joined(calls: list[Row], requests: list[Row]) -> None:
    assert (len(calls), len(requests)) == (20, 20)
    by_id = {c["response_id"]: c for c in calls}
    by_trace = {r["trace_id"]: r for r in requests}
    for true, client in zip(_engine_truth(), truth("vllm-joined"), strict=True):
        call = by_id[true["id"]]
        engine = {
            c: call[c] / 1000
            for c in ("queue_ms", "prefill_ms", "decode_ms", "ttft_engine_ms", "engine_e2e_ms")
        }
        assert list(engine.values()) == pytest.approx(
            [true[c] for c in ("queue", "prefill", "decode", "ttft", "e2e")], abs=1e-6
        )
        assert engine["queue_ms"] == pytest.approx(0.35 * true["ttft"], abs=1e-4)
        assert engine["prefill_ms"] == pytest.approx(0.6 * true["ttft"], abs=1e-4)
        assert call["ttft_source"] == "attribute"
        assert call["ttft_ms"] == call["ttft_client_ms"] >= true["ttft"] * 1000
        assert (
            call["input_tokens"],
            call["output_tokens"],
            call["max_tokens"],
            call["finish_reason"],
        ) == (client["pt"], client["ct"], 48, client["finish"])
        assert (call["model"], call["provider"], call["streaming"], call["error"]) == (
            "mock-large-2026-01-01",
            "openai",
            True,
            False,
        )
        assert call["engine_instance"] is not None
        assert call["engine_instance"] != call["instance"]
        assert call["tpot_ms"] == pytest.approx(
            (call["e2e_ms"] - call["ttft_ms"]) / (call["output_tokens"] - 1)
        )
        _check_split(by_trace[call["trace_id"]], call)


def _check_split(request: Row, call: Row) -> None:
    """The engine's phases are the request's, and what the client waited longer than the engine worked is network."""
    # The span's own end is a rounded float of seconds: up to a microsecond off its attributes.
    assert [request[s] for s in ("queue_ms", "prefill_ms", "decode_ms")] == pytest.approx(
        [call[s] for s in ("queue_ms", "prefill_ms", "decode_ms")], abs=1e-3
    )
    assert request["network_ms"] == pytest.approx(call["e2e_ms"] - call["engine_e2e_ms"], abs=1e-3)
    assert (
        request["first_token_ms"],
        request["generation_ms"],
        request["engine_only"],
        request["service"],
    ) == (0, 0, False, "chat-gateway")


def test_every_engine_span_is_joined_to_its_client_call() -> None:
    found = recording("vllm-joined")
    _check_joined(found.calls, found.requests)


def test_fifteen_engine_spans_are_joined_by_their_parent_and_five_by_response_id_only() -> None:
    found = recording("vllm-joined")
    spans = {(s["trace_id"], s["span_id"]): s for s in found.spans}
    engines = {s["span_id"]: s for s in found.spans if s["role"] == "engine"}
    joined = [(c, engines[c["engine_span_id"]]) for c in found.calls]
    siblings = [(c, e) for c, e in joined if c["trace_id"] == e["trace_id"]]
    assert len(siblings) == 15
    for call, engine in siblings:
        assert (
            engine["parent_span_id"] == spans[call["trace_id"], call["span_id"]]["parent_span_id"]
        )
    apart = [(c, e) for c, e in joined if c["trace_id"] != e["trace_id"]]
    assert len(apart) == 5
    assert all(
        e["parent_span_id"] is None and e["response_id"] == c["response_id"] for c, e in apart
    )
    assert len({e["span_id"] for _, e in joined}) == 20


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("between", [False, True])
def test_client_and_engine_are_joined_in_any_order_of_arrival(
    order: tuple[int, int], between: bool
) -> None:
    both = [bodies("vllm-joined")[i] for i in order]
    with pipeline() as one:
        if between:
            # The first half is assembled alone; what it said on its own must be taken back.
            send(one, both[:1])
            early = held(one)
            assert len(early.requests) == 20
            assert {r["engine_only"] for r in early.requests} == (
                {True} if order == (1, 0) else {False}
            ) or order == (1, 0)
            send(one, both[1:])
        else:
            send(one, both)
        found = held(one)
    _check_joined(found.calls, found.requests)
    assert found.requests == recording("vllm-joined").requests


# --- engines alone ---


def test_the_vllm_spans_have_the_simulations_times_and_tokens() -> None:
    document = json.loads((DATA / "truth" / "vllm-spans.json").read_text())
    true = {row[0]: dict(zip(document["columns"], row, strict=True)) for row in document["rows"]}
    calls = recording("vllm-spans").calls
    assert {c["response_id"] for c in calls} == true.keys()
    for column, name in (
        ("ttft_ms", "ttft"),
        ("engine_e2e_ms", "e2e"),
        ("queue_ms", "queue"),
        ("prefill_ms", "prefill"),
        ("decode_ms", "decode"),
    ):
        np.testing.assert_allclose(
            [c[column] / 1000 for c in calls],
            [true[c["response_id"]][name] for c in calls],
            atol=2e-6,
        )
    for column, name in (
        ("input_tokens", "prompt"),
        ("output_tokens", "output"),
        ("max_tokens", "max_tokens"),
    ):
        assert [c[column] for c in calls] == [true[c["response_id"]][name] for c in calls]
    assert {
        (
            c["ttft_source"],
            c["model"],
            c["finish_reason"],
            c["cached_tokens"],
            c["streaming"],
            c["error"],
        )
        for c in calls
    } == {("engine", None, None, None, None, False)}


@pytest.mark.parametrize(
    ("column", "wanted_s"),
    [
        ("ttft_ms", (19.0, 50.7, 54.4)),
        ("e2e_ms", (20.5, 52.3, 56.9)),
        ("queue_ms", (18.9, 50.6, 54.2)),
        ("prefill_ms", (0.09, 0.21, 0.38)),
        ("decode_ms", (1.3, 3.4, 7.7)),
    ],
)
def test_the_vllm_spans_have_the_known_percentiles(
    column: str, wanted_s: tuple[float, ...]
) -> None:
    values = [r[column] / 1000 for r in recording("vllm-spans").requests]
    # Within 1 % and the half digit that the known figures are rounded to.
    for quantile, wanted in zip((50, 90, 99), wanted_s, strict=True):
        assert np.percentile(values, quantile) == pytest.approx(
            wanted, rel=0.01, abs=0.05 if wanted > 1 else 0.005
        )


def test_a_quarter_of_the_vllm_requests_is_good() -> None:
    good = [r["ttft_ms"] < 1000 and r["e2e_ms"] < 5000 for r in recording("vllm-spans").requests]
    assert 100 * sum(good) / len(good) == pytest.approx(24.5, abs=0.5)


def test_an_engine_alone_is_the_root_of_its_requests() -> None:
    requests = recording("vllm-spans").requests
    assert {
        (r["engine_only"], r["complete"], r["llm_calls"], r["spans"], r["network_ms"])
        for r in requests
    } == {(True, True, 1, 1, 0.0)}


def test_sglang_phases_are_the_stages_and_its_queue_is_not_in_its_prefill() -> None:
    true = {
        row["rid"]: row for row in json.loads((DATA / "truth" / "sglang-spans.json").read_text())
    }
    found = recording("sglang-spans")
    assert {c["response_id"] for c in found.calls} == true.keys()
    requests = {r["trace_id"]: r for r in found.requests}
    for call in found.calls:
        row = true[call["response_id"]]
        assert (call["input_tokens"], call["output_tokens"], call["cached_tokens"]) == (
            row["prompt"],
            row["output"],
            row["cached"],
        )
        assert [call[c] / 1000 for c in ("ttft_ms", "queue_ms", "prefill_ms")] == pytest.approx(
            [row["ttft_s"], row["queue_s"], row["prefill_s"]], abs=2e-3
        )
        request = requests[call["trace_id"]]
        assert [request[c] / 1000 for c in ("queue_ms", "prefill_ms")] == pytest.approx(
            [row["queue_s"], row["prefill_s"]], abs=2e-3
        )
        assert request["decode_ms"] / 1000 == pytest.approx(row["decode_s"], abs=0.02)
        assert (call["ttft_source"], call["finish_reason"], request["engine_only"]) == (
            "engine",
            "stop",
            True,
        )


# --- client senders: what each sends of a call that the server answered ---


@dataclass(frozen=True, slots=True)
class Sender:
    """Where a dialect's TTFT comes from, and the columns that it does not carry (for a call that is not streamed: `blocking`)."""

    ttft: str
    lacks: frozenset[str] = frozenset()
    blocking: frozenset[str] = frozenset()


SENDERS = {
    "openinference-openai": Sender("event"),
    "openinference-langgraph-double": Sender("event"),
    "openinference-langgraph": Sender("none", frozenset({"response_id", "reasoning_tokens"})),
    "langfuse": Sender(
        "attribute", frozenset({"response_id", "provider"}), frozenset({"finish_reason"})
    ),
    "mlflow": Sender("event", frozenset({"session", "tenant", "user_hash"})),
    "vercel-ai-sdk": Sender("attribute"),
    "litellm-sdk": Sender("none", frozenset({"session"})),
    "openllmetry": Sender("event", frozenset({"reasoning_tokens"})),
    "pydantic-ai-logfire": Sender("attribute", frozenset({"tenant", "user_hash"})),
}


def answered(name: str) -> list[tuple[Row, Row]]:
    """(call, what the server saw of it) in order of time."""
    calls = [c for c in recording(name).calls if not c["error"]]
    return list(zip(calls, truth(name), strict=True))


@pytest.mark.parametrize("name", SENDERS)
def test_calls_have_the_servers_numbers(name: str) -> None:
    sender = SENDERS[name]
    for call, true in answered(name):
        lacks = sender.lacks | (frozenset() if true["stream"] else sender.blocking)
        # A stream whose usage nobody asked for ends without any.
        counted = true.get("usage_asked", True)
        wanted = {
            "response_id": true["id"],
            "input_tokens": true["pt"] if counted else None,
            "output_tokens": true["ct"] if counted else None,
            "finish_reason": true["finish"],
        }
        assert {k: call[k] for k in wanted} == {
            k: None if k in lacks else v for k, v in wanted.items()
        }
        for column, key in (("cached_tokens", "cached"), ("reasoning_tokens", "reason")):
            # Absent is not 0: some senders leave out a count of none.
            assert call[column] in ({true[key]} if true[key] and column not in lacks else {None, 0})
        assert call["max_tokens"] == true["max_tokens"]
        assert call["model"].startswith("mock-large")
        assert (call["provider"] is None) == ("provider" in lacks)
        for column in ("session", "tenant", "user_hash"):
            assert (call[column] is None) == (column in lacks), column


@pytest.mark.parametrize("name", SENDERS)
def test_the_first_token_is_where_the_sender_puts_it(name: str) -> None:
    for call, true in answered(name):
        streamed = true["stream"] and SENDERS[name].ttft != "none"
        assert call["ttft_source"] == (SENDERS[name].ttft if streamed else "none")
        assert call["streaming"] in ((True, None) if true["stream"] else (False, None))
        if streamed:
            # What the client waited for holds what the server took, and its retries.
            assert call["ttft_ms"] >= 0.99 * true["ttft"] * 1000
            assert call["ttft_ms"] < 1.25 * true["ttft"] * 1000 + (
                300 if true["id"] in RETRIED else 0
            )


# Two refusals came before these.
RETRIED = {"chatcmpl-1795170050795512", "chatcmpl-1795170089519280"}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("openinference-openai", "openai.BadRequestError"),
        ("langfuse", None),
        ("mlflow", "BadRequestError"),
        ("vercel-ai-sdk", "AI_APICallError"),
        ("litellm-sdk", "BadRequestError"),
        ("openllmetry", "BadRequestError"),
        ("pydantic-ai-logfire", "pydantic_ai.exceptions.ModelContextWindowExceededError"),
    ],
)
def test_a_refused_call_failed_and_says_why(name: str, error: str | None) -> None:
    failed = [c for c in recording(name).calls if c["error"]]
    assert [
        (c["error_type"], c["output_tokens"], c["ttft_ms"], c["tpot_reason"], c["model"])
        for c in failed
    ] == [(error, None, None, "failed", "mock-large")]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("langfuse", {"guardrail_ms": (20, 40), "retrieval_ms": (35, 150), "tool_ms": (80, 120)}),
        ("mlflow", {"retrieval_ms": (35, 150), "tool_ms": (80, 220), "guardrail_ms": (0, 0)}),
        (
            "openinference-langgraph",
            {"guardrail_ms": (20, 40), "retrieval_ms": (20, 100), "tool_ms": (80, 120)},
        ),
        (
            "openinference-langgraph-double",
            {"guardrail_ms": (20, 40), "retrieval_ms": (20, 100), "tool_ms": (80, 120)},
        ),
    ],
)
def test_the_stages_of_a_chain_are_those_of_its_recipe(
    name: str, stages: dict[str, tuple[float, float]]
) -> None:
    requests = recording(name).requests
    for request in requests:
        for stage, (low, high) in stages.items():
            assert low <= request[stage] <= high, stage
        assert request["tool_calls"] == 1
        # What no span explains is the framework's own, and little.
        assert request["other_ms"] < (50 if name.endswith("double") else 15)


@pytest.mark.parametrize(("name", "streams"), [("openllmetry", 2), ("mlflow", 1)])
def test_chunk_events_give_an_itl_that_counts_tokens_and_not_chunks(
    name: str, streams: int
) -> None:
    calls = [c for c in recording(name).calls if c["itl_source"] is not None]
    spans = {s["span_id"]: s for s in recording(name).spans}
    assert len(calls) == streams
    for call in calls:
        assert call["itl_source"] == "chunk"
        # 28 chunks told of 25 tokens: the time between the first and last is spread over the gaps between tokens.
        chunks = spans[call["span_id"]]["chunks"]
        assert chunks > call["output_tokens"]
        assert call["itl_ms"] * (call["output_tokens"] - 1) <= call["e2e_ms"] - call["ttft_ms"]
        assert call["itl_ms"] < call["itl_max_ms"]
    if name == "mlflow":
        # One event per chunk is folded, not stored; the server's own mean was 21.1 ms.
        assert [round(c["itl_ms"]) for c in calls] == [21]


def test_sql_and_vector_searches_are_no_requests() -> None:
    spans = recording("vector-db-db-semconv").spans
    assert {s["stage"] for s in spans} >= {"retrieval"}
    assert not {s["role"] for s in spans} & {"llm", "engine"}


# --- one call, reported or tried more than once ---


@pytest.mark.parametrize("between", [False, True])
def test_a_call_that_two_instrumentations_report_is_one_call_in_any_order(between: bool) -> None:
    """The OpenAI client's spans come in traces of their own, before LangGraph's; both travel in one body here, split in two by scope."""
    whole = ExportTraceServiceRequest.FromString(bodies("openinference-langgraph-double")[0])
    parts = []
    for wanted in (0, 1):
        part = ExportTraceServiceRequest.FromString(whole.SerializeToString())
        scopes = part.resource_spans[0].scope_spans
        kept = [
            scope
            for scope in scopes
            if (scope.scope.name == "openinference.instrumentation.openai") == (wanted == 0)
        ]
        del scopes[:]
        scopes.extend(kept)
        parts.append(part.SerializeToString())
    with pipeline() as one:
        for part in parts if between else [*parts[::-1]]:
            send(one, [part])
        found = held(one)
    known = recording("openinference-langgraph-double")
    for got, wanted in ((found.calls, known.calls), (found.requests, known.requests)):
        # Every store has a salt of its own.
        assert [row | {"user_hash": ""} for row in got] == [
            row | {"user_hash": ""} for row in wanted
        ]


def test_vercels_spans_tell_of_every_attempt() -> None:
    calls = recording("vercel-ai-sdk").calls
    assert [(c["attempts"], c["attempts_source"], c["retry_cause"]) for c in calls] == [
        (1, "span", None)
    ] * 4 + [(2, "span", "error"), (1, "span", None)]
    # One refusal: 6 ms until it came, 121 ms until the next attempt began.
    assert [c["wasted_ms"] for c in calls] == [0, 0, 0, 0, pytest.approx(127), 0]
    assert [c["wasted_tokens"] for c in calls] == [0] * 6
    requests = recording("vercel-ai-sdk").requests
    assert [(r["llm_calls"], r["attempts"]) for r in requests] == [
        (1, 1),
        (1, 1),
        (2, 2),
        (1, 2),
        (1, 1),
    ]
    assert requests[3]["queue_ms"] == pytest.approx(121, abs=0.1)


@pytest.mark.parametrize(
    "name",
    ["openllmetry", "litellm-sdk", "openinference-openai", "mlflow", "langfuse", "vllm-joined"],
)
def test_attempts_that_nobody_tells_of_are_unknown(name: str) -> None:
    assert {(c["attempts"], c["attempts_source"]) for c in recording(name).calls} == {(None, None)}


# --- the tables themselves ---


def test_tables_name_only_what_exists() -> None:
    columns = {*INT_COLUMNS, *TEXT_COLUMNS, "total_tokens", "temperature", "streaming"}
    for dialect in load():
        assert {f.column for f in dialect.fields} <= columns, dialect.name
        assert {f.reader for f in dialect.fields} <= set(READERS)
        assert {m.role for m in (*dialect.marks, *dialect.names)} <= set(ROLES)
        assert {m.stage for m in (*dialect.marks, *dialect.names)} <= set(STAGES)


def test_our_own_attributes_come_first_and_no_source_is_named_twice() -> None:
    dialects = load()
    assert dialects[0].name == "overrun"
    sources = [(f.column, f.key, f.path, f.beside) for d in dialects for f in d.fields]
    assert len(sources) == len(set(sources))
