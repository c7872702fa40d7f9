"""The verdict: statuses, stage, onset, who is affected, and what it says aloud."""

from datetime import datetime

import numpy as np
import polars as pl
import pytest

from overrun.analysis.diagnosis.diagnose import Diagnosed
from overrun.analysis.diagnosis.verdict import _gain
from overrun.analysis.numbers.statistics.change_points import find_onset
from overrun.analysis.words.finding import Finding, Fix, Predicted
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, requests, spans_of
from tests.analysis.diagnosis.rules.cases import CHAT, run, the


def healthy(n: int, seed: int, **columns: object) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    prefill = rng.lognormal(5.0, 0.4, n)
    return requests(
        n,
        start_s=np.cumsum(rng.exponential(0.5, n)),
        network_ms=rng.lognormal(2.0, 0.5, n),
        retrieval_ms=rng.lognormal(4.0, 0.4, n),
        prefill_ms=prefill,
        decode_ms=rng.lognormal(6.3, 0.4, n),
        ttft_prefill_ms=prefill,
        tpot_ms=8.0,
        **columns,
    )


@pytest.mark.parametrize("seed", range(20))
def test_healthy_traffic_is_within_budget_without_findings(seed: int) -> None:
    found = run(healthy(400, seed))
    assert found.verdict.status == "within_budget"
    assert found.findings == []
    assert found.verdict.cause is None
    assert "Within budget" in found.verdict.sentence


def test_share_below_target_by_chance_is_no_breach() -> None:
    # 7 of 100 over the limit against 5 allowed: the one-sided bound reaches 96 %.
    found = run(
        requests(
            100,
            prefill_ms=10.0,
            ttft_ms=10.0,
            decode_ms=np.where(np.arange(100) % 14 == 0, 9000.0, 10.0),
        )
    )
    assert found.goodput.ratio == 0.92
    slow = requests(
        100,
        prefill_ms=10.0,
        ttft_ms=10.0,
        decode_ms=np.where(np.arange(100) % 16 == 0, 9000.0, 10.0),
    )
    assert run(slow).goodput.ratio == 0.93
    assert run(slow).verdict.status == "possibly_over_budget"
    assert run(slow).verdict.sentence.startswith(
        "Over the limit, not certain: 7 % of 100 requests miss it, 5 % may, which is no more than chance explains"
    )


@pytest.mark.parametrize(
    ("n", "slow", "status"),
    [
        (60, 3, "within_budget"),  # 5 % may
        (60, 4, "possibly_over_budget"),  # 6.7 % of few requests
        (2000, 105, "possibly_over_budget"),  # 5.3 % of many
        (2000, 100, "within_budget"),
        (2000, 160, "over_budget"),  # 8 % of many are no chance
        (60, 20, "over_budget"),
    ],
)
def test_a_status_never_contradicts_its_own_figures(n: int, slow: int, status: str) -> None:
    late = np.isin(np.arange(n), np.linspace(0, n - 1, slow).astype(int))
    found = run(
        requests(n, prefill_ms=10.0, ttft_ms=10.0, decode_ms=np.where(late, 33_000.0, 10.0))
    )
    assert found.verdict.status == status
    assert found.goodput.ratio is not None
    assert (found.goodput.ratio < 0.95) == (found.verdict.status != "within_budget")


@pytest.mark.parametrize("every", [0, 10, 3])
def test_a_cause_counts_with_as_much_confidence_as_its_baseline_is_healthy(every: int) -> None:
    """Retrieval is slow in all requests now; before, in none, one in ten or one in three."""
    k = np.arange(300)
    usual = np.where(every and k % max(every, 1) == 0, 4_000.0, 50.0)
    before = requests(300, start_s=k * 1.0, retrieval_ms=usual, decode_ms=100.0)
    now = requests(300, start_s=400.0 + k, retrieval_ms=4_000.0, decode_ms=100.0)
    found = run(before, now, start=at(400.0), end=at(700.0))
    named = the(found, "slow_dependency")
    share = 0.0 if not every else float((usual > 1_000.0).mean())
    healthy = 1.0 if not every else 1.0 - (share - 0.05) / 0.95
    assert named.evidence["seen"]["health"] == pytest.approx(healthy, abs=0.01)
    assert named.confidence <= healthy + 0.01
    assert "older" not in found.verdict.sentence


def test_a_percentile_above_a_lower_target_is_not_within_budget() -> None:
    """3 % miss: the P99 is over its limit with certainty, and 95 % of the requests were asked for."""
    late = np.arange(1000) % 33 == 0
    rows = requests(1000, prefill_ms=10.0, ttft_ms=10.0, decode_ms=np.where(late, 33_000.0, 10.0))
    found = run(rows, slo=Slo(e2e_ms=2500.0, percentile=99.0, goodput_target=0.95))
    assert found.verdict.status == "possibly_over_budget"
    assert found.verdict.sentence.startswith(
        "Over the limit of E2E P99, though not over the target of 95 %: 3.1 % of 1,000 requests miss it, 1 % may"
    )


