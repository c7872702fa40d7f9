"""Requests and model calls come out of spans: which token answers, whose time it was, and that nothing is counted twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.spans import Rules, normalize
from overrun.collector.normalise.stages import STAGES
from tests.collector.oracle_build import CLIENT, ERROR, MS, SERVER, T0_NS, Made, body, chat
from tests.collector.oracle_otlp import requests as any_requests
from tests.collector.oracle_store import Row, held, pipeline, send

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=60
)
STAGE_COLUMNS = [f"{s}_ns" for s in STAGES if s != "wait_user"]


def spans_of(*bodies: bytes) -> pa.Table:
    """Bodies as the assembly gets their spans: with their sources, sorted by trace and span id."""
    made = normalize(decode_spans(bodies), Rules())
    spans = made.spans
    by_id = dict(made.sources)
    for column in ("service", "instance", "version", "scope_name"):
        spans = spans.append_column(
            column,
            pa.array(
                [by_id[i][column] for i in spans.column("source_id").to_pylist()], pa.string()
            ),
        )
    return spans.sort_by(
        [("trace_hi", "ascending"), ("trace_lo", "ascending"), ("span_id", "ascending")]
    )


def assembled(*made: Made) -> tuple[list[Row], list[Row]]:
    """Request rows and call rows, by start."""
    out = assemble(spans_of(body(*made)))
    return (
        sorted(out.requests.to_pylist(), key=lambda r: r["start_ns"]),
        sorted(out.llm_calls.to_pylist(), key=lambda r: r["start_ns"]),
    )


def request_of(*made: Made) -> Row:
    """The one request of these spans."""
    requests, _ = assembled(*made)
    assert len(requests) == 1
    return requests[0]


def stages_ms(request: Row, prefix: str = "") -> dict[str, float]:
    """Stages that hold time, in ms."""
    return {s: request[f"{prefix}{s}_ns"] / MS for s in STAGES if request[f"{prefix}{s}_ns"]}


def root(end: float, name: str = "POST /chat", **more: Any) -> Made:
    return Made(
        1,
        name,
        0,
        end,
        kind=SERVER,
        attributes={"http.route": "/chat", **more.pop("attributes", {})},
        **more,
    )


# --- the way to a gateway ---


def proxy(
    id: int, start: float, end: float, parent: int, scope: str = "fastapi", **more: Any
) -> Made:
    return Made(
        id,
        "POST /chat/completions",
        start,
        end,
        parent,
        SERVER,
        service="proxy",
        scope=scope,
        **more,
    )


def answered(
    id: int, start: float, end: float, parent: int, response: str = "", **more: Any
) -> Made:
    return chat(
        id,
        start,
        end,
        parent,
        attributes={"gen_ai.response.id": response} if response else {},
        **{"service": "proxy", **more},
    )


def asked(id: int, start: float, end: float, response: str = "", **more: Any) -> Made:
    return answered(id, start, end, 1, response, service="test", **more)


STORED = chat(
    5,
    130,
    150,
    4,
    service="proxy",
    scope="litellm",
    attributes={"gen_ai.response.id": "a", "hidden_params": '{"cache_key": "k"}'},
)
KEPT = Made(5, "cache.get llm_response", 130, 140, 4, service="proxy", scope="litellm")


@pytest.mark.parametrize(
    ("spans", "calls", "stages"),
    [
        # Two instrumentations tell of what the gateway served, both from the caller on; the context is the one around the call, or the call's own.
        (
            [
                asked(2, 100, 900, "a"),
                proxy(3, 110, 890, 1),
                proxy(4, 120, 880, 1, "litellm"),
                answered(5, 200, 800, 4, "a"),
            ],
            [5],
            {"generation": 600, "network": 20, "other": 380},
        ),
        (
            [
                asked(2, 100, 900),
                proxy(3, 110, 890, 2),
                proxy(4, 120, 880, 2, "litellm"),
                answered(5, 200, 800, 4),
            ],
            [5],
            {"generation": 600, "network": 20, "other": 380},
        ),
        # Of two at a time, each has its own answer.
        (
            [
                asked(2, 100, 900, "a"),
                asked(6, 100, 890, "b"),
                proxy(3, 110, 880, 1),
                proxy(4, 115, 870, 1),
                answered(5, 200, 800, 4, "a"),
                answered(7, 200, 790, 3, "b"),
            ],
            [5, 7],
            None,
        ),
        # The gateway went on for a client that had left.
        (
            [
                chat(2, 100, 400, out=None, status=ERROR),
                proxy(3, 110, 950, 1),
                answered(5, 200, 900, 3),
            ],
            [5],
            None,
        ),
        # The answer was stored: as LiteLLM tells it (v1 and v2).
        (
            [asked(2, 100, 300, "a"), proxy(4, 110, 290, 1), STORED],
            [],
            {"gateway": 20, "other": 980},
        ),
        ([asked(2, 100, 300, "a"), proxy(4, 110, 290, 1), KEPT], [], {"gateway": 10, "other": 990}),
        (
            [asked(2, 100, 300, "a"), proxy(4, 110, 290, 1), KEPT, answered(6, 150, 280, 4, "a")],
            [6],
            None,
        ),
        # Another service was asked meanwhile, for no answer of a model.
        (
            [
                asked(2, 100, 900, "a"),
                proxy(3, 110, 890, 1),
                Made(4, "search", 120, 880, 3, service="proxy"),
            ],
            [2],
            None,
        ),
    ],
)
def test_what_a_gateway_served_is_in_the_call_that_it_was_sent_for(
    spans: list[Made], calls: list[int], stages: dict[str, float] | None
) -> None:
    requests, found = assembled(root(1000), *spans)
    assert sorted(call["span_id"] for call in found) == calls
    assert [request["llm_calls"] for request in requests] == [len(calls)]
    assert stages is None or stages_ms(requests[0]) == stages


def test_of_many_calls_at_a_time_each_has_what_its_gateway_served() -> None:
    at_once = range(500)  # and compared with all others, they would take minutes
    calls = [asked(10 + i, 100, 900, f"a{i}") for i in at_once]
    served = [proxy(1_000 + i, 110, 890 - i / 10, 1) for i in at_once] + [
        proxy(2_000 + i, 111, 889 - i / 10, 1, "litellm") for i in at_once
    ]
    requests, found = assembled(
        root(1000),
        *calls,
        *served,
        *(answered(3_000 + i, 200, 800, 1_000 + i, f"a{i}") for i in at_once),
    )
    assert [request["llm_calls"] for request in requests] == [500]
    assert sorted(call["span_id"] for call in found) == [3_000 + i for i in at_once]


def test_what_a_call_spends_around_the_gateway_that_makes_it_is_the_network() -> None:
    gateway = Made(
        3, "POST /v1/chat/completions", 150, 850, parent=2, kind=SERVER, service="gateway"
    )
    request = request_of(
        root(1000),
        chat(2, 100, 900),
        gateway,
        chat(4, 200, 800, parent=3, ttft=100, service="gateway"),
    )
    assert stages_ms(request) == {"other": 300, "network": 100, "first_token": 100, "decode": 500}


@pytest.mark.parametrize(
    ("sent_ms", "until_ms", "gateway_ms"), [(400, 840, 250), (400, 700, 250), (200, 250, 0)]
)
def test_what_a_proxy_holds_before_it_sends_a_call_on_is_the_gateways(
    sent_ms: float, until_ms: float, gateway_ms: float
) -> None:
    """A proxy that tells of HTTP alone: its client's span ends with the answer, or with the headers at the first token. Or it only asks who that is."""
    server, client = (
        proxy(3, 150, 850, 2, "http"),
        Made(4, "POST", sent_ms, until_ms, 3, CLIENT, service="proxy", scope="http"),
    )
    request = request_of(root(1000), chat(2, 100, 900, ttft=600), server, client)
    held = {"gateway": gateway_ms} if gateway_ms else {}
    assert stages_ms(request) == {
        "other": 200,
        "first_token": 600 - gateway_ms,
        "decode": 200,
        **held,
    }
    assert stages_ms(request, "ttft_") == {"other": 100, "first_token": 600 - gateway_ms, **held}
    assert request["llm_calls"] == 1


