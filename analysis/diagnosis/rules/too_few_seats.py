"""too_few_seats: calls wait for a slot in the engine's batch although the engine has spare capacity.

Detects
    Calls that wait while the number of concurrent calls is always the same (max_num_seqs) and KV blocks are
    free. Before, more calls ran at once and did not wait. Without a baseline: the same with less than half of
    the KV cache in use, with a lower confidence. Where your own engine sends no spans (llama.cpp), the wait is
    what the first token of a call takes over the usual one.

Why it hurts
    The queue grows in front of an engine that is hardly used. More replicas cost machines and a lower admission
    limit refuses users, but a setting is enough.

Evidence
    The number of running calls when a call waits, with the interval of its frequency; the number of former
    calls that ran beside more; KV usage; time per token now and before.

Fix
    Raise the limit to the former number or to the number that the arrivals need (vLLM --max-num-seqs, SGLang
    --max-running-requests): the queue disappears and tokens share a larger batch, which the what-if simulates.
    As many times the replicas would help as well, at their cost.

False alarms
    With a full KV cache the number of tokens is constant (`kv_pressure`). A limit on purpose keeps tokens fast:
    compare the time per token at both numbers. More requests at the same limit are `under_capacity`.

Source
    A real vLLM at 2 seats instead of 32: TTFT P95 of 41.5 s, 1.2 s with the seats back, at 0.2 % KV usage (2026-11-25). Intervals are Wilson's.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.seats import KV_FULL
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_count,
    say_ms,
    say_ratio,
)

RULE: Final = "too_few_seats"
STAGE: Final = "queue"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the limit of seats with the gain of raising it, None where calls do not wait or for something else."""
    # Without spans of the engine a call waits within its first token.
    stage = STAGE if case.excess_ms(STAGE) else "first_token"
    claims = {stage: case.excess_ms(stage)}
    if not enough(case, claims):
        return None
    found = case.seats
    if found is None or found.by_caller != (stage != STAGE):
        return None
    spare = found.kv_usage is not None and 2.0 * found.kv_usage < KV_FULL
    # A limit that was there before as well is the cause where no more requests come; where they do, they are.
    arrivals = case.facts["arrivals"]
    more = bool(arrivals.clear) and (arrivals.change or 0.0) > 1.0
    if not (found.shrank or (spare and not more)):
        what = f"{found.seats} run when calls wait; {found.more:,} of {found.calm:,} calls before ran beside more"
        return RuledOut(what=RULE, figure=what)
    to = max(found.wanted, int(np.ceil(found.most_before or 0.0)), 2 * found.seats)
    to = 1 << (to - 1).bit_length()
    ran = (
        f"; before, {found.more:,} of {found.calm:,} calls ran beside more and did not wait"
        if found.calm
        else ""
    )
    kv = "" if found.kv_usage is None else f", KV usage is {say_ratio(found.kv_usage)} at most"
    what = f"the engine runs {say_count(found.seats, 'call')} at a time while others wait{kv}"
    usual = case.tail.usual_ms(stage)
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Restart the engine with {to} seats (vLLM --max-num-seqs {to}, SGLang --max-running-requests {to}); the calls that it runs are lost.",
            f"Restart it with {found.seats} seats.",
            bound_fix(
                case,
                "max_sequences",
                f"Run {to} sequences at a time instead of {found.seats}",
                f"--max-num-seqs {to}: no cost but a restart, and tokens that share a larger batch. {int(np.ceil(to / found.seats))} times the replicas give as "
                "many seats at that many times the cost; admitting less refuses calls that the engine could serve.",
                "tokens come about as fast in the larger batch",
                np.maximum(case.spent(stage) - usual, 0.0),
                whatif="max_sequences",
                parameters={"sequences": to},
            ),
        ),
        headline=f"{what} ({found.waiting:,} calls, {say_ratio(found.flat[0])} of them and more){ran}",
        because=f"{what}{ran} (a token takes {say_ms(found.token_ms)})",
        evidence={**found._asdict(), "flat": list(found.flat), "proposed": to},
        why_no_service="a limit of the engine's own",
    )
    return in_stage(answer, STAGE)
