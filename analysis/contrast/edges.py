"""Which end do ways share that became longer? All of one service that is called or calls (its pod, network, accept queue), or one link alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.contrast.segments import EDGE, Segments
from overrun.analysis.words.arrays import FloatArray, IntArray

# A way has grown where it holds this part of what all ways have more and a fifth more than it had; own defaults.
LEAST_PART: Final = 0.05
GREW: Final = 1.2
# A service is the shared end where its ways hold this part of what all have more, and this part of its ways has grown; own defaults.
MOST_OF_ALL: Final = 0.7
MOST_GREW: Final = 0.6


@dataclass(frozen=True)
class Shared:
    """The service that ways which became longer share, how many of its ways did, of how many, and their places."""

    service: int
    grown: int
    ways: int
    places: IntArray


def shared_end(found: Segments, excess: FloatArray, good: FloatArray) -> Shared | None:
    """Return the end that most of what ways have more shares; None where fewer than two links have grown or no service is on most of them.

    `excess` and `good` are ms a request at each place: what bad ones have more, and what good ones have.
    """
    ways = np.flatnonzero((found.places[:, 2] == EDGE) & (found.places[:, 6] >= 0))
    ends = found.places[ways][:, [0, 6]]
    more = np.maximum(excess[ways], 0.0)
    whole = float(more.sum())
    if not len(ways) or whole <= 0.0:
        return None
    links, link = np.unique(ends, axis=0, return_inverse=True)
    of_link = np.bincount(link.ravel(), weights=more)
    usual = np.bincount(link.ravel(), weights=good[ways])
    grown = (of_link >= LEAST_PART * whole) & (usual + of_link >= GREW * usual)
    if grown.sum() < 2:
        return None
    best: tuple[float, int] | None = None
    for service in np.unique(links):
        mine = (links == service).any(axis=1)
        weight = usual[mine] + of_link[mine]
        held = float(of_link[mine].sum()) / whole
        part = float(weight[grown[mine]].sum() / max(1e-9, weight.sum()))
        if held >= MOST_OF_ALL and part >= MOST_GREW and (grown & mine).sum() >= 2:
            score = held * part
            if best is None or score > best[0]:
                best = score, int(service)
    if best is None:
        return None
    mine = (links == best[1]).any(axis=1)
    return Shared(best[1], int((grown & mine).sum()), int(mine.sum()), ways[mine[link.ravel()]])


def joined(found: Segments, shared: Shared, excess: FloatArray) -> tuple[Segments, int]:
    """The segments with all ways of the shared end as one place, and that place: the one of them that became longest."""
    first = int(shared.places[np.argmax(excess[shared.places])])
    place = np.where(np.isin(found.place, shared.places), first, found.place)
    fields = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return Segments(**fields | {"place": place}), first
