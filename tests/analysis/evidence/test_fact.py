"""What does one fact say? Values with intervals, a change that is clear or not, and the excess that follows it; and what it says where it is not known."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from overrun.analysis.evidence.fact import (
    NO_BASELINE,
    Draws,
    Fact,
    Facts,
    Measured,
    Row,
    Sample,
    Table,
    Unit,
    fact_of,
    only,
    part_of,
    say_value,
    with_error,
)
from overrun.analysis.numbers.statistics.bootstrap import Drawn
from overrun.analysis.numbers.statistics.proportion import wilson


class OneStage:
    """A case of which only the excess of its stages is asked: 1,000 ms of decode."""

    def excess_ms(self, *stages: str) -> float:
        return 1_000.0 * ("decode" in stages)


def spread(low: float, high: float, value: float) -> Draws:
    return Draws(value, np.linspace(low, high, 400), 100)


def a_fact(
    measured: Measured | str,
    unit: Unit = "tokens",
    ms: Mapping[str, float] | str | None = None,
    *,
    falls: bool = False,
) -> Fact:
    accounts = None if ms is None else lambda case: ms
    return fact_of("x", Row("x", unit, lambda case: measured, "calls", accounts, falls), OneStage())


def test_a_change_is_clear_where_its_interval_leaves_out_no_change() -> None:
    grown = a_fact(Measured(spread(190.0, 210.0, 200.0), spread(95.0, 105.0, 100.0)))
    assert grown.change == 2.0
    assert grown.clear
    assert grown.change_interval == pytest.approx((2.0, 2.0), rel=0.02)
    same = a_fact(Measured(spread(90.0, 110.0, 101.0), only(100.0, 50)))
    assert same.clear is None
    assert same.reasons["clear"] == "no interval is known"
    doubtful = a_fact(Measured(spread(80.0, 130.0, 105.0), spread(99.0, 101.0, 100.0)))
    assert doubtful.clear is False


def test_shares_are_compared_by_their_difference() -> None:
    fell = a_fact(Measured(spread(0.55, 0.65, 0.6), spread(0.79, 0.81, 0.8)), "ratio")
    assert fell.change == pytest.approx(-0.2)
    assert fell.clear


def test_an_excess_follows_the_change_and_never_exceeds_its_stage() -> None:
    half = Measured(spread(1.5, 2.5, 2.0), Draws(1.0, np.ones(400), 40))
    fact = a_fact(half, "times", {"decode": 600.0, "queue": 100.0})
    assert fact.excess_ms == {"decode": 600.0, "queue": 0.0}
    low, high = fact.excess_interval or (0.0, 0.0)
    # 600 ms x ln(1.525) / ln(2) and x ln(2.475) / ln(2)
    assert (low, high) == pytest.approx((365.3, 784.5), rel=0.01)
    assert a_fact(half, "times", {"decode": 5_000.0}).excess_total_ms == 1_000.0


def test_what_slows_by_falling_counts_its_fall() -> None:
    fell = Measured(spread(0.5, 0.7, 0.6), Draws(0.8, np.full(400, 0.8), 40))
    fact = a_fact(fell, "ratio", {"decode": 400.0}, falls=True)
    low, high = fact.excess_interval or (0.0, 0.0)
    assert low == pytest.approx(210.0, rel=0.02)
    assert high == pytest.approx(590.0, rel=0.02)
    assert a_fact(fell, "ratio", {"decode": 400.0}).excess_interval is None


def test_what_is_not_known_says_why() -> None:
    unknown = a_fact("calls carry no output tokens", ms="no baseline")
    assert unknown.now is None
    assert set(unknown.reasons.values()) == {"calls carry no output tokens", "no baseline"}
    assert {"before", "now", "change", "clear", "excess_total_ms"} <= set(unknown.reasons)
    alone = a_fact(Measured(only(5.0, 40)))
    assert alone.before is None
    assert alone.reasons["before"] == NO_BASELINE
    assert alone.reasons["excess_total_ms"] == "it accounts for no time by itself"
    assert a_fact(Measured(only(5.0, 40), only(0.0, 40))).reasons["change"] == "it was 0 before"


def test_a_fact_is_computed_once_and_only_if_asked_for() -> None:
    asked: list[str] = []

    def measured(name: str) -> Any:
        def measure(case: object) -> Measured:
            asked.append(name)
            return Measured(only(1.0, 1))

        return measure

    rows = {
        name: Row(name, "ms", measured(name), "calls", lambda case: {"decode": 300.0})
        for name in ("a", "b")
    }
    facts = Facts(OneStage(), Table(rows, (lambda case: {"c": rows["a"]},)))
    assert facts["a"] is facts["a"]
    assert asked == ["a"]
    assert facts.excess("a", "b") == {"decode": 600.0}
    assert [fact.name for fact in facts] == ["c", "a", "b"]


def test_a_fact_is_worse_only_if_it_changed_clearly_and_the_way_that_makes_requests_slower() -> (
    None
):
    def row(now: float, *, falls: bool = False, unit: Unit = "ms") -> Row:
        side = Measured(with_error(now, 0.01, 99), with_error(1.0, 0.01, 98))
        return Row("a", unit, lambda case: side, "calls", falls=falls)

    rows = {
        "rose": row(2.0),
        "fell": row(0.5),
        "same": row(1.0),
        "less": row(0.5, falls=True, unit="ratio"),
        "more": row(2.0, falls=True),
    }
    facts = Facts(OneStage(), Table(rows))
    assert [name for name in (*rows, "unknown") if facts.worse(name)] == ["rose", "less"]


def test_a_mean_has_an_interval_over_stretches_of_time() -> None:
    rng = np.random.default_rng(1)
    start_us = np.arange(6_000) * 100_000
    values = rng.normal(50.0, 10.0, 6_000)
    values[::7] = np.nan
    sample = Sample(start_us)
    mean = sample.mean(values)
    assert mean is not None
    assert mean.value == pytest.approx(float(np.nanmean(values)))
    assert mean.n == int((~np.isnan(values)).sum())
    assert mean.draws is not None
    # The standard error of independent values: 10 / sqrt(n).
    assert float(mean.draws.std()) == pytest.approx(10.0 / np.sqrt(mean.n), rel=0.3)
    assert sample.mean(np.full(6_000, np.nan)) is None


def test_the_rate_of_a_poisson_stream_has_its_standard_error() -> None:
    rng = np.random.default_rng(2)
    start_us = np.cumsum(rng.exponential(200_000.0, 5_000)).astype(np.int64)
    rate = Sample(start_us).rate(np.ones(5_000))
    assert rate is not None
    assert rate.value == pytest.approx(5.0, rel=0.05)
    assert rate.draws is not None
    assert float(rate.draws.std()) == pytest.approx(5.0 / np.sqrt(5_000), rel=0.4)


def test_an_empty_stretch_lowers_a_rate() -> None:
    start_us = np.r_[np.arange(100) * 100_000, 90_000_000 + np.arange(100) * 100_000]
    drawn = Drawn.of(start_us, np.random.default_rng(3), 50)
    assert drawn.drawn.shape == (50, 20)
    assert float(drawn.rates(np.ones(200)).mean()) == pytest.approx(2.0, rel=0.3)


def test_a_share_by_its_cases_has_wilsons_interval() -> None:
    share = part_of(30, 100)
    assert share is not None
    assert share.draws is not None
    low, high = np.percentile(share.draws, [2.5, 97.5])
    assert (low, high) == pytest.approx(wilson(30, 100), abs=0.02)
    assert part_of(0, 0) is None


def test_values_are_said_in_their_unit() -> None:
    said = [say_value(*one) for one in ((377.0, "ms"), (0.92, "ratio"), (6.284, "per_s"))]
    assert said == ["377 ms", "92 %", "6.28/s"]
    assert [say_value(1.312, "times"), say_value(2.49e9, "hz")] == ["1.31 times", "2,490 MHz"]
