"""Where does the time of slow requests go: over time, and typically, now and after the fix? The Verdict page's picture, as HTML without a chart library.

Columns over time stand for the judged percentile of a step and sum up its stages; the strips below share one scale of milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.over_time.stage_course import StageCourse, StageSplit, StageStep
from overrun.analysis.words.finding import Finding, Predicted, say_after
from overrun.analysis.words.times import rfc3339
from overrun.dashboard import ui
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import (
    in_order,
    say_added,
    say_ms,
    say_ratio,
    say_span,
    say_step,
    say_tick,
    say_time,
    ticks,
)

# A stage below this share of the widest strip gets no place in the legend; a label needs this share for each letter, and so much around it.
_SHOWN: Final = 0.01
_LETTER: Final = 0.0125
_AROUND: Final = 0.02
# Above the tallest column or the limit, so that a line at the top is seen.
_HEAD: Final = 1.08
# Metrics by which requests are listed.
_LISTED: Final = ("ttft", "e2e")
# Where fewer steps than this share hold requests, most of the picture is empty.
_SPARSE: Final = 0.5
# A word beside a line that stands further right than this is put on its left side.
_RIGHT: Final = 0.75


@dataclass(frozen=True, slots=True)
class Hero:
    """What the picture shows. `fix` is the gain of the cause's fix; its `before` is the total of `course.slow`.

    `onset` is marked over time, also where the strips are of the whole window (`course.onset` is null), as a fix's gain may be.
    """

    course: StageCourse
    fix: Predicted | None
    fix_title: str
    findings: Sequence[Finding]
    changes: Sequence[Changed]
    onset: datetime | None = None


def draw(shown: Hero) -> str:
    """Return the picture as safe HTML; empty where no request can be split into stages."""
    if shown.course.slow is None or shown.course.typical is None:
        return ""
    return f'<div class="ov-hero">{over_time(shown)}{strips(shown)}{legend(shown.course)}</div>'


def over_time(shown: Hero) -> str:
    """Stacked stage times per step, with limit, onset and changes."""
    course = shown.course
    drawn = [step for step in course.steps if step.split is not None]
    if len(drawn) < 2 or course.start is None or course.end is None:
        return ""
    top = _HEAD * max(
        [*(step.split.total_ms for step in drawn if step.split), course.limit_ms or 0.0]
    )
    columns = "".join(
        _column(step, course, top, late=2 * at > len(course.steps))
        for at, step in enumerate(course.steps)
    )
    begin, width = course.steps[0].start, len(course.steps) * course.step_s
    return (
        f"<h2>{_measured(course)} of each {say_step(course.step_s)}, stage by stage <small>drag to zoom the window{_zoom(course)}</small></h2>"
        f'<div class="ov-course ov-drag" role="img" aria-label="{_spoken(course, shown.onset)}" {_extent(course, begin, width)}>{_axis(top)}'
        f'<div class="ov-columns">{columns}{_limit(course, top)}{_marks(shown, begin, width)}</div></div>'
        f'<div class="ov-times">{_clock(begin)}{_clock(datetime.fromtimestamp(begin.timestamp() + width / 2, UTC))}'
        f"{_clock(datetime.fromtimestamp(begin.timestamp() + width, UTC), zone=True)}</div>"
    )


def _zoom(course: StageCourse) -> str:
    """A button that makes the steps that hold requests the window, where the others are most of it."""
    held = [step.start for step in course.steps if step.n]
    if not held or len(held) > _SPARSE * len(course.steps):
        return ""
    end = held[-1] + timedelta(seconds=course.step_s)
    return f' · <button type="button" class="ov-zoom" data-from="{rfc3339(held[0])}" data-to="{rfc3339(end)}">Zoom to the data</button>'


def _extent(course: StageCourse, begin: datetime, width: float) -> str:
    """What the page's script needs to make a stretch that was dragged over the window."""
    end = datetime.fromtimestamp(begin.timestamp() + width, UTC)
    metric = course.metric if course.metric in _LISTED else "e2e"
    return f'data-from="{begin.isoformat()}" data-to="{end.isoformat()}" data-metric="{metric.upper()}"'


def _measured(course: StageCourse) -> str:
    if course.limit_ms is None and course.metric not in ("ttft", "e2e"):
        return f"Requests around {course.metric.upper()} P{course.percentile:g}"
    return f"{course.metric.upper()} P{course.percentile:g}"