# --- which token answers ---


def test_ttft_runs_from_the_start_of_the_request_to_the_first_token_of_its_call() -> None:
    request = request_of(root(1000), chat(2, 200, 900, ttft=300))
    assert request["ttft_ns"] == 500 * MS
    assert (
        request["ttft_source"],
        request["first_model_token_ns"],
        request["first_answer_ns"],
    ) == (1, 500 * MS, 500 * MS)
    assert stages_ms(request) == {"other": 300, "first_token": 300, "decode": 400}
    assert stages_ms(request, "ttft_") == {"other": 200, "first_token": 300}


def test_ttft_belongs_to_the_last_call_of_a_tool_loop() -> None:
    request = request_of(
        root(1000),
        chat(2, 100, 400, ttft=100),
        Made(3, "sum", 400, 600, 1, attributes={"gen_ai.operation.name": "execute_tool"}),
        chat(4, 600, 950, ttft=50),
    )
    assert request["ttft_ns"] == 650 * MS
    assert request["first_model_token_ns"] == 200 * MS
    assert (request["llm_calls"], request["tool_calls"]) == (2, 1)
    # 100 before the first call, 50 after the last; the first call whole, the tool, then 50 ms to the answer's first token.
    assert stages_ms(request, "ttft_") == {
        "other": 100,
        "first_token": 150,
        "decode": 200,
        "tool": 200,
    }


def test_a_last_call_that_was_not_streamed_leaves_ttft_unknown() -> None:
    request = request_of(root(1000), chat(2, 100, 400, ttft=100), chat(3, 500, 900))
    assert (request["ttft_ns"], request["ttft_source"], request["first_answer_ns"]) == (
        None,
        0,
        None,
    )
    assert request["first_model_token_ns"] == 200 * MS
    assert [request[f"ttft_{s}_ns"] for s in STAGES] == [None] * len(STAGES)


def test_a_guardrails_own_model_call_does_not_answer() -> None:
    request = request_of(
        root(1000),
        chat(2, 100, 600, ttft=100),
        Made(3, "guardrail", 600, 900, 1),
        chat(4, 650, 850, 3, ttft=20),
    )
    assert request["ttft_ns"] == 200 * MS
    assert stages_ms(request) == {"other": 200, "first_token": 100, "decode": 400, "guardrail": 300}


def test_ttft_from_a_span_event_says_so() -> None:
    request = request_of(root(1000), chat(2, 200, 900, events=[(450, "First Token Stream Event")]))
    assert (request["ttft_ns"], request["ttft_source"]) == (450 * MS, 2)


@pytest.mark.parametrize("loser", [2, 4])
def test_a_call_cancelled_as_another_one_answers_fails_nothing(loser: int) -> None:
    cancelled = chat(
        loser,
        250,
        900,
        out=None,
        attributes={"gen_ai.operation.name": "chat", "error.type": "asyncio.CancelledError"},
        status=ERROR,
    )
    request = request_of(root(1000), chat(3, 200, 900, ttft=300), cancelled)
    assert (request["error"], request["error_type"], request["ttft_ns"]) == (False, None, 500 * MS)
    assert stages_ms(request) == {"other": 300, "first_token": 300, "decode": 400}


def test_a_name_with_the_id_of_a_run_in_it_is_one_route() -> None:
    ran = Made(1, "Crew_062679a6-c8da-40ab-8782-ef961a86b6b8.kickoff", 0, 1000)
    assert request_of(ran, chat(2, 200, 900))["route"] == "Crew_*.kickoff"


def test_a_call_has_the_route_of_its_request_whatever_name_a_workflow_gave_it() -> None:
    workflow = chat(2, 10, 90, attributes={"gen_ai.workflow.name": "LangGraph"})
    for top in (root(100), Made(1, "answer", 0, 100)):
        (request,), (call,) = assembled(top, workflow)
        assert call["route"] == request["route"] == ("/chat" if top.kind == SERVER else "answer")


def test_a_usable_answer_is_where_the_application_marks_it() -> None:
    request = request_of(
        root(1000, events=[(700, "overrun.usable_answer"), (800, "overrun.usable_answer")]),
        chat(2, 200, 900, ttft=300),
    )
    assert request["usable_ns"] == 700 * MS


# --- whose time it was ---


def test_post_chat_is_no_post_stage_and_postgres_is_no_post() -> None:
    request = request_of(
        root(1000),
        Made(2, "postgres", 100, 300, 1),
        Made(3, "POST /chat inner", 300, 500, 1),
        chat(5, 500, 600),
        Made(4, "postprocess", 600, 700, 1),
    )
    assert stages_ms(request) == {"other": 800, "post": 100, "generation": 100}


def test_a_database_is_retrieval_before_the_call_and_post_when_it_writes_after_it() -> None:
    db = {"db.system.name": "postgresql"}
    request = request_of(
        root(1000),
        Made(2, "SELECT docs", 100, 200, 1, CLIENT, db),
        Made(3, "INSERT log", 200, 300, 1, CLIENT, db | {"db.operation.name": "INSERT"}),
        chat(4, 300, 700, ttft=100),
        Made(5, "INSERT answer", 700, 900, 1, CLIENT, db | {"db.operation.name": "INSERT"}),
    )
    assert stages_ms(request) == {
        "other": 200,
        "retrieval": 200,
        "first_token": 100,
        "decode": 300,
        "post": 200,
    }


def test_retrieval_overlapped_by_a_later_guardrail_counts_up_to_it() -> None:
    request = request_of(
        root(1000),
        Made(2, "retrieve", 0, 300, 1),
        Made(3, "guardrail", 200, 400, 1),
        chat(4, 400, 1000),
    )
    assert stages_ms(request) == {"retrieval": 200, "guardrail": 200, "generation": 600}


def test_our_own_attribute_names_the_stage() -> None:
    request = request_of(
        root(1000),
        Made(2, "mystery", 0, 400, 1, attributes={"overrun.stage": "gateway"}),
        chat(3, 400, 1000),
    )
    assert stages_ms(request) == {"gateway": 400, "generation": 600}