def test_no_request_is_no_data() -> None:
    found = run(requests(2, complete=False, prefill_ms=1.0))
    assert found.verdict.status == "no_data"
    assert "2 incomplete" in found.verdict.sentence
    assert found.verdict.reasons["stage"]


def test_too_few_requests_are_not_judged() -> None:
    found = run(requests(58, prefill_ms=9000.0, ttft_ms=9000.0))
    assert found.verdict.status == "not_enough_data"
    assert "58 requests in the window, and P95 needs at least 59" in found.verdict.sentence
    assert run(requests(20, error=True)).verdict.sentence.endswith(
        "all of them without a named error. No request succeeds, so there is no latency to judge."
    )
    failed = run(requests(3, error=True))
    assert (
        "3 requests in the window, none of them successful, and P95 needs at least 59"
        in failed.verdict.sentence
    )
    some = run(
        requests(58, prefill_ms=9000.0, ttft_ms=[9000.0] * 40 + [None] * 18),
        slo=Slo(ttft_ms=1500.0),
    )
    assert (
        "58 requests in the window, 40 of them with a TTFT, and P95 needs at least 59"
        in some.verdict.sentence
    )
    assert run(requests(59, prefill_ms=9000.0, ttft_ms=9000.0)).verdict.status == "over_budget"


def test_metric_that_nobody_carries_is_not_judged() -> None:
    found = run(requests(100, prefill_ms=9000.0), slo=Slo(itl_ms=50))
    assert found.verdict.status == "not_enough_data"
    assert "ITL" in found.verdict.sentence


def test_missing_ttft_does_not_hide_an_e2e_breach() -> None:
    found = run(requests(200, generation_ms=9000.0))
    assert (found.goodput.ratio, found.goodput.unmeasurable) == (None, 200)
    assert (found.verdict.status, found.verdict.metric, found.verdict.stage) == (
        "over_budget",
        "e2e",
        "generation",
    )
    assert found.verdict.owner == "provider"


def test_errors_outrank_latency() -> None:
    kinds = [None] * 160 + ["rate_limit"] * 30 + ["timeout"] * 10
    found = run(
        requests(
            200,
            prefill_ms=9000.0,
            ttft_ms=9000.0,
            error=[k is not None for k in kinds],
            error_type=kinds,
        )
    )
    assert (found.verdict.status, found.verdict.metric) == ("failing", "errors")
    assert "40 of 200 requests (20 %)" in found.verdict.sentence
    assert (
        "most often rate_limit, in 30 of them. Percentiles cover the other requests only"
        in found.verdict.sentence
    )
    assert found.verdict.onset == at(160)


def test_a_stray_error_before_does_not_hide_when_errors_began() -> None:
    kinds = [None if i % 50 else "timeout" for i in range(400)] + [
        "rate_limit" if i % 5 < 3 else None for i in range(200)
    ]
    found = run(
        requests(
            600,
            prefill_ms=100.0,
            ttft_ms=100.0,
            error=[k is not None for k in kinds],
            error_type=kinds,
        )
    )
    assert found.verdict.status == "failing"
    assert found.verdict.onset is not None
    assert abs((found.verdict.onset - at(400)).total_seconds()) <= 5


def test_clients_that_give_up_while_all_answers_are_fast_are_no_matter_of_latency() -> None:
    kinds = [None] * 180 + ["CancelledError"] * 20
    found = run(
        requests(
            200,
            e2e_ms=[100.0] * 180 + [7000.0] * 20,
            prefill_ms=10.0,
            ttft_ms=10.0,
            error=[k is not None for k in kinds],
            error_type=kinds,
        )
    )
    assert (found.verdict.status, found.verdict.metric) == ("failing", "errors")
    assert (
        "20 of 200 requests (10 %) end without an answer, all abandoned by their clients after 7.00 s at the median, all of them CancelledError."
        in (found.verdict.sentence)
    )
    # Where the answers are late as well, they gave up waiting.
    slow = run(
        requests(
            200,
            e2e_ms=[5000.0] * 180 + [9000.0] * 20,
            decode_ms=5000.0,
            ttft_ms=10.0,
            error=[k is not None for k in kinds],
            error_type=kinds,
        )
    )
    assert (slow.verdict.status, slow.verdict.metric) == ("over_budget", "e2e")


