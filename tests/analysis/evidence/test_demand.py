"""Has the engine more to do? What each request brings tells it before how many come."""

import math

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.demand import (
    Computing,
    Demand,
    Holding,
    Means,
    has_grown,
    slope_within,
)
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, run, the

# Requests 1 s apart, then 1.2 times as many.
N = 600
LATE = np.arange(N) >= 300
START_S = np.r_[np.arange(300.0), 300.0 + np.arange(300) / 1.2]


@pytest.mark.parametrize(
    ("growth", "arrivals", "grown"),
    [
        (1.2, 1.2, True),
        (1.05, 1.05, False),
        (1.083, 0.953, True),
        (0.98, 0.8, False),
        (1.02, 1.0, False),
    ],
)
def test_more_work_counts_as_a_whole_or_by_request(
    growth: float, arrivals: float, grown: bool
) -> None:
    assert has_grown(Demand(growth, arrivals, arrivals, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0)) is grown


def test_what_a_token_costs_is_told_by_the_side_whose_prompts_differ_whatever_the_level_of_each() -> (
    None
):
    alike, different = np.linspace(590.0, 610.0, 200), np.linspace(600.0, 4_000.0, 200)
    # Reading 600 tokens more or less hides in the step; above that each takes 0.1 ms, and all of the second side waits 50 ms longer.
    sides = [(alike, np.full(200, 40.0)), (different, 90.0 + 0.1 * (different - 600.0))]
    assert slope_within(sides[:1]) == 0.0
    assert slope_within(sides) == pytest.approx(0.1, rel=1e-3)
    assert slope_within([(np.full(9, 600.0), np.arange(9.0))]) == 0.0


def test_a_slope_that_is_lost_in_noise_does_not_count_beside_a_clear_one() -> None:
    """0.1 ms a token in a calm engine; in one that preempts, prompts wait for seconds whatever they take, and their line falls by chance."""
    rng = np.random.default_rng(8)
    tokens = rng.uniform(300.0, 700.0, 400)
    calm = (tokens, 15.0 + 0.1 * tokens + rng.normal(0.0, 5.0, 400))
    crowded = (tokens, 1_000.0 - 0.4 * tokens + rng.exponential(2_000.0, 400))
    assert slope_within([calm, crowded]) == pytest.approx(0.1, abs=0.005)
    # Where none is clear, all count.
    assert slope_within([crowded, crowded]) == slope_within([crowded])


@pytest.mark.parametrize(
    "work",
    [
        Computing(0.1, 2.0),
        Holding(0.1, 15.0, 0.0),
        Holding(0.1, 15.0, 0.4),
        Holding(0.1, 15.0, 1.0),
    ],
)
def test_what_each_factor_added_to_a_call_sums_to_what_all_of_them_did(
    work: Computing | Holding,
) -> None:
    then = Means(1_000.0, 400.0, 100.0)
    for now in (
        then,
        Means(1_300.0, 700.0, 100.0),
        Means(1_000.0, 900.0, 120.0),
        Means(1_500.0, 1_100.0, 150.0),
    ):
        assert sum(work.added(then, now).values()) == pytest.approx(work.of(now) - work.of(then))


def test_a_cached_history_that_grows_takes_memory_and_no_computing() -> None:
    then, now = Means(1_000.0, 400.0, 100.0), Means(1_500.0, 400.0, 100.0)
    assert Computing(0.1, 2.0).of(now) == Computing(0.1, 2.0).of(then)
    # All of it their own: 1,550 tokens for 1,550; before 1,050, for as long.
    assert Holding(0.1, 15.0, 1.0).of(now) / Holding(0.1, 15.0, 1.0).of(then) == pytest.approx(
        1_550.0 / 1_050.0
    )
    # A head that all share is held once.
    assert Holding(0.1, 15.0, 0.0).of(now) == Holding(0.1, 15.0, 0.0).of(then)


