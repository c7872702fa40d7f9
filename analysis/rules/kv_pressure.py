"""kv_pressure: the engine's KV cache is full, so requests wait for blocks or lose them and start over.

Detects
    KV usage near its limit with preemptions that were not there before, while the engine's work did not grow enough to
    explain it: the memory for KV blocks shrank, or requests hold more of it.

Why it hurts
    A sequence that finds no free block waits; one that is preempted computes its prompt again. Both cost time in the engine
    that all others share.

Evidence
    KV usage at P95 and preemptions per request before and now; KV capacity by the engine's own figure where it tells one,
    else the tokens that ran at a time over the usage; growth of the engine's work; the excess in queue, prefill and decode.

Fix
    Give KV its memory back (--gpu-memory-utilization, --kv-cache-dtype fp8, KV offload, a smaller model beside it), bound
    the context (--max-model-len), run fewer sequences (--max-num-seqs) or more replicas. Without a replay of the engine the
    gain is only bounded: no more waiting and no slower tokens than before.

False alarms
    A cache that is full of unreferenced blocks is no pressure: they count as free. Usage above 90 % alone predicts little:
    it was right 21 to 55 % of the time in simulation, so it is never enough here. More requests fill the cache too
    (`under_capacity`).

Source
    Preemptions in more than 1 % of requests and at least a quarter of the excess: own defaults. KV memory is linear in the
    tokens held: bytes a token = 2 x layers x KV heads x head dimension x bytes.
"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from analysis.budget import FloatArray
from analysis.calls import Calls, known
from analysis.case import Case, too_few_breaches
from analysis.cause import Action, bound_fix, enough, named
from analysis.demand import demand
from analysis.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio
from analysis.overlap import Flow
from analysis.prefill import spread

RULE: Final = "kv_pressure"
KV_FULL: Final = 0.9
MIN_PREEMPTED: Final = 0.01
# Capacity that fell below this part of what it was is a change of the engine, not of the traffic; own default.
SHRUNK: Final = 0.85
# Tokens held are averaged this far around a sample; samples on either side, and usage from which it can be divided by; own defaults.
AROUND_S: Final = 10.0
LEAST_SAMPLES: Final = 3
LEAST_USED: Final = 0.02
# Growth of the engine's work that fills a cache by itself; own default.
GREW: Final = 1.25


class Pressure(NamedTuple):
    """KV usage (0..1) at P95, preemptions per request, and capacity now over before (None: unknown), with how it is known."""

    usage: float
    usage_before: float | None
    preempted: float
    preempted_before: float | None
    capacity_ratio: float | None
    capacity_source: str


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the full cache, None when it is not full or nothing waits for it."""
    if sum(case.tail.share(stage) for stage in ("queue", "prefill", "decode")) < 0.25:
        return None
    found = pressure(case)
    if found is None:
        return NotEnoughData("no KV usage: scrape the engine's /metrics") if case.calls.has_engine.any() else None
    rose = found.preempted - (found.preempted_before or 0.0)
    if found.usage < KV_FULL or rose < MIN_PREEMPTED:
        return RuledOut(what=RULE, figure=f"KV usage P95 is {say_ratio(found.usage)}, {found.preempted:.2f} preemptions a request")
    grown = demand(case)
    shrunk = found.capacity_ratio is not None and found.capacity_ratio < SHRUNK
    if grown is not None and grown.growth >= GREW and not shrunk:
        return RuledOut(what=RULE, figure=f"the KV cache is full because the engine has {grown.growth:.2f} times the work")
    claims = {**spread(case, 1.0), "prefill": case.excess_ms("prefill")}
    if not enough(case, claims):
        return None
    return too_few_breaches(case) or _diagnosis(case, found, claims, shrunk)


def pressure(case: Case) -> Pressure | None:
    """Read usage, preemptions and capacity on both sides; None without samples of KV usage."""
    usage, usage_before = case.gauge("kv_cache_usage"), case.gauge("kv_cache_usage", before=True)
    if not len(usage):
        return None
    rates = case.gauge("preemptions"), case.gauge("preemptions", before=True)
    told = case.gauge("kv_capacity"), case.gauge("kv_capacity", before=True)
    ratio, source = capacity_ratio(case), "tokens held over KV usage"
    if len(told[0]) and len(told[1]):
        ratio, source = float(np.median(told[0]) / np.median(told[1])), "the engine's own figure"
    before = None if case.baseline is None or not len(rates[1]) else _per_request(rates[1], case.baseline.seconds, case.calls_before)
    return Pressure(
        float(np.percentile(usage, 95.0)), float(np.percentile(usage_before, 95.0)) if len(usage_before) else None,
        _per_request(rates[0], case.period.seconds, case.calls), before, ratio, source if ratio is not None else "unknown")