def test_waiting_for_the_user_stands_outside_e2e() -> None:
    request = request_of(
        root(1000),
        chat(2, 0, 200),
        Made(3, "human_approval", 200, 700, 1),
        chat(4, 700, 1000, ttft=100),
    )
    assert (request["e2e_ns"], request["wait_user_ns"]) == (500 * MS, 500 * MS)
    assert request["ttft_ns"] == 300 * MS
    assert request["ttft_wait_user_ns"] == 500 * MS


def test_work_after_the_response_is_not_the_requests_time() -> None:
    request = request_of(root(1000), chat(2, 0, 900), Made(3, "evaluate answer", 950, 4000, 1))
    assert stages_ms(request) == {"other": 100, "generation": 900}


def test_a_servers_span_that_ends_before_its_stream_begins_lasts_until_its_end() -> None:
    """Flask: the span ends as the view returns, the answer is streamed after that."""
    handed = Made(
        1,
        "POST /chat",
        0,
        40,
        kind=SERVER,
        attributes={"http.route": "/chat", "http.response.status_code": 200},
    )
    view = Made(3, "view", 5, 39, 1)
    request = request_of(handed, view, chat(2, 10, 260, 3, ttft=110))
    assert (request["e2e_ns"] / MS, request["ttft_ns"] / MS, request["clipped_spans"]) == (
        260,
        120,
        0,
    )
    assert sum(stages_ms(request).values()) == 260


@pytest.mark.parametrize(
    ("server", "calls"),
    [
        ({"http.response.status_code": 202}, [chat(2, 10, 260, ttft=110)]),
        ({}, [chat(2, 10, 260)]),
        ({}, [chat(2, 1, 39, ttft=9), chat(3, 10, 260, ttft=110)]),
        ({}, [chat(2, 10, 260, ttft=110, service="worker")]),
        ({}, [chat(2, 50, 260, ttft=110)]),
    ],
    ids=[
        "accepted for later",
        "not streamed",
        "answered before",
        "in another process",
        "begun afterwards",
    ],
)
def test_what_a_server_leaves_behind_is_no_answer_of_its(
    server: dict[str, Any], calls: list[Made]
) -> None:
    handed = Made(1, "POST /chat", 0, 40, kind=SERVER, attributes={"http.route": "/chat", **server})
    assert request_of(handed, *calls)["e2e_ns"] / MS == 40


# --- engines ---

ENGINE = {
    "gen_ai.latency.e2e": 0.6,
    "gen_ai.latency.time_to_first_token": 0.25,
    "gen_ai.latency.time_in_queue": 0.1,
    "gen_ai.latency.time_in_model_prefill": 0.1,
    "gen_ai.latency.time_in_model_decode": 0.35,
    "gen_ai.request.id": "r1",
}
CLIENT_ID = {"gen_ai.response.id": "r1"}


@pytest.mark.parametrize(
    ("trace", "parent"),
    [(1, 2), (1, 1), (2, 0)],
    ids=["child of the call", "sibling of the call", "a trace of its own, same response id"],
)
def test_an_engine_span_splits_its_clients_call(trace: int, parent: int) -> None:
    engine = Made(
        9,
        "llm_request",
        250,
        850,
        parent,
        SERVER,
        ENGINE,
        trace=trace,
        service="vllm",
        scope="vllm.tracing.otel",
    )
    requests, calls = assembled(
        root(1000), chat(2, 200, 900, ttft=310, attributes=CLIENT_ID), engine
    )
    assert (len(requests), len(calls)) == (1, 1)
    # Front end 50 = 250 - 100 - 100 before the queue; the client's 50 + 50 around the engine are network.
    assert stages_ms(requests[0]) == {
        "other": 350,
        "queue": 100,
        "prefill": 100,
        "decode": 350,
        "network": 100,
    }
    call = calls[0]
    assert (
        call["ttft_client_ns"],
        call["ttft_engine_ns"],
        call["ttft_ns"],
        call["ttft_source"],
    ) == (310 * MS, 250 * MS, 310 * MS, 1)
    assert (call["queue_ns"], call["prefill_ns"], call["decode_ns"], call["engine_e2e_ns"]) == (
        100 * MS,
        100 * MS,
        350 * MS,
        600 * MS,
    )
    assert (call["span_id"], call["engine_span_id"], call["engine_instance"]) == (2, 9, "vllm-1")


def test_ttft_is_the_engines_where_the_client_saw_none() -> None:
    engine = Made(
        9, "llm_request", 250, 850, 2, SERVER, ENGINE, service="vllm", scope="vllm.tracing.otel"
    )
    requests, calls = assembled(root(1000), chat(2, 200, 900), engine)
    assert (calls[0]["ttft_ns"], calls[0]["ttft_source"]) == (250 * MS, 3)
    # The engine's first token came 50 ms after the call began plus 250 ms, and the call began at 200.
    assert (requests[0]["ttft_ns"], requests[0]["ttft_source"]) == (500 * MS, 3)
    assert calls[0]["tpot_ns"] == pytest.approx((600 - 250) * MS / 9)


def test_two_calls_with_engines_of_their_own_are_kept_apart() -> None:
    made = [root(1000)]
    for i, start in enumerate((100, 500)):
        made.append(chat(2 + i, start, start + 300, attributes={"gen_ai.response.id": f"r{i}"}))
        made.append(
            Made(
                10 + i,
                "llm_request",
                start + 10,
                start + 290,
                0,
                SERVER,
                ENGINE | {"gen_ai.request.id": f"r{i}"},
                trace=5 + i,
                service="vllm",
            )
        )
    requests, calls = assembled(*made)
    assert (len(requests), len(calls)) == (1, 2)
    assert [c["engine_span_id"] for c in calls] == [10, 11]
    assert requests[0]["network_ns"] == 40 * MS


# --- calls ---


def test_tpot_needs_two_tokens_and_says_why_it_is_missing() -> None:
    reasons = []
    for more in (
        {"out": 1, "ttft": 100},
        {"out": None, "ttft": 100},
        {"out": 10},
        {"out": 10, "ttft": 100, "status": ERROR},
        {"out": 10, "ttft": 100, "attributes": {"gen_ai.usage.reasoning.output_tokens": 4}},
        {"out": 11, "ttft": 100},
    ):
        _, calls = assembled(root(1000), chat(2, 100, 900, **more))
        reasons.append((calls[0]["tpot_reason"], calls[0]["tpot_ns"]))
    assert reasons == [
        ("fewer_than_2_tokens", None),
        ("no_token_count", None),
        ("no_first_token", None),
        ("failed", None),
        ("hidden_reasoning", None),
        (None, 70.0 * MS),
    ]


