"""The whole report, on a terminal and as a file: verdict first, bounded, harmless whatever the telemetry holds, and reaching for no network."""

import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.report import Report, build
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.finding import Predicted, printable, say_ms, say_rate, say_ratio, say_s
from overrun.analysis.words.slo import DEFAULT, parse_slo
from tests.analysis.builders import insert, requests, store, vllm_gauges, vllm_spans

MOST_LINES = 50
HOSTILE = (
    '<script src="https://evil.example/x.js">alert(1)</script>![x](https://evil.example/i.png)|`_*'
)


@pytest.fixture(scope="module")
def report() -> Report:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    made = build(con, Window(), parse_slo("ttft:1000 e2el:5000"))
    return msgspec.structs.replace(made, explanation=None)


def test_verdict_stands_first_and_the_rest_stays_bounded(report: Report) -> None:
    lines = render(report).splitlines()
    assert lines[0].startswith(
        "OVERRUN  OVER BUDGET  2026-11-20T10:00:00Z to 2026-11-20T10:02:29Z (150 s), 1,499 requests"
    )
    assert lines[1].startswith("TTFT P95 is 52.5 s against a limit of 1.00 s")
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= 100


def test_sentence_and_stages_say_of_which_requests_their_means_are(report: Report) -> None:
    assert (
        "queue takes 29.3 s of the 29.4 s of a request over the limit since the onset"
        in report.verdict.sentence
    )
    assert "typical P40-P60, near P95 P93-P97" in render(report)
    assert not any(row.amber for row in report.stages)


def test_a_stage_over_its_part_of_a_budget_that_is_kept_is_amber_and_no_verdict() -> None:
    con = store()
    insert(
        con,
        requests(
            400,
            retrieval_ms=700.0,
            prefill_ms=100.0,
            ttft_retrieval_ms=700.0,
            ttft_prefill_ms=100.0,
            decode_ms=500.0,
        ),
    )
    calm = build(con, Window(), DEFAULT)
    assert (calm.verdict.status, calm.verdict.stage) == ("within_budget", None)
    assert [
        (row.group, row.over, row.amber) for row in calm.stages if row.stage is None and row.over
    ] == [("retrieval", True, True)]
    for text in (render(calm), to_markdown(calm), to_html(calm)):
        assert "amber" in text
        assert "OVER " not in text.replace("OVERRUN ", "")
    assert 'class="bad' not in to_html(calm)


def test_every_number_says_its_unit_and_source(report: Report) -> None:
    text = render(report)
    for part in (
        "by TTFT engine",
        "GOODPUT 24.5 % of 1,499 requests",
        "19.0 s",
        "52.1 s-52.7 s",
        "394 requests were still waiting",
    ):
        assert part in text
    for part in ("FIX Run", "GAIN TTFT P95 52.5 s ->", "95 % interval", "under_capacity", "queue"):
        assert part in text


@pytest.mark.parametrize("width", [1, 72, 80, 120, 200])
def test_width_is_kept(report: Report, width: int) -> None:
    assert max(len(line) for line in render(report, width=width).splitlines()) <= max(width, 72)


@pytest.mark.parametrize("n", [0, 5, 100])
def test_few_or_no_requests_still_give_each_form(n: int) -> None:
    con = store()
    if n:
        insert(con, requests(n, prefill_ms=10.0, ttft_prefill_ms=10.0))
    made = build(con, Window(), DEFAULT)
    assert render(made).startswith("OVERRUN  ")
    for text in (render(made), to_html(made), to_markdown(made)):
        assert not {"None", "nan"} & set(re.findall(r"\w+", text))


def test_a_group_of_one_stage_is_one_row_and_what_takes_the_time_is_never_left_out() -> None:
    con = store()
    stages = ("network", "gateway", "retrieval", "prompt", "guardrail", "queue", "prefill", "tool")
    spent = {f"{stage}_ms": 20.0 + 10.0 * i for i, stage in enumerate(stages)}
    insert(con, requests(100, **spent, decode_ms=900.0, ttft_ms=450.0))
    lines = render(build(con, Window(), DEFAULT)).splitlines()
    rows = lines[next(i for i, line in enumerate(lines) if line.startswith("STAGES")) + 1 :]
    names = [
        row[:28].split("  ")[1 if row.startswith("  ") and row[2] != " " else 2].strip()
        for row in rows[:8]
    ]
    assert names == [
        "network+gateway",
        "retrieval",
        "prompt+guardrail",
        "model",
        "queue",
        "prefill",
        "decode",
        "tool+post: tool",
    ]


def test_routes_that_hold_few_of_the_bad_requests_are_not_said_to_be_affected() -> None:
    slow = [9_000.0 if i % 10 == 0 else 100.0 for i in range(600)]
    for routes, told in (
        ([f"/item/{i}" for i in range(600)], False),
        (["/a" if i % 20 == 0 else "/b" for i in range(600)], True),
    ):
        con = store()
        insert(con, requests(600, prefill_ms=slow, ttft_ms=100.0, route=routes))
        assert ("route /" in " ".join(render(build(con, Window(), DEFAULT)).split())) is told


