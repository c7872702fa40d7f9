"""straggler_replica: fires on the replica that is slower at the same work, is silent when it has longer answers or all are slower."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.fleet import LATE, N, fleet

REPLICA = np.arange(N) % 4


def test_fires_on_the_slow_replica_with_its_factor() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "straggler_replica")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "straggler_replica",
        ["straggler_replica"],
    )
    assert (finding.service, finding.evidence["instance"]) == ("gpu-2", "gpu-2")
    # Tokens four times as slow behind the same prefill of about 100 ms: (100 + 4,000) / (100 + 1,000).
    assert finding.evidence["slower"] == pytest.approx(4_100 / 1_100, rel=0.06)
    assert (finding.evidence["share_of_slow"], finding.evidence["share_of_all"]) == (
        1.0,
        pytest.approx(0.25, abs=0.01),
    )
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    # Its requests at its peers' pace: at most 100 + 120 x 10 ms.
    assert finding.fix.predicted.after == pytest.approx(1_300.0, abs=80.0)


def test_who_waits_before_a_slow_replica_waits_for_its_work() -> None:
    slow = LATE & (REPLICA == 2)
    frame, calls = fleet(
        REPLICA, queue_ms=np.where(slow, 9_000.0, 5.0), token_ms=np.where(slow, 40.0, 10.0)
    )
    found = run(frame, calls=[calls], slo=E2E)
    assert (found.verdict.stage, found.verdict.cause) == ("decode", "straggler_replica")


def test_an_agent_that_calls_a_slow_replica_among_quick_ones_lost_its_time_there() -> None:
    """Three calls a request, to three of four replicas in turn; since the onset those to one of them wait 4 s and take three times as long."""
    n = np.arange(N)
    engines = [(n + k) % 4 for k in range(3)]
    slow = [LATE & (engine == 2) for engine in engines]
    waits, writes = (
        [np.where(one, 4_000.0, 5.0) for one in slow],
        [np.where(one, 3_000.0, 1_000.0) for one in slow],
    )
    frame = requests(
        N,
        queue_ms=sum(waits),
        prefill_ms=300.0,
        decode_ms=sum(writes),
        output_tokens=300,
        input_tokens=1_500,
        llm_calls=3,
    )
    calls = [
        calls_of(
            frame,
            engine_instance=[f"gpu-{k}" for k in engines[i]],
            span_id=list(range(10_000 * i + 1, 10_000 * i + N + 1)),
            queue_ms=waits[i],
            prefill_ms=100.0,
            decode_ms=writes[i],
            duration_ms=waits[i] + writes[i] + 100.0,
            ttft_ms=waits[i] + 100.0,
            output_tokens=100,
            input_tokens=500,
        )
        for i in range(3)
    ]
    found = run(frame, calls=calls, slo=Slo(e2e_ms=5_000.0))
    finding = the(found, "straggler_replica")
    assert (found.verdict.cause, finding.evidence["instance"]) == ("straggler_replica", "gpu-2")
    assert finding.evidence["share_of_slow"] == pytest.approx(1 / 3, abs=0.02)
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.05)


def test_silent_when_all_replicas_became_slower() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (np.arange(N) % 3 == 0), 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert found.verdict.stage == "decode"
    assert of(found, "straggler_replica") is None
    assert any(out.what == "straggler_replica" for out in found.verdict.ruled_out)


def test_silent_on_a_replica_that_was_as_slow_before() -> None:
    frame, calls = fleet(
        REPLICA,
        queue_ms=np.where(LATE & (np.arange(N) % 3 == 0), 6_000.0, 5.0),
        token_ms=np.where(REPLICA == 2, 15.0, 10.0),
    )
    assert of(run(frame, calls=[calls], slo=E2E), "straggler_replica") is None


def test_engines_without_names_are_not_compared() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    assert (
        of(run(frame, calls=[calls.drop("engine_instance")], slo=E2E), "straggler_replica") is None
    )


@pytest.mark.parametrize(("host", "named"), [(1.0, False), (4.0, True)])
def test_a_replica_whose_calls_come_in_bunches_is_slower_by_its_batch_alone(
    host: float, named: bool
) -> None:
    """Two replicas with as many calls: one gets them apart, the other 2 to 10 at a time, and a token takes 5 ms for each call of the batch."""
    sizes = np.tile(np.arange(2, 11), 12)
    bunch = np.repeat(np.arange(len(sizes)), sizes)
    n, batch = len(bunch), np.repeat(sizes, sizes).astype(np.float64)
    start = np.r_[
        np.arange(n) * 2.0, bunch * 12.0, n * 2.0 + np.arange(n) * 2.0, n * 2.0 + bunch * 12.0
    ]
    replica = np.tile(np.repeat([0, 1], n), 2)
    late = np.arange(4 * n) >= 2 * n
    pace = 5.0 * np.where(late & (replica == 1), np.tile(batch, 4) * host, 1.0)
    order = np.argsort(start, kind="stable")
    frame = requests(
        4 * n,
        start_s=start[order],
        queue_ms=1.0,
        prefill_ms=20.0,
        decode_ms=100.0 * pace[order],
        output_tokens=101,
        input_tokens=500,
    )
    calls = calls_of(frame, engine_instance=[f"gpu-{k}" for k in replica[order]])
    assert (of(run(frame, calls=[calls], slo=E2E), "straggler_replica") is not None) is named


def test_a_replica_with_twice_the_work_is_not_called_slow_in_batches_that_its_peers_never_had() -> (
    None
):
    """It gets 46 % of the calls of four replicas since the onset and takes four times as long for a token, in batches that none of the others fills."""
    hot = np.where(LATE & (np.arange(N) % 7 < 2), 2, REPLICA)
    frame, calls = fleet(hot, token_ms=np.where(LATE & (hot == 2), 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert of(found, "straggler_replica") is None
    assert found.verdict.cause == "hot_replica"