def test_itl_spreads_the_chunks_time_over_the_gaps_between_tokens() -> None:
    chunks = [(200 + 50 * i, "gen_ai.content.completion.chunk") for i in range(4)] + [
        (500, "gen_ai.content.completion.chunk")
    ]
    requests, calls = assembled(root(1000), chat(2, 100, 900, out=13, events=chunks))
    # 200, 250, 300, 350, 500: 300 ms between first and last, 12 gaps between 13 tokens, worst 150.
    assert (calls[0]["itl_ns"], calls[0]["itl_max_ns"], calls[0]["itl_source"]) == (
        25.0 * MS,
        150.0 * MS,
        "chunk",
    )
    assert (calls[0]["ttft_ns"], calls[0]["ttft_source"]) == (100 * MS, 2)
    assert (requests[0]["itl_ns"], requests[0]["itl_max_ns"]) == (25.0 * MS, 150.0 * MS)


def test_tokens_of_a_request_are_the_sum_of_its_calls_and_absent_is_not_zero() -> None:
    request = request_of(
        root(1000), chat(2, 100, 400, ttft=100, out=5), chat(3, 500, 900, ttft=50, out=9)
    )
    assert (
        request["input_tokens"],
        request["output_tokens"],
        request["cached_tokens"],
        request["reasoning_tokens"],
    ) == (200, 14, None, None)
    # 200 ms over 4 gaps and 350 ms over 8: 550 / 12.
    assert request["tpot_ns"] == pytest.approx((200 + 350) * MS / 12)


def test_a_call_reported_twice_in_one_trace_is_one_call() -> None:
    requests, calls = assembled(
        root(1000), chat(2, 100, 900, ttft=200), chat(3, 110, 890, 2, ttft=190)
    )
    assert (len(calls), requests[0]["llm_calls"], calls[0]["span_id"]) == (1, 1, 3)


def test_parallel_equal_calls_are_real_calls() -> None:
    requests, calls = assembled(root(1000), chat(2, 100, 900), chat(3, 100, 900))
    assert (len(calls), requests[0]["llm_calls"]) == (2, 2)
    assert sorted(c["on_path"] for c in calls) == [False, True]


@pytest.mark.parametrize("parent", [0, 99], ids=["roots", "a parent that is sent elsewhere"])
def test_calls_whose_common_parent_is_not_here_are_one_request_of_theirs(parent: int) -> None:
    for starts, e2e in (((0, 600), 900), ((0, 10), 310), ((0, 100), 400)):
        made = [
            chat(at, start, start + 300, parent=parent, out=at)
            for at, start in enumerate(starts, start=5)
        ]
        request = request_of(*made)
        assert (
            request["llm_calls"],
            request["output_tokens"],
            request["e2e_ns"] / MS,
            request["complete"],
        ) == (2, 11, e2e, parent == 0)
        assert sum(stages_ms(request).values()) == e2e
    wrapped = [
        Made(
            at,
            "ChatModel",
            at,
            500 + at,
            parent=parent,
            attributes={"openinference.span.kind": "LLM"},
        )
        for at in (5, 6)
    ]
    assert (
        request_of(*wrapped, *(chat(at + 10, at + 1, 500, parent=at, out=at) for at in (5, 6)))[
            "llm_calls"
        ]
        == 2
    )


def test_a_root_that_is_no_call_stays_the_request_beside_others() -> None:
    beside = Made(7, "refresh", 900, 1_200)
    assert (
        request_of(Made(1, "answer", 0, 1_000), chat(2, 100, 900), beside)["e2e_ns"] / MS == 1_000
    )


@pytest.mark.parametrize("unfinished_first", [True, False])
def test_of_copies_the_one_that_ended_last_counts(unfinished_first: bool) -> None:
    begun, ended = (
        [root(0), chat(2, 10, 10, out=None)],
        [root(1000), chat(2, 10, 900, ttft=300, out=50)],
    )
    request = request_of(*(begun + ended if unfinished_first else ended + begun))
    assert (
        request["e2e_ns"],
        request["output_tokens"],
        request["spans"],
        request["llm_calls"],
    ) == (1000 * MS, 50, 2, 1)


@pytest.mark.parametrize("server_first", [True, False])
def test_client_and_server_that_share_an_id_are_two_spans(server_first: bool) -> None:
    client = Made(2, "post", 100, 900, parent=1, kind=CLIENT, attributes={"http.method": "POST"})
    server = Made(
        2,
        "post /answer",
        200,
        800,
        parent=1,
        kind=SERVER,
        service="gateway",
        attributes={"http.method": "POST"},
    )
    inside = chat(3, 300, 700, parent=2, out=50, service="gateway")
    request = request_of(
        root(1000), *((server, client) if server_first else (client, server)), inside
    )
    assert (request["spans"], request["service"]) == (4, "app")
    assert {stage: ms for stage, ms in stages_ms(request).items() if ms} == {
        "generation": 400.0,
        "network": 200.0,
        "other": 400.0,
    }


def test_a_span_that_arrived_twice_counts_once() -> None:
    spans = (root(1000), chat(2, 100, 900, ttft=200))
    assert assembled(*spans, *spans) == assembled(*spans)


# --- requests ---


def test_a_failed_call_that_answers_makes_a_failed_request() -> None:
    request = request_of(
        root(1000), chat(2, 100, 900, status=ERROR, attributes={"error.type": "TimeoutError"})
    )
    assert (request["error"], request["error_type"]) == (True, "TimeoutError")
    recovered = request_of(
        root(1000),
        chat(2, 100, 400, status=ERROR, attributes={"error.type": "TimeoutError"}),
        chat(3, 500, 900),
    )
    assert (recovered["error"], recovered["error_type"]) == (False, None)


def test_a_trace_without_a_call_or_a_server_is_no_request() -> None:
    assert assembled(Made(1, "load model", 0, 1000)) == ([], [])
    requests, calls = assembled(root(1000))
    assert (len(requests), requests[0]["llm_calls"], calls) == (1, 0, [])


def test_a_request_whose_root_never_came_is_incomplete() -> None:
    assert request_of(chat(2, 100, 900, parent=1))["complete"] is False
    assert (
        request_of(root(1000, parent=77), chat(2, 100, 900))["complete"] is True
    )  # the parent of a SERVER span is in another process


@pytest.mark.parametrize(
    ("state", "sampling", "weight"),
    [
        ("ot=th:8", "th:8", 2.0),
        ("x=y,ot=rv:1;th:c", "th:c", 4.0),
        ("ot=th:zz", None, None),
        ("", None, None),
        ("ot=p:3;r:5", "th:e", 8.0),
        ("ot=p:63", None, None),
        ("es=s:0.25", "th:c", 4.0),
        ("es=s:no", None, None),
        ("ot=th:8,overrun=tail:slow", "tail:slow", None),
    ],
)
def test_the_samplers_threshold_is_the_weight(
    state: str, sampling: str | None, weight: float | None
) -> None:
    request = request_of(root(1000, trace_state=state), chat(2, 100, 900))
    assert (request["sampling"], request["sample_weight"]) == (sampling, weight)


