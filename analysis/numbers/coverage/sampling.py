"""Do the stored requests stand for all? Sampling marks of the traces, and spans against what engines and clients counted themselves.

Consistent probability sampling (tracestate `ot=th`) can be weighted; a sampler that keeps what is slow or failed makes every percentile, share and
rate a number about its own choice, and no arithmetic repairs that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.histograms import Increments, load
from overrun.analysis.numbers.latency.percentiles import worth
from overrun.analysis.numbers.window import (
    SCRAPE_GRACE,
    RequestFrame,
    Window,
    filter_of,
    query,
    with_share,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio
from overrun.analysis.words.timestamps import from_us

Kind = Literal["all", "weighted", "biased", "unknown"]

# Below this part of the counted requests the stored ones are a selection; the rest of a tenth covers the edges of the counters' intervals.
LEAST_COVERAGE: Final = 0.9
# Fewest counted requests to compare with: at 50, a coverage of 0.9 has a standard error of 4 points.
LEAST_COUNTED: Final = 50
# Coverage may differ by this factor between a latency bucket and all before the sampling is called biased by latency; with fewer counted, chance does it.
UNEVEN: Final = 1.5
_LEAST_IN_BUCKET: Final = 10
# Standard errors by which a draw of known probability may miss: 1 in 700 windows.
CHANCE: Final = 3.0
ENGINES: Final = "the engine"
_PROBABILITY: Final = "th:"


class Coverage(msgspec.Struct, kw_only=True):
    """Stored model calls against a counter of the sender: in one latency bucket (ms, `to_ms` null: no upper edge), or in all (both null)."""

    source: str
    from_ms: float | None
    to_ms: float | None
    counted: int
    stored: float
    ratio: float


@dataclass(frozen=True)
class Sampling:
    """How the window's requests were chosen, in a sentence. `weights` (one per row) where some count for more than themselves, else None."""

    kind: Kind
    detail: str
    weights: FloatArray | None
    coverage: list[Coverage]

    @property
    def refused(self) -> bool:
        """Whether percentiles, shares and rates of these requests say nothing about all."""
        return self.kind in ("biased", "unknown")

    @property
    def why(self) -> str:
        """Why nothing is said of such requests, for the reasons of what is null."""
        return not_for_all(self.detail)

    @property
    def of_engines(self) -> float | None:
        """The share (0..1) of the engines' requests that are stored, whatever they stand for; None where no engine counts and no sampler tells."""
        mean_weight = 1.0 if self.weights is None else float(self.weights.mean())
        counted = [
            c.ratio
            for c in self.coverage
            if c.source.startswith(ENGINES) and c.from_ms is None and c.to_ms is None
        ]
        if not counted and self.weights is None:
            return None
        return min(1.0, (counted[0] if counted else 1.0) / mean_weight)


def weights_of(rows: pl.DataFrame) -> FloatArray | None:
    """Return for how many requests each row stands (the sampler's inverse probability), None where every row stands for itself."""
    weights: FloatArray = rows["sample_weight"].to_numpy()
    return weights if (weights != 1.0).any() else None


def not_for_all(detail: str) -> str:
    """The reason of what is null because of how requests were chosen."""
    return f"the requests do not stand for all: {detail}"


def assess(con: duckdb.DuckDBPyConnection, frame: RequestFrame) -> Sampling:
    """Say how the requests of a window were sampled."""
    rows = frame.rows
    if rows.is_empty():
        return Sampling("all", "no request to judge", None, [])
    weights, biased = weights_of(rows), by_what_happened(rows)
    if biased is not None:
        return Sampling("biased", biased, None, [])
    mean_weight = float(weights.mean()) if weights is not None else 1.0
    coverage = _coverage(con, frame, mean_weight)
    drawn = 0.0 if weights is None else float((weights**2).sum() / weights.sum()) - 1.0
    short = [
        c
        for c in coverage
        if c.from_ms is None
        and c.to_ms is None
        and c.ratio + _by_chance(c, drawn, rows.height, mean_weight) < LEAST_COVERAGE
    ]
    if short:
        uneven = _uneven(coverage, short[0], drawn)
        what = f"{short[0].stored:,.0f} of the {short[0].counted:,} requests that {short[0].source} counted have spans ({say_ratio(short[0].ratio)})"
        return Sampling(
            "biased" if uneven else "unknown",
            what + (f", {uneven}" if uneven else ""),
            None,
            coverage,
        )
    if weights is not None:
        low, high = 1.0 / weights.max(), 1.0 / weights.min()
        share = say_ratio(low) if low == high else f"{say_ratio(low)} to {say_ratio(high)}"
        detail = f"{say_count(rows.height, 'request')} kept with a known probability of {share}, counted for {weights.sum():,.0f}"
        detail += (
            ""
            if low == high
            else f"; the verdict is judged on a draw of {_worth(weights):,} in which each counts the same"
        )
        return Sampling("weighted", detail, weights, coverage)
    seen = next((c for c in coverage if c.from_ms is None and c.to_ms is None), None)
    known = (
        f"; {say_ratio(min(1.0, seen.ratio))} of the {seen.counted:,} requests that {seen.source} counted have spans"
        if seen
        else ""
    )
    return Sampling("all", f"no sign of sampling in the traces{known}", None, coverage)


def _by_chance(seen: Coverage, drawn: float, requests: int, weight: float) -> float:
    """Return by how much the coverage may be off where requests were drawn: of n calls, each kept with probability 1/w and counted w times, the share has a
    variance of (w - 1)/n; calls of one request are kept or dropped together. `drawn` is w - 1, 0 where nothing was."""
    each = max(1.0, seen.stored / weight / max(requests, 1))
    return CHANCE * float(np.sqrt(drawn * each / seen.counted))


