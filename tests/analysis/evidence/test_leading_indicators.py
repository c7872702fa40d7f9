"""What warned before a breach: planted warnings are learned with their lead, what lags or is noise is said so."""

import re
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.derived_indicators import arrivals
from overrun.analysis.evidence.engine_overview import engine_view, indicators
from overrun.analysis.evidence.leading_indicators import (
    Breaches,
    Indicator,
    Scored,
    breaches,
    learn,
    score,
)
from overrun.analysis.evidence.load_knee import load_knee
from overrun.analysis.front.report import build
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.stages.headroom import headroom, said
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import frame_of, gauge, insert, requests, store
from tests.analysis.numbers.quality.test_checks import histogram

SLO = Slo(e2e_ms=1_000.0)
ONSETS = (600.0, 1_500.0, 2_400.0, 3_300.0)


def window(**gauges: Any) -> dict[str, Indicator]:
    """An hour with four breaches of a minute; each gauge is sampled every 5 s by a function of time."""
    con = store()
    seconds = np.arange(0.0, 3_600.0, 0.5)
    slow = np.zeros(len(seconds), np.bool_)
    for onset in ONSETS:
        slow |= (seconds >= onset) & (seconds < onset + 60.0)
    insert(con, requests(len(seconds), start_s=seconds, prefill_ms=np.where(slow, 4_000.0, 100.0)))
    for name, value in gauges.items():
        gauge(con, name, {float(s): float(value(s)) for s in np.arange(0.0, 3_600.0, 5.0)})
    found, why = indicators(con, load(con, Window()), SLO)
    assert why is None or not gauges
    return {i.indicator: i for i in found}


def near(second: float, before: float, length: float) -> bool:
    return any(onset - before <= second < onset - before + length for onset in ONSETS)


def test_planted_warning_is_learned_with_its_lead_against_random_alerts() -> None:
    rng = np.random.default_rng(1)
    found = window(
        kv_cache_usage=lambda s: 0.95 if near(s, 30.0, 60.0) else 0.5 + 0.1 * rng.random(),
        running=lambda s: 5.0 + rng.integers(0, 3),
    )
    kv = found["kv_cache_usage"]
    assert (kv.precision, kv.recall, kv.events, kv.alerts) == (1.0, 1.0, 4, 4)
    assert kv.lead_s_median == pytest.approx(30.0, abs=5.0)
    assert 0.5 < kv.threshold < 0.95
    assert kv.null_precision is not None
    assert kv.null_precision < 0.2
    assert not kv.lags
    assert (next(iter(found)), kv.recommended, kv.figures, kv.parts) == (
        "kv_cache_usage",
        True,
        "held_out",
        4,
    )
    assert not found["running"].recommended


def test_what_is_shown_of_noise_is_what_it_is_worth_on_data_held_out() -> None:
    """The threshold that fits four breaches best flatters; held out, noise is worth about what alerts at random times are, and is hardly ever recommended."""
    onsets, seconds, shown = np.array(ONSETS), np.arange(5, 3_600, 5), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noise = [
            pl.DataFrame(
                {
                    "time_us": seconds * 1_000_000,
                    "instance": "a",
                    "indicator": name,
                    "value": rng.random(len(seconds)),
                }
            )
            for name in ("running", "kv_cache_usage", "queue_depth", "arrivals")
        ]
        first = learn(pl.concat(noise), Breaches(onsets, onsets + 60.0, 0.0, 3_600.0), 0)[0][0]
        shown.append(
            (
                first.learned_precision,
                (first.precision or 0.0) * first.alerts,
                first.alerts,
                first.null_precision,
                first.recommended,
            )
        )
        assert first.recommended or first.lags or "held-out" in first.reasons["recommended"]
    learned, right, alerts, null, recommended = np.array(shown, np.float64).mean(axis=0)
    assert learned > 1.5 * right / alerts
    assert right / alerts == pytest.approx(null, abs=0.03)
    assert recommended <= 0.05


