"""What are all charts made of? Plain Plotly specifications as dicts: layout, axes, lines, notes; every text from telemetry passes `label`."""

from __future__ import annotations

import functools
import html
from datetime import UTC, datetime
from typing import Any, Final

from overrun.analysis.words.finding import printable
from overrun.dashboard.theme import Theme, say_tick

Spec = dict[str, Any]
_NAME_LENGTH: Final = 34


def config(name: str) -> Spec:
    """How a chart behaves: its only button is the one that saves it as a picture under `name`; selecting needs none."""
    return {
        "displayModeBar": "hover",
        "displaylogo": False,
        "scrollZoom": False,
        "doubleClick": "reset",
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": "png", "scale": 2, "filename": f"overrun-{name}"},
    }


def figure(spec: Spec) -> Any:
    """Return a Plotly figure that is this specification as it stands, neither validated nor copied (twice, a third of a page's CPU), without a template."""
    return _plain()(spec)


@functools.cache
def _plain() -> type[Any]:
    import plotly.graph_objects as go

    class Plain(go.Figure):  # type: ignore[misc]
        def __init__(self, spec: Spec) -> None:
            object.__setattr__(self, "_spec", spec)

        def to_dict(self) -> Spec:
            spec: Spec = self._spec
            return spec

    return Plain


def label(value: str | None, most: int = _NAME_LENGTH) -> str:
    """Return a text from telemetry as Plotly may show it: no control characters, no markup, bounded."""
    return html.escape(printable(value, most), quote=False)


def layout(theme: Theme, *, height: int, left: int, right: int, top: int = 12) -> Spec:
    """The layout that all figures share.

    Streamlit hands a chart to Plotly twice, before and after it has measured its place: the second time nothing is drawn, because no data has another revision
    (a new copy of it would count as new data) and no empty template has become none. A second drawing costs about what the first does.
    """
    return {
        "height": height,
        "margin": {"l": left, "r": right, "t": top, "b": 40},
        "paper_bgcolor": theme.background,
        "plot_bgcolor": theme.background,
        "font": {"color": theme.ink, "size": 13, "family": '"Source Sans", sans-serif'},
        "hoverlabel": {"bgcolor": theme.surface, "font": {"color": theme.ink}},
        "showlegend": False,
        "datarevision": 0,
    }


def axis(theme: Theme, **more: Any) -> Spec:
    """An axis in the theme's colours."""
    plain: Spec = {
        "gridcolor": theme.line,
        "linecolor": theme.line,
        "zeroline": False,
        "tickfont": {"color": theme.muted, "size": 12},
        "tickangle": 0,
        "automargin": False,
    }
    return plain | more


def legend(theme: Theme, **more: Any) -> Spec:
    """A legend above the figure, which makes room for however many lines it takes; it covers nothing."""
    placed: Spec = {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "font": {"color": theme.ink, "size": 12},
        "bgcolor": "rgba(0,0,0,0)",
    }
    return placed | more


def line(  # noqa: PLR0913
    x0: float | None,
    x1: float | None,
    y0: float,
    y1: float,
    colour: str,
    width: float,
    *,
    dash: str = "solid",
    xref: str = "x",
    yref: str = "y",
) -> Spec:
    """A line as a shape."""
    return {
        "type": "line",
        "x0": x0,
        "x1": x1,
        "y0": y0,
        "y1": y1,
        "xref": xref,
        "yref": yref,
        "line": {"color": colour, "width": width, "dash": dash},
    }


def limit_line(
    limit_ms: float, at: float, ends: list[str], theme: Theme, *, common: bool = False
) -> Spec:
    """A limit over the whole of a chart, dashed. Its words stand in the legend: beside it they covered the ends of other lines.

    `common`: some requests came with limits of their own, by which they are judged instead.
    """
    name = f"{'common ' if common else ''}limit {say_tick(limit_ms)}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": ends,
        "y": [at, at],
        "hoverinfo": "skip",
        "line": {"color": theme.ink, "dash": "dash", "width": 1.5},
    }


def note(  # noqa: PLR0913
    x: float,
    y: float,
    words: str,
    theme: Theme,
    *,
    xref: str = "x",
    yref: str = "y",
    xanchor: str = "center",
    xshift: int = 0,
    yshift: int = 0,
    background: str | None = None,
) -> Spec:
    """Words at a place of the figure; `words` is safe."""
    placed: Spec = {
        "x": x,
        "y": y,
        "text": words,
        "xref": xref,
        "yref": yref,
        "xanchor": xanchor,
        "xshift": xshift,
        "yshift": yshift,
        "showarrow": False,
        "font": {"color": theme.ink, "size": 12},
    }
    return placed | ({"bgcolor": background} if background else {})


def utc(text: str) -> datetime:
    """Read a time of a selection."""
    # Plotly answers in the axis' own clock without a zone, sometimes with four digits of a second.
    whole, _, part = str(text).replace("Z", "").replace(" ", "T").partition(".")
    whole = (
        f"{whole}:00" if whole.count(":") == 1 else whole if "T" in whole else f"{whole}T00:00:00"
    )
    return datetime.fromisoformat(f"{whole}.{(part or '0')[:6]:0<6}").replace(tzinfo=UTC)


def stretch_of(selection: dict[str, Any] | None) -> tuple[datetime, datetime] | None:
    """Return the stretch of time that was drawn over, None without one."""
    boxes = (selection or {}).get("box") or []
    if not boxes:
        return None
    start, end = sorted(utc(text) for text in boxes[0]["x"])
    return (start, end) if start < end else None
