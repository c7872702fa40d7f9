"""Choices of a router beyond its calls are attempts without a span."""

from __future__ import annotations

from tests.analysis.assembly.assembling import of_litellm, root, told
from tests.collector.oracle_build import Made


def test_an_attempt_within_the_call_that_a_stream_lasted_for_is_a_part_of_it() -> None:
    choices = [
        Made(id, "route big", at, at + 1, 1, scope="litellm")
        for id, at in ((10, 5), (11, 200), (12, 500))
    ]
    made = [
        root(1000),
        *choices,
        of_litellm(2, 0, 950, 1),
        of_litellm(3, 10, 60, 1, error="RateLimit"),
    ]
    assert told(*made) == [(3, "event", 500.0, None, "error")]