def _column(step: StageStep, course: StageCourse, top: float, *, late: bool) -> str:
    split, clock = step.split, f"{step.start:%H:%M:%S} UTC"
    side = ' class="ov-late"' if late else ""
    if split is None:
        why = f"{clock}: {step.n:,} requests, too few for P{course.percentile:g}"
        return f'<span{side} data-tip="{why}"></span>'
    parts = _parts(course, split)
    tip = (
        f"{clock}, {step.n:,} requests; click to see the slowest&#10;{_measured(course)} {say_ms(split.total_ms)}"
        + "".join(f"&#10;{ui.text(stage)} {say_ms(value)}" for stage, value in reversed(parts))
    )
    inside = "".join(
        f'<i class="ov-s-{_family(stage)}" style="height:{100.0 * value / top:.2f}%"></i>'
        for stage, value in reversed(parts)
    )
    box = Box.of_step(step.start, course.step_s).text()
    return f'<span{side} data-tip="{tip}" data-box="{box}">{inside}</span>'


def _parts(course: StageCourse, split: StageSplit) -> list[tuple[str, float]]:
    """Stages that take time, in the order in which a request passes them."""
    known = dict(zip(course.stages, split.ms, strict=True))
    return [(stage, known[stage]) for stage in in_order(course.stages) if known[stage] > 0.0]


def _family(stage: str) -> str:
    """The class of a stage: its name, which is one of ours."""
    return stage.replace("_", "-")


def _axis(top: float) -> str:
    marks = "".join(
        f'<b style="bottom:{100.0 * value / top:.2f}%">{say_tick(value)}</b>'
        for value in ticks(top)
    )
    return f'<div class="ov-yaxis">{marks}</div>'


def _limit(course: StageCourse, top: float) -> str:
    if course.limit_ms is None:
        return ""
    name = "common limit" if course.own_limits else "limit"
    return f'<em class="ov-limit" style="bottom:{100.0 * course.limit_ms / top:.2f}%"><b>{name} {say_ms(course.limit_ms)}</b></em>'


def _marks(shown: Hero, begin: datetime, width: float) -> str:
    """Vertical lines at what changed and at the onset."""
    lines = [
        (one.at, f"{one.what} {one.after}", "ov-change")
        for one in shown.changes
        if one.at != shown.onset
    ]
    if shown.onset is not None:
        lines.append((shown.onset, f"onset {shown.onset:%H:%M:%S}", "ov-onset"))
    drawn = []
    for at, words, kind in lines:
        share = (at - begin).total_seconds() / width
        if 0.0 <= share <= 1.0:
            side = " ov-left" if share > _RIGHT else ""
            drawn.append(
                f'<em class="{kind}{side}" style="left:{100.0 * share:.2f}%" title="{ui.text(words)} at {say_time(at)}"><b>{ui.text(words, 40)}</b></em>'
            )
    return "".join(drawn)


def _clock(time: datetime, *, zone: bool = False) -> str:
    return f"<span>{time:%H:%M:%S}{' UTC' if zone else ''}</span>"


def _spoken(course: StageCourse, since: datetime | None) -> str:
    known = [step.split.total_ms for step in course.steps if step.split is not None]
    limit = f", limit {say_ms(course.limit_ms)}" if course.limit_ms is not None else ""
    onset = f", onset {say_time(since)}" if since is not None else ""
    return (
        f"{_measured(course)} per {say_step(course.step_s)}, {say_span(course.start, course.end)}: first {say_ms(known[0])}, "
        f"last {say_ms(known[-1])}, highest {say_ms(max(known))}{limit}{onset}"
    )


def strips(shown: Hero) -> str:
    """A typical request, a slow one now, and one after the fix, on one scale."""
    course, gain = shown.course, shown.fix
    typical, slow = course.typical, course.slow
    if typical is None or slow is None:
        return ""
    widest = max(
        typical.total_ms,
        slow.total_ms,
        course.limit_ms or 0.0,
        *((gain.after, *(gain.interval or ())) if gain else ()),
    )
    since = " since the onset" if course.onset is not None else ""
    usual = "before the onset" if course.onset is not None and course.before_onset else "P50"
    rows = [
        _strip("typical", usual, _cells(shown, typical, widest), typical.total_ms, course, widest),
        _strip(
            "slow now",
            f"P{course.percentile:g}{since}",
            _cells(shown, slow, widest),
            slow.total_ms,
            course,
            widest,
        ),
    ]
    if gain is not None:
        rows.append(_after(shown, gain, slow.total_ms, widest))
    return f'<div class="ov-strips">{"".join(rows)}</div>'


