"""How fresh is the page? A badge that asks every 5 s, and draws the page again when there is something new and nobody is reading a detail.

The badge is a fragment of HTML, so nothing else moves while it asks. What the next run needs is fetched before it starts: the old numbers
stay until the new ones are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import streamlit as st

from overrun.analysis.front.client import ClientError
from overrun.dashboard import data, state, ui
from overrun.dashboard.theme import say_age, say_time

EVERY_S: Final = 5
# A changed Plotly figure is destroyed and made again, which is seen as a blink: pages with charts follow in this step.
CHARTS_EVERY: Final = timedelta(seconds=30)
# Following the clock, data that is older than this is called old: eight times the usual export interval of 15 s.
STALE_AFTER: Final = timedelta(seconds=120)


def badge(*, charts: bool, holds: Sequence[str] = ()) -> None:
    """Place the badge; `charts` says whether the page has figures that blink when they change, `holds` which choices in the URL stop it."""
    if state.filters().follows_now:
        st.fragment(_follow, run_every=EVERY_S, key="live")(charts, holds, state.mode())


def _follow(charts: bool, holds: Sequence[str], mode: str | None) -> None:
    if state.mode() != mode:  # the machine turned dark or light: charts are pictures of one mode
        st.rerun(scope="app")
    try:
        seen = data.watermark()
        held = state.chosen(holds)
        moved = state.drawn(seen) != seen
        if (
            moved
            and held is None
            and state.now() - state.present()
            >= (CHARTS_EVERY if charts else timedelta(seconds=EVERY_S))
        ):
            state.advance()
            data.report(data.asked(state.filters()))
            st.rerun(scope="app")
    except ClientError:
        ui.put(
            '<p class="ov-live" role="status">◔ the server does not answer; the numbers are not updated</p>'
        )
        return
    ui.put(
        f'<p class="ov-live" role="status">{words(seen[0], moved=moved, held=held, charts=charts)}</p>'
    )
    if (
        moved
        and held is not None
        and st.button("Show the new data", key="advance", type="tertiary")
    ):
        state.advance()
        st.rerun(scope="app")


def words(newest: datetime | None, *, moved: bool, held: str | None, charts: bool) -> str:
    """The badge as safe HTML: the age of the newest request, and what the page does about it."""
    if newest is None:
        return "◔ waiting for the first request"
    age = state.now() - newest
    old = age > STALE_AFTER
    first = f"{'◔' if old else '●'} newest request <b>{say_age(age.total_seconds())}</b> old{' (stale)' if old else ''}"
    shown = f"as of {say_time(state.present())}"
    if held is not None:
        return f"{first} · paused {shown} while a {held} is chosen" + (
            ", new data available" if moved else ""
        )
    return f"{first} · {shown}, " + (
        f"charts follow every {CHARTS_EVERY.seconds} s" if charts else f"follows every {EVERY_S} s"
    )
