"""gateway_queue: fires on gateway time and on a gap that follows the load, silent on a gap that does not."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 800
LATE = np.arange(N) >= 400


def test_fires_on_gateway_spans() -> None:
    found = run(
        requests(N, gateway_ms=np.where(LATE, 2_500.0, 5.0), first_token_ms=300.0, decode_ms=500.0),
        slo=E2E,
    )
    finding = the(found, "gateway_queue")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "gateway",
        "gateway_queue",
        ["gateway_queue"],
    )
    assert (finding.evidence["between_ms_slow"], finding.evidence["between_ms_reference"]) == (
        2_500.0,
        5.0,
    )


def _behind_a_proxy(by_load: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Bursts of ten; the k-th of a burst waits k x 500 ms in front of the engine, or at random."""
    k = np.arange(N) % 10
    order = k if by_load else np.random.default_rng(1).permutation(k)
    gap = np.where(LATE, 500.0 * order, 2.0)
    # A second burst-free half: calls of one burst begin within 0.2 s of each other.
    frame = requests(
        N,
        start_s=(np.arange(N) // 10) * 10.0 + 0.3 * k,
        network_ms=gap,
        queue_ms=1.0,
        prefill_ms=100.0,
        decode_ms=500.0,
    )
    return frame, calls_of(frame, engine_e2e_ms=np.full(N, 601.0))


def test_fires_on_a_gap_that_follows_the_load() -> None:
    frame, calls = _behind_a_proxy(by_load=True)
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "gateway_queue")
    assert found.verdict.cause == "gateway_queue"
    assert finding.evidence["load_correlation"] > 0.3
    assert finding.evidence["queue_ms_slow"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spared", "cause"), [(True, "slow_dependency"), (False, "connection_churn")]
)
def test_in_a_sample_a_queue_spares_quick_calls_and_a_handshake_nobody(
    spared: bool, cause: str
) -> None:
    """Gaps of 2 ms before; since the onset of 0.5 to 5 s whatever the load, or of 2 ms still for three calls in ten."""
    place = np.random.default_rng(1).permutation(np.arange(N) % 10)
    gap = np.where(LATE, np.where(spared & (place < 3), 2.0, 500.0 * (place + 1)), 2.0)
    frame = requests(
        N,
        start_s=np.arange(N) * 1.0,
        network_ms=gap,
        queue_ms=1.0,
        prefill_ms=100.0,
        decode_ms=500.0,
    )
    calls = [calls_of(frame, engine_e2e_ms=np.full(N, 601.0))]
    assert run(frame, calls=calls, slo=E2E, coverage=0.1).verdict.cause == cause
    assert run(frame, calls=calls, slo=E2E).verdict.cause == cause


def test_silent_on_a_gap_that_does_not() -> None:
    frame, calls = _behind_a_proxy(by_load=False)
    assert of(run(frame, calls=[calls], slo=E2E), "gateway_queue") is None


def _way(inside: np.ndarray, beyond: np.ndarray) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Requests whose calls spend `inside` in the engine beside its stages, and `beyond` outside of what it reports."""
    frame = requests(
        N,
        start_s=np.arange(N) * 1.0,
        network_ms=inside + beyond,
        queue_ms=1.0,
        prefill_ms=100.0,
        decode_ms=500.0,
    )
    return frame, calls_of(frame, engine_e2e_ms=601.0 + inside)


@pytest.mark.parametrize(
    ("inside_part", "cause"), [(0.6, "gateway_queue"), (0.0, "slow_dependency")]
)
def test_time_of_the_engine_beside_its_stages_is_its_front_end(
    inside_part: float, cause: str
) -> None:
    """A starved machine: two calls in three wait 1 to 4 s, whatever the load; the engine itself measured most of that, or nothing."""
    draw = np.random.default_rng(7)
    late = np.where(LATE & (draw.random(N) < 0.67), draw.uniform(1_000.0, 4_000.0, N), 0.0)
    frame, calls = _way(20.0 + inside_part * late, 10.0 + (1.0 - inside_part) * late)
    found = run(frame, calls=[calls], slo=E2E)
    assert found.verdict.cause == cause
    assert of(found, "connection_churn") is None
    if inside_part:
        finding = the(found, "gateway_queue")
        assert finding.evidence["front_end_inside"]["usual_ms"] == pytest.approx(20.0, rel=0.3)
        assert "the engine's front end (HTTP, tokenising, detokenising) takes" in finding.headline
        assert finding.fix is not None
        assert finding.fix.id == "front_end_capacity"


def test_time_before_an_engine_queues_a_call_is_not_the_application_s_own() -> None:
    """The engine's process stands still now and then: calls that come meanwhile are queued later, within the engine's span."""
    start = np.cumsum(np.random.default_rng(3).exponential(0.4, N))
    still = np.where(LATE & (start % 25.0 < 4.0), 4_000.0 - 1e3 * (start % 25.0), 0.0)
    frame = requests(
        N, start_s=start, other_ms=10.0 + still, queue_ms=1.0, prefill_ms=100.0, decode_ms=500.0
    )
    found = run(frame, calls=[calls_of(frame, engine_e2e_ms=611.0 + still)], slo=E2E)
    assert found.verdict.cause == "gateway_queue"
    assert "the engine's front end" in the(found, "gateway_queue").headline


def test_a_front_end_that_always_took_as_long_is_not_named() -> None:
    """The engine has 300 ms beside its stages in every call; what is late is a proxy that queues by load."""
    frame, calls = _behind_a_proxy(by_load=True)
    calls = calls.with_columns(engine_e2e_ns=pl.lit(901_000_000))
    finding = of(run(frame, calls=[calls], slo=E2E), "gateway_queue")
    assert finding is None or "front end (HTTP" not in finding.headline