@settings(max_examples=200)
@given(st.text(max_size=300), st.integers(8, 80))
def test_printable_is_one_bounded_line(text: str, most: int) -> None:
    shown = printable(text, most)
    assert 0 < len(shown) <= most
    assert shown.isprintable()
    assert not set(shown) & set("[]")


def test_times_and_shares_are_said_in_the_unit_of_their_size() -> None:
    assert [say_ms(v) for v in (0.25, 7.31, 377.2, 1500.0, 54_385.0)] == [
        "0.2 ms",
        "7.3 ms",
        "377 ms",
        "1.50 s",
        "54.4 s",
    ]
    assert [say_ms(v) for v in (-0.04, -7.31)] == ["0.0 ms", "-7.3 ms"]
    assert [say_s(v) for v in (90, 599, 3600, 5400, 86_400, 345_600)] == [
        "90 s",
        "599 s",
        "60 min",
        "90 min",
        "24 h",
        "4 d",
    ]
    assert [say_rate(v, "requests") for v in (1234.4, 6.283, 0.1, 0.0079, 0.001, 0.0)] == [
        "1,234 requests/s",
        "6.28 requests/s",
        "0.1 requests/s",
        "0.474 requests/min",
        "3.6 requests/h",
        "0 requests/s",
    ]
    assert [say_ratio(v) for v in (0.2455, 0.92, 1.0, 0.0)] == ["24.6 %", "92 %", "100 %", "0 %"]


GAIN = Predicted(
    metric="ttft",
    quantile=0.95,
    before=9_000.0,
    after=3_000.0,
    interval=(2_500.0, 3_500.0),
    touched_ratio=0.91,
    cost={"replicas_factor": 1.5, "truncated_ratio": 0.055, "network_floor_ms": 2.3},
    backtest_error_ratio=0.003,
)
SURE = """{"n": 1000, "n_tail": 80, "stage_share_of_excess": 0.6, "stage_share_of_excess_interval": [0.5, 0.7], "claims_ms": {"queue": 5.0}}"""


def test_each_form_says_who_acts_what_a_fix_gains_and_on_what_a_finding_rests(
    report: Report,
) -> None:
    first, verdict = report.findings[0], report.verdict
    assert first.fix is not None
    fix = msgspec.structs.replace(first.fix, predicted=GAIN)
    found = msgspec.structs.replace(first, fix=fix, evidence=json.loads(SURE))
    again = msgspec.structs.replace(report, findings=[found])
    for form in (render(again, width=200), to_html(again), to_markdown(again)):
        said = " ".join(form.replace("\\_", "_").split())
        for words in (
            "Owner of the fix: platform.",
            "Look again after 5 min.",
            f"Undo: {verdict.rollback}",
            verdict.ruled_out[0].what,
            "changes 91 % of the requests; cost: 1.5 times the replicas, truncated 5.5 %, network floor 2.3 ms; replay error 0.3 %.",
            "n 1,000, 80 slow; queue is 60 % of the excess (50 % to 70 %)",
        ):
            assert words in said


@pytest.fixture(scope="module")
def hostile() -> Report:
    con = store()
    insert(
        con,
        requests(
            100,
            prefill_ms=9_000.0,
            ttft_ms=9_000.0,
            route=HOSTILE,
            service=HOSTILE,
            model=HOSTILE,
            tenant=HOSTILE,
            version=HOSTILE,
        ),
    )
    return build(con, Window(), DEFAULT)


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")


def test_a_file_has_the_verdict_the_numbers_and_every_check(report: Report) -> None:
    document, text = to_html(report), to_markdown(report)
    assert document.startswith("<!doctype html>")
    assert all(check.check in document for check in report.data_quality)
    assert Tags(document).tags.count("table") >= 3
    assert text.startswith("## OVER BUDGET (2026-11-20T10:00:00Z to ")
    assert "| TTFT | 1,499 |" in text
    assert re.search(r"### Data quality \d+ checks passed, 1 to look at", text)
    assert all("under" in form and "OVER BUDGET" in form for form in (document, text))


@pytest.mark.parametrize("which", ["report", "hostile"])
def test_page_loads_and_runs_nothing(which: str, request: pytest.FixtureRequest) -> None:
    document = to_html(request.getfixturevalue(which))
    seen = Tags(document)
    assert not {"script", "img", "link", "iframe", "object", "a", "form"} & set(seen.tags)
    assert not {"src", "href", "onload", "onerror"} & set(seen.attributes)
    assert "url(" not in document
    assert "default-src 'none'" in document


def test_names_from_telemetry_are_escaped(hostile: Report) -> None:
    assert "&lt;script" in to_html(hostile)
    text = to_markdown(hostile)
    assert "<script" not in text
    assert not re.search(r"(?<!\\)!\[x\]\(", text)
