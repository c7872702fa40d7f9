"""Inside a model call: the wait before its first HTTP request, refused attempts and the pauses after them are the caller's own."""

from typing import Any

import polars as pl
import pytest

from overrun.analysis.evidence.call_inside import inside_calls, most_at_once
from tests.analysis.evidence.test_operations import spans

HTTP: dict[str, Any] = {
    "name": "POST",
    "kind": "client",
    "stage": "network",
    "method": "POST",
    "parent": 2,
}


def call(trace: int, *inside: dict[str, Any], at: float = 0.0) -> list[dict[str, Any]]:
    """A request with one model call of 5 s that begins after 10 ms."""
    return [
        {"trace": trace, "key": 1, "name": "POST /ask", "at": at, "ms": 5_020, "role": "container"},
        {
            "trace": trace,
            "key": 2,
            "parent": 1,
            "name": "chat m",
            "at": at + 10,
            "ms": 5_000,
            "role": "llm",
            "kind": "client",
            "stage": "generation",
        },
        *({"trace": trace} | HTTP | row for row in inside),
    ]


def one(*inside: dict[str, Any]) -> dict[str, Any]:
    """What is found inside the call."""
    return inside_calls(spans(*call(1, *inside))).row(0, named=True)


def test_the_wait_before_the_first_request_is_the_callers() -> None:
    found = one({"key": 3, "at": 3_010, "ms": 2_000})
    assert found["waited_ms"] == pytest.approx(3_000.0)
    assert (found["lost_ms"], found["attempts"], found["refused"]) == (0.0, 1, 0)


def test_refused_attempts_and_the_pauses_after_them_are_lost() -> None:
    found = one(
        {"key": 3, "at": 20, "ms": 100, "http_status": 429},
        {"key": 4, "at": 620, "ms": 100, "http_status": 503},
        {"key": 5, "at": 2_020, "ms": 2_900, "http_status": 200},
    )
    assert found["waited_ms"] == pytest.approx(10.0)
    assert found["lost_ms"] == pytest.approx(2_000.0)
    assert (found["attempts"], found["refused"]) == (3, 1)


def test_further_requests_that_succeed_are_no_attempts_lost() -> None:
    found = one(
        {"key": 3, "at": 20, "ms": 100, "http_status": 200},
        {"key": 4, "at": 620, "ms": 100, "http_status": 200},
    )
    assert found["lost_ms"] == 0.0


def test_opening_a_connection_is_no_wait_for_a_place() -> None:
    lookup = {
        "key": 3,
        "name": "dns.lookup",
        "at": 10,
        "ms": 4_000,
        "method": None,
        "role": "phase",
    }
    found = one(lookup, {"key": 4, "at": 4_010, "ms": 900})
    assert found["waited_ms"] == pytest.approx(0.0)


def test_calls_without_http_spans_tell_nothing() -> None:
    assert inside_calls(spans(*call(1))).is_empty()
    assert inside_calls(spans()).is_empty()
    assert most_at_once(spans()) == 0


def test_one_that_ends_as_the_next_begins_has_made_place() -> None:
    rows = [
        row
        for k in range(8)
        for row in call(k, {"key": 3, "at": 10 + 1_000.0 * (k // 2), "ms": 1_000.0})
    ]
    assert most_at_once(spans(*rows)) == 2
    assert isinstance(inside_calls(spans(*rows)), pl.DataFrame)
