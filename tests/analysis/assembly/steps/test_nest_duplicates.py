"""A call that several instrumentations report counts once."""

from __future__ import annotations

from tests.analysis.assembly.assembling import assembled, root
from tests.collector.oracle_build import MS, Made, chat


def test_a_call_reported_twice_in_one_trace_is_one_call() -> None:
    requests, calls = assembled(
        root(1000), chat(2, 100, 900, ttft=200), chat(3, 110, 890, 2, ttft=190)
    )
    assert (len(calls), requests[0]["llm_calls"], calls[0]["span_id"]) == (1, 1, 3)


def test_parallel_equal_calls_are_real_calls() -> None:
    requests, calls = assembled(root(1000), chat(2, 100, 900), chat(3, 100, 900))
    assert (len(calls), requests[0]["llm_calls"]) == (2, 2)
    assert sorted(c["on_path"] for c in calls) == [False, True]


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
