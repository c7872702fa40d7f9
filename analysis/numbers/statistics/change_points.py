"""Where does the share of bad requests change? Change points of a Bernoulli share over requests in order of time."""

import itertools
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# Requests on either side of a change point: the usual least number of points for one (PELT, E-divisive); own default.
MIN_ONSET_SIDE: Final = 20
# Scrapes on either side: each is a mean or a state of all requests of its interval, and a Prometheus has one every 15 to 60 s; own default.
LEAST_SCRAPES: Final = 4
_ONSET_GRID: Final = 10_000
# What misses the target itself still shows what changed where this part or less of the share behind it misses it; own default.
FAR_LESS: Final = 0.2
# Three splits tell an incident, its end, and one more; own default.
_MOST_SPLITS: Final = 3
# 95th percentile of the likelihood ratio of a change point's place, P(x) = (1 - exp(-x / 2))^2 (Hansen, Econometrica 68, 2000): wider than chi-squared.
_PLACE_95: Final = 7.35
# Requests must be well for this long for an incident to have ended, and it must have lasted as long: a swing of a queue is shorter; own defaults.
MIN_CALM_S: Final = 60.0
LONGER_CALM: Final = 2.0
MIN_LASTED_S: Final = 60.0


def find_onset(
    start_us: IntArray, bad: BoolArray, allowed: float, *, least: int = MIN_ONSET_SIDE
) -> int | None:
    """Return when requests began to go bad (microseconds since 1970), None when no change after a healthy stretch stands out.

    The share of bad requests is cut into pieces by binary segmentation: a change point of a Bernoulli share by maximum likelihood over
    requests in order of start, accepted when the likelihood ratio passes 3 log n (BIC for a location and a second share). The onset is where
    the latest run of bad pieces begins, if the share rises there from one that was not clearly above `allowed`, and if at least half of what is bad in
    all bad pieces comes after it: the last swing of a queue is no beginning. Where there is none, a share that rises from far less will do, though that
    was above `allowed` as well. Requests that overlap are not independent, so this is a date for people, not a test. At least `least` of them are on either
    side of a change; samples of a gauge, of which each speaks for many requests, need fewer (`LEAST_SCRAPES`).
    """
    n = len(bad)
    if n < 2 * least:
        return None
    start, bad = in_time(start_us, bad)
    hits = np.concatenate([[0], np.cumsum(bad, dtype=np.int64)])
    edges = [0, *splits(bad, least), n]
    shares = [(int(hits[b] - hits[a]), b - a) for a, b in itertools.pairwise(edges)]
    bad_pieces = [wilson(*share)[0] > allowed for share in shares]
    in_bad = [share[0] if is_bad else 0 for share, is_bad in zip(shares, bad_pieces, strict=True)]
    for far_less in (False, True):
        for last in range(len(shares) - 1, 0, -1):
            k = last
            (before, n_before), (after, n_after) = shares[k - 1], shares[k]
            most = 2 * sum(in_bad[k:]) >= sum(in_bad)
            well = (
                wilson(before, n_before)[1] <= FAR_LESS * after / n_after
                if far_less
                else not bad_pieces[k - 1]
            )
            if most and bad_pieces[k] and well and after / n_after > before / n_before:
                # A fault that builds up (a queue that fills, retries that feed on themselves) began where the share first left what it was.
                while k > 1 and wilson(*shares[k - 1])[0] > wilson(*shares[k - 2])[1]:
                    k -= 1
                return int(start[edges[k]])
    return None


def find_end(
    start_us: IntArray, bad: BoolArray, took_ms: FloatArray, onset_us: int, allowed: float
) -> int | None:
    """Return when requests that went bad from `onset_us` on went well again (microseconds since 1970), None where they still go bad.

    The share of bad requests is cut as in `find_onset`; the last pieces must not be clearly above `allowed`, clearly below the share before them, and
    twice as long as any pause before: bursts, and queues that come and go, pause. What is over within a minute is such a swing and no incident.
    `took_ms` is what each request took: the slow ones of the last moments have not ended yet, so as much as most bad ones take is left out.
    """
    order = np.argsort(start_us, kind="stable")
    start, hits = start_us[order], bad[order]
    if not hits.any():
        return None
    lasting_us = 1e3 * float(np.quantile(np.nan_to_num(took_ms[order][hits]), 0.95))
    inside = (start >= onset_us) & (start <= start[-1] - lasting_us)
    start, hits = start[inside], hits[inside]
    edges = [0, *splits(hits), len(hits)]
    calm = len(edges) - 1
    while (
        calm > 0
        and wilson(int(hits[edges[calm - 1] : edges[calm]].sum()), edges[calm] - edges[calm - 1])[0]
        <= allowed
    ):
        calm -= 1
    at = edges[calm]
    if at in (0, len(hits)):
        return None
    went = start[:at][hits[:at]]
    paused_us = float(np.diff(went, prepend=onset_us).max(initial=0.0))
    if float(np.ptp(went)) < MIN_LASTED_S * 1e6 or float(start[-1] - start[at]) < max(
        MIN_CALM_S * 1e6, LONGER_CALM * paused_us
    ):
        return None
    before, after = (wilson(int(part.sum()), len(part)) for part in (hits[:at], hits[at:]))
    return int(start[at]) if after[1] < before[0] else None


