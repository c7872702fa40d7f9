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

from overrun.analysis.numbers.coverage.partial_sight import Sight, sight
from overrun.analysis.numbers.latency.histograms import Increments, load
from overrun.analysis.numbers.latency.percentiles import worth
from overrun.analysis.numbers.statistics.request_sample import Sample, even_part
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
from overrun.collector.store.answers import fetch_frame

Kind = Literal["all", "weighted", "part", "biased", "unknown"]

# Below this part of the counted requests the stored ones are some of them; the rest of a tenth covers the edges of the counters' intervals.
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
    """How the window's requests were chosen, in a sentence. `weights` (one per row) where some count for more than themselves, else None.

    `part`: they are a part of what engines counted and are judged all the same. `estimated`: the weights come from counters, and the rows do not have them yet.
    `cut_from`: all slow and failed requests are stored and none of the others; so many requests there were.
    `of_engines` is the share (0..1) of the engines' requests that are stored, whatever they stand for; None where no engine counts and no sampler tells.
    """

    kind: Kind
    detail: str
    weights: FloatArray | None
    coverage: list[Coverage]
    of_engines: float | None = None
    estimated: bool = False
    cut_from: float | None = None

    @property
    def refused(self) -> bool:
        """Whether percentiles, shares and rates of these requests show nothing about all."""
        return self.kind in ("biased", "unknown")

    @property
    def partial(self) -> bool:
        """Whether an unknown part of the requests that ran beside these is not stored: what needs every neighbour is withheld."""
        return self.kind == "part" or self.estimated

    @property
    def why(self) -> str:
        """Why nothing is said of such requests, for the reasons of what is null."""
        return not_for_all(self.detail)

    def coverage_of(self, frame: RequestFrame) -> float | None:
        """The share of the engines' requests that rules see: where rows were drawn of weighed ones, that of the drawn."""
        if self.of_engines is None or not self.estimated or self.weights is None:
            return self.of_engines
        return self.of_engines * frame.rows.height / len(self.weights)

    def applied(self, frame: RequestFrame) -> RequestFrame:
        """Return the assessed frame with the estimated weights in its rows."""
        if not self.estimated or self.weights is None:
            return frame
        return replace(frame, rows=frame.rows.with_columns(sample_weight=pl.Series(self.weights)))


def weights_of(rows: pl.DataFrame) -> FloatArray | None:
    """Return for how many requests each row stands (the sampler's inverse probability), None where every row stands for itself."""
    weights: FloatArray = rows["sample_weight"].to_numpy()
    return weights if (weights != 1.0).any() else None


def not_for_all(detail: str) -> str:
    """The reason of what is null because of how requests were chosen."""
    return f"the requests are not representative: {detail}"


def whose_rate(sampled: Sampling) -> str:
    """The reason of rates per second that are null because it is not known whose requests were counted beside the stored ones."""
    return f"it is not known whether the others were thinned out or are of other senders: {sampled.detail}"


def assess(con: duckdb.DuckDBPyConnection, frame: RequestFrame, *, weigh: bool = False) -> Sampling:
    """Say how the requests of a window were sampled before they were stored.

    With `weigh`, a selection is weighed by what engines or clients counted, where that can be done: the caller takes the rows of `Sampling.applied`. Without,
    such requests are refused. The weights are of the frame's rows, also where these are a sample of what is stored.
    """
    drawn = frame.rows["drawn_weight"] if "drawn_weight" in frame.rows.columns else None
    if drawn is None:
        return _assess(con, frame, weigh=weigh)
    stored = frame.rows.with_columns(sample_weight=pl.col("sample_weight") / drawn)
    found = _assess(con, replace(frame, rows=stored), weigh=weigh)
    if found.weights is None:
        return replace(found, weights=drawn.to_numpy())
    return replace(found, weights=found.weights * drawn.to_numpy())


