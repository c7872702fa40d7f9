"""A tool may run while the call lasts that asked for it."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import assembled, root, tool
from tests.collector.oracle_build import MS, chat


@pytest.mark.parametrize("parent", [1, 2])
def test_a_tool_that_runs_while_the_call_lasts_that_asked_for_it_is_none_of_its_time_per_token(
    parent: int,
) -> None:
    call = chat(
        2, 100, 800, ttft=100, out=11, attributes={"gen_ai.response.finish_reasons": ["tool_calls"]}
    )
    requests, [made] = assembled(root(1000), call, tool(3, 300, 700, parent))
    assert (made["tpot_ns"], requests[0]["tpot_ns"], requests[0]["tool_ns"]) == (
        20 * MS,
        20 * MS,
        400 * MS,
    )
