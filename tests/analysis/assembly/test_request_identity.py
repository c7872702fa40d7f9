"""How a request ended, and whether it is complete."""

from __future__ import annotations

from tests.analysis.assembly.assembling import request_of, root
from tests.collector.oracle_build import ERROR, chat


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


def test_a_request_whose_root_never_came_is_incomplete() -> None:
    assert request_of(chat(2, 100, 900, parent=1))["complete"] is False
    assert (
        request_of(root(1000, parent=77), chat(2, 100, 900))["complete"] is True
    )  # the parent of a SERVER span is in another process