@pytest.mark.parametrize(
    ("attributes", "weight", "sampling"),
    [
        ({"meta.refinery.sample_rate": 4}, 4.0, "th:c"),
        ({"SampleRate": "2"}, 2.0, "th:8"),
        ({"SampleRate": 1}, None, None),
        ({"SampleRate": 0}, None, None),
        ({"microsoft.sample_rate": 25.0}, 4.0, "th:c"),
        ({"sampler.type": "probabilistic", "sampler.param": 0.5}, 2.0, "th:8"),
        ({"sampler.type": "const", "sampler.param": 1}, None, None),
        ({"sampler.type": "ratelimiting", "sampler.param": 2.0}, None, "tail:ratelimiting"),
        ({"sampling.probability": 1e-300}, None, None),
    ],
)
def test_a_samplers_attributes_say_how_often_a_request_counts(
    attributes: dict[str, Any], weight: float | None, sampling: str | None
) -> None:
    request = request_of(root(1000, attributes=attributes), chat(2, 100, 900))
    assert (request["sampling"], request["sample_weight"]) == (sampling, weight)


def test_a_tail_samplers_policy_is_told_by_the_scope() -> None:
    sent = ExportTraceServiceRequest.FromString(body(root(1000), chat(2, 100, 900)))
    for scope_spans in (s for r in sent.resource_spans for s in r.scope_spans):
        scope_spans.scope.attributes.add(
            key="tailsampling.policy"
        ).value.string_value = "slow; or, failed"
    [request] = assemble(spans_of(sent.SerializeToString())).requests.to_pylist()
    assert (request["sampling"], request["sample_weight"]) == ("tail:slow_or_failed", None)


def test_nothing_makes_nothing() -> None:
    out = assemble(spans_of(body()))
    assert (out.requests.num_rows, out.llm_calls.num_rows, out.covered.num_rows) == (0, 0, 0)


# --- laws ---


@SETTINGS
@given(st.lists(any_requests(), min_size=1, max_size=3))
def test_any_spans_assemble_into_rows_that_add_up(sent: list[Any]) -> None:
    spans = spans_of(*(r.SerializeToString() for r in sent))
    out = assemble(spans)
    check_sums(out.requests.to_pylist())
    keys = {
        (h, lo)
        for h, lo in zip(
            spans.column("trace_hi").to_pylist(), spans.column("trace_lo").to_pylist(), strict=True
        )
    }
    assert {tuple(c.values()) for c in out.covered.to_pylist()} == keys
    assert {(r["trace_hi"], r["trace_lo"]) for r in out.requests.to_pylist()} <= keys
    for call in out.llm_calls.to_pylist():
        assert call["duration_ns"] >= 0
        assert (call["ttft_source"] == 0) == (call["ttft_ns"] is None)
        assert (call["tpot_ns"] is None) != (call["tpot_reason"] is None)


def check_sums(requests: list[Row]) -> None:
    """Stage times are no less than 0 and sum to E2E, and those up to the first token to TTFT, in whole nanoseconds."""
    for request in requests:
        stage_ns = [request[c] for c in STAGE_COLUMNS]
        assert min(stage_ns) >= 0
        assert sum(stage_ns) == request["e2e_ns"]
        assert request["wait_user_ns"] >= 0
        to_first = [request[f"ttft_{c}"] for c in STAGE_COLUMNS]
        if request["ttft_ns"] is not None:
            assert sum(to_first) == request["ttft_ns"]
            assert all(0 <= part <= whole for part, whole in zip(to_first, stage_ns, strict=True))
        for moment in ("ttft_ns", "first_model_token_ns", "first_answer_ns"):
            assert (
                request[moment] is None
                or 0 <= request[moment] <= request["e2e_ns"] + request["wait_user_ns"]
            )


@st.composite
def sane_traces(draw: st.DrawFn) -> list[Made]:
    """A request with retrieval, tools, calls and engines that overlap as they like."""
    out = [root(1000)]
    for i in range(2, draw(st.integers(2, 9))):
        start, end = sorted((draw(st.integers(0, 1100)), draw(st.integers(0, 1100))))
        parent = draw(st.integers(1, i - 1))
        kind = draw(st.integers(0, 4))
        if kind == 0:
            out.append(
                chat(
                    i,
                    start,
                    end,
                    parent,
                    ttft=draw(st.none() | st.integers(0, 1500)),
                    out=draw(st.none() | st.integers(0, 30)),
                )
            )
        elif kind == 1:
            service = draw(st.sampled_from(("vllm", "other")))
            out.append(
                Made(
                    i,
                    "llm_request",
                    start + draw(st.sampled_from((0, 5000))),
                    end + 5000,
                    parent,
                    SERVER,
                    ENGINE,
                    service=service,
                    scope="vllm",
                )
            )
        else:
            out.append(
                Made(
                    i,
                    draw(
                        st.sampled_from(
                            (
                                "retrieve",
                                "execute_tool",
                                "guardrail",
                                "step",
                                "human_approval",
                                "postprocess",
                            )
                        )
                    ),
                    start,
                    end,
                    parent,
                )
            )
    return out


@settings(SETTINGS, max_examples=100)
@given(sane_traces())
def test_stage_times_of_any_request_sum_to_its_e2e(made: list[Made]) -> None:
    requests, _ = assembled(*made)
    check_sums(requests)
    for request in requests:
        row = next(m for m in made if m.id == request["root_span_id"])
        # An answer whose first token comes after its server's span has ended lasts on.
        later = any(
            m.start + 1000 * m.attributes.get("gen_ai.response.time_to_first_chunk", 0) > row.end
            for m in made
        )
        ends = {row.end, *(m.end for m in made if later and m.name == "chat m" and m.end > row.end)}
        assert request["e2e_ns"] + request["wait_user_ns"] in {
            round((end - row.start) * MS) for end in ends
        }


def test_the_order_of_arrival_changes_nothing() -> None:
    made = [
        root(1000),
        Made(2, "retrieve", 0, 200, 1),
        chat(3, 200, 900, ttft=310, attributes=CLIENT_ID),
        Made(9, "llm_request", 250, 850, 0, SERVER, ENGINE, trace=2, service="vllm", scope="vllm"),
        Made(4, "guardrail", 850, 950, 1),
    ]
    found = []
    random = np.random.default_rng(7)
    for at_once in (5, 1, 2, 1):
        order = [made[i] for i in random.permutation(len(made))]
        with pipeline() as one:
            for i in range(0, len(order), at_once):
                send(one, [body(*order[i : i + at_once])])
            rows = held(one)
            found.append((rows.requests, rows.calls))
    assert len(found[0][0]) == 1
    assert found[0][0][0]["start"] == T0_NS // 1000
    assert all(f == found[0] for f in found)


TGI = {
    "total_time": "1.5s",
    "validation_time": "1ms",
    "queue_time": "300ms",
    "inference_time": "1.2s",
    "time_per_token": "30ms",
}


def test_where_only_the_client_saw_the_first_token_the_engines_time_is_parted_there() -> None:
    request = request_of(
        root(1600),
        chat(2, 10, 1590, ttft=400),
        Made(3, "generate", 20, 1520, 2, service="tgi", attributes=TGI),
    )
    found = stages_ms(request)
    assert {k: v for k, v in found.items() if v} == {
        "network": 80,
        "queue": 300,
        "first_token": 90,
        "decode": 1110,
        "other": 20,
    }


