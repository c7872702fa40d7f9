"""Which end do ways share that became longer? All of one service that is called or calls (its pod, network, accept queue), or one link alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from overrun.analysis.contrast.segments import EDGE, Segments
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# A way has grown where a call on it has more by this part of what one has more on the way that grew most in all, and a fifth more than it had; own defaults.
LEAST_PART: Final = 0.2
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


def shared_end(
    found: Segments, excess: FloatArray, good: FloatArray, often: FloatArray
) -> Shared | None:
    """Return the end that most of what ways have more shares; of one link alone its callee, where only that one can be; None where no service is on most of them.

    `excess` and `good` are ms a request at each place: what bad ones have more, and what good ones have; `often` is how often bad ones have it.
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
    each = of_link / np.maximum(np.bincount(link.ravel(), weights=often[ways]), 1e-9)
    grown = (each >= LEAST_PART * each[np.argmax(of_link)]) & (usual + of_link >= GREW * usual)
    if grown.sum() < 2:
        return _only_link(links, link.ravel(), grown & (of_link >= MOST_OF_ALL * whole), ways)
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


def _only_link(links: IntArray, link: IntArray, grown: BoolArray, ways: IntArray) -> Shared | None:
    """The callee of the one link that has grown, where nobody else calls it and its caller has other ways that did not grow; else None."""
    at = int(np.argmax(grown))
    caller, callee = links[at]
    alone = (links[:, 1] == callee).sum() == 1 and (links == caller).any(axis=1).sum() > 1
    return Shared(int(callee), 1, 1, ways[link == at]) if grown[at] and alone else None


def joined(found: Segments, shared: Shared, excess: FloatArray) -> Segments:
    """The segments with all ways of the shared end as one place: the one of them that became longest."""
    first = int(shared.places[np.argmax(excess[shared.places])])
    place = np.where(np.isin(found.place, shared.places), first, found.place)
    return replace(found, place=place)
