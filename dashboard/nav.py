"""Which pages are there, and how does one lead to the next? In the order of an incident; filters stay in the URL between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import streamlit as st


@dataclass(frozen=True, slots=True)
class Place:
    """A page: its module in dashboard/views, its title and icon (Material Symbols, which come with Streamlit)."""

    name: str
    title: str
    icon: str


PLACES = (
    Place("verdict", "Verdict", ":material/gavel:"),
    Place("budget", "Budget", ":material/bar_chart:"),
    Place("traces", "Traces", ":material/account_tree:"),
)


def pages() -> dict[str, Any]:
    """Return Streamlit's pages by name; the first one is served at /."""
    return {
        place.name: st.Page(_drawn(place.name), title=place.title, icon=place.icon, url_path=place.name, default=place is PLACES[0])
        for place in PLACES}


def links(*steps: tuple[str, str]) -> None:
    """Draw links to other pages: (page name, what one finds there)."""
    found = pages()
    with st.container(horizontal=True, gap="medium"):
        for name, label in steps:
            st.page_link(found[name], label=label)


def _drawn(name: str) -> Callable[[], None]:
    # A page's module is imported when it is first visited, or by the server while it waits for visitors.
    def draw() -> None:
        import_module(f"dashboard.views.{name}").draw()

    draw.__name__ = name
    return draw
