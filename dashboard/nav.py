"""Which pages are there, and how does one lead to the next? In the order of an incident; filters stay in the URL between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import streamlit as st

from overrun.analysis.front.report import Report
from overrun.analysis.words.finding import Finding
from overrun.dashboard import data, sliders, state


@dataclass(frozen=True, slots=True)
class Place:
    """A page: its module in dashboard/views, its title and icon (Material Symbols, which come with Streamlit).

    `charts` says whether it has Plotly figures, `holds` which choices in the URL keep it from being redrawn, `asks` whether its module has `needs`: what
    it asks for beside the report; `steady` whether another question needs the same again.
    """

    name: str
    title: str
    icon: str
    charts: bool = True
    holds: tuple[str, ...] = ()
    asks: bool = True
    steady: bool = True


PLACES = (
    Place("verdict", "Verdict", ":material/gavel:", charts=False),
    Place("budget", "Budget", ":material/bar_chart:"),
    Place("findings", "Findings", ":material/troubleshoot:", charts=False),
    Place("engine", "Engine", ":material/memory:"),
    Place("traces", "Traces", ":material/account_tree:", holds=("trace", "box")),
    Place(
        "compare", "Compare", ":material/compare_arrows:", holds=("before", "after"), steady=False
    ),
    Place("whatif", "What-if", ":material/tune:", holds=("fix",)),
    Place("length", "Length", ":material/straighten:", asks=False),
    Place("health", "Data health", ":material/verified:", charts=False),
)


def pages() -> dict[str, Any]:
    """Return Streamlit's pages by name; the first one is served at /."""
    return {
        place.name: st.Page(
            _drawn(place.name),
            title=place.title,
            icon=place.icon,
            url_path=place.name,
            default=place is PLACES[0],
        )
        for place in PLACES
    }


def place_of(page: Any) -> Place:
    """Return what is known of the page that Streamlit shows."""
    return next(place for place in PLACES if place.title == page.title)


def place_named(name: str) -> Place:
    """Return what is known of a page by its name."""
    return next(place for place in PLACES if place.name == name)


def needs_of(place: Place) -> data.Needs | None:
    """Return what a page asks for beside the report, None where it asks for nothing."""

    def needs(
        asked: data.Asked, report: Report, query: Mapping[str, str]
    ) -> list[Callable[[], object]]:
        found: list[Callable[[], object]] = import_module(
            f"overrun.dashboard.views.{place.name}"
        ).needs(asked, report, query)
        return found

    return needs if place.asks else None


def links(*steps: tuple[str, str]) -> None:
    """Draw links to other pages: (page name, what one finds there)."""
    found = pages()
    with st.container(horizontal=True, gap="medium"):
        for name, label in steps:
            st.page_link(found[name], label=label)


def requests_of(report: Report) -> tuple[str, str, dict[str, str]]:
    """The step to the requests that the verdict speaks of: the failed ones where requests fail, else the slowest."""
    failing = report.verdict.status == "failing"
    return (
        ("traces", "Failed requests", {"show": state.FAILED})
        if failing
        else ("traces", "Slowest requests", {})
    )


def fix_of(finding: Finding | None, label: str) -> list[tuple[str, str, dict[str, str]]]:
    """The step to the What-if page that asks what a finding's fix asked; none where it cannot be asked."""
    asked = (
        sliders.to_try(finding.fix, {info.fix for info in data.fixes()})
        if finding is not None
        else None
    )
    if asked is None:
        return []
    state.forget_fix()
    return [("whatif", label, asked)]


def links_with(*steps: tuple[str, str, dict[str, str]]) -> None:
    """Draw links that choose something on the page they lead to: (page name, what one finds there, parameters beside the filters).

    The filters are added by the browser; named here they would stand in the URL twice.
    """
    found = pages()
    with st.container(horizontal=True, gap="small"):
        for name, label, more in steps:
            st.page_link(found[name], label=label, query_params=more or None)


def _drawn(name: str) -> Callable[[], None]:
    # A page's module is imported when it is first visited, or by the server while it waits for visitors.
    def draw() -> None:
        import_module(f"overrun.dashboard.views.{name}").draw()

    draw.__name__ = name
    return draw
