"""Figures of requests: TTFT, tokens, tools."""

from __future__ import annotations

import pytest

from overrun.collector.normalise.stages import STAGES
from tests.analysis.assembly.assembling import request_of, root, stages_ms, tool
from tests.collector.oracle_build import MS, Made, chat


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


def test_a_usable_answer_is_where_the_application_marks_it() -> None:
    request = request_of(
        root(1000, events=[(700, "overrun.usable_answer"), (800, "overrun.usable_answer")]),
        chat(2, 200, 900, ttft=300),
    )
    assert request["usable_ns"] == 700 * MS


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
