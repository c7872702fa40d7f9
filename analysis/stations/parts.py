"""Where can a request be? The parts of its way as numbers of requests inside: queue, reading, writing, transfer, in front of all stations, and where nobody looks.

What is inside by rate times time and in no gauge is in a place that nobody observes; what the front has inside and nobody behind it has is in the front.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from overrun.analysis.stations.sides import smooth
from overrun.analysis.stations.station import Group, Plant
from overrun.analysis.words.arrays import FloatArray

Phase = Literal[
    "front", "behind", "queue", "transfer", "prefill", "decode", "rest", "work", "unseen"
]
# Counts of the front and of those behind it agree within these factors, else the requests are not the same ones; own defaults.
_FEWEST: Final = 0.75
_MOST: Final = 1.3
# Of all that is inside, this part must be unseen before it is a place: gauges that are read at odd moments leave up to 15 % on the recorded pages.
_UNSEEN: Final = 0.2
_LEAST_UNSEEN: Final = 2.0
# Where the phases sum to the whole time, gauges may be off by this part (a simulator whose gauge leaves prompts out: 31 %, 2026-11).
_MOST_OFF: Final = 0.4
# A rest between the end-to-end time and its phases below this part of it is rounding.
_LEAST_REST: Final = 0.05


class Part(NamedTuple):
    """A place between two observers: how many requests are `inside`, and how that is known. `first`: before the first token."""

    phase: Phase
    group: Group
    inside: FloatArray
    known_by: str
    first: bool = True


def parts_of(plant: Plant) -> list[Part]:
    """Return every place that the stations let one see."""
    parts = [part for group in plant.groups for part in _of_group(group)]
    return [*parts, *_of_front(plant)] if plant.front else parts


def _of_group(group: Group) -> list[Part]:
    total, seen = group.inside(), group.seen()
    waiting = group.quantity("waiting")
    if total is None:
        return _without_total(group)
    counted = group.quantity("e2e") is not None
    unseen = _unseen(group, total, seen) if counted and seen is not None else None
    if unseen is not None:
        return [unseen, *_of_gauges(group)]
    queued = group.quantity("queue") if counted else None
    queue = waiting if queued is None else queued
    parts = []
    if queue is not None:
        how = "waiting" if queued is None else "queue time counted"
        parts.append(Part("queue", group, queue, how))
    return [*parts, *_transfer(group), *_busy(group, total, queue)]


def _without_total(group: Group) -> list[Part]:
    """The parts of a group of which it is not known how many are inside."""
    found: list[Part] = []
    if (waiting := group.quantity("waiting")) is not None:
        found.append(Part("queue", group, waiting, "waiting"))
    return found + _phases(group)


def _phases(group: Group) -> list[Part]:
    """Reading and writing, as far as their time is counted."""
    read, write = group.quantity("prefill"), group.quantity("decode")
    found = [] if read is None else [Part("prefill", group, read, "time counted")]
    return found + ([] if write is None else [Part("decode", group, write, "time counted", False)])


def _transfer(group: Group) -> list[Part]:
    for key, how in (("transfer", "time counted"), ("transferring", "in transfer")):
        if (moved := group.quantity(key)) is not None:
            return [Part("transfer", group, moved, how)]
    return []


def _unseen(group: Group, total: FloatArray, seen: FloatArray) -> Part | None:
    """Requests by rate times time that no gauge sees: in front of the scheduler, or behind it where clients wait longer for a token than the batch takes."""
    if group.quantity("waiting") is None:
        return None
    missing = smooth(total - seen)
    late = slice(len(total) // 2, None)
    shares = [
        float(np.nansum(missing[part])) / max(float(np.nansum(total[part])), 1e-9)
        for part in (slice(None), late)
    ]
    if max(shares) < (_MOST_OFF if _phases_are_all(group, total) else _UNSEEN):
        return None
    if np.nanmax(smooth(missing, 9), initial=0.0) < _LEAST_UNSEEN:
        return None
    streams, running = group.quantity("itl"), group.quantity("running")
    streams = group.quantity("decode") if streams is None else streams
    behind = (
        streams is not None
        and running is not None
        and float(np.nansum(streams - running)) > 0.5 * float(np.nansum(missing))
    )
    how = f"{'behind' if behind else 'in front of'} the scheduler: rate times time less running and waiting"
    return Part("unseen", group, missing, how, not behind)


def _phases_are_all(group: Group, total: FloatArray) -> bool:
    """Whether queue and computing, as the scheduler timed them, are the whole time: then a gauge that sees fewer is off by itself."""
    read, write, queued = (group.quantity(key) for key in ("prefill", "decode", "queue"))
    if read is None or write is None or queued is None:
        return False
    return float(np.nansum(read + write + queued)) >= (1.0 - _LEAST_REST) * float(np.nansum(total))


def _of_gauges(group: Group) -> list[Part]:
    """Queue, reading and writing as gauges see them, beside what they do not see."""
    waiting, running, read = (group.quantity(key) for key in ("waiting", "running", "prefill"))
    parts = [] if waiting is None else [Part("queue", group, waiting, "waiting")]
    parts += _transfer(group)
    if running is not None:
        parts += [] if read is None else [Part("prefill", group, read, "time counted")]
        write = running if read is None else np.maximum(running - read, 0.0)
        parts.append(Part("decode", group, write, "running", False))
    return parts


def _busy(group: Group, total: FloatArray, queue: FloatArray | None) -> list[Part]:
    """What a group does beside waiting: reading and writing where they are counted, else what is known of both together."""
    read, write = group.quantity("prefill"), group.quantity("decode")
    queued = group.quantity("queue")
    if read is not None and write is not None:
        rest = (
            None
            if queued is None or group.quantity("e2e") is None
            else total - queued - read - write
        )
        some = rest is not None and float(np.nansum(rest)) > _LEAST_REST * float(np.nansum(total))
        more = (
            [Part("rest", group, rest, "E2E less its phases")] if some and rest is not None else []
        )
        return _phases(group) + more
    if write is not None:
        return _phases(group)
    first, streams = group.quantity("ttft"), group.quantity("itl")
    if first is not None and streams is not None and queue is not None:
        return [
            Part("prefill", group, np.maximum(first - queue, 0.0), "first token less queue"),
            Part("decode", group, streams, "between tokens", False),
        ]
    busy = group.quantity("inference")
    busy = group.quantity("running") if busy is None else busy
    if busy is None and queue is not None:
        busy = total - queue
    if busy is not None:
        return [Part("work", group, busy, "running", False)]
    return [Part("work", group, total, "time counted", False)] if queue is None else []


def _of_front(plant: Plant) -> list[Part]:
    """What the front has inside beyond those behind it, where both count the same requests."""
    front = plant.front
    total = None if front is None else front.inside()
    if front is None or total is None:
        return []
    if (behind := front.quantity("behind")) is not None:
        return [
            Part("behind", front, behind, "time of its calls"),
            Part("front", front, total - behind, "its time less that of its calls"),
        ]
    if plant.groups:
        inner = _served(plant, front)
        how = "its requests inside less those inside of all stations behind it"
        return [Part("front", front, smooth(total - inner), how)] if inner is not None else []
    queue = front.quantity("queue")
    queue = front.quantity("waiting") if queue is None else queue
    parts = [] if queue is None else [Part("queue", front, queue, "waiting")]
    rest = total if queue is None else total - queue
    return [*parts, Part("work", front, rest, "time counted", False)]


def _served(plant: Plant, front: Group) -> FloatArray | None:
    """How many requests are inside of those groups that end as many as the front does: stages of one way each end all of them, models share them."""
    ended = front.done()
    if ended is None:
        return None
    by_role: dict[tuple[str, str], list[Group]] = {}
    for group in plant.groups:
        if group.inside() is not None:
            step = group.model if group.role == "step" else ""
            by_role.setdefault((group.role, step), []).append(group)
    wanted, inner = float(np.nansum(ended)), None
    for groups in by_role.values():
        done = sum(float(np.nansum(one)) for group in groups if (one := group.done()) is not None)
        if not _FEWEST * wanted <= done <= _MOST * wanted:
            continue
        for group in groups:
            part = group.inside()
            if part is not None:
                inner = part if inner is None else inner + np.nan_to_num(part)
    return inner
