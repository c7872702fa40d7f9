"""Which requests are meant? The filter that every function takes, its texts, and the rows that pass it.

Reads the collector's public views through a cursor that is passed in; everything above works on the frames returned
here.
"""

import functools
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from overrun.analysis.numbers.statistics import request_sample
from overrun.analysis.numbers.statistics.id_sampling import FEWEST_IDS, MOST_IDS, share_kept
from overrun.analysis.numbers.statistics.request_sample import MOST_READ, Counted, Sample
from overrun.analysis.numbers.turns import Turns
from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.times import parse_duration, parse_range, parse_time, rfc3339
from overrun.collector.normalise.sampling_threshold import threshold
from overrun.collector.normalise.stages import STAGES
from overrun.collector.store.answers import column_names, fetch_frame

# Work that no client waits for: kept out of the default verdict so that a nightly job does not hide or cause a breach.
UNATTENDED_WORKLOADS: Final = ("batch", "eval")
# Requests beside those that make model calls (collector/store/views/callers.sql): a service or a route must be asked for before they are judged.
SIDE_WORKLOADS: Final = ("side", "other")
# Indicators that the numbers and rules of this package read; others stay in the store.
INDICATORS: Final = (
    *("queue_depth", "running", "kv_cache_usage", "preemptions", "prompt_tokens"),
    *("output_tokens", "kv_capacity", "prefix_cache_hit_rate", "spec_accept_rate"),
    *("spec_accept_length", "spec_accepted_tokens", "gpu_util", "gpu_clock", "gpu_power"),
    *("gpu_temperature", "gpu_xid"),
)
# What only the rules look at; the numbers of a report do without, and every column of a million requests takes 10 ms to read.
FOR_RULES: Final = (
    *("instance", "provider", "cached_tokens", "reasoning_tokens", "tool_calls", "trace_key"),
)
# Stage times up to the first token, read once that is what is judged.
FIRST_TOKEN_PATH: Final = tuple(f"ttft_{stage}_ms" for stage in STAGES if stage != "wait_user")
# Texts of which many requests have the same few combinations.
TEXTS: Final = (
    *("service", "route", "model", "tenant", "version", "error_type", "ttft_source", "sampling"),
)
# From so many requests on, combinations of texts are read once each: to copy the texts of a million takes as much CPU as all numbers, below this it is 40 ms.
MANY: Final = 100_000
# What model calls ask for is read of this many requests; above it of every k-th trace. 20,000 requests are about 200,000 spans, a second.
MOST_SPAN_REQUESTS: Final = 20_000
# This many requests are enough to find a cause: above it one in k is looked at, by trace. Every column of 1 M requests and the copies that
# rules make of them are 2.6 GB. A share of 100,000 is right within 0.3 points in 95 of 100 samples.
MOST_CAUSE_REQUESTS: Final = 100_000
# Calls read per period; a longer period is followed from its end that is nearest to the onset.
MOST_CALLS: Final = 50_000
# A scrape that falls just behind the end of the window still shows how it ended; 60 s is four usual scrape intervals
# of 15 s.
SCRAPE_GRACE: Final = timedelta(seconds=60)
# An hour of forty instances, twenty known indicators each, every 15 s, is read whole.
MOST_SAMPLES: Final = 200_000
BASELINES: Final = ("auto", "previous", "none")

_POINTS: Final = {
    "time_us": pl.Int64,
    "instance": pl.String,
    "model": pl.String,
    "indicator": pl.String,
    "value": pl.Float64,
}
# A text is worth reading once where so many requests share it with all others of their kind.
_FEW_KINDS: Final = 8


