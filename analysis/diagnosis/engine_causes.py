"""Why is an engine slow that sends metrics and no spans? Its gauges and rates since the onset against those before it, cause by cause.

A cause is a row of `_CAUSES`: the stages that it makes slow, and a function that says what was seen, or nothing. The first row that says something is the cause;
they stand in the order of the causal graph, so that what brings about another one comes before it. Without an onset nothing can be compared: there the
levels speak alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.gpu_clocks import MIN_FALL
from overrun.analysis.numbers.latency.histograms import Increments
from overrun.analysis.numbers.statistics.change_points import LEAST_SCRAPES
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import say_ratio

# Priors until indicators are learned on this data: KV usage over 90 %, a request waiting in more than half of the samples.
KV_FULL: Final = 0.9
MOSTLY: Final = 0.5
# From this many preemptions per finished request the cache is thrashing.
PREEMPTED: Final = 0.01
# What grew so much counts as more: tokens a second, tokens a request, tokens that are computed; own default.
GREW: Final = 1.5
# A KV cache this full leaves room for more calls, as in `too_few_seats`; own default.
KV_ROOM: Final = 0.5
# As many run as before, within this factor; own default.
ALIKE: Final = 1.25
# What happened so long before an onset or after it came with it: a few scrapes.
BESIDE_S: Final = 60.0
# What is looked at beside the gauges that a report shows.
CHANGES: Final = (
    *("preemptions", "prefix_cache_hit_rate", "spec_accept_rate", "finished"),
    *("kv_transfer_queue_depth", "client_input_tokens", "client_output_tokens", "gpu_clock"),
)
WAITING: Final = ("queue_depth", "embedding_queue_depth", "kv_transfer_queue_depth")
# Fewer samples than these on a side are a glance, not a course.
_LEAST: Final = LEAST_SCRAPES


@dataclass(frozen=True)
class EngineCause:
    """A cause with what was seen of it, as a clause, and what to do."""

    rule: str
    because: str
    mitigation: str
    brief: str = ""  # the same beside a sentence that has what is seen of the queue


@dataclass(frozen=True)
class Samples:
    """What was sampled (time_us, instance, indicator, value), and the onset; ratios 0..1, rates a second."""

    points: pl.DataFrame
    onset_us: int | None
    ended: Increments | None = None  # the latencies of requests, which count them

    def side(self, *names: str, later: bool, mean: bool = False) -> FloatArray:
        """The samples of indicators before the onset or since it (all are since it where there is none), over all instances at each moment."""
        rows = self.points.filter(pl.col("indicator").is_in(list(names)))
        if self.onset_us is not None:
            past = pl.col("time_us") < self.onset_us
            rows = rows.filter(~past if later else past)
        elif not later:
            return np.zeros(0)
        value = pl.col("value").mean() if mean else pl.col("value").sum()
        found: FloatArray = rows.group_by("time_us").agg(value).sort("time_us")["value"].to_numpy()
        return found

    def changed(self, name: str) -> tuple[float, float] | None:
        """Medians of a ratio before the onset and since it, if the quarters of both sides that face each other do not overlap."""
        before, after = (self.side(name, later=later, mean=True) for later in (False, True))
        if min(len(before), len(after)) < _LEAST:
            return None
        low, high = sorted((before, after), key=lambda one: float(np.median(one)))
        if np.percentile(low, 75.0) >= np.percentile(high, 25.0):
            return None
        return float(np.median(before)), float(np.median(after))

    def each(self, *counted: str) -> tuple[float, float] | None:
        """How much of it came with each finished request before the onset and since it."""
        sides = []
        for later in (False, True):
            many, finished = self.side(*counted, later=later), self._finished(later=later)
            if len(many) < _LEAST or not finished:
                return None
            sides.append(float(many.mean()) / finished)
        return sides[0], sides[1]

    def _finished(self, *, later: bool) -> float | None:
        """Requests that ended a second, as a histogram of latencies counted them, else as a counter did."""
        ended = self.ended
        if ended is None or self.onset_us is None:
            rates = self.side("finished", later=later)
            return float(rates.mean()) if len(rates) >= _LEAST else None
        kept = (ended.to_us > self.onset_us) == later
        if not kept.any():
            return None
        seconds = float(ended.to_us[kept].max() - ended.from_us[kept].min()) / 1e6
        return float(ended.counts[kept].sum()) / seconds if seconds > 0.0 else None

    @cached_property
    def waiting(self) -> FloatArray:
        return self.side(*WAITING, later=True)

    @cached_property
    def waits(self) -> bool:
        """Whether requests wait in most samples."""
        return len(self.waiting) > 0 and float((self.waiting > 0.0).mean()) >= MOSTLY

    @cached_property
    def kv_p95(self) -> float | None:
        usage: FloatArray = self.points.filter(
            (pl.col("indicator") == "kv_cache_usage") & (pl.col("time_us") >= (self.onset_us or 0))
        )["value"].to_numpy()
        return float(np.percentile(usage, 95.0)) if len(usage) else None

    @cached_property
    def arrivals(self) -> float | None:
        """How much faster prompt tokens come around the onset than before: the highest moments' rate over the median before."""
        before, after = (self.side("prompt_tokens", later=later) for later in (False, True))
        if len(before) < 3 or len(after) < 1 or float(np.median(before)) <= 0.0:
            return None
        return float(np.percentile(after, 90.0) / np.median(before))

    def thrown_out(self) -> str:
        """That requests were thrown out of a full KV cache when it began, and at no other time, as a clause; empty if not."""
        rows = self.points.filter((pl.col("indicator") == "preemptions") & (pl.col("value") > 0.0))
        usage = self.points.filter(pl.col("indicator") == "kv_cache_usage")
        onset = self.onset_us
        if onset is None or rows.is_empty() or usage.is_empty():
            return ""
        beside = (pl.col("time_us") - onset).abs() <= 1e6 * BESIDE_S
        full = usage.filter(beside)["value"].to_numpy()
        if rows.filter(~beside).height or not len(full) or full.max() < KV_FULL:
            return ""
        return "; it began when the KV cache was full and requests were thrown out of it"

    def waited(self) -> str:
        """What is seen of the queue, as a clause."""
        kv = "" if self.kv_p95 is None else f" and KV cache usage P95 is {say_ratio(self.kv_p95)}"
        return f"requests wait in {say_ratio(float((self.waiting > 0.0).mean()))} of the samples (at most {self.waiting.max():,.0f}){kv}"


