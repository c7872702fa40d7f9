"""How are two windows drawn? The series to pick them on, how far each quantile moved, and which stage moved it: plain specifications."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from overrun.analysis.numbers.comparison.compare import MetricChange, StageChange
from overrun.analysis.numbers.over_time.series import Series
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.plot import Spec, axis, layout, legend, limit_line, line, note
from overrun.dashboard.theme import Theme, in_order, say_added, say_ms, say_step, say_tick, ticks

Span = tuple[datetime, datetime]
# What moved by more per cent than this stands at the edge as an arrow: an axis that held it would leave no room for the others.
BEYOND: Final = 2000.0


def picker(course: Series, before: Span | None, after: Span | None, theme: Theme) -> Spec:
    """P50 and P95 over the window, with the two picked stretches marked A and B."""
    half = timedelta(seconds=course.step_s / 2)
    times = [(point.start + half).isoformat() for point in course.points]
    top = (
        max(
            [
                value
                for point in course.points
                for value in (point.p50, point.p95)
                if value is not None
            ]
            + [course.limit_ms or 0.0]
        )
        or 1.0
    )
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"{name} per {say_step(course.step_s)}",
            "x": times,
            "y": [getattr(point, name.lower()) for point in course.points],
            "line": {"color": colour, "dash": dash, "width": width},
            "marker": {"size": 4},
            "customdata": [
                Box.of_step(point.start, course.step_s).text() for point in course.points
            ],
            "hoverinfo": "text",
            "hovertext": [
                f"{name} {say_ms(getattr(point, name.lower()))}, n {point.n:,}; click to see the slowest"
                for point in course.points
            ],
        }
        for name, colour, dash, width in (
            ("P50", theme.muted, "dot", 1.5),
            ("P95", theme.accent, "solid", 2.2),
        )
    ]
    shape = layout(theme, height=240, left=62, right=10, top=24)
    marks = ticks(top)
    shape |= {
        "dragmode": "select",
        "selectdirection": "h",
        "shapes": [],
        "annotations": [],
        "showlegend": True,
        "legend": legend(theme),
        "xaxis": axis(theme, type="date", showgrid=False),
        # Room above the lines for the names of A and B.
        "yaxis": axis(
            theme, tickvals=marks, ticktext=[say_tick(mark) for mark in marks], range=[0, top * 1.2]
        ),
    }
    for name, span, dash, colour in (
        ("A before", before, "dot", theme.muted),
        ("B after", after, "solid", theme.accent),
    ):
        if span is not None:
            shape["shapes"].append(
                {
                    "type": "rect",
                    "x0": span[0].isoformat(),
                    "x1": span[1].isoformat(),
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "fillcolor": colour,
                    "opacity": 0.14,
                    "line": {"color": colour, "width": 1.5, "dash": dash},
                }
            )
            middle = span[0] + (span[1] - span[0]) / 2
            shape["annotations"].append(
                note(0.0, 1.0, name, theme, yref="paper")
                | {"x": middle.isoformat(), "yanchor": "top"}
            )
    if course.limit_ms is not None and times:
        data.append(
            limit_line(
                course.limit_ms,
                course.limit_ms,
                [times[0], times[-1]],
                theme,
                common=course.own_limits > 0,
            )
        )
    return {"data": data, "layout": shape}


def shift(metrics: list[MetricChange], theme: Theme) -> Spec:
    """Change of each quantile, in per cent of before, with its interval; hollow where other traffic is taken out; right of zero is slower, an arrow more so
    than the axis is long."""
    rows = [
        (metric.metric, change)
        for metric in metrics
        for change in metric.quantiles
        if change.difference_ms is not None and change.before_ms
    ]
    names = [f"{metric.upper()} P{change.quantile:g}" for metric, change in rows]
    data, extent = [], [5.0]
    for name, filled in (("measured", True), ("with the same traffic", False)):
        values, low, high, words, symbols = [], [], [], [], []
        for _, change in rows:
            value = change.difference_ms if filled else change.adjusted_ms
            interval = change.interval if filled else change.adjusted_interval
            base = (change.before_ms or 1.0) / 100.0
            beyond = value is not None and value / base > BEYOND
            values.append(None if value is None else min(value / base, BEYOND))
            low.append(
                0.0 if value is None or interval is None or beyond else (value - interval[0]) / base
            )
            high.append(
                0.0 if value is None or interval is None or beyond else (interval[1] - value) / base
            )
            symbols.append(("triangle-right" if beyond else "circle") + ("" if filled else "-open"))
            between = f" ({say_added(interval[0])} to {say_added(interval[1])})" if interval else ""
            words.append("" if value is None else f"{name}: {say_added(value)}{between}")
            extent += [
                abs(part)
                for part in ([value / base] if value is not None else [])
                + ([side / base for side in interval] if interval else [])
            ]
        if all(value is None for value in values):
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": values,
                "y": [i + (0.0 if filled else 0.28) for i in range(len(rows))],
                "marker": {"color": theme.accent, "size": 10, "symbol": symbols},
                "hoverinfo": "text",
                "hovertext": words,
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": high,
                    "arrayminus": low,
                    "color": theme.accent,
                    "thickness": 1.5,
                    "width": 4,
                },
            }
        )
    shape = layout(theme, height=90 + 34 * max(len(rows), 1), left=84, right=96, top=26)
    reach = min(max(extent), BEYOND) * 1.1
    shape |= {
        "showlegend": True,
        "legend": legend(theme),
        "xaxis": axis(theme, range=[-min(reach, 110.0), reach], ticksuffix=" %"),
        "shapes": [line(0, 0, 0, 1, theme.ink, 1.2, yref="paper")],
        "annotations": [
            note(
                1.0,
                i,
                say_added(change.difference_ms or 0.0),
                theme,
                xref="paper",
                xanchor="left",
                xshift=8,
            )
            for i, (_, change) in enumerate(rows)
        ],
        "yaxis": axis(
            theme,
            tickvals=list(range(len(rows))),
            ticktext=names,
            range=[len(rows) - 0.3, -0.6],
            showgrid=False,
        ),
    }
    return {"data": data, "layout": shape}


def moved(stages: list[StageChange]) -> list[str]:
    """The stages that take more or less time than before, as far as a chart shows it, in the order of the pipeline."""
    return in_order(
        [
            row.stage
            for row in stages
            if max(abs(row.difference_ms), abs(row.tail_difference_ms)) >= 0.05
        ]
    )


def stage_changes(stages: list[StageChange], theme: Theme) -> Spec:
    """What each stage took more or less per request: over all, and around the SLO percentile (hatched); they add up to the request's own."""
    rows, shown = {row.stage: row for row in stages}, moved(stages)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": shown,
            "x": [getattr(rows[stage], field) for stage in shown],
            "marker": {
                "color": [theme.stage(stage) for stage in shown],
                "pattern": {"shape": shape, "fgcolor": theme.background},
            },
            "hoverinfo": "text",
            "hovertext": [
                f"{stage} {say_added(getattr(rows[stage], field))}, {name}" for stage in shown
            ],
            "text": [say_added(getattr(rows[stage], field)) for stage in shown],
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"color": theme.ink},
        }
        for name, field, shape in (
            ("mean of all requests", "difference_ms", ""),
            ("around the SLO percentile", "tail_difference_ms", "/"),
        )
    ]
    values = [
        0.0,
        *(
            getattr(rows[stage], field)
            for stage in shown
            for field in ("difference_ms", "tail_difference_ms")
        ),
    ]
    low, high = min(values), max(values)
    room = 0.28 * ((high - low) or 1.0)
    shape = layout(theme, height=90 + 44 * max(len(shown), 1), left=104, right=20, top=26)
    shape |= {
        "barmode": "group",
        "xaxis": axis(
            theme, range=[low - room * (low < 0.0), high + room], showticklabels=False, nticks=5
        ),
        "yaxis": axis(theme, autorange="reversed", showgrid=False),
        "shapes": [line(0, 0, 0, 1, theme.ink, 1.2, yref="paper")],
    }
    return {"data": data, "layout": shape}