def _per_request(rates: np.ndarray, seconds: float, calls: Calls | None) -> float:
    """Preemptions per call: mean rate of the instances that told, times how many they are, over the calls per second."""
    n = len(calls) if calls is not None else 0
    return float(rates.mean()) * seconds / n if len(rates) and n else 0.0


def capacity_ratio(case: Case) -> float | None:
    """Return the KV capacity since the first preemption over the one before it, from tokens held over KV usage; None where it cannot be told.

    Preemptions may begin minutes before the first limit is missed, so the two sides are parted there and not at the onset. Tokens held are
    those of finished calls (input and half of the output while they ran): near the end, where calls still run, there is no telling.
    """
    sides = [calls for calls in (case.calls_before, case.calls) if calls is not None]
    start, end, held = (np.concatenate(parts) for parts in zip(*(_holding(calls) for calls in sides), strict=True))
    usage = _series(case, "kv_cache_usage")
    preempted = _series(case, "preemptions")
    if len(start) < 30 or usage.is_empty() or preempted.filter(pl.col("value") > 0).is_empty():
        return None
    flow = Flow(start, end, held * (end - start))
    at = usage["at_s"].to_numpy()
    tokens = flow.between(at - AROUND_S, at + AROUND_S) / (2.0 * AROUND_S)
    full = tokens / np.maximum(usage["value"].to_numpy(), 1e-3)
    since = float(preempted.filter(pl.col("value") > 0)["at_s"].to_numpy().min())
    told = (at > start.min() + AROUND_S) & (at < end.max() - float(np.percentile(end - start, 95.0)) - AROUND_S) & (usage["value"].to_numpy() > LEAST_USED)
    before, after = full[told & (at < since)], full[told & (at >= since)]
    return float(np.median(after) / np.median(before)) if min(len(before), len(after)) >= LEAST_SAMPLES else None


def _holding(calls: Calls) -> tuple[FloatArray, FloatArray, FloatArray]:
    """When calls held KV memory, and how many tokens of it."""
    n_in, out = calls.of("input_tokens"), calls.of("output_tokens")
    chosen = known(n_in, out, calls.scheduled_s, calls.last_s)
    return calls.scheduled_s[chosen], calls.last_s[chosen], (n_in + out / 2.0)[chosen]


def _series(case: Case, indicator: str) -> pl.DataFrame:
    """Mean of an indicator over the instances per sample time, in seconds after the case's origin."""
    origin_us = int(case.origin.timestamp() * 1e6)
    chosen = case.points.filter(pl.col("indicator") == indicator).group_by("time_us").agg(pl.col("value").mean()).sort("time_us")
    return chosen.with_columns(at_s=(pl.col("time_us") - origin_us) / 1e6)


def _diagnosis(case: Case, found: Pressure, claims: dict[str, float], shrunk: bool) -> Diagnosis:
    stage = case.worst("queue", "prefill", "decode")
    saved = sum(np.minimum(case.spent(name), ms) for name, ms in claims.items())
    smaller = f"; its capacity is {say_ratio(found.capacity_ratio)} of what it was" if shrunk and found.capacity_ratio is not None else ""
    fix = bound_fix(
        case, "kv", "Give the KV cache more room",
        "vLLM: --gpu-memory-utilization 0.95, --kv-cache-dtype fp8, a lower --max-model-len or --max-num-seqs; SGLang: --mem-fraction-static; "
        "check what else took GPU memory since the onset (another process, LoRA adapters, CUDA graphs).",
        "no request waits for blocks or is preempted", np.asarray(saved))
    return named(
        case, RULE, stage, claims,
        Action(
            "platform", "Lower --max-num-seqs, or send part of the traffic to other replicas, until preemptions stop.",
            "Restore the former limit once the cache has room.", fix),
        headline=f"KV usage stands at {say_ratio(found.usage)} and {found.preempted:.2f} preemptions come with a request{smaller}",
        because=f"the KV cache is full ({say_ratio(found.usage)}) and running requests are preempted{smaller}",
        evidence={**found._asdict(), "waiting_ms": say_ms(claims.get("queue", 0.0))},
        # The cache that fills up under the same work is a cause; without proof that it shrank it may be a consequence.
        weight=0.97 if shrunk else 0.8, amplifier=not shrunk)
