"""What a server streams after its headers is not cut at them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import assembled, root, stages_ms
from tests.collector.oracle_build import CLIENT, SERVER, Made, chat


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