def cause_of(stage: str | None, samples: Samples) -> EngineCause | None:
    """The cause of what a stage takes longer, None where nothing that is sampled shows one."""
    for stages, look in _CAUSES:
        if stage in stages and (found := look(samples)) is not None:
            return found
    return None


def _slower_clock(samples: Samples) -> EngineCause | None:
    found = samples.changed("gpu_clock")
    if found is None or found[1] > (1.0 - MIN_FALL) * found[0]:
        return None
    before, now = (hertz / 1e6 for hertz in found)
    return EngineCause(
        "gpu_throttled",
        f"the GPUs run at {now:,.0f} MHz instead of {before:,.0f} MHz",
        "Look at the power limit, the temperature and the clock settings of these GPUs (nvidia-smi -q -d POWER,TEMPERATURE,CLOCK), and move load to others until then.",
    )


def _cache_lost(samples: Samples) -> EngineCause | None:
    found = samples.changed("prefix_cache_hit_rate")
    if found is None or 1.0 - found[1] < GREW * (1.0 - found[0]):
        return None
    return EngineCause(
        "prefix_cache_lost",
        f"the prefix cache gives {say_ratio(found[1])} of the prompt tokens instead of {say_ratio(found[0])}",
        "Go back to the version, routing or prompt template of before the onset, under which prompts were found in the cache.",
    )


def _longer_prompts(samples: Samples) -> EngineCause | None:
    found = samples.each("prompt_tokens", "client_input_tokens")
    if found is None or found[1] < GREW * found[0]:
        return None
    return EngineCause(
        "prompt_bloat",
        f"a request brings {found[1]:,.0f} prompt tokens instead of {found[0]:,.0f}",
        "Shorten prompts to their earlier length, or send the long ones to an engine of their own.",
    )


def _longer_answers(samples: Samples) -> EngineCause | None:
    found = samples.each("output_tokens", "client_output_tokens")
    if found is None or found[1] < GREW * found[0]:
        return None
    return EngineCause(
        "long_outputs",
        f"an answer has {found[1]:,.0f} tokens instead of {found[0]:,.0f}",
        "Cap the length of answers (max_tokens) near their earlier length.",
    )


def _drafts_rejected(samples: Samples) -> EngineCause | None:
    found = samples.changed("spec_accept_rate")
    if found is None or found[1] * GREW > found[0]:
        return None
    return EngineCause(
        "speculation_not_paying",
        f"{say_ratio(found[1])} of the drafted tokens are accepted instead of {say_ratio(found[0])}",
        "Switch speculative decoding off, or go back to the draft model and engine version of before the onset.",
    )