def test_a_report_says_which_alert_may_be_relied_on_and_of_which_data_its_figures_are() -> None:
    con = store()
    seconds = np.arange(0.0, 3_600.0, 0.5)
    slow = np.array([near(s, 0.0, 60.0) for s in seconds])
    insert(con, requests(len(seconds), start_s=seconds, prefill_ms=np.where(slow, 4_000.0, 100.0)))
    gauge(
        con,
        "kv_cache_usage",
        {
            float(s): 0.95 if near(s, 30.0, 60.0) else 0.5 + 0.01 * (s % 7)
            for s in np.arange(0.0, 3_600.0, 5.0)
        },
    )
    report = build(con, Window(), SLO)
    wanted = "KV cache usage over 76.8 %: on held-out data 4 of 4 alerts preceded a breach, and 4 of 4 breaches were predicted, 30 s ahead at the median."
    assert f"EARLY WARNING {wanted}" in " ".join(render(report).split())
    assert all(wanted in made for made in (to_html(report), to_markdown(report)))
    report.indicators[0].recommended = False
    report.indicators[0].reasons["recommended"] = (
        "on held-out data 1 of 4 alerts preceded a breach, at least half are required"
    )
    assert (
        "no reliable alert: the best is KV cache usage over 76.8 %, and on held-out data 1 of 4"
        in " ".join(render(report).split())
    )
    report.indicators = []
    assert "EARLY WARNING" not in render(report)


def test_what_rises_after_the_breach_is_said_to_lag() -> None:
    found = window(queue_depth=lambda s: 20.0 if near(s, -20.0, 60.0) else 0.0)
    assert found["queue_depth"].lags
    assert found["queue_depth"].recall == 0.0


def test_falling_hit_rate_warns_too() -> None:
    found = window(
        prefix_cache_hit_rate=lambda s: 0.1 if near(s, 40.0, 80.0) else 0.8 + 0.01 * (s % 7)
    )
    assert (found["prefix_cache_hit_rate"].falling, found["prefix_cache_hit_rate"].recall) == (
        True,
        1.0,
    )


def test_unrest_of_the_engine_s_steps_is_learned_from_its_step_counter_beside_the_arrivals() -> (
    None
):
    con = store()
    seconds = np.arange(0.0, 3_600.0, 0.5)
    slow = np.array([near(s, 0.0, 60.0) for s in seconds])
    insert(con, requests(len(seconds), start_s=seconds, prefill_ms=np.where(slow, 4_000.0, 100.0)))
    counts, samples = 0.0, {}
    for k, s in enumerate(np.arange(0.0, 3_600.0, 10.0)):
        # 20 ms a step; for a minute before each breach 20 and 60 ms in turn.
        counts += 10.0 / (0.06 if near(s, 60.0, 60.0) and k % 2 else 0.02)
        samples[float(s)] = [counts, 0.0]
    histogram(con, "batch_tokens", [4096.0], samples)
    found = {row.indicator: row for row in indicators(con, load(con, Window()), SLO)[0]}
    assert (
        {"arrivals", "iteration_time", "iteration_deviation"}
        >= found.keys()
        >= {"iteration_time", "iteration_deviation"}
    )
    for name in ("iteration_time", "iteration_deviation"):
        assert (found[name].recall, found[name].lags) == (1.0, False)
    assert 0.0 < found["iteration_deviation"].threshold < 0.03
    series = {row.indicator: row for row in engine_view(con, Window(), SLO).series}
    assert (series["iteration_time"].unit, series["iteration_time"].max) == (
        "s",
        pytest.approx(0.06),
    )