def splits(hits: BoolArray, least: int = MIN_ONSET_SIDE) -> list[int]:
    """Return after how many requests (in order of time) the share of hits changes, at most three times; [] where it does not."""
    count = np.concatenate([[0], np.cumsum(hits, dtype=np.int64)])
    gain = 3.0 * float(np.log(max(len(hits), 2)))
    return sorted(_splits(count, (0, len(hits)), gain, _MOST_SPLITS, least))


def in_time(start_us: IntArray, values: npt.NDArray[Any]) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return starts and values in order of start; requests are stored nearly so, and where they stand so nothing is sorted."""
    if bool((start_us[1:] >= start_us[:-1]).all()):
        return start_us, values
    order = np.argsort(start_us, kind="stable")
    return start_us[order], values[order]


def parted(rows: pl.DataFrame, at_us: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows that start before a moment and the others; where they stand in order of start nothing is copied."""
    starts = rows["start_us"].to_numpy()
    if bool((starts[1:] >= starts[:-1]).all()):
        first = int(np.searchsorted(starts, at_us))
        return rows.head(first), rows[first:]
    return rows.filter(pl.col("start_us") < at_us), rows.filter(pl.col("start_us") >= at_us)


def _splits(
    hits: IntArray, piece: tuple[int, int], least_gain: float, most: int, least: int
) -> Iterator[int]:
    """Yield change points of a piece [first, last), best first within each piece; `hits` is the running count with a leading 0."""
    first, last = piece
    n = last - first
    if most == 0 or n < 2 * least:
        return
    count = hits[first : last + 1] - hits[first]
    # A coarse pass, then a fine one around its best: a hundred times fewer logarithms at a million requests.
    step = max(1, n // _ONSET_GRID)
    coarse = np.arange(least, n - least + 1, step)
    near = int(coarse[np.argmax(_split_gain(count, coarse))])
    k = np.arange(max(least, near - step), min(n - least, near + step) + 1)
    gain = _split_gain(count, k)
    best = int(np.argmax(gain))
    if 2.0 * gain[best] < least_gain:
        return
    at = first + int(k[best])
    yield at
    yield from _splits(hits, (first, at), least_gain, most - 1, least)
    yield from _splits(hits, (at, last), least_gain, most - 1, least)


def split(hits: IntArray, effect: float = 1.0) -> int | None:
    """Return after how many requests two shares explain the running count `hits` (with its leading 0) best, None where one share does.

    `effect` is how many requests in a row tell as much as one would that shares nothing with its neighbours (`goodput.design_effect`)."""
    n = len(hits) - 1
    gain = 3.0 * effect * float(np.log(max(n, 2)))
    return next(_splits(hits, (0, n), gain, 1, MIN_ONSET_SIDE), None)


def split_interval(hits: BoolArray) -> tuple[int, int, float]:
    """Return the least and the most requests (in order of time) after which the share of hits may have changed, and how much a change explains there at best.

    A 95 % likelihood interval: places whose likelihood ratio to the best one is below that of chance. Neighbours are taken as independent.
    Both sides hold one request at least; (0, n, 0.0) where there are fewer than two.
    """
    n = len(hits)
    if n < 2:
        return 0, n, 0.0
    count = np.concatenate([[0], np.cumsum(hits, dtype=np.int64)])
    k = np.arange(1, n)
    gain = _split_gain(count, k)
    likely = k[2.0 * (float(gain.max()) - gain) <= _PLACE_95]
    return int(likely[0]), int(likely[-1]), float(gain.max())


def _split_gain(count: IntArray, k: IntArray) -> FloatArray:
    """Return how much two shares, split after k requests, explain better than one."""
    n, total = len(count) - 1, float(count[-1])
    left = count[k].astype(np.float64)
    whole = _log_likelihood(np.array([total]), np.array([n]))
    return _log_likelihood(left, k) + _log_likelihood(total - left, n - k) - whole


def _log_likelihood(hits: FloatArray, n: Any) -> FloatArray:
    """Return the maximised Bernoulli log likelihood of `hits` out of `n`, elementwise; 0 log 0 counts as 0."""
    total = np.asarray(n, dtype=np.float64)
    misses = total - hits
    parts = [
        np.where(part > 0.0, part * np.log(np.where(part > 0.0, part, 1.0) / total), 0.0)
        for part in (hits, misses)
    ]
    value: FloatArray = parts[0] + parts[1]
    return value
