"""Indicators over time: steps, servers put together, alerts that hold, leads before and after the breach, and what is missing by name."""

import numpy as np
import pytest

from overrun.analysis.evidence.engine_timeline import EXPECTED, engine_course
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.requests.request_list import ListError
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, at, gauge, insert, requests, store
from tests.analysis.numbers.outcomes.test_goodput import with_headers

SLO = Slo(ttft_ms=1000.0)
WINDOW = Window(start=T0, end=at(200))


def breaking(at_s: float = 100.0):
    """20 requests/s; TTFT goes from 100 ms to 2 s at `at_s`."""
    con = store()
    starts = np.arange(4000) * 0.05
    insert(
        con,
        requests(
            4000,
            start_s=starts,
            other_ms=np.where(starts < at_s, 100.0, 2000.0),
            ttft_other_ms=np.where(starts < at_s, 100.0, 2000.0),
        ),
    )
    return con


def scraped(con, name: str, before: float, after: float, at_s: float, **more) -> None:
    gauge(con, name, {float(s): after if s >= at_s else before for s in range(0, 200, 5)}, **more)


def test_an_alert_before_the_breach_has_its_lead() -> None:
    con = breaking(100.0)
    scraped(con, "kv_cache_usage", 0.5, 0.95, 60.0)
    found = engine_course(con, WINDOW, SLO, "ttft")
    kv = found.indicators[0]
    assert found.breach_at is not None
    assert abs((found.breach_at - at(100)).total_seconds()) <= found.step_s
    assert kv.crossed_at == at(60)
    assert kv.lead_s == pytest.approx((found.breach_at - at(60)).total_seconds())
    assert (kv.threshold, kv.learned) == (0.9, False)
    assert len(kv.values) == len(found.effect_p95_ms)
    assert found.missing == [name for name in EXPECTED if name != "kv_cache_usage"]


def test_a_breach_is_of_the_limits_that_requests_came_with() -> None:
    """All take 100 ms of the common 200; from the 300th second each came with a limit of 50."""
    header = "http.request.header.x-slo-ttft-ms"
    con = with_headers(
        {at: {header: "50"} for at in range(300, 900)},
        900,
        prefill_ms=100.0,
        ttft_prefill_ms=100.0,
        every_s=1.0,
    )
    found, course = (
        read(con, Window(), Slo(ttft_ms=200.0), "ttft") for read in (engine_course, series)
    )
    assert (found.own_limits, course.own_limits) == (600, 600)
    assert found.breach_at is not None
    assert abs((found.breach_at - at(300)).total_seconds()) <= found.step_s
    common = series(
        with_headers({}, 900, prefill_ms=100.0, ttft_prefill_ms=100.0),
        Window(),
        Slo(ttft_ms=100.0),
        "ttft",
    )
    assert {point.p95_over for point in common.points if point.p95 is not None} == {False}
    assert {point.p95_over for point in series(con, Window(), Slo(e2e_ms=1.0), "itl").points} == {
        None
    }


def test_an_alert_that_lagged_has_a_negative_lead() -> None:
    con = breaking(60.0)
    scraped(con, "queue_depth", 0.0, 7.0, 120.0)
    found = engine_course(con, WINDOW, SLO, "ttft").indicators[0]
    assert found.lead_s is not None
    assert found.lead_s < 0


def test_three_samples_are_no_alert() -> None:
    con = breaking(100.0)
    gauge(
        con, "kv_cache_usage", {float(s): 0.99 if 50 <= s <= 60 else 0.4 for s in range(0, 200, 5)}
    )
    found = engine_course(con, WINDOW, SLO, "ttft").indicators[0]
    assert found.crossed_at is None
    assert "4 samples" in found.reasons["crossed_at"]


def test_servers_are_put_together_as_their_indicator_asks() -> None:
    con = breaking(300.0)
    for instance, depth, used in (("gpu-0", 2.0, 0.2), ("gpu-1", 5.0, 0.6)):
        scraped(con, "queue_depth", depth, depth, 0.0, instance=instance)
        scraped(con, "kv_cache_usage", used, used, 0.0, instance=instance)
    found = {row.indicator: row for row in engine_course(con, WINDOW, SLO, "ttft").indicators}
    assert {value for value in found["queue_depth"].values if value is not None} == {7.0}
    assert {value for value in found["kv_cache_usage"].values if value is not None} == {0.6}
    assert found["queue_depth"].instances == 2
    assert found["queue_depth"].lead_s is None
    assert "so no warning was needed" in found["queue_depth"].reasons["lead_s"]


def test_metrics_without_requests_still_have_their_course() -> None:
    con = store()
    scraped(con, "running", 3.0, 4.0, 100.0)
    found = engine_course(con, WINDOW, SLO, "ttft")
    assert next(value for value in found.indicators[0].values if value is not None) == 3.0
    assert set(found.effect_p95_ms) == {None}


def test_an_engine_that_says_nothing_is_named() -> None:
    found = engine_course(breaking(), WINDOW, SLO, "ttft")
    assert found.indicators == []
    assert found.missing == list(EXPECTED)
    assert "/metrics" in found.reasons["indicators"]
    nothing = engine_course(store(), WINDOW, SLO, "ttft")
    assert nothing.start is None
    assert nothing.reasons


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ListError):
        engine_course(store(), WINDOW, SLO, "speed")
