"""The answer on one screen: order, size, colour only on request, harmless whatever the telemetry holds."""

import json
import re
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from overrun.analysis.front import report_brief, report_document, report_top
from overrun.analysis.front.report import Report, build
from overrun.analysis.front.report_brief import MOST_LINES, _repeats, one_line, render, summary
from overrun.analysis.front.text_layout import grid
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import DEFAULT, parse_slo
from tests.analysis.builders import insert, requests, store, vllm_gauges, vllm_spans


@pytest.fixture(scope="module")
def report() -> Report:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    made = build(con, Window(), parse_slo("ttft:1000 e2el:5000"))
    return msgspec.structs.replace(made, explanation=None)


def of(n: int, **columns: object) -> Report:
    con = store()
    if n:
        insert(con, requests(n, **columns))
    return build(con, Window(), DEFAULT)


def labels(text: str) -> list[str]:
    return [line[:9].strip() for line in text.splitlines() if re.match(r"[A-Z]+\??\b", line)]


def test_the_answer_comes_in_the_order_of_the_questions(report: Report) -> None:
    text = render(report)
    assert labels(text)[:6] == ["SLOW", "WHY", "DO", "GAIN", "TRY", "DONE"]
    assert labels(text)[-2:] == ["NOT", "MORE"]
    assert text.splitlines()[0].startswith("SLOW     TTFT P95 52.5 s, limit 1.00 s")
    flat = " ".join(text.split())
    for part in (
        "as fast as the engine admits it",
        "(owner: platform)",
        "Undo: Raise the admission limit again",
        "Look again after 5 min.",
        "TTFT P95 52.5 s -> ",
        "for under capacity",
        "data checks passed",
        "requests are late or fail",
        f"--trace {report.findings[0].exemplars[0]}",
        "-> at most 582 ms",
        "GAIN A bound by arithmetic, not simulated: TTFT P95 52.5 s",
        "queue 18.5 s 52.3 s -",
    ):
        assert part in flat


def test_a_gain_since_the_onset_stands_beside_the_same_percentile(report: Report) -> None:
    cause = report.findings[0]
    assert cause.fix is not None
    fix = msgspec.structs.replace(
        cause.fix, reasons={"window": "over the requests since the onset"}
    )
    told = msgspec.structs.replace(report.verdict, since_ms=60_000.0, cause=cause.rule)
    found = [msgspec.structs.replace(cause, fix=fix), *report.findings[1:]]
    text = render(msgspec.structs.replace(report, verdict=told, findings=found))
    assert text.startswith("SLOW     TTFT P95 60.0 s since the onset (52.5 s in all), limit 1.00 s")
    assert "not simulated: TTFT P95 since the onset " in " ".join(text.split())


@pytest.mark.parametrize("width", [1, 72, 80, 120, 300])
def test_it_keeps_to_a_screen(report: Report, width: int) -> None:
    slow = np.where(np.arange(200) % 5 == 0, 9000.0, 10.0)
    for made in (
        report,
        of(0),
        of(5, prefill_ms=10.0, ttft_prefill_ms=10.0),
        of(400, prefill_ms=10.0, ttft_prefill_ms=10.0, ttft_ms=10.0),
        of(200, other_ms=slow, ttft_ms=5.0),
    ):
        lines = render(made, width=width).splitlines()
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= min(max(width, 72), 100)
        assert "None" not in " ".join(lines)
        assert lines[0].strip()
        assert any(line.startswith("MORE") for line in lines[-2:])


def test_a_calm_window_is_ok_and_asks_for_nothing() -> None:
    text = render(of(400, prefill_ms=10.0, ttft_prefill_ms=10.0, ttft_ms=10.0, decode_ms=500.0))
    assert labels(text) == ["OK", "HEADROOM", "DATA", "STAGE", "LATENCY", "MORE"]
    assert "Within budget: 100 % of 400 requests meet every limit" in text


def test_over_the_limit_by_chance_is_no_ok() -> None:
    late = np.where(np.arange(140) % 16 == 0, 33_000.0, 500.0)
    made = of(140, prefill_ms=10.0, ttft_prefill_ms=10.0, ttft_ms=10.0, decode_ms=late)
    text = render(made, width=100)
    assert text.startswith("OVER?    ")
    assert "E2E P95 33.0 s, limit 2.50 s" in text
    assert "Over the limit, not certain: 6.4 % of 140 requests miss it, 5 % may" in text


def test_a_long_reason_ends_with_a_whole_sentence(report: Report) -> None:
    said = "One reason is here. " + "Many words follow that do not fit at all " * 20 + "."
    verdict = msgspec.structs.replace(report.verdict, why=said)
    text = render(msgspec.structs.replace(report, verdict=verdict))
    assert "WHY      One reason is here.\nDO" in text


