"""How are the charts drawn? Pure functions from the API's structs to plain Plotly specifications.

Built as dicts and never with `add_trace`: the same figure costs 268 ms of CPU that way and 2.9 ms this way (measured on the draft's six-row
chart). All text from telemetry passes `label()`, because Plotly reads a small HTML in its labels.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from overrun.analysis.front.stage_waterfall import Stages
from overrun.analysis.numbers.over_time.heatmap import Heatmap
from overrun.analysis.numbers.over_time.series import Series
from overrun.analysis.numbers.stages.budget import LATER, StageRow
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.plot import Spec, axis, layout, legend, limit_line, line, note, utc
from overrun.dashboard.theme import Theme, in_order, say_added, say_ms, say_step, say_tick, ticks

# Parts below this share of a waterfall's change are drawn together.
_LEAST_PART: Final = 0.01
# Rows of the heat map that stay empty around what it shows, and the fewest that it has: fewer would tear a single row apart.
_AROUND_ROWS: Final = 2
_FEWEST_ROWS: Final = 16
# A stage stands below its group.
_INDENT_PX: Final = 14
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def bullets(found: Stages, theme: Theme) -> Spec:
    """Stage budgets: one row per stage or group that took time, P50, P95 and P99 as points on a log axis, the budget as a tick."""
    rows = shown_rows(found.stages)
    names = [row.stage or row.group for row in rows]
    # What has no time at a percentile starts and ends at the axis' left edge.
    floor = _floor(
        [
            value
            for row in rows
            for value in (row.p50_ms, row.p95_ms, row.p99_ms, row.budget_ms)
            if value and value >= 0.05
        ]
    )
    # On a logarithmic axis a length says nothing, so percentiles are points, with a line through those of a row.
    data: list[Spec] = [
        _points(rows, names, field, symbol, floor, theme)
        for field, symbol in (
            ("p50_ms", "circle"),
            ("p95_ms", "diamond"),
            ("p99_ms", "circle-open"),
        )
    ]
    shapes = [
        line(max(start, floor), end, i, i, _row_colour(row, theme), width)
        for i, row in enumerate(rows)
        for start, end, width in (
            (row.p50_ms or 0.0, row.p95_ms or 0.0, 7),
            (row.p95_ms or 0.0, row.p99_ms or 0.0, 2),
        )
        if end > max(start, floor)
    ]
    shapes += [
        line(row.budget_ms, row.budget_ms, i - 0.3, i + 0.3, theme.ink, 3)
        for i, row in enumerate(rows)
        if row.budget_ms
    ]
    # Name and numbers stand above the points: beside them they left a phone no room for it.
    notes = [
        note(x, i - 0.3, words, theme, xref="paper", xanchor=side, xshift=indent, yshift=10)
        for i, row in enumerate(rows)
        for x, words, side, indent in (
            (0.0, names[i], "left", _INDENT_PX if row.stage else 0),
            (1.0, _against_budget(row, theme), "right", 0),
        )
    ]
    shape = layout(theme, height=70 + 46 * max(len(rows), 1), left=20, right=20, top=18)
    highest = max(
        [
            value
            for row in rows
            for value in (row.p99_ms, row.p95_ms, row.tail_ms, row.budget_ms)
            if value
        ]
        or [1000.0]
    )
    marks = [
        ms
        for ms in (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
        if floor <= ms <= highest * 1.3
    ]
    shape |= {
        "shapes": shapes,
        "annotations": notes,
        "xaxis": axis(
            theme,
            type="log",
            range=[math.log10(floor), math.log10(highest * 1.25)],
            tickvals=marks,
            ticktext=[say_tick(ms) for ms in marks],
        ),
        "yaxis": axis(theme, showticklabels=False, range=[len(rows) - 0.6, -0.6], showgrid=False),
    }
    return {"data": data, "layout": shape}


def _points(
    rows: list[StageRow], names: list[str], field: str, symbol: str, floor: float, theme: Theme
) -> Spec:
    """One percentile of every row that has one above the axis' left end."""
    shown = [i for i, row in enumerate(rows) if (getattr(row, field) or 0.0) > floor]
    name = field.removesuffix("_ms").upper()
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [getattr(rows[i], field) for i in shown],
        "y": shown,
        "marker": {
            "color": [_row_colour(rows[i], theme) for i in shown],
            "size": 11,
            "symbol": symbol,
        },
        "name": name,
        "hovertext": [f"{names[i]} {name} {say_ms(getattr(rows[i], field))}" for i in shown],
        "hoverinfo": "text",
        "showlegend": False,
    }


