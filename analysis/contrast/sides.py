"""Which requests are bad, and which are compared with them? A stretch of time that differs, else the limit, else two heaps of durations, else none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.explanation import Mode
from overrun.analysis.words.finding import SEED

# Fewest requests of which a part can be told from the rest; own default.
LEAST: Final = 20
# Orders in which the same requests are drawn anew, and how rarely one of them may show as much of a stretch.
SHUFFLES: Final = 200
MOST_BY_CHANCE: Final = 0.01
# A stretch is one of at least so many requests and such a part, and so is what lies beside it.
LEAST_STRETCH: Final = 8
LEAST_PART: Final = 0.03
# By which factor a stretch must move median, mean or P95 so that it matters: with a limit, without one, and where the limit is kept; own defaults.
MOVED: Final = 1.12
MOVED_UNASKED: Final = 1.3
# All of a stretch moved where its median did by this factor; else those of it are bad that are late themselves.
WHOLE: Final = 1.1
# More than this part over the limit at all times: the limit does not part requests.
ALWAYS: Final = 0.85
# Ashman's D of two heaps: above 2 they are two; 3 without a limit, where nobody said that one of them is too slow.
APART: Final = 2.5
APART_UNASKED: Final = 3.0


@dataclass(frozen=True)
class Sides:
    """Bad and good requests in order of their start; what is in neither is in between. `first` and `last` are places of the stretch (end excluded), None
    without one. `moved` is the factor by which bad ones are slower: of a stretch its median, mean or P95, of two heaps their means."""

    mode: Mode
    bad: BoolArray
    good: BoolArray
    first: int | None = None
    last: int | None = None
    how: str = ""
    moved: float = 0.0

    @property
    def inside(self) -> BoolArray | None:
        """Which requests are in the stretch, None without one."""
        if self.first is None or self.last is None:
            return None
        out = np.zeros(len(self.bad), dtype=np.bool_)
        out[self.first : self.last] = True
        return out


@dataclass(frozen=True)
class Heaps:
    """Two heaps of durations: the cut between them in ms, how far they lie apart (Ashman's D on logarithms) and the factor between their means."""

    cut: float
    apart: float
    factor: float


def two_heaps(values: FloatArray) -> Heaps | None:
    """Return the cut that parts durations best (Otsu's method on logarithms), None of fewer than 12 or of nearly equal ones."""
    logs = np.sort(np.log(np.maximum(values, 0.5)))
    n = len(logs)
    if n < 12 or logs[-1] - logs[0] < 0.3:
        return None
    sums, left = np.cumsum(logs), np.arange(1, n)
    means = sums[:-1] / left, (sums[-1] - sums[:-1]) / (n - left)
    between = left * (n - left) * (means[0] - means[1]) ** 2
    edge = max(2, n // 200)
    between[:edge] = between[n - 1 - edge :] = 0.0
    at = int(np.argmax(between)) + 1
    low, high = logs[:at], logs[at:]
    apart = math.sqrt(2.0) * (high.mean() - low.mean()) / math.sqrt(low.var() + high.var() + 1e-9)
    cut = math.exp((logs[at - 1] + logs[at]) / 2.0)
    return Heaps(cut, float(apart), math.exp(float(high.mean() - low.mean())))


def stretch(signal: FloatArray, rng: np.random.Generator) -> tuple[int, int, float]:
    """Return the stretch of places with the largest sum over the mean, [first, last), and how often shuffled orders have one as large (p, 0..1]."""
    spread = float(signal.std())
    if spread == 0.0:
        return 0, len(signal), 1.0
    z = (signal - signal.mean()) / spread
    sums = np.concatenate([[0.0], np.cumsum(z)])
    lowest = np.minimum.accumulate(sums)
    last = int(np.argmax(sums - lowest))
    first = int(np.argmin(sums[: last + 1]))
    largest = float((sums - lowest)[last])
    shuffled = np.cumsum(rng.permuted(np.tile(z, (SHUFFLES, 1)), axis=1), axis=1)
    shuffled = np.hstack([np.zeros((SHUFFLES, 1)), shuffled])
    reached = (shuffled - np.minimum.accumulate(shuffled, axis=1)).max(axis=1)
    return first, last, (1.0 + float((reached >= largest).sum())) / (SHUFFLES + 1.0)


def relative(values: FloatArray, kind: IntArray) -> FloatArray:
    """Return latencies less the median of their kind, plus the median of all, so that more requests of a slow kind are no change."""
    usual = np.array([np.median(values[kind == one]) for one in range(int(kind.max()) + 1)])
    out: FloatArray = np.maximum(values - usual[kind] + float(np.median(values)), 0.0)
    return out


def sides(values: FloatArray, limits: FloatArray | None, percentile: float = 95.0) -> Sides:
    """Part requests by their latency in ms, in order of start; `limits` are those of each, None where nobody gave any."""
    n = len(values)
    none = np.zeros(n, dtype=np.bool_)
    if n < LEAST:
        return Sides("none", none, none, how=f"{n} requests, {LEAST} are needed to compare")
    late = None if limits is None else values > limits
    # A limit that none is over parts nothing.
    asked = None if late is None or not late.any() else late
    found = _stretch(values, asked)
    within = late is not None and late.mean() <= 1.0 - percentile / 100.0
    if found is not None and not (within and _moved(values, found) < MOVED_UNASKED):
        return _of_stretch(values, asked, found)
    heaps = two_heaps(values)
    if late is None or within:
        if heaps and heaps.apart > APART_UNASKED and heaps.factor > (3.0 if within else 2.0):
            high = values > heaps.cut
            if 0.01 < high.mean() < 0.25:
                how = "durations lie in two heaps"
                return Sides("some", high, ~high, how=how, moved=heaps.factor)
        said = "no stretch is clearly slower, and durations lie in one heap"
        return Sides("none", none, none, how=f"within the limit, {said}" if within else said)
    if late.mean() > ALWAYS:
        if heaps and heaps.apart > APART and heaps.factor > 1.8:
            late = values > heaps.cut
            return Sides(
                "some",
                late,
                ~late,
                how="nearly all are over the limit; their two heaps are compared",
            )
        return Sides("always", ~none, none, how="nearly all are over the limit, at all times")
    return Sides("some", late, ~late, how="over the limit at all times")


def _stretch(values: FloatArray, late: BoolArray | None) -> tuple[int, int] | None:
    """The stretch that moved most, by ranks or by what is late; None where chance has as much or it matters to nobody."""
    n, rng = len(values), np.random.default_rng(SEED)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / n
    flags = values > np.quantile(values, 0.9) if late is None else late
    best: tuple[float, tuple[int, int]] | None = None
    for signal in (ranks, flags.astype(np.float64)):
        first, last, p = stretch(signal, rng)
        inside = last - first
        if p >= MOST_BY_CHANCE or min(inside, n - inside) < max(LEAST_STRETCH, LEAST_PART * n):
            continue
        moved = _moved(values, (first, last))
        if moved > (MOVED_UNASKED if late is None else MOVED) and (best is None or moved > best[0]):
            best = moved, (first, last)
    return None if best is None else best[1]


def _moved(values: FloatArray, at: tuple[int, int]) -> float:
    """By which factor a stretch moved median, mean or P95, whichever moved most."""
    inside, rest = values[at[0] : at[1]], np.delete(values, np.s_[at[0] : at[1]])
    pairs = [(np.median(part), part.mean(), np.quantile(part, 0.95)) for part in (inside, rest)]
    return float(max(a / max(b, 1e-9) for a, b in zip(*pairs, strict=True)))


def _of_stretch(values: FloatArray, late: BoolArray | None, at: tuple[int, int]) -> Sides:
    """The sides of a stretch: all of it where all of it moved, else those of it that are late."""
    first, last = at
    inside = np.zeros(len(values), dtype=np.bool_)
    inside[first:last] = True
    whole = np.median(values[inside]) > WHOLE * np.median(values[~inside])
    spikes = values > np.quantile(values[~inside], 0.95) if late is None else late
    if whole or (inside & spikes).sum() < 5:
        return Sides("stretch", inside, ~inside, first, last, "slower since", _moved(values, at))
    bad = inside & spikes
    how = "more of them late since"
    return Sides("stretch", bad, ~inside & ~spikes, first, last, how, _moved(values, at))


def interval(
    parts: FloatArray, weights: tuple[FloatArray, FloatArray], draws: int = 200
) -> tuple[float, float] | None:
    """Return the 90 % bootstrap interval of the share that one part (column 0, ms) has of the whole (column 1) in the difference of means of both sides, each with
    the `weights` of its requests; None of fewer than 8 bad ones."""
    rng = np.random.default_rng(SEED)
    means = np.zeros((draws, 2))
    for weight, sign in zip(weights, (1.0, -1.0), strict=True):
        some = np.flatnonzero(weight)
        if len(some) < LEAST_STRETCH and sign > 0.0:
            return None
        if len(some):
            drawn = rng.integers(len(some), size=(draws, len(some)))
            of = weight[some][drawn]
            means += (
                sign * np.einsum("dn,dnk->dk", of, parts[some][drawn]) / of.sum(axis=1)[:, None]
            )
    shares = means[:, 0] / np.where(np.abs(means[:, 1]) > 1e-9, means[:, 1], np.inf)
    low, high = np.quantile(shares, [0.05, 0.95])
    return float(low), float(high)
