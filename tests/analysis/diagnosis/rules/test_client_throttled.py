"""client_throttled: fires on waiting in front of calls and on pauses after refusals, silent when the same time has another name."""

import numpy as np
import polars as pl
import pytest

from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200
FRAME = requests(N, queue_ms=np.where(LATE, 3_000.0, 5.0), first_token_ms=200.0, decode_ms=300.0)


def test_fires_on_a_semaphore() -> None:
    found = run(
        FRAME,
        spans=[spans_of(FRAME, "llm semaphore wait", "queue", 0.0, np.where(LATE, 3_000.0, 5.0))],
        slo=E2E,
    )
    finding = the(found, "client_throttled")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "client_throttled",
        ["client_throttled"],
    )
    assert (finding.evidence["held_ms_slow"], finding.evidence["held_ms_reference"]) == (
        pytest.approx(3_000.0),
        pytest.approx(5.0),
    )
    assert finding.evidence["operation"] == "llm semaphore wait"


def test_fires_on_back_off_after_refusals() -> None:
    frame = requests(
        N, other_ms=np.where(LATE, 3_000.0, 5.0), first_token_ms=200.0, decode_ms=300.0
    )
    refused = spans_of(
        frame,
        "chat m",
        "generation",
        0.0,
        60.0,
        span_id=2,
        role=ROLE["llm"],
        http_status=429,
        keep=LATE,
    )
    answered = spans_of(
        frame,
        "chat m",
        "generation",
        np.where(LATE, 3_060.0, 0.0),
        500.0,
        span_id=3,
        role=ROLE["llm"],
    )
    found = run(frame, spans=[refused, answered], slo=E2E)
    finding = the(found, "client_throttled")
    assert found.verdict.cause == "client_throttled"
    assert finding.evidence["held_ms_slow"] == pytest.approx(3_000.0, abs=1.0)
    assert finding.evidence["refused_ratio"] == pytest.approx(0.5)


@pytest.mark.parametrize("own_ms", [0.0, 350.0])
@pytest.mark.parametrize(
    ("places", "cause"), [(True, "client_throttled"), (False, "unattributed_time")]
)
def test_a_semaphore_without_a_span_shows_in_calls_that_begin_as_others_end(
    places: bool, cause: str, own_ms: float
) -> None:
    # From the 200th request on one call at a time goes out, 800 ms each, and a request comes every 780 ms: the pause grows by 20 ms each time.
    pause = np.where(LATE, 20.0 * (np.arange(N) - 200.0), 0.0)
    # Without the semaphore the application is as late, but its calls end when they like.
    took = (
        np.where(LATE, 800.0, 300.0)
        if places
        else np.where(LATE, 420.0 + 90.0 * (np.arange(N) * 7 % 5), 300.0)
    )
    # Own work ahead of the pause holds no place, and makes the wait a smaller part of what the application takes itself.
    own = np.where(LATE, own_ms, 0.0)
    frame = requests(
        N,
        start_s=np.arange(N) * 0.78 - own / 1e3,
        prompt_ms=own,
        other_ms=pause,
        first_token_ms=200.0,
        decode_ms=took - 200.0,
    )
    root = spans_of(frame, "POST /ask", "other", 0.0, own + pause + took, span_id=1, parent_id=0)
    work = spans_of(frame, "build prompt", "prompt", 0.0, own, span_id=3)
    found = run(
        frame,
        spans=[
            root,
            work,
            spans_of(frame, "chat m", "generation", own + pause, took, span_id=2, role=ROLE["llm"]),
        ],
        slo=E2E,
    )
    assert (found.verdict.cause, causes(found)) == (cause, [cause] if places else [])


def test_silent_without_a_brake_of_ones_own() -> None:
    found = run(
        FRAME,
        spans=[spans_of(FRAME, "prefill_waiting", "queue", 0.0, np.where(LATE, 3_000.0, 5.0))],
        slo=E2E,
    )
    assert of(found, "client_throttled") is None


def inside_calls_of(frame: pl.DataFrame, wait_ms: np.ndarray, *, http: bool) -> list[pl.DataFrame]:
    """Requests with one call of 500 ms, begun `wait_ms` after the call's span where HTTP requests have spans."""
    call = spans_of(
        frame, "chat m", "generation", 0.0, wait_ms + 500.0, span_id=2, role=ROLE["llm"], kind=3
    )
    post = spans_of(
        frame,
        "POST",
        "network",
        wait_ms,
        500.0,
        span_id=3,
        parent_id=2,
        kind=3,
        attributes={
            "http.request.method": "POST",
            "url.full": "https://api.openai.com/v1/chat/completions",
        },
    )
    return [call, post] if http else [call]


@pytest.mark.parametrize("http", [True, False])
def test_the_wait_inside_a_call_shows_by_its_http_request_alone(http: bool) -> None:
    wait = np.where(LATE, 3_000.0, 5.0)
    frame = requests(N, first_token_ms=wait + 200.0, decode_ms=300.0)
    found = run(frame, spans=inside_calls_of(frame, wait, http=http), slo=E2E)
    finding = of(found, "client_throttled")
    assert (finding is not None) == http
    if finding is not None:
        assert finding.stage == "first_token"
        assert finding.evidence["held_inside_calls_ms_slow"] == pytest.approx(3_000.0)
        assert "under way at once" in finding.headline
        assert found.verdict.owner == "app"


@pytest.mark.parametrize(
    ("ms", "name", "fires"),
    [(60.0, "chat m", True), (2_000.0, "chat other", True), (2_000.0, "chat m", False)],
)
def test_attempts_that_fail_are_lost_unless_the_same_call_was_given_up_slowly(
    ms: float, name: str, fires: bool
) -> None:
    """An attempt fails, quickly or for another model to be asked, and the answer comes after a pause; what takes too long and is asked again is another cause."""
    frame = requests(N, other_ms=np.where(LATE, 3_000.0, 5.0), generation_ms=500.0)
    tried = spans_of(
        frame, name, "generation", 0.0, ms, span_id=2, role=ROLE["llm"], status=2, keep=LATE
    )
    begin = np.where(LATE, 3_000.0, 0.0)
    answer = spans_of(frame, "chat m", "generation", begin, 500.0, span_id=3, role=ROLE["llm"])
    found = of(run(frame, spans=[tried, answer], slo=E2E), "client_throttled")
    assert (found is not None) is fires
    if found is not None:
        assert found.evidence["operation"] == "failed attempts and the pauses after them"
        assert found.evidence["held_ms_slow"] == pytest.approx(3_000.0)
