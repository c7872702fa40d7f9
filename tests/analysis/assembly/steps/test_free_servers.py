"""A request that was given its call's values stays the request."""

from __future__ import annotations

from tests.analysis.assembly.assembling import assembled, counted, root
from tests.collector.oracle_build import ERROR, chat


def test_a_request_that_was_given_its_calls_values_is_the_request() -> None:
    said = {"gen_ai.operation.name": "chat"}
    counts = said | {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 10}
    failed = [chat(2, 100, 200, out=None, status=ERROR), chat(3, 300, 400, out=None, status=ERROR)]
    for attributes, calls in ((said, failed), (counts, [chat(2, 100, 200), chat(3, 300, 400)])):
        [request], rows = assembled(root(1000, attributes=attributes, status=ERROR), *calls)
        assert ([c["duration_ns"] for c in rows], request["llm_calls"]) == ([100_000_000] * 2, 2)
    # Alone, or alone in counting, it is what tells of the call.
    assert (
        counted(root(1000, attributes=counts))
        == counted(root(1000, attributes=counts), chat(2, 100, 200, out=None))
        == (1, 1)
    )
