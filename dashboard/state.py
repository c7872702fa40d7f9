"""What is the person looking at? The only file that reads or writes the URL and the session: filters in, one frozen value out.

Every filter is a widget bound to a query parameter of the same name as the command line's flag, so a URL can be pasted into a channel and
opens the same view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import streamlit as st

from overrun.analysis.front.client import ClientError
from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.times import parse_duration, rfc3339
from overrun.dashboard import window_picker
from overrun.dashboard.heatmap_box import Box

PRESETS = ("15m", "1h", "6h", "24h", "7d")
DEFAULT_PRESET = "1h"
# A window that follows the clock moves in these steps, so that all tiles of a run agree on one "now" and answers can be reused.
_SHORT_STEP_S, _LONG_STEP_S = 5, 60
_LONG_FROM_S = 6 * 3600
_FILTERS, _PRESENT, _DRAWN, _ASKED, _BEGUN, _JUDGED = (
    "_filters",
    "_present",
    "_drawn",
    "_asked",
    "_begun",
    "_judged",
)
# Visits that have begun with the page's address and whose session is not there yet.
_EXPECTED: dict[Filters, datetime] = {}
_MOST_EXPECTED, _EXPECTED_FOR = 64, timedelta(seconds=10)
_BLANK_OFFSET = re.compile(r"([T ]\d{2}:[\d:.]+) (\d{2}:\d{2})$", re.IGNORECASE)
SLOWEST, FAILED = "slowest", "failed"
_LONGEST = 1000
KINDS = ("service", "model", "route", "tenant")


@dataclass(frozen=True, slots=True)
class Filters:
    """The question of every page: a window (a preset that follows the clock, or from/to) and filters; None means all."""

    since: str = DEFAULT_PRESET
    from_: str | None = None
    to: str | None = None
    service: str | None = None
    model: str | None = None
    route: str | None = None
    tenant: str | None = None
    slo: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filters:
        """The parameters of a URL, as the filter bar will read them."""
        since = query.get("since", "")
        named = {name: _text(query.get(name)) for name in (*KINDS, "slo")}
        from_, to = (_time(query.get(name)) for name in ("from", "to"))
        return cls(
            since if since in PRESETS else DEFAULT_PRESET,
            from_ or (None if to else _other_length(since)),
            to,
            **named,
        )

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
        named = {**window, **{kind: getattr(self, kind) for kind in KINDS}, "slo": self.slo}
        return {name: value for name, value in named.items() if value}

    def said(self) -> str:
        """The filters besides time as words, empty without any."""
        return ", ".join(f"{kind} {value}" for kind in KINDS if (value := getattr(self, kind)))


def _other_length(since: str) -> str | None:
    """What is no preset, as the start of a window: a length that the command line reads, or what the server will say cannot be read. None for a preset."""
    since = since.strip()
    if since in PRESETS or not since:
        return None
    try:
        parse_duration(since)
    except WindowError:
        return since
    return f"-{since}"


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def _time(text: str | None) -> str | None:
    # The `+` of an offset that a person has put into an address by hand arrives as a blank.
    return _text(_BLANK_OFFSET.sub(r"\1+\2", text.strip())) if text else None


def present() -> datetime:
    """The present that all answers of a page agree on. It moves when the filters change or when `advance` is called, not with every click."""
    held: tuple[Filters, datetime] | None = st.session_state.get(_PRESENT)
    current = filters()
    if held is None or held[0] != current:
        held = st.session_state[_PRESENT] = (current, _expected(current) or now())
    return held[1]


def expect(filters: Filters) -> datetime:
    """A browser is loading a page with these filters: the present from which it will look, if it comes soon."""
    if len(_EXPECTED) >= _MOST_EXPECTED:
        _EXPECTED.clear()
    _EXPECTED[filters] = begun = now()
    return begun


def _expected(filters: Filters) -> datetime | None:
    since = _EXPECTED.pop(filters, None)
    return since if since is not None and now() - since < _EXPECTED_FOR else None


def advance() -> None:
    """Let the page follow the clock up to now."""
    st.session_state.pop(_PRESENT, None)


def asked_before(question: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...] | None:
    """The question of the session's run before this one, None in its first."""
    before: tuple[tuple[str, str], ...] | None = st.session_state.get(_ASKED)
    st.session_state[_ASKED] = question
    return before