def test_a_prefill_that_may_hold_the_queue_is_not_shown_as_prefill() -> None:
    timed = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "gen_ai.latency.time_in_model_prefill": 0.48,
        "gen_ai.latency.time_in_model_decode": 0.5,
    }
    requests, [call] = assembled(
        Made(1, " Req 1f0a", 0, 1000, scope="sglang server", attributes=timed)
    )
    assert {k: v for k, v in stages_ms(requests[0]).items() if v} == {
        "first_token": 500,
        "decode": 500,
    }
    assert call["prefill_ns"] is None


def test_a_prefill_engine_works_within_the_request_of_the_decode_engine_that_waits_for_it() -> None:
    def made(id: int, name: str, start: float, end: float, parent: int, **attributes: Any) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
    }
    spans = [
        made(3, "prefill Req 1f", 20, 500, 2, **told),
        made(4, "prefill_waiting", 20, 200, 3),
        made(5, "prefill_forward", 200, 450, 3),
        made(6, "prefill_transfer_kv_cache", 450, 500, 3),
        made(7, "decode Req 1f", 20, 990, 2, **told),
        made(8, "decode_waiting", 500, 510, 7),
        made(9, "decode_forward", 510, 980, 7),
    ]
    requests, [call] = assembled(root(1000), chat(2, 10, 1000, ttft=520), *spans)
    found = {k: v for k, v in stages_ms(requests[0]).items() if v}
    assert found == {
        "network": 20,
        "queue": 190,
        "prefill": 250,
        "kv_transfer": 50,
        "decode": 470,
        "other": 20,
    }
    assert (call["queue_ns"], call["prefill_ns"], call["decode_ns"], call["attempts"]) == (
        190e6,
        250e6,
        470e6,
        None,
    )


def test_the_room_in_which_two_engines_meet_is_no_request_and_names_none() -> None:
    def made(id: int, name: str, start: float, end: float, parent: int, **attributes: Any) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
        "bootstrap_room": "0x1f",
    }
    [request], [call] = assembled(
        made(1, "Bootstrap Room 0x1f", 0, 1000, 0),
        made(3, "prefill Req 1f", 0, 500, 1, **told),
        made(4, "prefill_forward", 200, 500, 3),
        made(7, "decode Req 1f", 0, 1000, 1, **told),
        made(9, "decode_forward", 500, 1000, 7),
    )
    assert (
        request["route"],
        request["engine_only"],
        request["llm_calls"],
        call["route"],
        call["span_id"],
    ) == (None, True, 1, None, 7)


def half(
    id: int,
    start: float,
    end: float,
    out: int,
    *,
    queue: float,
    prefill: float,
    request_id: str = "chatcmpl-1",
) -> Made:
    """An engine's request in a trace of its own."""
    times = {
        "e2e": end - start,
        "time_to_first_token": queue + prefill,
        "time_in_queue": queue,
        "time_in_model_prefill": prefill,
        "time_in_model_decode": end - start - queue - prefill,
    }
    told = {f"gen_ai.latency.{name}": ms / 1000 for name, ms in times.items()} | {
        "gen_ai.request.id": request_id,
        "gen_ai.usage.completion_tokens": out,
    }
    return Made(
        id, "llm_request", start, end, 0, SERVER, told, service=f"vllm-{id}", scope="vllm", trace=id
    )


def test_engines_that_share_a_request_one_after_the_other_are_one_request_without_a_client() -> (
    None
):
    [request], [call] = assembled(
        half(1, 0, 300, 1, queue=100, prefill=200), half(2, 310, 1000, 10, queue=10, prefill=20)
    )
    assert (request["e2e_ns"], request["ttft_ns"], request["llm_calls"], call["output_tokens"]) == (
        1000e6,
        340e6,
        1,
        10,
    )
    assert {k: v for k, v in stages_ms(request).items() if v} == {
        "queue": 110,
        "prefill": 220,
        "decode": 660,
        "other": 10,
    }
    assert (call["queue_ns"], call["prefill_ns"], call["ttft_ns"]) == (10e6, 20e6, 340e6)


@pytest.mark.parametrize(
    "other",
    [
        half(2, 310, 1000, 10, queue=10, prefill=20, request_id="chatcmpl-2"),
        half(2, 310, 1000, 1, queue=10, prefill=20),
        half(2, 60_000, 61_000, 10, queue=10, prefill=20),
    ],
)
def test_engines_requests_under_other_ids_of_one_kind_or_at_other_times_are_two(
    other: Made,
) -> None:
    assert len(assembled(half(1, 0, 300, 1, queue=100, prefill=200), other)[0]) == 2


def fetched(id: int, start: float, end: float, parent: int, **more: Any) -> Made:
    return Made(
        id,
        "POST",
        start,
        end,
        parent,
        CLIENT,
        {"http.request.method": "POST", "http.response.status_code": 200},
        **more,
    )


def test_an_answer_that_streams_on_after_its_headers_is_not_cut_at_them() -> None:
    """The HTTP span of the client ends with the headers, at 210 ms; the engine inside it writes until 980."""
    times = {
        "e2e": 0.965,
        "time_to_first_token": 0.14,
        "time_in_queue": 0.05,
        "time_in_model_prefill": 0.09,
        "time_in_model_decode": 0.82,
    }
    engine = Made(
        5,
        "llm_request",
        15,
        980,
        4,
        SERVER,
        {f"gen_ai.latency.{name}": seconds for name, seconds in times.items()},
        service="vllm",
        scope="vllm",
    )
    [request], [call] = assembled(
        root(1000), chat(2, 0, 1000, ttft=200), fetched(4, 5, 210, 2), engine
    )
    found = {k: v for k, v in stages_ms(request).items() if v}
    assert found == {"network": 35, "queue": 50, "prefill": 90, "decode": 820, "other": 5}
    assert (call["engine_span_id"], call["engine_e2e_ns"]) == (5, 965e6)


@pytest.mark.parametrize(("end", "ahead"), [(100, 0), (990, 0), (990, 300)])
def test_a_service_that_streams_has_its_time_whenever_its_clients_span_ended(
    end: float, ahead: float
) -> None:
    """Also where it is within its client's span but its clock goes `ahead`."""
    back = {"service": "back"}
    served = Made(5, "POST /chat", 10 + ahead, 980 + ahead, 4, SERVER, **back)
    [request], _ = assembled(
        root(1000),
        fetched(4, 5, end, 1),
        served,
        chat(6, 20 + ahead, 960 + ahead, 5, ttft=70, **back),
    )
    found = stages_ms(request)
    assert (found["first_token"], found["decode"]) == (70, 870)


@pytest.mark.parametrize(
    ("until", "seen"), [(310, {"tool": 200, "other": 800}), (800, {"tool": 20, "other": 980})]
)
def test_what_a_step_beside_its_http_span_was_sent_for_is_that_steps(
    until: float, seen: dict[str, float]
) -> None:
    """A task of its own sends what a tool asks for (MCP over HTTP): its HTTP span ends with the headers, the server's a bit after the tool."""
    tool = Made(2, "weather.tool", 100, 300, 1, attributes={"traceloop.span.kind": "tool"})
    served = Made(5, "POST /mcp", 120, until, 4, SERVER, service="back")
    [request], _ = assembled(root(1000), tool, fetched(4, 110, 130, 1), served, chat(6, 0, 0, 1))
    assert {k: v for k, v in stages_ms(request).items() if v} == seen
    assert request["tool_calls"] == 1


