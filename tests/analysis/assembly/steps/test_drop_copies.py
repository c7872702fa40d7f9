"""Of copies of a span one counts."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import assembled, request_of, root
from tests.collector.oracle_build import MS, chat


@pytest.mark.parametrize("unfinished_first", [True, False])
def test_of_copies_the_one_that_ended_last_counts(unfinished_first: bool) -> None:
    begun, ended = (
        [root(0), chat(2, 10, 10, out=None)],
        [root(1000), chat(2, 10, 900, ttft=300, out=50)],
    )
    request = request_of(*(begun + ended if unfinished_first else ended + begun))
    assert (
        request["e2e_ns"],
        request["output_tokens"],
        request["spans"],
        request["llm_calls"],
    ) == (1000 * MS, 50, 2, 1)


def test_a_span_that_arrived_twice_counts_once() -> None:
    spans = (root(1000), chat(2, 100, 900, ttft=200))
    assert assembled(*spans, *spans) == assembled(*spans)
