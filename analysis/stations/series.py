"""What did every stored series say, on one grid of time and in one unit? Counters, sums of seconds and histograms become rates, gauges levels.

A sum of seconds a second is the number of requests inside (Little's law, Operations Research 9 (3), 1961), so a histogram of durations, a total of microseconds and a
gauge of running requests are one quantity. No percentile and no bucket edge is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np

from overrun.analysis.numbers.window import MOST_SAMPLES, query
from overrun.analysis.stations.vocabulary import Kind, quantity_of, role_of
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

GAUGE, SUM, DELTA = 1, 2, 1
# Bins of the grid: an hour of scrapes every 15 s is whole. The scan for an onset looks at every pair of bins, 29,000 of 240.
MOST_BINS: Final = 240
# A counter that was read this many bins ago says nothing of the bins between; own default.
LONGEST_GAP: Final = 3
# Where nobody was read twice: the usual scrape interval, in seconds.
_USUAL_STEP_S: Final = 15.0
# Series that are read: forty instances of an engine have about 4,000 (vLLM 0.33: 90 a page without buckets); more are a sender that makes names up.
MOST_SERIES: Final = 5_000


class Grid(NamedTuple):
    """Bins of equal length: bin k is around `start_s + k * step_s`, in seconds since 1970."""

    start_s: float
    step_s: float
    bins: int

    def time_s(self, bin_: float) -> float:
        """When a bin is."""
        return self.start_s + bin_ * self.step_s

    def bin_of(self, time_s: FloatArray) -> IntArray:
        """Which bins hold these times; those beyond the ends are in the first and the last one."""
        at = np.rint((time_s - self.start_s) / self.step_s).astype(np.int64)
        return np.clip(at, 0, self.bins - 1)


@dataclass(frozen=True)
class Series:
    """One series on the grid: `values`, shape (bins,), NaN where nothing is known.

    A level has its level, a flow what it counted a second, a time or size the sum a second with `counts` a second beside it. `quantity` is None where the
    vocabulary does not know it. `late_s` is how long after its instance's first sample it began, `gone_s` how long before the last one it ended.
    """

    name: str
    instance: str
    model: str
    role: str
    kind: Kind
    quantity: str | None
    labels: Mapping[str, str]
    resource: Mapping[str, str]
    version: str
    values: FloatArray
    counts: FloatArray | None
    late_s: float
    gone_s: float


@dataclass(frozen=True)
class Recording:
    """All series of a window on one grid; `resets` are the times (s) at which counters of an instance began anew, one entry per counter."""

    grid: Grid
    series: list[Series]
    resets: dict[str, list[float]]


def read(
    con: duckdb.DuckDBPyConnection,
    start: datetime | None,
    end: datetime | None,
    model: str | None = None,
    only: set[str] | None = None,
) -> Recording:
    """Return the series of [start, end], either side open if None; of the instances `only` where given. Without samples the grid has no bin."""
    window = {"start": start, "end": end}
    stored = int(con.execute(query("metric_samples"), window).fetchall()[0][0])
    every = max(1, -(-stored // MOST_SAMPLES))
    asked = {**window, "model": model, "every": every, "most": MOST_SERIES}
    cursor = con.execute(query("metric_series"), asked)
    names = [column[0] for column in cursor.description or []]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    rows = [row for row in rows if only is None or (row["instance"] or "") in only]
    return recording(rows)


def recording(rows: list[dict[str, Any]]) -> Recording:
    """Return series (rows as of `metric_series`) on a grid that their own scrape interval decides."""
    times: dict[str, set[int]] = {}
    for row in rows:
        times.setdefault(row["instance"] or "", set()).update(row["time_ns"])
    if not times:
        return Recording(Grid(0.0, _USUAL_STEP_S, 0), [], {})
    grid = _grid(times)
    ends = {name: (min(some) / 1e9, max(some) / 1e9) for name, some in times.items()}
    resets: dict[str, list[float]] = {}
    series = [_series(row, grid, ends[row["instance"] or ""], resets) for row in rows]
    return Recording(grid, series, resets)


def _grid(times: Mapping[str, set[int]]) -> Grid:
    """The finest scrape interval, but no more than MOST_BINS bins."""
    gaps = [
        float(np.median(np.diff(sorted(some)))) / 1e9 for some in times.values() if len(some) > 2
    ]
    first = min(min(some) for some in times.values()) / 1e9
    last = max(max(some) for some in times.values()) / 1e9
    step = max(min(gaps, default=_USUAL_STEP_S), 1.0, (last - first) / MOST_BINS)
    return Grid(first, step, round((last - first) / step) + 1)


def _series(
    row: Mapping[str, Any],
    grid: Grid,
    ends: tuple[float, float],
    resets: dict[str, list[float]],
) -> Series:
    instance, name, indicator = row["instance"] or "", row["name"], row["indicator"]
    labels = dict(row["attributes"] or {})
    time_s = np.asarray(row["time_ns"], np.float64) / 1e9
    known = quantity_of(name, indicator)
    histogram = row["kind"] not in (GAUGE, SUM)
    kind, quantity = known or (_kind(row["kind"]), None)
    if histogram and kind in ("level", "flow"):  # a histogram of a level is one of sizes
        kind, quantity = "size", None
    counts = None
    if row["kind"] == GAUGE and (indicator is not None or kind == "level"):
        values = _level(grid, time_s, _column(row["value"]))
    else:
        sample = _Counted(
            time_s,
            _column(row["start_ns"]) / 1e9,
            row["temporality"] == DELTA,
            born=time_s[0] - ends[0] > grid.step_s / 2,
        )
        main = _column(row["sum" if histogram else "value"])
        _note_resets(sample, _column(row["count"]) if histogram else main, instance, resets)
        values = _rate(grid, sample, main)
        counts = _rate(grid, sample, _column(row["count"])) if histogram else None
    return Series(
        name=name,
        instance=instance,
        model=row["model"] or "",
        role=role_of(name, labels, indicator),
        kind=kind,
        quantity=quantity,
        labels=labels,
        resource=dict(row["resource_attributes"] or {}),
        version=row["version"] or "",
        values=values * row["scale"],
        counts=counts,
        late_s=float(time_s[0] - ends[0]),
        gone_s=float(ends[1] - time_s[-1]),
    )


def _kind(stored: int) -> Kind:
    return "level" if stored == GAUGE else "flow" if stored == SUM else "time"


def _column(values: list[float | None]) -> FloatArray:
    return np.array([np.nan if value is None else value for value in values], np.float64)


class _Counted(NamedTuple):
    """The samples of one counter: when each was read, since when it counts (0: unknown), whether each is a delta, and whether it began after its instance."""

    time_s: FloatArray
    start_s: FloatArray
    delta: bool
    born: bool


def _fell(sample: _Counted, values: FloatArray) -> BoolArray:
    """Where a cumulative counter is below the sample before it: it began anew."""
    fell: BoolArray = np.diff(values) < 0.0
    return fell if not sample.delta else np.zeros(len(fell), np.bool_)


def _note_resets(
    sample: _Counted, values: FloatArray, instance: str, resets: dict[str, list[float]]
) -> None:
    for time in sample.time_s[1:][_fell(sample, values)]:
        resets.setdefault(instance, []).append(float(time))


def _rate(grid: Grid, sample: _Counted, values: FloatArray) -> FloatArray:
    """What was counted a second in each bin; a counter that falls began anew, one that is younger than its instance began at 0."""
    time, start = sample.time_s, np.nan_to_num(sample.start_s)
    before = np.r_[time[0] - grid.step_s, time[:-1]]
    if sample.delta:
        grown, since = values, np.where((start > 0.0) & (start < time), start, before)
    else:
        anew = np.r_[False, _fell(sample, values)]
        later = anew & (start > before) & (start < time)
        grown = np.where(anew, values, np.diff(values, prepend=0.0))
        since = np.where(later, start, before)
        if not sample.born:
            grown, since, time = grown[1:], since[1:], time[1:]
    some = np.isfinite(grown) & (time > since)
    return _spread(grid, since[some], time[some], grown[some])


def _spread(grid: Grid, since: FloatArray, until: FloatArray, grown: FloatArray) -> FloatArray:
    """The mean rate in each bin of what grew in stretches of time; of a stretch longer than LONGEST_GAP bins only its last bin."""
    last = grid.bin_of(until)
    length = np.maximum(last - grid.bin_of(since), 1)
    length = np.where(length > LONGEST_GAP, 1, length)
    rate = np.repeat(grown / (until - since), length)
    back = np.arange(len(rate)) - np.repeat(np.cumsum(length) - length, length)
    bins = np.repeat(last, length) - back
    return _means(grid, bins, rate)


def _level(grid: Grid, time: FloatArray, values: FloatArray) -> FloatArray:
    some = np.isfinite(values)
    return _means(grid, grid.bin_of(time[some]), values[some])


def _means(grid: Grid, bins: IntArray, values: FloatArray) -> FloatArray:
    total = np.bincount(bins, values, grid.bins)
    many = np.bincount(bins, minlength=grid.bins)
    out: FloatArray = np.divide(total, many, out=np.full(grid.bins, np.nan), where=many > 0)
    return out
