"""Causes of windows that are too large to answer at once: sought among a sample, told with their age, and the numbers beside them are of all."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import duckdb
import numpy as np
import pytest

from overrun.analysis.diagnosis import sampled_causes
from overrun.analysis.diagnosis.sampled_causes import Background, seek
from overrun.analysis.front import report as reports
from overrun.analysis.front.report import Report, build, seeking
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.statistics import request_sample
from overrun.analysis.numbers.window import Window, count, load
from overrun.analysis.words.finding import FINDING_CAUSES
from overrun.analysis.words.slo import Slo, parse_slo
from tests.analysis.builders import (
    T0,
    at,
    calls_of,
    insert,
    insert_calls,
    requests,
    store,
    vllm_gauges,
    vllm_spans,
)
from tests.waiting import LIMIT_S, until

SLO = parse_slo("ttft:1000 e2el:5000")
WINDOW = Window(start=T0, end=at(150))


@pytest.fixture(scope="module")
def overloaded() -> duckdb.DuckDBPyConnection:
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    return con


@pytest.fixture(scope="module")
def whole(overloaded: duckdb.DuckDBPyConnection) -> Report:
    return build(overloaded.cursor(), WINDOW, SLO)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,499 requests are very many."""
    monkeypatch.setattr(reports, "MOST_AT_ONCE", 1000)
    monkeypatch.setattr(sampled_causes, "MOST_CAUSE_REQUESTS", 1000)
    monkeypatch.setattr(request_sample, "LEAST_EVEN", 500)
    monkeypatch.setattr(sampled_causes, "AFTER_S", 0.0)


def test_a_large_window_of_a_file_has_exact_numbers_and_the_causes_of_a_sample(
    overloaded: duckdb.DuckDBPyConnection, whole: Report, large: None
) -> None:
    found = build(overloaded.cursor(), WINDOW, SLO)
    assert (found.latency, found.goodput, found.stages) == (
        whole.latency,
        whole.goodput,
        whole.stages,
    )
    assert (found.verdict.status, found.verdict.stage, found.verdict.cause) == (
        "over_budget",
        "queue",
        "under_capacity",
    )
    assert found.verdict.onset == whole.verdict.onset
    assert [finding.rule for finding in found.findings] == [
        finding.rule for finding in whole.findings
    ]
    assert (found.findings_age_s, whole.findings_age_s, seeking(found)) == (0.0, 0.0, False)
    # Half of the requests are looked at; their rates are those of all.
    assert found.findings[0].evidence["offered_rps"] == pytest.approx(
        whole.findings[0].evidence["offered_rps"], rel=0.1
    )
    predicted = [one.findings[0].fix.predicted.before for one in (found, whole)]  # type: ignore[union-attr]
    assert predicted[0] == pytest.approx(predicted[1], rel=0.05)


@pytest.mark.parametrize("stage", ["decode", "prefill", "queue", "guardrail"])
def test_a_large_window_with_nothing_before_it_says_what_cannot_be_known(
    stage: str, large: None
) -> None:
    con = store()
    times = {"decode_ms": 300.0} | {
        f"{stage}_ms": np.random.default_rng(1).uniform(4_000.0, 9_000.0, 1_500)
    }
    insert(con, requests(1_500, every_s=0.1, **times))
    found = build(con.cursor(), WINDOW, parse_slo("e2el:5000"))
    assert (found.verdict.status, found.verdict.stage) == ("over_budget", stage)
    assert ("It is not known whether" in found.verdict.sentence) == (found.verdict.cause is None)


def test_a_sample_is_chosen_by_trace(overloaded: duckdb.DuckDBPyConnection) -> None:
    con = overloaded.cursor()
    half, every = load(con, WINDOW, every=2), load(con, WINDOW)
    assert 600 < half.rows.height < 900
    assert set(half.rows["trace_key"]) == {key for key in every.rows["trace_key"] if key % 2 == 0}
    assert count(con, WINDOW) == every.rows.height == 1499


def test_a_server_answers_at_once_and_tells_the_causes_with_their_age_when_they_are_there(
    overloaded: duckdb.DuckDBPyConnection, whole: Report, large: None
) -> None:
    may_begin = threading.Event()

    @contextmanager
    def reading() -> Iterator[duckdb.DuckDBPyConnection]:
        may_begin.wait(LIMIT_S)
        yield overloaded.cursor()

    sought = Background(reading)
    first = build(overloaded.cursor(), WINDOW, SLO, sought=sought)
    assert seeking(first)
    assert (first.latency, first.goodput, first.verdict.stage) == (
        whole.latency,
        whole.goodput,
        "queue",
    )
    assert (first.findings, first.findings_age_s, first.verdict.cause, first.edges) == (
        [],
        None,
        None,
        None,
    )
    assert (
        first.verdict.reasons["cause"]
        == first.reasons["findings"]
        == first.reasons["edges"]
        == FINDING_CAUSES
    )
    assert first.verdict.sentence.endswith("of a request over the limit since the onset.")
    for text in (render(first), to_html(first), to_markdown(first)):
        assert FINDING_CAUSES in text
    may_begin.set()

    def sure() -> Report | None:
        report = build(overloaded.cursor(), WINDOW, SLO, sought=sought)
        return None if seeking(report) else report

    then = until(sure)
    assert then is not None
    assert (then.verdict.cause, then.findings[0].rule) == ("under_capacity", "under_capacity")
    assert then.findings_age_s is not None
    then.findings_age_s = 41.0
    assert "41 s old" in render(then)
    assert "41 s old" in to_html(then)
    assert "41 s old" in to_markdown(then)
    # A window that follows the clock is the same question a step later, another one elsewhere.
    begun = replace(WINDOW, start=T0 + timedelta(seconds=60), end=at(210))
    assert sought(overloaded.cursor(), begun, SLO, None, 1499) is not None
    assert sought(overloaded.cursor(), replace(begun, model="another"), SLO, None, 1499) is None
    # So is one of which a side stands still while the other follows the clock.
    assert all(
        sought(
            overloaded.cursor(), replace(WINDOW, start=T0 + timedelta(seconds=s)), SLO, None, 1499
        )
        is not None
        for s in range(0, 60, 7)
    )
    assert (
        sought(overloaded.cursor(), replace(WINDOW, start=T0 - timedelta(hours=1)), SLO, None, 1499)
        is None
    )


