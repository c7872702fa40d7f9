"""Clients that leave: by choice while they are served, and because nothing comes; both sides of each line."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.incident.abandonment import by_choice
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, frame_of, requests
from tests.analysis.diagnosis.rules.cases import run

N = 1_200
SLO = Slo(ttft_ms=1_000.0, e2e_ms=6_000.0, goodput_target=0.95)
CANCELLED = "asyncio.CancelledError"
# One client in twelve (8.3 %), whenever.
SOME = np.random.default_rng(5).permutation(N) % 12 == 0
LATE = np.arange(N) >= 700


def traffic(left: np.ndarray, waited_ms: float = 1_500.0, **columns: Any) -> pl.DataFrame:
    """Answers take 1.2 to 4 s with a first token after 200 ms; who leaves waited so long, and nothing is recorded of what had come."""
    answer = np.random.default_rng(6).uniform(1_000.0, 3_800.0, N)
    return requests(
        N,
        every_s=0.5,
        **{
            "e2e_ms": np.where(left, waited_ms, answer + 200.0),
            "first_token_ms": np.where(left, 0.0, 200.0),
            "decode_ms": np.where(left, 0.0, answer),
            "generation_ms": np.where(left, waited_ms, 0.0),
            "ttft_ms": [None if gone else 200.0 for gone in left],
            "error": left,
            "error_type": [CANCELLED if gone else None for gone in left],
        }
        | columns,
    )


def chosen(
    left: np.ndarray,
    waited_ms: float = 1_500.0,
    slo: Slo = SLO,
    before: np.ndarray | None = None,
    **columns: Any,
) -> np.ndarray:
    rows = frame_of(traffic(left, waited_ms, **columns)).rows
    return by_choice(rows, slo, None if before is None else frame_of(traffic(before)).rows)


def test_a_constant_share_that_leaves_while_others_are_served_is_no_breach() -> None:
    found = run(traffic(SOME), slo=SLO)
    assert (found.verdict.status, found.findings) == ("within_budget", [])
    assert (found.goodput.bad, found.goodput.ratio) == (100, pytest.approx(1_100 / 1_200))
    assert (
        "100 % of the 1,100 requests whose clients stayed meet every limit (target 95 %); "
        "100 clients more (8.3 %) left after 1.50 s"
    ) in found.verdict.sentence
    assert chosen(SOME).sum() == 100


@pytest.mark.parametrize("waited_ms", [400.0, 1_500.0])
def test_a_hang_that_sends_users_away_is_told_though_the_others_are_fast(waited_ms: float) -> None:
    hung = SOME | (LATE & (np.arange(N) % 5 == 0))
    found = run(traffic(hung, waited_ms), slo=SLO)
    assert (found.verdict.status, found.verdict.metric) == ("failing", "errors")
    assert found.verdict.onset is not None
    assert abs((found.verdict.onset - at(350)).total_seconds()) < 15
    assert not chosen(hung, waited_ms)[720:].any()
    assert chosen(hung, waited_ms)[:680].sum() == SOME[:680].sum()


def test_more_than_in_the_baseline_tells_and_as_many_does_not() -> None:
    rare = np.random.default_rng(8).permutation(N) % 50 == 0
    assert chosen(SOME, before=SOME).all(where=SOME)
    assert not chosen(SOME, before=rare).any()


def test_where_nobody_is_answered_all_of_them_tell() -> None:
    assert not chosen(SOME | LATE)[700:].any()


def test_who_waited_longer_than_answers_take_did_not_leave_by_choice() -> None:
    assert not chosen(SOME, 4_500.0).any()
    assert chosen(SOME, 3_000.0).sum() == 100
    assert not chosen(SOME, 7_000.0).any()  # over the limit by itself


def test_without_a_first_token_in_time_the_limit_decides() -> None:
    """Others' first tokens come after 1.1 s of 1 s allowed: who left after 1.5 s had none, who left after 0.9 s could have waited."""
    late = [None if gone else 1_100.0 for gone in SOME]
    assert not chosen(SOME, 1_500.0, ttft_ms=late).any()
    assert chosen(SOME, 900.0, ttft_ms=late).sum() == 100


def test_what_a_client_had_got_speaks_for_itself() -> None:
    more = SOME | (LATE & (np.arange(N) % 3 == 0))
    assert (chosen(more, ttft_ms=200.0) == more).all()
    assert not chosen(more, ttft_ms=np.where(more, 1_200.0, 200.0)).any()
    paced = Slo(ttft_ms=1_000.0, tpot_ms=50.0, e2e_ms=6_000.0)
    assert not chosen(more, slo=paced, ttft_ms=200.0, tpot_ms=np.where(more, 80.0, 20.0)).any()


def test_other_errors_are_no_choice() -> None:
    assert not chosen(
        SOME, error_type=["openai.InternalServerError" if gone else None for gone in SOME]
    ).any()
