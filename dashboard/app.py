"""Which page is shown, under which filters? Page settings, style, filter bar and navigation."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import data, state, theme, ui
from dashboard.views import PAGES

st.set_page_config(page_title="Overrun", page_icon=str(Path(__file__).with_name("favicon.png")), layout="wide")
page = st.navigation(PAGES, position="top")
st.html(f"<style>{theme.css(theme.theme_of(state.mode()))}</style>")
filters = state.filter_bar(data.menus)
ui.guarded(page.run)
