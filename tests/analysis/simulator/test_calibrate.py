"""Calibration: a known engine is found again, its hold-out is honest, and what the simulator does not know is refused."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.batching import CHUNK, LEAST_LOAD, WHOLE
from overrun.analysis.simulator.calibrate import STRETCH, _stretch, _withheld, fit, parted
from overrun.analysis.simulator.capacity_limits import with_limits
from overrun.analysis.simulator.engine import Setup, simulate
from overrun.analysis.simulator.pool import UNLIMITED_KV, pools
from overrun.analysis.whatif.fixes import chunked_prefill
from tests.analysis.whatif.recording import COSTS, arrivals, recorded
from tests.benchmarks.whatif import SITUATIONS, SPEEDS, facts_of, record, traffic


def test_a_known_engine_is_found_again() -> None:
    [pool], lacking = pools(recorded(arrivals()))
    told: list[float] = []
    engine = fit(pool, progress=told.append, refits=2)
    assert lacking is None
    assert engine.gate is None
    assert max(engine.identity_error[f"e2e_p{p}"] for p in (50, 95, 99)) < 0.03
    assert max(engine.identity_error[f"ttft_p{p}"] for p in (50, 95, 99)) < 0.1
    assert max(engine.holdout_error[f"e2e_p{p}"] for p in (50, 95, 99)) < 0.05
    assert engine.costs.step == pytest.approx(COSTS.step, rel=0.3)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)


def test_a_recording_of_hardly_more_calls_than_are_searched_is_calibrated() -> None:
    [pool], _ = pools(recorded(arrivals(200)))
    assert fit(pool, effort=199 / STRETCH, refits=0).costs.step > 0.0


def test_times_that_no_engine_makes_do_not_pass_the_gate() -> None:
    came = arrivals(200)
    noise = np.random.default_rng(1).lognormal(7.0, 2.0, 200)
    facts = recorded(
        came,
        e2e_ms=noise + 10.0,
        engine_e2e_ms=noise + 10.0,
        ttft_ms=noise / 2.0,
        ttft_engine_ms=noise / 2.0,
    )
    _, why = facts.engines
    assert why is not None
    assert "% off" in why


@pytest.mark.parametrize(
    ("setup", "attribute", "true"),
    [
        (Setup(max_sequences=24), "max_sequences", 24),
        (Setup(kv_tokens=20_000), "kv_tokens", 20_000),
    ],
)
def test_what_calls_wait_for_is_read_off_the_recording(
    setup: Setup, attribute: str, true: int
) -> None:
    [pool], _ = pools(recorded(arrivals(600, rate=14.0), setup))
    found = with_limits(pool, pool.setup())
    assert getattr(found, attribute) == pytest.approx(true, rel=0.05)


def test_few_seats_are_found_where_clocks_put_an_odd_call_into_its_neighbours() -> None:
    """One of nine is further from eight than a tenth: calls that end late share a seat with the next one for that long."""
    [pool], _ = pools(recorded(arrivals(600, rate=14.0), Setup(max_sequences=8)))
    for late_s in (0.02, 0.08):
        late = replace(pool, e2e_s=pool.e2e_s + late_s)
        assert with_limits(late, pool.setup()).max_sequences == 8


@pytest.mark.parametrize(
    ("situation", "seed", "kv_tokens"),
    [("busy", 902, UNLIMITED_KV), ("past capacity", 901, 200_000)],
)
def test_the_replay_says_which_limit_it_is_and_whether_there_is_one(
    situation: str, seed: int, kv_tokens: int
) -> None:
    """A prompt of ten thousand tokens holds the others up as full KV blocks would; where those are full, about as many run whenever somebody waits."""
    _, rate, server, shape = next(one for one in SITUATIONS if one[0] == situation)
    came = traffic(500, rate, seed=seed, **shape)
    [pool], _ = pools(facts_of(came, record(came, server, seed=seed + 1)))
    assert with_limits(pool, pool.setup()) != replace(pool.setup(), kv_tokens=kv_tokens)
    engine = fit(pool, refits=0)
    assert engine.setup.max_sequences == pool.setup().max_sequences
    assert engine.setup.kv_tokens == pytest.approx(kv_tokens, rel=0.05)
    assert max(engine.identity_error[f"e2e_p{p}"] for p in (50, 95, 99)) < 0.05


def test_one_slow_replica_that_is_full_is_no_limit_of_all() -> None:
    """Three of four work within their capacity, the fourth, half as slow again, is full of calls: an engine of four equal ones replays nothing of that."""
    _, rate, server = SPEEDS[2]
    came = traffic(4_000, rate)
    [pool], _ = pools(facts_of(came, record(came, server)))
    busiest, _ = _stretch(pool, np.arange(len(pool)))
    engine = fit(busiest, refits=0)
    assert engine.gate is None
    assert int(np.argmax(engine.setup.speed)) == 2
    assert engine.setup.speed[2] > 1.3


def test_nothing_is_limited_where_nobody_waits() -> None:
    [pool], _ = pools(recorded(arrivals(200, rate=1.0)))
    assert with_limits(pool, pool.setup()) == pool.setup()


def test_kv_capacity_comes_from_the_usage_gauge() -> None:
    facts = recorded(arrivals(300), Setup(kv_tokens=50_000))
    start = facts.calls["start_us"].to_numpy()
    end = start + 1000.0 * facts.call("e2e_ms")
    first = start + 1000.0 * facts.call("ttft_ms")
    queue = start + 1000.0 * facts.call("queue_ms")
    at = np.arange(start.min() + 5e6, start.max(), 1e6)
    held = [
        (
            np.where(
                (t >= queue) & (t < end),
                facts.call("input_tokens")
                + facts.call("output_tokens") * np.clip((t - first) / (end - first), 0, 1),
                0,
            )
        ).sum()
        for t in at
    ]
    points = pl.DataFrame(
        {
            "time_us": at.astype(np.int64),
            "instance": "gpu",
            "model": "m",
            "indicator": "kv_cache_usage",
            "value": np.array(held) / 50_000,
        }
    )
    facts.points = points
    [pool], _ = pools(facts)
    assert pool.kv_tokens == pytest.approx(50_000, rel=0.05)


def test_what_prompts_share_is_the_kv_in_use_beside_what_calls_hold() -> None:
    """Heads of 300 tokens that all find in the cache: the engine holds them once, and its calls as much less."""
    heads = np.full(300, 300)
    facts = recorded(
        arrivals(300, prompt_tokens=arrivals(300).prompt_tokens + heads, cached_tokens=heads)
    )
    times = [
        facts.calls["start_us"].to_numpy() + 1000.0 * facts.call(name)
        for name in ("queue_ms", "ttft_ms", "e2e_ms")
    ]
    at = np.arange(times[0].min() + 5e6, times[0].max(), 1e6)
    grown = [np.clip((t - times[1]) / (times[2] - times[1]), 0.0, 1.0) for t in at]
    held = [
        (
            ((t >= times[0]) & (t < times[2]))
            * (facts.call("input_tokens") - 300 + facts.call("output_tokens") * part)
        ).sum()
        for t, part in zip(at, grown, strict=True)
    ]
    one = pl.DataFrame(
        {
            "time_us": at.astype(np.int64),
            "instance": "gpu-0",
            "model": "m",
            "indicator": "kv_cache_usage",
        }
    )
    usage = one.with_columns(value=(np.array(held) + 900.0) / 40_000.0)
    facts.points = pl.concat(
        [usage, one[:1].with_columns(indicator=pl.lit("kv_capacity"), value=40_000.0)]
    )
    [pool], _ = pools(facts)
    assert pool.setup().shared_tokens == pytest.approx(900, rel=0.05)
    facts.points = usage
    [pool], _ = pools(facts)
    assert pool.setup().shared_tokens == 0


@pytest.mark.parametrize(("reserve", "resumes"), [(WHOLE, False), (CHUNK, True)])
def test_how_kv_is_reserved_is_read_off_a_full_engine(reserve: int, resumes: bool) -> None:
    rng = np.random.default_rng(3)
    came = arrivals(
        400,
        rate=3.6,
        seed=5,
        prompt_tokens=np.clip(rng.lognormal(7.6, 0.6, 400), 100, 8000).astype(np.int64),
    )
    setup = Setup(kv_tokens=24_000, token_budget=1024, reserve=reserve, resumes=resumes)
    told = pl.DataFrame(
        {
            "time_us": [0],
            "instance": "gpu-0",
            "model": "m",
            "indicator": "kv_capacity",
            "value": 24_000.0,
        }
    )
    [pool], _ = pools(recorded(came, setup, points=told))
    engine = fit(pool, refits=0)
    assert engine.identity_error["ttft_p99"] < 0.05
    assert (engine.setup.reserve == CHUNK, engine.setup.resumes) == (reserve == CHUNK, resumes)


def test_without_engine_times_there_is_no_pool_and_it_says_what_to_switch_on() -> None:
    facts = recorded(arrivals(), engine_e2e_ms=None, ttft_engine_ms=None, prefill_ms=None)
    found, why = pools(facts)
    assert found == []
    assert why is not None
    assert "tracing" in why


def test_a_sampled_recording_is_refused() -> None:
    came = arrivals(400)
    seen = np.arange(400) % 10 == 0
    facts = recorded(came)
    part = pl.when(pl.Series(seen)).then(pl.col("engine_e2e_ms")).otherwise(None)
    facts.calls = facts.calls.with_columns(engine_e2e_ms=part)
    assert "at least 100" in (pools(facts)[1] or "")
    facts.calls = facts.calls.with_columns(
        engine_e2e_ms=pl.when(pl.int_range(400) < 200).then(pl.col("e2e_ms")).otherwise(None)
    )
    assert "50 % of the engine's traffic" in (pools(facts)[1] or "")


def test_counters_of_the_engine_show_sampling_too() -> None:
    came = arrivals(400)
    facts = recorded(came)
    start = float(facts.calls["start_us"].min())  # type: ignore[arg-type]
    seconds = np.arange(0.0, 80.0, 5.0)
    rate = 3.0 * came.output_tokens.sum() / 70.0
    facts.points = pl.DataFrame(
        {
            "time_us": (start + 1e6 * seconds).astype(np.int64),
            "instance": "gpu",
            "model": "m",
            "indicator": "output_tokens",
            "value": np.full(len(seconds), rate),
        }
    )
    assert "of the engine's traffic is recorded" in (pools(facts)[1] or "")


def test_what_an_engine_writes_for_clients_that_gave_up_is_recorded() -> None:
    """Every third client gave up after 10 ms: its engine's tokens came later, and the counters have them all."""
    came = arrivals(400)
    facts = recorded(came)
    start = float(facts.calls["start_us"].min())  # type: ignore[arg-type]
    seconds = np.arange(0.0, 80.0, 5.0)
    facts.points = pl.DataFrame(
        {
            "time_us": (start + 1e6 * seconds).astype(np.int64),
            "instance": "gpu",
            "model": "m",
            "indicator": "output_tokens",
            "value": np.full(len(seconds), came.output_tokens.sum() / 70.0),
        }
    )
    left = pl.int_range(pl.len()) % 3 == 0
    facts.calls = facts.calls.with_columns(
        e2e_ms=pl.when(left).then(10.0).otherwise(pl.col("e2e_ms")), error=left
    )
    assert pools(facts)[1] is None