def test_two_bad_requests_of_a_busy_step_are_chance_and_five_are_a_breach() -> None:
    """A request each 1/6 s, 1 % allowed: of 60 requests two are bad in every eighth step by chance (0.12), five in one of 3,000 (0.0003)."""
    start_us = np.arange(0, 600_000_000, 1_000_000 // 6, dtype=np.int64)
    for bad_ones, begun in ((2, []), (5, [pytest.approx(301.0, abs=0.2)])):
        bad = np.zeros(len(start_us), np.bool_)
        bad[np.searchsorted(start_us, 301_000_000) + np.arange(bad_ones)] = True
        assert breaches(start_us, bad, 0.01, 0).onsets.tolist() == begun


def test_a_breach_begins_with_its_first_bad_request_and_one_of_the_first_step_had_begun_before() -> (
    None
):
    start_us = np.arange(0, 600_000_000, 1_000_000, dtype=np.int64)
    bad = np.zeros(len(start_us), np.bool_)
    bad[[3, 4, 5, 306, 307, 308, 309, 310]] = True
    found = breaches(start_us, bad, 0.01, 0)
    assert (found.onsets.tolist(), found.ends.tolist()) == ([0.0, 306.0], [10.0, 320.0])


def scored(over: list[tuple[float, float]], onsets: list[float]) -> Scored:
    """An hour of samples every 10 s, over the threshold in the given spans; breaches of 20 s."""
    seconds = np.arange(0.0, 3_600.0, 10.0)
    values = np.array([float(any(a <= s < b for a, b in over)) for s in seconds])
    begun = np.array(onsets)
    return score(seconds, values, 0.5, begun, Breaches(begun, begun + 20.0, 0.0, 3_600.0))


def test_an_alert_that_flaps_is_one_alert_and_one_that_stays_on_is_told_again() -> None:
    flapping = scored([(500.0, 510.0), (530.0, 540.0), (560.0, 570.0)], [600.0])
    assert (flapping.alerts, flapping.precision, flapping.recall, flapping.lead_s_median) == (
        1,
        1.0,
        1.0,
        100.0,
    )
    always = scored([(0.0, 3_600.0)], [600.0, 1_800.0])
    assert (always.alerts, always.recall) == (30, 1.0)
    assert always.precision == pytest.approx(always.null_precision or 0.0, abs=0.01)
    assert always.null_recall == pytest.approx(1.0, abs=0.01)


def test_a_breach_that_begins_while_the_alert_is_still_on_was_told() -> None:
    found = scored([(500.0, 900.0)], [610.0, 890.0])
    assert (found.recall, found.null_recall) == (
        1.0,
        pytest.approx((890.0 - 500.0 + 120.0) / 3_600.0),
    )


def test_starts_centuries_apart_take_no_memory() -> None:
    assert arrivals(np.array([0, 9 * 10**15], dtype=np.int64)).is_empty()


def test_arrivals_are_counted_to_the_end_of_each_step() -> None:
    made = arrivals(np.array([0, 1, 9_999_999, 10_000_000, 25_000_000]))
    assert list(made.select("time_us", "value").iter_rows()) == [
        (10_000_000, 0.3),
        (20_000_000, 0.1),
    ]
    assert arrivals(np.zeros(0, np.int64)).is_empty()


def test_too_few_breaches_teach_nothing_and_say_so() -> None:
    con = store()
    insert(con, requests(200, prefill_ms=100.0))
    found, why = indicators(con, load(con, Window()), SLO)
    assert found == []
    assert "0 breaches" in (why or "")


def curve(n: int, seed: int, top: float, at: float | None) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    load_ = rng.integers(1, int(top), n).astype(float)
    cost = 20.0 + 0.1 * load_ + (0.0 if at is None else 1.0) * np.maximum(0.0, load_ - (at or 0.0))
    return load_, cost * rng.lognormal(0.0, 0.05, n)


@pytest.mark.parametrize("seed", range(3))
def test_knee_is_found_where_it_was_planted(seed: int) -> None:
    found = load_knee(*curve(800, seed, 60, 30.0), "tpot", np.random.default_rng(0))
    assert found.at is not None
    assert found.interval is not None
    assert abs(found.at - 30.0) < 4.0
    assert found.interval[0] - 1.0 <= 30.0 <= found.interval[1] + 1.0
    assert found.slope_after_ms == pytest.approx(1.1, rel=0.2)
    assert found.utilisation == pytest.approx((found.load_p95 or 0.0) / found.at)


@pytest.mark.parametrize("seed", range(3))
def test_no_knee_is_told_where_load_never_passed_one(seed: int) -> None:
    straight = load_knee(*curve(800, seed, 60, None), "tpot", np.random.default_rng(0))
    assert straight.at is None
    assert "never reached it" in straight.reasons["at"]
    assert load_knee(*curve(800, seed, 8, 30.0), "tpot", np.random.default_rng(0)).at is None
    assert (
        "factor"
        in load_knee(
            np.repeat(np.arange(20.0, 30.0), 10), np.ones(100), "tpot", np.random.default_rng(0)
        ).reasons["at"]
    )


def test_headroom_says_where_the_budget_breaks_and_which_stage_goes_first() -> None:
    rng = np.random.default_rng(2)
    tokens = rng.integers(10, 400, 4_000)
    rows = requests(
        4_000,
        decode_ms=tokens * 10.0,
        retrieval_ms=rng.lognormal(4, 0.3, 4_000),
        output_tokens=tokens,
        input_tokens=500,
    )
    rooms = {
        room.quantity: room for room in headroom(frame_of(rows).rows, Slo(e2e_ms=2_500.0), "e2e")
    }
    breaks = rooms["output_tokens"].breaks_between
    assert breaks is not None
    assert breaks[0] < 245.0 < breaks[1] + 20.0
    assert rooms["output_tokens"].first_stage == "decode"
    assert rooms["input_tokens"].breaks_between is None
    assert rooms["load"].reasons["breaks_between"]


def test_headroom_is_told_by_the_limit_that_each_request_came_with() -> None:
    """Long answers that were given 5 s break nothing; by the common limit they would break it at 250 tokens."""
    tokens = np.random.default_rng(2).integers(10, 400, 4_000)
    own = [5_000.0 if count > 200 else None for count in tokens]
    rows = frame_of(
        requests(4_000, decode_ms=tokens * 10.0, output_tokens=tokens, input_tokens=500)
    ).rows
    slo = Slo(e2e_ms=2_500.0)
    room = headroom(rows.with_columns(slo_e2e_ms=pl.Series(own, dtype=pl.Float64)), slo, "e2e")[2]
    assert headroom(rows, slo, "e2e")[2].breaks_between is not None
    assert (room.breaks_between, room.own_limits) == (None, int((tokens > 200).sum()))
    assert "stays within the limit" in room.reasons["breaks_between"]
    tight = headroom(rows.with_columns(slo_e2e_ms=pl.Series(np.full(4_000, 1_000.0))), slo, "e2e")
    breaks = tight[2].breaks_between
    assert breaks is not None
    assert breaks[0] < 95.0 < breaks[1] + 20.0
    assert "E2E P95 against each request's own limit (4,000 requests have one) breaks at" in said(
        tight[2:]
    )


def test_headroom_that_was_never_used_up_is_not_extrapolated() -> None:
    rows = requests(1_000, decode_ms=100.0, output_tokens=pl.Series(range(1_000)))
    room = headroom(frame_of(rows).rows, Slo(e2e_ms=2_500.0), "e2e")[2]
    assert room.breaks_between is None
    assert "stays within the limit" in room.reasons["breaks_between"]


def test_view_of_the_engine_has_series_and_reasons() -> None:
    con = store()
    insert(con, requests(100, prefill_ms=100.0))
    gauge(con, "running", {float(s): s / 10 for s in range(0, 100, 5)})
    view = engine_view(con, Window(), SLO)
    assert [(s.indicator, s.n, s.unit) for s in view.series] == [("running", 20, "requests")]
    assert view.series[0].max == 9.5
    assert "indicators" in view.reasons
    assert engine_view(store(), Window(), SLO).reasons["series"]


def test_a_report_within_budget_says_at_which_load_prompt_or_answer_it_breaks() -> None:
    rng = np.random.default_rng(4)
    con, tokens = store(), rng.integers(10, 260, 4_000)
    insert(
        con,
        requests(
            4_000,
            decode_ms=tokens * 10.0,
            ttft_decode_ms=0.0,
            output_tokens=tokens,
            input_tokens=500,
            sample_weight=4.0,
            sampling="th:c",
        ),
    )
    report = build(con, Window(), Slo(e2e_ms=2_500.0))
    rooms = {room.quantity: room for room in report.headroom}
    assert report.verdict.status == "within_budget"
    assert rooms["load"].usual == pytest.approx(
        4.0, rel=0.1
    )  # one a second is stored, each for four
    text = " ".join(render(report).split())
    assert "HEADROOM E2E P95 of 2.50 s breaks at 2" in text
    assert re.search(
        r"breaks at 2\d\d to 2\d\d(\.\d)? output tokens \(usual 1\d\d, 4\d\.\d % spare\), decode first; load: ",
        text,
    ), text
    assert all("decode first" in made for made in (to_html(report), to_markdown(report)))
    assert build(con, Window(), Slo(e2e_ms=2_500.0), with_findings=False).headroom == []


def test_a_failure_at_the_edge_of_a_step_belongs_to_it() -> None:
    """The last failure of a thin window may lie at the very edge of its step, where rounding puts it a hair below."""
    for width in np.geomspace(1.0, 1000.0, 500):
        start_us = (np.array([0.0, 0.0, width]) * 1e6).astype(np.int64).repeat(30)
        bad = np.array([False, False, True]).repeat(30)
        assert len(breaches(start_us, bad, 0.01, 0).onsets) <= 1
