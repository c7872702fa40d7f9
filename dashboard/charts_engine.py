"""How are an engine's indicators drawn? The effect on top and its possible causes below, one time axis, alerts as lines through all rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from overrun.analysis.evidence.engine_timeline import EngineCourse, IndicatorCourse
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.plot import Spec, axis, layout, line, note
from overrun.dashboard.theme import Theme, say_age, say_ms, say_number, say_tick, ticks

ROW_PX: Final = 112
# A gap in an indicator is so many times as long as what usually lies between two samples.
_MISSED: Final = 2.5
_NAMES: Final = {
    "kv_cache_usage": "KV cache used",
    "queue_depth": "Requests waiting",
    "running": "Running batch",
    "prefix_cache_hit_rate": "Prefix cache hits",
    "preemptions": "Preemptions per second",
    "output_tokens": "Output tokens per second",
    "spec_accept_rate": "Drafts accepted",
    "gpu_util": "GPU busy",
    "prompt_tokens": "Prompt tokens per second",
    "arrivals": "Requests arriving per second",
    "iteration_time": "Step time",
    "iteration_deviation": "Variation of the step time",
}
_RATIOS: Final = frozenset(
    {"kv_cache_usage", "prefix_cache_hit_rate", "spec_accept_rate", "gpu_util"}
)
_SECONDS: Final = frozenset({"iteration_time", "iteration_deviation"})
_LEVELS: Final = frozenset({"queue_depth", "running"})


def name_of(indicator: str) -> str:
    """Return an indicator in words."""
    return _NAMES.get(indicator, indicator.replace("_", " "))


def say_threshold(indicator: str, value: float) -> str:
    """Return a threshold of an indicator with its unit."""
    if indicator in _SECONDS:
        return say_ms(1000.0 * value)
    return say_number(
        value, "ratio" if indicator in _RATIOS else "requests" if indicator in _LEVELS else "1/s"
    )


def has_effect(found: EngineCourse) -> bool:
    """Whether the metric has a P95 in any step."""
    return any(value is not None for value in found.effect_p95_ms)


def rows(found: EngineCourse, theme: Theme) -> Spec:
    """One row for the metric's P95, where any step has one, and one per indicator."""
    times = (
        [
            (found.start + timedelta(seconds=found.step_s * (i + 0.5))).isoformat()
            for i in range(len(found.effect_p95_ms))
        ]
        if found.start
        else []
    )
    drawn: list[IndicatorCourse | None] = [
        *([None] if has_effect(found) else []),
        *found.indicators,
    ]
    count = len(drawn)
    shape = layout(theme, height=60 + ROW_PX * count, left=64, right=12, top=26)
    shape |= {
        "shapes": [],
        "annotations": [],
        "dragmode": "select",
        "selectdirection": "h",
        "xaxis": axis(
            theme,
            type="date",
            showgrid=False,
            anchor=f"y{count}" if count > 1 else "y",
            range=[times[0], times[-1]] if len(times) > 1 else None,
        ),
    }
    data: list[Spec] = []
    height = 1.0 / count
    for i, row in enumerate(drawn):
        high = 1.0 - i * height - 0.012
        low = 1.0 - (i + 1) * height + 0.028
        key = "" if i == 0 else str(i + 1)
        if row is None:
            values, colour, name, limit = (
                found.effect_p95_ms,
                theme.ink,
                f"{found.metric.upper()} P95",
                found.limit_ms,
            )
        else:
            values, colour, name, limit = (
                row.values,
                theme.engine,
                name_of(row.indicator),
                row.threshold,
            )
        top = max(
            [value for value in values if value is not None]
            + [limit or 0.0]
            + ([1.0] if row is not None and row.unit == "ratio" else [])
        )
        top = top if top > 1e-6 else 1.0  # a threshold of "any at all" is no scale
        marks = ticks(top)
        at, values = (times, values) if row is None else bridged(times, values)
        marks = marks[:: 1 + len(marks) // 4]
        words = [say_tick(mark) if row is None else say_number(mark, row.unit) for mark in marks]
        shape[f"yaxis{key}"] = axis(
            theme, domain=[low, high], range=[0, top * 1.12], tickvals=marks, ticktext=words
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers"
                if sum(value is not None for value in values) < 40
                else "lines",
                "x": at,
                "y": values,
                "yaxis": f"y{key}",
                "line": {"color": colour, "width": 1.9},
                "marker": {"size": 4},
                "name": name,
                "customdata": _steps(found) if row is None else None,
                "hoverinfo": "text",
                "fill": "tozeroy" if row is not None and None not in values else "none",
                "fillcolor": f"{colour}22",
                "hovertext": [
                    ""
                    if value is None
                    else f"{name} {say_ms(value)}; click to see the slowest"
                    if row is None
                    else f"{name} {say_number(value, row.unit)}"
                    for value in values
                ],
            }
        )
        shape["annotations"].append(
            note(
                0.004,
                high,
                f"<b>{name}</b>",
                theme,
                xref="paper",
                yref="paper",
                xanchor="left",
                yshift=-6,
                background=theme.background,
            )
        )
        if limit is not None and limit > 1e-6:
            shape["shapes"].append(
                line(0, 1, limit, limit, theme.ink, 1.2, dash="dash", xref="paper", yref=f"y{key}")
            )
    _alerts(found, shape, theme)
    return {"data": data, "layout": shape}


