"""Requests and model calls come out of spans, and nothing is counted twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.normalise.stages import STAGES
from tests.analysis.assembly.assembling import (
    CLIENT_ID,
    ENGINE,
    assembled,
    request_of,
    root,
    spans_of,
    stages_ms,
)
from tests.collector.oracle_build import CLIENT, MS, SERVER, T0_NS, Made, body, chat
from tests.collector.oracle_otlp import requests as any_requests
from tests.collector.oracle_store import Row, held, pipeline, send

SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=60
)


STAGE_COLUMNS = [f"{s}_ns" for s in STAGES if s != "wait_user"]


def test_post_chat_is_no_post_stage_and_postgres_is_no_post() -> None:
    request = request_of(
        root(1000),
        Made(2, "postgres", 100, 300, 1),
        Made(3, "POST /chat inner", 300, 500, 1),
        chat(5, 500, 600),
        Made(4, "postprocess", 600, 700, 1),
    )
    assert stages_ms(request) == {"other": 800, "post": 100, "generation": 100}


def test_a_database_is_retrieval_when_it_is_read_and_post_when_written() -> None:
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
        "retrieval": 100,
        "first_token": 100,
        "decode": 300,
        "post": 300,
    }


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


def test_a_trace_without_a_call_or_a_server_is_no_request() -> None:
    assert assembled(Made(1, "load model", 0, 1000)) == ([], [])
    requests, calls = assembled(root(1000))
    assert (len(requests), requests[0]["llm_calls"], calls) == (1, 0, [])


def test_nothing_makes_nothing() -> None:
    out = assemble(spans_of(body()))
    assert (out.requests.num_rows, out.llm_calls.num_rows, out.covered.num_rows) == (0, 0, 0)


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
