"""Which window is shown, and how is another one chosen? Two clocks in UTC or in the reader's own time, or words as the command line reads them.

HTML that the page's script (`page.js`) brings to life: what is chosen goes into the address as one step of the history. The browser's own clocks are
read aloud, work by keyboard and are a wheel on a phone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.times import parse_duration, parse_time, rfc3339
from overrun.dashboard import ui

_HOUR = timedelta(hours=1)


def render(from_: str | None, to: str | None, since: str, now: datetime) -> str:
    """Return the picker as safe HTML. `from_` and `to` are the address's own words; without them the last `since` is shown.

    A window that follows the clock is not named: the page would close an open picker with each step.
    """
    if from_ or to:
        shown = read(from_ or (None if to else f"-{since}"), to, now)
        words = f"{ui.text(from_ or '', 32)} to {ui.text(to or 'now', 32)}"
        edges = f'data-length="{_HOUR.total_seconds():.0f}"'
        if shown is not None:
            words = f"{_edge(shown[0])} to {_end(shown)} UTC"
            edges = f'data-from="{rfc3339(shown[0])}" data-to="{rfc3339(shown[1])}"'
    else:
        words, edges = "From … to …", f'data-length="{parse_duration(since).total_seconds():.0f}"'
    clocks = "".join(
        f'<label>{name}<input type="datetime-local" step="1" data-edge="{edge}" max="2199-12-31T23:59:59"></label>'
        for name, edge in (("Start", "from"), ("End", "to"))
    )
    zones = "".join(
        f'<label><input type="radio" name="ov-zone" value="{value}"{" checked" if value == "utc" else ""}>{name}</label>'
        for value, name in (("utc", "UTC"), ("own", "your time"))
    )
    return (
        f'<details class="ov-when" {edges}><summary aria-label="Window: {words}">{words}</summary>'
        f'<div class="ov-panel" role="group" aria-label="Choose a window">{clocks}<span class="ov-zones">{zones}</span>'
        '<small class="ov-other" role="status"></small>'
        '<label>or in words<input type="text" class="ov-typed" placeholder="-2h..-1h" autocomplete="off"></label>'
        '<button type="button" class="ov-show">Show this window</button></div></details>'
    )


def read(from_: str | None, to: str | None, now: datetime) -> tuple[datetime, datetime] | None:
    """What two edges mean, None where one cannot be read: the server then says why."""
    try:
        end = parse_time(to, now) if to else now
        start = parse_time(from_, now) if from_ else end - _HOUR
    except WindowError:
        return None
    return (start, end) if start < end else None


def _edge(time: datetime) -> str:
    return f"{time:%-d %b %H:%M:%S}"


def _end(shown: tuple[datetime, datetime]) -> str:
    start, end = shown
    return f"{end:%H:%M:%S}" if start.date() == end.date() else _edge(end)
