"""Which traits explain how long an occurrence takes? Steps and lines, chosen on half of the traces, that must hold on the other half against all that were tried.

Forward stagewise regression on ms, four terms at most, over all occurrences or within the slow side of a term found before. A term stays where Welch's t on the half
that did not choose it, times the number tried, is below 0.01 and its gain there is two fifths of what it promised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from overrun.analysis.contrast.attributes import Attribute
from overrun.analysis.contrast.candidates import Candidate, Candidates, candidates, rank_of
from overrun.analysis.contrast.traits import Traits, kinds
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

MOST_TERMS: Final = 4
# Largest p after correction, least part of the promised gain on the other half, least gain of all variance, and of a choice; own defaults.
MOST_BY_CHANCE: Final = 0.01
LEAST_KEPT: Final = 0.4
LEAST_GAIN: Final = 0.015
LEAST_CHOSEN: Final = 0.02
# Splits whose gain is within 3 % of the best one's are no worse: the one that says most is taken.
NO_WORSE: Final = 0.97
# Two traits that part occurrences with this correlation (phi) are printed together.
ALIKE: Final = 0.9
_MOST_FAILED: Final = 6


@dataclass
class Term:
    """One trait that explains ms: `slow` are the occurrences on its slow side (of a line: its upper half), `effect` its ms for each. `apart_ms` is the difference of
    both sides' means, or the slope of a line per unit. `up` says whether slower goes with more of it. `carried_ms` is what it carries of the excess."""

    candidate: Candidate
    text: str
    slow: BoolArray
    effect: FloatArray
    apart_ms: float
    up: bool
    gain: float
    promised: float
    p: float
    within: str = ""
    alike: list[tuple[Candidate, str, bool]] = field(default_factory=list)
    carried_ms: float = 0.0

    @property
    def name(self) -> str:
        """The trait."""
        return self.candidate.name

    @property
    def kind(self) -> str:
        """What the trait is about."""
        return kinds().of(self.candidate.name)

    @property
    def kinds(self) -> set[str]:
        """What the trait and those that the data cannot part from it are about."""
        return {self.kind} | {kinds().of(one.name) for one, _, _ in self.alike}


@dataclass(frozen=True)
class Fit:
    """The terms, those that carry most first; how many splits were tried; and which part of the variance on the other half the terms explain."""

    terms: list[Term]
    tried: int
    gain: float


@dataclass
class _State:
    """What is left to explain: residuals `r` in ms, the halves, and the sums of squares that gains are shares of."""

    r: FloatArray
    chosen: BoolArray
    other: BoolArray
    sides: FloatArray
    total: tuple[float, float]
    failed: set[tuple[str, int]] = field(default_factory=set)


