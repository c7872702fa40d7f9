"""A request in a terminal: bounded, aligned, and deaf to what a hostile name wants the terminal to do."""

from __future__ import annotations

import unicodedata

import pytest

from overrun.analysis.front.trace_text import MAX_ROWS, render
from overrun.analysis.numbers.requests.request_trace import Trace, load_trace
from tests.analysis.numbers.requests.test_request_trace import stored, traced
from tests.collector.oracle_build import ERROR, SERVER, Made, chat
from tests.collector.oracle_otlp import bodies
from tests.collector.oracle_store import recording


def simple() -> Trace:
    return traced(
        Made(1, "POST /chat", 0, 1000, kind=SERVER, attributes={"http.route": "/chat"}),
        Made(2, "retrieve", 0, 250, 1),
        chat(3, 250, 1000, ttft=250),
    )


def bars(text: str) -> dict[str, str]:
    """Span name -> its bar, of a waterfall 124 columns wide (42 of them for names)."""
    lines = text.splitlines()[5:]
    return {line[:42].strip(): line[42:100] for line in lines[: lines.index("")]}


def test_the_bars_ink_the_path_and_mark_the_first_token() -> None:
    text = render(simple(), 124)
    found = bars(text)
    assert found["retrieve"].count("█") == round(58 / 4)
    assert found["chat m"].count("█") == 58 - 14
    assert found["chat m"].startswith(" " * 14 + "█")
    assert "█" not in found["POST /chat"]
    assert found["POST /chat"][29] == "▏"
    assert "TTFT 500 ms" in text
    assert "first token" in text
    assert (
        "critical path: decode 500 ms (50 %), first_token 250 ms (25 %), retrieval 250 ms (25 %)"
        in text
    )


@pytest.fixture(scope="module", params=["semconv-genai-openai", "vllm-joined"])
def recorded(request: pytest.FixtureRequest) -> list[tuple[int, Trace]]:
    """How many spans each request of a recording has, and the request."""
    with stored(*bodies(request.param)) as con:
        return [
            (found["spans"], load_trace(con, found["trace_id"]))
            for found in recording(request.param).requests
        ]


@pytest.mark.parametrize("width", [1, 60, 100, 200])
def test_recorded_requests_fit_their_width(recorded: list[tuple[int, Trace]], width: int) -> None:
    assert recorded
    for spans, trace in recorded:
        text = render(trace, width)
        rows = text.splitlines()[4:-2]
        assert len(rows) == spans + 1
        assert max(len(row) for row in rows) <= max(width, 60)
        assert "█" in text


HOSTILE = (
    "\x1b[2J\x1b[31mred",
    "a\x07b\x08c\rd\ne\x9b31m",
    "x" * 5_000,
    "\u202egnp.exe\u202c",
    "\u2066iso\u2069\u200b\ufeff",
    "\ud7ff模型\u0301",
    "\x00\x7f",
    "",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_reach_no_terminal(name: str) -> None:
    root = Made(
        1,
        name or "r",
        0,
        100,
        kind=SERVER,
        service=name or "s",
        attributes={"http.route": f"/{name}"},
    )
    text = render(traced(root, Made(2, name, 10, 90, 1, service=name, status=ERROR)), 100)
    assert not [c for c in text if unicodedata.category(c)[0] == "C" and c != "\n"]
    # A name cannot add lines of its own.
    assert len(text.splitlines()) == 9
    assert all(len(line) < 500 for line in text.splitlines())


def test_ten_thousand_spans_are_shown_in_bounded_rows() -> None:
    n = 10_000
    many = [Made(i, f"step {i}", i / 10, i / 10 + 0.1, 1) for i in range(2, n)]
    trace = traced(
        Made(1, "POST /chat", 0, n / 10, kind=SERVER),
        *many,
        Made(n, "longest of all", 100, 900, 1, attributes={"overrun.stage": "tool"}),
    )
    assert len(trace.spans) == n
    assert sum(s.path_ms for s in trace.spans) == pytest.approx(trace.e2e_ms)
    text = render(trace, 120)
    assert len(text.splitlines()) <= MAX_ROWS + 8
    assert "longest of all" in text
    assert f"{n - MAX_ROWS} " in text


def test_a_request_without_duration_is_drawn() -> None:
    assert "█" not in render(traced(Made(1, "POST /chat", 0, 0, kind=SERVER)), 80).splitlines()[5]
