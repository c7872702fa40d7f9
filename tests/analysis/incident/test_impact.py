"""Incident facts on known steps: onset, what changed, lost traffic; each beside a twin that differs in one fact."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from overrun.analysis.incident.impact import say_lost, silence, traffic_lost
from overrun.analysis.numbers.comparison.traffic_changes import changed
from overrun.analysis.numbers.statistics.change_points import find_end, find_onset
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.timestamps import to_us
from tests.analysis.builders import at, frame_of, requests


def onset_of(*parts: tuple[int, float], allowed: float = 0.05) -> float | None:
    """The onset in requests (one a second) of pieces (n, share of bad)."""
    rng = np.random.default_rng(7)
    bad = np.concatenate([rng.random(n) < share for n, share in parts])
    found = find_onset(np.arange(len(bad)) * 1_000_000, bad, allowed)
    return None if found is None else found / 1e6


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(500, 0.01), (500, 0.6)], 500),
        (
            [(100, 0.0), (200, 0.7), (700, 0.01)],
            100,
        ),  # an incident that has ended, with the recovery as the greater change
        ([(300, 0.0), (100, 0.9), (300, 0.0), (300, 0.9)], 700),  # the latest of two
        ([(400, 0.02), (300, 0.2), (300, 0.9)], 400),  # grows in two steps
        (
            [(600, 0.11), (300, 0.85)],
            600,
        ),  # a tenth missed it before, twice what may, and most do now
    ],
)
def test_onset_is_where_the_latest_bad_stretch_begins(
    parts: list[tuple[int, float]], expected: int
) -> None:
    found = onset_of(*parts)
    assert found is not None
    assert abs(found - expected) <= 20


@pytest.mark.parametrize(
    "parts",
    [
        [(1000, 0.02)],
        [(1000, 0.6)],
        [(500, 0.6), (500, 0.01)],
        [(500, 0.25), (500, 0.8)],
        [(30, 0.9)],
    ],
)
def test_no_onset_without_a_healthy_stretch_before(parts: list[tuple[int, float]]) -> None:
    assert onset_of(*parts) is None


def end_of(*parts: tuple[int, float], took_ms: float = 2_000.0) -> float | None:
    """The end of what began at request 200 (one a second) of pieces (n, share of bad); each takes `took_ms`."""
    rng = np.random.default_rng(7)
    bad = np.concatenate([rng.random(n) < share for n, share in parts])
    found = find_end(
        np.arange(len(bad)) * 1_000_000, bad, np.full(len(bad), took_ms), 200_000_000, 0.05
    )
    return None if found is None else found / 1e6


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(200, 0.0), (200, 0.7), (300, 0.01)], 400),
        ([(200, 0.0), (100, 0.9), (100, 0.0), (100, 0.9), (300, 0.01)], 500),  # the last of two
    ],
)
def test_end_is_from_where_all_is_well_again(parts: list[tuple[int, float]], expected: int) -> None:
    found = end_of(*parts)
    assert found is not None
    assert abs(found - expected) <= 10


@pytest.mark.parametrize(
    "parts",
    [
        [(200, 0.0), (500, 0.7)],
        [(200, 0.0), (200, 0.7), (40, 0.0)],
        [(200, 0.0), (40, 0.9), (300, 0.0)],
        [(200, 0.0), (200, 0.7), (300, 0.2)],
        [(500, 0.0)],
    ],
)
def test_no_end_of_what_goes_on_pauses_or_is_over_within_a_minute(
    parts: list[tuple[int, float]],
) -> None:
    assert end_of(*parts) is None


def test_slow_requests_that_have_not_ended_yet_are_no_end() -> None:
    parts = [(200, 0.0), (200, 0.7), (100, 0.0)]
    assert end_of(*parts) is not None
    assert end_of(*parts, took_ms=90_000.0) is None


def test_onset_of_a_million_requests_is_exact() -> None:
    bad = np.arange(1_000_000) >= 700_123
    assert find_onset(np.arange(1_000_000), bad, 0.05) == 700_123


def what(rows: pl.DataFrame) -> dict[str, tuple[list[str], str]]:
    return {
        change.what: (change.before, change.after)
        for change in changed(frame_of(rows).rows, at(200))
    }


HALF = [0] * 200 + [1] * 200


def test_new_version_new_model_new_cap_and_new_mix_are_told() -> None:
    rows = requests(
        400,
        prefill_ms=1.0,
        version=["v1" if h == 0 else "v2" for h in HALF],
        model=["m-0801" if h == 0 else "m-1101" for h in HALF],
        max_tokens=[256 if h == 0 else 4096 for h in HALF],
        input_tokens=[500 if h == 0 else 2000 for h in HALF],
        tenant=[
            ("a" if i % 4 else "b") if h == 0 else ("a" if i % 4 == 0 else "b")
            for i, h in enumerate(HALF)
        ],
    )
    assert what(rows) == {
        "version": (["v1"], "v2"),
        "model": (["m-0801"], "m-1101"),
        "config max_tokens": (["256"], "4,096"),
        "mix of tenant": (["b 25 % of requests"], "b 75 % of requests"),
        "input tokens P50": (["500"], "2,000"),
    }


def test_a_deploy_shortly_before_the_onset_is_what_changed_and_one_long_before_is_not() -> None:
    shortly, long = (["v1"] * n + ["v2"] * (400 - n) for n in (170, 100))
    assert what(requests(400, prefill_ms=1.0, version=shortly)) == {"version": (["v1"], "v2")}
    assert what(requests(400, prefill_ms=1.0, version=long)) == {}


def test_nothing_changed_is_told_as_nothing() -> None:
    assert what(requests(400, prefill_ms=1.0, version="v1", tenant=["a", "b"] * 200)) == {}


def test_request_rate_that_doubles_is_a_change() -> None:
    start = np.r_[np.arange(200) * 1.0, 200 + np.arange(200) * 0.5]
    assert what(requests(400, prefill_ms=1.0, start_s=start)) == {"request rate": (["1/s"], "2/s")}


def minutes(*per_minute: int) -> pl.DataFrame:
    starts = np.concatenate(
        [60.0 * m + np.arange(n) * 60.0 / max(n, 1) for m, n in enumerate(per_minute)]
    )
    return requests(len(starts), start_s=starts, prefill_ms=100.0)


def cut_at(rows: pl.DataFrame, minute: int) -> RequestFrame:
    return frame_of(rows, start=at(0), end=at(60.0 * minute))


def test_silence_at_the_end_of_a_window_is_the_end_of_its_traffic() -> None:
    """A load test, a batch or a day is over: nothing is missing that began."""
    for rows, minute in ((minutes(*[100] * 40), 45), (minutes(*[100] * 40), 80)):
        frame = cut_at(rows, minute)
        assert traffic_lost(frame, None) is None
        assert traffic_lost(frame, cut_at(minutes(*[100] * 45), 45)) is None
        quiet = silence(frame)
        assert quiet is not None
        assert (quiet.since, quiet.unanswered) == (at(2_399.4), 0)
    assert silence(cut_at(minutes(*[100] * 40), 40)) is None
    assert silence(frame_of(minutes(*[100] * 40))) is None  # nobody asked about a time after it
    # What began in the window's last moments is known when it ends.
    slow = requests(4_000, start_s=np.arange(4_000) * 0.6, prefill_ms=120_000.0)
    assert silence(cut_at(slow, 42)) is None


def test_silence_in_which_requests_are_open_is_a_loss_of_answers() -> None:
    frame = replace(cut_at(minutes(*[100] * 40), 45), open_us=np.array([to_us(at(2_410))] * 8))
    lost = traffic_lost(frame, None)
    assert lost is not None
    assert (lost.seen, lost.unanswered, lost.since) == (0, 8, at(2_399.4))
    assert "8 are open" in say_lost(lost)
    # One that lost its last span long before is no sign.
    old = replace(frame, open_us=np.array([to_us(at(1_000))] * 8))
    assert traffic_lost(old, None) is None


def test_silence_while_engines_hold_requests_is_a_loss_of_answers() -> None:
    held = pl.DataFrame(
        {
            "time_us": [to_us(at(s)) for s in range(2_400, 2_700, 15)],
            "instance": "e",
            "model": "m",
            "indicator": "running",
            "value": 12.0,
        }
    )
    frame = replace(cut_at(minutes(*[100] * 40), 45), points=held)
    lost = traffic_lost(frame, None)
    assert lost is not None
    assert lost.unanswered == 12
    idle = replace(frame, points=held.with_columns(value=pl.lit(0.0)))
    assert traffic_lost(idle, None) is None


def test_silence_at_hours_at_which_people_asked_the_day_before_is_lost_traffic() -> None:
    yesterday, frame = cut_at(minutes(*[100] * 45), 45), cut_at(minutes(*[100] * 20), 45)
    assert traffic_lost(frame, yesterday, rhythm=True) is not None
    assert traffic_lost(frame, yesterday) is None


def test_traffic_that_fades_within_a_window_is_lost() -> None:
    fading = traffic_lost(cut_at(minutes(*[100] * 16, *[20] * 4), 20), None)
    assert fading is not None
    assert fading.seen < 100
    assert fading.since is not None
    assert at(950) <= fading.since <= at(970)


def test_traffic_that_swings_or_just_ends_is_not_lost() -> None:
    assert traffic_lost(cut_at(minutes(*[100] * 45), 45), None) is None
    assert traffic_lost(cut_at(minutes(*[100, 10] * 20), 40), None) is None
    assert (
        traffic_lost(frame_of(minutes(*[100] * 40)), None) is None
    )  # the file ends: nobody asked for more
    assert traffic_lost(cut_at(minutes(*[100] * 3), 15), None) is None  # a short test long ago


def test_drop_that_lasts_is_lost_also_where_the_window_ends_with_the_data() -> None:
    assert traffic_lost(frame_of(minutes(*[100] * 16, *[20] * 4)), None) is not None


def test_half_of_the_usual_requests_is_not_lost_where_chance_alone_puts_the_count_below_half() -> (
    None
):
    baseline = frame_of(minutes(*[100] * 20), start=at(0), end=at(1_200))
    assert (
        traffic_lost(frame_of(minutes(*[48] * 20), start=at(0), end=at(1_200)), baseline) is None
    )  # 960 + 1.645 x sqrt(960 + 2,000 / 4) = 1,023
    lost = traffic_lost(
        frame_of(minutes(*[44] * 20), start=at(0), end=at(1_200)), baseline
    )  # 880 + 62 < 1,000
    assert lost is not None
    assert (lost.seen, lost.expected) == (880, 2_000.0)
    # Conversations of six requests each: their number scatters as that of a sixth as many, 880 + 1.645 x sqrt(6 x 1,380) = 1,030.
    assert (
        traffic_lost(frame_of(minutes(*[44] * 20), start=at(0), end=at(1_200)), baseline, 6.0)
        is None
    )
    assert (
        traffic_lost(frame_of(minutes(*[30] * 20), start=at(0), end=at(1_200)), baseline, 6.0)
        is not None
    )
