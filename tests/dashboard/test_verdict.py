"""What the Verdict says beside the report: a silence at the window's end, and burn rates of which only one window is known."""

import re
from datetime import timedelta

import pytest

from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from overrun.dashboard.views.verdict import burn_of, silence
from tests.analysis.builders import at, insert, requests, store

SLO = Slo(e2e_ms=1000.0)


def silent(n: int, every_s: float, *, to_s: float, seen_s: float | None = None) -> str:
    """What is said of n requests and a window that ends at `to_s`, of which those before `seen_s` have arrived."""
    con = store()
    insert(con, requests(n, every_s=every_s, other_ms=100.0))
    return re.sub(
        r"<[^>]+>",
        "",
        silence(
            series(con, Window(start=at(0), end=at(to_s)), SLO, "e2e"),
            at(to_s if seen_s is None else seen_s),
        ),
    )


def test_a_window_that_ends_in_silence_says_since_when() -> None:
    assert silent(600, 1.0, to_s=3600).startswith(
        "◔ No request since 10:10:00 UTC, for 50 min: at the former rate, about 3,000 requests would have arrived."
    )


@pytest.mark.parametrize(
    ("n", "every_s", "to_s"),
    [
        (600, 1.0, 600),  # it ends with its requests
        (60, 60.0, 3900),  # five of one a minute are missing: that happens
    ],
)
def test_a_silence_that_may_be_chance_is_not_spoken_of(n: int, every_s: float, to_s: float) -> None:
    assert silent(n, every_s, to_s=to_s) == ""


def test_traffic_that_comes_and_goes_is_not_missed() -> None:
    con = store()
    insert(
        con, requests(600, start_s=[i + 1800.0 * (i // 300) for i in range(600)], other_ms=100.0)
    )  # five minutes of requests, half an hour of none, twice
    for end_s, said in ((3600, ""), (7200, "No request since")):
        assert said in (
            told := silence(series(con, Window(start=at(0), end=at(end_s)), SLO, "e2e"), at(end_s))
        )
        assert bool(told) is bool(said)


def test_requests_that_may_still_be_on_their_way_are_not_missed() -> None:
    assert silent(600, 1.0, to_s=700, seen_s=605) == ""
    assert "No request since" in silent(600, 1.0, to_s=700, seen_s=700)


def test_a_window_without_requests_has_no_silence_of_its_own() -> None:
    con = store()
    insert(con, requests(1, other_ms=100.0))
    assert silence(series(con, Window(start=at(100), end=at(200)), SLO, "e2e"), at(200)) == ""


def test_one_window_of_a_burn_rate_is_not_shown_as_if_it_fired() -> None:
    con = store()
    insert(con, requests(400, other_ms=2000.0))
    window = Window(start=at(0), end=at(400) + timedelta(minutes=20))
    found = burn(con, window, SLO, at(0))
    assert [pair.firing for pair in found.pairs] == [
        False,
        True,
        True,
    ]  # nothing in the last five minutes
    said = burn_of(found)
    assert "20.0× in 60 min; no request could be judged in 5 min" in said
    assert "of 14.4×" not in said
    assert said.count("▲") == 2
