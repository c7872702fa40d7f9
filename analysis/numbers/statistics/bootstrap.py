"""How far would a quantile or share have come out with other traffic? Block bootstrap over time, because latency is autocorrelated."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overrun.analysis.words.arrays import FloatArray, IntArray

RESAMPLES: Final = 2000
# A minute outlasts a queue's swing; with fewer than 20 blocks their spread is not known, so short windows get shorter ones. Own defaults.
BLOCK_S: Final = 60.0
LEAST_BLOCKS: Final = 20
# Their spread is known well long before: beyond six hours blocks grow with the window, or three days would take 100 MB and seconds per metric. Own default.
MOST_BLOCKS: Final = 360
# Values are counted per block in this many bins of equal rank: 0.02 % of the requests each, finer than any interval shown.
_BINS: Final = 4096


@dataclass(frozen=True)
class Blocks:
    """Weighted values counted per block and bin. `upper` is the largest value of each bin, `counts` has shape (blocks, bins)."""

    upper: FloatArray
    counts: FloatArray

    def quantiles(
        self, p: FloatArray, rng: np.random.Generator, resamples: int = RESAMPLES
    ) -> FloatArray:
        """Return bootstrap replicates of the quantiles `p` (0..1), shape (resamples, len(p)): whole blocks are drawn with replacement."""
        drawn = _draw(len(self.counts), rng, resamples)
        # Up to each bin, by bisection: counting every bin of every replicate takes four times as long.
        upto = np.ascontiguousarray(np.cumsum(self.counts, axis=1).T)
        total = np.maximum(drawn @ upto[-1], 1e-300)
        out = np.empty((resamples, len(p)))
        for i, wanted in enumerate(p):
            needed = wanted * total * (1.0 - 1e-12)
            low, high = np.zeros(resamples, dtype=np.int64), np.full(resamples, len(self.upper) - 1)
            while (low < high).any():
                middle = (low + high) // 2
                reached = np.einsum("rb,rb->r", drawn, upto[middle]) >= needed
                high, low = np.where(reached, middle, high), np.where(reached, low, middle + 1)
            out[:, i] = self.upper[low]
        return out


def blocks(values: FloatArray, start_us: IntArray, weights: FloatArray | None = None) -> Blocks:
    """Count values (shape (n,), n >= 1) per block of time; exact up to 4,096 distinct values, else in as many bins of equal rank."""
    ordered = np.sort(values)
    upper = np.unique(
        ordered[
            np.unique(
                np.linspace(0, len(ordered) - 1, min(_BINS, len(ordered))).round().astype(np.int64)
            )
        ]
    )
    column = np.minimum(np.searchsorted(upper, values), len(upper) - 1)
    row = block_of(start_us)
    flat = np.bincount(
        row * len(upper) + column, weights=weights, minlength=(int(row.max()) + 1) * len(upper)
    )
    return Blocks(upper, flat.reshape(-1, len(upper)).astype(np.float64))


def block_of(start_us: IntArray) -> IntArray:
    """Return the number (from 0, without gaps) of the block of time that each request starts in."""
    first, last = int(start_us.min()), int(start_us.max())
    span_us = last - first + 1
    length_us = max(1.0, min(BLOCK_S * 1e6, span_us / LEAST_BLOCKS), span_us / MOST_BLOCKS)
    _, number = np.unique(((start_us - first) / length_us).astype(np.int64), return_inverse=True)
    return number.astype(np.int64)


def shares(
    hits: npt.NDArray[np.bool_],
    start_us: IntArray,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return bootstrap replicates of the (weighted) share of hits, shape (resamples,)."""
    row = block_of(start_us)
    drawn = _draw(int(row.max()) + 1, rng, resamples)
    w = np.ones(len(hits)) if weights is None else weights
    share: FloatArray = (drawn @ np.bincount(row, weights=w * hits)) / np.maximum(
        drawn @ np.bincount(row, weights=w), 1e-300
    )
    return share


@dataclass(frozen=True)
class Drawn:
    """Stretches of time drawn with replacement, once for all that is asked of the same rows: `row` is the stretch of each, `drawn` how often each is drawn
    (shape (resamples, stretches)), `seconds` the length of one. A stretch in which nothing began is drawn as well: a rate falls with it."""

    row: IntArray
    drawn: FloatArray
    seconds: float

    @classmethod
    def of(
        cls, start_us: IntArray, rng: np.random.Generator, resamples: int = RESAMPLES
    ) -> "Drawn":
        """Cut the time from the first start to the last (shape (n,), n >= 1) into stretches of equal length, as long as `block_of` makes them."""
        first, span_us = int(start_us.min()), int(np.ptp(start_us)) + 1
        length_us = max(1.0, min(BLOCK_S * 1e6, span_us / LEAST_BLOCKS), span_us / MOST_BLOCKS)
        count = max(1, round(span_us / length_us))
        row = ((start_us - first) * count // span_us).astype(np.int64)
        return cls(row, _draw(count, rng, resamples), span_us / count / 1e6)

    def ratios(self, part: FloatArray, whole: FloatArray) -> FloatArray:
        """Return replicates of sum(part) / sum(whole), both of shape (n,): a mean with a `whole` of ones; NaN where nothing was drawn."""
        above, below = (self.drawn @ self._sums(values) for values in (part, whole))
        out: FloatArray = np.divide(
            above, below, out=np.full(len(above), np.nan), where=below != 0.0
        )
        return out

    def rates(self, counts: FloatArray) -> FloatArray:
        """Return replicates of sum(counts) per second, counts of shape (n,)."""
        stretches = self.drawn.shape[1]
        out: FloatArray = self.drawn @ self._sums(counts) / (stretches * self.seconds)
        return out

    def _sums(self, values: FloatArray) -> FloatArray:
        sums: FloatArray = np.bincount(
            self.row, weights=values, minlength=self.drawn.shape[1]
        ).astype(np.float64)
        return sums


def _draw(n: int, rng: np.random.Generator, resamples: int) -> FloatArray:
    """Return how often each of n blocks is drawn, shape (resamples, n)."""
    # Four times as fast as multinomial counts.
    cells = rng.integers(0, n, (resamples, n)) + np.arange(resamples)[:, None] * n
    return (
        np.bincount(cells.ravel(), minlength=resamples * n).reshape(resamples, n).astype(np.float64)
    )
