"""At which load, prompt length or output length does the budget break, and which stage goes first? Read off the recorded requests, not extrapolated.

Requests are put in order of one quantity and cut into groups that each carry the SLO percentile; the budget breaks where that percentile passes the
limit for good. Requests that came with limits of their own are judged by those: what is compared is each request's part of its limit.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import min_n, sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.numbers.stages.budget import StageTimes, path_of, stage_times
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.slo import Slo

# Groups of requests along the quantity: enough to see a bend, each with twice what the percentile needs where there is traffic for it.
_GROUPS: Final = 20
_LEAST_GROUPS: Final = 4
UNITS: Final = {"load": "requests/s", "input_tokens": "tokens", "output_tokens": "tokens"}
# Arrivals in this time before a request stand for the load it met. The number in flight would be endogenous: a slower service has more in flight.
LOAD_S: Final = 30.0


# Why the load is not known where requests stand for a part of what their engines serve.
_OTHERS: Final = "the engines serve requests of which nothing is stored, so the load is not known"


class Room(msgspec.Struct, kw_only=True):
    """How far one quantity is from breaking the budget of `metric`. `breaks_between` are the medians of the last group within the limit and the first beyond.

    `limit_ms` is the common limit; `own_limits` of the n requests came with one of their own, by which they are judged. `usual` is the median
    of the quantity, `spare` = 1 - usual / where it breaks. `first_stage` grows most from the usual group to the breaking one.
    Null where the limit was never passed for good (`seen_up_to` says how far the record goes), or is passed from the start.
    """

    quantity: str
    unit: str
    metric: str
    percentile: float
    limit_ms: float
    n: int
    own_limits: int = 0
    usual: float | None
    seen_up_to: float | None
    breaks_between: tuple[float, float] | None
    spare: float | None
    first_stage: str | None
    reasons: dict[str, str] = {}


def headroom(
    rows: pl.DataFrame, slo: Slo, metric: str, every: int = 1, *, partial: bool = False
) -> list[Room]:
    """Return the room in load, prompt length and output length; `rows` and `every` as in `RequestFrame`, `metric` one with a limit.

    `partial`: others share the engines, so that the load is not known."""
    ok = rows.filter(~pl.col("error") & pl.col(f"{metric}_ms").is_not_null())
    times, limits = stage_times(ok, path_of(metric)), limits_of(ok, slo, metric)
    parts = ok[f"{metric}_ms"].to_numpy() / (slo.limits()[metric] if limits is None else limits)
    own = (
        np.zeros(ok.height, np.bool_)
        if f"slo_{metric}_ms" not in ok.columns
        else ok[f"slo_{metric}_ms"].is_not_null().to_numpy()
    )
    return [
        _room(
            name,
            np.full(ok.height, np.nan)
            if partial and name == "load"
            else _of(ok, rows, name, every),
            parts,
            own,
            times,
            slo,
            metric,
            why_none=_OTHERS if partial and name == "load" else None,
        )
        for name in ("load", "input_tokens", "output_tokens")
    ]


def said(rooms: list[Room]) -> str:
    """Return in words where the budget breaks and what goes first; empty without rooms."""
    broken, others = [], []
    for room in rooms:
        if room.breaks_between is None:
            others.append(
                f"{room.quantity.replace('_', ' ')}: {next(iter(room.reasons.values()), 'not known')}"
            )
            continue
        low, high = (f"{edge:,.4g}" for edge in room.breaks_between)
        where = (
            f"a load of {low} to {high} {room.unit}"
            if room.quantity == "load"
            else f"{low} to {high} {room.quantity.replace('_', ' ')}"
        )
        usual = (
            ""
            if room.usual is None or room.spare is None
            else f" (usual {room.usual:,.4g}, {say_ratio(room.spare)} spare)"
        )
        broken.append(
            f"at {where}{usual}" + (f", {room.first_stage} first" if room.first_stage else "")
        )
    limit = limit_of(rooms[0]) if rooms else ""
    return (
        "; ".join(
            [
                f"{limit} breaks {'; '.join(broken)}"
                if broken
                else f"the load at which {limit} breaks is not known",
                *others,
            ]
        )
        if rooms
        else ""
    )


def limit_of(room: Room) -> str:
    """Return in words the limit that would be broken."""
    name = f"{room.metric.upper()} P{room.percentile:g}"
    return (
        f"{name} of {say_ms(room.limit_ms)}"
        if not room.own_limits
        else f"{name} against {say_own(room.own_limits)}"
    )


def say_own(own_limits: int) -> str:
    """Return in words that not all requests are held to the same limit."""
    return f"each request's own limit ({say_count(own_limits, 'request')} have one)"


def _of(ok: pl.DataFrame, rows: pl.DataFrame, name: str, every: int) -> FloatArray:
    """Return the quantity per successful request, NaN where it is not known. Load counts all arrivals of the 30 s before, failed ones too."""
    if name != "load":
        values: FloatArray = ok[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        return values
    arrived, start = np.sort(rows["start_us"].to_numpy()), ok["start_us"].to_numpy()
    if not len(arrived):
        return np.zeros(0)
    rate = (
        np.searchsorted(arrived, start, side="right")
        - np.searchsorted(arrived, start - LOAD_S * 1e6)
    ) / LOAD_S
    # Rows that are a part of all, drawn here or by a sampler, stand for as many more.
    stands_for = every * float(rows["sample_weight"].to_numpy().mean())
    return np.where(start < arrived[0] + LOAD_S * 1e6, np.nan, stands_for * rate)


def _room(
    name: str,
    x: FloatArray,
    used: FloatArray,
    own: BoolArray,
    times: StageTimes,
    slo: Slo,
    metric: str,
    why_none: str | None = None,
) -> Room:
    """`used` is each request's time as a part of its limit; `why_none` says why the quantity is known of none."""
    known = np.flatnonzero(~np.isnan(x))
    needed = min_n(slo.percentile)
    out = Room(
        quantity=name,
        unit=UNITS[name],
        metric=metric,
        percentile=slo.percentile,
        limit_ms=slo.limits()[metric],
        n=len(known),
        own_limits=int(own[known].sum()),
        usual=float(np.median(x[known])) if len(known) else None,
        seen_up_to=float(x[known].max()) if len(known) else None,
        breaks_between=None,
        spare=None,
        first_stage=None,
    )
    groups = min(_GROUPS, len(known) // needed)
    nulls = ["breaks_between", "spare", "first_stage"]
    nulls += [] if len(known) else ["usual", "seen_up_to"]
    if groups < _LEAST_GROUPS:
        few = f"{len(known)} requests carry it, {_LEAST_GROUPS * needed} are needed"
        out.reasons = dict.fromkeys(nulls, why_none or few)
        return out
    parts = np.array_split(known[np.argsort(x[known], kind="stable")], groups)
    levels = np.array([float(np.median(x[part])) for part in parts])
    over = np.array(
        [sorted_quantile(np.sort(used[part]), slo.percentile / 100.0) > 1.0 for part in parts]
    )
    last = _last_within(levels, over, out)
    if isinstance(last, str):
        out.reasons = dict.fromkeys(nulls, last)
        return out
    out.breaks_between = (levels[last], levels[last + 1])
    middle = 0.5 * (levels[last] + levels[last + 1])
    out.spare = max(0.0, 1.0 - (out.usual or 0.0) / middle)
    calm, broken = parts[min(last, groups // 2)], parts[last + 1]
    growth = {
        stage: float(spent[broken].mean() - spent[calm].mean()) for stage, spent in times.ms.items()
    }
    out.first_stage = max(growth, key=lambda stage: growth[stage], default=None)
    if out.first_stage is None:
        out.reasons["first_stage"] = "no stage took any time"
    return out


def _last_within(levels: FloatArray, over: BoolArray, room: Room) -> int | str:
    """Return the last group within the limit, beyond which every one is over, or why there is none."""
    if not over[-1]:
        return f"P{room.percentile:g} stays within the limit up to {levels[-1]:,.4g} {room.unit}, the most that was recorded"
    if over.all():
        return "the limit is passed at every level: this quantity does not decide"
    last = int(np.flatnonzero(~over)[-1])
    if over[: last + 1].mean() > 1.0 / 3.0:
        return "the limit is passed at low levels as often as at high ones: this quantity does not decide"
    if levels[last + 1] <= levels[last]:
        return "its values do not differ between requests within and over the limit"
    return last