def halves(traces: IntArray) -> BoolArray:
    """Half of the traces to choose on, by a mixture of their keys that does not depend on anything else."""
    mixed = (traces.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    out: BoolArray = mixed % np.uint64(2) == 0
    return out


def fit(
    y: FloatArray, traits: Traits, traces: IntArray, bad: BoolArray, most: int = MOST_TERMS
) -> Fit:
    """Explain durations `y` in ms; `bad` are the occurrences whose excess is to be explained, `traces` says which belong together."""
    n, chosen = len(y), halves(traces)
    if min(chosen.sum(), (~chosen).sum()) < 10:
        return Fit([], 0, 0.0)
    tried = candidates(traits, chosen)
    if not tried.tried:
        return Fit([], 0, 0.0)
    y = np.minimum(y, np.sort(y)[-min(5, n)])  # one huge duration would be all of the variance
    squares = [float(((part - part.mean()) ** 2).sum()) or 1e-9 for part in (y[chosen], y[~chosen])]
    state = _State(
        y - y.mean(), chosen, ~chosen, tried.sides.astype(np.float32), (squares[0], squares[1])
    )
    terms: list[Term] = []
    while len(terms) < most and len(state.failed) <= _MOST_FAILED:
        term = _next(state, tried, traits, terms)
        if term is None:
            break
        if term.p > 0:
            pass
        terms.append(term)
        mask = np.ones(n, np.bool_) if not term.within else _scope(terms, term.within)
        state.r = state.r - term.effect
        state.r = state.r - np.where(mask, state.r[chosen & mask].mean(), 0.0)
        state.failed = {one for one in state.failed if one[0] != term.within}
    for term in terms:
        if bad.any() and not bad.all():
            term.carried_ms = float(term.effect[bad].mean() - term.effect[~bad].mean())
    terms.sort(key=lambda one: -max(one.carried_ms, one.gain * 1e-6))
    return Fit(terms, tried.tried, sum(one.gain for one in terms))


def _scope(terms: list[Term], text: str) -> BoolArray:
    return next(one.slow for one in terms if one.text == text and not one.within)


def _next(state: _State, tried: Candidates, traits: Traits, terms: list[Term]) -> Term | None:
    """The next term that holds on both halves; None where none does."""
    while len(state.failed) <= _MOST_FAILED:
        best = _best(state, tried, terms)
        if best is None or best[0] < LEAST_CHOSEN:
            return None
        promised, scope, mask, at = best
        term = _term(state, tried, traits, at, mask)
        term.within, term.promised = scope, promised
        term.p = min(1.0, term.p * tried.tried)
        if term.p <= MOST_BY_CHANCE and term.gain >= max(LEAST_GAIN, LEAST_KEPT * promised):
            if at < len(tried.steps):
                term.alike = _alike(state, tried, traits, at, mask, term)
            return term
        state.failed.add((scope, at))
    return None


def _best(
    state: _State, tried: Candidates, terms: list[Term]
) -> tuple[float, str, BoolArray, int] | None:
    """The split that removes most of the squares on the choosing half: gain, the term within whose slow side it is (empty: over all), where, its place."""
    n = len(state.r)
    scopes: list[tuple[str, BoolArray]] = [("", np.ones(n, dtype=np.bool_))]
    scopes += [
        (one.text, one.slow)
        for one in terms
        if one.candidate.form != "line" and not one.within and one.slow.sum() >= 20
    ]
    ranks = np.array([one.rank for one in (*tried.steps, *tried.lines)])
    best: tuple[float, str, BoolArray, int] | None = None
    for scope, mask in scopes:
        rows = state.chosen & mask
        if rows.sum() < 10:
            continue
        score = np.concatenate([_step_gains(state, rows), _line_gains(state, tried, rows)])
        score /= state.total[0]
        own = {one.name for one in terms if one.text == scope}
        score[[at for at, one in enumerate((*tried.steps, *tried.lines)) if one.name in own]] = 0.0
        score[[at for where, at in state.failed if where == scope]] = 0.0
        near = np.flatnonzero(score >= NO_WORSE * score.max())
        at = int(near[np.lexsort((-score[near], ranks[near]))[0]])
        if best is None or score[at] > best[0] * 1.15:
            best = float(score[at]), scope, mask, at
    return best


def _step_gains(state: _State, rows: BoolArray) -> FloatArray:
    """The squares that each step removes among some rows."""
    centred = np.where(rows, state.r - state.r[rows].mean(), 0.0).astype(np.float32)
    n = float(rows.sum())
    both = (state.sides @ np.column_stack([rows.astype(np.float32), centred])).astype(np.float64)
    on, total = both[:, 0], both[:, 1]
    off = n - on
    with np.errstate(divide="ignore", invalid="ignore"):
        gains: FloatArray = np.where((on < 3) | (off < 3), 0.0, total**2 * n / (on * off))
    return gains


def _line_gains(state: _State, tried: Candidates, rows: BoolArray) -> FloatArray:
    """The squares that each line removes among some rows."""
    if not len(tried.lines):
        return np.zeros(0)
    x = tried.values[:, rows]
    x = x - x.mean(axis=1, keepdims=True)
    centred = state.r[rows] - state.r[rows].mean()
    gains: FloatArray = (x @ centred) ** 2 / np.maximum(1e-12, (x**2).sum(axis=1))
    return gains


def _term(state: _State, tried: Candidates, traits: Traits, at: int, mask: BoolArray) -> Term:
    """A term from the choosing half, with its gain and p on the other one."""
    rows, held, r = state.chosen & mask, state.other & mask, state.r
    if at < len(tried.steps):
        one, there = tried.steps[at], tried.sides[at]
        high, low = r[rows & there].mean(), r[rows & ~there].mean()
        effect = np.where(mask, np.where(there, high, low), 0.0)
        slow = mask & (there if high > low else ~there)
        t = _welch(r[held & there], r[held & ~there], up=high > low)
        apart, up = abs(high - low), (high > low) == (one.form in ("is", "given", "over"))
        text = worded(one, traits.columns[one.name], slow=bool(high > low))
    else:
        one, x = tried.lines[at - len(tried.steps)], tried.values[at - len(tried.steps)]
        centred = x - x[rows].mean()
        apart = float((centred[rows] @ r[rows]) / max(1e-12, centred[rows] @ centred[rows]))
        effect = np.where(mask, apart * centred, 0.0)
        slow, up = mask & (effect > 0.0), apart > 0.0
        t = _correlated(x[held], r[held], apart)
        text = one.name
    left = r[held] - r[held].mean() - (effect[held] - effect[held].mean())
    gain = float(((r[held] - r[held].mean()) ** 2).sum() - (left**2).sum()) / state.total[1]
    p = math.erfc(abs(t) / math.sqrt(2.0))
    return Term(one, text, slow, effect, float(apart), bool(up), gain, 0.0, p)


def _welch(a: FloatArray, b: FloatArray, *, up: bool) -> float:
    """Welch's t of two sides, 0 where they differ in the other direction; less where one side has few."""
    if min(len(a), len(b)) < 2:
        return 0.0
    error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)) or 1e-9
    t = float(a.mean() - b.mean()) / error
    if (t > 0.0) != up:
        return 0.0
    return max(-38.0, min(38.0, t)) * min(1.0, math.sqrt(min(len(a), len(b)) / 5.0))


