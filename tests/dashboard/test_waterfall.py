"""One request as HTML: sums on screen, the path inked, large traces folded, hostile names harmless."""

import re

import msgspec
import pytest

from overrun.analysis.numbers.requests.request_trace import PathPiece, Trace, TraceSpan
from overrun.dashboard import waterfall
from overrun.dashboard.theme import DARK, LIGHT, Theme
from tests.dashboard.fake_api import a_trace

LOOKS = pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
HOSTILE = '<a href="https://evil.example">x</a><img src=x onerror=alert(1)>\x1b[31m\u202e'


def drawn(trace: Trace, look: Theme = LIGHT) -> str:
    return waterfall.render(trace, waterfall.main_rows(trace.spans), look)


def widths(html: str, kind: str) -> list[float]:
    return [
        float(width)
        for width in re.findall(rf'class="{kind}" style="--l:[\d.]+;--w:([\d.]+)', html)
    ]


@LOOKS
def test_the_critical_path_is_inked_and_adds_up_to_the_whole(look: Theme) -> None:
    trace = a_trace()
    html = drawn(trace, look)
    assert sum(widths(html, "ov-ink")) == pytest.approx(100.0, abs=0.01)
    assert widths(html, "ov-off") == [100.0, 20.0, 15.0, 70.0]
    assert re.findall(r"<b>([^<]+)</b>", html) == [
        "GET /ask",
        "search",
        "chat",
    ]  # "cache lookup" is off the path
    assert html.count('class="ov-token" style="--l:60.000"') == 4
    assert "first token 600 ms" in html


def test_a_short_part_of_the_path_is_not_nothing() -> None:
    trace = a_trace()
    short = msgspec.structs.replace(trace.spans[-1], path_ms=0.004 * trace.e2e_ms)
    assert "· &lt; 1 %" in drawn(msgspec.structs.replace(trace, spans=[*trace.spans[:-1], short]))


def test_a_trace_without_a_first_token_marks_none() -> None:
    assert "ov-token" not in drawn(msgspec.structs.replace(a_trace(), ttft_ms=None))


def test_the_gap_between_client_and_engine_is_a_bar_of_its_own() -> None:
    trace = a_trace()
    client = msgspec.structs.replace(trace.spans[-1], role="llm")
    engine = msgspec.structs.replace(
        client,
        span_id="e",
        parent_span_id="m",
        depth=2,
        name="llm_request",
        role="engine",
        start_ms=350.0,
        duration_ms=600.0,
    )
    html = drawn(msgspec.structs.replace(trace, spans=[*trace.spans[:-1], client, engine]))
    assert widths(html, "ov-gap") == [5.0, 5.0]
    assert "50 ms before and 50 ms after the engine" in html
    assert waterfall.gap_ms(
        client, msgspec.structs.replace(engine, start_ms=200.0, duration_ms=900.0)
    ) == (0.0, 0.0)


def test_a_large_trace_keeps_path_errors_and_parents_and_counts_the_rest() -> None:
    trace = a_trace(spans=10_000)
    nested = msgspec.structs.replace(
        trace.spans[10], span_id="deep", parent_span_id="x5", depth=2, error=True, duration_ms=0.1
    )
    rows = waterfall.main_rows([*trace.spans, nested])
    shown = [row.span.span_id for row in rows if not row.hidden]
    assert {"r", "s", "m", "p", "deep", "x5"} <= set(shown)
    assert len(shown) <= waterfall.MOST_ROWS
    assert sum(row.hidden for row in rows) + len(shown) == 10_001
    assert shown.index("x5") < shown.index("deep")
    html = waterfall.render(trace, rows, LIGHT)
    assert len(html) < 100_000
    assert "more</span>" in html


