"""Since when is it worse? The stretch of the symptom that differs most, of all latencies, queues and numbers inside that the stations have, without a limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final, Literal, NamedTuple

import numpy as np

from overrun.analysis.stations.parts import Part
from overrun.analysis.stations.sides import Sides, each, quotient, smooth
from overrun.analysis.stations.station import Group, Plant
from overrun.analysis.stations.stretch import KNOWN_WORSE, LEAST_BINS, SURE, Stretch, find_stretch
from overrun.analysis.words.arrays import FloatArray

Of = Literal["all", "first", "tokens"]
# A symptom is worse by a fifth or more, and it costs a request 15 % of the parts that it belongs to and 3 % of all; own defaults, effect: 36 of 36 healthy pages
# of an independent simulator stay silent, 34 of 34 faults on them speak (2026-11).
_WORSE: Final = 1.2
_COSTS: Final = 0.15
# Where no latency is over a limit: a mix of requests moves its mean by a fifth (2026-11, 15 healthy windows of the own simulator: one by 17 %).
_COSTS_UNASKED: Final = 0.3
_COSTS_ALL: Final = 0.03
# A queue of less than half a request more is none.
_LEAST_WAITING: Final = 0.5
# A latency below this is the engine's clock, in seconds.
_LEAST_S: Final = 1e-4
# Symptoms this clear beside the clearest one belong to it: what is counted where a request ends comes late.
_KIN: Final = 0.4
_KIN_P: Final = 1e-6
# The outermost observer's symptom counts so much more.
_OUTER: Final = 1.5


class Symptom(NamedTuple):
    """A series that is worse if it grows: seconds, requests waiting or requests inside per finished one a second."""

    metric: str
    words: str
    group: Group
    values: FloatArray
    of: Of
    outer: bool = False
    waiting: bool = False
    seconds: bool = False


@dataclass(frozen=True)
class Onset:
    """The clearest symptom that costs requests something, and the bins of its stretch; `kinds` are those of the symptoms that speak for it."""

    symptom: Symptom
    stretch: Stretch
    at: int
    sides: Sides
    kinds: set[Of]
    tried: int


def find_onset(plant: Plant, parts: list[Part], of: Of | None = None) -> Onset | None:
    """Return the onset; None where nothing is worse beyond its noise. `of`: only symptoms of the first token, of tokens, or of both (all)."""
    asked = [one for one in _symptoms(plant, parts) if of in (None, "all", one.of)]
    sure = KNOWN_WORSE if of else SURE
    hits = [
        (one, found)
        for one in asked
        if (found := find_stretch(one.values, len(asked), sure)) is not None and _worse(one, found)
    ]
    hits.sort(key=lambda hit: -_weight(*hit))
    for at, (symptom, found) in enumerate(hits):
        sides = _sides(plant, found.at, found)
        if _costs(plant, parts, symptom, sides, _COSTS if of else _COSTS_UNASKED):
            began = _first(found, [other for _, other in hits])
            kept = _sides(plant, began, found)
            later = found.until >= plant.recording.grid.bins and _enough(kept)
            kinds = {one.of for one, _ in hits[at:] if one.outer} or {
                one.of for one, _ in hits[at:]
            }
            return Onset(symptom, found, began, kept if later else sides, kinds, len(asked))
    return None


def _weight(symptom: Symptom, found: Stretch) -> float:
    grown = min(log(max(found.ratio, 1.0)) + 0.1, 1.5) if np.isfinite(found.ratio) else 1.5
    return found.z * grown * (_OUTER if symptom.outer else 1.0)


def _worse(symptom: Symptom, found: Stretch) -> bool:
    if found.after <= found.before or found.ratio < _WORSE:
        return False
    if symptom.waiting:
        return found.after - found.before >= _LEAST_WAITING
    return not symptom.seconds or found.after >= _LEAST_S


def _sides(plant: Plant, at: int, found: Stretch) -> Sides:
    """The stretch, and what lies outside of it; bins at its edges and those between the onset and the stretch are in neither."""
    bins = np.arange(plant.recording.grid.bins)
    now = (bins >= found.at) & (bins < found.until)
    return Sides(now, (bins < at - 1) | (bins > found.until + 1))


def _enough(sides: Sides) -> bool:
    return sides.then is not None and int(sides.then.sum()) >= LEAST_BINS


def _first(found: Stretch, others: list[Stretch]) -> int:
    """The earliest worsening that belongs to this one."""
    kin = [
        other.at
        for other in others
        if other.z >= _KIN * found.z
        and other.until == found.until
        and other.at <= found.at
        and other.p < _KIN_P
    ]
    return min(kin, default=found.at)


def _costs(plant: Plant, parts: list[Part], symptom: Symptom, sides: Sides, least: float) -> bool:
    """Whether a request of the outermost observer has more time in the parts that the symptom belongs to."""
    mine = parts_of_kind(parts, {symptom.of})
    work = work_of(plant)
    now, then = (
        sum(max(quotient(part.inside, work, side) or 0.0, 0.0) for part in mine)
        for side in (sides.now, sides.then)
    )
    whole = sum(max(quotient(part.inside, work, sides.then) or 0.0, 0.0) for part in parts)
    return now > then and now - then >= max(least * then, _COSTS_ALL * whole)


def parts_of_kind(parts: list[Part], kinds: set[Of]) -> list[Part]:
    """Return the parts before the first token, after it, or all; all where there are none of the kind."""
    if "all" in kinds:
        return parts
    wanted = {kind == "first" for kind in kinds}
    return [part for part in parts if part.first in wanted] or parts


def work_of(plant: Plant) -> FloatArray:
    """Return what the outermost observer finishes a second; ones where it counts nothing, so that excesses are numbers inside."""
    work = None if plant.outer is None else plant.outer.work()
    return np.ones(plant.recording.grid.bins) if work is None else work


def _symptoms(plant: Plant, parts: list[Part]) -> list[Symptom]:
    return [
        symptom
        for group in plant.all
        for symptom in _of_group(
            group, [part for part in parts if part.group is group], group is plant.outer
        )
    ]


def _of_group(group: Group, parts: list[Part], outer: bool) -> list[Symptom]:
    found: list[Symptom] = []
    for key in ("e2e", "ttft", "queue"):
        if (mean := group.time_of(key)) is not None:
            of: Of = "all" if key == "e2e" else "first"
            words = f"{key.upper() if key != 'queue' else 'the time in the queue'} of {group.name}"
            found.append(
                Symptom(key, words, group, mean, of, outer and key != "queue", seconds=True)
            )
    if (token := group.token_time()) is not None:
        words = f"the time of an output token of {group.name}"
        found.append(Symptom("itl", words, group, token, "tokens", outer, seconds=True))
    work, inside = group.work(), group.inside()
    if work is not None:
        if inside is not None:
            of_each = each(smooth(inside), smooth(work))
            words = f"requests inside of {group.name} for what it finishes"
            found += (
                [] if of_each is None else [Symptom("inside", words, group, of_each, "all", outer)]
            )
        for part in parts:
            of_each = each(smooth(part.inside), smooth(work))
            if of_each is not None:
                kind: Of = "first" if part.first else "tokens"
                found.append(
                    Symptom(part.phase, f"{part.phase} of {group.name}", group, of_each, kind)
                )
    return found + _of_stations(group)


def _of_stations(group: Group) -> list[Symptom]:
    found: list[Symptom] = []
    for one in group.stations:
        alone = Group(group.role, group.model, [one])
        if (waiting := one.sums.get("waiting")) is not None:
            words = f"requests that wait at {one.name}"
            found.append(Symptom("waiting", words, alone, waiting, "first", waiting=True))
        for key in ("e2e", "ttft", "itl") if len(group.stations) > 1 else ():
            mean = alone.time_of(key) if key in one.counts else None
            if mean is not None:
                of: Of = "all" if key == "e2e" else "first" if key == "ttft" else "tokens"
                words = f"{key.upper()} of {one.name}"
                found.append(Symptom(key, words, alone, mean, of, seconds=True))
    return found
