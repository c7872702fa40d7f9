"""missing_cancellation: fires when engines write for clients that left, silent when they stop with them."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.abandoned_work import wasted
from overrun.analysis.evidence.calls import Calls
from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import calls_of, requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 800
LATE = np.arange(N) >= 400
LEFT = LATE & (np.arange(N) % 4 == 0)


def leaving(engine_goes_on: bool) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Every fourth client leaves after 1 s since the onset; the engine goes on for 4 s more, or not. The others wait."""
    wait = np.where(LATE & ~LEFT, 3_000.0, 5.0)
    frame = requests(
        N,
        queue_ms=wait,
        prefill_ms=200.0,
        decode_ms=np.where(LEFT, 800.0, 1_000.0),
        output_tokens=np.where(LEFT, 80, 100),
    )
    engine = np.where(LEFT, 5_000.0 if engine_goes_on else 1_000.0, wait + 1_200.0)
    return frame, calls_of(frame, engine_e2e_ms=engine)


def test_fires_with_the_wasted_share() -> None:
    frame, calls = leaving(True)
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "missing_cancellation")
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "missing_cancellation")
    # A quarter of the calls waste 3,995 of 5,000 ms of 80 tokens; the others write 100: 0.25 x 80 x 0.8 / (0.25 x 80 + 0.75 x 100).
    assert finding.evidence["wasted_token_ratio"] == pytest.approx(
        0.25 * 80 * 3_995 / 5_000 / 95, rel=0.02
    )
    assert finding.evidence["wasted_token_ratio_before"] == pytest.approx(0.0, abs=0.01)
    assert finding.evidence["outliving_calls_ratio"] == pytest.approx(0.25, abs=0.01)


def test_uncounted_tokens_are_wasted_by_their_time() -> None:
    frame, calls = leaving(True)
    uncounted = [side.with_columns(output_tokens=pl.lit(None, pl.Int64)) for side in (frame, calls)]
    finding = the(run(uncounted[0], calls=[uncounted[1]], slo=E2E), "missing_cancellation")
    # A quarter of the calls decode for 800 ms, of which 3,995 of 5,000 are wasted; the others for 1,000.
    assert finding.evidence["wasted_token_ratio"] == pytest.approx(
        0.25 * 800 * 3_995 / 5_000 / 950, rel=0.05
    )


def test_silent_when_engines_stop_with_their_clients() -> None:
    frame, calls = leaving(False)
    found = run(frame, calls=[calls], slo=E2E)
    assert found.verdict.stage == "queue"
    assert of(found, "missing_cancellation") is None


def test_a_cause_that_lay_in_wait_is_found_before_the_harm() -> None:
    # Engines go on since the 250th request; the waits come with the 800th, so that most of what came before them wastes as much.
    n, at = 1_000, np.arange(1_000)
    left, wait = (at >= 250) & (at % 4 == 0), np.where((at >= 800) & (at % 4 != 0), 3_000.0, 5.0)
    frame = requests(
        n,
        queue_ms=wait,
        prefill_ms=200.0,
        decode_ms=np.where(left, 800.0, 1_000.0),
        output_tokens=np.where(left, 80, 100),
    )
    found = run(
        frame,
        calls=[calls_of(frame, engine_e2e_ms=np.where(left, 5_000.0, wait + 1_200.0))],
        slo=E2E,
    )
    assert found.verdict.cause == "missing_cancellation"
    assert the(found, "missing_cancellation").evidence[
        "wasted_token_ratio_before"
    ] == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(
    ("longest_wait_s", "cause"), [(30.0, "missing_cancellation"), (120.0, "under_capacity")]
)
def test_more_users_are_the_cause_only_where_the_engine_could_not_serve_them_without_the_waste(
    longest_wait_s: float, cause: str
) -> None:
    # A third more arrive, and the wait grows over their 300 s: 1.1 or 1.4 times what the engine serves, of which 17 % go to clients that left.
    start = np.r_[np.arange(400) * 1.0, 400.0 + np.arange(400) * 0.75]
    wait = np.where(
        LATE & ~LEFT, np.r_[np.full(400, 5.0), np.linspace(5.0, 1e3 * longest_wait_s, 400)], 5.0
    )
    frame = requests(
        N,
        start_s=start,
        queue_ms=wait,
        prefill_ms=200.0,
        decode_ms=np.where(LEFT, 800.0, 1_000.0),
        output_tokens=np.where(LEFT, 80, 100),
    )
    found = run(
        frame,
        calls=[calls_of(frame, engine_e2e_ms=np.where(LEFT, 5_000.0, wait + 1_200.0))],
        slo=E2E,
    )
    assert found.verdict.cause == cause


@pytest.mark.parametrize(("since", "cause"), [(400, "missing_cancellation"), (0, "under_capacity")])
def test_a_waste_that_lay_in_wait_until_more_came_is_the_cause_where_it_is_new(
    since: int, cause: str
) -> None:
    # Engines go on since the 400th request, or ever since; with the 1,400th a third more arrive and wait: 1.1 times what is served, of which 17 % is waste.
    n, at = 1_800, np.arange(1_800)
    late, left = at >= 1_400, (at >= since) & (at % 4 == 0)
    start = np.r_[np.arange(1_400) * 1.0, 1_400.0 + np.arange(400) * 0.75]
    wait = np.where(late & ~left, np.r_[np.full(1_400, 5.0), np.linspace(5.0, 30_000.0, 400)], 5.0)
    frame = requests(
        n,
        start_s=start,
        queue_ms=wait,
        prefill_ms=200.0,
        decode_ms=np.where(left, 800.0, 1_000.0),
        output_tokens=np.where(left, 80, 100),
    )
    found = run(
        frame,
        calls=[calls_of(frame, engine_e2e_ms=np.where(left, 5_000.0, wait + 1_200.0))],
        slo=E2E,
    )
    assert found.verdict.cause == cause


def test_waste_is_unknown_without_engine_times() -> None:
    frame = pl.DataFrame(
        {"engine_alone": [False], "engine_e2e_ms": [None], "output_tokens": [5]},
        schema_overrides={"engine_e2e_ms": pl.Float64},
    )
    assert wasted(Calls(frame)) is None


@pytest.mark.parametrize(("status", "named"), [(499, True), (200, False)])
def test_an_application_that_goes_on_after_its_user_left_wastes_what_it_writes_then(
    status: int, named: bool
) -> None:
    """The application's own span ends when the user leaves (499); its model call and the engine go on together. Work in the background after an answer is none."""
    wait = np.where(LATE & ~LEFT, 3_000.0, 5.0)
    frame, whole = (
        requests(
            N,
            queue_ms=wait,
            prefill_ms=np.where(LEFT, read, 200.0),
            decode_ms=np.where(LEFT, written, 1_000.0),
            output_tokens=100,
        )
        for read, written in ((195.0, 100.0), (200.0, 1_000.0))
    )
    calls = calls_of(whole, engine_e2e_ms=wait + 1_200.0)
    roots = [
        spans_of(
            frame,
            "POST /ask",
            "other",
            0.0,
            took,
            keep=side,
            http_status=code,
            kind=2,
            role=ROLE["plain"],
        )
        for side, took, code in ((LEFT, 300.0, status), (~LEFT, 4_300.0, 200))
    ]
    found = run(frame, calls=[calls], spans=roots, slo=E2E)
    assert (of(found, "missing_cancellation") is not None) == named
    if named:
        wasted_ratio = the(found, "missing_cancellation").evidence["wasted_token_ratio"]
        assert wasted_ratio == pytest.approx(0.25 * 905.0 / 1_205.0, rel=0.02)