def _assess(con: duckdb.DuckDBPyConnection, frame: RequestFrame, *, weigh: bool) -> Sampling:
    rows = frame.rows
    if rows.is_empty():
        return Sampling("all", "no request to judge", None, [])
    weights, biased = weights_of(rows), by_what_happened(rows)
    mean_weight = float(weights.mean()) if weights is not None else 1.0
    counted, others = _counters(con, frame, mean_weight)
    coverage = [row for counter in counted for row in counter.rows]
    seen = _of_engines(coverage, weights, mean_weight)
    drawn = 0.0 if weights is None else float((weights**2).sum() / weights.sum()) - 1.0
    short = [
        counter
        for counter in counted
        if counter.whole.ratio + _by_chance(counter.whole, drawn, rows.height, mean_weight)
        < LEAST_COVERAGE
    ]
    if biased is not None and not counted:
        return Sampling("biased", biased, None, [])
    if biased is not None or short:
        of = (short or counted)[0]
        complete = any(one not in short and one.clients for one in counted) and not of.clients
        return _partly(
            con, frame, of, coverage, seen, biased, drawn, complete=complete, weigh=weigh
        )
    if weights is not None:
        low, high = 1.0 / weights.max(), 1.0 / weights.min()
        share = say_ratio(low) if low == high else f"{say_ratio(low)} to {say_ratio(high)}"
        detail = f"{say_count(rows.height, 'request')} kept with a known probability of {share}, counted for {weights.sum():,.0f}"
        detail += (
            ""
            if low == high
            else f"; the verdict is judged on a draw of {_worth(weights):,} requests with equal weights"
        )
        return Sampling("weighted", detail, weights, coverage, seen)
    whole = counted[0].whole if counted else None
    known = (
        f"; {say_ratio(min(1.0, whole.ratio))} of the {whole.counted:,} requests that {whole.source} counted have spans"
        if whole
        else others
    )
    return Sampling("all", f"no sign of sampling in the traces{known}", None, coverage, seen)


def _of_engines(
    coverage: list[Coverage], weights: FloatArray | None, mean_weight: float
) -> float | None:
    counted = [
        c.ratio
        for c in coverage
        if c.source.startswith(ENGINES) and c.from_ms is None and c.to_ms is None
    ]
    if not counted and weights is None:
        return None
    return min(1.0, (counted[0] if counted else 1.0) / mean_weight)


def _partly(  # noqa: PLR0913
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    of: Counter,
    coverage: list[Coverage],
    seen: float | None,
    biased: str | None,
    drawn: float,
    *,
    complete: bool,
    weigh: bool,
) -> Sampling:
    """Say what requests stand for of which more were counted than are stored, or which a sampler chose by what happened."""
    told = of.whole
    detail = f"{told.stored:,.0f} of the {told.counted:,} requests that {told.source} counted have spans ({say_ratio(min(1.0, told.ratio))})"
    if biased is not None:
        detail = f"{biased}; {detail}"
    asked = {"start": of.start, "end": of.end, "model": frame.window.model}
    calls = fetch_frame(con, query("partial_calls"), asked)
    if biased is None and not of.clients and _calls_are_there(calls, told.counted):
        detail += "; the clients' spans of the others are there, and are judged"
        return Sampling("part", detail, weights_of(frame.rows), coverage, seen)
    lengths = load(con, of.start, of.end, ("input_length", "output_length"), frame.window.model)
    found = sight(
        calls,
        "e2e_ms" if of.clients else "engine_e2e_ms",
        of.made,
        {} if of.clients else {name.replace("length", "tokens"): lengths[name] for name in lengths},
        own_count=complete,
        marked=biased is not None,
    )
    if found.reading in ("same", "others"):
        return Sampling("part", detail + found.detail, weights_of(frame.rows), coverage, seen)
    weights = None if found.reading == "unknown" else _weights(frame, found)
    if weights is not None and weigh:
        detail += f"{found.detail}; {say_count(frame.rows.height, 'request')} counted for {weights.sum():,.0f}, worth {_worth(weights):,}"
        return Sampling("weighted", detail, weights, coverage, seen, estimated=True)
    uneven = _uneven(coverage, told, drawn)
    detail += f", {uneven}" if uneven and found.reading != "tail" else found.detail
    kind: Kind = "biased" if uneven or biased or found.reading != "unknown" else "unknown"
    cut = None
    if found.reading == "tail" and np.isinf(found.weight):
        each = calls.filter(pl.col("request_ms").is_not_null())["trace_key"]
        cut = told.counted * each.n_unique() / max(len(each), 1)
    return Sampling(kind, detail, None, coverage, seen, cut_from=cut)


def _calls_are_there(calls: pl.DataFrame, counted: int) -> bool:
    """Say whether an engine's own spans are missing alone: its models' calls are stored by their clients."""
    served = calls.filter(pl.col("engine_e2e_ms").is_not_null())["model"].unique()
    theirs = calls["model"].is_in(served.implode()) | calls["model"].is_null()
    return int(theirs.sum()) >= LEAST_COVERAGE * counted


def _weights(frame: RequestFrame, found: Sight) -> FloatArray | None:
    """For how many requests each row stands; None where the others of a tail sampler are not stored, or the rows do not say which request they are."""
    if found.weights is None:
        if not np.isfinite(found.weight):
            return None
        rows = frame.rows
        itself = rows["error"] | (rows["e2e_ms"] >= found.limit_ms)
        return np.where(itself.to_numpy(), 1.0, found.weight)
    keyed = frame.having(("trace_key",)).rows
    if "trace_key" not in keyed.columns:
        return None
    each = keyed.select("trace_key").join(found.weights, "trace_key", "left", maintain_order="left")
    mean = float(found.weights["weight"].to_numpy().mean())
    weights: FloatArray = each["weight"].fill_null(mean).to_numpy()
    return weights


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
        con, fetch_frame(con, query("sampling"), filter_of(window)), window.start, window.end
    )
    return assess(con, RequestFrame(window, rows, pl.DataFrame(), 0, start, end))


