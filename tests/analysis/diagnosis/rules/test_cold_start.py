"""cold_start: fires on new replicas that are slow in their first minute, and on old ones that begin again; silent when they stay slow."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.fleet import LATE, N, fleet
from tests.analysis.diagnosis.rules.hosted import N as HOSTED

# Starts are half a second apart: the onset is at 300 s, and calls 600 to 719 fall into the minute after it.
REPLICA = np.where(LATE & (np.arange(N) % 3 == 0), 9, np.arange(N) % 2)
TIGHT = Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99)
YOUNG = (REPLICA == 9) & (np.arange(N) < 720)


def test_fires_on_the_first_minute_of_a_new_replica() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(YOUNG, 60.0, 10.0))
    found = run(frame, calls=[calls], slo=TIGHT)
    finding = the(found, "cold_start")
    assert (found.verdict.cause, causes(found)) == ("cold_start", ["cold_start"])
    assert finding.evidence["new_instances"] == ["gpu-9"]
    assert finding.evidence["young_calls"] == int(YOUNG.sum()) == 40
    assert finding.evidence["ratio"] == pytest.approx(5.5, abs=0.6)


@pytest.mark.parametrize(("warms_up", "named"), [(True, ["cold_start"]), (False, [])])
def test_a_new_replica_that_is_less_than_twice_as_slow_is_cold_where_it_gets_faster_with_its_age(
    warms_up: bool, named: list[str]
) -> None:
    """1.6 times as slow in its first minute and as fast as the others in its fifth, or the same calls in any order."""
    slower = 1.0 + 1.3 * 2.0 ** (-(np.arange(N) - 600) / 60.0)
    mine = np.flatnonzero(LATE & (REPLICA == 9))
    slower[mine] = slower[mine] if warms_up else np.random.default_rng(1).permutation(slower[mine])
    frame, calls = fleet(REPLICA, token_ms=np.where(REPLICA == 9, 18.0 * slower, 18.0))
    found = run(frame, calls=[calls], slo=TIGHT)
    assert causes(found) == named


@pytest.mark.parametrize(
    ("slow", "named"), [("first", ["cold_start"]), ("whenever", []), ("everywhere", [])]
)
def test_a_new_replica_that_is_warm_within_its_first_minute_is_cold_before(
    slow: str, named: list[str]
) -> None:
    """3 times as slow at first, by half less each 24 s; the same calls in any order, and the same slowness on the other replicas at that time."""
    slower = 1.0 + 2.0 * 2.0 ** (-(np.arange(N) - 600) / 48.0)
    mine = np.flatnonzero(LATE & (REPLICA == 9))
    slower[mine] = (
        slower[mine] if slow != "whenever" else np.random.default_rng(1).permutation(slower[mine])
    )
    frame, calls = fleet(
        REPLICA,
        token_ms=np.where((REPLICA == 9) | (LATE & (slow == "everywhere")), 18.0 * slower, 18.0),
    )
    found = run(frame, calls=[calls], slo=Slo(e2e_ms=2_800.0, percentile=99.0, goodput_target=0.99))
    assert [cause for cause in causes(found) if cause == "cold_start"] == named


def test_a_replica_that_is_cold_for_minutes_is_no_straggler_beside() -> None:
    slow = (REPLICA == 9) & LATE
    frame, calls = fleet(REPLICA, token_ms=np.where(slow, 60.0, 10.0))
    found = run(frame, calls=[calls], slo=TIGHT)
    assert causes(found) == ["cold_start"]
    assert any(
        out.what == "straggler_replica" and "is a consequence of cold_start" in out.figure
        for out in found.verdict.ruled_out
    )


def test_a_cold_replica_to_which_a_router_sends_little_is_cold_for_as_long() -> None:
    """It takes three to six times as long for four minutes, in which it gets one call in eight seconds: fewer than five in any half minute."""
    n = np.arange(N)
    replica = np.where(LATE & (n % 16 == 0), 9, n % 2)
    mine = replica == 9
    frame, calls = fleet(
        replica, token_ms=np.where(mine, 10.0 * (3.0 + 3.0 * 2.0 ** (-(n - 600) / 120.0)), 10.0)
    )
    finding = the(run(frame, calls=[calls], slo=TIGHT), "cold_start")
    assert (
        32 <= finding.evidence["young_calls"] <= int(mine.sum()) == 37
    )  # fewer than a step needs may be left at the end
    assert finding.evidence["share_of_slow"] > 0.8


def test_silent_when_the_replica_was_there_before() -> None:
    replica = np.where(np.arange(N) % 3 == 0, 9, np.arange(N) % 2)
    frame, calls = fleet(replica, token_ms=np.where(LATE & (replica == 9), 60.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert of(found, "cold_start") is None
    assert found.verdict.cause == "straggler_replica"


def test_one_cold_instance_among_new_ones_is_named_alone() -> None:
    n = np.arange(N)
    replica = np.where(LATE, n % 4, n % 2)
    frame, calls = fleet(replica, token_ms=np.where((replica == 3) & (n < 720), 60.0, 10.0))
    finding = the(run(frame, calls=[calls], slo=TIGHT), "cold_start")
    assert finding.evidence["new_instances"] == ["gpu-3"]


def test_fires_on_a_replica_that_begins_again() -> None:
    n = np.arange(N)
    replica = n % 3
    cold = (replica == 2) & LATE
    frame, calls = fleet(
        replica, token_ms=np.where(cold, 10.0 * (1.0 + 6.0 * 2.0 ** (-(n - 600) / 80.0)), 10.0)
    )
    found = run(frame, calls=[calls], slo=TIGHT)
    assert (found.verdict.cause, causes(found)) == ("cold_start", ["cold_start"])
    assert the(found, "cold_start").evidence["new_instances"] == ["gpu-2"]


def test_a_quick_replica_that_becomes_as_slow_as_the_others_for_a_while_did_not_begin_again() -> (
    None
):
    """A token takes 10 ms where the others need 30; 70 ms at once, and within a minute and a half less than theirs: in all of that time 0.88 times theirs."""
    n = np.arange(N)
    frame, calls = fleet(
        n % 3,
        token_ms=np.where(
            n % 3 != 2, 30.0, np.where(LATE, 10.0 * (1.0 + 6.0 * 2.0 ** (-(n - 600) / 80.0)), 10.0)
        ),
    )
    found = run(frame, calls=[calls], slo=Slo(e2e_ms=3_750.0, percentile=99.0, goodput_target=0.99))
    assert of(found, "cold_start") is None


def test_a_straggler_that_recovers_at_once_did_not_begin_again() -> None:
    n = np.arange(N)
    replica = n % 3
    frame, calls = fleet(replica, token_ms=np.where((replica == 2) & LATE & (n < 900), 60.0, 10.0))
    found = run(frame, calls=[calls], slo=TIGHT)
    assert found.verdict.cause == "straggler_replica"


def test_all_slow_at_once_and_faster_again_is_no_start() -> None:
    n = np.arange(N)
    frame, calls = fleet(
        n % 3, token_ms=np.where(LATE, 10.0 * (1.0 + 6.0 * 2.0 ** (-(n - 600) / 80.0)), 10.0)
    )
    assert of(run(frame, calls=[calls], slo=TIGHT), "cold_start") is None


def test_an_engine_that_tells_of_calls_given_up_is_no_new_instance_of_the_application() -> None:
    """Since the onset every third client gives its call up, and the engine's half of it stands alone, under the engine's name, after a long wait."""
    left = LATE & (np.arange(N) % 3 == 0)
    frame, calls = fleet(np.arange(N) % 2, queue_ms=np.where(left, 2_000.0, 5.0))
    frame, calls = (
        frame.with_columns(instance=pl.lit("app-0")),
        calls.with_columns(instance=pl.lit("app-0")),
    )
    halves = calls.filter(pl.Series(left)).with_columns(
        span_id=pl.col("span_id") + 1_000_000,
        engine_span_id=pl.col("span_id") + 1_000_000,
        instance=pl.col("engine_instance"),
        on_path=pl.lit(False),
    )
    found = run(frame, calls=[pl.concat([calls, halves], how="diagonal_relaxed")], slo=E2E)
    assert of(found, "cold_start") is None


@pytest.mark.parametrize(("end_ms", "cause"), [(40.0, "straggler_replica"), (14.0, "cold_start")])
def test_a_straggler_that_gets_a_little_faster_as_its_batch_empties_did_not_begin_again(
    end_ms: float, cause: str
) -> None:
    """65 ms a token at first, and by the window's end 40, which is nowhere near the others' 10, or 14."""
    n = np.arange(N)
    slow = 65.0 * (end_ms / 65.0) ** ((n - 600) / 600.0)
    frame, calls = fleet(n % 3, token_ms=np.where((n % 3 == 2) & LATE, slow, 10.0))
    assert run(frame, calls=[calls], slo=TIGHT).verdict.cause == cause


@pytest.mark.parametrize("warms_up", [True, False])
def test_an_instance_of_the_application_that_loads_its_index_is_cold_though_its_calls_are_quick(
    warms_up: bool,
) -> None:
    """New instances search for 100 ms, and for 4 s more at first, half as much after every 20 s; or one that was there before does."""
    n = np.arange(N)
    mine = LATE & (n % 3 == 0)
    name = np.where(mine, "app-9" if warms_up else "app-1", np.where(n % 2 == 0, "app-0", "app-1"))
    search = 100.0 + np.where(mine, 4_000.0 * 2.0 ** (-(n - 600) / 40.0), 0.0)
    frame = requests(
        N,
        start_s=n * 0.5,
        retrieval_ms=search,
        first_token_ms=300.0,
        decode_ms=1_000.0,
        instance=name.tolist(),
    )
    found = run(frame, calls=[calls_of(frame, instance=name.tolist())], slo=TIGHT)
    assert causes(found) == (["cold_start"] if warms_up else ["slow_dependency"])
    if warms_up:
        finding = the(found, "cold_start")
        assert (found.verdict.stage, finding.evidence["new_instances"]) == ("retrieval", ["app-9"])
        assert any(
            out.what == "slow_dependency" and "is a consequence of cold_start" in out.figure
            for out in found.verdict.ruled_out
        )


@pytest.mark.parametrize(("warms_up", "cold"), [(True, True), (False, False)])
def test_a_deploy_that_replaces_all_instances_is_a_cold_start_only_where_they_get_faster(
    warms_up: bool, cold: bool
) -> None:
    """Searches take longer and longer since the onset, and all instances have new names a minute later; or it is these that load something first."""
    n = np.arange(N)
    name = np.where(n < 720, "app-", "new-") + (n % 3).astype("U1")
    slow = (
        np.where(n >= 720, 4_000.0 * 2.0 ** (-(n - 720) / 60.0), 0.0)
        if warms_up
        else np.where(LATE, (n - 600) * 20.0, 0.0)
    )
    frame = requests(
        N,
        start_s=n * 0.5,
        retrieval_ms=100.0 + slow,
        first_token_ms=300.0,
        decode_ms=1_000.0,
        instance=name.tolist(),
    )
    found = run(frame, calls=[calls_of(frame, instance=name.tolist())], slo=TIGHT)
    assert (of(found, "cold_start") is not None) == cold


def test_new_instances_of_the_caller_did_not_bring_a_queue_that_the_engine_tells_of() -> None:
    """The engines' queue grows since the onset and is worked off again; a minute after it all instances of the application have new names."""
    n = np.arange(N)
    name = np.where(n < 720, "app-", "new-") + (n % 3).astype("U1")
    queue = np.where(LATE, np.minimum((n - 600) * 30.0, (N - n) * 60.0), 5.0)
    frame, calls = fleet(n % 2, queue_ms=queue)
    calls = calls.with_columns(instance=pl.Series(name.tolist()))
    assert (
        of(
            run(frame.with_columns(instance=pl.Series(name.tolist())), calls=[calls], slo=E2E),
            "cold_start",
        )
        is None
    )


PAUSE_S = np.where(np.arange(HOSTED) % 12 == 5, 400.0, 30.0)
