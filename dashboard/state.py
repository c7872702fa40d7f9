"""What is the person looking at? The only file that reads or writes the URL and the session: filters in, one frozen value out.

Every filter is a widget bound to a query parameter of the same name as the command line's flag, so a URL can be pasted into a channel and
opens the same view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

from analysis.window import parse_duration, rfc3339

PRESETS = ("15m", "1h", "6h", "24h", "7d")
DEFAULT_PRESET = "1h"
# A window that follows the clock moves in these steps, so that all tiles of a run agree on one "now" and answers can be reused.
_SHORT_STEP_S, _LONG_STEP_S = 5, 60
_LONG_FROM_S = 6 * 3600
_FILTERS = "_filters"


@dataclass(frozen=True, slots=True)
class Filters:
    """The question of every page: a window (a preset that follows the clock, or from/to) and filters; None means all."""

    since: str = DEFAULT_PRESET
    from_: str | None = None
    to: str | None = None
    service: str | None = None
    model: str | None = None
    route: str | None = None
    slo: str | None = None

    @property
    def follows_now(self) -> bool:
        """Whether the window ends at the present."""
        return not (self.from_ or self.to)

    def parameters(self, now: datetime) -> dict[str, str]:
        """The API's parameters, with a preset turned into times: the same for every call of a run."""
        window = {"from": self.from_, "to": self.to}
        if self.follows_now:
            length = parse_duration(self.since)
            step = _LONG_STEP_S if length.total_seconds() >= _LONG_FROM_S else _SHORT_STEP_S
            end = datetime.fromtimestamp(int(now.timestamp()) // step * step, UTC)
            window = {"from": rfc3339(end - length), "to": rfc3339(end)}
        named = {**window, "service": self.service, "model": self.model, "route": self.route, "slo": self.slo}
        return {name: value for name, value in named.items() if value}

    def said(self) -> str:
        """The filters besides time as words, empty without any."""
        named = {"service": self.service, "model": self.model, "route": self.route}
        return ", ".join(f"{name} {value}" for name, value in named.items() if value)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def filter_bar(menus: Callable[[Filters], Mapping[str, list[str]]]) -> Filters:
    """Draw the filters, keep what they say for `filters`; `menus` gives the values to choose from for the window chosen so far."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        absolute = any(st.session_state.get(name) or st.query_params.get(name) for name in ("from", "to"))
        since = st.segmented_control(
            "Time range", PRESETS, key="since", bind="query-params", default=DEFAULT_PRESET, required=True, disabled=absolute, label_visibility="collapsed")
        with st.popover("From / to", help="An absolute window; it replaces the preset"):
            from_ = st.text_input("From", key="from", bind="query-params", placeholder="2026-11-20T10:00:00Z or -2h")
            to = st.text_input("To", key="to", bind="query-params", placeholder="now")
            st.caption("RFC 3339 with its zone, or relative to now. Clear both to follow the clock again.")
        chosen = Filters(since or DEFAULT_PRESET, _text(from_), _text(to), *(_text(st.session_state.get(name)) for name in ("service", "model", "route")))
        values = menus(chosen)
        service, model, route = (_menu(name, values.get(name, [])) for name in ("service", "model", "route"))
        slo = st.text_input(
            "SLO", key="slo", bind="query-params", placeholder="SLO: the server's default", label_visibility="collapsed", width=215)
    st.session_state[_FILTERS] = Filters(chosen.since, chosen.from_, chosen.to, service, model, route, _text(slo))
    return filters()


def filters() -> Filters:
    """What the filter bar of this run says."""
    found: Filters = st.session_state.get(_FILTERS) or Filters()
    return found


def _menu(name: str, values: list[str]) -> str | None:
    # A value from a pasted URL stays, even where the window holds no request with it: the page then says that it is empty.
    current = st.session_state.get(name) or st.query_params.get(name)
    options = values if current is None or current in values else [*values, current]
    return st.selectbox(
        name.capitalize(), options, index=None, key=name, bind="query-params", placeholder=f"All {name}s", label_visibility="collapsed", width=146)


def metric(choices: list[str], judged: str | None) -> str:
    """The metric to look at: what the URL says, else the one that the verdict judges."""
    default = judged if judged in choices else choices[0]
    if len(choices) == 1:
        return choices[0]
    labels = [choice.upper() for choice in choices]
    chosen = st.segmented_control("Metric", labels, key="metric", bind="query-params", default=default.upper(), required=True, label_visibility="collapsed")
    return (chosen or default).lower()


def show_around(time: datetime, length: timedelta) -> None:
    """Move the window so that it ends just behind a time: a button's callback."""
    st.session_state["from"], st.session_state["to"] = rfc3339(time - length), rfc3339(time + timedelta(seconds=1))


def chosen_trace() -> str | None:
    """The trace that the URL names, drawn as a text field to paste an id into."""
    return _text(st.text_input("Trace id", key="trace", bind="query-params", placeholder="32 hex digits, or choose a row above"))


def choose_trace(trace_ids: list[str], key: str) -> None:
    """Put the row selected in table `key` into the URL: the table's callback."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows and rows[0] < len(trace_ids):
        st.session_state["trace"] = trace_ids[rows[0]]


def mode() -> str | None:
    """Light or dark, as the browser shows the page."""
    return st.context.theme.type


def _text(value: str | None) -> str | None:
    return value.strip() or None if value else None
