"""small_chunks: the engine reads prompts in smaller pieces than before, so that each prompt takes more steps.

Detects
    Prefill that takes clearly longer for prompts of the same size, also for the quickest calls, while answers are written as fast as
    before at the same load.

Why it hurts
    A step of the engine reads at most one piece of a prompt, and it has a fixed cost. Half the tokens a step are twice the steps.
    First tokens come later, and prompts that arrive meanwhile wait for their turn.

Evidence
    Prefill at equal new tokens, now over before, with its interval; the same of the quickest quarter of the calls; time per token
    at equal load; whether longer prompts take more times as long than shorter ones.

Fix
    Restore the token budget of a step (vLLM: --max-num-batched-tokens, SGLang: --chunked-prefill-size). Answers that are written
    meanwhile then wait longer for a step that reads.

False alarms
    More prompts at a time share a step, but then the quickest calls are as quick as before. Lower clocks (`gpu_throttled`) slow
    reading more than writing. A cache that was lost (`prefix_cache_lost`) leaves more to read. Another build or attention kernel
    that reads more slowly looks alike unless longer prompts lose more: otherwise neither is sure.

Source
    vLLM, "Optimization and Tuning", chunked prefill: a smaller max_num_batched_tokens gives better ITL, a larger one better TTFT.
    Prefill 1.3 times as long: own default.
"""

import math
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import has_grown
from overrun.analysis.evidence.prefill import reading
from overrun.analysis.evidence.thresholds import LONGER, STEADY
from overrun.analysis.words.finding import Diagnosis, RuledOut

RULE: Final = "small_chunks"
STAGES: Final = ("prefill", "queue")


def diagnose(case: Case) -> Diagnosis | RuledOut | None:
    """Return the smaller pieces with the gain of the former ones, None without engine times or a baseline."""
    fact, found = case.facts["read_pace"], case.read_pace
    if found is None or case.excess_ms("prefill") <= 0.0:
        return None
    said = f"prompts of the same size take {found.ratio:.2f} times as long to read"
    written = case.facts["pace_equal_load"].change_interval
    alike = written is not None and written[1] < STEADY
    if not fact.clear or min(found.ratio, found.quick) < LONGER or not alike or case.clocks.lower:
        return RuledOut(what=RULE, figure=said)
    read, grown = reading(case), case.demand
    slower = read.speed_ms if read is not None and read.stage == "prefill" else 0.0
    claims = {"prefill": slower}
    if grown is None or not has_grown(grown):
        claims["queue"] = case.excess_ms("queue")
    else:
        part = math.log(found.ratio) / math.log(found.ratio * grown.growth)
        claims["queue"] = part * case.excess_ms("queue")
    if not enough(case, claims):
        return None
    usual = sum(case.tail.reference_ms.get(stage, 0.0) for stage in STAGES)
    now = sum(case.spent(stage) for stage in STAGES)
    fix = bound_fix(
        case,
        "chunked_prefill",
        "Restore the token budget of a step",
        "--max-num-batched-tokens 2048 or its former value (SGLang: --chunked-prefill-size). Steps that read take longer, so answers that are written meanwhile "
        "have longer gaps.",
        "prompts are read as fast as before",
        np.maximum(np.asarray(now) - usual, 0.0),
    )
    action = Action(
        "platform",
        "Drain one replica and restart it with the former budget: the others have less room meanwhile. Send long prompts there.",
        "Send them everywhere again.",
        fix,
    )
    return named(
        case,
        RULE,
        "prefill",
        claims,
        action,
        headline=f"{said} ({fact.change_interval[0]:.2f} to {fact.change_interval[1]:.2f}), and answers are written as before"
        if fact.change_interval
        else said,
        because=f"{said}, in more steps than before, while answers are written as fast as before",
        evidence={**found._asdict(), "pace_interval": written},
        why_no_service="all replicas read more slowly",
        rather=""
        if found.by_size
        else "the engine reads more slowly in steps of every size (another build or kernel)",
    )