def _correlated(x: FloatArray, r: FloatArray, slope: float) -> float:
    if len(x) < 4 or x.std() == 0.0 or r.std() == 0.0:
        return 0.0
    c = float(np.corrcoef(x, r)[0, 1])
    return min(38.0, abs(c) * math.sqrt(len(x))) if c * slope > 0.0 else 0.0


def _alike(
    state: _State, tried: Candidates, traits: Traits, at: int, mask: BoolArray, term: Term
) -> list[tuple[Candidate, str, bool]]:
    """Other traits that part the occurrences in the same way, with their words and whether slower goes with more of each: the data cannot part them."""
    sides = state.sides[:, mask]
    mine = sides[at] - sides[at].mean()
    means = sides.mean(axis=1)
    covered = sides @ mine
    spread = np.sqrt(sides.shape[1] * means * (1.0 - means) * float(mine @ mine))
    phi = np.divide(covered, spread, out=np.zeros_like(covered), where=spread > 0.0)
    own_up = bool((term.slow & tried.sides[at]).any())
    found: dict[str, tuple[float, Candidate, str, bool]] = {}
    for place in np.flatnonzero(np.abs(phi) >= ALIKE):
        slow = (phi[place] > 0.0) == own_up
        equal = [(one, None) for one in tried.same[place]]
        for one, _ in [(tried.steps[place], None), *equal]:
            side = slow if one is tried.steps[place] else _slow_side(one, traits, mask, term)
            score = float(abs(phi[place]))
            if one.name != term.name and score > found.get(one.name, (0.0,))[0]:
                up = side == (one.form in ("is", "given", "over"))
                found[one.name] = score, one, worded(one, traits.columns[one.name], slow=side), up
    ordered = sorted(found.values(), key=lambda one: (-round(one[0], 1), rank_of(one[1].name)))
    return [(one, text, up) for _, one, text, up in ordered]


def _slow_side(one: Candidate, traits: Traits, mask: BoolArray, term: Term) -> bool:
    """Whether the slow side of a term is where a step of equal sides is so."""
    column = traits.columns[one.name]
    numbers = column.numbers if column.numbers is not None else column.codes.astype(np.float64)
    there = {
        "is": column.codes == one.value,
        "given": column.given,
        "over": np.nan_to_num(numbers, nan=-np.inf) > one.value,
        "under": np.nan_to_num(numbers, nan=np.inf) <= one.value,
    }[one.form]
    inside = term.slow[mask].astype(np.float64)
    return bool((there[mask] == (inside > 0.0)).mean() > 0.5)


def worded(one: Candidate, column: Attribute, *, slow: bool) -> str:
    """A step in words, from its slow side."""
    if one.form == "given":
        return f"{one.name} is given" if slow else f"{one.name} is not given"
    if one.form == "is":
        value = column.texts[int(one.value)]
        if value in ("yes", "no") and len(column.texts) == 2:
            return one.name if (value == "yes") == slow else f"not {one.name}"
        return f"{one.name} = {value}" if slow else f"{one.name} is not {value}"
    above = (one.form == "over") == slow
    return f"{one.name} {'>' if above else '<='} {one.value:.4g}"
