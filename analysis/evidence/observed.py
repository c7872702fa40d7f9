"""What was observed? The judged requests, what they are compared with, and calls, spans and gauges around them, each read once and only if asked for."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.contrast.explain import Window
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.fact import Sample
from overrun.analysis.evidence.operations import Operations
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.coverage.span_sample import MOST_SPANS, MOST_SPANS_APART, one_in
from overrun.analysis.numbers.stages.budget import Budgets, StageTimes
from overrun.analysis.numbers.stages.tail import Tail, share_interval
from overrun.analysis.words.arrays import BoolArray, FloatArray, IndexArray
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import MOST_EXEMPLARS, SEED, Diagnosis, Severity
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import to_us

# Error budget spent 14.4 times too fast uses 2 % of a 30-day budget in an hour and pages someone (Google SRE
# Workbook, ch. 5).
CRITICAL_BURN: Final = 14.4
# Part of the excess from which the work itself, not the wait for it, is the stage of a slow engine; own default, as for what is ruled out.
MIN_SLOWED: Final = 0.1
# Part of the requests that must be stored for those in flight at a moment to be counted; own default, as for the coverage of engines.
SEEN: Final = 0.9
# Part of the slow calls that may have begun before the fault; own default.
BEFORE_FAULT: Final = 0.25
# Metrics that only engines send: a gateway counts running and waiting calls as well.
_ENGINES_OWN: Final = ("kv_cache_usage", "kv_capacity", "prefix_cache_hit_rate")
# What an engine reports of its work: one that reports no more than zeros serves nobody.
ACTIVITY: Final = ("running", "queue_depth", "output_tokens", "prompt_tokens")
# Stages whose time depends on how busy the engine is.
ENGINE_STAGES: Final = ("queue", "kv_transfer", "prefill", "decode", "first_token", "generation")


@dataclass(frozen=True)
class Lookups:
    """Edge functions: ids of a few rows, and the evidence of a period.

    `spans` are those of one trace in so many (0: of none), and of the traces whose keys are given."""

    trace_ids: Callable[[pl.DataFrame], list[str]]
    calls: Callable[[Period, datetime], pl.DataFrame]
    spans: Callable[[Period, datetime, int, pl.Series], pl.DataFrame]
    simulated: Callable[[str, list[Diagnosis], Period], list[Diagnosis]] | None = None
    """Causes of a judged metric with the figures of simulated fixes; None without a simulation."""
    traits: Callable[[Period, datetime, int, str], pl.DataFrame] | None = None
    """Attributes of the model calls of a period whose keys match a regular expression; see `evidence.call_kind`."""
    explain: Callable[[list[Window]], Explanation | str] | None = None
    """The open diagnosis of judged requests, or why there is none; see `contrast.explain`. None where it is not asked for."""
    older: Callable[[], str] = lambda: "nothing older is stored"
    """Why there is no baseline, as a clause; see `baseline.why_none`."""


@dataclass(frozen=True)
class Observed:
    """What was observed of the judged requests, before any fact is derived.

    Arrays and `rows` have one entry per successful request with the judged metric, and per one that a time limit ended when the metric's limit had passed:
    its value is how long it had waited, the least that its latency was.

    `values` is the judged metric in ms, `times` its stage times, `limits_ms` its limit (one for all, or one per request, infinite where it has none),
    `breaching` who is over it. `tail.tail_index` are the slow
    requests (over the limit, since the onset), `reference` the rows they are compared with. `period` is what is judged: from the onset
    to the window's end; `baseline` is what it is compared with, None where there is none. `points` are engine indicators (see
    `RequestFrame`) of both. `burn` is how many times faster than allowed requests go bad. `coverage` is the share (0..1) of the requests
    counted by the engines themselves whose spans are stored, None without engine counters: the calls of a batch are known only near 1.
    `rows` are one request in `every`: what is counted per second is so many times as much. `usual_ms` is the judged percentile of the baseline, `health` how
    far that stands for a healthy time (0..1).
    """

    rows: pl.DataFrame
    values: FloatArray
    times: StageTimes
    tail: Tail
    reference: pl.DataFrame
    budgets: Budgets
    limits_ms: float | FloatArray
    breaching: BoolArray
    slo: Slo
    metric: str
    points: pl.DataFrame
    burn: float
    period: Period
    baseline: Period | None
    lookups: Lookups
    coverage: float | None = None
    every: int = 1
    usual_ms: float | None = None
    health: float = 1.0

    @property
    def answered(self) -> BoolArray:
        """Which of `rows` are successful: percentiles are theirs."""
        return ~self.rows["error"].to_numpy().astype(np.bool_)

    @property
    def onset_inside(self) -> bool:
        """Whether the baseline is the part of the window before an onset in it, so that both were chosen by what they show."""
        first = int(self.rows["start_us"].to_numpy().min()) if self.rows.height else 0
        return self.baseline is not None and first < to_us(self.baseline.end)

    @property
    def kept(self) -> float:
        """The part (0..1] of what happened that is stored, 1 by default: counts of neighbours are too low by this factor."""
        return 1.0 if self.coverage is None else max(self.coverage, 1e-3)

    @property
    def thinned(self) -> bool:
        """Whether so little is stored that the other calls in flight are not known."""
        return self.kept < SEEN

    @functools.cached_property
    def slow(self) -> pl.DataFrame:
        """The slow requests."""
        return self.rows[self.tail.tail_index]

    @functools.cached_property
    def slow_sample(self) -> Sample:
        """The starts of the slow requests, for intervals of what is computed from them."""
        return Sample(self.slow["start_us"].to_numpy())

    @functools.cached_property
    def usual_sample(self) -> Sample:
        """The starts of the reference requests."""
        return Sample(self.reference["start_us"].to_numpy())

    @functools.cached_property
    def origin(self) -> datetime:
        """The moment from which evidence counts its seconds."""
        return self.baseline.start if self.baseline is not None else self.period.start

    @functools.cached_property
    def calls(self) -> Calls:
        """Every model call that started in the judged period, by any caller."""
        return Calls(self.lookups.calls(self.period, self.origin))

    @functools.cached_property
    def calls_before(self) -> Calls | None:
        """Every model call of the baseline, None without one."""
        return (
            None if self.baseline is None else Calls(self.lookups.calls(self.baseline, self.origin))
        )

    @functools.cached_property
    def served(self) -> tuple[Calls, Calls | None]:
        """The calls of the period and of the baseline to the models of the engines that slow requests wait for, to those of which any engine tells where
        that is not known, and all calls where none does: what goes to others is no work of theirs."""
        sides = [side for side in (self.calls, self.calls_before) if side is not None]
        theirs_alone = (
            pl.col("model").is_null()
            if self.slowest_model is None
            else pl.col("model") == self.slowest_model
        )
        asked = [side.where(side.has_engine).frame.filter(theirs_alone) for side in sides]
        theirs = (
            pl.concat(frame.select("engine_instance") for frame in asked)["engine_instance"]
            .drop_nulls()
            .unique()
        )
        if len(theirs):
            there = pl.col("engine_instance").is_in(theirs.implode())
            models = (
                pl.concat(side.frame.filter(there).select("model") for side in sides)["model"]
                .drop_nulls()
                .unique()
            )
            untold = pl.col("engine_instance").is_null() & pl.col("model").is_in(models.implode())
            now, *before = (
                side.where(
                    side.frame.select((there | untold).fill_null(value=False))
                    .to_series()
                    .to_numpy()
                )
                for side in sides
            )
            return now, before[0] if before else None
        told = {name for side in sides for name in side.where(side.has_engine).names("model")}
        return self.calls.to_models(
            told
        ), None if self.calls_before is None else self.calls_before.to_models(told)

    @functools.cached_property
    def mine(self) -> Calls:
        """The calls of the judged requests in the period (those that the window's filter keeps)."""
        return self.calls.of_requests(self.rows["trace_key"])

    @functools.cached_property
    def operations(self) -> Operations:
        """What slow and reference requests spend their own time on; see `overrun.analysis.evidence.operations`."""
        return Operations(
            self.slow_tree,
            self.usual_tree,
            self._until(self.slow),
            self._until(self.reference),
            self._spans_by_health,
        )

    def _spans_by_health(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The spans of the judged period, and those of healthy requests: the baseline's, else those within the limit."""
        now = self.tree.frame
        if self.tree_before is not None and len(self.tree_before):
            return now, self.tree_before.frame
        healthy = self.rows["trace_key"].filter(pl.Series(~self.breaching))
        return now, now.filter(pl.col("trace_key").is_in(healthy.implode()))

    def _until(self, rows: pl.DataFrame) -> pl.DataFrame | None:
        """How much of each request's path is judged: up to its first token, or all (None)."""
        if self.times.path != "ttft" or "ttft_ms" not in rows.columns:
            return None
        return rows.select("trace_key", until_ms="ttft_ms")

    @property
    def when(self) -> str:
        """When or where a figure of the reference requests is from, to stand behind it in a sentence."""
        return (
            "before" if self.tail.reference == "baseline" else f"in {self.tail.reference} requests"
        )

    @functools.cached_property
    def slow_calls(self) -> Calls:
        """The calls of the slow requests."""
        return self.calls.of_requests(self.slow["trace_key"])

    @functools.cached_property
    def slowest_model(self) -> str | None:
        """The model whose calls took most of the slow requests' time, None where no call names one: the engines of another are no peers of its own."""
        taken = (
            self.slow_calls.frame.drop_nulls("model")
            .group_by("model")
            .agg(pl.col("e2e_ms").sum())
            .sort("e2e_ms", "model", descending=[True, False])
        )
        return str(taken["model"][0]) if taken.height else None

    def share_of_slow(self, traces: pl.Series) -> tuple[BoolArray, float]:
        """Return which requests have their key among `traces`, and their part of the slow ones (0..1)."""
        hit = self.rows["trace_key"].is_in(traces.implode()).to_numpy()
        return hit, float(hit[self.tail.tail_index].mean())

    @functools.cached_property
    def own_engines(self) -> float:
        """Part of the slow calls (0..1) of whose models an engine tells, be it of other calls or by its metrics: one whose spans are lost, or in traces
        of their own, is no provider."""
        told = {
            name
            for side in (self.calls, self.calls_before)
            if side is not None
            for name in side.where(side.has_engine).names("model")
        }
        told |= set(
            self.points.filter(pl.col("indicator").is_in(_ENGINES_OWN))["model"]
            .drop_nulls()
            .unique()
            .to_list()
        )
        own = (
            self.slow_calls.has_engine
            | self.slow_calls.frame["model"].is_in(list(told)).fill_null(value=False).to_numpy()
        )
        if len(own) and own.mean() < 1.0 and self._asks_engines():
            return 1.0
        return float(own.mean()) if len(own) else 0.0

    def _asks_engines(self) -> bool:
        """Whether calls go to the very addresses whose pages report running and waiting calls: a page may name no model, and its engine send no spans.

        A gateway counts such calls as well, but by model, or says by other counts that it is one.
        """
        indicators = self.points.filter(pl.col("instance").is_not_null()).group_by("instance")
        pages = indicators.agg(
            (pl.col("indicator").is_in(ACTIVITY) & pl.col("model").is_null()).any().alias("serves"),
            pl.col("indicator").str.starts_with("gateway_").any().alias("gateway"),
        ).filter(pl.col("serves") & ~pl.col("gateway"))["instance"]
        if pages.is_empty():
            return False
        frame = self.tree.frame
        hosts = frame.filter((pl.col("role") == "llm") & (pl.col("host") != ""))["host"].unique()
        names = {*pages.to_list(), *(name.rsplit(":", 1)[0] for name in pages)}
        return bool(len(hosts)) and names.issuperset(hosts.to_list())

    @functools.cached_property
    def calls_inside(self) -> Calls:
        """The calls that began when a quarter of the slow ones had: calls that begin shortly before a fault are slow too, and would date the onset too early."""
        starts = self.slow_calls.of("start_s")
        return (
            self.calls.some(self.calls.of("start_s") >= np.quantile(starts, BEFORE_FAULT))
            if len(starts)
            else self.calls
        )

    @functools.cached_property
    def usual_calls(self) -> Calls:
        """The calls of the reference requests."""
        source = self.calls if self.calls_before is None else self.calls_before
        return source.of_requests(self.reference["trace_key"])

    @functools.cached_property
    def tree(self) -> Tree:
        """Spans of the judged period, of one request in `spans_every`."""
        return self._period_spans.one_in(self.spans_every)

    @functools.cached_property
    def tree_before(self) -> Tree | None:
        """Spans of the baseline, of one request in `spans_every`; None without a baseline."""
        return (
            None if self._baseline_spans is None else self._baseline_spans.one_in(self.spans_every)
        )

    @functools.cached_property
    def slow_tree(self) -> Tree:
        """Spans of the slow requests, of some where they have very many."""
        return self._period_spans.some(self._slow_traces)

    @functools.cached_property
    def usual_tree(self) -> Tree:
        """Spans of the reference requests, of some where they have very many."""
        spans = self._period_spans if self._baseline_spans is None else self._baseline_spans
        return spans.some(self._usual_traces)

    @functools.cached_property
    def spans_every(self) -> int:
        """One trace in so many has its spans in `tree` and `tree_before`."""
        return self.every * one_in(self.rows, MOST_SPANS)

    @functools.cached_property
    def _slow_traces(self) -> pl.Series:
        return self._some_traces(self.slow)

    @functools.cached_property
    def _usual_traces(self) -> pl.Series:
        return self._some_traces(self.reference)

    def _some_traces(self, rows: pl.DataFrame) -> pl.Series:
        every = self.every * one_in(rows, MOST_SPANS_APART)
        return rows["trace_key"].filter(rows["trace_key"] % every == 0)

    @functools.cached_property
    def _period_spans(self) -> Tree:
        """All spans that are read of the judged period, at once: every tree has some of them."""
        sides = [self._slow_traces] + ([self._usual_traces] if self.baseline is None else [])
        return self._read_spans(self.period, pl.concat(sides), known="tree")

    @functools.cached_property
    def _baseline_spans(self) -> Tree | None:
        if self.baseline is None:
            return None
        return self._read_spans(self.baseline, self._usual_traces, known="tree_before")

    def _read_spans(self, period: Period, traces: pl.Series, known: str) -> Tree:
        every = 0 if known in self.__dict__ else self.spans_every
        return Tree(self.lookups.spans(period, self.origin, every, traces))

    def gauge(self, indicator: str, *, before: bool = False) -> FloatArray:
        """Return the samples of an engine indicator in the judged period or in the baseline, all instances, in order of time."""
        values: FloatArray = self.sampled(indicator, before=before)["value"].to_numpy()
        return values

    def sampled(self, indicator: str, *, before: bool = False) -> pl.DataFrame:
        """Return the rows of `points` that hold an engine indicator in the judged period or in the baseline; none where there is no baseline.

        An engine that served nobody there while others did is left out: it is warming before its traffic, or gone."""
        idle = self.idle_engines[before]
        known = self._samples_by_indicator[before]
        found = known.get((indicator,))
        if found is None:
            return self.points.clear()
        if not idle:
            return found
        return found.filter(~pl.col("instance").is_in(list(idle)).fill_null(value=False))

    @functools.cached_property
    def _samples_by_indicator(
        self,
    ) -> tuple[dict[tuple[object, ...], pl.DataFrame], dict[tuple[object, ...], pl.DataFrame]]:
        """The rows of each indicator in the judged period, and in the baseline."""
        now, before = (
            self._samples(before=side).partition_by("indicator", as_dict=True, maintain_order=True)
            for side in (False, True)
        )
        return now, before

    def _samples(self, *, before: bool) -> pl.DataFrame:
        period = self.baseline if before else self.period
        if period is None:
            return self.points.clear()
        low, high = (int(moment.timestamp() * 1e6) for moment in (period.start, period.end))
        return self.points.filter(pl.col("time_us").is_between(low, high, closed="left"))

    @functools.cached_property
    def idle_engines(self) -> tuple[frozenset[str], frozenset[str]]:
        """The instances that report work and had none in the judged period, and in the baseline, while others had some."""
        return self._idle(before=False), self._idle(before=True)

    def _idle(self, *, before: bool) -> frozenset[str]:
        work = self.busy_samples(before=before)
        busy = frozenset(work.filter(pl.col("busy"))["instance"].to_list())
        return frozenset(work["instance"].to_list()) - busy if busy else frozenset()

    def busy_samples(self, *, before: bool) -> pl.DataFrame:
        """Return a row per instance and sample time of the period or the baseline with whether it was `busy`; of instances that report their work."""
        return (
            self._samples(before=before)
            .filter(pl.col("indicator").is_in(ACTIVITY) & pl.col("instance").is_not_null())
            .group_by("instance", "time_us")
            .agg(busy=(pl.col("value") > 0.0).any())
        )

    def excess_ms(self, *stages: str) -> float:
        """Return how much longer these stages take in a slow request than in a reference one, never below 0."""
        return sum(max(0.0, self.tail.excess_ms.get(stage, 0.0)) for stage in stages)

    def worst(self, *stages: str) -> str:
        """Return the one of these stages that grew most."""
        return max(stages, key=lambda stage: self.tail.excess_ms.get(stage, -math.inf))

    def slowed(self) -> str:
        """Return the stage in which an engine that works slowly loses the time: where it works, unless that is less than a tenth of the excess.

        Who waits before it waits for that.
        """
        stage = self.worst("prefill", "decode", "first_token", "generation")
        return stage if self.tail.share(stage) >= MIN_SLOWED else self.worst(*ENGINE_STAGES)

    def spent(self, stage: str) -> FloatArray:
        """Return a stage's time per request, shape (n,), zeros where it took none."""
        return self.times.ms.get(stage, np.zeros(len(self.values)))

    def share_interval(self, stage: str) -> list[float] | None:
        """Return the 95 % interval [low, high] of the part of the excess that a stage explains."""
        interval = share_interval(self.tail, self.times, stage, np.random.default_rng(SEED))
        return None if interval is None else list(interval)

    def exemplars(self, stage: str, among: IndexArray | None = None) -> list[str]:
        """Return trace ids of at most five slow requests (or of `among`), most time in the stage first."""
        index = self.tail.tail_index if among is None or not len(among) else among
        spent = self.spent(stage)[index] if stage in self.times.ms else self.values[index]
        return self.lookups.trace_ids(
            self.rows[index[np.argsort(-spent, kind="stable")[:MOST_EXEMPLARS]]]
        )

    def severity(self) -> Severity:
        """Return how urgent a main cause is: critical when the error budget burns fast enough to page someone."""
        return "critical" if self.burn >= CRITICAL_BURN else "warning"

    def stage_limits_ms(self, stage: str) -> float | FloatArray:
        """Return what a stage may take beside what reference requests spend, see `Budgets.held_ms`: one number, or one per request by its own budgets."""
        return self.budgets.held_ms(stage, self.times.whose, self.tail.reference_ms)

    def budget_ms(self, name: str) -> float | None:
        """Return what a stage or group may take, as a mean over the slow requests where these are held to different budgets; None without one."""
        return self.budgets.mean_ms(name, self.times.take(self.tail.tail_index))