@dataclass(frozen=True)
class Window:
    """A filter on requests: root starts in [start, end), in UTC; None on a side means unbounded.

    `baseline` is `auto`, `previous`, `none` or a range text's (start, end). `workload` None means all but batch and
    eval work, `all` means everything, any other value means just that one. Of more than `most` requests a sample is read.
    """

    start: datetime | None = None
    end: datetime | None = None
    baseline: str | tuple[datetime, datetime] = "auto"
    service: str | None = None
    model: str | None = None
    route: str | None = None
    tenant: str | None = None
    workload: str | None = None
    instance: str | None = None
    most: int = MOST_READ

    def __post_init__(self) -> None:
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise WindowError(
                f"window is empty: it starts at {rfc3339(self.start)} and ends at {rfc3339(self.end)}. Swap the two"
            )


@dataclass(frozen=True)
class RequestFrame:
    """The requests of one window.

    `rows` has one row per complete request: the columns of `v_requests` without ids, times as `start_us`/`end_us`
    (microseconds since 1970), durations in milliseconds. `start`/`end` are the window's own bounds or, where it has
    none, the first start and the last end (None when there is no request). `points` has the engine indicators of
    `INDICATORS` (time_us, instance, model, indicator, value; SI units) up to `SCRAPE_GRACE` behind the end.
    Where requests came with limits of their own, `slo_<metric>_ms` has them. `without` are columns that were not read;
    `read_more` reads some of them for the same rows. `rows` are one request in `every`, chosen by trace. Of a window with too many requests `rows` are
    a `sample`, with what each stands for in `sample_weight`, and the part of that which is the sample's in `drawn_weight`. `counted` is what
    the database has counted of all. `open_us` are the begins of incomplete requests, where they were read.
    """

    window: Window
    rows: pl.DataFrame
    points: pl.DataFrame
    incomplete: int
    start: datetime | None
    end: datetime | None
    without: Collection[str] = ()
    read_more: Callable[[Collection[str]], pl.DataFrame] | None = None
    every: int = 1
    sample: Sample | None = None
    counted: Counted | None = None
    open_us: npt.NDArray[np.int64] | None = None

    @property
    def requests(self) -> int:
        """How many complete requests the window holds."""
        return self.rows.height * self.every if self.sample is None else self.sample.requests

    @property
    def one_in(self) -> int:
        """Whichever requests are looked at closely are among one trace in so many."""
        return self.every if self.sample is None else self.sample.every

    def stand_for(self, rows: int) -> int:
        """How many requests so many of the rows stand for."""
        return rows if self.counted is None else round(rows * self.counted.each)

    def having(self, columns: Collection[str]) -> "RequestFrame":
        """Return this frame with these columns of `v_requests`, read now where `load` left them out."""
        missing = [name for name in columns if name not in self.rows.columns]
        if not missing or self.read_more is None:
            return self
        return replace(self, rows=self.rows.hstack(self.read_more(missing)))

    @functools.cached_property
    def order(self) -> npt.NDArray[np.intp] | None:
        """The rows' indices in order of start; None where they stand so."""
        starts = self.rows["start_us"].to_numpy()
        return (
            None if bool((starts[1:] >= starts[:-1]).all()) else np.argsort(starts, kind="stable")
        )

    @property
    def seconds(self) -> float:
        """Length of the window in seconds; 0 when it has no bounds and no request."""
        return (
            (self.end - self.start).total_seconds()
            if self.start is not None and self.end is not None
            else 0.0
        )


def make_window(  # noqa: PLR0913
    *,
    now: datetime,
    since: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    baseline: str = "auto",
    service: str | None = None,
    model: str | None = None,
    route: str | None = None,
    tenant: str | None = None,
    workload: str | None = None,
    instance: str | None = None,
) -> Window:
    """Build a window from the texts of flags or query parameters; `now` (aware) is what relative times refer to.

    Raises:
        WindowError: a text that cannot be read, `since` together with from/to, or an empty range.
    """
    if since is not None and (from_ is not None or to is not None):
        raise WindowError(
            f"since {since!r} was given together with from/to: give one of the two forms"
        )
    start = now - parse_duration(since) if since is not None else _optional_time(from_, now)
    end = now if since is not None else _optional_time(to, now)
    chosen = baseline if baseline in BASELINES else parse_range(baseline, now)
    return Window(start, end, chosen, service, model, route, tenant, workload, instance)