def drawn(watermark: tuple[object, ...]) -> tuple[object, ...]:
    """The state of the store that the page shows: what was given first since the present last moved."""
    found: tuple[datetime, tuple[object, ...]] | None = st.session_state.get(_DRAWN)
    if found is None or found[0] != present():
        found = st.session_state[_DRAWN] = (present(), watermark)
    return found[1]


def chosen(names: Sequence[str]) -> str | None:
    """The first of these choices that the URL carries: what a redraw would take from under the reader."""
    return next((name for name in names if st.query_params.get(name)), None)


def filter_bar(menus: Callable[[Filters], Mapping[str, list[str]]]) -> Filters:
    """Draw the filters, keep their values for `filters`; `menus` gives the values to choose from for the window chosen so far."""
    other = _other_length(st.query_params.get("since", ""))
    if other is not None:
        del st.query_params["since"]
        if not any(_given(name) for name in ("from", "to")):
            st.session_state["from"] = st.query_params["from"] = other
    with st.container(horizontal=True, vertical_alignment="bottom", gap="xsmall", key="filters"):
        # Seen on a phone alone, where the filters are folded away (theme.css).
        st.toggle("Filters", key="show_filters")
        if any(_given(name) for name in ("from", "to")):
            st.button(
                "Follow now",
                on_click=follow_now,
                icon=":material/play_arrow:",
                help="Leave the fixed window and follow the current time",
            )
            since = None
        else:
            since = st.segmented_control(
                "Time range",
                PRESETS,
                key="since",
                bind="query-params",
                default=DEFAULT_PRESET,
                required=True,
                label_visibility="collapsed",
            )
        # Not seen (theme.css): they bind the window to the URL, and the picker writes it there.
        from_, to = _bounds()
        picker = window_picker.render(_time(from_), _time(to), since or DEFAULT_PRESET, now())
        st.html(f'<div class="ov">{picker}</div>', width="content")
        chosen = Filters(
            since or DEFAULT_PRESET,
            _time(from_),
            _time(to),
            *(_text(_given(name)) for name in (*KINDS, "slo")),
        )
        st.session_state[_FILTERS] = chosen
        try:
            values, gone = menus(chosen), None
        except (
            ClientError
        ) as error:  # what is chosen stays in sight and in the URL, for any answer of the server
            values, gone = {}, error
        # A menu without values would only take room.
        shown = [kind for kind in KINDS if kind != "tenant" or values.get(kind) or _given(kind)]
        picked = {kind: _menu(kind, values.get(kind, [])) for kind in shown}
        slo = st.text_input(
            "SLO",
            key="slo",
            bind="query-params",
            placeholder="SLO: server's default",
            label_visibility="collapsed",
            width=152,
        )
    st.session_state[_FILTERS] = Filters(
        chosen.since, chosen.from_, chosen.to, **picked, slo=_text(slo)
    )
    if gone is not None:
        raise gone
    return filters()


def _bounds() -> tuple[str, str]:
    return (
        st.text_input("From", key="from", bind="query-params"),
        st.text_input("To", key="to", bind="query-params"),
    )


def filters() -> Filters:
    """The values of this run's filter bar."""
    found: Filters = st.session_state.get(_FILTERS) or Filters()
    return found


def _menu(name: str, values: list[str]) -> str | None:
    # A value from a pasted URL stays, even where the window holds no request with it: the page then reports that it is empty.
    current = _given(name)
    options = values if current is None or current in values else [*values, current]
    return st.selectbox(
        name.capitalize(),
        options,
        index=None,
        key=name,
        bind="query-params",
        placeholder=name.capitalize(),
        label_visibility="collapsed",
        width=98 if current is None else "stretch",
    )


