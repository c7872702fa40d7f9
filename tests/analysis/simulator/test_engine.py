"""The engine simulator: exact arithmetic on one call, an obvious engine as oracle, and laws."""

from dataclasses import replace

import numpy as np
import pytest

from overrun.analysis.simulator import batching
from overrun.analysis.simulator.batching import CHUNK, FITTING, LEAST_LOAD, ROUND_ROBIN, WHOLE
from overrun.analysis.simulator.engine import Calls, Costs, Setup, apart, simulate
from tests.analysis.simulator.slow_engine import run

COSTS = Costs(prefill_token=5e-5, attention=1e-8, step=0.008, kv_token=1e-7, sequence=5e-5)


def arrivals(
    n: int,
    *,
    rate: float = 5.0,
    prompt: tuple[int, int] = (10, 1500),
    output: float = 60.0,
    seed: int = 0,
) -> Calls:
    rng = np.random.default_rng(seed)
    zero = np.zeros(n, dtype=np.int64)
    prompts = rng.integers(*prompt, n)
    return Calls(
        np.cumsum(rng.exponential(1.0 / rate, n)),
        zero - 1,
        prompts,
        rng.integers(0, 2, n) * (prompts // 2),
        rng.geometric(1.0 / output, n),
        zero - 1,
        zero,
        zero + 64,
        np.ones(n),
        np.zeros(n, np.bool_),
        **apart(n),
    )


def one(prompt: int, output: int) -> Calls:
    return replace(
        arrivals(1),
        arrival_s=np.array([2.0]),
        prompt_tokens=np.array([prompt]),
        cached_tokens=np.array([0]),
        output_tokens=np.array([output]),
    )


def test_one_call_takes_its_prompt_in_chunks_and_a_step_per_further_token() -> None:
    done = simulate(one(300, 3), Setup(token_budget=200), COSTS)
    # Chunks of 200 and 100 tokens: 10 ms + 200 x 100 x 1e-8 = 10.2 ms; 100 x 250 x 1e-8 + 5 ms = 5.25 ms is below the step's 8 ms; + 0.05 ms each.
    first = 0.0102 + 0.00005 + 0.008 + 0.00005
    assert done.ttft_s[0] == pytest.approx(first)
    # Two more tokens read 300 and 301 tokens of KV.
    assert done.e2e_s[0] == pytest.approx(first + 2 * 0.00805 + 1e-7 * 601)


def test_steps_above_the_knee_take_longer() -> None:
    # The second prompt is read while the first call has its second token: then both decode for two steps, which take 7 ms more above a knee of one.
    two = replace(
        arrivals(2),
        arrival_s=np.array([2.0, 2.0]),
        prompt_tokens=np.array([50, 50]),
        cached_tokens=np.zeros(2, np.int64),
        output_tokens=np.array([4, 6]),
    )
    bare, bent = simulate(two, Setup(), COSTS), simulate(two, Setup(knee=1, knee_s=0.007), COSTS)
    assert bent.ttft_s.tolist() == bare.ttft_s.tolist()
    assert (bent.end_s - bare.end_s).tolist() == pytest.approx([0.014, 0.014])
    assert simulate(two, Setup(knee=2, knee_s=0.007), COSTS).end_s.tolist() == bare.end_s.tolist()


def test_a_new_replica_is_cold_and_half_as_cold_later() -> None:
    # A prompt of one chunk and one token: a step that takes three times as long at birth and twice as long a half-life later.
    warm = simulate(one(200, 1), Setup(), COSTS).ttft_s[0]
    for born_s, times in ((2.0, 3.0), (-28.0, 2.0), (-np.inf, 1.0)):
        cold = simulate(one(200, 1), Setup(born_s=(born_s,), cold=2.0, warm_s=30.0), COSTS)
        assert cold.ttft_s[0] == pytest.approx(times * warm, rel=1e-6)


@pytest.mark.parametrize("router", [LEAST_LOAD, ROUND_ROBIN])
def test_no_call_goes_to_a_replica_before_it_is_born(router: int) -> None:
    calls = arrivals(200)
    done = simulate(calls, Setup(replicas=2, router=router, born_s=(-np.inf, 15.0)), COSTS)
    assert set(done.replica[calls.arrival_s < 15.0]) == {0}
    assert set(done.replica[calls.arrival_s >= 15.0]) == {0, 1}


def test_a_call_that_now_comes_before_its_own_replica_goes_to_another() -> None:
    # Recorded on the second replica from 15 s on; with twice the load its first calls come before it is there, and it is no colder than new then.
    calls = replace(arrivals(200), replica=(arrivals(200).arrival_s >= 15.0).astype(np.int64))
    early = replace(calls, arrival_s=calls.arrival_s / 2.0)
    done = simulate(early, Setup(replicas=2, born_s=(-np.inf, 15.0), cold=3.0, warm_s=1.0), COSTS)
    assert set(done.replica[early.arrival_s < 15.0]) == {0}
    assert set(done.replica[early.arrival_s >= 15.0]) == {1}


def test_turns_of_a_replica_that_is_never_there_go_to_all_of_the_others() -> None:
    done = simulate(
        arrivals(300),
        Setup(replicas=4, router=ROUND_ROBIN, born_s=(-np.inf, -np.inf, np.inf, -np.inf)),
        COSTS,
    )
    assert np.bincount(done.replica, minlength=4).tolist() == [100, 100, 0, 100]


def test_what_does_not_hide_behind_the_greater_bound_is_added() -> None:
    done = simulate(one(300, 3), Setup(token_budget=200), replace(COSTS, overlap=0.5))
    # Chunks as above beside a step of 8 ms; the two tokens behind them compute for 50 us each, and with 300 and 301 tokens of context.
    first = 0.0102 + 0.5 * 0.008 + 0.00005 + 0.008 + 0.5 * 0.00525 + 0.00005
    assert done.ttft_s[0] == pytest.approx(first)
    assert done.e2e_s[0] == pytest.approx(first + 2 * (0.00805 + 0.5 * 5e-5) + 1e-7 * 601)


def test_front_end_time_is_before_the_first_token() -> None:
    bare, with_call = (
        simulate(one(300, 3), Setup(), COSTS),
        simulate(one(300, 3), Setup(), replace(COSTS, call=0.5)),
    )
    assert with_call.ttft_s[0] - bare.ttft_s[0] == pytest.approx(0.5)
    assert with_call.e2e_s[0] - bare.e2e_s[0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "setup",
    [
        Setup(),
        Setup(token_budget=256),
        Setup(max_sequences=4),
        Setup(kv_tokens=6000),
        Setup(prefill_first=True),
        Setup(prefill_first=True, kv_tokens=8000),
        Setup(kv_tokens=6000, token_budget=256, reserve=CHUNK),
        Setup(kv_tokens=6000, token_budget=256, reserve=CHUNK, resumes=True),
        Setup(kv_tokens=6000, token_budget=256, reserve=FITTING),
        Setup(kv_tokens=9000, token_budget=700, reserve=FITTING, resumes=True),
    ],
    ids=[
        "default",
        "small budget",
        "few seats",
        "little KV",
        "prefill first",
        "prefill first, little KV",
        "first chunk",
        "first chunk, resumed",
        "whole prompt fits",
        "whole prompt fits, resumed",
    ],
)
@pytest.mark.parametrize("rate", [0.1, 2.0, 20.0])
def test_it_agrees_with_the_obvious_engine(setup: Setup, rate: float) -> None:
    calls = arrivals(150, rate=rate)
    costs = replace(COSTS, overlap=0.3)
    first, end, preempted = run(calls, setup, costs)
    done = simulate(calls, setup, costs)
    # With ranks, the shortest call that waits goes first.
    ranked = replace(calls, rank=calls.output_tokens.astype(np.float64))
    others_first, others_end, _ = run(ranked, setup, costs)
    other = simulate(ranked, setup, costs)
    np.testing.assert_allclose(other.first_s, others_first, rtol=1e-9)
    np.testing.assert_allclose(other.end_s, others_end, rtol=1e-9)
    assert int(done.preempted.sum()) == preempted
    np.testing.assert_allclose(done.first_s, first, rtol=1e-9)
    np.testing.assert_allclose(done.end_s, end, rtol=1e-9)


def test_preemption_happens_and_nobody_is_lost() -> None:
    done = simulate(arrivals(300, rate=20.0), Setup(kv_tokens=5000), COSTS)
    assert done.preempted.sum() > 0
    assert not np.isnan(done.end_s).any()
    assert (done.first_s <= done.end_s).all()
    assert (done.scheduled_s >= done.arrived_s).all()


def test_an_engine_that_reserves_a_chunk_preempts_more() -> None:
    calls = arrivals(300, rate=20.0)
    whole, chunk = (
        simulate(calls, Setup(kv_tokens=5000, token_budget=256, reserve=reserve), COSTS)
        for reserve in (WHOLE, CHUNK)
    )
    assert chunk.preempted.sum() > 2 * whole.preempted.sum()


def test_what_was_computed_before_a_preemption_is_read_again_where_it_is_kept() -> None:
    calls = arrivals(300, rate=20.0)
    anew, resumed = (
        simulate(
            calls, Setup(kv_tokens=5000, token_budget=256, reserve=CHUNK, resumes=resumes), COSTS
        )
        for resumes in (False, True)
    )
    assert resumed.preempted.sum() > 0
    assert resumed.end_s.max() < anew.end_s.max()


def test_what_calls_share_leaves_less_kv_for_them() -> None:
    calls = arrivals(300, rate=20.0)
    less, shared = (
        simulate(calls, Setup(kv_tokens=5000), COSTS),
        simulate(calls, Setup(kv_tokens=6000, shared_tokens=1000), COSTS),
    )
    assert shared.end_s.tolist() == less.end_s.tolist()


def test_a_prompt_larger_than_the_cache_runs_alone() -> None:
    calls = replace(
        arrivals(20), prompt_tokens=np.full(20, 5000), cached_tokens=np.zeros(20, dtype=np.int64)
    )
    assert not np.isnan(simulate(calls, Setup(kv_tokens=1000), COSTS).end_s).any()


@pytest.mark.parametrize("router", [ROUND_ROBIN, LEAST_LOAD])
def test_replicas_share_the_load_and_shorten_the_wait(router: int) -> None:
    calls = arrivals(600, rate=60.0)
    alone = simulate(calls, Setup(max_sequences=16), COSTS)
    shared = simulate(calls, Setup(max_sequences=16, replicas=4, router=router), COSTS)
    assert np.bincount(shared.replica, minlength=4).min() > 100
    assert np.quantile(shared.ttft_s, 0.95) < 0.5 * np.quantile(alone.ttft_s, 0.95)


def test_a_call_stays_in_its_pool() -> None:
    calls = arrivals(200, rate=50.0)
    low = np.arange(200) % 2
    done = simulate(
        replace(calls, pool_from=low, pool_to=low + 1), Setup(replicas=2, router=LEAST_LOAD), COSTS
    )
    assert (done.replica == low).all()


def test_recorded_replicas_are_kept() -> None:
    calls = replace(arrivals(50), replica=np.arange(50) % 3)
    assert (simulate(calls, Setup(replicas=3), COSTS).replica == np.arange(50) % 3).all()


def test_a_slow_replica_takes_proportionally_longer() -> None:
    calls = one(300, 20)
    usual, slow = simulate(calls, Setup(), COSTS), simulate(calls, Setup(speed=(2.0,)), COSTS)
    assert slow.e2e_s[0] == pytest.approx(2.0 * usual.e2e_s[0])


def test_a_call_waits_for_the_one_before_it() -> None:
    calls = replace(arrivals(2), arrival_s=np.array([1.0, 0.25]), after=np.array([-1, 0]))
    done = simulate(calls, Setup(), COSTS)
    assert done.arrived_s[1] == pytest.approx(done.end_s[0] + 0.25)


def test_a_replica_does_not_decode_past_an_arrival_that_an_end_elsewhere_brings() -> None:
    # Steps of 10 ms. The first call's last token of 100 is there at 1.00 s, the one after it arrives at 1.002 s on the replica where another decodes until 5 s:
    # it is read in that one's next step, which begins at 1.01 s.
    calls = replace(
        arrivals(3),
        arrival_s=np.array([0.0, 0.002, 0.0]),
        after=np.array([-1, 0, -1]),
        prompt_tokens=np.full(3, 100),
        cached_tokens=np.zeros(3, np.int64),
        output_tokens=np.array([100, 2, 500]),
        replica=np.array([0, 1, 1]),
    )
    done = simulate(calls, Setup(replicas=2), Costs(0.0, 0.0, 0.01, 0.0, 0.0))
    assert done.scheduled_s[1] == pytest.approx(1.01)
    assert done.end_s.tolist() == pytest.approx([1.0, 1.03, 5.0])


def test_the_gate_turns_away_or_holds() -> None:
    calls = replace(arrivals(300, rate=50.0), gated=np.ones(300, np.bool_))
    rejected = simulate(calls, Setup(gate_limit=8, gate_rejects=True), COSTS)
    assert 0 < np.isnan(rejected.end_s).sum() < 300
    held = simulate(calls, Setup(gate_limit=8), COSTS)
    assert not np.isnan(held.end_s).any()
    # With eight inside at most, nobody decodes in a larger batch: the engine's own wait is nearly none.
    assert np.nanquantile(rejected.ttft_s, 0.95) < np.quantile(
        simulate(calls, Setup(), COSTS).ttft_s, 0.95
    )


def test_several_tokens_a_step_end_sooner() -> None:
    calls = one(300, 101)
    plain, quick = (
        simulate(calls, Setup(), COSTS),
        simulate(calls, Setup(tokens_per_step=2.5), COSTS),
    )
    ratio = (quick.end_s - quick.first_s) / (plain.end_s - plain.first_s)
    assert ratio[0] == pytest.approx(1 / 2.5, rel=0.02)


def test_the_engine_is_not_compiled_again_for_arrows_memory() -> None:
    calls = arrivals(5)
    simulate(calls, Setup(), COSTS)
    before = list(batching.run.signatures)
    prompts = calls.prompt_tokens.copy()
    prompts.flags.writeable = False
    simulate(replace(calls, prompt_tokens=prompts), Setup(), COSTS)
    assert batching.run.signatures == before


def test_a_turn_does_not_overtake_the_answer_before_it() -> None:
    # Three turns of one conversation; the second was meant to come at 2.5 s, while the first is written until 3 s, and is on its way for 0.2 s.
    turns = replace(
        arrivals(3),
        arrival_s=np.array([2.0, 2.5, 9.0]),
        prompt_tokens=np.full(3, 100),
        cached_tokens=np.zeros(3, np.int64),
        output_tokens=np.array([100, 2, 2]),
        follows=np.array([-1, 0, 1]),
        lag_s=np.array([0.2, 0.2, 0.2]),
    )
    done = simulate(turns, Setup(), Costs(0.0, 0.0, 0.01, 0.0, 0.0))
    assert done.end_s[0] == pytest.approx(3.0)
    assert done.arrived_s.tolist() == pytest.approx([2.0, 3.2, 9.0])


def test_a_turn_comes_after_the_last_call_of_the_request_before_it() -> None:
    # The request before has two calls, of 1 s each and 0.5 s apart; the next turn was meant to come at once, and comes 0.3 s after the second one's end.
    turns = replace(
        arrivals(3),
        arrival_s=np.array([2.0, 0.5, 2.0]),
        after=np.array([-1, 0, -1]),
        prompt_tokens=np.full(3, 100),
        cached_tokens=np.zeros(3, np.int64),
        output_tokens=np.full(3, 100),
        follows=np.array([-1, 0, 1]),
        lag_s=np.full(3, 0.3),
    )
    done = simulate(turns, Setup(), Costs(0.0, 0.0, 0.01, 0.0, 0.0))
    assert done.arrived_s.tolist() == pytest.approx([2.0, 3.5, 4.8])


def test_a_turn_that_follows_one_turned_away_comes_in_its_own_time() -> None:
    turns = replace(
        arrivals(3),
        arrival_s=np.array([2.0, 2.1, 2.2]),
        prompt_tokens=np.full(3, 100),
        cached_tokens=np.zeros(3, np.int64),
        output_tokens=np.array([100, 2, 2]),
        follows=np.array([-1, -1, 1]),
        gated=np.array([True, True, False]),
    )
    done = simulate(turns, Setup(gate_limit=1, gate_rejects=True), COSTS)
    assert np.isnan(done.end_s[1])
    assert done.arrived_s[2] == pytest.approx(2.2)


@pytest.mark.parametrize(
    ("router", "found"), [(batching.RECORDED, [0, 190, 290]), (ROUND_ROBIN, [0, 0, 210])]
)
def test_a_turn_finds_what_the_last_one_on_its_replica_left(router: int, found: list[int]) -> None:
    # Turns of 200, 300 and 400 tokens behind a head of 10, 20 written each: the third one finds the 210 of the first where they come in turn.
    turns = replace(
        arrivals(3),
        arrival_s=np.array([0.0, 5.0, 10.0]),
        prompt_tokens=np.array([200, 300, 400]),
        cached_tokens=np.full(3, 10),
        output_tokens=np.full(3, 20),
        replica=np.zeros(3, np.int64),
        follows=np.array([-1, 0, 1]),
        head=np.full(3, 10),
        reach=np.array([0, 190, 290]),
        usual=np.array([-1, 0, 0]),
    )
    done = simulate(
        turns,
        Setup(replicas=2, router=router, cache_tokens=10_000),
        Costs(1e-3, 0.0, 0.0, 0.0, 0.0),
    )
    assert done.found.tolist() == found
    assert done.ttft_s == pytest.approx([0.190, 0.290 - 0.001 * found[1], 0.390 - 0.001 * found[2]])


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    # Two conversations of 500 tokens in a cache of 800: the first one's second turn finds the 280 that the other left of its 480 behind a head of 20.
    came = replace(
        arrivals(4),
        arrival_s=np.array([0.0, 5.0, 10.0, 15.0]),
        prompt_tokens=np.array([480, 480, 600, 600]),
        cached_tokens=np.full(4, 20),
        output_tokens=np.full(4, 20),
        replica=np.zeros(4, np.int64),
        follows=np.array([-1, -1, 0, 1]),
        head=np.full(4, 20),
        reach=np.array([0, 0, 480, 480]),
    )
    done = simulate(came, Setup(cache_tokens=800), COSTS)
    assert 300 < done.found[2] < 330
    assert done.found[3] < 240
    assert simulate(came, Setup(cache_tokens=8_000), COSTS).found.tolist() == [0, 0, 480, 480]
