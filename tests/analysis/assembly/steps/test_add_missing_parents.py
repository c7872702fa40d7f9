"""Spans whose common parent was never sent are one request."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import request_of, stages_ms
from tests.collector.oracle_build import MS, Made, chat


@pytest.mark.parametrize("parent", [0, 99], ids=["roots", "a parent that is sent elsewhere"])
def test_calls_whose_common_parent_is_not_here_are_one_request_of_theirs(parent: int) -> None:
    for starts, e2e in (((0, 600), 900), ((0, 10), 310), ((0, 100), 400)):
        made = [
            chat(at, start, start + 300, parent=parent, out=at)
            for at, start in enumerate(starts, start=5)
        ]
        request = request_of(*made)
        assert (
            request["llm_calls"],
            request["output_tokens"],
            request["e2e_ns"] / MS,
            request["complete"],
        ) == (2, 11, e2e, parent == 0)
        assert sum(stages_ms(request).values()) == e2e
    wrapped = [
        Made(
            at,
            "ChatModel",
            at,
            500 + at,
            parent=parent,
            attributes={"openinference.span.kind": "LLM"},
        )
        for at in (5, 6)
    ]
    assert (
        request_of(*wrapped, *(chat(at + 10, at + 1, 500, parent=at, out=at) for at in (5, 6)))[
            "llm_calls"
        ]
        == 2
    )


def test_a_root_that_is_no_call_stays_the_request_beside_others() -> None:
    beside = Made(7, "refresh", 900, 1_200)
    assert (
        request_of(Made(1, "answer", 0, 1_000), chat(2, 100, 900), beside)["e2e_ns"] / MS == 1_000
    )