def _steps(found: EngineCourse) -> list[str]:
    """The requests of each step of the metric's line."""
    return [
        Box.of_step(found.start + timedelta(seconds=found.step_s * i), found.step_s).text()
        for i in range(len(found.effect_p95_ms) if found.start else 0)
        if found.start
    ]


def bridged(
    times: list[str], values: Sequence[float | None]
) -> tuple[list[str], list[float | None]]:
    """The samples of an indicator: steps without one are left out where samples come that seldom, and stay as a gap where some are missing."""
    known = [i for i, value in enumerate(values) if value is not None]
    usual = (
        sorted(after - before for before, after in itertools.pairwise(known))[(len(known) - 1) // 2]
        if len(known) > 1
        else 1
    )
    at: list[str] = []
    kept: list[float | None] = []
    for place, i in enumerate(known):
        if place and i - known[place - 1] > _MISSED * usual:
            at.append(times[i - 1])
            kept.append(None)
        at.append(times[i])
        kept.append(values[i])
    return at, kept


def _alerts(found: EngineCourse, shape: Spec, theme: Theme) -> None:
    """Vertical lines: when alerts began (dotted) and when latency broke (solid), the time between the first warning and the breach shaded."""
    warned = [
        row
        for row in found.indicators
        if row.lead_s is not None and row.lead_s > 0 and row.crossed_at
    ]
    for row in found.indicators:
        if row.crossed_at is not None:
            shape["shapes"].append(_vertical(row.crossed_at, theme.accent, "dot"))
    if found.breach_at is not None:
        shape["shapes"].append(_vertical(found.breach_at, theme.over, "solid"))
        shape["annotations"].append(
            note(0, 1.0, "▲ over the limit", theme, yref="paper", xanchor="left", yshift=12)
            | {"x": found.breach_at.isoformat()}
        )
    if warned and found.breach_at is not None:
        first = min(row.crossed_at for row in warned if row.crossed_at)
        lead_s = (found.breach_at - first).total_seconds()
        shape["shapes"].append(
            {
                "type": "rect",
                "x0": first.isoformat(),
                "x1": found.breach_at.isoformat(),
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"width": 0},
                "fillcolor": theme.accent,
                "opacity": 0.13,
            }
        )
        shape["annotations"].append(
            note(0, 1.0, f"{say_age(lead_s)} lead", theme, yref="paper", xanchor="right", yshift=12)
            | {"x": found.breach_at.isoformat(), "xshift": -4}
        )


def _vertical(at: datetime, colour: str, dash: str) -> Spec:
    drawn: Spec = {"color": colour, "width": 1.6, "dash": dash}
    return {
        "type": "line",
        "x0": at.isoformat(),
        "x1": at.isoformat(),
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": drawn,
    }