def count(con: duckdb.DuckDBPyConnection, window: Window) -> int:
    """Return how many requests the window holds, incomplete ones too: what a question about them will cost."""
    rows = con.execute(
        f"select count(*) from ({query('request_times')})", filter_of(window)
    ).fetchall()
    return int(rows[0][0])


def load(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    *,
    without: Collection[str] = (),
    every: int = 1,
    points: bool = True,
    expected: int = 0,
) -> RequestFrame:
    """Fetch the window's requests and engine indicators; incomplete requests are counted and left out, and so are the columns `without`.

    Without `points`, the indicators are left out too. With `every` above 1 only the requests of one trace in so many, the ones that
    `load_evidence_spans` knows too. Of more than `window.most` requests a sample is read (`numbers.statistics.request_sample`). `expected` is how many requests about will
    be found, where the caller knows.

    What is left out can be read later, as long as the cursor is in the transaction it is in now: one snapshot gives the same rows in the same order.
    """
    expected = expected or (count(con, window) if every == 1 else 0)
    if every == 1 and expected > window.most:
        frame = _sampled(con, window, without, expected)
    else:
        frame = _whole(con, window, without, every, expected)
    if not points:
        return frame
    until = frame.end + SCRAPE_GRACE if frame.end else None
    found = read_samples(
        con, "metric_points", frame.start, until, window.model, indicators=list(INDICATORS)
    )
    return replace(frame, points=found)


def _whole(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    without: Collection[str],
    every: int,
    expected: int,
) -> RequestFrame:
    """Every request of a window, or those of one trace in so many."""
    sql = query("requests")
    if every > 1:
        sql = f"select * from ({sql}) where trace_key % {every:d}::ubigint = 0"
    wanted = [name for name in _columns(con, query("requests")) if name not in without]
    times = query("request_times")
    narrow = every == 1 and set(wanted) <= set(_columns(con, times))
    rows = _read(con, window, times if narrow else sql, wanted, of_kinds=expected >= MANY)
    rows = _with_own_limits(con, window, sql, rows)
    rows = with_share(con, rows, window.start, window.end)
    finished = rows["complete"]
    complete = rows if finished.all() else rows.filter(finished)

    def read_more(columns: Collection[str]) -> pl.DataFrame:
        more = _read(con, window, sql, columns)
        return more if finished.all() else more.filter(finished)

    start, end = window.start, window.end
    if not complete.is_empty():
        start = start or _from_us(int(complete["start_us"].to_numpy().min()))
        end = end or _from_us(int(complete["end_us"].to_numpy().max()))
    return RequestFrame(
        window,
        complete.drop("complete"),
        pl.DataFrame(schema=_POINTS),
        rows.height - complete.height,
        start,
        end,
        without,
        read_more,
        every,
        open_us=rows["start_us"].filter(~finished).to_numpy(),
    )


def _sampled(
    con: duckdb.DuckDBPyConnection, window: Window, without: Collection[str], requests: int
) -> RequestFrame:
    """Some requests that stand for all of a window of about so many."""
    made = request_sample.plan(
        con, query("name_counts"), query("sample_extent"), filter_of(window), requests
    )
    drawn = _drawn(con, window, made)
    keys = {"keys": drawn["row_key"].to_list()}
    sql = f"select * from ({query('requests')}) where row_key in (select unnest($keys::bigint[]))"
    wanted = [name for name in _columns(con, query("requests")) if name not in without]
    rows = _read(con, window, sql, wanted, more=keys).hstack(drawn.drop("row_key"))
    rows = _with_own_limits(con, window, sql, rows, more=keys)
    rows = with_share(con, rows, window.start, window.end)
    weights = request_sample.weights(
        rows["drawn_weight"].to_numpy(), rows["error"].to_numpy(), made
    )
    rows = rows.with_columns(
        drawn_weight=pl.Series(weights), sample_weight=pl.col("sample_weight") * pl.Series(weights)
    )
    sample = Sample(made.requests, rows.height, made.every, int(rows["is_even"].sum()))
    bounds = (window.start or _from_us(made.start_us), window.end or _from_us(made.end_us))
    return RequestFrame(
        window,
        rows.drop("complete"),
        pl.DataFrame(schema=_POINTS),
        made.incomplete,
        *(bounds if made.requests else (window.start, window.end)),
        without,
        lambda columns: _read(con, window, sql, columns, more=keys),
        sample=sample,
    )