@pytest.mark.parametrize(
    ("beside", "until", "seen"),
    [
        (None, 1000, {"queue": 200, "generation": 300, "other": 500}),  # waited for
        (
            (120, 140),
            1000,
            {"queue": 200, "generation": 300, "other": 500},
        ),  # somebody asked meanwhile whether it was done
        ((150, 980), 1000, {"generation": 830, "other": 170}),
        (None, 500, {"other": 500}),
    ],
)  # the request did something else, or was over before
def test_a_job_that_its_request_waits_for_is_the_requests(
    beside: tuple[float, float] | None, until: float, seen: dict[str, float]
) -> None:
    """Celery: the span that sends the job ends at once, a worker's begins at 300 ms and ends at 700."""
    sent = Made(2, "apply_async/answer", 100, 110, 1, 4)
    job = Made(3, "run/answer", 300, 700, 2, 5, service="worker")
    more = (
        [chat(6, *beside, 1)]
        if beside and beside[1] > 500
        else [Made(6, "poll", *beside, 1)]
        if beside
        else []
    )
    [request], _ = assembled(root(until), sent, job, chat(4, 350, 650, 3, service="worker"), *more)
    assert {k: v for k, v in stages_ms(request).items() if v} == seen


def test_what_an_engine_writes_after_its_client_left_is_not_on_the_path() -> None:
    """The call is given up at 900 ms, before it learned an id; its engine request waits for 600 ms and writes until 2,100 ms."""
    times = {
        "e2e": 2.0,
        "time_to_first_token": 0.7,
        "time_in_queue": 0.6,
        "time_in_model_prefill": 0.1,
        "time_in_model_decode": 1.3,
    }
    told = {f"gen_ai.latency.{name}": seconds for name, seconds in times.items()} | {
        "gen_ai.usage.completion_tokens": 130
    }
    given_up = chat(4, 90, 900, status=2, attributes={"error.type": "asyncio.CancelledError"})
    engine = Made(5, "llm_request", 100, 2100, 1, SERVER, told, service="vllm", scope="vllm")
    requests, calls = assembled(root(1000), chat(2, 20, 80, ttft=30), given_up, engine)
    assert (requests[0]["e2e_ns"], requests[0]["llm_calls"]) == (1000e6, 2)
    found = {k: v for k, v in stages_ms(requests[0]).items() if v}
    # Up to 900 the path is the call that was given up: it waited in the engine's queue until 700 and left in the middle of decoding.
    assert found == {
        "other": 130,
        "first_token": 30,
        "network": 10,
        "queue": 600,
        "prefill": 100,
        "decode": 130,
    }
    [left] = [c for c in calls if c["error"]]
    assert (left["duration_ns"], left["engine_e2e_ns"], left["queue_ns"]) == (810e6, 2000e6, 600e6)


def test_a_call_that_was_cancelled_when_another_had_answered_is_neither_the_path_nor_the_answer() -> (
    None
):
    requests, calls = assembled(
        root(1000),
        chat(2, 100, 900, ttft=300),
        chat(3, 120, 901, status=2, attributes={"error.type": "asyncio.CancelledError"}),
    )
    assert stages_ms(requests[0]) == {"other": 200, "first_token": 300, "decode": 500}
    assert (requests[0]["error"], requests[0]["ttft_ns"], [c["on_path"] for c in calls]) == (
        False,
        400e6,
        [True, False],
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), None])
def test_a_prefill_engine_in_a_trace_of_its_own_is_found_by_where_the_two_meet(
    order: tuple[int, ...] | None,
) -> None:
    def made(
        id: int, name: str, start: float, end: float, parent: int, trace: int, **attributes: Any
    ) -> Made:
        return Made(
            id,
            name,
            start,
            end,
            parent,
            scope="sglang server",
            service=name.split(" ", maxsplit=1)[0],
            attributes=attributes,
            trace=trace,
        )

    told = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "module": "sglang::request",
        "bootstrap_room": "0x5eed",
    }
    other = {**told, "bootstrap_room": "0x0ddba11", "gen_ai.request.id": "c"}
    sent = [
        body(
            made(3, "prefill Req 1f", 20, 500, 0, 1, **{**told, "gen_ai.request.id": "a"}),
            made(4, "prefill_waiting", 20, 200, 3, 1),
            made(5, "prefill_forward", 200, 500, 3, 1),
        ),
        body(
            made(7, "decode Req 2e", 20, 990, 0, 2, **{**told, "gen_ai.request.id": "b"}),
            made(8, "decode_forward", 510, 980, 7, 2),
        ),
        body(made(9, "decode Req 3d", 20, 990, 0, 3, **other)),
    ]
    with pipeline() as one:
        for bodies in [sent] if order is None else [[sent[i]] for i in order]:
            send(one, bodies)
        rows = held(one)
    assert (len(rows.requests), len(rows.calls)) == (2, 2)
    found = {k: rows.requests[0][f"{k}_ms"] for k in ("queue", "prefill", "decode", "other")}
    assert found == {"queue": 180, "prefill": 300, "decode": 470, "other": 20}


def test_an_engine_behind_dynamos_front_end_splits_its_call() -> None:
    told = {
        "gen_ai.latency.e2e": 0.8,
        "gen_ai.latency.time_to_first_token": 0.4,
        "gen_ai.latency.time_in_queue": 0.3,
        "gen_ai.latency.time_in_model_prefill": 0.1,
        "gen_ai.latency.time_in_model_decode": 0.4,
        "gen_ai.usage.completion_tokens": 20,
    }
    ended = {"request.outcome": "success", "request_id": "df1e046a-5b41-458a-8730-68e596c76c37"}
    front = Made(
        1,
        "http-request",
        0,
        1000,
        attributes={
            **ended,
            "model": "m",
            "input_tokens": "9",
            "output_tokens": "20",
            "ttft_ms": "450",
            "avg_itl_ms": "21.05",
        },
        scope="front",
    )
    requests, calls = assembled(
        front,
        Made(2, "kv_router.select_worker", 10, 30, 1, scope="front"),
        Made(3, "kv_router.route_request", 30, 990, 1, attributes=ended, scope="front"),
        Made(4, "handle_payload", 50, 980, 3, SERVER, service="worker"),
        Made(5, "llm_request", 100, 900, 4, SERVER, told, service="worker", scope="vllm"),
    )
    [request], [call] = requests, calls
    assert (call["response_id"], call["output_tokens"], call["model"]) == (
        "chatcmpl-df1e046a-5b41-458a-8730-68e596c76c37",
        20,
        "m",
    )
    found = stages_ms(request)
    assert (found["queue"], found["prefill"], found["decode"], sum(found.values())) == (
        320,
        100,
        400,
        1000,
    )


