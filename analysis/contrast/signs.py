"""Which signs do late occurrences carry, apart from traits? They end together, take a constant longer or a multiple, wait at a ceiling, one at a time, after failures, in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.contrast.read import Spans
from overrun.analysis.contrast.traits import Occurrences
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# Waits that programs choose: retransmissions, time-outs of resolvers and connections, back-offs, delayed acknowledgements.
LATTICE_MS: Final = (1000.0, 3000.0, 5000.0, 10_000.0, 15_000.0, 30_000.0, 60_000.0, 200.0, 40.0)
# Requests of the same process that end within this time of an occurrence end together with it.
TOGETHER_MS: Final = (3.0, 30.0)
# Fewest occurrences that wait beside each other, or at a ceiling; own defaults.
LEAST_PAIRS: Final = 20
LEAST_WAITS: Final = 10
# Siblings that follow one another count as a row from this number on; 2 ms of overlap is the clock's.
LEAST_ROW: Final = 3
SLACK_MS: Final = 2.0


@dataclass(frozen=True)
class Added:
    """By how much late occurrences are longer than the others' median, in ms, and the spread of both (median deviation over the figure); `lattice_ms` of which wait
    it is a multiple, 0 of none."""

    ms: float
    spread: float
    usual_spread: float | None
    lattice_ms: float


def added(y: FloatArray, late: BoolArray) -> Added | None:
    """Return what late occurrences take longer; None where none is late or all are."""
    if not late.any() or late.all():
        return None
    usual = float(np.median(y[~late]))
    longer = y[late] - usual
    middle = float(np.median(longer))
    if middle <= 0.0:
        return None
    deviation = float(np.median(np.abs(y[~late] - usual)))
    lattice = next((wait for wait in LATTICE_MS if _multiple(longer, middle, wait)), 0.0)
    return Added(
        middle,
        float(np.median(np.abs(longer - middle))) / middle,
        deviation / usual if usual > 0.0 else None,
        lattice,
    )


def _multiple(longer: FloatArray, middle: float, wait: float) -> bool:
    """Whether nearly all of some times are one to eight times a wait."""
    if len(longer) < 5 or middle < 0.9 * wait or middle > 8.5 * wait:
        return False
    times = longer / wait
    # Near a multiple is a twentieth of the wait: by chance an eighth of all times are.
    return bool((np.abs(times - np.round(times)) < 0.06).mean() > 0.8)


def together(spans: Spans, found: Occurrences) -> BoolArray:
    """Per occurrence, whether two or more other requests begin or end something in its process within moments of its end."""
    n = len(found.row)
    out = np.zeros(n, dtype=np.bool_)
    for process in np.unique(spans.process[found.row]):
        rows = np.flatnonzero(spans.process == process)
        times = np.concatenate([spans.start[rows], spans.end[rows]])
        who = np.tile(spans.root[rows], 2)
        order = np.argsort(times, kind="stable")
        times, who = times[order], who[order]
        here = np.flatnonzero(spans.process[found.row] == process)
        end = found.at[here] + found.ms[here]
        low = np.searchsorted(times, end - TOGETHER_MS[0], "left")
        number = np.minimum(np.searchsorted(times, end + TOGETHER_MS[1], "right") - low, 50)
        which = np.repeat(np.arange(len(here)), number)
        place = np.arange(len(which)) - np.repeat(np.cumsum(number) - number, number)
        others = who[np.repeat(low, number) + place]
        kept = others != spans.root[found.row[here[which]]]
        pairs = np.unique(np.column_stack([which[kept], others[kept]]), axis=0)
        out[here] = np.bincount(pairs[:, 0], minlength=len(here)) >= 2
    return out


def one_at_a_time(key: IntArray, found: Occurrences) -> float | None:
    """Return which part (0..1) of occurrences of one key that wait beside each other leave in order and as late as the one before them still takes.

    None of fewer than 20 that do: nobody waits beside another.
    """
    order = np.lexsort((found.at, key))
    begin, end, of = found.at[order], (found.at + found.ms)[order], key[order]
    same = of[1:] == of[:-1]
    beside = same & (begin[1:] < end[:-1])
    alone = same & ~beside
    if beside.sum() < LEAST_PAIRS or alone.sum() < LEAST_PAIRS:
        return None
    apart = (end[1:] - end[:-1])[beside]
    took, left = (end - begin)[1:][beside], (end[:-1] - begin[1:])[beside]
    if took.std() == 0.0 or left.std() == 0.0 or np.corrcoef(took, left)[0, 1] < 0.5:
        return 0.0
    own = (end - begin)[1:][alone]
    service = float(np.median(apart))
    steady = np.quantile(apart, 0.1) > 0.05 * service
    fits = 20.0 < service < 3.0 * max(float(np.median(own)), float(np.quantile(own, 0.9)))
    return float((apart > 0.0).mean()) if steady and fits else 0.0


@dataclass(frozen=True)
class Held:
    """What may hold the places that occurrences wait for: from when until when (ms), and in which process (a code; all one where it does not matter)."""

    begins: FloatArray
    ends: FloatArray
    process: IntArray


def ceiling(held: Held, found: Occurrences, process: IntArray, late: BoolArray) -> int | None:
    """Return how many places were held in the process of each occurrence while late ones wait, where it is always as many (2 or more); 0 where it varies.

    None where too few wait. The number also must not be reached while others do not wait.
    """
    middle = found.at + 0.5 * found.ms
    under_way = np.zeros(len(middle), dtype=np.int64)
    for one in np.unique(process):
        here, mine = process == one, held.process == one
        begun = np.searchsorted(np.sort(held.begins[mine]), middle[here], "right")
        under_way[here] = begun - np.searchsorted(np.sort(held.ends[mine]), middle[here], "right")
    if not late.any():
        return None
    typical = float(np.median(found.ms[late]))
    waits = under_way[late & (found.ms > 0.5 * typical)]
    if len(waits) < LEAST_WAITS:
        return None
    top = int(np.median(waits))
    always = top >= 2 and (waits == top).mean() > 0.7 and np.quantile(waits, 0.98) <= top
    quick = under_way[found.ms < 0.05 * typical]
    free = len(quick) < LEAST_WAITS or (quick >= top).mean() < 0.5
    return top if always and free else 0


@dataclass(frozen=True)
class Row:
    """Siblings of one name that run one after the other: how many in a request at the median, and the ms that they would save together at the mean."""

    number: float
    saves_ms: float
    operation: str


def in_a_row(spans: Spans, holds: BoolArray, requests: IntArray) -> Row | None:
    """Return the siblings in a row that contain an operation (`holds`: spans that are it or contain it) in some requests; None where there are none."""
    rows = np.flatnonzero((spans.parent >= 0) & ~spans.paths.skipped)
    rows = rows[np.isin(spans.request[spans.root[rows]], requests)]
    if not len(rows):
        return None
    frame = pl.DataFrame(
        {
            "request": spans.request[spans.root[rows]],
            "parent": spans.parent[rows],
            "operation": spans.operation[rows],
            "start": spans.start[rows],
            "end": spans.end[rows],
            "holds": holds[rows],
        }
    ).sort("parent", "operation", "start")
    groups = (
        frame.group_by("request", "parent", "operation", maintain_order=True)
        .agg(
            number=pl.len(),
            holds=pl.col("holds").any(),
            overlaps=(
                pl.col("start").diff() < pl.col("end").shift() - pl.col("start").shift() - SLACK_MS
            ).any(),
            whole=(pl.col("end") - pl.col("start")).sum(),
            longest=(pl.col("end") - pl.col("start")).max(),
        )
        .filter((pl.col("number") >= LEAST_ROW) & pl.col("holds") & ~pl.col("overlaps"))
        .with_columns(saves=pl.col("whole") - pl.col("longest"))
        .sort("saves", descending=True)
        .unique("request", keep="first", maintain_order=True)
    )
    if groups.height < 0.5 * len(requests):
        return None
    operation = int(groups["operation"].mode().sort()[0])
    number = float(groups["number"].to_numpy().mean())
    return Row(number, float(groups["saves"].sum()) / len(requests), spans.operations[operation])


def containing(spans: Spans, rows: IntArray) -> BoolArray:
    """Which spans are some spans or contain one of them."""
    out = np.zeros(len(spans.parent), dtype=np.bool_)
    at = np.unique(rows)
    while len(at):
        out[at] = True
        at = np.unique(spans.parent[at])
        at = at[at >= 0]
        at = at[~out[at]]
    return out


def per_token(tokens: FloatArray, y: FloatArray, bad: BoolArray) -> tuple[float, float] | None:
    """Return ms for each output token of bad and of other occurrences (slopes of a line); None where either is not known of ten different lengths."""
    known = ~np.isnan(tokens)
    slopes = []
    for side in (bad & known, ~bad & known):
        if len(np.unique(tokens[side])) < 10:
            return None
        slopes.append(float(np.polyfit(tokens[side], y[side], 1)[0]))
    return (slopes[0], slopes[1]) if slopes[1] > 0.0 else None