def shown_rows(rows: list[StageRow]) -> list[StageRow]:
    """Return the rows worth a line: groups and stages that took time, a group of one stage only once, nothing behind the judged path."""
    took = [
        row
        for row in rows
        if row.group != LATER
        and max(row.p99_ms or 0.0, row.p95_ms or 0.0, row.p50_ms or 0.0, row.tail_ms or 0.0) > 0.0
    ]
    members = {
        row.group: [other for other in took if other.group == row.group and other.stage]
        for row in took
    }
    return [row for row in took if row.stage is None or len(members[row.group]) > 1]


def waterfall(found: Stages, theme: Theme) -> Spec:
    """From a typical to a slow request: what each stage adds, stages below 1 % of the change drawn together; the bars end exactly at slow."""
    typical, slow = found.typical_ms or 0.0, found.slow_ms or 0.0
    least = _LEAST_PART * max(abs(slow - typical), 1e-9)
    added = {part.stage: part.added_ms for part in found.parts}
    named = [stage for stage in in_order(list(added)) if abs(added[stage]) >= least]
    rest = math.fsum(added[stage] for stage in added if stage not in named)
    steps = [(stage, added[stage]) for stage in named] + (
        [("rest", rest)] if abs(rest) > 1e-9 else []
    )
    names = ["typical", *(stage for stage, _ in steps), "slow"]
    bases, heights, level = [0.0], [typical], typical
    for _, change in steps:
        bases.append(min(level, level + change))
        heights.append(abs(change))
        level += change
    bases.append(0.0)
    heights.append(slow)
    colours = [theme.muted, *(theme.stage(stage) for stage, _ in steps), theme.ink]
    words = [say_ms(typical), *(say_added(change) for _, change in steps), say_ms(slow)]
    # A stage that gave time back is hatched: colour alone does not say so.
    hatches = ["", *("/" if change < 0 else "" for _, change in steps), ""]
    top = max(
        level, typical, slow, *(base + height for base, height in zip(bases, heights, strict=True))
    )
    marks = ticks(top)
    shape = layout(theme, height=330, left=62, right=10)
    shape |= {
        "xaxis": axis(
            theme,
            tickvals=list(range(len(names))),
            ticktext=names,
            showgrid=False,
            range=[-0.6, len(names) - 0.4],
        ),
        "yaxis": axis(
            theme,
            tickvals=marks,
            ticktext=[say_tick(mark) for mark in marks],
            range=[0, top * 1.12],
        ),
    }
    bars = {
        "type": "bar",
        "x": list(range(len(names))),
        "y": heights,
        "base": bases,
        "width": 0.62,
        "text": words,
        "textposition": "outside",
        "textfont": {"color": theme.ink},
        "cliponaxis": False,
        "hovertext": [f"{name} {word}" for name, word in zip(names, words, strict=True)],
        "hoverinfo": "text",
        "marker": {"color": colours, "pattern": {"shape": hatches, "fgcolor": theme.background}},
        "showlegend": False,
    }
    return {"data": [bars], "layout": shape}


def heat(
    found: Heatmap, theme: Theme, course: Series | None = None, box: Box | None = None
) -> Spec:
    """Requests per step of time and log bucket (sampled ones as those that they stand for), stronger = more (square root of the count); P50, P95, the limit
    and the chosen box on top."""
    edges, step = found.edges_ms, timedelta(seconds=found.step_s)
    start = found.start or _EPOCH
    columns = len(found.counts[0]) if found.counts else 0
    times = [(start + step * (i + 0.5)).isoformat() for i in range(columns)]
    shown = found.stands_for or found.counts
    most = max((n for row in shown for n in row), default=1)
    marks = [_place(ms, edges) for ms in found.labels_ms]
    data: list[Spec] = [
        {
            "type": "heatmap",
            "x": times,
            "y": [i + 0.5 for i in range(len(found.counts))],
            "z": [
                [max(0.01, round(math.sqrt(n / most), 2)) if n else 0 for n in row] for row in shown
            ],
            "customdata": shown,
            "hovertemplate": f"%{{x|%H:%M:%S}} UTC, {'about %{customdata:,.0f}' if found.stands_for else '%{customdata}'} requests<extra></extra>",
            "colorscale": [list(stop) for stop in theme.heat],
            "zmin": 0,
            "zmax": 1,
            "showscale": False,
        }
    ]
    for name, colour, dash, width in (
        ("P50", theme.ink, "dot", 1.5),
        ("P95", theme.ink, "solid", 2.5),
    ):
        if course is not None and any(
            getattr(point, name.lower()) is not None for point in course.points
        ):
            data.append(_percentile_line(course, name, edges, colour, dash, width))
    shape = layout(theme, height=380, left=62, right=10)
    shape |= {
        "dragmode": "select",
        "showlegend": True,
        "legend": legend(theme),
        "xaxis": axis(
            theme,
            type="date",
            showgrid=False,
            tickformat="%H:%M:%S" if found.step_s < 60 else "%H:%M\n%b %-d",
            range=[start.isoformat(), (start + step * max(columns, 1)).isoformat()],
        ),
        "yaxis": axis(
            theme,
            tickvals=marks,
            ticktext=[say_tick(ms) for ms in found.labels_ms],
            range=_rows_shown(found, box),
            showgrid=False,
        ),
        "shapes": [],
    }
    if box is not None:
        shape["shapes"].append(
            {
                "type": "rect",
                "x0": box.start.isoformat(),
                "x1": box.end.isoformat(),
                "y0": _place(box.min_ms, edges),
                "y1": _place(box.max_ms, edges),
                "line": {"color": theme.ink, "width": 1.5, "dash": "dot"},
                "fillcolor": theme.ink,
                "opacity": 0.14,
            }
        )
    if found.limit_ms is not None and edges and edges[0] <= found.limit_ms <= edges[-1]:
        own = course is not None and course.own_limits > 0
        data.append(
            limit_line(
                found.limit_ms,
                _place(found.limit_ms, edges),
                shape["xaxis"]["range"],
                theme,
                common=own,
            )
        )
    return {"data": data, "layout": shape}