@pytest.mark.parametrize(
    ("call", "more", "seen"),
    [
        ((110, 480), {}, {"generation": 370, "other": 630}),
        (
            (110, 480),
            {"scope": "another"},
            {"other": 1000},
        ),  # of two instrumentations neither was meant to be within the other
        ((110, 300), {}, {"other": 1000}),  # something else took longer, beside it
        (
            (110, 510),
            {},
            {"generation": 400, "other": 600},
        ),  # ended later: it is not within the step, and the path by itself
    ],
)
def test_a_step_beside_one_that_says_nothing_and_lasted_as_long_is_within_it(
    call: tuple[float, float], more: dict[str, Any], seen: dict[str, float]
) -> None:
    """A function in LangGraph that hands its caller's configuration on: its model call has the caller for a parent."""
    chain = {"openinference.span.kind": "CHAIN"}
    step = Made(2, "call_model", 100, 500, 1, attributes=chain)
    called = (
        Made(3, "RunnableSequence", *call, 1, **{"attributes": chain, **more}),
        chat(4, *call, 3),
    )
    [request], _ = assembled(root(1000), step, *called)
    assert stages_ms(request) == seen


def tool(id: int, start: float, end: float, parent: int, **more: Any) -> Made:
    return Made(
        id, "t", start, end, parent, **{"attributes": {"openinference.span.kind": "TOOL"}, **more}
    )


@pytest.mark.parametrize(
    ("tools", "n"),
    [
        ([tool(3, 10, 90, 1)], 1),
        (
            [
                Made(2, "tools", 10, 90, 1, attributes={"openinference.span.kind": "CHAIN"}),
                *(tool(i, 10, 90, 2) for i in (3, 4, 5)),
            ],
            3,
        ),
        (
            [
                tool(3, 10, 90, 1),
                Made(4, "tools/call", 20, 80, 3, attributes={"mcp.method.name": "tools/call"}),
            ],
            1,
        ),
        (
            [
                tool(3, 10, 90, 1),
                tool(4, 20, 80, 3),
                Made(5, "agent", 30, 70, 4),
                chat(6, 30, 40, 5),
                tool(7, 40, 60, 5),
                tool(8, 40, 60, 7),
                chat(10, 60, 70, 5),
            ],
            2,
        ),
        (
            [
                tool(3, 10, 90, 1),
                tool(4, 20, 80, 3),
                chat(5, 30, 40, 4),
                tool(6, 20, 80, 3),
                tool(7, 40, 60, 6),
                chat(8, 60, 70, 6),
            ],
            3,
        ),
        ([tool(3, 10, 50, 1), tool(4, 50, 90, 1)], 2),
    ],
)
def test_a_tool_that_several_spans_tell_of_was_called_once(tools: list[Made], n: int) -> None:
    assert request_of(root(1000), *tools, chat(9, 100, 900))["tool_calls"] == n


@pytest.mark.parametrize("parent", [1, 2])
def test_a_tool_that_runs_while_the_call_lasts_that_asked_for_it_is_none_of_its_time_per_token(
    parent: int,
) -> None:
    call = chat(
        2, 100, 800, ttft=100, out=11, attributes={"gen_ai.response.finish_reasons": ["tool_calls"]}
    )
    requests, [made] = assembled(root(1000), call, tool(3, 300, 700, parent))
    assert (made["tpot_ns"], requests[0]["tpot_ns"], requests[0]["tool_ns"]) == (
        20 * MS,
        20 * MS,
        400 * MS,
    )


def test_a_clients_wrapper_is_known_by_its_own_scope_not_by_the_words_of_an_application() -> None:
    told = {
        "request_data": '{"model": "m", "max_tokens": 9}',
        "response_data": '{"usage": {"prompt_tokens": 5, "completion_tokens": 3}}',
    }
    names = ("Message with {request_data[model]!r}", "Chat Completion with me")
    assert (
        assembled(
            root(1000),
            *(
                Made(id, name, 10, 90, 1, scope="logfire", attributes=told)
                for id, name in enumerate(names, 2)
            ),
        )[1]
        == []
    )
    line = Made(
        3,
        "streaming response from {request_data[model]!r} took {duration:.2f}s",
        700,
        700,
        1,
        scope="logfire.anthropic",
        attributes={"logfire.span_type": "log"},
    )
    [call] = assembled(
        root(1000),
        Made(
            2,
            names[0],
            100,
            200,
            1,
            scope="logfire.anthropic",
            attributes=told | {"response_data": "{}"},
        ),
        line,
    )[1]
    assert (
        call["model"],
        call["max_tokens"],
        call["duration_ns"],
        call["streaming"],
        call["output_tokens"],
    ) == ("m", 9, 600 * MS, True, None)


@pytest.mark.parametrize("lost", ["the answered call's engine", "the first attempt's call"])
def test_an_engine_that_names_another_answer_is_not_the_next_calls_where_a_span_was_lost(
    lost: str,
) -> None:
    def engine(id: int, start: float, end: float, name: str) -> Made:
        return Made(
            id,
            "llm_request",
            start,
            end,
            1,
            SERVER,
            {"gen_ai.latency.time_in_queue": 0.3, "gen_ai.request.id": name},
            service="vllm",
            scope="vllm",
        )

    given_up = chat(2, 100, 550, status=2, attributes={"error.type": "openai.APITimeoutError"})
    answer, first, second = (
        chat(3, 550, 14_000, attributes={"gen_ai.response.id": "two"}),
        engine(4, 101, 12_000, "one"),
        engine(5, 551, 13_998, "two"),
    )
    _, calls = assembled(
        root(15_000), answer, first, *([second] if lost.startswith("the first") else [given_up])
    )
    begun, last = sorted(calls, key=lambda call: call["start_ns"])
    assert begun["engine_e2e_ns"] == 11_899e6
    assert last["engine_e2e_ns"] == (13_447e6 if lost.startswith("the first") else None)


@pytest.mark.parametrize("writes_until", [2_000, 12_000])
def test_what_an_engine_writes_for_a_call_that_was_given_up_is_not_the_next_calls(
    writes_until: float,
) -> None:
    """Asked again after 450 ms: where the engine works on the first attempt for ten seconds, a twentieth of that is more than lies between the two."""

    def engine(id: int, start: float, end: float, queue_s: float) -> Made:
        return Made(
            id,
            "llm_request",
            start,
            end,
            1,
            SERVER,
            {"gen_ai.latency.time_in_queue": queue_s},
            service="vllm",
            scope="vllm",
        )

    given_up = chat(2, 100, 550, status=2, attributes={"error.type": "openai.APITimeoutError"})
    _, calls = assembled(
        root(15_000),
        given_up,
        chat(3, 550, 14_000),
        engine(4, 101, writes_until, 0.3),
        engine(5, 551, 13_998, 0.7),
    )
    first, second = sorted(calls, key=lambda call: call["start_ns"])
    assert (first["engine_e2e_ns"], first["queue_ns"]) == ((writes_until - 101) * 1e6, 300e6)
    assert (second["engine_e2e_ns"], second["queue_ns"]) == (13_447e6, 700e6)