def _drawn(
    con: duckdb.DuckDBPyConnection, window: Window, made: request_sample.Plan
) -> pl.DataFrame:
    """Which requests of a window are read: `row_key` in ascending order, whether each `is_even`, and of one trace in how many it is (`drawn_weight`).

    Their other columns are read by these keys: beside a condition that the scan does not know, it reads every column of every request (10 M requests:
    3.3 s of CPU, in two steps 1.5).
    """
    chosen = (
        f"select row_key, trace_key, trace_key % $every::ubigint = 0 as is_even, {request_sample.condition()} as drawn_weight "
        f"from ({query('requests')}) where complete"
    )
    sql = (
        f"select row_key, is_even, drawn_weight from ({chosen}) where trace_key % drawn_weight = 0"
    )
    found = fetch_frame(con, sql, {**filter_of(window), **made.parameters})
    return found.sort("row_key")


def with_share(
    con: duckdb.DuckDBPyConnection, rows: pl.DataFrame, start: datetime | None, end: datetime | None
) -> pl.DataFrame:
    """Return requests with `sampling` and `sample_weight` as a sampler by id implies them (see `overrun.analysis.numbers.id_sampling`),
    where no sampler left a mark of its own."""
    if (
        rows.is_empty()
        or not {"sampling", "sample_weight"} <= set(rows.columns)
        or rows["sampling"].null_count() < rows.height
    ):
        return rows
    share = share_kept(_some_ids(con, start, end))
    if share is None:
        return rows
    return rows.with_columns(sampling=pl.lit(threshold(share)), sample_weight=pl.lit(1.0 / share))


def _some_ids(
    con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None
) -> list[str]:
    """Ids of the requests of a stretch of time; if these are too few to show how they were chosen, of all that is stored before its end."""
    found: list[str] = []
    for since in (start, None):
        found = [
            row[0]
            for row in con.execute(
                query("window_trace_ids"), {"start": since, "end": end, "most": MOST_IDS}
            ).fetchall()
        ]
        if len(found) >= FEWEST_IDS:
            break
    return found