def test_a_parent_that_waits_for_thousands_in_turn_is_one_bar_as_dark_as_its_own_share() -> None:
    # 5,000 children of 10 ms, one every 12 ms: between them the parent has 2 ms of its own, a fifth of what a pixel is.
    root, total = a_trace().spans[0], 60_000.0
    gaps = [
        PathPiece(
            span_id=root.span_id, stage="other", from_ms=12.0 * i + 10.0, to_ms=12.0 * i + 12.0
        )
        for i in range(5_000)
    ]
    trace = msgspec.structs.replace(
        a_trace(), e2e_ms=total, spans=[msgspec.structs.replace(root, duration_ms=total)], path=gaps
    )
    (run,) = waterfall.runs(gaps, 0.0007 * total)
    assert (run.pieces, run.path_ms) == (5_000, pytest.approx(10_000.0))
    html = drawn(trace)
    assert len(widths(html, "ov-ink")) == 1
    assert "other on the critical path, 10.0 s in 5,000 pieces" in html
    assert "opacity:0.30" in html
    # Pieces that can be told apart are drawn apart, and so are stages.
    assert len(waterfall.runs(gaps, 5.0)) == 5_000
    assert [
        run.stage
        for run in waterfall.runs(
            [*gaps[:2], msgspec.structs.replace(gaps[2], stage="post")], 100.0
        )
    ] == ["other", "post"]


def test_all_spans_of_a_page_stay_small() -> None:
    trace = a_trace(spans=10_000)
    html = waterfall.render(
        trace, [waterfall.Row(span) for span in trace.spans[: waterfall.PAGE_ROWS]], LIGHT
    )
    assert len(html) < 120_000


def test_spans_that_name_each_other_as_parents_end() -> None:
    loop: list[TraceSpan] = [
        msgspec.structs.replace(
            a_trace().spans[0], span_id=str(i), parent_span_id=str((i + 1) % 200)
        )
        for i in range(200)
    ]
    assert waterfall.main_rows(loop, most=50)


def test_hostile_names_become_text() -> None:
    html = drawn(a_trace(name=HOSTILE))
    for forbidden in ("<a ", "<img", "\x1b", "\u202e"):
        assert forbidden not in html
    assert "&lt;a href=" in html


def test_a_request_of_no_length_is_drawn() -> None:
    trace = msgspec.structs.replace(
        a_trace(),
        e2e_ms=0.0,
        ttft_ms=0.0,
        spans=[msgspec.structs.replace(a_trace().spans[0], duration_ms=0.0)],
        path=[],
    )
    assert "GET /ask" in drawn(trace)


def test_the_path_before_the_first_token_ends_with_it() -> None:
    trace = a_trace()
    assert waterfall.until(trace.path, 600.0) == {
        "retrieval": 200.0,
        "other": 100.0,
        "first_token": 300.0,
    }
    assert sum(waterfall.until(trace.path, 750.0).values()) == 750.0


def test_a_typical_request_stands_above_in_the_same_scale() -> None:
    trace = a_trace()
    html = waterfall.render(
        trace, waterfall.main_rows(trace.spans), LIGHT, [("prefill", 100.0), ("decode", 300.0)], "!"
    )
    places = re.findall(r'class="ov-ghost" style="--l:([\d.]+);--w:([\d.]+)', html)
    assert [tuple(map(float, place)) for place in places] == [(0.0, 10.0), (10.0, 30.0)]
    assert "typical request!" in html
    whole = waterfall.render(trace, [], LIGHT, [("prefill", 100.0)])
    assert "typical request</span>" in whole
    assert "ov-ghost" not in drawn(trace)


def test_a_row_opens_on_what_its_span_carries() -> None:
    spans = a_trace().spans
    spans[0] = msgspec.structs.replace(spans[0], instance=HOSTILE, input_tokens=1234)
    html = drawn(msgspec.structs.replace(a_trace(), spans=spans))
    assert html.count("<details") == len(spans)
    assert "tokens in <strong>1234</strong>" in html
    assert "<img" not in html


def test_a_span_opens_on_its_host_its_error_and_its_attributes() -> None:
    trace = a_trace("d" * 32)
    trace.spans[1].host, trace.spans[1].error_type = "node-7", "timeout"
    trace.spans[1].attributes = {"server.address": "<b>qdrant</b>", "top_k": "8"}
    body = waterfall.render(trace, waterfall.main_rows(trace.spans), LIGHT)
    assert "host <strong>node-7</strong> · error <strong>timeout</strong>" in body
    assert "top_k <strong>8</strong>" in body
    assert "<b>qdrant" not in body
