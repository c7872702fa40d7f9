"""How is calibration drawn? Promised against observed share per route, with the diagonal of perfect calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from overrun.dashboard.plot import Spec, axis, label, layout, legend
from overrun.dashboard.theme import Theme, say_ratio

_LEVELS: Final = (("p10_coverage", 0.1), ("p90_coverage", 0.9), ("p99_coverage", 0.99))
_MOST: Final = 8
_MARKS: Final = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


def calibration(routes: Sequence[Mapping[str, Any]], theme: Theme) -> Spec:
    """One line per route (the busiest eight, separated by their marks) through P10, P90 and P99."""
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [0, 1],
            "y": [0, 1],
            "line": {"color": theme.muted, "dash": "dash", "width": 1.2},
            "name": "perfect calibration",
            "hoverinfo": "skip",
        }
    ]
    for i, route in enumerate(routes[:_MOST]):
        name = label(str(route["route"]))
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [level for _, level in _LEVELS],
                "y": [route["scores"][key] for key, _ in _LEVELS],
                "line": {"color": theme.accent, "width": 1.2},
                "marker": {"size": 9, "symbol": _MARKS[i], "color": theme.accent},
                "hoverinfo": "text",
                "hovertext": [
                    f"{name}: {say_ratio(route['scores'][key])} at most P{100 * level:g}, n {route['scores']['rows']:,}"
                    for key, level in _LEVELS
                ],
            }
        )
    marks, words = [0.1, 0.5, 0.9], ["10 %", "50 %", "90 %"]
    shape = layout(theme, height=340, left=58, right=16, top=16)
    shape |= {
        "showlegend": True,
        "legend": legend(theme, x=0.02, y=0.98, yanchor="top", orientation="v"),
        "xaxis": axis(
            theme,
            range=[0, 1.02],
            tickvals=marks,
            ticktext=words,
            title={"text": "predicted share", "font": {"size": 12, "color": theme.muted}},
        ),
        "yaxis": axis(
            theme,
            range=[0, 1.03],
            tickvals=marks,
            ticktext=words,
            title={"text": "observed share", "font": {"size": 12, "color": theme.muted}},
        ),
    }
    return {"data": data, "layout": shape}