def read_samples(
    con: duckdb.DuckDBPyConnection,
    name: str,
    start: datetime | None,
    end: datetime | None,
    model: str | None,
    **more: object,
) -> pl.DataFrame:
    """Return what the query `name` finds in the engines' samples of [start, end], either side open if None; `more` are its further parameters.

    Of more than MOST_SAMPLES only those of every so many minutes are read: a day of eight instances is a million, and no answer should wait for what no
    chart and no rule can separate. Gauges are sampled so; counters and cumulative histograms lose nothing, since they go on counting; delta histograms
    are read whole.
    """
    window = {"start": start, "end": end}
    held = int(con.execute(query("metric_samples"), window).fetchall()[0][0])
    if not held and name in _NO_SAMPLES:
        return _NO_SAMPLES[name]
    found = fetch_frame(
        con,
        query(name),
        {**window, "model": model, "every": max(1, -(-held // MOST_SAMPLES)), **more},
    )
    if name not in _NO_SAMPLES:
        _NO_SAMPLES[name] = found.clear()
    return found


# What each query finds where there is nothing: planning it takes 20 to 40 ms.
_NO_SAMPLES: dict[str, pl.DataFrame] = {}


def _read(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    sql: str,
    columns: Collection[str],
    *,
    of_kinds: bool = False,
    more: Mapping[str, object] | None = None,
) -> pl.DataFrame:
    """Return columns of a query over the window; as one statement, since projecting a relation plans a view this wide twice (3 ms).

    Rows come in the order in which they are stored: DuckDB's threads hand over row groups in any, and columns read apart would not belong together.
    Numbers come in one piece, so that arrays share their memory instead of being put together from the row groups each time. With `of_kinds` the texts
    of a row are read as a hash, and themselves of one row in each kind.
    """
    texts = [name for name in columns if name in TEXTS] if of_kinds else []
    if texts:
        numbers = [name for name in columns if name not in texts]
        found = _read(
            con,
            window,
            f"select *, hash({', '.join(texts)}) as kind from ({sql})",
            [*numbers, "kind", "row_key as one"],
        )
        kinds = found.group_by("kind").agg(pl.col("one").first())
        if kinds.height * _FEW_KINDS > found.height:  # every user a tenant, say
            return found.select(numbers).hstack(_read(con, window, sql, texts)).select(columns)
        one = fetch_frame(
            con,
            f"select row_key as one, {', '.join(texts)} from ({sql}) where row_key in (select unnest($ones::bigint[]))",
            filter_of(window) | {"ones": kinds["one"].to_list()},
        )
        return (
            found.drop("one")
            .join(kinds.join(one, on="one"), on="kind", how="left", maintain_order="left")
            .select(columns)
        )
    asked = {**filter_of(window), **(more or {})}
    found = fetch_frame(con, f"select {', '.join([*columns, 'row_key'])} from ({sql})", asked)
    keys = found.drop_in_place("row_key").to_numpy()
    if not bool((keys[1:] > keys[:-1]).all()):
        found = _in_order(found, np.argsort(keys, kind="stable"))
    if found.n_chunks() > 1:
        pieces = (found.drop_in_place(name) for name in found.columns)
        return pl.DataFrame(
            [piece.rechunk() if piece.dtype.is_numeric() else piece for piece in pieces]
        )
    return found


def _in_order(rows: pl.DataFrame, order: npt.NDArray[np.intp]) -> pl.DataFrame:
    """Return `rows` in the given order, put together from the runs that keep theirs: row groups, which cost nothing to move."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(order) != 1) + 1, [len(order)]])
    return pl.concat(
        [rows.slice(int(order[at]), int(end - at)) for at, end in pairwise(starts)], rechunk=False
    )


_KNOWN_COLUMNS: dict[str, list[str]] = {}


def _columns(con: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The columns of a query over a window, asked for once."""
    if sql not in _KNOWN_COLUMNS:
        _KNOWN_COLUMNS[sql] = [
            name for name in column_names(con, sql, filter_of(Window())) if name != "row_key"
        ]
    return _KNOWN_COLUMNS[sql]


def load_judged(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    sql: str,
    *,
    without: Collection[str] = ("trace_key",),
) -> pl.DataFrame:
    """Return what judging takes of every complete request of a window: columns of the query `sql` (except `without`) and, where there are any, limits of
    their own.

    Of more than `window.most` requests those of one trace in so many: `sample_weight`, where the query has it, then says what each stands for, and
    `drawn_weight` for how many stored ones.
    """
    columns = [name for name in _columns(con, sql) if name not in without]
    requests = count(con, window)
    if requests <= window.most:
        return _with_own_limits(con, window, sql, _read(con, window, sql, columns))
    every = request_sample.part(requests, request_sample.LEAST_EVEN)
    some = f"select * from ({sql}) where trace_key % {every:d}::ubigint = 0"
    rows = _with_own_limits(con, window, some, _read(con, window, some, columns))
    if "sample_weight" not in columns:
        return rows
    return rows.with_columns(
        sample_weight=pl.col("sample_weight") * float(every), drawn_weight=pl.lit(float(every))
    )


def _with_own_limits(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    sql: str,
    rows: pl.DataFrame,
    *,
    more: Mapping[str, object] | None = None,
) -> pl.DataFrame:
    """Return `rows` of the query `sql` with the limits that some came with as `slo_<metric>_ms`, as they are where none did."""
    own = header_limits(con, window)
    if own is None or rows.is_empty():
        return rows
    keys = _read(con, window, sql, ["trace_key"], more=more)
    return rows.hstack(
        keys.join(own, on="trace_key", how="left", maintain_order="left").drop("trace_key")
    )


def header_limits(con: duckdb.DuckDBPyConnection, window: Window) -> pl.DataFrame | None:
    """Return the limits that requests of a window came with: one row per `trace_key`, `slo_<metric>_ms`; None where none did."""
    if not con.execute(query("any_slo_header")).fetchall():
        return None
    own = fetch_frame(con, query("slo_headers"), {"start": window.start, "end": window.end})
    return None if own.is_empty() else own


def load_evidence_calls(
    con: duckdb.DuckDBPyConnection, start: datetime, end: datetime, origin: datetime
) -> pl.DataFrame:
    """Return all model calls that start in [start, end), by any caller, of more than `MOST_CALLS` the first; `start_s` counts from `origin`."""
    asked = {"start": start, "end": end, "most": MOST_CALLS}
    [(last_ns,)] = con.execute(query("calls_until"), asked).fetchall()
    calls = fetch_frame(con, query("evidence_calls"), {**asked, "last_ns": last_ns})
    return calls.with_columns(start_s=pl.col("start_s") + (start - origin).total_seconds())


def load_evidence_spans(
    con: duckdb.DuckDBPyConnection,
    start: datetime,
    end: datetime,
    origin: datetime,
    every: int = 1,
    traces: pl.Series | None = None,
    of: int = 1,
) -> pl.DataFrame:
    """Return the spans that start in [start, end), of one trace in `every` (0: of none) and of `traces` (keys), in order of trace and start.

    All of these are among one trace in `of` (`RequestFrame.every`), which spares a look at the others.
    Of copies of a span the latest one counts; of a client and a server that share an id, the one that begins first.
    """
    during = {"start": start, "end": end}
    turns = Turns(fetch_frame(con, query("turns"), during))
    keys = None if traces is None else turns.traces(traces).to_list()
    wanted = during | {"every": every, "of": of, "traces": keys}
    spans = fetch_frame(con, query("evidence_spans"), wanted)
    shapes = fetch_frame(con, query("span_shapes"))
    order = spans.select(pl.arg_sort_by(*_SPAN_ORDER, descending=_LATEST_FIRST)).to_series()
    spans = spans[order].join(shapes, on="shape", how="left", maintain_order="left")
    spans = turns.parted(without_copies(spans))
    if (spans["role"] == "model_request").any():
        calls = fetch_frame(con, query("request_calls"), {"start": start, "end": end})
        spans = _with_calls(spans, calls)
    return spans.select(
        pl.exclude("shape", "seq", "own_region", "start_s", "region"),
        start_s=pl.col("start_s") + (start - origin).total_seconds(),
        region=pl.coalesce("region", "own_region"),
    )


def _with_calls(spans: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return spans with requests to models as the calls that they are, or as what is asked over the network."""
    keys = ["trace_key", "span_key"]
    spans = spans.join(
        calls.unique().with_columns(is_call=True), on=keys, how="left", maintain_order="left"
    )
    asked, is_call = pl.col("role") == "model_request", pl.col("is_call").fill_null(False)
    return spans.with_columns(
        role=pl.when(asked)
        .then(pl.when(is_call).then(pl.lit("llm")).otherwise(pl.lit("plain")))
        .otherwise("role"),
        stage=pl.when(asked & is_call).then(pl.lit("generation")).otherwise("stage"),
    ).drop("is_call")


_SPAN_ORDER: Final = ("trace_key", "start_s", "span_key", "seq")
_LATEST_FIRST: Final = [False, False, False, True]


def without_copies(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each span (trace_key, span_key), in the same order."""
    # Where no two spans have the same mixture of both keys, none is there twice: a look at one column takes a tenth of one at two.
    trace, span = (spans[name].to_numpy() for name in ("trace_key", "span_key"))
    if pl.Series(trace * trace.dtype.type(31) + span).n_unique() == spans.height:
        return spans
    return spans.unique(["trace_key", "span_key"], keep="first", maintain_order=True)


def load_evidence_call_traits(
    con: duckdb.DuckDBPyConnection,
    start: datetime,
    end: datetime,
    origin: datetime,
    requests: int,
    pattern: str,
    of: int = 1,
) -> pl.DataFrame:
    """Return the attributes, of keys that match a regular expression, of the model calls of every k-th trace where there are more than
    `MOST_SPAN_REQUESTS` requests, which are one in `of` (`RequestFrame.every`): one row per call and key, columns trace_key, start_s, key, value."""
    found = fetch_frame(
        con,
        query("evidence_call_traits"),
        {"start": start, "end": end, "every": _every(requests, of), "pattern": pattern},
    )
    return found.with_columns(start_s=pl.col("start_s") + (start - origin).total_seconds())


def _every(requests: int, of: int) -> int:
    return of * max(1, math.ceil(requests / MOST_SPAN_REQUESTS))


def load_trace_ids(con: duckdb.DuckDBPyConnection, rows: pl.DataFrame) -> list[str]:
    """Return the trace ids of `rows` (a few rows of a RequestFrame), in their order.

    Ids are not loaded with every row.
    """
    if rows.is_empty():
        return []
    found = con.execute(query("trace_ids"), {"starts": rows["start_us"].to_list()}).fetchall()
    ids = {(start, e2e): trace for trace, start, e2e in found}
    return [ids[key] for key in rows.select("start_us", "e2e_ms").iter_rows() if key in ids]


def answers(
    con: duckdb.DuckDBPyConnection, name: str, parameters: Mapping[str, object]
) -> list[dict[str, Any]]:
    """Return the few rows that the query `name` finds, by column; of many, ask for a frame.

    A relation is planned twice, for its columns and to run: 4 to 10 ms of a question over our widest views.
    """
    found = con.execute(query(name), dict(parameters))
    columns = [column for column, *_ in found.description or []]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


@functools.cache
def query(name: str) -> str:
    """Return the text of `analysis/<room>/sql/<name>.sql`; a name stands in one room only."""
    [found] = (
        path
        for room in resources.files("overrun.analysis").iterdir()
        if (path := room / "sql" / f"{name}.sql").is_file()
    )
    return found.read_text(encoding="utf-8")


def filter_of(window: Window) -> dict[str, object]:
    """Return the named parameters that the queries over `v_requests` take."""
    only = None if window.workload in (None, "all") else window.workload
    return {
        "start": window.start,
        "end": window.end,
        "service": window.service,
        "instance": window.instance,
        "model": window.model,
        "route": window.route,
        "tenant": window.tenant,
        "workload": only,
        "without": _left_out(window) if window.workload is None else [],
    }


def _left_out(window: Window) -> list[str]:
    """The workloads that are not judged: a route is asked for by its name, and so is a service that makes no model calls."""
    if window.route is not None:
        return [*UNATTENDED_WORKLOADS]
    side, other = SIDE_WORKLOADS
    return [*UNATTENDED_WORKLOADS, side, *([other] if window.service is None else [])]


def _optional_time(text: str | None, now: datetime) -> datetime | None:
    return None if text is None else parse_time(text, now)


def _from_us(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
