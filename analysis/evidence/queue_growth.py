"""Does the queue wait grow, and how much more is offered than admitted meanwhile?"""

import itertools
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.words.arrays import FloatArray

STAGE: Final = "queue"
# Share of the rise below which the wait counts as not yet risen; own default.
NEAR_LOWEST: Final = 0.05
# The growth must last this many median service times, else it is a burst that the engine absorbs; own default.
MIN_SERVICE_TIMES: Final = 5.0
# Where most wait for this part of a service time in three quarters of the period, it is no burst that passes; own default.
STANDING: Final = 0.1
# The wait is followed over equal groups of arrivals: at most 40 points, at least 10 requests a point.
_MOST_BINS: Final = 40
_LEAST_PER_BIN: Final = 10


class Load(NamedTuple):
    """How the wait moved. Rates in tokens (input + output) per second while it grew, times in seconds of the window."""

    growing: bool
    standing: bool
    grew_from_s: float
    grew_to_s: float
    wait_from_ms: float
    wait_to_ms: float
    offered_ratio: float
    offered_tps: float
    admitted_tps: float
    offered_rps: float
    admitted_rps: float
    arrival_rise: float | None


def wait_growth(rows: pl.DataFrame, service_ms: float, every: int = 1) -> Load | None:
    """Follow the queue wait over arrivals (equal groups, median each) and find its largest rise.

    None below 30 requests. `rows` are one request in `every`; rates are those of all.
    """
    rows = rows.sort("start_us")
    bins = min(_MOST_BINS, rows.height // _LEAST_PER_BIN)
    if bins < 3:
        return None
    start_s = (rows["start_us"].to_numpy() - rows["start_us"][0]) / 1e6
    wait_ms = rows[f"{STAGE}_ms"].fill_null(0.0).to_numpy()
    edges = np.linspace(0, rows.height, bins + 1).astype(np.intp)
    waits = np.array([np.median(wait_ms[a:b]) for a, b in itertools.pairwise(edges)])
    lowest = np.minimum.accumulate(waits)
    j = int(np.argmax(waits - lowest))
    # The rise begins where the wait last stood near its lowest: a long calm before it would dilute the rates.
    i = int(np.flatnonzero(waits[: j + 1] <= lowest[j] + NEAR_LOWEST * (waits[j] - lowest[j]))[-1])
    t0, t1 = _rise_span(start_s[edges[min(i + 1, j)] : edges[j + 1]])
    rates = _rates(rows, start_s, wait_ms, t0, t1, every)
    rise_ms = float(waits[j] - waits[i])
    ratio = 1.0 + rise_ms / 1000.0 / (t1 - t0) if t1 > t0 else 1.0
    long_ms = MIN_SERVICE_TIMES * service_ms
    growing = (
        rise_ms >= long_ms and 1000.0 * (t1 - t0) >= long_ms
    )  # however slowly: what is offered and served evens out below capacity
    quarters = sorted(float(np.median(part)) for part in np.array_split(wait_ms, 4))
    standing = service_ms > 0.0 and (
        float(np.percentile(wait_ms, 25.0)) > service_ms or quarters[1] > STANDING * service_ms
    )
    return Load(growing, standing, t0, t1, float(waits[i]), float(waits[j]), ratio, *rates)


def _rise_span(start_s: FloatArray) -> tuple[float, float]:
    """Return when these arrivals came: their middle nine tenths stretched to the whole, so that no stray one counts.

    A burst that came at once has no length, however far its neighbours are.
    """
    low, high = (float(at) for at in np.percentile(start_s, [5.0, 95.0]))
    stretch = (high - low) * 0.05 / 0.9
    return low - stretch, high + stretch


def _rates(
    rows: pl.DataFrame, start_s: FloatArray, wait_ms: FloatArray, t0: float, t1: float, every: int
) -> tuple[float, float, float, float, float | None]:
    """Return offered and admitted tokens/s and requests/s in [t0, t1), and that arrival rate over the one before."""
    seconds, per_s = max(t1 - t0, 1e-9), every / max(t1 - t0, 1e-9)
    work = (
        (rows["input_tokens"].fill_null(0) + rows["output_tokens"].fill_null(0))
        .to_numpy()
        .astype(np.float64)
    )
    admitted_s = start_s + wait_ms / 1000.0
    offered, admitted = ((at >= t0) & (at < t1) for at in (start_s, admitted_s))
    before = start_s < t0
    rise = None
    if t0 > 0.0 and int(before.sum()) >= _LEAST_PER_BIN:
        rise = (offered.sum() / seconds) / (before.sum() / t0)
    return (
        float(work[offered].sum() * per_s),
        float(work[admitted].sum() * per_s),
        float(offered.sum() * per_s),
        float(admitted.sum() * per_s),
        None if rise is None else float(rise),
    )


def service_ms(rows: pl.DataFrame) -> float:
    """Return the median time in the engine behind the queue."""
    spent = sum(
        rows[f"{stage}_ms"].fill_null(0.0)
        for stage in ("prefill", "decode", "first_token", "generation")
    )
    return float(np.median(spent.to_numpy())) if isinstance(spent, pl.Series) else 0.0