@pytest.mark.parametrize(
    ("begins", "ends", "usually_bad", "status"),
    [
        (0.95, 1.0, 0.02, "over_budget"),
        (0.5, 0.55, 0.02, "over_budget"),
        (0.995, 1.0, 0.02, "within_budget"),
        (0.5, 0.55, 0.005, "within_budget"),
    ],
)
def test_an_hour_of_a_broken_service_is_seen_in_a_window_of_a_day(
    begins: float, ends: float, usually_bad: float, status: str
) -> None:
    """80 % of the requests of a twentieth of a day go bad: still, or until it ended and left the day below its target. Seven minutes are a bad moment."""
    rng = np.random.default_rng(1)
    start = np.sort(rng.uniform(0.0, 86_400.0, 10_000))
    broken = (start >= begins * 86_400.0) & (start < ends * 86_400.0)
    bad = (rng.random(10_000) < usually_bad) | (broken & (rng.random(10_000) < 0.8))
    found = run(
        requests(
            10_000,
            start_s=start,
            retrieval_ms=np.where(bad, 3_600.0, 400.0) * rng.lognormal(0.0, 0.1, 10_000),
            decode_ms=400.0,
        ),
        slo=Slo(e2e_ms=2_500.0),
    )
    assert found.verdict.status == status
    if status == "over_budget":
        assert found.verdict.onset is not None
        assert abs((found.verdict.onset - at(begins * 86_400.0)).total_seconds()) < 600.0
        assert ("they are within the limit again" in found.verdict.sentence) is (ends < 1.0)


@pytest.mark.parametrize("common", [Slo(ttft_ms=1500.0), Slo(e2e_ms=100_000.0)])
def test_limits_that_requests_came_with_are_judged_in_the_verdict_too(common: Slo) -> None:
    rng = np.random.default_rng(3)
    first = np.where(np.arange(600) < 300, 350.0, 800.0) + rng.normal(0.0, 20.0, 600)
    rows = requests(
        600,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=400.0,
        version=["v1"] * 300 + ["v2"] * 300,
    )
    header = {"http.request.header.x-slo-ttft-ms": ["500" if i % 2 else "none" for i in range(600)]}
    found = run(
        rows, slo=common, spans=[spans_of(rows, "POST /chat", "other", 0.0, 1.0, attributes=header)]
    )
    assert (found.verdict.status, found.verdict.metric, found.verdict.stage) == (
        "over_budget",
        "ttft",
        "first_token",
    )
    assert "their own in 300 requests (500 ms at the median)" in found.verdict.sentence
    assert found.verdict.onset is not None
    assert abs((found.verdict.onset - at(300)).total_seconds()) <= 1.0
    assert [(change.what, change.after) for change in found.verdict.changed[:1]] == [
        ("version", "v2")
    ]
    assert found.goodput.failed_by.ttft == 150


def test_what_was_over_the_limit_before_is_counted_by_each_requests_own_limit() -> None:
    # A job of one request in twenty takes 3 s, well within the 10 s that it comes with; of the others one in twenty takes 4 s from the middle on.
    k = np.arange(1200)
    job, slow = k % 20 == 0, (k >= 600) & (k % 20 == 7)
    rows = requests(
        1200,
        prefill_ms=100.0,
        ttft_ms=100.0,
        tool_ms=np.where(job, 3000.0, np.where(slow, 4000.0, 800.0)),
    )
    header = {"x-slo-e2e-ms": ["10000" if one else "none" for one in job]}
    found = run(
        rows,
        slo=Slo(e2e_ms=2500.0, goodput_target=0.9),
        spans=[spans_of(rows, "POST /chat", "other", 0.0, 1.0, attributes=header)],
    )
    assert found.verdict.status == "within_budget"
    assert "worse than before: 5.1 % of the requests since" in found.verdict.sentence
    assert "are over 2.50 s to 10.0 s, by request, 0 % in the baseline" in found.verdict.sentence


def test_what_became_worse_within_the_target_and_is_over_is_counted_while_it_lasted() -> None:
    # Four in a hundred hang for a third of the window; of all that came since the onset they are two in a hundred.
    k = np.arange(3000)
    slow = (k >= 1000) & (k < 2000) & (k % 25 == 7)
    found = run(
        requests(
            3000,
            prefill_ms=100.0,
            ttft_ms=100.0,
            retrieval_ms=np.where(slow, 4000.0, 80.0),
            decode_ms=500.0,
        )
    )
    assert (found.verdict.status, found.verdict.cause) == ("within_budget", "slow_dependency")
    assert "worse than before: 4.1 % of the requests" in found.verdict.sentence
    assert "they are within the limit again" in found.verdict.sentence


def test_time_limits_that_slow_requests_run_into_are_a_matter_of_latency() -> None:
    # From the 200th on answers take 5 s, and one in five runs into its client's limit of 9 s.
    late, given_up = np.arange(400) >= 200, (np.arange(400) >= 200) & (np.arange(400) % 5 == 0)
    kinds = ["APITimeoutError" if one else None for one in given_up]
    columns = {"prefill_ms": 10.0, "ttft_ms": 10.0, "error": given_up.tolist(), "error_type": kinds}
    found = run(
        requests(
            400,
            decode_ms=np.where(late, 5000.0, 500.0),
            e2e_ms=np.where(given_up, 9000.0, np.where(late, 5010.0, 510.0)),
            **columns,
        )
    )
    assert (found.verdict.status, found.verdict.metric, found.verdict.stage) == (
        "over_budget",
        "e2e",
        "decode",
    )
    # What failed had waited for less than any limit: it is errors.
    soon = run(
        requests(
            400,
            decode_ms=np.where(late, 5000.0, 500.0),
            e2e_ms=np.where(given_up, 100.0, np.where(late, 5010.0, 510.0)),
            **columns,
        )
    )
    assert (soon.verdict.status, soon.verdict.metric) == ("failing", "errors")


