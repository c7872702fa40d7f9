"""under_capacity: fires with exact numbers, is silent on the twins, and says when data are few."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.full_engine import read_gauges, summed
from overrun.analysis.evidence.more_requests import former_slowdown
from overrun.analysis.evidence.queue_growth import Load, service_ms, wait_growth
from overrun.analysis.evidence.token_speed import Line
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, frame_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

SERVICE_MS = 400.0


def overload(
    n: int = 600, *, calm: int = 200, offered: float = 2.0, **columns: Any
) -> pl.DataFrame:
    """A first-come engine that admits 1 request/s: arrivals at 1/s, then `offered`/s that wait ever longer."""
    gaps = np.r_[np.ones(calm), np.full(n - calm, 1.0 / offered)]
    start = np.r_[0.0, np.cumsum(gaps)[:-1]]
    wait = np.maximum(np.arange(n) - start, 0.0) * 1000.0
    return requests(
        n, start_s=start, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0, tpot_ms=3.0, **columns
    )


def growth(rows: pl.DataFrame) -> Load:
    load = wait_growth(frame_of(rows).rows, SERVICE_MS)
    assert load is not None
    return load


def test_wait_grows_by_offered_over_served() -> None:
    load = growth(overload(offered=2.0))
    # In a first-come queue that admits 1/s, arrivals at 2/s wait half a second more each, one more second per second.
    assert load.growing
    assert load.offered_ratio == pytest.approx(2.0, rel=0.02)
    assert load.offered_rps == pytest.approx(2.0, rel=0.05)
    assert load.admitted_rps == pytest.approx(1.0, rel=0.1)
    assert load.offered_tps == pytest.approx(1200.0, rel=0.05)
    assert load.grew_from_s == pytest.approx(200.0, abs=15.0)


def test_a_wait_that_grows_slowly_is_an_overload_as_well() -> None:
    # 1.05 arrive a second where 1 is served: 24 s of wait after 476 s, sixty times as long as a request is served for.
    found = run(overload(600, calm=100, offered=1.05), baseline="none")
    assert found.verdict.cause == "under_capacity"
    assert found.baseline is None
    assert "1.05 times as fast" in found.verdict.sentence


def test_fires_on_growing_waits_from_spans_alone() -> None:
    found = run(overload())
    finding = of(found, "under_capacity")
    assert finding is not None
    assert (finding.stage, found.verdict.stage, found.verdict.cause) == (
        "queue",
        "queue",
        "under_capacity",
    )
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.01)
    assert not finding.evidence["kv_bound"]
    assert finding.fix is not None
    # 2 x the work of one replica with a quarter to spare: 2 / 0.75 = 2.7.
    assert finding.fix.title == "Run 3 replicas instead of 1"
    assert "--max-num-seqs" in finding.fix.detail
    assert found.verdict.owner == "platform"
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 2500.0 < finding.fix.predicted.before


def test_gauges_show_what_is_full() -> None:
    waiting = {float(t): max(0.0, t - 200.0) for t in range(0, 400, 15)}
    one = of(run(overload(), gauges={"queue_depth": waiting}), "under_capacity")
    both = of(
        run(
            overload(),
            gauges={"queue_depth": waiting, "kv_cache_usage": dict.fromkeys(waiting, 0.98)},
        ),
        "under_capacity",
    )
    assert one is not None
    assert both is not None
    assert not one.evidence["kv_bound"]
    assert both.evidence["kv_bound"]
    assert both.headline.startswith("KV-bound")
    assert both.fix is not None
    assert "--kv-cache-dtype" in both.fix.detail


def test_silent_when_waits_are_long_but_do_not_grow() -> None:
    # The same excess: every tenth request waits 10 s, at any time, as behind one bad replica.
    wait = np.where(np.arange(600) % 10 == 9, 10_000.0, 0.0)
    found = run(requests(600, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0, tpot_ms=3.0))
    assert found.verdict.stage == "queue"
    assert of(found, "under_capacity") is None


def test_silent_on_a_burst_that_drains() -> None:
    # 60 requests at once in a calm hour: waits of up to 24 s that are over in 24 s.
    start = np.r_[np.arange(300) * 2.0, np.full(60, 600.0), 700.0 + np.arange(240) * 2.0]
    wait = np.r_[np.zeros(300), np.arange(60) * SERVICE_MS, np.zeros(240)]
    found = run(
        requests(600, start_s=start, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0, tpot_ms=3.0)
    )
    assert found.verdict.stage == "queue"
    assert of(found, "under_capacity") is None


def test_silent_when_the_engine_became_slower_at_the_same_load() -> None:
    # Arrivals stay at 1/s; from the 200th on a token takes three times as long and the wait grows by 0.5 s each.
    late = np.arange(600) >= 200
    wait = np.where(late, (np.arange(600) - 200) * 500.0, 0.0)
    rows = requests(
        600,
        queue_ms=wait,
        prefill_ms=100.0,
        decode_ms=np.where(late, 900.0, 300.0),
        tpot_ms=np.where(late, 9.0, 3.0),
    )
    found = run(rows)
    assert found.verdict.stage == "queue"
    assert of(found, "under_capacity") is None


def fuller(rate: float) -> pl.DataFrame:
    """From the 400th request on they come at `rate` instead of 1/s, and each takes 1.2 s more for its 101 tokens and waits 0.3 s."""
    late = np.arange(800) >= 400
    gaps = np.where(late, 1.0 / rate, 1.0)
    decode = np.where(late, 2_400.0, 1_200.0)
    return requests(
        800,
        start_s=np.cumsum(gaps),
        queue_ms=np.where(late, 300.0, 0.0),
        prefill_ms=100.0,
        decode_ms=decode,
        tpot_ms=decode / 100.0,
        output_tokens=101,
        input_tokens=500,
    )


def test_slower_tokens_of_a_fuller_engine_count_where_more_arrives() -> None:
    found = run(fuller(1.5), slo=E2E)
    # 0.3 of 1.5 s are the queue's: too little for itself, all of it with the tokens.
    finding = the(found, "under_capacity")
    assert finding.evidence["stage_share_of_excess"] == pytest.approx(0.2, abs=0.01)
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.01)
    assert of(run(fuller(1.0), slo=E2E), "under_capacity") is None


@pytest.mark.parametrize(
    ("rate", "longer", "named"),
    [
        (1.13, 2.0, {"under_capacity", "prompt_bloat"}),
        (1.13, 1.0, set()),
        (1.22, 0.5, {"under_capacity"}),
    ],
)
def test_an_eighth_more_requests_are_a_cause_beside_longer_prompts_and_none_alone(
    rate: float, longer: float, named: set[str]
) -> None:
    """1.13 times as many a second, which a stream of a few hundred may do by itself; with prompts twice as long the engine has 1.3 times the work."""
    n, rng = 900, np.random.default_rng(2)
    late = np.arange(n) >= 400
    tokens = np.where(late, 1_000.0 * longer, 1_000.0) * np.exp(rng.normal(0.0, 0.3, n))
    rows = requests(
        n,
        start_s=np.cumsum(np.where(late, 1.0 / rate, 1.0)),
        queue_ms=np.where(late, 2_000.0, 1.0),
        prefill_ms=0.1 * tokens,
        decode_ms=500.0,
        tpot_ms=5.0,
        output_tokens=101,
        input_tokens=np.round(tokens).astype(int),
    )
    assert set(causes(run(rows, slo=E2E))) == named


@pytest.mark.parametrize(("every_s", "named"), [(0.5, True), (1.0, False)])
def test_uncounted_calls_wait_for_more_of_them_only_where_more_come(
    every_s: float, named: bool
) -> None:
    n = 600
    late = np.arange(n) >= 300
    wait = np.r_[np.full(300, 5.0), np.linspace(5.0, 60_000.0, 300)]
    rows = requests(
        n,
        start_s=np.cumsum(np.where(late, every_s, 1.0)),
        queue_ms=wait,
        prefill_ms=100.0,
        decode_ms=500.0,
        input_tokens=None,
        output_tokens=None,
    )
    found = run(rows, slo=E2E)
    assert (found.verdict.stage, found.verdict.cause) == (
        "queue",
        "under_capacity" if named else None,
    )
    assert ("under_capacity" in found.skipped) is not named


def test_standing_queue_counts_where_the_window_begins_in_it() -> None:
    wait = np.random.default_rng(1).normal(9000.0, 500.0, 300)
    load = growth(requests(300, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0))
    assert load.standing
    assert not load.growing


def test_too_few_requests_are_said() -> None:
    assert wait_growth(frame_of(overload(29, calm=5)).rows, SERVICE_MS) is None
    assert wait_growth(frame_of(overload(30, calm=5)).rows, SERVICE_MS) is not None


def test_gauge_is_summed_over_instances_and_carried_on() -> None:
    points = pl.DataFrame(
        {
            "time_us": [0, 5, 10, 15],
            "instance": ["a", "b", "a", None],
            "model": [None] * 4,
            "indicator": ["queue_depth"] * 4,
            "value": [1.0, 10.0, 2.0, 100.0],
        }
    )
    assert summed(points, "queue_depth").tolist() == [1.0, 11.0, 12.0, 112.0]
    assert summed(points, "running").tolist() == []


def test_gauges_count_engines_and_service_time_is_what_follows_the_queue() -> None:
    rows = frame_of(
        requests(
            10,
            queue_ms=9.0,
            prefill_ms=1.0,
            decode_ms=2.0,
            instance=["a", "b"] * 5,
            engine_only=True,
        )
    ).rows
    no_points = frame_of(requests(1, prefill_ms=1.0)).points
    gauges = read_gauges(no_points, rows)
    assert (gauges.instances, gauges.waiting_most, gauges.kv_p95) == (2, None, None)
    # The same instances, but of the client: how many engines served it is not known.
    assert read_gauges(no_points, rows.with_columns(engine_only=False)).instances == 1
    assert service_ms(rows) == 3.0


def crowd(growth: float, *, pace: float = 1.0) -> pl.DataFrame:
    """Calls of 100 tokens on an engine with places for all: each takes 4 ms a token and 1 ms more for every call beside it, so nobody waits.

    They come as often as keeps 6 at a time, then `growth` times as often; all batches take `pace` times as long since then.
    """
    rng = np.random.default_rng(7)
    n, calm = 2400, 800
    size = np.r_[np.full(calm, 6.0), np.full(n - calm, 0.0)]
    # Little's law: batch = rate x time of a call, at the rate of 6 / (100 x 10 ms), times `growth`.
    rate = 6.0 * growth
    law = np.arange(1.0, 200.0)
    later = pace * (4.0 + law) / 10.0
    size[calm:] = law[np.argmin(np.abs(law - rate * later))]
    size = np.maximum(1.0, np.round(size * np.exp(0.3 * rng.standard_normal(n))))
    late = np.arange(n) >= calm
    token = (4.0 + size) * np.where(late, pace, 1.0)
    start = np.cumsum(np.where(late, 1.0 / rate, 1.0 / 6.0))
    return requests(
        n,
        start_s=start,
        queue_ms=1.0,
        prefill_ms=20.0,
        decode_ms=99.0 * token,
        output_tokens=100,
        input_tokens=100,
        tpot_ms=token,
    )


def test_more_requests_fill_batches_where_nobody_waits() -> None:
    """1.25 times the requests: 6 / (1 - 0.6 x 1.25) x 0.4 x 1.25 = 12 at a time, which take 16 ms a token instead of 10."""
    found = run(crowd(1.25), slo=Slo(e2e_ms=1_600.0))
    finding = the(found, "under_capacity")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "under_capacity",
        ["under_capacity"],
    )
    assert finding.evidence["arrivals_ratio"] == pytest.approx(1.25, abs=0.03)
    assert finding.evidence["running_now"] > 1.5 * finding.evidence["running_before"]
    assert finding.fix is not None
    assert (finding.fix.id, finding.fix.parameters) == ("replicas", {"replicas": 2})


def test_silent_when_each_batch_is_slower_than_it_was() -> None:
    """The machine needs 1.4 times as long for the same batch: as many requests as before are slow too."""
    assert of(run(crowd(1.2, pace=1.4), slo=Slo(e2e_ms=1_600.0)), "under_capacity") is None


@pytest.mark.parametrize("lasts", [True, False])
def test_a_wait_of_a_part_of_the_service_time_is_an_overload_where_most_have_it_all_the_time(
    lasts: bool,
) -> None:
    """Answers take 400 ms in the engine and wait 160 to 240 ms before it, in all of the window or in its first third."""
    waits = 160.0 + np.random.default_rng(1).uniform(0.0, 80.0, 600)
    rows = requests(
        600,
        start_s=np.arange(600.0),
        queue_ms=np.where(lasts | (np.arange(600) < 200), waits, 2.0),
        prefill_ms=100.0,
        decode_ms=300.0,
    )
    load = growth(rows)
    assert not load.growing
    assert load.standing is lasts


def test_what_the_former_engine_would_have_taken_for_as_many_requests() -> None:
    """A token takes 10 ms: 4 + 1 for each of 4 calls + 2 for what is read. With t ms a token, 1.25 times the requests are 4 x 1.25 x t / 10 calls:
    t = 4 + 2 x 1.25 + t / 2 = 13 ms, 3 of the 12 ms that a token now takes longer. 2.5 times the requests fill it: t = 4 + 5 + t."""
    before = Line(
        base_ms=4.0,
        batch_ms=1.0,
        prefill_ms=0.001,
        running=4.0,
        prefill=2_000.0,
        token_ms=10.0,
        n=500,
    )
    now = before._replace(running=12.0, token_ms=22.0)
    assert former_slowdown(before, now, 1.25) == pytest.approx(0.25)
    assert former_slowdown(before, now, 1.0) == 0.0
    assert former_slowdown(before, now, 2.5) == 1.0
    assert former_slowdown(before, before, 1.25) == 1.0


@pytest.mark.parametrize(("turns", "named"), [([0, 1, 2], True), ([0, 1, 2, 0, 1, 2, 0, 0], False)])
def test_the_first_of_equal_replicas_to_fill_is_not_at_fault(turns: list[int], named: bool) -> None:
    """Requests come 1.5 times as often and wait on one of three replicas alone, which gets every third of them; in the twin it gets half: it is hot."""
    n, calm = 1500, 600
    late, turn = np.arange(n) >= calm, np.resize(turns, n)
    tokens = np.random.default_rng(5).integers(80, 121, n)
    frame = requests(
        n,
        start_s=np.cumsum(np.where(late, 0.5 / 1.5, 0.5)),
        queue_ms=np.where(late & (turn == 0), 4_000.0, 5.0),
        prefill_ms=100.0,
        decode_ms=tokens * 10.0,
        output_tokens=tokens,
        input_tokens=500,
    )
    found = run(frame, calls=[calls_of(frame, engine_instance=[f"gpu-{k}" for k in turn])], slo=E2E)
    assert (of(found, "under_capacity") is not None) is named
