"""Which splits of occurrences can a trait make? Steps (a value, above a threshold, given at all) and lines, each once however many traits make the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from overrun.analysis.contrast.attributes import MOST_VALUES, Attribute
from overrun.analysis.contrast.traits import Traits, kinds
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

Form = Literal["is", "given", "over", "under", "line"]
# Fewest occurrences on a side of a step: so many, and such a part of all.
LEAST_SIDE: Final = 4
LEAST_PART: Final = 0.006
# Where a number is cut: its quantiles, denser at both ends, where what is rare stands.
_CUTS: Final = np.r_[0.005, 0.01, 0.02, 0.03, np.linspace(0.05, 0.95, 37), 0.97, 0.98, 0.99, 0.995]
# Of traits that part occurrences alike, the ones that explain more come first: what came before a call rather than the clock or what is under way.
_BEHIND: Final = {
    "time": 6.0, "phase": 8.0, "arrivals": 5.0, "inflight": 3.0, "beside": 3.0, "sibling": 2.0, "child": 2.0, "silence": 3.0, "place": 1.5, "first": 1.0,
    "switch": 0.5,
}  # fmt: skip
_FARTHER: Final = {
    "root": 0.8,
    "parent": 0.4,
    "previous": 0.4,
    "next": 0.4,
    "call": 0.2,
    "request": 0.3,
}


@dataclass(frozen=True)
class Candidate:
    """One split: a trait and how it parts occurrences; `value` is a threshold or a code of the trait."""

    name: str
    form: Form
    value: float
    rank: float


@dataclass(frozen=True)
class Candidates:
    """Steps with their sides, shape (steps, occurrences), and lines with their values, shape (lines, occurrences). `same` has other candidates of equal sides."""

    steps: list[Candidate]
    sides: BoolArray
    lines: list[Candidate]
    values: FloatArray
    same: list[list[Candidate]]
    tried: int


def rank_of(name: str) -> float:
    """How far behind others a trait stands that parts occurrences as they do; lower is named first."""
    word = name.split(" ", 1)[0]
    near = _FARTHER.get(word, 0.3 if name.startswith("resource.") else 0.0)
    return _BEHIND.get(kinds().of(name), 0.0) + near


def candidates(traits: Traits, chosen: BoolArray) -> Candidates:
    """Return all splits; thresholds come from the occurrences that choose (`chosen`) alone."""
    n = traits.n
    least = max(LEAST_SIDE, int(LEAST_PART * n))
    steps: list[Candidate] = []
    masks: list[BoolArray] = []
    lines: list[Candidate] = []
    values: list[FloatArray] = []
    for name, column in sorted(traits.items(), key=lambda one: rank_of(one[0])):
        for form, value, there in _steps(name, column, chosen, n, least):
            steps.append(Candidate(name, form, value, rank_of(name)))
            masks.append(there)
        line = _line(name, column, chosen, n)
        if line is not None:
            lines.append(Candidate(name, "line", 0.0, rank_of(name)))
            values.append(line)
    sides = np.array(masks, dtype=np.bool_).reshape(len(masks), n)
    count = sides.sum(axis=1)
    enough = np.flatnonzero((count >= least) & (count <= n - least))
    first, same = _once(sides[enough])
    kept = enough[first]
    return Candidates(
        [steps[at] for at in kept],
        sides[kept],
        lines,
        np.array(values).reshape(len(values), n),
        [[steps[enough[at]] for at in others] for others in same],
        len(enough) + len(lines),
    )


def _steps(
    name: str, column: Attribute, chosen: BoolArray, n: int, least: int
) -> list[tuple[Form, float, BoolArray]]:
    """The steps of one trait."""
    given = column.given
    present = int(given.sum())
    if present < least:
        return []
    out: list[tuple[Form, float, BoolArray]] = []
    kind = kinds().of(name)
    if present < n - least and kind not in ("silence", "first", "switch"):
        out.append(("given", 0.0, given))
    numbers, few = column.numbers, len(column.texts)
    if numbers is not None and len(np.unique(numbers[~np.isnan(numbers)])) >= 3:
        known = ~np.isnan(numbers)
        inside = numbers[chosen & known]
        if len(inside) >= 8:
            cuts = np.unique(np.quantile(inside, _CUTS, method="midpoint"))
            cuts = cuts[cuts > 0.0] if kind == "silence" else cuts
            filled = np.where(known, numbers, -np.inf)
            out += [("over", float(cut), filled > cut) for cut in cuts]
            if not known.all():
                filled = np.where(known, numbers, np.inf)
                out += [("under", float(cut), filled <= cut) for cut in cuts]
    counts = np.bincount(column.codes[given], minlength=few)
    distinct = int((counts > 0).sum())
    if few and (numbers is None or distinct <= 6):
        often = np.flatnonzero((counts >= least) & (counts <= n - least))
        often = often[np.argsort(-counts[often], kind="stable")][:MOST_VALUES]
        out += [("is", float(code), column.codes == code) for code in often]
    return out


def _line(name: str, column: Attribute, chosen: BoolArray, n: int) -> FloatArray | None:
    """The values of a number that most occurrences have, its ends clipped; None where it is none."""
    numbers = column.numbers
    if numbers is None or kinds().of(name) in ("time", "phase"):
        return None
    known = ~np.isnan(numbers)
    if known.sum() < 0.7 * n or len(np.unique(numbers[known])) < 3 or (chosen & known).sum() < 8:
        return None
    low, high = np.quantile(numbers[chosen & known], [0.01, 0.99])
    if high <= low:
        return None
    clipped = np.clip(numbers, low, high)
    return np.where(known, clipped, clipped[known].mean())


def _once(sides: BoolArray) -> tuple[IntArray, list[IntArray]]:
    """The first row of each distinct one, in order, and the rows that are as it is."""
    if not len(sides):
        return np.zeros(0, dtype=np.int64), []
    packed = np.packbits(sides, axis=1)
    # A side and its opposite part alike.
    flip = np.where(sides[:, :1], np.packbits(~sides, axis=1), packed)
    _, first, place = np.unique(flip, axis=0, return_index=True, return_inverse=True)
    place = place.ravel()
    order = np.argsort(first)
    by_place = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
    return first[order], [by_place[at][1:] for at in order]