def test_time_limits_that_cut_every_late_answer_are_slow_requests() -> None:
    # One in five waits in the queue until its client's limit of 9 s; the others are in time.
    given_up = (np.arange(400) >= 200) & (np.arange(400) % 5 == 0)

    def waited(error_type: str, e2e_ms: float = 9000.0) -> Diagnosed:
        kinds = [error_type if one else None for one in given_up]
        spent = np.where(given_up, e2e_ms - 500.0, 0.0)
        return run(
            requests(
                400,
                decode_ms=500.0,
                queue_ms=spent,
                e2e_ms=500.0 + spent,
                ttft_ms=10.0,
                error=given_up.tolist(),
                error_type=kinds,
            )
        )

    found = waited("openai.APITimeoutError")
    assert (found.verdict.status, found.verdict.metric, found.verdict.stage) == (
        "over_budget",
        "e2e",
        "queue",
    )
    assert found.verdict.onset is not None
    assert "E2E P95 is 500 ms" in found.verdict.sentence  # of those that were answered
    assert (
        "40 of them by an error (percentiles cover the others), 40 of these by a timeout"
        in found.verdict.sentence
    )
    row = next(row for row in found.stages if row.stage == "queue")
    assert row.p95_ms == 0.0
    # A server's error, a limit that passed before that of the SLO, and a user who left are none.
    for other in (
        waited("500"),
        waited("ConnectError"),
        waited("APITimeoutError", 2000.0),
        waited("RateLimitError"),
    ):
        assert (other.verdict.status, other.verdict.metric) == ("failing", "errors")
    assert waited("asyncio.CancelledError").verdict.stage != "queue"


@pytest.mark.parametrize("answered", [0, 1, 20])
def test_a_baseline_that_time_limits_cut_is_none(answered: int) -> None:
    cut = (np.arange(400) < 200) & (np.arange(400) >= answered)
    took = np.where(cut, 9000.0, 5000.0)
    rows = requests(
        400,
        prefill_ms=10.0,
        ttft_ms=10.0,
        decode_ms=took - 10.0,
        e2e_ms=took,
        error=cut.tolist(),
        error_type=["APITimeoutError" if one else None for one in cut],
    )
    found = run(rows, start=at(200), end=at(400), baseline="previous")
    assert (found.verdict.status, found.verdict.stage) == ("over_budget", "decode")


