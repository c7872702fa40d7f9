"""A step that reports nothing made the calls beside it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import assembled, root, stages_ms
from tests.collector.oracle_build import Made, chat


@pytest.mark.parametrize(
    ("call", "more", "seen"),
    [
        ((110, 480), {}, {"generation": 370, "other": 630}),
        (
            (110, 480),
            {"scope": "another"},
            {"other": 1000},
        ),  # of two instrumentations neither was meant to be within the other
        ((110, 300), {}, {"other": 1000}),  # something else took longer, beside it
        (
            (110, 510),
            {},
            {"generation": 400, "other": 600},
        ),  # ended later: it is not within the step, and the path by itself
    ],
)
def test_a_step_beside_one_that_says_nothing_and_lasted_as_long_is_within_it(
    call: tuple[float, float], more: dict[str, Any], seen: dict[str, float]
) -> None:
    """A function in LangGraph that hands its caller's configuration on: its model call has the caller for a parent."""
    chain = {"openinference.span.kind": "CHAIN"}
    step = Made(2, "call_model", 100, 500, 1, attributes=chain)
    called = (
        Made(3, "RunnableSequence", *call, 1, **{"attributes": chain, **more}),
        chat(4, *call, 3),
    )
    [request], _ = assembled(root(1000), step, *called)
    assert stages_ms(request) == seen