def _rows_shown(found: Heatmap, box: Box | None) -> list[int]:
    """From which row of the heat map to which: all that hold a request, the limit and the chosen box."""
    shown = [i + 0.5 for i, row in enumerate(found.counts) if any(row)]
    edges = found.edges_ms
    shown += [
        _place(ms, edges)
        for ms in (found.limit_ms, box and box.min_ms, box and box.max_ms)
        if ms and edges and edges[0] <= ms <= edges[-1]
    ]
    low, high = (
        math.floor(min(shown, default=0.0)) - _AROUND_ROWS,
        math.ceil(max(shown, default=0.0)) + _AROUND_ROWS,
    )
    spare = max(_FEWEST_ROWS - (high - low), 0)
    low, high = low - spare // 2, high + spare - spare // 2
    return [max(low, 0), min(high, len(found.counts))]


def box_of(selection: dict[str, Any] | None, found: Heatmap) -> Box | None:
    """Return what a box drawn on the heat map holds, None without one."""
    boxes = (selection or {}).get("box") or []
    if not boxes or found.start is None:
        return None
    x0, x1 = sorted(utc(text) for text in boxes[0]["x"])
    y0, y1 = sorted(float(place) for place in boxes[0]["y"])
    return (
        Box(x0, x1, _value(y0, found.edges_ms), _value(y1, found.edges_ms))
        if x0 < x1 and y0 < y1
        else None
    )


def _against_budget(row: StageRow, theme: Theme) -> str:
    slow = say_ms(row.tail_ms)
    if row.budget_ms is None:
        return slow
    if row.amber and row.tail_ms is not None:
        return f"<b>{slow}</b> / {say_ms(row.budget_ms)} ◐ {row.tail_ms / row.budget_ms:.1f}×"
    if not row.over or row.tail_ms is None:
        return f"{slow} / {say_ms(row.budget_ms)} ✓"
    return f'<span style="color:{theme.over}"><b>{slow}</b> / {say_ms(row.budget_ms)} <b>▲ {row.tail_ms / row.budget_ms:.1f}×</b></span>'


def _row_colour(row: StageRow, theme: Theme) -> str:
    # The model group holds several colours, so it has none of its own.
    return (
        theme.muted
        if row.stage is None and row.group == "model"
        else theme.stage(row.stage or row.group.partition("+")[0])
    )


def _floor(values: list[float]) -> float:
    return 10.0 ** math.floor(math.log10(min(values))) if values else 1.0


def _place(ms: float, edges: list[float]) -> float:
    """Where a value stands on the heat map's axis, whose rows are log buckets of equal height."""
    per_row = math.log(edges[1] / edges[0])
    return min(max(math.log(max(ms, 1e-9) / edges[0]) / per_row, 0.0), len(edges) - 1.0)


def _value(place: float, edges: list[float]) -> float:
    return edges[0] * math.pow(edges[1] / edges[0], min(max(place, 0.0), len(edges) - 1.0))


def _percentile_line(
    course: Series, name: str, edges: list[float], colour: str, dash: str, width: float
) -> Spec:
    half = timedelta(seconds=course.step_s / 2)
    values = [getattr(point, name.lower()) for point in course.points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(values) < 40 else "lines",
        "name": f"{name} per {say_step(course.step_s)}",
        "x": [(point.start + half).isoformat() for point in course.points],
        "y": [None if value is None else _place(value, edges) for value in values],
        "line": {"color": colour, "dash": dash, "width": width},
        "marker": {"size": 5},
        "customdata": [Box.of_step(point.start, course.step_s).text() for point in course.points],
        "hoverinfo": "text",
        "hovertext": [
            f"{name} {say_ms(value)}, n {point.n:,}; click to see the slowest"
            for value, point in zip(values, course.points, strict=True)
        ],
    }
