"""Metrics without a span still give a verdict: status by what the bucket edges prove, the stage by the engine's own phases."""

import numpy as np
import pytest

from overrun.analysis.front.report import Report, build, from_json, to_json
from overrun.analysis.front.report_document import render
from overrun.analysis.numbers.latency.histograms import load
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, gauge, store
from tests.analysis.numbers.quality.test_checks import histogram

EDGES = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
CALM, SLOW = (
    [10.0, 60.0, 25.0, 5.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 10.0, 10.0, 10.0, 20.0, 30.0, 20.0, 0.0],
)


def engine(
    *steps: list[float], slo: Slo, queue_s: float = 0.01, waiting: float = 0.0, grown: float = 1.0
) -> Report:
    """A minute per step: TTFT counts, a queue that takes `queue_s` a request from the second half on, and gauges."""
    con = store()
    total = np.cumsum([[0.0] * 8, *steps], axis=0)
    histogram(con, "ttft", EDGES, {60.0 * i: row.tolist() for i, row in enumerate(total)})
    counts = [[0.0] * 8] + [[float(part.sum()), *[0.0] * 7] for part in total[1:]]
    histogram(
        con,
        "queue",
        EDGES,
        {60.0 * i: row for i, row in enumerate(counts)},
        total=queue_s * 100.0 / 60.0,
    )
    histogram(
        con,
        "prefill",
        EDGES,
        {60.0 * i: row for i, row in enumerate(counts)},
        total=0.05 * 100.0 / 60.0,
    )
    minutes = range(len(steps) + 1)
    late = len(steps) // 2
    gauge(con, "queue_depth", {60.0 * i: waiting if i > late or not late else 0.0 for i in minutes})
    gauge(con, "kv_cache_usage", dict.fromkeys((60.0 * i for i in minutes), 0.5))
    gauge(con, "prompt_tokens", {60.0 * i: 1000.0 * (grown if i > late else 1.0) for i in minutes})
    return build(con, Window(), slo)


def test_engine_within_budget() -> None:
    report = engine(CALM, CALM, slo=Slo(ttft_ms=1_000.0))
    assert (report.verdict.status, report.verdict.scope, report.window.requests) == (
        "within_budget",
        "engine_only",
        0,
    )
    assert report.latency.ttft_ms.n == 200
    assert report.checklist[0].status == "pass"
    assert report.latency.ttft_ms.p95_interval == (250.0, 500.0)
    assert "engine histogram" in (report.latency.ttft_ms.source or "")
    assert from_json(to_json(report)) == report
    assert render(report).startswith("OVERRUN  WITHIN BUDGET")


def test_queue_of_an_engine_with_longer_prompts_is_named_with_its_onset() -> None:
    """100 requests end a minute before and since: three times the prompt tokens are three times as many for each."""
    report = engine(
        *[CALM] * 4, *[SLOW] * 5, slo=Slo(ttft_ms=1_000.0), queue_s=2.0, waiting=40.0, grown=3.0
    )
    verdict = report.verdict
    assert (verdict.status, verdict.scope, verdict.metric, verdict.stage, verdict.cause) == (
        "over_budget",
        "engine_only",
        "ttft",
        "queue",
        "prompt_bloat",
    )
    assert verdict.onset == at(
        300
    )  # the first scrape after the change: a value is dated at the end of its interval
    assert "A request brings 1,800 prompt tokens instead of 600." in verdict.sentence
    first = report.checklist[0]
    assert (first.step, first.status) == ("TTFT against ITL", "fail")
    assert first.detail.startswith("TTFT P95 ")
    assert report.goodput.ratio is None
    assert "alone" in report.goodput.reasons["ratio"]


def test_samples_of_one_moment_have_no_onset_and_edges_are_not_called_a_confidence_interval() -> (
    None
):
    counts = [[0] * 7, [100, 0, 0, 0, 0, 0, 0], [200, 0, 0, 0, 0, 0, 0], [200, 0, 0, 0, 0, 0, 400]]
    con = store()
    histogram(
        con,
        "e2e",
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0],
        {0.001 * i: one for i, one in enumerate(counts)},
    )
    report = build(con, Window(), Slo(e2e_ms=500.0))
    assert (report.verdict.status, report.verdict.scope, report.verdict.onset) == (
        "over_budget",
        "engine_only",
        None,
    )
    assert "P95 (bucket edges)" in render(report)


def test_limit_inside_a_bucket_is_not_guessed() -> None:
    report = engine(CALM, SLOW, slo=Slo(ttft_ms=8_000.0))
    assert report.verdict.status == "not_enough_data"
    assert "bucket edges are too coarse" in report.verdict.sentence


def test_a_histogram_that_came_once_counts_since_its_start_time() -> None:
    con = store()
    histogram(con, "ttft", EDGES, {600.0: CALM}, since_s=0.0)
    report = build(con, Window(), Slo(ttft_ms=1_000.0))
    assert (report.verdict.status, report.latency.ttft_ms.n) == ("within_budget", 100)
    assert (report.window.start, report.window.end) == (at(0), at(600))


@pytest.mark.parametrize(("since_s", "window"), [(None, Window()), (0.0, Window(start=at(300)))])
def test_a_histogram_that_came_once_without_a_start_in_the_window_says_what_it_lacks(
    since_s: float | None, window: Window
) -> None:
    con = store()
    histogram(con, "ttft", EDGES, {600.0: CALM}, since_s=since_s)
    report = build(con, window, Slo(ttft_ms=1_000.0))
    assert report.verdict.status == "not_enough_data"
    assert "vllm:ttft arrived once" in report.verdict.sentence
    assert report.latency.ttft_ms.p50 is None
    assert ("histogram_came_once", "fail") in [
        (check.check, check.status) for check in report.data_quality
    ]
    assert from_json(to_json(report)) == report


def test_few_values_are_not_judged() -> None:
    assert engine([0.0] * 7 + [5.0], slo=Slo(ttft_ms=1_000.0)).verdict.status == "not_enough_data"


def test_a_restart_counts_from_zero_and_the_window_starts_at_its_start() -> None:
    con = store()
    rows = [[5.0] * 8, [10.0] * 8, [2.0] * 8, [4.0] * 8]
    histogram(con, "ttft", EDGES, {60.0 * i: row for i, row in enumerate(rows)})
    made = load(con, None, None, ["ttft"])["ttft"]
    assert made.counts.sum(axis=1).tolist() == [40.0, 16.0, 16.0]
    assert load(con, at(60), None, ["ttft"])["ttft"].counts.sum(axis=1).tolist() == [16.0, 16.0]


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99])
def test_the_interval_of_a_histogram_holds_the_true_quantile(p: float) -> None:
    con = store()
    values = np.random.default_rng(1).lognormal(-1, 1, 5_000)
    counts = np.histogram(values, [0.0, *EDGES, np.inf])[0].tolist()
    histogram(con, "ttft", EDGES, {0.0: [0.0] * 8, 60.0: counts})
    value, low, high = load(con, None, None, ["ttft"])["ttft"].quantile(p) or (0.0, 0.0, 0.0)
    assert low <= np.quantile(values, p) <= high
    assert low <= value <= high


def test_an_empty_store_is_no_engine() -> None:
    assert build(store(), Window(), Slo(ttft_ms=1.0)).verdict.status == "no_data"
