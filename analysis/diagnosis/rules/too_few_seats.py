"""too_few_seats: calls wait for a place in the engine's batch, and the engine has room for more.

Detects
    Calls that wait while the number that runs beside them is always the same (max_num_seqs), with KV blocks to spare; and of the time before, calls that ran
    beside more of each other and did not wait. Without a baseline, the same with less than half of the KV cache in use, said with less confidence.

Why it hurts
    The queue grows in front of an engine that is hardly used: more replicas cost machines, admitting less refuses users, and a setting would do.

Evidence
    How many run when a call waits, with the interval of how often; how many calls before ran beside more; KV usage; time per token now and before.

Fix
    Raise the limit to what ran before or what the arrivals take (vLLM --max-num-seqs, SGLang --max-running-requests): the queue goes and tokens share a
    larger batch, which the what-if simulates. As many times the replicas would do as well, at their cost.

False alarms
    Behind a full KV cache the number of tokens is what is always the same (`kv_pressure`). A limit on purpose keeps tokens quick: compare the
    time per token at both numbers. At the same limit more requests are `under_capacity`.

Source
    A real vLLM at 2 seats instead of 32: TTFT P95 of 41.5 s, 1.2 s with the seats back, at 0.2 % KV usage (2026-11-25). Intervals are Wilson's.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
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
    claims = {STAGE: case.excess_ms(STAGE)}
    if not enough(case, claims):
        return None
    found = case.seats
    if found is None:
        return None
    spare = found.kv_usage is not None and 2.0 * found.kv_usage < KV_FULL
    if not (found.shrank or (case.baseline is None and spare)):
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
    usual = case.tail.usual_ms(STAGE)
    answer = named(
        case,
        RULE,
        STAGE,
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
                np.maximum(case.spent(STAGE) - usual, 0.0),
                whatif="max_sequences",
                parameters={"sequences": to},
            ),
        ),
        headline=f"{what} ({found.waiting:,} calls, {say_ratio(found.flat[0])} of them and more){ran}",
        because=f"{what}{ran} (a token takes {say_ms(found.token_ms)})",
        evidence={**found._asdict(), "flat": list(found.flat), "proposed": to},
        weight=0.94 if found.shrank else 0.8,
        why_no_service="a limit of the engine's own",
    )
    return too_few_breaches(case) or replace(answer, brings=frozenset({"under_capacity"}))