def test_who_asks_the_same_again_within_moments_hears_the_causes_of_then_with_their_age(
    overloaded: duckdb.DuckDBPyConnection, whole: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "LEAST_LATELY", 1000)
    monkeypatch.setattr(sampled_causes, "MOST_LATELY_S", 3_600.0)  # on any machine
    sought, con = Background(overloaded.cursor), overloaded.cursor()  # type: ignore[arg-type]

    def ask(window: Window, *, slo: Slo = SLO) -> tuple[Report, bool]:
        """The report, and whether its causes were sought for it."""
        report = build(con, window, slo, recent=sought)
        return report, report.findings_age_s == 0.0

    first, anew = ask(WINDOW)
    assert (anew, first.findings, first.edges, first.indicators) == (
        True,
        whole.findings,
        whole.edges,
        whole.indicators,
    )
    again, anew = ask(WINDOW)
    assert not anew
    assert 0.0 < (again.findings_age_s or 0.0) < sampled_causes.MOST_LATELY_S
    assert {**json.loads(reports.to_json(again)), "findings_age_s": 0.0} == json.loads(
        reports.to_json(first)
    )
    # A step of the clock is the same question; its numbers are its own.
    later, anew = ask(replace(WINDOW, start=at(1), end=at(151)))
    assert (anew, later.verdict.cause) == (False, whole.verdict.cause)
    assert later.latency != whole.latency
    # Other questions, other breaches and old causes are sought anew.
    assert ask(replace(WINDOW, start=at(40), end=at(100)))[1]
    assert ask(WINDOW, slo=parse_slo("e2el:9000"))[1]
    _, known = sought.lately(WINDOW, SLO, None, 1499) or (0.0, None)
    assert known is not None
    for other in (
        replace(known.known, metric="tpot"),
        replace(known.known, onset=at(3600)),
        sampled_causes.NO_CAUSES,
    ):
        sought.remember(WINDOW, SLO, None, replace(known, known=other), 0.1)
        report, anew = ask(WINDOW)
        assert (anew, report.findings) == (True, whole.findings)
    monkeypatch.setattr(sampled_causes, "MOST_LATELY_S", 0.0)
    assert ask(WINDOW)[1]


def test_causes_of_moments_ago_show_the_same_way_to_the_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "LEAST_LATELY", 1)
    monkeypatch.setattr(sampled_causes, "MOST_LATELY_S", 3_600.0)
    late = np.arange(600) >= 300
    rows = requests(
        600,
        prefill_ms=np.where(late, 900.0, 100.0),
        decode_ms=np.where(late, 3_000.0, 1_000.0),
        input_tokens=2_000,
        cached_tokens=np.where(late, 0, 1_800),
        output_tokens=100,
    )
    con, sought = store(), Background(lambda: con.cursor())  # type: ignore[arg-type,return-value]
    insert(con, rows)
    insert_calls(con, calls_of(rows))
    first, again = (
        build(con, Window(), parse_slo("e2el:2000"), recent=sought).verdict.path for _ in range(2)
    )
    shown = {step.node: step.fact for step in again if step.kind == "state" and step.seen}
    assert again == first
    assert (first[0].node, shown["more_to_read"]) == ("prefix_cache_lost", "to_read")


def test_small_windows_have_causes_of_their_own_each_time(
    overloaded: duckdb.DuckDBPyConnection,
) -> None:
    sought = Background(overloaded.cursor)  # type: ignore[arg-type]
    assert [
        build(overloaded.cursor(), WINDOW, SLO, recent=sought).findings_age_s for _ in range(2)
    ] == [0.0, 0.0]


def test_a_day_of_which_one_side_follows_the_clock_is_one_question() -> None:
    day = Window(start=at(-90_000), end=at(0))
    for seconds in range(0, 60, 7):
        assert sampled_causes._keys(day, SLO, None)[0] in sampled_causes._keys(
            replace(day, start=at(seconds - 90_000)), SLO, None
        )
        assert sampled_causes._keys(day, SLO, None)[0] in sampled_causes._keys(
            replace(day, start=at(seconds - 90_000), end=at(seconds)), SLO, None
        )


def test_causes_of_another_metric_or_time_are_not_named(
    overloaded: duckdb.DuckDBPyConnection, large: None
) -> None:
    age, found = seek(overloaded.cursor(), WINDOW, SLO, None, 1499)
    for other, why in (
        (replace(found.known, metric="tpot"), "judged TPOT"),
        (replace(found.known, onset=T0 + timedelta(hours=1)), "another onset"),
        (replace(found.known, metric=None), "within budget"),
    ):
        report = build(
            overloaded.cursor(),
            WINDOW,
            SLO,
            sought=lambda *_, known=other: (age, replace(found, known=known)),
        )
        assert (report.verdict.status, report.verdict.cause, report.findings) == (
            "over_budget",
            None,
            [],
        )
        assert why in report.reasons["findings"]