def assess_window(
    con: duckdb.DuckDBPyConnection, window: Window, start: datetime | None, end: datetime | None
) -> Sampling:
    """Say how the requests of a window were sampled, for answers that read none of their rows; `start` and `end` are what the window covers."""
    rows = with_share(
        con, con.sql(query("sampling"), params=filter_of(window)).pl(), window.start, window.end
    )
    return assess(con, RequestFrame(window, rows, pl.DataFrame(), 0, start, end))


def by_what_happened(rows: pl.DataFrame) -> str | None:
    """Say which requests come from a sampler that chooses by what happened, by its own marks; None where none does."""
    marks = rows["sampling"].drop_nulls()
    others = marks.filter(~marks.str.starts_with(_PROBABILITY))
    if not len(others):
        return None
    name = printable(others.value_counts(sort=True)["sampling"][0])
    return f"{len(others):,} of {rows.height:,} requests come from a sampler that chooses by what happened ({name})"


def evened(frame: RequestFrame) -> RequestFrame:
    """Return as many of the rows as they are worth (Kish's effective size), drawn so that each stands for the same number of requests.

    Where a sampler kept some requests with a higher probability than others, a verdict over the stored rows would be about its choice. Systematic
    sampling by weight over the rows in order of failure and latency: shares and quantiles of the draw are those of the weighted rows to within one row.
    """
    weights = weights_of(frame.rows)
    if weights is None or not (weights != weights[0]).any():
        return frame
    n = _worth(weights)
    order = np.lexsort((frame.rows["e2e_ms"].to_numpy(), frame.rows["error"].to_numpy()))
    each = float(weights.sum()) / n
    drawn = np.sort(
        order[
            np.searchsorted(np.cumsum(weights[order]), (np.arange(n) + 0.5) * each).clip(
                max=len(order) - 1
            )
        ]
    )
    more = frame.read_more

    def read_more(columns: Collection[str]) -> pl.DataFrame:
        return more(columns)[drawn] if more is not None else frame.rows[drawn].select(columns)

    return replace(
        frame,
        rows=frame.rows[drawn].with_columns(sample_weight=pl.lit(each)),
        read_more=None if more is None else read_more,
    )


def _worth(weights: FloatArray) -> int:
    return max(1, round(worth(weights)))


def _coverage(con: duckdb.DuckDBPyConnection, frame: RequestFrame, weight: float) -> list[Coverage]:
    """Compare stored calls with the engines' E2E histogram per bucket, and with the clients' own count."""
    if frame.start is None or frame.end is None:
        return []
    # Without a bound of its own the window ends with its last request, and the scrape that counts it comes a little later.
    until = frame.window.end or frame.end + SCRAPE_GRACE
    found = load(con, frame.window.start, until, ("e2e", "client_e2e"), frame.window.model)
    out: list[Coverage] = []
    for name, made in found.items():
        if made.n < LEAST_COUNTED:
            continue
        start, end = (from_us(int(edge)) for edge in (made.from_us.min(), made.to_us.max()))
        asked = {"start": start, "end": end, "model": frame.window.model}
        calls = con.sql(query("finished_calls"), params=asked).pl()
        if name == "e2e":
            times = calls["engine_e2e_ms"].drop_nulls()
            if (
                weight * len(times) < LEAST_COVERAGE * made.n
            ):  # a client that gives up and asks again leaves the engine's spans of no call behind
                times = max(
                    times,
                    con.sql(query("engine_spans"), params=asked).pl()["engine_e2e_ms"],
                    key=len,
                )
            out += _by_bucket(times.to_numpy(), made, weight)
        else:
            out.append(_whole("its clients", made, weight * calls.height))
    return out


def _whole(source: str, made: Increments, stored: float) -> Coverage:
    return Coverage(
        source=source,
        from_ms=None,
        to_ms=None,
        counted=made.n,
        stored=stored,
        ratio=stored / made.n,
    )


def _by_bucket(times: FloatArray, made: Increments, weight: float) -> list[Coverage]:
    # Without any span of the engine itself its counter may hold the requests of other applications.
    if not len(times):
        return []
    source = f"{ENGINES} ({', '.join(made.names)[:80]})"
    edges_ms = 1000.0 * made.edges
    stored = weight * np.bincount(
        np.searchsorted(edges_ms, times, side="left"), minlength=len(edges_ms) + 1
    )
    counted = made.counts.sum(axis=0)
    out = [_whole(source, made, float(stored.sum()))]
    for i, n in enumerate(counted):
        if n >= _LEAST_IN_BUCKET:
            low, high = (
                float(edges_ms[i - 1]) if i else 0.0,
                float(edges_ms[i]) if i < len(edges_ms) else None,
            )
            out.append(
                Coverage(
                    source=source,
                    from_ms=low,
                    to_ms=high,
                    counted=round(float(n)),
                    stored=float(stored[i]),
                    ratio=float(stored[i] / n),
                )
            )
    return out


def _uneven(coverage: list[Coverage], whole: Coverage, drawn: float) -> str | None:
    """Say which latency bucket is kept more often than all, None where coverage is even within chance."""
    parts = [c for c in coverage if c.source == whole.source and c.from_ms is not None]
    if not parts:
        return None
    most = max(parts, key=lambda c: c.ratio)
    chance = CHANCE * (max(whole.ratio * (1.0 - whole.ratio), drawn) / most.counted) ** 0.5
    if most.ratio < UNEVEN * whole.ratio or most.ratio - whole.ratio < chance:
        return None
    upper = f" to {say_ms(most.to_ms)}" if most.to_ms is not None else ""
    return f"but {say_ratio(min(1.0, most.ratio))} of those that took {say_ms(most.from_ms or 0.0)}{upper}"
