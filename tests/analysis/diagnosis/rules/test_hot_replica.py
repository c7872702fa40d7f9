"""hot_replica: fires when one replica gets most of the work and its requests wait, is silent when the load is even."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.fleet import gini, lag_at_equal_batch, replicas
from overrun.analysis.words.slo import Slo
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.fleet import LATE, N, fleet

EVEN = np.arange(N) % 4
HOT = np.where(LATE & (np.arange(N) % 3 != 0), 1, EVEN)


def test_fires_on_the_replica_that_has_most_of_the_work() -> None:
    frame, calls = fleet(HOT, queue_ms=np.where(LATE & (HOT == 1), 5_000.0, 5.0))
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "hot_replica")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "hot_replica",
        ["hot_replica"],
    )
    # Two thirds by rule and a quarter of the last third: 75 % of the work.
    assert (finding.evidence["instance"], finding.evidence["share_of_all"]) == (
        "gpu-1",
        pytest.approx(0.75, abs=0.01),
    )
    assert finding.evidence["gini_now"] == pytest.approx(
        gini([0.75, 1 / 12, 1 / 12, 1 / 12]), abs=0.01
    )
    assert finding.evidence["gini_before"] == pytest.approx(0.0, abs=0.02)


def test_fires_on_a_third_more_than_its_share_where_only_its_requests_wait() -> None:
    warm = np.where(LATE & (np.arange(N) % 10 == 0), 1, EVEN)
    for wait_ms, fires in ((5_000.0, True), (5.0, False)):
        slow = np.where(LATE & (warm == 1), 5_000.0, 5.0)
        frame, calls = fleet(warm, queue_ms=slow)
        calls = calls if fires else calls.with_columns(queue_ns=int(wait_ms * 1e6))
        finding = of(run(frame, calls=[calls], slo=E2E), "hot_replica")
        assert (finding is not None) == fires
        if finding is not None:
            assert finding.evidence["gini_now"] < 0.15


def test_a_replica_with_a_quarter_more_than_its_share_is_named_where_its_calls_alone_wait() -> None:
    n = np.arange(N)
    replica = np.where(
        LATE, np.where(n % 16 == 0, 1, EVEN), np.random.default_rng(6).integers(0, 4, N)
    )
    frame, calls = fleet(replica, queue_ms=np.where(LATE & (replica == 1), 5_000.0, 5.0))
    assert of(run(frame, calls=[calls], slo=E2E), "hot_replica") is not None


@pytest.mark.parametrize(("more", "fires"), [(0.18, True), (0.03, False)])
def test_a_share_far_from_even_and_from_chance_needs_no_wait_many_times_its_peers(
    more: float, fires: bool
) -> None:
    """It gets 1.54 (1.09) times an even share since the onset; its calls wait 750 ms, the others' 300 ms."""
    warm = np.where(LATE & (np.random.default_rng(4).random(N) < more), 1, EVEN)
    busy = LATE & (warm == 1)
    frame, calls = fleet(warm, queue_ms=np.where(busy, 750.0, np.where(LATE, 300.0, 5.0)))
    assert (
        of(run(frame, calls=[calls], slo=Slo(e2e_ms=1_700.0)), "hot_replica") is not None
    ) is fires


def test_silent_when_the_load_is_even() -> None:
    found = run(
        *(pair := fleet(EVEN, queue_ms=np.where(LATE & (EVEN == 1), 5_000.0, 5.0)))[:1],
        calls=[pair[1]],
        slo=E2E,
    )
    assert found.verdict.stage == "queue"
    assert of(found, "hot_replica") is None


@pytest.mark.parametrize(("only_there", "fires"), [(True, True), (False, False)])
def test_a_load_that_was_as_uneven_before_is_named_where_its_requests_alone_wait(
    only_there: bool, fires: bool
) -> None:
    """Routing since long ago gives one replica too much, and something filled it: its callers could go elsewhere. Where all wait, all are full."""
    uneven = np.where(np.arange(N) % 3 != 0, 1, EVEN)
    frame, calls = fleet(
        uneven, queue_ms=np.where(LATE & ((uneven == 1) | (not only_there)), 5_000.0, 5.0)
    )
    assert (of(run(frame, calls=[calls], slo=E2E), "hot_replica") is not None) is fires