def _given(name: str) -> str | None:
    # Before its widget stands for the first time, a filter is only in the URL; afterwards the URL may lag behind.
    found: str | None = (
        st.session_state[name] if name in st.session_state else st.query_params.get(name)
    )
    return found


def follow_now() -> None:
    """Leave a fixed window: a button's callback."""
    st.session_state["from"] = st.session_state["to"] = ""


def metric_of(query: Mapping[str, str], choices: list[str], judged: str | None) -> str:
    """The metric to look at: from the address, else the one that the verdict judges."""
    named = query.get("metric", "").lower()
    return named if named in choices else judged if judged in choices else choices[0]


def metric(choices: list[str], judged: str | None) -> str:
    """The same, drawn as a choice."""
    default = judged if judged in choices else choices[0]
    if len(choices) == 1:
        return choices[0]
    labels = [choice.upper() for choice in choices]
    if (held := st.session_state.get("metric")) in labels and "metric" not in st.query_params:
        chose = held != st.session_state.get(
            _JUDGED
        )  # what was judged when it was drawn is nobody's choice, and follows the verdict
        st.session_state["metric"] = held if chose else default.upper()
        # What a URL had chosen is otherwise lost on the next page, and back on the one behind it.
        if chose and held != default.upper():
            st.query_params["metric"] = held
    st.session_state[_JUDGED] = default.upper()
    chosen = st.segmented_control(
        "Metric",
        labels,
        key="metric",
        bind="query-params",
        default=default.upper(),
        required=True,
        label_visibility="collapsed",
    )
    return (chosen or default).lower()


def show_around(time: datetime, length: timedelta) -> None:
    """Move the window so that it ends just behind a time: a button's callback."""
    st.session_state["from"], st.session_state["to"] = (
        rfc3339(time - length),
        rfc3339(time + timedelta(seconds=1)),
    )


def failed_first_of(query: Mapping[str, str], *, failing: bool) -> bool:
    """Whether the list of requests begins with those that failed: from the address, else if requests are `failing`."""
    said = query.get("show")
    return said == FAILED if said in (SLOWEST, FAILED) else failing


def failed_first(*, failing: bool) -> bool:
    """The same, drawn as a choice."""
    return (
        st.segmented_control(
            "Requests",
            [SLOWEST, FAILED],
            key="show",
            bind="query-params",
            default=FAILED if failing else SLOWEST,
            required=True,
            label_visibility="collapsed",
        )
        == FAILED
    )


def asked_show() -> bool:
    """Whether the address chooses which requests come first."""
    return "show" in st.query_params


def chosen_trace() -> str | None:
    """The trace that the URL names, drawn as a text field to paste an id into."""
    return _text(
        st.text_input(
            "Trace id",
            key="trace",
            bind="query-params",
            placeholder="32 hex digits, or choose a row below",
        )
    )


def asked_trace() -> str | None:
    """The same, before the field is drawn."""
    return _text(_given("trace"))


def show_trace(trace_id: str) -> None:
    """Show another trace: a button's callback."""
    st.session_state["trace"] = trace_id


def span_page(spans: int, size: int) -> int | None:
    """Which spans of a large trace to draw: None for the ones that matter, else the first of a page of `size`."""
    pages = [
        "main",
        *(f"{first + 1}-{min(first + size, spans)}" for first in range(0, spans, size)),
    ]
    page = st.selectbox(
        f"Spans shown, of {spans:,} (main: the critical path and the longest)",
        pages,
        key="spans",
        bind="query-params",
        width=360,
    )
    return None if page in (None, "main") else int(page.partition("-")[0]) - 1


def box() -> Box | None:
    """The box on the heat map that the URL names."""
    return Box.read(st.query_params.get("box", ""))


def choose_box(box: Box | None) -> None:
    """Put a box into the URL, whole seconds outwards so that it holds what was drawn around; None takes it out."""
    for name in ("where", "by"):
        st.query_params.pop(name, None)
    if box is None:
        st.query_params.pop("box", None)
        return
    start, end = (
        box.start.replace(microsecond=0),
        box.end.replace(microsecond=0) + timedelta(seconds=bool(box.end.microsecond)),
    )
    st.query_params["box"] = Box(
        start, max(end, start + timedelta(seconds=1)), box.min_ms, box.max_ms
    ).text()


