"""The freshness badge: how old, and what the page does about it."""

from datetime import timedelta

import pytest

from overrun.dashboard import live
from tests.analysis.builders import at


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overrun.dashboard.state.now", lambda: at(100))
    monkeypatch.setattr("overrun.dashboard.state.present", lambda: at(95))


def test_fresh_data_is_followed() -> None:
    said = live.words(at(88), moved=False, held=None, charts=False)
    assert said.startswith("● newest request <b>12 s</b> old")
    assert "as of 10:01:35 UTC, follows every 5 s" in said
    assert f"charts follow every {live.CHARTS_EVERY.seconds} s" in live.words(
        at(88), moved=False, held=None, charts=True
    )


def test_old_data_is_called_stale_without_colour_alone() -> None:
    said = live.words(at(99) - live.STALE_AFTER, moved=False, held=None, charts=False)
    assert said.startswith("◔")
    assert "stale" in said


def test_a_choice_pauses_the_page_and_new_data_is_said_to_wait() -> None:
    said = live.words(at(90), moved=True, held="trace", charts=True)
    assert "paused as of 10:01:35 UTC while a trace is chosen, new data available" in said
    assert "waits" not in live.words(at(90), moved=False, held="box", charts=True)


def test_an_empty_store_waits() -> None:
    assert "waiting" in live.words(None, moved=False, held=None, charts=False)
    assert timedelta(seconds=live.EVERY_S) < live.CHARTS_EVERY
