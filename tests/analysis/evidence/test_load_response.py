"""Is the far side slower, or fuller of the caller's own calls? Twins that differ in that alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.full_engine import shared_slowness
from overrun.analysis.evidence.load_response import OwnLoad, _equal, first_tokens
from overrun.analysis.evidence.token_speed import at_equal_load, beyond_load
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

# Groups of calls that start together, of 2 to 9 calls before and of 6 to 15 since the onset; every 4 s.
BEFORE, NOW = np.tile(np.arange(2, 10), 25), np.tile(np.arange(6, 16), 20)


def groups(
    *,
    more: bool,
    token_ms: float = 4.0,
    first_ms: float = 50.0,
    apart_s: float = 0.0,
    host: float = 1.0,
    seen: bool = True,
    queue_ms: float = 0.0,
) -> pl.DataFrame:
    """Each token takes 2 ms for each call of its group, and since the onset `token_ms` / 4 times as long; groups are larger where `more` come.

    A first token takes 50 ms, and `first_ms` since the onset. Calls of a group begin `apart_s` apart: each meets those before it.
    Since the onset a slow host takes every eighth call, and `host` times as long for a token. Answers have 100 tokens, or 50 to 150 and no
    first token that was `seen`. Who comes behind twelve others of its group waits `queue_ms` for each of them beyond those.
    """
    sizes = np.r_[BEFORE, NOW if more else BEFORE]
    group = np.repeat(np.arange(len(sizes)), sizes)
    pace = np.repeat(2.0 * sizes, sizes) * np.where(group >= len(BEFORE), token_ms / 4.0, 1.0)
    pace *= np.where((group >= len(BEFORE)) & (np.arange(len(group)) % 8 == 0), host, 1.0)
    place = np.concatenate([np.arange(size) for size in sizes])
    decode, first = (
        99.0 * pace,
        np.where(group >= len(BEFORE), first_ms, 50.0) + queue_ms * np.maximum(place - 11, 0),
    )
    start = group * 4.0 + place * apart_s
    if not seen:
        tokens = 50 + np.arange(len(group)) * 37 % 101
        return requests(
            len(group),
            start_s=start,
            generation_ms=first + (tokens - 1) * pace,
            input_tokens=200,
            output_tokens=tokens,
        )
    return requests(
        len(group),
        start_s=start,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=decode,
        ttft_ms=first,
        tpot_ms=pace,
        input_tokens=200,
        output_tokens=100,
    )


@pytest.mark.parametrize("counted", [True, False])
def test_longer_prompts_of_ones_own_are_no_slower_far_side(counted: bool) -> None:
    """A first token takes 50 ms and 0.25 ms for each token of the prompt, of which there are 400 more now: 100 ms. Uncounted, nobody knows."""

    def calls(least: int) -> Calls:
        tokens = least + np.arange(100) * 2.0
        return Calls(
            pl.DataFrame(
                {
                    "start_s": np.arange(100.0),
                    "input_tokens": tokens if counted else np.full(100, np.nan),
                    "cached_tokens": 0.0,
                    "ttft_ms": 50.0 + 0.25 * tokens,
                    "output_tokens": 100.0,
                    "model": "m",
                    "engine_instance": None,
                    "prefill_ms": None,
                    "decode_ms": None,
                    "e2e_ms": 1000.0,
                    "error": False,
                    "on_path": True,
                    "tpot_ms": 10.0,
                    "queue_ms": None,
                }
            )
        )

    before, now = (float(np.median(side)) for side in first_tokens(calls(100), calls(500)))
    assert now - before == pytest.approx(0.0 if counted else 100.0, abs=0.1)


def test_more_calls_of_ones_own_fill_a_far_side_that_is_as_fast_as_ever_at_equal_load() -> None:
    found = run(groups(more=True), slo=E2E)
    finding = the(found, "under_capacity")
    assert (found.verdict.stage, causes(found)) == ("decode", ["under_capacity"])
    # 10.5 calls a group instead of 5.5.
    assert finding.evidence["arrivals_ratio"] == pytest.approx(10.5 / 5.5, rel=0.05)
    assert finding.evidence["pace_equal"] == pytest.approx(1.0, abs=0.02)
    assert "fill the endpoint (with equally many calls in flight, " in found.verdict.sentence


def test_a_far_side_that_is_slower_at_equal_load_is_not_filled_by_its_caller() -> None:
    found = run(groups(more=False, token_ms=8.0), slo=E2E)
    assert causes(found) == ["token_rate_sag"]
    assert of(found, "under_capacity") is None


def test_a_far_side_that_does_not_feel_its_callers_calls_is_not_filled_by_them() -> None:
    """Four calls a second, then 1.3 times as many; since then a first token takes 2.4 s instead of 0.3 s in 40 s of each minute, at any number of calls.

    Calls that wait are in flight: with few in flight are those of the other 20 s, which take 1.2 times as long. Tokens take 20 ms whatever runs.
    """
    rng, late = np.random.default_rng(3), np.arange(2_200) >= 1_000
    start = np.cumsum(rng.exponential(0.25, 2_200) / np.where(late, 1.3, 1.0))
    waits = np.where(late, np.where(start % 60.0 < 40.0, 8.0, 1.2), 1.0)
    first, pace = (
        300.0 * np.exp(0.3 * rng.standard_normal(2_200)) * waits,
        20.0 * np.exp(0.1 * rng.standard_normal(2_200)),
    )
    rows = requests(
        2_200,
        start_s=start,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=99.0 * pace,
        ttft_ms=first,
        tpot_ms=pace,
        input_tokens=200,
        output_tokens=100,
    )
    found = run(rows, slo=Slo(ttft_ms=800.0))
    assert causes(found) == ["provider_queueing"]
    assert any(
        out.what == "under_capacity" and "is not affected by your load" in out.figure
        for out in found.verdict.ruled_out
    )


def test_of_a_sample_nobody_knows_who_was_in_flight() -> None:
    """With more calls it may be the caller's own load, without it is the far side's pace."""
    more = run(groups(more=True), slo=E2E, coverage=0.1)
    assert more.verdict.cause is None
    assert {"under_capacity", "token_rate_sag"} <= set(more.skipped)
    assert "keep every trace" in more.verdict.sentence
    assert causes(run(groups(more=False, token_ms=8.0), slo=E2E, coverage=0.1)) == [
        "token_rate_sag"
    ]


def test_a_far_side_whose_first_tokens_are_far_later_at_equal_load_is_not_as_fast_as_ever() -> None:
    assert causes(run(groups(more=True, first_ms=75.0, apart_s=1e-3), slo=E2E)) == [
        "under_capacity"
    ]
    assert "under_capacity" not in causes(
        run(groups(more=True, first_ms=250.0, apart_s=1e-3), slo=E2E)
    )


def test_a_crowd_in_which_few_wait_leaves_most_calls_as_quick_as_ever() -> None:
    """Of 105 calls six come behind twelve others and more, as none did before: the median does not move."""
    found = run(groups(more=True, apart_s=1e-3, queue_ms=400.0), slo=Slo(ttft_ms=300.0))
    finding = the(found, "under_capacity")
    assert (found.verdict.stage, found.verdict.cause) == ("first_token", "under_capacity")
    assert finding.evidence["first"] == pytest.approx(1.0, abs=0.05)
    assert finding.evidence["crowded"] == pytest.approx(1.0, abs=0.02)
    assert of(found, "provider_queueing") is None


def test_a_slow_host_is_no_load_that_all_who_are_there_would_feel() -> None:
    """Twice the calls, as fast as ever at equal load; what is over 4.5 s came from a host that takes four times as long, and those beside it did not."""
    found = run(groups(more=True, host=4.0), slo=Slo(e2e_ms=4_500.0))
    assert causes(found) == ["token_rate_sag"]
    assert any(
        out.what == "under_capacity" and "other calls of the same time are not slower" in out.figure
        for out in found.verdict.ruled_out
    )


@pytest.mark.parametrize(("crowd", "part"), [(20, 1.0), (1, 0.0)])
def test_a_slow_call_shares_its_pace_with_those_that_ran_as_long_as_it_did(
    crowd: int, part: float
) -> None:
    """Every minute calls of 10 s at 25 ms a token instead of 10 begin together, twenty or one (its host is slow); 10 quick ones begin beside it every second
    where it is alone, in its last half a second where twenty were there: those ran when the others had gone."""
    begun = np.arange(20) * 60.0
    slow = np.repeat(begun, crowd)
    quick = np.concatenate(
        [
            at + (np.linspace(9.5, 9.9, 30) if crowd > 1 else np.linspace(0.1, 9.9, 100))
            for at in begun
        ]
    )
    start = np.r_[slow, quick]
    held = np.arange(len(start)) < len(slow)

    def calls(at: np.ndarray, slow: np.ndarray) -> Calls:
        n = len(at)
        return Calls(
            pl.DataFrame(
                {
                    "start_s": at,
                    "e2e_ms": np.where(slow, 10_000.0, 4_000.0),
                    "tpot_ms": np.where(slow, 25.0, 10.0),
                    "output_tokens": np.full(n, 400.0),
                    "trace_key": np.arange(n),
                    "ttft_ms": np.zeros(n),
                    "engine_e2e_ms": np.full(n, np.nan),
                    "decode_ms": np.full(n, np.nan),
                    "prefill_ms": np.full(n, np.nan),
                    "queue_ms": np.full(n, np.nan),
                }
            )
        )

    now = calls(start, held)
    case: Any = SimpleNamespace(
        calls=now,
        calls_before=calls(np.arange(100.0), np.zeros(100, dtype=bool)),
        slow=now.frame.filter(pl.Series(held)),
        slow_calls=now.where(held),
    )
    assert shared_slowness(case) == pytest.approx(part, abs=0.05)


def test_how_many_calls_were_out_when_one_began() -> None:
    calls = Calls(
        pl.DataFrame({"start_s": [0.0, 1.0, 1.5, 5.0], "e2e_ms": [3000.0, 1000.0, 3500.0, 100.0]})
    )
    # The third meets the first (to 3 s) and the second (to 2 s); the fourth begins as the third ends.
    assert calls.in_flight.tolist() == [0.0, 1.0, 2.0, 0.0]


def test_values_are_compared_where_both_sides_met_the_same_load() -> None:
    before, now = np.repeat(np.arange(1.0, 9.0), 20), np.repeat(np.arange(5.0, 13.0), 20)
    # The same line of value over load: twice the load now, nothing slower at equal load; then all of it half as much again.
    assert at_equal_load([(before, 10.0 * before), (now, 10.0 * now)]) == pytest.approx(
        1.0, abs=0.1
    )
    assert at_equal_load([(before, 10.0 * before), (now, 15.0 * now)]) == pytest.approx(
        1.5, abs=0.1
    )
    assert at_equal_load([(before, before), (now + 20.0, now)]) is None
    assert at_equal_load([(before[:10], before[:10]), (now, now)]) is None


@pytest.mark.filterwarnings("error")
def test_what_took_no_time_has_no_ratio() -> None:
    load = np.repeat(np.arange(1.0, 9.0), 20)
    nothing = np.where(load < 3.0, 0.0, load)
    assert at_equal_load([(load, nothing), (load, 2.0 * load)]) == pytest.approx(2.0, abs=0.1)
    assert at_equal_load([(load, 0.0 * load), (load, load)]) is None


@pytest.mark.parametrize(
    ("token_ms", "more", "named"), [(4.0, True, "under_capacity"), (8.0, False, "token_rate_sag")]
)
def test_calls_without_a_first_token_tell_ones_own_load_as_well(
    token_ms: float, more: bool, named: str
) -> None:
    assert causes(run(groups(more=more, token_ms=token_ms, seen=False), slo=E2E))[0] == named


def test_loads_without_anything_in_common_are_compared_over_what_each_call_more_adds() -> None:
    before, now = np.repeat(np.arange(1.0, 9.0), 20), np.repeat(np.arange(15.0, 25.0), 20)
    # 5 ms and 10 ms more for each call beside, and the same of a far side that takes twice as long on all of its line, or as long whatever the load.
    line = 5.0 + 10.0 * now
    assert beyond_load([(before, 5.0 + 10.0 * before), (now, line)]) == pytest.approx(1.0, abs=0.01)
    assert beyond_load([(before, 5.0 + 10.0 * before), (now, 2.0 * line)]) == pytest.approx(
        2.0, abs=0.01
    )
    assert beyond_load(
        [(before, np.full(len(before), 50.0)), (now, np.full(len(now), 150.0))]
    ) == pytest.approx(3.0)
    assert beyond_load([(before, before), (now[:5], now[:5])]) is None


def test_what_load_explains_the_most_of_is_load() -> None:
    load = OwnLoad(pace=1.0, pace_equal=None, first=3.2, first_equal=1.3)
    assert load.waits
    assert not load._replace(first=1.4).waits
    assert not load.paced


def test_where_all_seats_are_taken_the_line_of_both_sides_tells_what_more_calls_add() -> None:
    before, now = np.repeat(np.arange(1.0, 9.0), 20), np.repeat(np.arange(30.0, 40.0), 20)
    # Ten more a call until twenty run at a time: then the others wait, and it stays at 205.
    sides = [(before, 5.0 + 10.0 * before), (now, np.full(len(now), 205.0))]
    full = _equal(sides, more=True)
    assert full is not None
    assert full == pytest.approx(205.0 / (50.0 + 29.9 * 3.37), rel=0.02)
    assert beyond_load(sides) == pytest.approx(4.1, rel=0.02)
    assert _equal(sides, more=False) is None


def test_few_calls_in_batches_like_the_others_tell_of_a_host_whose_batch_fills_as_it_slows_down() -> (
    None
):
    """Of 212 calls 12 began before the batch was full, at others' loads and twice their time; then both grew, and a line through them tells nothing."""
    usual = np.linspace(1.0, 10.0, 300)
    few, full = np.linspace(5.0, 9.5, 12), np.linspace(14.0, 19.0, 200)
    slow = np.concatenate([2.0 * (10.0 + few), np.linspace(40.0, 200.0, 200)])
    assert beyond_load(
        [(usual, 10.0 + usual), (np.concatenate([few, full]), slow)]
    ) == pytest.approx(2.0, rel=0.1)
    assert beyond_load(
        [
            (usual, 10.0 + usual),
            (np.concatenate([few, full]), np.concatenate([10.0 + few, slow[12:]])),
        ]
    ) == pytest.approx(1.0, rel=0.1)
