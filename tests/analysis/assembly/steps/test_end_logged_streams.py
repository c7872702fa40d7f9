"""A stream ends where a log line reports its end."""

from __future__ import annotations

from tests.analysis.assembly.assembling import assembled, root
from tests.collector.oracle_build import MS, Made, chat


def line(id: int, at: float, out: int) -> Made:
    """The line that a wrapper of a client writes when a stream has ended (Logfire)."""
    return Made(
        id,
        "streaming response from {request_data[model]!r} took {duration:.2f}s",
        at,
        at,
        1,
        scope="logfire.openai",
        attributes={
            "logfire.span_type": "log",
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.output_tokens": out,
        },
    )


def test_a_call_ends_with_the_line_beside_it_and_has_its_tokens() -> None:
    call = chat(2, 100, 120, out=None, scope="logfire.openai")
    _, [made] = assembled(root(1000), call, line(3, 800, 40))
    assert (made["duration_ns"], made["output_tokens"]) == (700 * MS, 40)


def test_lines_of_parallel_streams_end_the_call_that_began_last_first() -> None:
    calls = [
        chat(id, at, at + 5, out=None, scope="logfire.openai") for id, at in ((2, 100), (3, 200))
    ]
    _, made = assembled(root(1000), *calls, line(4, 600, 30), line(5, 900, 50))
    assert [(c["duration_ns"], c["output_tokens"]) for c in made] == [
        (800 * MS, 50),
        (400 * MS, 30),
    ]
