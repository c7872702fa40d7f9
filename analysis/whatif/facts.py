"""What does a what-if know? The requests of a window, all model calls that ran beside them, engine gauges and, when asked for, span trees.

Loaded once and shared by all fixes of a question; what is costly (spans, the calibrated engine) is made at first use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.outcomes.goodput import with_own
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.window import Window, filter_of, header_limits, query, read_samples
from overrun.analysis.simulator import guessed_engine
from overrun.analysis.simulator.calibrate import Engine, fit
from overrun.analysis.simulator.call_path import way_there_ms
from overrun.analysis.simulator.pool import MIN_CALLS, pools
from overrun.analysis.simulator.ranks import ranks_of
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.errors import nearest
from overrun.analysis.words.finding import printable
from overrun.analysis.words.slo import Slo
from overrun.collector.store.answers import fetch_frame

# Requests of one answer: percentiles up to P99.9 are settled by 50,000 (their interval needs 3,688), and memory stays bounded.
MOST_REQUESTS: Final = 50_000
# Calls that started before the window still held seats and KV when it began; longer ones than a minute are rare enough to lose.
LEAD: Final = timedelta(seconds=60)
# What ran so long before the window tells what a step costs in other batches, where the engines are still the same; the latest calls of it.
EARLIER: Final = timedelta(seconds=600)
MOST_EARLIER: Final = 3000
INDICATORS: Final = (
    "queue_depth",
    "running",
    "kv_cache_usage",
    "preemptions",
    "prompt_tokens",
    "output_tokens",
    "kv_capacity",
    "spec_accept_length",
    "spec_accept_rate",
    "spec_accepted_tokens",
    "spec_draft_tokens",
    "spec_drafts",
)
# Names that an answer about an unknown one looks among: telemetry may carry any number.
_MOST_NAMES: Final = 50
_SHOWN: Final = 5


@dataclass
class Facts:
    """Requests and calls as columns.

    `requests`: the successful requests, oldest first (columns of sql/whatif_requests.sql; `trace_id`, times `*_ms`). `calls`: every generation
    call between a minute before the first of them and the last one's end, oldest first, with `request` = row of its request, -1 for calls of
    others, and `prompt_hash` where any call tells one. `effort` is the part of the usual evaluations that calibration may take.
    `points`: engine indicators (time_us, instance, model, indicator, value). `metric` and `percentile` (0..100) are what is judged. `slo` names what any
    request is limited by (`slo_<metric>_ms` are limits that requests came with), `budgets` are configured stage budgets.
    `before` has the calls and samples of the minutes before the window, no requests. While `parts` is a list, fixes put into it what they would change
    and predict nothing (`fixes.together`).
    """

    requests: pl.DataFrame
    calls: pl.DataFrame
    points: pl.DataFrame
    slo: Slo
    metric: str
    failed: int = 0
    left_out: int = 0
    effort: float = 1.0
    budgets: Configured | None = None
    before: Facts | None = field(default=None, repr=False)
    load_spans: Callable[[], pl.DataFrame] = field(default=pl.DataFrame, repr=False)
    progress: Callable[[float], None] = field(default=lambda share: None, repr=False)
    parts: list[object] | None = field(default=None, repr=False)

    @property
    def percentile(self) -> float:
        """The SLO's percentile, 0..100."""
        return self.slo.percentile

    def __len__(self) -> int:
        return self.requests.height

    def ms(self, column: str) -> FloatArray:
        """A numeric column of the requests as an array of shape (n,), NaN where unknown."""
        return self.requests[column].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def call(self, column: str) -> FloatArray:
        """A numeric column of the calls, NaN where unknown."""
        return self.calls[column].cast(pl.Float64).fill_null(np.nan).to_numpy()

    @cached_property
    def request_of(self) -> IntArray:
        """Row of each call's request, -1 for calls of others."""
        return self.calls["request"].to_numpy().astype(np.int64)

    @cached_property
    def answering(self) -> IntArray:
        """Row of the call that gave each request its first token: the last one on the path that started before it; -1 without one."""
        rows = np.full(len(self), -1, dtype=np.int64)
        first_us = self.requests["start_us"].to_numpy() + 1000.0 * np.nan_to_num(
            self.ms("ttft_ms"), nan=0.0
        )
        start, on_path, request = self.calls["start_us"].to_numpy(), self.on_path, self.request_of
        usable = np.flatnonzero(on_path & (request >= 0))
        usable = usable[start[usable] <= first_us[request[usable]] + 1.0]
        rows[request[usable]] = usable  # oldest first: the last one stays
        rows[np.isnan(self.ms("ttft_ms"))] = -1
        return rows

    def known(self, column: str, name: str) -> str:
        """Which values of a text column of the calls are near `name`, for people; the most frequent ones where none is."""
        frequent = (
            self.calls[column]
            .drop_nulls()
            .value_counts(sort=True)
            .head(_MOST_NAMES)[column]
            .to_list()
        )
        if not frequent:
            return f"no call names a {column}"
        near = nearest(name, [printable(value) for value in frequent])
        return (
            near
            if near.startswith("nearest")
            else "known are " + ", ".join(printable(value) for value in frequent[:_SHOWN])
        )

    @cached_property
    def on_path(self) -> BoolArray:
        """Whether each call stands on its request's critical path."""
        return self.calls["on_path"].fill_null(True).to_numpy()

    @cached_property
    def half_seen(self) -> BoolArray:
        """Whether each request has a model call on its path of which the client's or the engine's span was lost: its model's other calls have both."""
        alone = self.calls["engine_alone"].fill_null(False)
        traced = self.calls.filter(pl.col("engine_e2e_ms").is_not_null() & ~alone)["model"].unique()
        theirs = (
            self.calls["model"]
            .is_in(traced.drop_nulls().to_list())
            .fill_null(traced.null_count() > 0)
        )
        # An engine's span by itself may name no model.
        halves = alone & (len(traced) > 0) | theirs & self.calls["engine_e2e_ms"].is_null()
        lost = (halves & ~self.calls["error"].fill_null(False)).to_numpy()
        out = np.zeros(len(self), np.bool_)
        out[self.request_of[lost & self.on_path & (self.request_of >= 0)]] = True
        return out

    @cached_property
    def way_there_ms(self) -> FloatArray:
        """How long each call was on its way to the engine, NaN if nothing is recorded."""
        return way_there_ms(
            self.calls, earlier=self.before.calls if self.before is not None else None
        )

    @cached_property
    def spans(self) -> pl.DataFrame:
        """The spans of the requests (columns of sql/whatif_spans.sql), loaded at first use."""
        return self.load_spans()

    @cached_property
    def engines(self) -> tuple[list[Engine], str | None]:
        """The engines behind the calls, calibrated by replay at first use (seconds), and why there is none that can be used (or None)."""
        found, lacking = pools(self)
        blind = not found and not self.calls["engine_e2e_ms"].count()
        found = guessed_engine.pools(self) if blind else found
        earlier = (
            {
                pool.model: pool
                for pool in pools(self.before)[0]
                # What ran on engines that are gone shows nothing of those that serve now.
                if set(pool.instances) <= {name for now in found for name in now.instances}
            }
            if self.before is not None and not blind
            else {}
        )
        # What came before the window fills the engine at its beginning; it may have met other settings, or an engine that worked for calls without a span.
        begun = self.calls["start_us"].to_numpy() >= (
            self.requests["start_us"].min() if len(self) else 0
        )
        fitted = []
        for nth, pool in enumerate(found):
            rows = np.flatnonzero(begun[pool.rows] & pool.told)
            rows = rows if len(rows) >= MIN_CALLS else np.flatnonzero(pool.told)

            def done(share: float, nth: int = nth) -> None:
                self.progress((nth + share) / len(found))

            setup = (
                guessed_engine.guess(pool, rows, self.effort, lambda share: done(0.5 * share))
                if blind
                else None
            )
            if setup is None and blind:
                return [], lacking
            engine = fit(
                pool,
                rows=rows,
                setup=setup,
                earlier=earlier.get(pool.model),
                effort=self.effort,
                progress=(lambda share: done(0.5 + 0.5 * share)) if blind else done,
            )
            gate = _with_ranks(engine.gate, self.points)
            fitted.append(replace(engine, unseen=blind, gate=gate))
        lacking = None if blind and fitted else lacking
        return fitted, lacking or next((engine.gate for engine in fitted if engine.gate), None)

    def per_request(
        self, call_delta_ms: FloatArray, ttft_delta_ms: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return what changes of the calls' E2E and TTFT (ms, shape of the calls) do to each request's (TTFT, E2E), shape (n,) each.

        Calls on the critical path count, each with its own change: what stands beside the path is taken to stay beside it. Before the first
        token count the whole calls that ended before, and the TTFT of the call that answered.
        """
        n, request = len(self), self.request_of
        counted = self.on_path & (request >= 0)
        rows, delta = request[counted], np.nan_to_num(call_delta_ms[counted])
        e2e = np.bincount(rows, delta, n).astype(np.float64)
        answering = self.answering[rows]
        before = np.flatnonzero(counted) < answering
        ttft = np.bincount(rows[before], delta[before], n).astype(np.float64)
        known = self.answering >= 0
        own = call_delta_ms if ttft_delta_ms is None else ttft_delta_ms
        ttft[known] += np.nan_to_num(own[self.answering[known]])
        return ttft, e2e


def _with_ranks(gate: str | None, points: pl.DataFrame) -> str | None:
    """Why an engine must not be used, with the data-parallel ranks that its server has."""
    ranks = max((len(names) for names in ranks_of(points).values()), default=1)
    if gate is None or ranks == 1:
        return gate
    return f"{gate}; the server has {ranks} data-parallel ranks, and no span shows which of them served a call"


def load_facts(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    metric: str,
    *,
    most: int = MOST_REQUESTS,
    budgets: Configured | None = None,
) -> Facts:
    """Read what a what-if over this window needs; `metric` (ttft, e2e, tpot) is the one that its headline is about.

    Where the window holds more than `most` requests the latest of them are taken, `left_out` counts the others' lower bound (1: some).
    """
    rows = fetch_frame(con, query("whatif_requests"), filter_of(window) | {"most": most + 1})
    left_out = max(0, rows.height - most)
    rows, own = rows.head(most).reverse(), header_limits(con, window)
    rows = (
        rows if own is None else rows.join(own, on="trace_key", how="left", maintain_order="left")
    ).drop("trace_key")
    rows, slo = with_own(rows, slo)
    ok = rows.filter(~pl.col("error")).with_columns(pl.int_range(pl.len()).alias("request"))
    span = _extent(rows)
    calls = fetch_frame(con, query("whatif_calls"), {"start": span[0] - EARLIER, "end": span[1]})
    before = _before(con, calls, span[0], slo, metric)
    calls = _of_these_engines(calls.filter(pl.col("start_us") >= _us(span[0] - LEAD)), span[0])
    calls = calls.join(
        ok.select("trace_id", "request"), on="trace_id", how="left", maintain_order="left"
    ).with_columns(pl.col("request").fill_null(-1))
    calls = _with_prompts(con, calls, span[0] - LEAD, span[1])
    points = read_samples(
        con, "metric_points", span[0], span[1] + LEAD, None, indicators=list(INDICATORS)
    )
    ids = ok.select("trace_id")
    # The connection may be closed when a fix asks for spans: they are then loaded through a cursor of their own.
    cursor = con.cursor()

    def spans() -> pl.DataFrame:
        found = fetch_frame(
            cursor, query("whatif_spans"), {"start": span[0] - LEAD, "end": span[1]}
        )
        return found.join(ids, on="trace_id", how="semi", maintain_order="left")

    return Facts(
        ok.drop("request"),
        calls,
        points,
        slo,
        metric,
        rows.height - ok.height,
        left_out,
        budgets=budgets,
        before=before,
        load_spans=spans,
    )


def _of_these_engines(calls: pl.DataFrame, start: datetime) -> pl.DataFrame:
    """Return the calls without those from before `start` on engines that served none since: what is gone held no seat of those that serve now."""
    late = calls.filter(pl.col("start_us") >= _us(start))["engine_instance"].drop_nulls().unique()
    gone = ~pl.col("engine_instance").is_in(late.implode())
    if late.is_empty():
        return calls
    return calls.filter(~((pl.col("start_us") < _us(start)) & gone.fill_null(value=False)))


def _before(
    con: duckdb.DuckDBPyConnection, calls: pl.DataFrame, start: datetime, slo: Slo, metric: str
) -> Facts | None:
    """What is known of the minutes before `start`, None where no call ran then."""
    earlier = (
        calls.filter(pl.col("start_us") < _us(start))
        .tail(MOST_EARLIER)
        .with_columns(request=pl.lit(-1, pl.Int64))
    )
    if earlier.is_empty():
        return None
    points = read_samples(
        con, "metric_points", start - EARLIER, start, None, indicators=list(INDICATORS)
    )
    none = pl.DataFrame(schema={"start_us": pl.Int64, "e2e_ms": pl.Float64})
    return Facts(none, earlier, points, slo, metric)


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def _with_prompts(
    con: duckdb.DuckDBPyConnection, calls: pl.DataFrame, start: datetime, end: datetime
) -> pl.DataFrame:
    """The calls with the hashes of their prompts, null where a call has none; read only where any span carries one."""
    if not con.execute(query("any_prompt_hash")).fetchall():
        return calls.with_columns(prompt_hash=pl.lit(None, pl.String))
    hashes = fetch_frame(con, query("whatif_prompts"), {"start": start, "end": end}).unique(
        ["trace_id", "span_id"], keep="first", maintain_order=True
    )
    return calls.join(hashes, on=["trace_id", "span_id"], how="left", maintain_order="left")


def _extent(rows: pl.DataFrame) -> tuple[datetime, datetime]:
    """From the first start to the last end of the requests."""
    if rows.is_empty():
        now = datetime(1970, 1, 1, tzinfo=UTC)
        return now, now
    end_us = rows["start_us"] + (rows["e2e_ms"] * 1000.0).cast(pl.Int64)
    first, last = int(rows["start_us"].to_numpy().min()), int(end_us.to_numpy().max())
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + timedelta(microseconds=first), epoch + timedelta(microseconds=last + 1)
