"""A client's request to a model's path is a call where no span of one encloses or repeats it."""

from __future__ import annotations

from typing import Any

from tests.analysis.assembly.assembling import assembled, root, stages_ms
from tests.collector.oracle_build import CLIENT, ERROR, SERVER, Made, chat

OPENAI = "https://api.openai.com/v1/chat/completions"


def posted(id: int, start: float, end: float, parent: int, url: str = OPENAI, **more: Any) -> Made:
    attributes = {"http.request.method": "POST", "url.full": url, "http.response.status_code": 200}
    return Made(id, "POST", start, end, parent, CLIENT, attributes=attributes, **more)


def test_a_request_that_nothing_else_reports_is_a_call_without_tokens_or_first_token() -> None:
    [request], [call] = assembled(root(1000), posted(2, 100, 700, 1))
    assert stages_ms(request) == {"generation": 600, "other": 400}
    assert (request["llm_calls"], request["ttft_ns"], request["output_tokens"]) == (1, None, None)
    assert (call["provider"], call["http_status"], call["error"]) == ("api.openai.com", 200, False)
    assert (call["model"], call["input_tokens"], call["ttft_ns"]) == (None, None, None)


def test_a_failed_request_is_a_failed_call() -> None:
    [request], [call] = assembled(root(1000), posted(2, 100, 700, 1, status=ERROR))
    assert call["error"]
    assert request["llm_calls"] == 1


def test_the_request_of_a_call_is_its_way_over_the_network() -> None:
    _, calls = assembled(root(1000), chat(2, 100, 700, 1), posted(3, 110, 690, 2))
    assert [call["span_id"] for call in calls] == [2]


def test_one_that_holds_a_call_goes_to_a_gateway() -> None:
    proxied = Made(3, "POST /v1/chat/completions", 110, 690, 2, SERVER, service="gateway")
    _, calls = assembled(
        root(1000),
        posted(2, 100, 700, 1, "http://gateway/v1/chat/completions"),
        proxied,
        chat(4, 150, 680, 3, service="gateway"),
    )
    assert [call["span_id"] for call in calls] == [4]


def test_of_two_layers_of_a_client_the_inner_one_is_the_call() -> None:
    _, calls = assembled(root(1000), posted(2, 100, 700, 1), posted(3, 110, 690, 2))
    assert [call["span_id"] for call in calls] == [3]


def test_one_beside_a_call_that_lasts_as_long_repeats_it() -> None:
    _, calls = assembled(root(1000), chat(2, 100, 700, 1), posted(3, 105, 695, 1))
    assert [call["span_id"] for call in calls] == [2]


def test_one_beside_a_call_with_a_request_of_its_own_is_another_call() -> None:
    _, calls = assembled(
        root(1000), chat(2, 100, 700, 1), posted(3, 110, 690, 2), posted(4, 105, 695, 1)
    )
    assert [call["span_id"] for call in calls] == [2, 4]


def test_calls_one_after_the_other_are_calls_each() -> None:
    [request], calls = assembled(root(1000), posted(2, 100, 300, 1), posted(3, 400, 700, 1))
    assert len(calls) == 2
    assert stages_ms(request) == {"generation": 500, "other": 500}