def crowded(n_in: np.ndarray, cached: np.ndarray | None = None) -> pl.DataFrame:
    """0.1 ms for a token to read, 15 ms for each of 99 to write, and a queue since there are more requests."""
    found = {} if cached is None else {"cached_tokens": cached}
    new = n_in - (0 if cached is None else cached)
    return requests(
        N,
        start_s=START_S,
        queue_ms=np.where(LATE, 4_000.0, 5.0),
        prefill_ms=0.1 * new,
        decode_ms=1_485.0,
        tpot_ms=15.0,
        input_tokens=n_in,
        output_tokens=100,
        **found,
    )


def gauges(usage: float, usage_before: float, **more: float) -> dict[str, dict[float, float]]:
    told = {
        "kv_cache_usage": (usage_before, usage),
        "queue_depth": (0.0, 5.0),
        **{name: (value, value) for name, value in more.items()},
    }
    return {
        name: {float(t): value[t >= 300] for t in range(0, 560, 15)} for name, value in told.items()
    }


@pytest.mark.parametrize(("usage", "cause"), [(0.99, "prompt_bloat"), (0.7, "under_capacity")])
def test_where_kv_blocks_lack_longer_prompts_count_by_the_blocks_that_they_hold(
    usage: float, cause: str
) -> None:
    n_in = np.where(LATE, 1_400, 1_000) + np.where(np.arange(N) % 2 == 0, 100, -100)
    found = run(crowded(n_in), slo=E2E, gauges=gauges(usage, 0.6))
    assert found.verdict.cause == cause
    if cause == "prompt_bloat":
        # 1,450 tokens for 140 + 1,500 ms, where 1,050 were held for 100 + 1,500 ms: ln 1.415 of ln 1.415 + ln 1.2 of the 3,995 ms wait, and 40 ms to read.
        longer = math.log(1_450.0 * 1_625.0 / (1_050.0 * 1_585.0))
        part = longer / (longer + math.log(1.2))
        assert the(found, "prompt_bloat").evidence["share_of_excess"] == pytest.approx(
            (part * 3_995.0 + 40.0) / 4_035.0, abs=0.02
        )


@pytest.mark.parametrize(
    ("held", "cause"), [(450.0, "prefix_cache_lost"), (1_050.0, "under_capacity")]
)
def test_a_lost_head_takes_memory_where_it_was_shared_and_time_alone_where_each_call_held_its_own(
    held: float, cause: str
) -> None:
    """600 of 1,000 tokens were found. A request a second, each for 40 + 1,485 ms: 1.525 of them hold the 400 others and half of the answer, or all."""
    cached = np.where(LATE, 100, 600) + np.where(np.arange(N) % 2 == 0, 50, -50)
    usage_before = 1.525 * held / 2_000.0
    found = run(
        crowded(np.full(N, 1_000), cached),
        slo=E2E,
        gauges=gauges(0.99, usage_before, kv_capacity=2_000.0),
    )
    assert found.verdict.cause == cause


@pytest.mark.parametrize(("late_tokens", "causes_named"), [(50, ["prefix_cache_lost"]), (820, [])])
def test_a_queue_is_put_down_to_much_more_to_read_where_nothing_else_has_grown(
    late_tokens: int, causes_named: list[str]
) -> None:
    """Calls that come as often as before hold their own tokens for 1.06 times as long where 850 of 900 found ones are lost, which is no growth by itself."""
    n = np.arange(N)
    cached = np.where(LATE, late_tokens, 900) + np.where(n % 2 == 0, 20, -20)
    rows = requests(
        N,
        start_s=n * (START_S[-1] / N),
        queue_ms=np.where(LATE, 4_000.0, 5.0),
        prefill_ms=0.1 * (1_000 - cached),
        decode_ms=1_485.0,
        tpot_ms=15.0,
        input_tokens=1_000,
        output_tokens=100,
        cached_tokens=cached,
    )
    found = run(rows, slo=E2E, gauges=gauges(0.99, 0.95, kv_capacity=2_000.0))
    assert [name for name in causes(found) if name != "under_capacity"] == causes_named
