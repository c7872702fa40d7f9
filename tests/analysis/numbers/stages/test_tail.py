"""Tail attribution: differences that sum exactly to the gap, and the right reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from overrun.analysis.numbers.stages.budget import StageTimes, budgets_for
from overrun.analysis.numbers.stages.tail import attribute, attribute_slow, band, share_interval
from overrun.analysis.words.slo import Slo


def stages(**ms: np.ndarray) -> StageTimes:
    return StageTimes("e2e", sum(ms.values()), ms)


@given(
    hnp.arrays(np.float64, st.tuples(st.just(4), st.integers(1, 200)), elements=st.floats(0, 1e5)),
    st.sampled_from([50.0, 90.0, 95.0, 99.0, 99.9]),
)
def test_differences_sum_to_the_gap(ms: np.ndarray, percentile: float) -> None:
    times = stages(queue=ms[0], prefill=ms[1], decode=ms[2], other=ms[3])
    tail = attribute(times.total_ms, times, percentile)
    assert tail is not None
    steps = [tail.tail_ms[stage] - tail.typical_ms[stage] for stage in tail.tail_ms]
    assert sum(steps) == pytest.approx(tail.gap_ms, abs=1e-6)
    # Around the median both bands overlap; from P90 on the slow requests rank above the typical ones.
    assert percentile < 90.0 or tail.gap_ms >= -1e-6
    assert sum(tail.tail_ms.values()) == pytest.approx(
        float(times.total_ms[tail.tail_index].mean())
    )
    assert sum(tail.excess_ms.values()) == pytest.approx(tail.excess_total_ms, abs=1e-6)


def test_tail_is_two_points_around_the_percentile_and_typical_the_middle_fifth() -> None:
    values = np.arange(1000.0)
    tail = attribute(values, stages(decode=values), 95.0)
    assert tail is not None
    assert (tail.tail_index.min(), tail.tail_index.max()) == (930, 969)
    assert tail.typical_ms["decode"] == 499.5
    assert tail.gap_ms == 949.5 - 499.5
    assert band(values, 40, 60).tolist() == list(range(400, 600))


@given(
    hnp.arrays(np.float64, st.integers(1, 60), elements=st.sampled_from([1.0, 2.0, 3.0, 7.5])),
    st.floats(0, 99),
    st.floats(0, 100),
)
def test_band_holds_what_a_stable_argsort_has_at_those_ranks(
    values: np.ndarray, low: float, high: float
) -> None:
    n = len(values)
    first = min(int(low / 100.0 * n), n - 1)
    last = min(n, max(first + 1, int(np.ceil(high / 100.0 * n))))
    assert band(values, low, high).tolist() == sorted(
        np.argsort(values, kind="stable")[first:last].tolist()
    )


def test_typical_over_the_limit_is_compared_with_requests_within_it() -> None:
    queue = np.r_[np.zeros(100), np.full(900, 5000.0)]
    tail = attribute(
        queue + 10.0, stages(queue=queue, decode=np.full(1000, 10.0)), 95.0, limit_ms=1000.0
    )
    assert tail is not None
    assert (tail.reference, tail.reference_n) == ("healthy", 100)
    assert tail.excess_ms == {"queue": 5000.0, "decode": 0.0}
    assert tail.share("queue") == 1.0


def test_baseline_is_compared_band_with_band() -> None:
    base = stages(decode=np.arange(1000.0))
    now = stages(decode=np.arange(1000.0), retrieval=np.full(1000, 300.0))
    tail = attribute(now.total_ms, now, 95.0, baseline=(base.total_ms, base))
    assert tail is not None
    assert tail.reference == "baseline"
    # The tail has long decodes in both windows: only retrieval is new.
    assert tail.excess_ms == {"decode": 0.0, "retrieval": 300.0}
    assert tail.noise_z == {"decode": 0.0}


def test_noise_is_the_change_in_baseline_deviations() -> None:
    base, now = stages(decode=np.array([0.0, 2.0] * 50)), stages(decode=np.full(100, 5.0))
    tail = attribute(now.total_ms, now, 95.0, baseline=(base.total_ms, base))
    assert tail is not None
    assert tail.noise_z == {"decode": 4.0}


def test_one_request_and_none() -> None:
    one = stages(decode=np.array([5.0]))
    tail = attribute(one.total_ms, one, 95.0)
    assert tail is not None
    assert (tail.gap_ms, tail.share("decode")) == (0.0, 0.0)
    assert attribute(np.empty(0), stages(decode=np.empty(0)), 95.0) is None


def test_interval_of_a_share_is_seeded_and_holds_the_share() -> None:
    rng = np.random.default_rng(1)
    times = stages(queue=rng.exponential(1000, 2000), decode=rng.exponential(300, 2000))
    tail = attribute(times.total_ms, times, 95.0)
    assert tail is not None
    low, high = share_interval(tail, times, "queue", np.random.default_rng(2)) or (1.0, 0.0)
    assert low < tail.share("queue") < high
    assert (low, high) == share_interval(tail, times, "queue", np.random.default_rng(2))
    assert share_interval(tail, times, "tool", rng) is None


def test_without_a_baseline_a_wait_that_all_have_is_part_of_the_excess() -> None:
    """A fifth waits 100 ms, the others 4 s; a slow tenth writes for 3 s longer."""
    queue, decode = (
        np.where(np.arange(1000) % 5 == 1, 100.0, 4_000.0),
        np.where(np.arange(1000) % 10 == 0, 5_000.0, 2_000.0),
    )
    times, slow = stages(queue=queue, decode=decode), np.flatnonzero(np.arange(1000) % 10 == 0)
    tail = attribute_slow(times.total_ms, times, slow, 1000, limit_ms=8_000.0)
    assert tail.reference == "typical"
    assert tail.excess_ms == pytest.approx({"queue": 3_900.0, "decode": 3_000.0}, rel=0.01)
    against = attribute_slow(
        times.total_ms, times, slow, 1000, limit_ms=8_000.0, baseline=(times.total_ms, times)
    )
    assert against.excess_ms["queue"] == pytest.approx(0.0)


def test_without_a_baseline_steps_beside_the_model_count_as_usual_as_far_as_their_budget_goes() -> (
    None
):
    """Of a 2,500 ms limit the network has 150, tools and what follows together 300; a model may take what it takes."""
    times, slow = (
        stages(
            network=np.full(100, 900.0),
            tool=np.full(100, 400.0),
            post=np.full(100, 200.0),
            decode=np.arange(100) * 30.0,
        ),
        np.arange(90, 100),
    )
    budgets = budgets_for(Slo(e2e_ms=2_500.0), "e2e", {"*": {"post": 100.0}})
    tail = attribute_slow(times.total_ms, times, slow, 100, limit_ms=9_000.0, budgets=budgets)
    assert {stage: tail.usual_ms(stage) for stage in ("network", "tool", "post")} == pytest.approx(
        {"network": 150.0, "tool": 240.0, "post": 60.0}
    )
    assert tail.reference_ms["network"] == pytest.approx(900.0)
    assert tail.excess_ms["decode"] == pytest.approx(
        tail.tail_ms["decode"] - tail.reference_ms["decode"]
    )
    assert sum(tail.excess_ms.values()) == pytest.approx(tail.excess_total_ms)
    against = attribute_slow(
        times.total_ms,
        times,
        slow,
        100,
        limit_ms=9_000.0,
        budgets=budgets,
        baseline=(times.total_ms, times),
    )
    assert against.excess_ms["network"] == pytest.approx(0.0)