def _strip(
    name: str, of: str, cells: str, total_ms: float, course: StageCourse, widest: float
) -> str:
    over = course.limit_ms is not None and total_ms > course.limit_ms
    number = f'<b class="{"ov-over" if over else ""}">{"▲ " if over else ""}{say_ms(total_ms)}</b>'
    return (
        f'<div class="ov-strip"><span>{name}<small>{of}</small></span>'
        f'<div class="ov-bar">{cells}{_tick(course, widest)}</div><span class="ov-end">{number}</span></div>'
    )


def _tick(course: StageCourse, widest: float) -> str:
    if course.limit_ms is None:
        return ""
    return f'<em class="ov-tick" style="left:{100.0 * course.limit_ms / widest:.2f}%"></em>'


def _cells(shown: Hero, split: StageSplit, widest: float) -> str:
    """The stages of a strip as links to their evidence."""
    course = shown.course
    usual = dict(zip(course.stages, course.typical.ms, strict=True)) if course.typical else {}
    cells, begun = [], 0.0
    for stage, value in _parts(course, split):
        share = value / widest
        label = f"{ui.text(stage)} {say_ms(value)}"
        found = next((one for one in shown.findings if one.stage == stage), None)
        tip = label
        if split is course.slow:
            tip += f", {say_added(value - usual.get(stage, 0.0))} against a typical request"
            tip += f"&#10;{ui.text(_first_sentence(found.headline), 200)}" if found else ""
        wide = share >= _AROUND + _LETTER * len(label)
        page, where = ("/findings", "the evidence") if found else ("/budget", "which stage")
        cells.append(
            f'<a class="ov-go ov-s-{_family(stage)}{"" if wide else " ov-thin"}{" ov-late" if begun > 0.5 else ""}" href="{page}" style="width:{100.0 * share:.3f}%" '
            f'data-tip="{tip}" aria-label="{label}: {where}"><span>{label if wide else ""}</span></a>'
        )
        begun += share
    return "".join(cells)


def _first_sentence(words: str) -> str:
    return words.split(". ", maxsplit=1)[0]


def _after(shown: Hero, gain: Predicted, now_ms: float, widest: float) -> str:
    low, high = gain.interval or (gain.after, gain.after)
    between = f"90 % interval {say_ms(low)} to {say_ms(high)}" if gain.interval else "no interval"
    late = (
        f"&#10;requests over the limit {say_ratio(gain.over_before_ratio)} → {say_ratio(gain.over_after_ratio)}"
        if gain.over_before_ratio is not None and gain.over_after_ratio is not None
        else ""
    )
    tip = f"{ui.text(shown.fix_title, 200)}: {say_added(gain.after - now_ms)}&#10;{between}{late}"
    whisker = (
        f'<em class="ov-whisker" style="left:{100.0 * low / widest:.2f}%;width:{100.0 * (high - low) / widest:.2f}%"></em>'
        if gain.interval
        else ""
    )
    bar = (
        f'<a class="ov-go ov-fixed" href="/findings" style="width:{100.0 * gain.after / widest:.3f}%" data-tip="{tip}" '
        f'aria-label="after the fix {say_after(gain)}, {between}: the evidence"><span></span></a>'
    )
    over = shown.course.limit_ms is not None and gain.after > shown.course.limit_ms
    return (
        f'<div class="ov-strip"><span>after the fix<small>{"a bound" if gain.bound else "predicted"}</small></span>'
        f'<div class="ov-bar">{bar}{whisker}{_tick(shown.course, widest)}</div>'
        f'<span class="ov-end"><b class="{"ov-over" if over else ""}">{say_after(gain)}</b></span></div>'
    )


def legend(course: StageCourse) -> str:
    """The stages that can be seen, and what the strips stand for."""
    if course.slow is None or course.typical is None:
        return ""
    widest = max(course.slow.total_ms, course.typical.total_ms)
    seen = [
        stage
        for stage in in_order(course.stages)
        if any(
            dict(_parts(course, split)).get(stage, 0.0) >= _SHOWN * widest
            for split in (course.slow, course.typical)
        )
    ]
    chips = "".join(
        f'<span><i class="ov-s-{_family(stage)}"></i>{ui.text(stage)}</span>' for stage in seen
    )
    line = " · line = limit" if course.limit_ms is not None else ""
    return (
        f'<p class="ov-legend">{chips}<small>split as the requests within 2 points of the percentile{line} · '
        f"n {course.n:,} · source /api/v1/anatomy</small></p>"
    )