def test_colour_is_added_on_request_alone_and_changes_no_text(report: Report) -> None:
    plain, painted = render(report), render(report, colour=True)
    assert "\x1b" not in plain
    assert painted.startswith("\x1b[1;31mSLOW\x1b[0m")
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(("form", "most"), [(render, MOST_LINES), (report_document.render, 50)])
def test_hostile_names_print_no_escape_and_no_markup(
    form: Callable[[Report], str], most: int
) -> None:
    name = "\x1b]0;owned\x07[bold red]\u202egnp.exe\r\n\x9b31m" + "A" * 5000
    slow = np.where(np.arange(200) % 5 == 0, 9000.0, 10.0)
    names = dict.fromkeys(("service", "route", "model", "tenant", "sampling"), name)
    text = form(of(200, **names, other_ms=slow, ttft_ms=5.0))
    assert not set(text) & set("\x1b\x07\x9b\u202e\r[]")
    assert "owned" in text
    assert len(text.splitlines()) <= most


def test_the_fields_as_json_say_what_the_screen_says(report: Report) -> None:
    fields = json.loads(report_brief.to_json(report))
    text = " ".join(render(report, width=100).split())
    assert fields["status"] == "over_budget"
    assert fields["slow"] in text
    assert " ".join(fields["hit"].split()) in text
    assert fields["do"][0].split(".")[0] in text
    assert {"why", "gain", "sure", "undo", "trace"} <= fields.keys()
    assert None in json.loads(report_brief.to_json(of(0))).values()


def test_instances_fit_without_a_cut_number(report: Report) -> None:
    names = [f"vllm-{i}.inference.svc:8000" for i in range(3)]
    shown = msgspec.structs.replace(
        report.instances[0], state="up", queue_p95_ms=285.0, ttft_p95_ms=227.0
    )
    rows = [msgspec.structs.replace(shown, instance=name) for name in names]
    again = msgspec.structs.replace(report, instances=rows)
    lines = grid(report_brief.instances_table(again, 5, 80), 80)
    assert max(map(len, lines)) <= 80
    assert "queue P95" in lines[0]
    assert "..." not in "".join(lines)
    assert all(name in line for name, line in zip(names, lines[1:], strict=True))


@pytest.mark.parametrize("width", [1, 80, 120])
def test_the_live_screen_has_traffic_verdict_stages_and_instances(
    report: Report, width: int
) -> None:
    text = report_top.render(report, width=width)
    assert max(map(len, text.splitlines())) <= max(width, 72)
    assert labels(text) == ["SLOW", "WHY", "DO", "TRAFFIC", "LATENCY", "STAGE", "INSTANCE"]
    assert f"TRAFFIC  {report.window.requests:,} requests" in text
    assert "\x1b" not in text
    assert "\x1b[1;31mSLOW" in report_top.render(report, width=width, colour=True)


def test_the_live_screen_of_an_empty_window_says_so() -> None:
    text = report_top.render(of(0))
    assert text.startswith("NO DATA")
    assert "TRAFFIC  0 requests, goodput unknown" in text


def test_five_lines_are_five_lines(report: Report) -> None:
    for width in (40, 72, 80, 100, 300):
        lines = summary(report, width=width).splitlines()
        assert labels("\n".join(lines)) == ["SLOW", "WHY", "DO", "GAIN", "SURE?"]
        assert max(map(len, lines)) <= min(max(width, 72), 100)
    assert re.sub(r"\x1b\[[\d;]*m", "", summary(report, colour=True)) == summary(report)


def test_a_line_ends_with_a_sentence_a_clause_or_dots() -> None:
    for width, kept in (
        (80, "Roll it back (now). Send each session to one replica."),
        (30, "Roll it back."),
        (10, "Roll ..."),
    ):
        text = "Roll it back (now). Send each session to one replica."
        assert one_line(text, width) == kept.replace(" (now)", "")
    assert one_line("Admit 8 requests at the gateway and refuse the rest", 40) == (
        "Admit 8 requests at the gateway ..."
    )


@pytest.mark.parametrize(
    ("title", "step", "same"),
    [
        (
            "Cap answers at max_tokens=240",
            "Set max_tokens=240 on the routes that allow it; a cut answer ends with finish_reason=length.",
            True,
        ),
        (
            "Run 3 replicas instead of 2",
            "Admit at most 6.2 requests/s at the gateway; the others get 429 instead of an answer.",
            False,
        ),
    ],
)
def test_a_fix_that_is_the_first_step_in_other_words_is_not_listed_again(
    title: str, step: str, same: bool
) -> None:
    assert _repeats(title, step) == same
