"""Fixes that change who is served where and when: simulated against the engine that made the recording."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from overrun.analysis.evidence.speculative_drafts import recorded_draft, recorded_length
from overrun.analysis.simulator import placement
from overrun.analysis.simulator.batching import LEAST_LOAD, RECORDED, ROUND_ROBIN
from overrun.analysis.simulator.calibrate import Engine, fit
from overrun.analysis.simulator.engine import Calls, Setup, simulate
from overrun.analysis.simulator.pool import pools
from overrun.analysis.simulator.step_cost_regression import batch_knee, odd_one
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import (
    admission,
    cancellation,
    co_location,
    eject,
    load,
    max_sequences,
    replicas,
    response_cache,
    retries,
    routing,
    speculation,
    tenant_quota,
    warm_pool,
)
from overrun.analysis.whatif.prediction import Effect, Fix, Prediction
from tests.analysis.whatif.builders import facts_of, requests_of
from tests.analysis.whatif.recording import COSTS, arrivals, recorded

CAME = replace(arrivals(400, rate=11.0), replica=np.arange(400) % 2)
TWO = Setup(replicas=2, speed=(1.0, 1.6))


@pytest.fixture(scope="module")
def two() -> Facts:
    """Two replicas in turn, the second slower by 60 %, two tenants."""
    return recorded(
        CAME,
        TWO,
        tenant=["big" if k % 4 else "small" for k in range(400)],
        input_tokens=CAME.prompt_tokens,
    )


def p95(setup: Setup) -> float:
    return float(np.quantile(simulate(CAME, setup, COSTS).e2e_s, 0.95) * 1000.0)


def test_the_slow_replica_is_found_and_brought_to_the_others(two: Facts) -> None:
    answer = eject.predict(two, replaced=True)
    assert answer.predicted is not None
    assert answer.parameters["instance"] == "gpu-1"
    assert answer.cost["slowdown_now"] == pytest.approx(
        1.6 / 1.3, rel=0.05
    )  # of the median of two, which lies between them
    (engine,) = two.engines[0]
    assert engine.identity_error["e2e_p95"] < 0.03
    assert answer.predicted.after < answer.predicted.before


def test_a_replica_taken_out_leaves_its_calls_to_the_others(two: Facts) -> None:
    answer = eject.predict(two)
    assert answer.title == "Take replica gpu-1 out of rotation"
    assert answer.predicted is not None
    alone = replace(CAME, replica=np.zeros(400, dtype=np.int64))
    truth = float(np.quantile(simulate(alone, Setup(), COSTS).e2e_s, 0.95) * 1000.0)
    assert truth > 1.1 * eject.predict(two, replaced=True).predicted.after  # type: ignore[union-attr]
    assert answer.predicted.after == pytest.approx(truth, rel=0.12)


def test_calls_that_came_in_turn_come_in_turn_to_those_that_are_left() -> None:
    came, now = (
        replace(arrivals(600, rate=16.0, seed=8), replica=np.full(600, -1)),
        Setup(replicas=3, router=ROUND_ROBIN, speed=(1.0, 2.0, 1.0)),
    )
    facts = recorded(came, now)
    answer = eject.predict(facts)
    then = simulate(came, Setup(replicas=2, router=ROUND_ROBIN), COSTS)
    for effect in (
        one
        for one in answer.effects
        if one.metric != "tpot" and one.quantile in (0.95, 0.99) and one.after is not None
    ):
        truth = float(
            np.quantile(then.ttft_s if effect.metric == "ttft" else then.e2e_s, effect.quantile)
            * 1000.0
        )
        assert effect.after == pytest.approx(truth, rel=0.1)
    assert facts.engines[0][0].pool.router == ROUND_ROBIN


def test_routing_by_load_spares_the_slow_replica(two: Facts) -> None:
    answer = routing.predict(two, policy="least_load")
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(p95(replace(TWO, router=LEAST_LOAD)), rel=0.12)
    in_turn = routing.predict(two, policy="round_robin")
    assert in_turn.predicted is not None
    assert in_turn.predicted.after == pytest.approx(p95(replace(TWO, router=ROUND_ROBIN)), rel=0.12)


def test_a_round_may_begin_at_either_of_two_unequal_replicas() -> None:
    # Every other answer is ten times as long: where the round begins the slow replica gets all of those, or none.
    came = arrivals(400, rate=4.0, seed=9)
    came = replace(came, output_tokens=np.where(np.arange(400) % 2, 300, 30))
    slow = Setup(replicas=2, router=LEAST_LOAD, speed=(1.0, 1.8))
    answer = routing.predict(recorded(came, slow), policy="round_robin")
    p95 = next(
        effect for effect in answer.effects if (effect.metric, effect.quantile) == ("e2e", 0.95)
    )
    assert p95.interval is not None
    for speed in ((1.0, 1.8), (1.8, 1.0)):
        run = simulate(
            replace(came, replica=np.full(400, -1)),
            Setup(replicas=2, router=ROUND_ROBIN, speed=speed),
            COSTS,
        )
        assert p95.interval[0] <= float(np.quantile(run.e2e_s, 0.95) * 1000.0) <= p95.interval[1]


@pytest.mark.parametrize("policy", placement.POLICIES)
def test_every_policy_answers(two: Facts, policy: placement.Policy) -> None:
    assert routing.predict(two, policy=policy).predicted is not None


def test_one_replica_leaves_no_choice() -> None:
    assert (
        "nothing to choose"
        in routing.predict(recorded(arrivals(150)), policy="lanes").reasons["predicted"]
    )


def test_serving_the_shortest_first_is_a_choice_of_one_replica_too() -> None:
    # Six seats that are always taken: the median of a line gains by what the longest lose.
    came, full = arrivals(400, rate=6.0), Setup(max_sequences=6)
    facts = recorded(came, full, predicted_p50=came.output_tokens)
    answer = routing.predict(facts, policy="shortest_first")
    real = simulate(replace(came, rank=came.output_tokens.astype(float)), full, COSTS)
    [median] = [e for e in answer.effects if (e.metric, e.quantile) == ("e2e", 0.5)]
    assert median.after < 0.9 * median.before
    assert median.after == pytest.approx(1000.0 * float(np.median(real.e2e_s)), rel=0.2)


def test_lengths_that_are_alike_make_no_lanes(two: Facts) -> None:
    # Every answer is expected to be as long as the others: one of two lanes would have all of the tokens, twice its share.
    alike = replace(
        two, calls=two.calls.with_columns(predicted_p50=pl.lit(100.0)), effort=0.3
    )  # refused whatever a step costs
    answer = routing.predict(alike, policy="lanes")
    assert answer.predicted is None
    assert (
        "too alike for lanes: one would have 2.0 times its share of the tokens"
        in answer.reasons["predicted"]
    )


def test_lanes_part_two_kinds_of_calls_where_their_lengths_do() -> None:
    # 200 calls of 90 to 110 tokens beside 10 of 2,000: half of the tokens end among the short ones, a gap of 18 times behind them.
    length = np.r_[np.linspace(90.0, 110.0, 200), np.full(10, 2_000.0)]
    assert placement.longest_short(length, 2) == 110.0
    # Of 100 long ones the short ones have a tenth of the tokens: one of two lanes would have 1.8 times its share, so the tokens are halved.
    assert placement.longest_short(np.r_[length, np.full(90, 2_000.0)], 2) == 2_000.0
    # A predictor that expects nothing parts nothing.
    assert placement.longest_short(np.zeros(50), 2) == 0.0


def test_the_more_replicas_are_added_the_less_is_sure(two: Facts) -> None:
    def width(answer: Prediction) -> float:
        assert answer.predicted is not None
        assert answer.predicted.interval is not None
        return answer.predicted.interval[1] / answer.predicted.interval[0]

    # Two doublings: 0.05 of the logarithm beside the rest, 1.645 standard deviations on either side.
    assert width(replicas.predict(two, replicas=8)) > np.exp(2 * 1.645 * 2 * 0.025)


def test_the_knee_of_the_batch_is_found_and_a_limit_below_it_pays() -> None:
    # Above twelve sequences a step takes 20 ms more, so that batches grow by themselves; with twelve seats the engine keeps its pace.
    came, bent = arrivals(500, rate=4.5, seed=4), Setup(knee=12, knee_s=0.02)
    facts = recorded(came, bent)
    [engine], why = facts.engines
    assert why is None
    assert abs(engine.setup.knee - 12) <= 2
    answer = max_sequences.predict(facts, sequences=12)
    assert answer.predicted is not None
    true = float(
        np.quantile(simulate(came, replace(bent, max_sequences=12), COSTS).e2e_s, 0.95) * 1000.0
    )
    assert true < 0.8 * answer.predicted.before
    assert answer.predicted.after == pytest.approx(true, rel=0.2)


def test_a_knee_that_few_steps_reach_is_found() -> None:
    # Thirty run at once at the most; least squares over mean batches put the jump elsewhere, and the coefficients that suit that size hide the right one.
    [engine], why = recorded(arrivals(600, rate=6.0, seed=7), Setup(knee=24, knee_s=0.015)).engines
    assert why is None
    assert abs(engine.setup.knee - 24) <= 1
    assert engine.knee is not None
    assert engine.knee.size == 24


def test_a_knee_that_one_of_two_equal_replicas_passes_is_no_slow_replica() -> None:
    # The first gets a little more, passes the knee and stays beyond it; taken for a slow one, it hides the knee.
    came = arrivals(700, rate=9.0, seed=7)
    came = replace(
        came, replica=(np.random.default_rng(1).random(700) < 0.45).astype(came.replica.dtype)
    )
    [engine], why = recorded(came, Setup(replicas=2, knee=16, knee_s=0.02)).engines
    assert why is None
    assert engine.setup.knee == 16
    assert engine.setup.speed == pytest.approx((1.0, 1.0), abs=0.05)


@pytest.mark.parametrize(("at", "rate"), [(12, 4.5), (16, 5.5), (24, 6.0)])
def test_recorded_token_rates_tell_a_knee(at: int, rate: float) -> None:
    [pool], _ = pools(recorded(arrivals(600, rate=rate, seed=7), Setup(knee=at, knee_s=0.02)))
    half = np.flatnonzero(np.random.default_rng(1).random(len(pool)) < 0.5)
    told, by_half = batch_knee((pool, np.arange(len(pool)))), batch_knee((pool, half))
    assert told is not None
    assert by_half is not None
    # A call's own times include what its engine's front end takes, so a batch seems larger by one at times.
    assert at <= told.size <= at + 1
    assert abs(by_half.size - at) <= 1
    assert told.least <= told.size <= told.most
    assert told.jump_s == pytest.approx(0.02, rel=0.25)


def test_an_engine_whose_steps_grow_with_the_batch_has_no_knee() -> None:
    [pool], _ = pools(recorded(arrivals(600, rate=6.0, seed=7)))
    assert batch_knee((pool, np.arange(len(pool)))) is None


@pytest.mark.parametrize("pace", [1.5, 4.0])
def test_the_pace_of_a_replica_that_is_slow_and_full_is_found(pace: float) -> None:
    # Its batches are larger as it is slow, and slower as they are large: at four times the steps of the others its seats are full, and theirs are not.
    came = replace(
        arrivals(900, rate=18.0, seed=3), replica=np.arange(900) % 4, pool_to=np.full(900, 4)
    )
    [pool], _ = pools(
        recorded(came, Setup(replicas=4, max_sequences=32, speed=(1.0, 1.0, pace, 1.0)))
    )
    odd = odd_one(pool, np.arange(len(pool)))
    assert odd is not None
    assert odd[0] == 2
    engine = fit(pool, refits=3)
    assert engine.gate is None
    assert engine.setup.speed[2] == pytest.approx(pace, rel=0.1)


def test_no_replica_stands_out_where_one_is_asked_for_more() -> None:
    came = replace(
        arrivals(600, rate=10.0, seed=3),
        replica=np.where(np.arange(600) % 3 == 0, 0, 1),
        pool_to=np.full(600, 2),
    )
    [pool], _ = pools(recorded(came, Setup(replicas=2)))
    assert odd_one(pool, np.arange(len(pool))) is None


def test_what_ran_before_the_window_tells_what_smaller_batches_cost() -> None:
    # Past its capacity the engine runs 80 at once, far beyond the knee: what steps of 16 at once take is seen in the hours before.
    law = Setup(max_sequences=256, knee=24, knee_s=0.02)
    came, earlier = (
        arrivals(600, rate=8.0, seed=4),
        recorded(arrivals(400, rate=4.0, seed=9), replace(law, max_sequences=24)),
    )
    [pool], _ = pools(recorded(came, law))
    [calm], _ = pools(earlier)
    rows = np.flatnonzero(pool.arrived_s > 15.0)
    alone, told = fit(pool, rows=rows, refits=3), fit(pool, rows=rows, earlier=calm, refits=3)
    truth, without, with_them = (
        float(
            np.quantile(
                simulate(came, replace(setup, max_sequences=24, knee=24), costs).e2e_s, 0.95
            )
        )
        for setup, costs in ((law, COSTS), (alone.setup, alone.costs), (told.setup, told.costs))
    )
    assert not 0.6 < without / truth < 1.6  # alone, nothing settles it
    assert with_them == pytest.approx(truth, rel=0.2)
    assert told.knee is not None
    assert told.knee.least <= 24 <= told.knee.most


def test_an_engine_that_noise_tips_over_its_knee_keeps_to_the_knee_that_rates_tell() -> None:
    # A replay has no noise: one whose knee lies at 14 is over it as long as the recorded engine, whose rates break at 16.
    facts = recorded(arrivals(500, rate=5.5, seed=4), Setup(knee=16, knee_s=0.02))
    [engine], _ = facts.engines
    facts.__dict__["engines"] = ([replace(engine, setup=replace(engine.setup, knee=14))], None)
    answer = max_sequences.predict(facts, sequences=16).predicted
    assert answer is not None
    true = float(
        np.quantile(
            simulate(
                arrivals(500, rate=5.5, seed=4),
                Setup(max_sequences=16, knee=16, knee_s=0.02),
                COSTS,
            ).e2e_s,
            0.95,
        )
        * 1000.0
    )
    assert answer.after == pytest.approx(true, rel=0.2)


def test_another_engine_before_the_window_tells_nothing() -> None:
    # Steps of before took half of the time: another machine.
    came, earlier = (
        arrivals(400, rate=5.0, seed=4),
        recorded(arrivals(300, rate=3.0, seed=9), costs=COSTS.scaled(0.5)),
    )
    [pool], _ = pools(recorded(came))
    [calm], _ = pools(earlier)
    alone, told = fit(pool, refits=3), fit(pool, earlier=calm, refits=3)
    assert (told.setup, told.costs) == (alone.setup, alone.costs)


def test_calls_without_a_span_keep_their_part_of_the_seats() -> None:
    # One call in sixteen has lost its engine's span: fifteen of sixteen seats are for those that are simulated.
    came = arrivals(480, rate=6.0, seed=3)
    facts, lost = recorded(came), np.arange(480) % 16 == 0
    gone = [
        pl.when(pl.Series(lost)).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms")
    ]
    facts = replace(
        facts, calls=facts.calls.with_columns(gone), effort=0.3
    )  # both answers are of one engine
    [engine], _ = facts.engines
    assert engine.pool.told_ratio == 15 / 16
    whole = replace(facts)
    whole.__dict__["engines"] = ([replace(engine, pool=replace(engine.pool, told_ratio=1.0))], None)
    one, other = (
        max_sequences.predict(facts, sequences=16),
        max_sequences.predict(whole, sequences=15),
    )
    assert one.predicted is not None
    assert other.predicted is not None
    assert one.predicted.after == other.predicted.after


def test_a_knee_just_below_the_seats_leaves_open_on_which_side_they_are() -> None:
    facts = recorded(arrivals(500, rate=5.5, seed=4), Setup(knee=16, knee_s=0.02))
    [engine], _ = facts.engines
    assert engine.knee is not None
    facts.__dict__["engines"] = (
        [replace(engine, knee=replace(engine.knee, most=engine.setup.knee + 2))],
        None,
    )
    just_above, far_above = (
        max_sequences.predict(facts, sequences=engine.setup.knee + more).predicted
        for more in (2, 8)
    )
    assert just_above is not None
    assert far_above is not None
    low, _ = just_above.interval or (0.0, 0.0)
    on_the_knee = max_sequences.predict(facts, sequences=engine.setup.knee).predicted
    assert on_the_knee is not None
    assert low < on_the_knee.after < just_above.after


def test_what_steps_below_the_knee_cost_lies_between_replay_and_recorded_rates() -> None:
    # The same engine told by a replay whose steps are a fifth too dear, by rates that are a fifth too cheap, and by both.
    facts = recorded(arrivals(500, rate=5.5, seed=4), Setup(knee=16, knee_s=0.02))
    [engine], _ = facts.engines
    assert engine.knee is not None

    def told(dear: float, cheap: float) -> Effect:
        assert engine.knee is not None
        bent = replace(engine.knee, costs=replace(engine.costs.scaled(cheap), call=0.0))
        facts.__dict__["engines"] = (
            [replace(engine, costs=engine.costs.scaled(dear), knee=bent)],
            None,
        )
        return next(
            one
            for one in max_sequences.predict(facts, sequences=engine.setup.knee).effects
            if (one.metric, one.quantile) == ("tpot", 0.5)
        )

    slow, quick, between = told(1.2, 1.2), told(0.8, 0.8), told(1.2, 0.8)
    assert slow.after is not None
    assert quick.after is not None
    assert between.after is not None
    assert quick.after < between.after < slow.after
    low, high = between.interval or (0.0, 0.0)
    assert low < quick.after
    assert high > slow.after


def test_more_load_may_meet_seats_that_the_recording_never_filled() -> None:
    came = arrivals(400, rate=5.0, seed=4)
    facts = recorded(came)
    [engine], _ = facts.engines
    seats = Setup(max_sequences=engine.pool.most_running + 1)
    true = simulate(replace(came, arrival_s=came.arrival_s / 1.6), seats, COSTS).ttft_s
    effect = next(
        e
        for e in load.predict(facts, factor=1.6).effects
        if (e.metric, e.quantile) == ("ttft", 0.95)
    )
    assert effect.interval is not None
    assert effect.after is not None
    assert 1000.0 * np.quantile(true, 0.95) > 2.0 * effect.after
    assert effect.interval[0] <= 1000.0 * np.quantile(true, 0.95) <= effect.interval[1]


def test_a_cold_replica_is_simulated_warm() -> None:
    # The second of two replicas joins after 25 s, six times as slow at first; a router sends calls to the one with fewest in flight.
    came, cold = (
        replace(arrivals(600, rate=9.0, seed=5), replica=np.full(600, -1)),
        Setup(replicas=2, router=LEAST_LOAD, born_s=(-np.inf, 25.0), cold=5.0, warm_s=15.0),
    )
    facts = recorded(came, cold)
    answer = warm_pool.predict(facts)
    assert answer.method == "simulated"
    assert answer.predicted is not None
    true = float(np.quantile(simulate(came, replace(cold, cold=0.0), COSTS).e2e_s, 0.95) * 1000.0)
    assert answer.predicted.after == pytest.approx(true, rel=0.1)
    assert answer.predicted.after < 0.9 * answer.predicted.before
    assert facts.engines[0][0].pool.router == LEAST_LOAD


@pytest.mark.parametrize(("router", "found"), [(LEAST_LOAD, LEAST_LOAD), (RECORDED, RECORDED)])
def test_a_router_is_judged_where_engines_tell_of_what_is_in_flight(
    router: int, found: int
) -> None:
    # Of the first half every second call is given up, and the engine that stops it tells nothing: to all appearances the fuller replica is chosen then.
    n, drawn = 600, np.random.default_rng(2).integers(0, 2, 600)
    facts = recorded(
        replace(arrivals(n, rate=14.0, seed=7), replica=drawn), Setup(replicas=2, router=router)
    )
    gone = (np.arange(n) < n // 2) & (np.arange(n) % 2 == 0)
    lost = [
        pl.when(~pl.Series(gone)).then(pl.col(name)).alias(name)
        for name in ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms")
    ]
    facts.calls = facts.calls.with_columns(
        *lost,
        error=pl.Series(gone),
        error_type=pl.when(pl.Series(gone)).then(pl.lit("asyncio.CancelledError")),
    )
    assert pools(facts)[0][0].router == found


def test_a_router_is_judged_by_the_calls_that_came_when_no_span_of_the_others_was_lost() -> None:
    # One in 12 engine's spans is lost. With hundreds of calls in flight nearly all are told of, and the fuller replica seems to be chosen as often.
    n = 1200
    rate = np.where(np.arange(n) < 300, 4.0, 14.0)
    came = arrivals(
        n,
        seed=7,
        arrival_s=np.cumsum(np.random.default_rng(3).exponential(1.0, n) / rate),
        replica=np.full(n, -1),
    )
    facts = recorded(came, Setup(replicas=2, max_sequences=8, router=LEAST_LOAD))
    gone = pl.Series(np.random.default_rng(4).random(n) < 1.0 / 12.0)
    facts.calls = facts.calls.with_columns(
        pl.when(~gone).then(name).alias(name)
        for name in ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms")
    )
    assert pools(facts)[0][0].router == LEAST_LOAD


def test_a_router_in_turn_is_not_taken_for_one_that_balances(two: Facts) -> None:
    pool = two.engines[0][0].pool
    assert pool.router == ROUND_ROBIN
    by_chance = np.random.default_rng(1).integers(0, 2, len(pool))
    assert replace(pool, calls=replace(pool.calls, replica=by_chance)).router == RECORDED


def test_admission_refuses_some_and_serves_the_rest_sooner(two: Facts) -> None:
    answer = admission.predict(two, spare_ratio=0.6)
    assert answer.predicted is not None
    assert 0.0 < answer.cost["rejected_ratio"] < 1.0
    assert answer.predicted.after < answer.predicted.before


def test_the_largest_tenant_is_held_back_by_default(two: Facts) -> None:
    answer = tenant_quota.predict(two, share_ratio=0.1)
    assert answer.parameters["tenant"] == "big"
    assert answer.cost["tenant_calls_ratio"] == 0.75
    assert answer.predicted is not None
    # Nobody waits for the quota: what is above it is refused, and the others are served sooner.
    assert answer.predicted.after < answer.predicted.before
    assert 0.0 < answer.cost["rejected_ratio"] < 0.75
    assert (
        "no call of that tenant" in tenant_quota.predict(two, tenant="nobody").reasons["predicted"]
    )


def test_a_quota_lets_no_more_tokens_pass_than_its_bucket_held(two: Facts) -> None:
    [engine], _ = two.engines
    mine = (two.calls["tenant"] == "big").to_numpy()[engine.pool.rows]
    spent, sent = tenant_quota.tokens_of(engine), engine.pool.arrived_s
    refill = 0.1 / 0.9 * float(spent[~mine].sum()) / float(np.ptp(sent))
    passed = mine & ~tenant_quota.refused(engine, mine, 0.1)
    order = np.argsort(sent)
    held = refill * (tenant_quota.BUCKET_S + sent[order] - sent.min())
    assert passed.any()
    assert (np.cumsum(np.where(passed, spent, 0.0)[order]) <= held + 1e-9).all()
    assert not tenant_quota.refused(engine, mine, 1.0).any()


def test_the_interval_covers_the_other_ways_in_which_a_fix_may_turn_out(two: Facts) -> None:
    def half(engine: Engine) -> Change:
        return Change(
            replace(
                engine.pool.calls, output_tokens=np.maximum(1, engine.pool.calls.output_tokens // 2)
            ),
            engine.setup,
        )

    def same(engine: Engine) -> Change:
        return Change(engine.pool.calls, engine.setup)

    fix = Fix("cap", "halve the answers", "they stay useful", {})
    halved, either = (
        predict_simulated(two, fix, half).predicted,
        predict_simulated(two, fix, same, also=[half]).predicted,
    )
    assert halved is not None
    assert either is not None
    assert either.interval is not None
    assert either.interval[0] <= halved.after < either.after < either.interval[1]


def test_a_shorter_way_is_taken_off_each_call_and_lets_those_that_follow_come_sooner() -> None:
    # 150 requests of two calls, the second 0.5 s of the application after the first; each call is 0.4 s on its way.
    first = arrivals(150, rate=2.0, seed=6)
    twice = {name: np.concatenate([getattr(first, name)] * 2) for name in first.__slots__}
    after = np.concatenate([np.full(150, -1), np.arange(150)])
    came = Calls(
        **twice | {"after": after, "arrival_s": np.where(after < 0, twice["arrival_s"], 0.9)}
    )
    run = simulate(came, Setup(), COSTS)
    there = {
        "start_s": run.arrived_s - 0.2,
        "e2e_ms": 1000.0 * run.e2e_s + 400.0,
        "ttft_ms": 1000.0 * run.ttft_s + 400.0,
        "request": [*range(150)] * 2,
        "ttft_client_ms": 1000.0 * run.ttft_s + 400.0,
        "trace_id": [f"{k:032x}" for k in range(150)] * 2,
        "span_id": [f"{k:016x}" for k in range(300)],
    }
    order = np.argsort(there["start_s"])
    calls = recorded(came, **there).calls[order]
    whole = 1000.0 * (run.end_s[150:] - run.arrived_s[:150]) + 400.0
    requests = requests_of(
        calls.filter(pl.col("span_id") < f"{150:016x}").sort("request"),
        e2e_ms=whole,
        ttft_ms=whole - 10.0,
    )
    answer = co_location.predict(
        facts_of(calls, requests=requests, percentile=95.0), network_ms=20.0
    )
    assert answer.method == "simulated", answer.reasons
    assert answer.predicted is not None
    near = simulate(
        replace(came, arrival_s=np.where(after < 0, came.arrival_s, 0.52)), Setup(), COSTS
    )
    truth = float(np.quantile(1000.0 * (near.end_s[150:] - near.arrived_s[:150]) + 20.0, 0.95))
    assert truth < answer.predicted.before - 500.0
    assert answer.predicted.after == pytest.approx(truth, rel=0.02)


def test_speculation_is_judged_by_length_against_cost(two: Facts) -> None:
    pays = speculation.predict(two, accepted_length=2.5, draft_cost_ratio=0.2)
    does_not = speculation.predict(two, accepted_length=1.05, draft_cost_ratio=0.4)
    assert pays.predicted is not None
    assert does_not.predicted is not None
    assert pays.predicted.after < pays.predicted.before
    assert does_not.predicted.after > does_not.predicted.before
    at = {
        "time_us": [0, 0],
        "instance": ["a", "a"],
        "model": ["m", "m"],
        "indicator": ["output_tokens", "spec_accepted_tokens"],
        "value": [400.0, 240.0],
    }
    # 160 of 400 tokens a second are the steps' own: 2.5 a step.
    assert recorded_length(pl.DataFrame(at)) == pytest.approx(2.5)
    assert recorded_length(pl.DataFrame(at).head(1)) == 0.0
    more = pl.DataFrame(
        at | {"indicator": ["spec_drafts", "spec_draft_tokens"], "value": [150.0, 600.0]}
    )
    counted = pl.concat([pl.DataFrame(at), more])
    assert (recorded_length(counted), recorded_draft(counted)) == (
        pytest.approx(2.6),
        pytest.approx(4.0),
    )
    assert recorded_draft(pl.DataFrame(at)) == 0.0
    assert "accepted length is not known" in speculation.predict(two).reasons["predicted"]


def test_drafting_ends_and_its_checks_with_it() -> None:
    # Steps of 1.5 tokens that check four drafts a sequence. Without them a step reads 1 / 1.2 of what it did, and a prompt costs 1 / 1.05.
    came, drafting = (
        arrivals(500, rate=9.0),
        Setup(tokens_per_step=1.5, drafted=4.0, draft_share=1.0 / 6.0),
    )
    at = {
        "time_us": [0] * 3,
        "instance": ["gpu-0"] * 3,
        "model": ["m"] * 3,
        "indicator": ["spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"],
        "value": [100.0, 400.0, 50.0],
    }
    answer = speculation.predict(
        recorded(came, drafting, points=pl.DataFrame(at)), enabled=False, draft_cost_ratio=0.2
    )
    plain = simulate(
        came,
        Setup(),
        replace(
            COSTS,
            step=COSTS.step / 1.2,
            kv_token=COSTS.kv_token / 1.2,
            prefill_token=COSTS.prefill_token / 1.05,
            attention=COSTS.attention / 1.05,
        ),
    )
    got = {(effect.metric, effect.quantile): effect.after for effect in answer.effects}
    for quantile in (0.5, 0.95):
        assert got["e2e", quantile] == pytest.approx(
            1000.0 * np.quantile(plain.e2e_s, quantile), rel=0.03
        )
        assert got["ttft", quantile] == pytest.approx(
            1000.0 * np.quantile(plain.ttft_s, quantile), rel=0.06
        )


def test_a_second_attempt_is_taken_back() -> None:
    came = arrivals(200, rate=2.0)
    # Request k is calls 2k and 2k+1: the same prompt sent again as soon as the first attempt has ended.
    prompt = np.repeat(came.prompt_tokens[:100], 2)
    came = replace(
        came,
        prompt_tokens=prompt,
        output_tokens=np.repeat(came.output_tokens[:100], 2),
        after=np.where(np.arange(200) % 2, np.arange(200) - 1, -1),
        arrival_s=np.where(np.arange(200) % 2, 0.1, came.arrival_s),
    )
    facts = recorded(came, request=np.arange(200) // 2, trace_id=[f"{k // 2}" for k in range(200)])
    first, last = facts.calls.gather_every(2), facts.calls.gather_every(2, 1)
    both = (last["start_us"] + last["e2e_ms"] * 1000.0 - first["start_us"]) / 1000.0
    facts.requests = facts.requests.with_columns(start_us=first["start_us"], e2e_ms=both)
    answer = retries.predict(facts)
    assert answer.predicted is not None
    assert answer.cost["attempts_saved_ratio"] == 0.5
    assert answer.predicted.after < 0.6 * answer.predicted.before
    # Who gave up was told no tokens, and no engine's half of the call is there; who was refused cost the engine nothing.
    for kind, why in (
        ("openai.APITimeoutError", "100 calls were abandoned"),
        ("openai.RateLimitError", "no call was sent twice"),
    ):
        facts.calls = facts.calls.with_columns(
            error=pl.Series(np.arange(200) % 2 == 0),
            error_type=pl.lit(kind),
            input_tokens=pl.when(pl.Series(np.arange(200) % 2 == 1)).then(pl.col("input_tokens")),
        )
        assert why in retries.predict(facts).reasons["predicted"]
    assert "no call was sent twice" in retries.predict(recorded(arrivals(150))).reasons["predicted"]


def _impatient(n: int = 400, patience_s: float = 0.45) -> tuple[Facts, NDArray[np.float64]]:
    """Requests whose client asks a second time after `patience_s`, while the engine writes on: what is told of all attempts, and the TTFT of each in
    ms if nobody did so."""
    once = arrivals(n, rate=5.0)
    twice = np.repeat(np.arange(n), 2)
    second = np.arange(2 * n) % 2 == 1
    fields = {name: getattr(once, name)[twice] for name in once.__slots__}
    both = Calls(**(fields | {"arrival_s": fields["arrival_s"] + patience_s * second}))
    keep = ~second | (twice % 4 == 0)  # each fourth is asked twice
    both = Calls(**{name: getattr(both, name)[keep] for name in both.__slots__})
    request, second = twice[keep], second[keep]
    facts = recorded(
        both, Setup(max_sequences=12), request=request, trace_id=[f"{r:032x}" for r in request]
    )
    given_up = pl.Series(~second & (request % 4 == 0))
    facts.calls = facts.calls.with_columns(
        error=given_up,
        error_type=pl.when(given_up).then(pl.lit("openai.APITimeoutError")),
        e2e_ms=pl.when(given_up).then(1000.0 * patience_s).otherwise("e2e_ms"),
    ).sort("start_us", maintain_order=True)
    own = (
        facts.calls.sort("request", "start_us")
        .unique("request", keep="last", maintain_order=True)
        .sort("request")
    )
    begun = (
        facts.calls.group_by("request").agg(pl.col("start_us").min()).sort("request")["start_us"]
    )
    waited = (own["start_us"] - begun) / 1000.0
    facts.requests = requests_of(
        own.with_columns(
            start_us=begun, e2e_ms=own["e2e_ms"] + waited, ttft_ms=own["ttft_ms"] + waited
        )
    )
    alone = simulate(once, Setup(max_sequences=12), COSTS)
    return facts, 1000.0 * alone.ttft_s


@pytest.mark.parametrize("lost", ["none", "engine", "client"])
def test_a_wait_for_an_attempt_that_was_given_up_ends_with_it(lost: str) -> None:
    facts, truth = _impatient()
    part = pl.col("error") & (pl.col("request") % 12 == 0)  # a third of those attempts
    if lost == "engine":  # the client knows of its own half only
        own = (
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "ttft_ms",
            "ttft_engine_ms",
            "engine_e2e_ms",
            "queue_ms",
            "prefill_ms",
            "decode_ms",
        )
        facts.calls = facts.calls.with_columns(
            [pl.when(~part).then(name).alias(name) for name in own]
        )
    if lost == "client":  # the engine's half stands by itself and names no model
        facts.calls = facts.calls.with_columns(
            engine_alone=part,
            model=pl.when(~part).then("model"),
            error_type=pl.when(~part).then("error_type"),
            e2e_ms=pl.when(part).then("engine_e2e_ms").otherwise("e2e_ms"),
            error=pl.col("error") & ~part,
        )
    answer = retries.predict(facts)
    told = {(effect.metric, effect.quantile): effect.after for effect in answer.effects}
    assert told["ttft", 0.5] == pytest.approx(np.quantile(truth, 0.5), rel=0.1)
    assert told["ttft", 0.95] == pytest.approx(np.quantile(truth, 0.95), rel=0.15)
    assert told["ttft", 0.99] == pytest.approx(np.quantile(truth, 0.99), rel=0.2)
    assert answer.cost["attempts_saved_ratio"] == pytest.approx(0.2)


def test_calls_whose_engine_spans_are_lost_take_their_seats() -> None:
    # Every eleventh span of a full engine is lost: without these calls its steps would seem to take a tenth longer.
    came, setup = arrivals(500, rate=9.0), Setup(max_sequences=12)
    facts = recorded(came, setup)
    gone = pl.Series(np.arange(500) % 11 == 5)
    facts.calls = facts.calls.with_columns(ttft_client_ms=pl.col("ttft_ms"))
    facts.calls = facts.calls.with_columns(
        pl.when(~gone).then(name).alias(name)
        for name in ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms")
    )
    [pool], _ = pools(facts)
    assert (pool.told.sum(), (pool.calls.replica[~pool.told] == -1).all(), pool.replicas) == (
        455,
        True,
        1,
    )
    times = 1000.0 * np.stack([pool.ttft_s, pool.e2e_s])
    assert times == pytest.approx(np.stack([facts.call("ttft_ms"), facts.call("e2e_ms")]), rel=1e-6)
    [engine], _ = facts.engines
    assert engine.setup.max_sequences == 12
    slower = replace(came, arrival_s=came.arrival_s * 2.0)
    ours, truth = (simulate(slower, setup, costs) for costs in (engine.costs, COSTS))
    assert np.quantile(ours.e2e_s, (0.5, 0.95)) == pytest.approx(
        np.quantile(truth.e2e_s, (0.5, 0.95)), rel=0.03
    )


def test_answers_that_begin_beside_each_other_are_no_attempts() -> None:
    came = arrivals(200, rate=2.0)
    prompt = np.repeat(came.prompt_tokens[:100], 2)
    came = replace(
        came,
        prompt_tokens=prompt,
        arrival_s=np.repeat(came.arrival_s[::2], 2) + 0.002 * (np.arange(200) % 2),
    )
    facts = recorded(came, request=np.arange(200) // 2, trace_id=[f"{k // 2}" for k in range(200)])
    assert "no call was sent twice" in retries.predict(facts).reasons["predicted"]


def test_without_retries_a_refused_request_fails() -> None:
    facts, _ = _impatient()
    facts.calls = facts.calls.with_columns(
        error_type=pl.when("error").then(pl.lit("openai.InternalServerError"))
    )
    assert "no call was sent twice" in retries.predict(facts).reasons["predicted"]
    assert retries.predict(facts, policy="off").cost["rejected_ratio"] == pytest.approx(0.25)


def test_what_nobody_waits_for_is_cut() -> None:
    came = arrivals(200, rate=8.0)
    facts = recorded(came)
    given_up = facts.calls["e2e_ms"] * ((facts.calls["request"] % 4 == 0) * -0.5 + 1.0)
    facts.calls = facts.calls.with_columns(e2e_ms=given_up)
    answer = cancellation.predict(facts)
    assert answer.cost["wasted_tokens_ratio_now"] > 0.03
    assert answer.predicted is not None


def test_a_call_that_is_dropped_with_another_is_cut_where_that_one_ends_now() -> None:
    # Calls 2k are waited for, calls 2k + 1 of the same request, twice as long, are dropped as those end, and the engine writes them to their end.
    n, even = 400, np.arange(400) // 2 * 2
    came = arrivals(n, rate=7.0, seed=6)
    came = replace(
        came,
        arrival_s=came.arrival_s[even],
        output_tokens=np.where(np.arange(n) % 2, 2, 1) * came.output_tokens[even],
    )
    facts = recorded(
        came,
        Setup(max_sequences=12),
        request=np.arange(n) // 2,
        trace_id=[str(k // 2) for k in range(n)],
    )
    facts.calls = facts.calls.with_columns(e2e_ms=facts.calls["e2e_ms"].gather(even)).with_columns(
        end_us=pl.col("start_us") + 1000.0 * pl.col("e2e_ms")
    )
    [engine], _ = facts.engines
    engine = replace(engine, setup=Setup(max_sequences=12), costs=COSTS)
    gone = facts.call("engine_e2e_ms") > facts.call("e2e_ms") + cancellation.GONE_MS
    other, later_s = cancellation.left_with(facts, gone, facts.call("e2e_ms"))
    assert gone.sum() > 100
    assert (other[gone] == even[gone]).all()
    cut = engine.pool.calls
    for _ in range(cancellation.ROUNDS):
        cut = cancellation.cut(engine, cut, gone, facts.call("e2e_ms") / 1000.0, other, later_s)
    run = simulate(cut, Setup(max_sequences=12), COSTS)
    apart_s = (run.end_s - run.end_s[even])[gone]
    assert np.quantile(np.abs(apart_s), 0.9) < 0.5
    assert np.quantile(run.ttft_s, 0.9) < 0.5 * np.quantile(engine.pool.ttft_s, 0.9)


def test_cached_answers_free_the_engine_for_the_others() -> None:
    came = arrivals(500, rate=13.0, seed=4)
    facts = recorded(came, Setup(max_sequences=24))
    answer = response_cache.predict(facts, hit_ratio=0.3, hit_ms=40.0)
    rng = np.random.default_rng(1)
    truths = []
    for _ in range(5):
        hit = rng.random(500) < 0.3
        after = simulate(
            replace(came, arrival_s=np.where(hit, np.inf, came.arrival_s)),
            Setup(max_sequences=24),
            COSTS,
        ).e2e_s
        truths.append(float(np.quantile(np.where(hit, 0.04, after), 0.95) * 1000.0))
    assert answer.predicted is not None
    assert answer.method == "estimate"
    assert answer.predicted.after == pytest.approx(np.mean(truths), rel=0.1)
    assert answer.predicted.after < 0.7 * answer.predicted.before
    assert answer.cost["cached_answers_ratio"] == 0.3


def test_more_replicas_share_calls_out_as_those_that_are_there_do() -> None:
    came, now = (
        replace(arrivals(500, rate=14.0, seed=8), replica=np.full(500, -1)),
        Setup(replicas=2, router=ROUND_ROBIN, speed=(1.0, 2.0)),
    )
    facts = recorded(came, now)
    facts.effort = 0.3
    as_now, in_turn, fewest = (
        replicas.predict(facts, replicas=3, router=router).predicted
        for router in ("as_now", "round_robin", "least_load")
    )
    assert as_now is not None
    assert as_now.after == in_turn.after  # type: ignore[union-attr]
    assert as_now.after > 1.05 * fewest.after  # type: ignore[union-attr]