def _more_arrives(samples: Samples) -> EngineCause | None:
    grown = samples.arrivals
    if not samples.waits or grown is None or grown < GREW:
        return None
    return EngineCause(
        "under_capacity",
        f"{samples.waited()}; prompt tokens arrive {grown:.1f} times as fast as before",
        _ADMIT,
    )


def _cache_full(samples: Samples) -> EngineCause | None:
    if not samples.waits or samples.kv_p95 is None or samples.kv_p95 <= KV_FULL:
        return None
    preempted, finished = (samples.side(name, later=True) for name in ("preemptions", "finished"))
    # Where preemptions are counted, a full cache that throws nobody out holds nobody back either.
    if len(preempted):
        each = float(preempted.mean()) / float(finished.mean()) if finished.any() else np.inf
        if preempted.max() <= 0.0 or each <= PREEMPTED:
            return None
    return EngineCause(
        "kv_pressure",
        samples.waited() + (" while requests are preempted" if len(preempted) else ""),
        "Lower max_num_seqs, shorten contexts, or enlarge the KV cache.",
        "requests wait for room in the KV cache",
    )


def _few_seats(samples: Samples) -> EngineCause | None:
    running = samples.side("running", "embedding_running", later=True)
    kv = samples.kv_p95
    if not samples.waits or (kv is not None and kv > KV_ROOM):
        return None
    if len(running) < _LEAST or float((running >= running.max()).mean()) < MOSTLY:
        return None
    # Where no KV usage is reported: a full cache lets more or fewer in as their lengths go, seats are always as many.
    room = "" if kv is None else " though the KV cache has room"
    return EngineCause(
        "too_few_seats",
        f"{running.max():,.0f} run at a time, never more, though {samples.waited()}",
        "Let more calls run at once (max_num_seqs, max_running_requests, parallel slots).",
        f"never more than {running.max():,.0f} run at a time{room}",
    )


def _transfers_wait(samples: Samples) -> EngineCause | None:
    moved = samples.side("kv_transfer_queue_depth", later=True)
    if not samples.waits or not len(moved) or moved.mean() < MOSTLY * samples.waiting.mean():
        return None
    return EngineCause(
        "slow_dependency",
        f"{moved.mean():,.0f} of {samples.waiting.mean():,.0f} waiting requests wait for the transfer of their KV cache from another engine",
        "Look at the connection between the engines (NIXL, Mooncake, RDMA) and at how many transfers share it; until then let one engine read and write.",
    )


def _slower_at_equal_load(samples: Samples) -> EngineCause | None:
    """As many requests run as before, and all together they get far fewer tokens."""
    running = [samples.side("running", later=later) for later in (False, True)]
    written = [samples.side("output_tokens", later=later) for later in (False, True)]
    if min(map(len, (*running, *written))) < _LEAST or float(np.median(running[1])) <= 0.0:
        return None
    before, now = (
        float(np.mean(tokens)) / max(float(np.mean(seats)), 1e-9)
        for tokens, seats in zip(written, running, strict=True)
    )
    if float(np.mean(running[1])) * ALIKE < float(np.mean(running[0])) or now * GREW > before:
        return None
    if float(np.mean(running[1])) > ALIKE * float(np.mean(running[0])):
        return None  # larger batches are slower for each
    return EngineCause(
        "slower_engine",
        f"{np.mean(running[1]):.3g} requests run as before, and each gets {now:.3g} tokens/s instead of {before:.3g}"
        f"{samples.thrown_out()}",
        "Take the engine out of rotation and restart it; then compare its version, GPU clocks and neighbours with those of before the onset.",
    )


def _plainly_waiting(samples: Samples) -> EngineCause | None:
    return EngineCause("under_capacity", samples.waited(), _ADMIT) if samples.waits else None


_ADMIT: Final = "Add replicas or shed load until no request waits."
_CAUSES: Final[
    tuple[tuple[tuple[str | None, ...], Callable[[Samples], EngineCause | None]], ...]
] = (
    (("prefill", "decode", "queue", None), _slower_clock),
    (("queue", "prefill"), _cache_lost),
    (("queue",), _transfers_wait),
    # Of a queue, more tokens to read than ended requests brought are those of more that arrived.
    (("queue",), _more_arrives),
    (("prefill", "decode", None), _longer_prompts),
    (("queue", "decode"), _drafts_rejected),
    (("queue", "decode", None), _longer_answers),
    (("decode",), _slower_at_equal_load),
    (("queue",), _cache_full),
    (("queue",), _few_seats),
    (("queue",), _plainly_waiting),
)
