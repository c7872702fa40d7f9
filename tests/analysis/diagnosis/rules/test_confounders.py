"""What looks like a cause and is another one, or none: batch beside chat, split roles, a provider seen from outside, one's own back-off."""

from __future__ import annotations

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import calls_of, requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted

ENGINE = ("queue", "prefill", "kv_transfer")


def test_slow_batch_jobs_are_no_incident_of_the_chat() -> None:
    half = np.arange(N) % 2 == 0
    frame = requests(
        N,
        workload=np.where(half, "batch", "chat").tolist(),
        queue_ms=np.where(half & LATE, 60_000.0, 5.0),
        prefill_ms=100.0,
        ttft_ms=100.0,
        decode_ms=800.0,
    )
    assert (run(frame).verdict.status, run(frame).findings) == ("within_budget", [])
    assert run(frame, workload="batch").verdict.status == "over_budget"


def test_chat_that_waits_behind_a_batch_job_is_short_of_capacity_and_not_badly_written() -> None:
    """From the middle on two long batch calls stand beside every chat call: chat waits, its own prompts and answers are as ever."""
    chat = requests(
        600,
        queue_ms=np.where(np.arange(600) >= 300, 4_000.0, 5.0),
        prefill_ms=100.0,
        decode_ms=500.0,
        workload="chat",
    )
    batch = requests(
        600,
        start_s=300.0 + np.arange(600) * 0.5,
        queue_ms=4_000.0,
        prefill_ms=900.0,
        decode_ms=5_000.0,
        workload="batch",
        input_tokens=4_000,
        output_tokens=800,
    )
    found = run(
        chat,
        batch,
        calls=[calls_of(chat, workload="chat"), calls_of(batch, workload="batch")],
        slo=E2E,
    )
    assert (found.verdict.status, found.verdict.stage) == ("over_budget", "queue")
    assert not set(causes(found)) & {"prompt_bloat", "long_outputs", "mixed_lengths"}
    assert found.verdict.cause == "under_capacity"


def test_engines_that_read_are_no_peers_of_engines_that_write() -> None:
    """Two engines prefill 4,000 tokens in 400 ms and write one token; two others decode for them. Nobody lags and nobody has too much."""
    reads = np.arange(N) % 2 == 0
    out = np.where(reads, 1, 100)
    frame = requests(
        N,
        queue_ms=np.where(LATE & (np.arange(N) % 3 == 0), 4_000.0, 5.0),
        prefill_ms=np.where(reads, 400.0, 1.0),
        decode_ms=np.where(reads, 0.0, 1_500.0),
        input_tokens=4_000,
        output_tokens=out,
    )
    engines = [f"{'prefill' if reads[i] else 'decode'}-{i // 2 % 2}" for i in range(N)]
    found = run(frame, calls=[calls_of(frame, engine_instance=engines)], slo=E2E)
    assert found.verdict.status == "over_budget"
    assert not set(causes(found)) & {"straggler_replica", "hot_replica"}


@pytest.mark.parametrize("engine", [2, 3])
def test_a_straggler_is_found_among_engines_of_its_role(engine: int) -> None:
    kind = np.arange(N) % 4
    reads = kind < 2
    slow = LATE & (kind == engine)
    decode = np.where(reads, 0.0, np.where(slow, 6_000.0, 1_500.0))
    frame = requests(
        N,
        queue_ms=5.0,
        prefill_ms=np.where(reads, 400.0, 1.0),
        decode_ms=decode,
        input_tokens=4_000,
        output_tokens=np.where(reads, 1, 100),
    )
    found = run(frame, calls=[calls_of(frame, engine_instance=[f"gpu-{k}" for k in kind])], slo=E2E)
    assert (found.verdict.cause, found.verdict.stage) == ("straggler_replica", "decode")


@pytest.mark.parametrize(
    ("first_ms", "token_ms", "slo", "cause", "stage"),
    [
        (2_400.0, 10.0, Slo(ttft_ms=1_000.0), "provider_queueing", "first_token"),
        (400.0, 40.0, E2E, "token_rate_sag", "decode"),
    ],
)
def test_a_provider_is_not_looked_into(
    first_ms: float, token_ms: float, slo: Slo, cause: str, stage: str
) -> None:
    """Seen from the client alone, a late first token is no prefill or queue, and a gap in the stream is its delivery: no rule of the engine speaks."""
    late = LATE & ((np.arange(N) // 60) % 2 == 0)
    frame = hosted(np.where(late, first_ms, 400.0), np.where(late, token_ms, 10.0))
    found = run(
        frame, calls=[calls_of(frame, itl_max_ms=np.where(late, 20.0 * token_ms, 30.0))], slo=slo
    )
    assert (found.verdict.cause, found.verdict.stage, found.verdict.owner) == (
        cause,
        stage,
        "provider",
    )
    assert not set(causes(found)) & {
        "decode_stall",
        "kv_pressure",
        "batch_past_knee",
        "under_capacity",
        "straggler_replica",
        "hot_replica",
    }
    assert not {row.stage for row in found.stages} & set(ENGINE)


@pytest.mark.parametrize(
    ("paused", "cause"), [(True, "client_throttled"), (False, "provider_queueing")]
)
def test_ones_own_pause_after_refusals_is_told_from_a_provider_that_is_late(
    paused: bool, cause: str
) -> None:
    """One call in twenty is refused on either side. The 3 s are a pause before the second attempt, or the provider's first token."""
    n = 600
    late, refused = np.arange(n) >= 300, np.arange(n) % 20 == 0
    wait = np.where(late, 3_000.0, 0.0)
    nothing = np.zeros(n)
    pause, first = (wait, nothing) if paused else (nothing, wait)
    frame = requests(
        n, other_ms=5.0 + pause, first_token_ms=300.0 + first, decode_ms=300.0, provider="openai"
    )
    no = spans_of(
        frame,
        "chat m",
        "generation",
        0.0,
        5.0,
        span_id=2,
        role=ROLE["llm"],
        http_status=429,
        keep=late if paused else refused,
    )
    yes = spans_of(
        frame, "chat m", "generation", 5.0 + pause, 600.0 + first, span_id=3, role=ROLE["llm"]
    )
    found = run(frame, spans=[no, yes], slo=E2E)
    assert found.verdict.cause == cause
    assert of(found, "provider_queueing" if paused else "client_throttled") is None
