"""Attempts under one id are one call, wherever they are reported."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.assembly.assembling import NOTHING, assembled, fact, of_litellm, root, told
from tests.collector.oracle_build import MS, SERVER


def test_attempts_under_one_id_are_one_call_and_one_request_wherever_they_are_told() -> None:
    requests, calls = assembled(
        of_litellm(2, 0, 100, error="RateLimit"), of_litellm(3, 300, 900, trace=2)
    )
    assert [(*fact(c), c["span_id"]) for c in calls] == [(2, "span", 300.0, 0, "error", 3)]
    assert [(r["llm_calls"], r["e2e_ns"], r["generation_ns"], r["queue_ns"]) for r in requests] == [
        (1, 900 * MS, 700 * MS, 200 * MS)
    ]


def test_attempts_under_two_ids_are_two_calls() -> None:
    assert (
        told(
            root(1000),
            of_litellm(2, 0, 100, 1, error="RateLimit"),
            of_litellm(3, 300, 900, 1, asked="other"),
        )
        == [NOTHING] * 2
    )


def test_a_servers_span_that_was_given_a_failed_attempts_values_answered_all_the_same() -> None:
    served = replace(
        of_litellm(2, 0, 1000, error="RateLimit", attributes={"http.route": "/ask"}), kind=SERVER
    )
    requests, calls = assembled(served, of_litellm(3, 300, 900, trace=2))
    assert [(c["span_id"], c["attempts"], c["error"]) for c in calls] == [(3, 2, False)]
    assert [(r["llm_calls"], r["error"], r["e2e_ns"]) for r in requests] == [(1, False, 1000 * MS)]
