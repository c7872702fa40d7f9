"""Which page is shown, under which filters? Page settings, style, filter bar and navigation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import streamlit as st

from overrun.dashboard import data, live, login, nav, state, theme, ui

st.set_page_config(
    page_title="Overrun", page_icon=str(Path(__file__).with_name("favicon.png")), layout="wide"
)
page = st.navigation(list(nav.pages().values()), position="top")
st.html(f"<style>{theme.css()}</style>")
if login.passed():
    with ui.errors_as_boxes(data.answers):
        place = nav.place_of(page)
        state.filter_bar(
            partial(
                data.menus,
                needs=nav.needs_of(place) if place.steady else None,
                query=st.query_params.to_dict(),
            )
        )
        live.badge(charts=place.charts, holds=place.holds)
        page.run()
    login.way_out()
