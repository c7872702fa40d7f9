"""A call lasts until its stream is read, though its span ended when the stream was handed over."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import assembled, root
from tests.collector.oracle_build import MS, chat

FRAMEWORK, CLIENT = (
    "openinference.instrumentation.llama_index",
    "openinference.instrumentation.openai",
)
FIRST = {"events": [(320, "First Token Stream Event")]}


@pytest.mark.parametrize(
    ("client_first", "until"),
    [
        (None, 320),  # nothing else reports the call: until its first token
        (310, 900),  # the client's own report of it
        (700, 320),  # another call
    ],
)
def test_a_call_lasts_as_long_as_the_stream_that_it_handed_over(
    client_first: int | None, until: float
) -> None:
    handed = chat(2, 100, 110, scope=FRAMEWORK, **FIRST)
    read = (
        []
        if client_first is None
        else [chat(3, 105, 900, ttft=client_first - 105, scope=CLIENT, out=20)]
    )
    _, calls = assembled(root(1000), handed, *read)
    assert calls[0]["start_ns"] + calls[0]["duration_ns"] == root_start() + until * MS


def root_start() -> int:
    """When the request of these tests starts, in ns."""
    [request], _ = assembled(root(1000))
    return int(request["start_ns"])