def narrowed(query: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """The conditions and the grouping that the URL names, for the question what chosen requests share."""
    given = st.query_params if query is None else query
    return tuple((name, text[:_LONGEST]) for name in ("where", "by") if (text := given.get(name)))


def zoom_window(start: datetime, end: datetime) -> None:
    """Make a stretch of time, in whole seconds, the window: a chart's callback."""
    end = max(end, start + timedelta(seconds=1))
    st.session_state["from"], st.session_state["to"] = (
        rfc3339(edge.replace(microsecond=0)) for edge in (start, end)
    )


def zoom_to(box: Box) -> None:
    """Make a box the window and choose it no longer: a button's callback."""
    st.session_state["from"], st.session_state["to"] = rfc3339(box.start), rfc3339(box.end)
    for name in ("box", "where", "by"):
        st.query_params.pop(name, None)


def sides(before: str, after: str) -> tuple[str, str]:
    """The two windows to compare: from the URL, else as given."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = [
            st.text_input(
                label,
                key=key,
                bind="query-params",
                placeholder=default or "FROM..TO or version=NAME",
            )
            for label, key, default in (("A before", "before", before), ("B after", "after", after))
        ]
    return _text(chosen[0]) or before, _text(chosen[1]) or after


def fix(known: Sequence[str], default: str) -> str:
    """The fix to ask about: from the URL, else `default`."""
    chosen = st.selectbox(
        "Fix",
        known,
        index=known.index(default) if default in known else 0,
        key="fix",
        bind="query-params",
        on_change=_forget_parameters,
    )
    return chosen or default


def _forget_parameters() -> None:
    """Another fix was chosen: it has parameters of its own, and begins with those that the findings suggest."""
    st.session_state[_BEGUN] = set()
    drawn = {str(key) for key in st.session_state if str(key).startswith("p_")}
    for name in [
        name for name in st.query_params if name.startswith("p_") and name not in drawn
    ]:  # those of widgets go with them
        del st.query_params[name]


def forget_fix() -> None:
    """Forget which fix was asked about, where a link to one is drawn: Streamlit takes a link that names a widget's default for no choice, and would keep the
    choice before."""
    for key in [str(key) for key in st.session_state]:
        if key in ("fix", _BEGUN) or key.startswith("p_"):
            del st.session_state[key]


def parameter(name: str, options: Sequence[str], begin: str, help: str) -> str:
    """One parameter of a fix, as a slider over its steps; a value from a pasted URL that is no step is one."""
    key = f"p_{name}"
    begun: set[str] | None = st.session_state.get(_BEGUN)
    if begun is not None and key not in begun:
        begun.add(key)
        st.session_state[key] = begin  # deleting it would bring back what the address began with
    given = _given(key)
    numbers = all(option.replace(".", "", 1).isdigit() for option in options)
    if given and given not in options and numbers and given.replace(".", "", 1).isdigit():
        options = sorted([*options, given], key=float)
    label = name.replace("_", " ")
    if not options:
        return st.text_input(label, begin, key=key, bind="query-params", help=help)
    if not numbers or len(options) < 4:
        return (
            st.selectbox(
                label,
                options,
                index=list(options).index(begin) if begin in options else 0,
                key=key,
                bind="query-params",
                help=help,
            )
            or begin
        )
    return str(
        st.select_slider(label, options, value=begin, key=key, bind="query-params", help=help)
    )


def picked_side() -> str:
    """Which of the two windows dragging sets."""
    side = st.segmented_control(
        "Dragging sets", ["A before", "B after"], key="_side", default="B after", required=True
    )
    return "before" if side == "A before" else "after"


def choose_side(side: str, text: str) -> None:
    """Put a window to compare into the URL."""
    st.session_state[side] = text


def mode() -> str | None:
    """Light or dark, as the browser shows the page."""
    return st.context.theme.type


def _text(value: str | None) -> str | None:
    return value.strip() or None if value else None
