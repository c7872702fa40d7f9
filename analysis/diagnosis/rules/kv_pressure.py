"""kv_pressure: the engine's KV cache is full, so requests wait for blocks, or lose them and start again.

Detects
    KV usage near its limit with preemptions that did not occur before, while the engine's work did not grow
    enough to explain it. Or KV memory that shrank, with preemptions or with prompts that are evicted from the
    prefix cache.

Why it hurts
    A sequence without a free block waits. A preempted one computes its prompt again. Both cost time on an
    engine that all requests share.

Evidence
    KV usage at P95 and preemptions per request before and now; KV capacity as the engine reports it, otherwise
    concurrent tokens over usage; growth of the engine's work; the excess in queue, prefill and decode.

Fix
    Enlarge the KV memory (--gpu-memory-utilization, --kv-cache-dtype fp8, KV offload, a smaller model beside
    it), limit the context (--max-model-len), run fewer sequences (--max-num-seqs) or more replicas. Without a
    simulation of the engine the gain is only bounded: no more waiting and no slower tokens than before.

False alarms
    A cache that is full of unreferenced blocks is no pressure: they count as free. Usage above 90 % alone predicts little:
    it was right 21 to 55 % of the time in simulation, so it is never enough here. More requests fill the cache too
    (`under_capacity`).

Source
    Preemptions in more than 1 % of requests, or a tenth more input to compute after the memory fell below 85 % of what it
    was, and at least a quarter of the excess: own defaults. KV memory is linear in the
    tokens held: bytes a token = 2 x layers x KV heads x head dimension x bytes.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.kv_cache import KV_FULL, OWN_FIGURE, SHRUNK, Pressure, pressure
from overrun.analysis.evidence.prefill import spread
from overrun.analysis.evidence.thresholds import FULLER, LEAST_PART
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "kv_pressure"
MIN_PREEMPTED: Final = 0.01
# Factor on the KV memory that is used if its size is not known; own default.
ROOM: Final = 1.5


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the full cache, None when it is not full or nothing waits for it."""
    if sum(case.tail.share(stage) for stage in ("queue", "prefill", "decode")) < 0.25:
        return None
    found = pressure(case)
    if found is None:
        return (
            NotEnoughData("no KV usage: scrape the engine's /metrics")
            if case.calls.has_engine.any()
            else None
        )
    rose = found.preempted - (found.preempted_before or 0.0)
    shrunk = found.capacity_ratio is not None and found.capacity_ratio < SHRUNK
    grown = case.demand
    # A cache that became too small shows first in what it no longer keeps: prompts are computed again before anything is preempted.
    full = rose >= MIN_PREEMPTED and (found.usage >= KV_FULL or shrunk)
    # Where answers are short beside prompts, who finds no room waits for it, and nobody is preempted.
    full = full or (
        shrunk
        and found.capacity_source == OWN_FIGURE
        and found.usage >= KV_FULL > (found.usage_before or 0.0)
    )
    if not full and not (shrunk and grown is not None and grown.lost_ratio >= LEAST_PART):
        return RuledOut(
            what=RULE,
            figure=f"KV usage P95 is {say_ratio(found.usage)}, {found.preempted:.2f} preemptions a request",
        )
    if grown is not None and grown.growth >= FULLER and not shrunk:
        return RuledOut(
            what=RULE,
            figure=f"the KV cache is full because the engine has {grown.growth:.2f} times as much work",
        )
    claims = {**spread(case, 1.0), "prefill": case.excess_ms("prefill")}
    if not enough(case, claims):
        return None
    return _diagnosis(case, found, claims, shrunk, 0.0 if grown is None else grown.lost_ratio)


def _more_room(found: Pressure) -> float:
    """By how much the KV memory has to grow to be what it was; half as much again if nothing shows it what it was."""
    known = found.capacity_ratio is not None and 0.0 < found.capacity_ratio < SHRUNK
    return round(1.0 / (found.capacity_ratio or 1.0), 3) if known else ROOM


def _diagnosis(
    case: Case, found: Pressure, claims: dict[str, float], shrunk: bool, lost: float
) -> Diagnosis:
    stage = case.worst("queue", "prefill", "decode")
    saved = sum(np.minimum(case.spent(name), ms) for name, ms in claims.items())
    smaller = (
        f"; its capacity is {say_ratio(found.capacity_ratio)} of the former one"
        if shrunk and found.capacity_ratio is not None
        else ""
    )
    again = (
        f"; {say_ratio(lost)} more input is computed again because the cache dropped it"
        if lost >= LEAST_PART
        else ""
    )
    suffers = (
        "and running requests are preempted"
        if found.preempted >= MIN_PREEMPTED
        else (
            "and prompts are evicted from it"
            if lost >= LEAST_PART
            else "and requests wait for free blocks"
        )
    )
    fix = bound_fix(
        case,
        "kv",
        "Enlarge the KV cache",
        "vLLM: --gpu-memory-utilization 0.95, --kv-cache-dtype fp8, a lower --max-model-len or --max-num-seqs; SGLang: --mem-fraction-static; "
        "check for other users of GPU memory since the onset (another process, LoRA adapters, CUDA graphs).",
        "no request waits for blocks or is preempted",
        np.asarray(saved),
        whatif="kv_size",
        parameters={"factor": _more_room(found)},
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            "Send part of the traffic to other replicas, or refuse it with 429 and Retry-After at the gateway, until preemptions stop: what is refused gets no answer.",
            "Send it back once the cache has free blocks.",
            fix,
        ),
        headline=f"KV usage stands at {say_ratio(found.usage)} and {found.preempted:.2f} preemptions come with a request{again}{smaller}",
        because=f"the KV cache is {'full' if found.usage >= KV_FULL else 'too small'} ({say_ratio(found.usage)} used), {suffers}{smaller}",
        evidence={
            **found._asdict(),
            "lost_tokens_ratio": lost,
            "waiting_ms": say_ms(claims.get("queue", 0.0)),
        },
        # The cache that fills up under the same work is a cause; without proof that it shrank it may be a consequence.
        driven=not shrunk,
    )