def test_time_limits_that_are_run_into_in_a_few_stretches_are_slow_requests_too() -> None:
    k = np.arange(400)
    given_up = (k >= 200) & ((k // 20) % 3 == 1) & (k % 2 == 0)
    spent = np.where(given_up, 8500.0, 0.0)
    kinds = ["APITimeoutError" if one else None for one in given_up]
    found = run(
        requests(
            400,
            decode_ms=500.0,
            queue_ms=spent,
            e2e_ms=500.0 + spent,
            ttft_ms=10.0,
            error=given_up.tolist(),
            error_type=kinds,
        )
    )
    assert (found.verdict.status, found.verdict.stage) == ("over_budget", "queue")


def test_a_wait_for_the_first_token_that_a_time_limit_ends_is_one_over_the_limit() -> None:
    given_up = (np.arange(400) >= 200) & (np.arange(400) % 5 == 0)
    ttft = pl.Series([None if one else 300_000_000 for one in given_up], dtype=pl.Int64)
    kinds = ["openai.APITimeoutError" if one else None for one in given_up]
    rows = requests(
        400,
        decode_ms=np.where(given_up, 0.0, 500.0),
        generation_ms=np.where(given_up, 3000.0, 0.0),
        ttft_prefill_ms=300.0,
        e2e_ms=np.where(given_up, 3000.0, 800.0),
        error=given_up.tolist(),
        error_type=kinds,
    ).with_columns(ttft_ns=ttft)
    found = run(rows, slo=Slo(ttft_ms=1000.0, e2e_ms=8000.0))
    assert (found.verdict.status, found.verdict.metric, found.verdict.stage) == (
        "over_budget",
        "ttft",
        "first_token",
    )


@pytest.mark.parametrize(
    ("late_ms", "error_type", "status"),
    [
        (5000.0, "APITimeoutError", "over_budget"),
        (500.0, "APITimeoutError", "failing"),
        (5000.0, "InternalServerError", "failing"),
    ],
)
def test_most_requests_fail_because_they_are_slow_only_where_answers_are_late_too(
    late_ms: float, error_type: str, status: str
) -> None:
    late, given_up = np.arange(400) >= 100, (np.arange(400) >= 100) & (np.arange(400) % 4 != 0)
    kinds = [error_type if one else None for one in given_up]
    spent = np.where(given_up, 9000.0, np.where(late, late_ms, 500.0))
    found = run(
        requests(
            400,
            queue_ms=spent,
            e2e_ms=spent,
            ttft_ms=10.0,
            error=given_up.tolist(),
            error_type=kinds,
        )
    )
    assert found.verdict.status == status


def test_of_requests_that_are_always_too_slow_the_stage_is_what_takes_the_time() -> None:
    wait = np.random.default_rng(4).uniform(200.0, 600.0, 200)
    found = run(requests(200, prefill_ms=wait, ttft_prefill_ms=wait, decode_ms=6000.0))
    assert (found.verdict.status, found.verdict.stage) == ("over_budget", "decode")


def test_few_errors_are_no_failure() -> None:
    found = run(requests(100, prefill_ms=1.0, ttft_ms=1.0, error=[True] * 9 + [False] * 91))
    assert found.verdict.status != "failing"


def test_half_of_the_traffic_gone_is_said_against_a_named_baseline() -> None:
    rows = requests(
        230,
        start_s=np.r_[np.arange(200) * 0.5, 100 + np.arange(30) * 3.0],
        prefill_ms=1.0,
        ttft_ms=1.0,
    )
    lost = run(rows, start=at(100), end=at(200), baseline="previous")
    assert lost.verdict.status == "traffic_lost"
    assert (
        "30 requests began, but 200 were expected from the baseline's rate" in lost.verdict.sentence
    )
    assert run(rows, start=at(100), end=at(200), baseline="none").verdict.status != "traffic_lost"


CALL = {"prefill_ms": 100.0, "ttft_ms": 100.0, "decode_ms": 300.0}


def test_lost_traffic_stands_above_what_was_found_and_does_not_replace_it() -> None:
    start = np.r_[np.arange(800) * 0.5, 400 + np.arange(130) * 3.0]
    slow = start >= 400
    rows = requests(930, start_s=start, **CALL, retrieval_ms=np.where(slow, 9_000.0, 50.0))
    found = run(rows, start=at(400), end=at(800), baseline="previous")
    assert found.verdict.status == "traffic_lost"
    assert found.verdict.stage == "retrieval"
    assert found.findings
    assert found.verdict.sentence.startswith("Traffic is lost")
    assert "E2E P95" in found.verdict.sentence


def test_the_end_of_a_load_test_leaves_its_verdict() -> None:
    start = np.arange(800) * 0.5
    rows = requests(800, start_s=start, **CALL, retrieval_ms=np.where(start >= 200, 9_000.0, 50.0))
    found, later = run(rows, start=at(0), end=at(400)), run(rows, start=at(0), end=at(480))
    assert later.verdict.status == "over_budget"
    assert (later.verdict.stage, later.verdict.cause) == (found.verdict.stage, found.verdict.cause)
    assert "the traffic ended there" in later.verdict.sentence
    assert "the traffic ended there" not in found.verdict.sentence


def test_onset_baseline_and_trend_of_a_step() -> None:
    slow = np.arange(600) >= 300
    rows = requests(
        600,
        prefill_ms=100.0,
        ttft_ms=100.0,
        decode_ms=300.0,
        retrieval_ms=np.where(slow, 4000.0, 100.0),
        version=["v1"] * 300 + ["v2"] * 300,
        route=["/a", "/b"] * 300,
    )
    verdict, found = run(rows).verdict, run(rows)
    assert verdict.onset == at(300)
    assert verdict.trend == "steady"
    assert found.baseline is not None
    assert (found.baseline.start, found.baseline.end, found.baseline.requests) == (
        at(0),
        at(300),
        300,
    )
    assert [(c.what, c.before, c.after, c.at) for c in verdict.changed] == [
        ("version", ["v1"], "v2", at(300))
    ]
    assert verdict.affected is not None
    assert (verdict.affected.requests, verdict.affected.ratio) == (300, 0.5)
    # All 300 since the onset, in the five minutes since then.
    assert verdict.affected.per_minute == pytest.approx(60.0, rel=0.05)
    assert [(r.name, r.requests, r.ratio) for r in verdict.affected.routes] == [
        ("/a", 150, 0.5),
        ("/b", 150, 0.5),
    ]
    assert [out.what for out in verdict.ruled_out][:3] == ["decode", "prefill", "errors"]
    assert verdict.stage == "retrieval"


@pytest.mark.parametrize(("slow", "status"), [(70, "over_budget"), (50, "within_budget")])
@pytest.mark.parametrize("every_s", [1.0, 8.0])
def test_a_last_minute_that_brings_the_window_below_its_target_is_no_moment(
    slow: int, status: str, every_s: float
) -> None:
    """Of 1,080 requests the last 70 are late, 6.5 %: a fifteenth of them, and the target is missed. 50 leave it met."""
    late = np.arange(1_080) >= 1_080 - slow
    found = run(
        requests(
            1_080,
            every_s=every_s,
            retrieval_ms=np.where(late, 3_000.0, 100.0),
            prefill_ms=100.0,
            ttft_ms=200.0,
        ),
        slo=Slo(e2e_ms=2_500.0),
    )
    assert found.verdict.status == status
    assert (found.verdict.onset, found.verdict.stage) == (
        (at((1_080 - slow) * every_s), "retrieval") if status == "over_budget" else (None, None)
    )


def onset(bad: np.ndarray) -> int | None:
    return find_onset(np.arange(len(bad)) * 1_000_000, bad.astype(bool), 0.05)


def test_a_baseline_too_small_for_the_percentile_is_still_compared_with() -> None:
    # 150 requests before the onset, where P99 needs 299; from then on requests come twice as often and wait.
    n = 450
    late = np.arange(n) >= 150
    start = np.r_[np.arange(150.0), 150.0 + np.arange(300) / 2.0]
    rows = requests(
        n,
        start_s=start,
        queue_ms=np.where(late & (np.arange(n) % 5 == 0), 3_000.0, 20.0),
        prefill_ms=100.0,
        decode_ms=500.0,
        tpot_ms=5.0,
    )
    found = run(rows, slo=Slo(e2e_ms=2_000.0, percentile=99.0, goodput_target=0.99))
    assert found.baseline is not None
    assert (found.baseline.choice, found.baseline.requests) == ("auto: before the onset", 150)
    assert found.verdict.cause == "under_capacity"
    few = run(rows.slice(70), slo=Slo(e2e_ms=2_000.0, percentile=99.0, goodput_target=0.99))
    assert few.baseline is None


def test_onset_needs_one_clear_rise() -> None:
    rng = np.random.default_rng(0)
    assert onset(np.r_[rng.random(200) < 0.01, rng.random(100) < 0.6]) in [
        k * 1_000_000 for k in range(195, 206)
    ]
    assert onset(rng.random(500) < 0.05) is None
    assert onset(np.r_[np.ones(100), np.zeros(200)]) is None
    assert onset(np.r_[rng.random(200) < 0.3, np.ones(100)]) is None
    # A queue that swings from the start: its last swing is no beginning. One that is over long before the incident is none of it.
    assert onset(np.r_[rng.random(300) < 0.3, np.zeros(300), rng.random(60) < 0.5]) is None
    assert onset(
        np.r_[np.zeros(100), rng.random(200) < 0.3, np.zeros(300), rng.random(60) < 0.5]
    ) in [k * 1_000_000 for k in range(95, 110)]
    assert onset(np.ones(39)) is None
    assert onset(np.zeros(100)) is None
    assert onset(np.ones(100)) is None


def test_trouble_that_began_before_the_window_is_dated_by_the_span_before() -> None:
    slow = np.arange(1200) >= 500
    rows = requests(
        1200,
        prefill_ms=100.0,
        ttft_ms=100.0,
        decode_ms=300.0,
        retrieval_ms=np.where(slow, 4000.0, 100.0),
    )
    found = run(rows, start=at(600), end=at(1200))
    assert found.baseline is not None
    assert (found.baseline.choice, found.baseline.requests) == (
        "auto: the period of equal length just before, healthy until 10:08:20 UTC",
        500,
    )
    assert (found.verdict.onset, found.verdict.stage) == (at(500), "retrieval")
    # Seven seconds of the window are as ever: too few to tell by themselves, enough beside those before.
    found = run(rows, start=at(493), end=at(986))
    assert (found.verdict.onset, found.verdict.stage) == (at(500), "retrieval")


def test_a_last_worse_moment_of_a_window_that_is_broken_throughout_is_no_onset() -> None:
    rng = np.random.default_rng(5)
    late = np.arange(1200) >= 1150
    decode = np.where(rng.random(1200) < 0.12, 4000.0, 300.0) * np.where(late, 1.4, 1.0)
    verdict = run(requests(1200, prefill_ms=100.0, ttft_ms=100.0, decode_ms=decode)).verdict
    assert (verdict.status, verdict.onset) == ("over_budget", None)


def test_time_without_spans_asks_for_instrumentation() -> None:
    slow = np.arange(300) % 10 == 0
    found = run(
        requests(
            300,
            prefill_ms=100.0,
            ttft_ms=100.0,
            decode_ms=100.0,
            other_ms=np.where(slow, 5000.0, 10.0),
            service="bff",
        )
    )
    assert (found.verdict.stage, found.verdict.cause) == ("other", "unattributed_time")
    assert "Instrument bff" in found.verdict.sentence
    assert "100 % of the excess has no span" in found.verdict.sentence


def test_two_causes_are_both_found_and_ranked() -> None:
    n, slow = 600, np.arange(600) % 10 == 0
    rows = requests(
        n,
        prefill_ms=100.0,
        ttft_ms=100.0,
        retrieval_ms=np.where(slow, 3000.0, 100.0),
        tool_ms=np.where(slow, 2500.0, 100.0),
        decode_ms=300.0,
    )
    found = run(rows)
    assert [finding.stage for finding in found.findings if finding.severity != "info"] == [
        "retrieval",
        "tool",
    ]
    assert found.verdict.stage == "retrieval"


def test_slow_tokens_are_judged_by_tpot() -> None:
    found = run(requests(200, prefill_ms=10.0, decode_ms=100.0, tpot_ms=90.0), slo=Slo(tpot_ms=50))
    assert (found.verdict.metric, found.verdict.stage) == ("tpot", "decode")
    assert "tokens come too slowly" in found.verdict.sentence


def test_ttft_verdict_stands_on_the_path_to_the_first_token() -> None:
    slow = np.arange(300) % 8 == 0
    wait = np.where(slow, 4000.0, 50.0)
    rows = requests(
        300,
        queue_ms=wait,
        prefill_ms=100.0,
        decode_ms=1500.0,
        ttft_queue_ms=wait,
        ttft_prefill_ms=100.0,
    )
    found = run(rows, slo=Slo(ttft_ms=1000))
    assert (found.verdict.metric, found.verdict.stage) == ("ttft", "queue")
    groups = {(row.group, row.stage): row for row in found.stages}
    assert groups["after_first_token", "decode"].p50_ms == 1500.0
    assert groups["after_first_token", "decode"].budget_ms is None
    assert ("model", "decode") not in groups
    path = [row.tail_ms for row in found.stages if row.stage is None and row.tail_ms is not None]
    assert sum(path) == pytest.approx(4100.0)


def test_checklist_has_four_steps_with_figures() -> None:
    steps = {step.step: step for step in run(healthy(400, 1, attempts=[1, 2] * 200)).checklist}
    assert list(steps) == ["TTFT against ITL", "engine utilisation", "output length", "retries"]
    assert steps["TTFT against ITL"].status == "pass"
    assert steps["engine utilisation"].status == "unknown"
    assert "/metrics" in steps["engine utilisation"].detail
    assert (steps["retries"].status, steps["retries"].detail) == (
        "fail",
        "1.50 attempts per request (n 400)",
    )
    full = run(
        healthy(400, 1),
        gauges={"kv_cache_usage": {1.0: 0.95, 2.0: 0.97}, "queue_depth": {1.0: 3.0, 2.0: 5.0}},
    )
    assert full.checklist[1].status == "fail"


def test_hostile_names_do_not_reach_the_sentence() -> None:
    slow = np.arange(300) % 10 == 0
    name = "\x1b[31mbff\n[bold]" + "x" * 500
    found = run(
        requests(
            300,
            prefill_ms=100.0,
            ttft_ms=100.0,
            other_ms=np.where(slow, 5000.0, 10.0),
            service=name,
        )
    )
    assert "\x1b" not in found.verdict.sentence
    assert "[" not in found.verdict.sentence
    assert len(found.verdict.sentence) < 500


def test_window_times_are_aware() -> None:
    assert isinstance(run(healthy(400, 2), slo=CHAT).verdict.onset, datetime | None)


def test_breach_that_two_limits_share_is_traced_among_the_breaching() -> None:
    # 4 % miss TTFT by queue and 4 % others miss E2E by decoding: each P95 is within its limit, the SLO is not.
    k = np.arange(1000) % 25
    wait, decode = np.where(k == 0, 4000.0, 10.0), np.where(k == 12, 9000.0, 500.0)
    rows = requests(
        1000,
        queue_ms=wait,
        prefill_ms=90.0,
        decode_ms=decode,
        ttft_queue_ms=wait,
        ttft_prefill_ms=90.0,
    )
    found = run(rows, slo=Slo(ttft_ms=1000, e2e_ms=5000))
    assert found.goodput.ratio == 0.92
    assert (found.verdict.status, found.verdict.metric) == ("over_budget", "e2e")
    assert found.verdict.stage == "decode"


def test_affected_counts_the_judged_metric_where_nothing_is_measurable_at_once() -> None:
    affected = run(requests(200, generation_ms=[9000.0] * 150 + [10.0] * 50)).verdict.affected
    assert affected is not None
    assert (affected.requests, affected.ratio) == (150, 0.75)


def test_worse_than_before_within_the_target_is_told_as_information() -> None:
    # 4 % of the later half wait 4 s for retrieval, none before: the target of 95 % is met, and the cause is named without an alarm.
    later = (np.arange(2000) >= 1000) & (np.arange(2000) % 25 == 0)
    found = run(
        requests(
            2000,
            start_s=np.arange(2000) * 0.5,
            retrieval_ms=np.where(later, 4000.0, 50.0),
            decode_ms=200.0,
        )
    )
    assert (found.verdict.status, found.verdict.cause, found.verdict.stage) == (
        "within_budget",
        "slow_dependency",
        "retrieval",
    )
    assert [(finding.rule, finding.severity) for finding in found.findings] == [
        ("slow_dependency", "info")
    ]
    assert "worse than before: 4 % of the requests" in found.verdict.sentence
    # One in a hundred: too few to tell from what happens by chance.
    rare = (np.arange(2000) >= 1000) & (np.arange(2000) % 100 == 0)
    quiet = run(
        requests(
            2000,
            start_s=np.arange(2000) * 0.5,
            retrieval_ms=np.where(rare, 4000.0, 50.0),
            decode_ms=200.0,
        )
    )
    assert (quiet.verdict.status, quiet.verdict.cause, quiet.findings) == (
        "within_budget",
        None,
        [],
    )
    # Asked about the later half alone, in which nothing begins.
    rows = requests(
        2000,
        start_s=np.arange(2000) * 0.5,
        retrieval_ms=np.where(later, 4000.0, 50.0),
        decode_ms=200.0,
    )
    asked = run(rows, start=at(500), end=at(1000))
    assert (asked.verdict.status, asked.verdict.cause, asked.verdict.onset) == (
        "within_budget",
        "slow_dependency",
        None,
    )
    assert (
        "Within budget, but worse than before: 4 % of the requests are over 2.50 s, 0 % in the baseline"
        in asked.verdict.sentence
    )


@pytest.mark.parametrize(
    ("stretches", "said"),
    [
        (4, "6.7 % of 1,200 requests miss it, 5 % may, but they occur in a few stretches"),
        (0, "5.6 % of 1,200 requests miss it, 5 % may, which is no more than chance explains"),
    ],
)
def test_what_makes_requests_slow_at_the_limit_is_told_as_information(
    stretches: int, said: str
) -> None:
    """6.7 % of 1,200 requests hang in four stretches: more than chance explains if each came for itself, and in so few stretches it may. 5.6 % are chance."""
    k = np.arange(1200)
    slow = ((k % 300 < 60) & (k % 3 == 0)) if stretches else k % 18 == 0
    found = run(
        requests(
            1200,
            prefill_ms=10.0,
            ttft_ms=10.0,
            retrieval_ms=np.where(slow, 4000.0, 50.0),
            decode_ms=200.0,
        )
    )
    assert (found.verdict.status, found.verdict.cause) == (
        "possibly_over_budget",
        "slow_dependency",
    )
    assert [finding.severity for finding in found.findings] == ["info"] * len(found.findings)
    assert found.verdict.stage == "retrieval"
    assert found.verdict.sentence.startswith(f"Over the limit, not certain: {said}")
    assert (
        "(target 95 %). E2E P95 is 4.21 s of 2.50 s allowed. Retrieval takes "
        in found.verdict.sentence
    )
    assert "because it takes " in found.verdict.sentence


@pytest.mark.parametrize(
    ("after", "interval", "said"),
    [
        (900.0, (800.0, 1_000.0), "falls from 2.00 s to 900 ms (800 ms to 1.00 s)"),
        (
            2_500.0,
            (800.0, 9_000.0),
            "whether that lowers E2E P99 is not certain (800 ms to 9.00 s)",
        ),
        (2_500.0, (2_400.0, 9_000.0), "alone it would not lower E2E P99 (2.50 s)"),
    ],
)
def test_a_fix_whose_interval_holds_both_is_said_to_be_open(
    after: float, interval: tuple[float, float], said: str
) -> None:
    told = Predicted(
        metric="e2e",
        quantile=0.99,
        before=2_000.0,
        after=after,
        interval=interval,
        touched_ratio=1.0,
        cost={},
    )
    fix = Fix(
        id="max_sequences",
        title="Fewer at a time",
        detail="",
        assumption="",
        method="simulated",
        predicted=told,
        reasons={"window": "over the requests since the onset"},
    )
    found = Finding(
        rule="batch_past_knee",
        stage="decode",
        service=None,
        severity="warning",
        confidence=0.5,
        headline="",
        evidence={},
        exemplars=[],
        fix=fix,
    )
    assert said in _gain(found, "P99", Slo(e2e_ms=1_000.0))


def test_a_fix_without_a_figure_is_named_with_what_is_missing() -> None:
    fix = Fix(
        id="replicas",
        title="Ask for more capacity",
        detail="",
        assumption="",
        method="estimate",
        predicted=None,
        reasons={"predicted": "its capacity is not recorded: trace the engine"},
    )
    found = Finding(
        rule="under_capacity",
        stage="queue",
        service=None,
        severity="warning",
        confidence=0.5,
        headline="",
        evidence={},
        exemplars=[],
        fix=fix,
    )
    assert (
        _gain(found, "P99", Slo(e2e_ms=1_000.0))
        == "Ask for more capacity: the gain is not known (its capacity is not recorded: trace the engine)."
    )