@pytest.mark.parametrize("host", [1.0, 2.0])
def test_a_full_batch_is_no_slow_host(host: float) -> None:
    """A token takes a millisecond for each call of the batch: two to four on three engines, 15 to 25 on the fourth, whose `host` takes times as long."""
    hot = np.arange(400) % 4 == 0
    running = np.where(hot, 15.0 + np.arange(400) % 11, 2.0 + np.arange(400) % 3)
    calls = Calls(
        pl.DataFrame(
            {
                "engine_instance": [f"gpu-{k % 4}" for k in range(400)],
                "model": "m",
                "output_tokens": 101.0,
                "queue_ms": 0.0,
                "prefill_ms": 50.0,
                "tpot_ms": None,
                "decode_ms": 100.0 * running * np.where(hot, host, 1.0),
            }
        )
    )
    calls.__dict__["running"] = running  # else read from when calls began and ended
    lag = lag_at_equal_batch(calls, "gpu-0")
    assert lag is not None
    assert (lag < 1.25) is (host == 1.0)


@pytest.mark.parametrize("host", [1.0, 1.6])
def test_a_batch_that_is_always_full_shows_no_line_of_its_own(host: float) -> None:
    """Tokens take 19 ms and 1.4 for each call of the batch; the fourth engine's stays at 14 to 16, where what prompts add hides what a call more takes."""
    k = np.arange(400)
    hot = k % 4 == 0
    running = np.where(hot, 14.0 + k // 4 % 3, 2.0 + k % 7)
    prompts = np.where(hot, 2.0 + 4.0 * (k // 12 % 3) - 1.4 * (running - 15.0), 0.0)
    token = (19.0 + 1.4 * running + prompts) * np.where(hot, host, 1.0)
    calls = Calls(
        pl.DataFrame(
            {
                "engine_instance": [f"gpu-{one % 4}" for one in k],
                "model": "m",
                "output_tokens": 101.0,
                "queue_ms": 0.0,
                "prefill_ms": 50.0,
                "tpot_ms": None,
                "decode_ms": 100.0 * token,
            }
        )
    )
    calls.__dict__["running"] = running
    lag = lag_at_equal_batch(calls, "gpu-0")
    assert lag is not None
    assert (lag < 1.25) is (host == 1.0)


def test_gini_of_known_shares() -> None:
    assert gini([0.25] * 4) == pytest.approx(0.0)
    assert gini([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.75)
    assert gini([0.5, 0.25, 0.25]) == pytest.approx(1 / 6)


@pytest.mark.parametrize("kind", ["rollout", "added"])
def test_engines_that_come_and_go_are_not_too_much_for_the_others(kind: str) -> None:
    """A rollout in the middle of the breach: what is gone had other calls. One that was added late has its share of the time since."""
    n = np.arange(N)
    if kind == "rollout":
        replica = np.where(n < 800, n % 2, 2 + n % 2)
    else:
        replica = np.where(n < 1_000, n % 3, n % 4)
    rng = np.random.default_rng(5)
    frame = pl.DataFrame(
        {
            "trace_key": n,
            "start_s": n * 0.5,
            "engine_instance": [f"gpu-{k}" for k in replica],
            "model": "m",
            "error": False,
            "input_tokens": 500,
            "cached_tokens": 0,
            "output_tokens": 100,
            "queue_ms": 5.0,
            "prefill_ms": 100.0 + rng.uniform(0, 5, N),
            "decode_ms": 1_000.0,
            "e2e_ms": 1_105.0,
            "ttft_ms": 105.0,
            "tpot_ms": 10.0,
        }
    )
    found = replicas(Calls(frame))
    assert [one.name for one in found] == (
        ["gpu-0", "gpu-1"] if kind == "rollout" else ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    )
    assert gini([one.share for one in found]) < 0.05
