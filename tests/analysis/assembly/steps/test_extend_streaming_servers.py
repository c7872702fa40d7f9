"""A server lasts as long as the answer that it streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import request_of, stages_ms
from tests.collector.oracle_build import MS, SERVER, Made, chat


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
