"""What a gateway served is in the call that it was sent for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import assembled, proxy, root, stages_ms
from tests.collector.oracle_build import ERROR, Made, chat


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