def by_what_happened(rows: pl.DataFrame) -> str | None:
    """Say which requests come from a sampler that chooses by what happened, by its own marks; None where none does."""
    marks = rows["sampling"].drop_nulls().value_counts(sort=True, name="n")
    return by_marks(marks, rows.height)


def by_marks(marks: pl.DataFrame, requests: int) -> str | None:
    """As `by_what_happened` of so many requests, of which `marks` has the samplers' marks: columns sampling and n, most requests first."""
    others = marks.filter(~pl.col("sampling").str.starts_with(_PROBABILITY))
    if others.is_empty():
        return None
    name = printable(others["sampling"][0])
    return f"{others['n'].sum():,} of {requests:,} requests come from a sampler that chooses by outcome ({name})"


def evened(frame: RequestFrame) -> RequestFrame:
    """Return as many of the rows as they are worth (Kish's effective size), drawn so that each stands for the same number of requests.

    Where a sampler kept some requests with a higher probability than others, a verdict over the stored rows would be about its choice. Systematic
    sampling by weight over the rows in order of failure and latency: shares and quantiles of the draw are those of the weighted rows to within one row.
    """
    if frame.sample is not None and "is_even" in frame.rows.columns:
        frame = _even(frame, frame.sample)
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


def _even(frame: RequestFrame, sample: Sample) -> RequestFrame:
    """The even part of a sample, as a frame of one request in so many."""
    kept, more = frame.rows["is_even"], frame.read_more

    def read_more(columns: Collection[str]) -> pl.DataFrame:
        return (
            more(columns).filter(kept)
            if more is not None
            else frame.rows.filter(kept).select(columns)
        )

    return replace(
        frame,
        rows=even_part(frame.rows, sample),
        every=sample.every,
        sample=None,
        read_more=None if more is None else read_more,
    )


def _worth(weights: FloatArray) -> int:
    return max(1, round(worth(weights)))


@dataclass(frozen=True)
class Counter:
    """What an engine or the clients counted between two moments, beside the stored calls: of all (`whole`), and per latency bucket."""

    made: Increments
    start: datetime
    end: datetime
    whole: Coverage
    buckets: list[Coverage]
    clients: bool

    @property
    def rows(self) -> list[Coverage]:
        """All rows of coverage, the whole first."""
        return [self.whole, *self.buckets]


def _counters(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, weight: float
) -> tuple[list[Counter], str]:
    """Compare stored calls with the engines' E2E histogram per bucket, and with the clients' own count.

    Returns the comparisons, and a clause on what engines counted that cannot be compared because they send no spans.
    """
    if frame.start is None or frame.end is None:
        return [], ""
    # Without a bound of its own the window ends with its last request, and the scrape that counts it comes a little later.
    until = frame.window.end or frame.end + SCRAPE_GRACE
    found = load(con, frame.window.start, until, ("e2e", "client_e2e"), frame.window.model)
    out: list[Counter] = []
    others = ""
    for name, made in found.items():
        if made.n < LEAST_COUNTED:
            continue
        start, end = (from_us(int(edge)) for edge in (made.from_us.min(), made.to_us.max()))
        asked = {"start": start, "end": end, "model": frame.window.model}
        calls = fetch_frame(con, query("finished_calls"), asked)
        if name == "e2e":
            times = calls["engine_e2e_ms"].drop_nulls()
            if (
                weight * len(times) < LEAST_COVERAGE * made.n
            ):  # a client that gives up and asks again leaves the engine's spans of no call behind
                times = max(
                    times, fetch_frame(con, query("engine_spans"), asked)["engine_e2e_ms"], key=len
                )
            # Without any span of the engine itself its counter may hold the requests of other applications.
            if len(times):
                whole, *buckets = _by_bucket(times.to_numpy(), made, weight)
                out.append(Counter(made, start, end, whole, buckets, clients=False))
            elif weight * calls.height < LEAST_COVERAGE * made.n:
                others = (
                    f"; the engines counted {made.n:,} requests, and {say_count(calls.height, 'call')} are stored: the others are of other senders "
                    "or were left out, and without the engines' spans they are not compared"
                )
        else:
            whole = _whole("its clients", made, weight * calls.height)
            out.append(Counter(made, start, end, whole, [], clients=True))
    return out, others


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