def test_calls_of_one_request_follow_each_other() -> None:
    came = arrivals(300)
    facts = recorded(came, request=np.arange(300) // 2, start_s=np.arange(300) * 10.0)
    [pool], _ = pools(facts)
    assert (pool.calls.after[1::2] == np.arange(0, 300, 2)).all()
    assert (pool.calls.after[::2] == -1).all()
    np.testing.assert_allclose(pool.calls.arrival_s[1::2], 10.0 - pool.e2e_s[::2], atol=1e-5)


def test_what_came_before_the_window_is_replayed_and_not_fitted() -> None:
    # Until the window begins the engine works for calls that no span tells of, so its steps look twice as long.
    facts, earlier = recorded(arrivals(450, seed=9)), np.arange(450) < 150
    slowed = [
        (pl.col(name) * pl.when(pl.lit(pl.Series(earlier))).then(2.0).otherwise(1.0)).alias(name)
        for name in (
            "ttft_ms",
            "ttft_engine_ms",
            "e2e_ms",
            "engine_e2e_ms",
            "decode_ms",
            "queue_ms",
            "prefill_ms",
        )
    ]
    own = pl.col("request") - 150
    calls = facts.calls.with_columns(slowed).with_columns(
        request=pl.when(own >= 0).then(own).otherwise(-1)
    )
    [engine], why = replace(facts, calls=calls, requests=facts.requests[150:]).engines
    assert why is None
    assert len(engine.pool) == 450
    assert engine.costs.step == pytest.approx(COSTS.step, rel=0.1)
    assert engine.identity_error["e2e_p95"] < 0.03


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_what_does_not_hide_behind_the_greater_bound_is_found_and_smaller_chunks_pay_it(
    overlap: float,
) -> None:
    """Steps that read and write take a part of the lesser bound beside the greater: four chunks for one pay it four times."""
    came = arrivals(
        600, rate=3.0, seed=8, prompt_tokens=np.random.default_rng(8).integers(200, 4000, 600)
    )
    costs = replace(COSTS, overlap=overlap)
    facts = recorded(came, Setup(token_budget=2048), costs)
    answer = chunked_prefill.predict(facts, token_budget=512)
    after = float(np.quantile(simulate(came, Setup(token_budget=512), costs).e2e_s, 0.95) * 1000.0)
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(after, rel=0.05)


def test_how_much_hides_behind_the_greater_bound_is_left_open_where_the_recording_leaves_it_open() -> (
    None
):
    """Steps that vary a little hide it: what fits best says nothing of it, so the usual part stands for chunks of another size, others for how sure that is."""
    came = arrivals(500, rate=6.0, seed=4)
    facts = recorded(came, Setup(token_budget=2048), COSTS)
    noise = np.exp(0.05 * np.random.default_rng(4).standard_normal(500))
    noisy = {
        name: pl.Series(facts.calls[name].to_numpy() * noise)
        for name in ("e2e_ms", "engine_e2e_ms")
    }
    [engine], _ = replace(facts, calls=facts.calls.with_columns(**noisy)).engines
    asked = parted(engine)
    assert len(asked.refits) > 2
    assert 0.0 < asked.costs.overlap <= 0.5
    assert (
        min(costs.overlap for costs in asked.refits)
        < asked.costs.overlap
        < max(costs.overlap for costs in asked.refits)
    )


def test_a_full_cache_of_calls_alike_is_not_taken_for_seats() -> None:
    """Prompts of one size fill the cache with as many sequences at any time."""
    came = arrivals(
        500, rate=14.0, seed=3, prompt_tokens=np.full(500, 1000), output_tokens=np.full(500, 60)
    )
    told = pl.DataFrame(
        {
            "time_us": [0],
            "instance": "gpu-0",
            "model": "m",
            "indicator": "kv_capacity",
            "value": 21_000.0,
        }
    )
    [pool], _ = pools(recorded(came, Setup(kv_tokens=21_000), points=told))
    assert float(np.quantile(pool.queue_s, 0.9)) > 1.0
    assert with_limits(pool, pool.setup()) == pool.setup()
    assert with_limits(replace(pool, kv_tokens=None), pool.setup()).max_sequences == pytest.approx(
        20, abs=1
    )


def test_refits_differ_where_the_recording_does_not_tell_a_step_from_its_batch() -> None:
    """Past capacity all batches are full, and other splits of a step replay about as well; below it batches of all sizes tell the one."""
    spread = {}
    for name, rate, server, shape in SITUATIONS:
        if name in ("busy", "past capacity"):
            came = traffic(500, rate, seed=801, **shape)
            [pool], _ = pools(facts_of(came, record(came, server, seed=802)))
            engine = fit(pool)
            apart = replace(engine.setup, replicas=3, router=LEAST_LOAD, speed=(1.0,) * 3)
            spread[name] = float(
                np.std(
                    [
                        np.log(np.quantile(simulate(engine.pool.calls, apart, costs).e2e_s, 0.95))
                        for costs in engine.refits
                    ]
                )
            )
    assert spread["past capacity"] > 3.0 * spread["busy"]


def test_whole_prompts_first_are_told_from_chunks_where_some_are_longer_than_a_step() -> None:
    rng = np.random.default_rng(7)
    came = arrivals(
        300,
        rate=1.5,
        prompt_tokens=np.clip(rng.lognormal(8.0, 0.9, 300), 200, 20_000).astype(np.int64),
    )
    setup = Setup(prefill_first=True, token_budget=8192)
    engine = fit(pools(recorded(came, setup))[0][0], refits=2)
    assert (engine.setup.prefill_first, engine.setup.token_budget) == (True, 8192)
    assert engine.identity_error["e2e_p99"] < 0.03


@pytest.mark.parametrize(
    ("names", "replicas"),
    [
        (["old"] * 60 + ["new"] * 60, ("new",)),
        (["a", "b"] * 30 + ["a", "c"] * 30, ("a", "c")),
        (["a", "b"] * 60, ("a", "b")),
    ],
)
def test_an_engine_that_replaced_another_is_no_second_replica(
    names: list[str], replicas: tuple[str, ...]
) -> None:
    facts = recorded(arrivals(120, seed=3))
    calls = facts.calls.with_columns(engine_instance=pl.Series(names))
    [pool], _ = pools(replace(facts, calls=calls))
    assert pool.instances == replicas
    assert set(np.unique(pool.calls.replica)) == set(range(len(replicas)))


@pytest.mark.parametrize(
    ("name", "n", "withheld"),
    [
        ("ttft_p99", 213, {"ttft_p99", "e2e_p99"}),  # the second largest of 213 tests nothing
        ("ttft_p99", 400, {"ttft_p99"}),
        ("ttft_p95", 400, {"ttft_p95"}),
        ("e2e_p99", 400, {"e2e_p99"}),
        ("", 400, set()),
    ],
)
def test_a_quantile_that_the_replay_misses_is_withheld_alone(
    name: str, n: int, withheld: set[str]
) -> None:
    error = {f"{metric}_p{p}": 0.02 for metric in ("e2e", "ttft") for p in (50, 95, 99)}
    error |= {name: 0.4} if name else {}
    assert set(_withheld(error, n)) == withheld
