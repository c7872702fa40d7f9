"""one_kind_of_call: calls of one kind wait, and the others of the same time do not.

Detects
    Late calls that share what they ask for (a response format or schema, an adapter, tools or a tool choice, a model of the same engine), while calls that ask
    for something else at the same time are not late; by what their own attributes tell.

Why it hurts
    What only this kind needs holds it up: a grammar that is compiled from a schema, an adapter that is loaded, a tier of its own. Admitting less, or more
    replicas for all, makes the others pay and leaves it as it is.

Evidence
    How many calls of the kind and of the others are late, with the interval of the part of late calls that it is; what both wait; what the kind did before.

Fix
    By kind: compile schemas before they are needed and keep them, use few of them, load adapters at start, or give the kind a replica of its own. The gain
    gives these calls the wait of the others: exact.

False alarms
    A kind that has more to read or to write takes longer for that: from a client alone it is not named then. Models on engines of their own are no kinds
    of one engine. Late calls of one tenant are `noisy_tenant`.

Source
    Wilson intervals of both rates apart by a factor of two, most of the late calls: as for silences. Compile times of grammars: vllm-project/vllm#10785.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ms

RULE: Final = "one_kind_of_call"
# Where a call waits for what its kind needs; what it reads and writes is its own.
STAGES: Final = ("queue", "first_token", "generation", "network", "gateway")
_FIX: Final = {
    "response format": "Compile schemas before they are asked for and keep them (one call of each at start, a larger grammar cache), use few different ones, "
    "or another grammar backend (vLLM: xgrammar, llguidance).",
    "adapter": "Load the adapters at start and make room for all of them (vLLM --max-loras, --max-cpu-loras), or give them replicas of their own.",
    "model": "Make room for all adapters of the engine (vLLM --max-loras, --max-cpu-loras), or give this one a replica of its own.",
}
_ELSE: Final = "Give this kind of call a replica or deployment of its own, and compare what it asks for with the calls that are quick."


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the kind of call that waits with the gain of others' waits, None where late calls share none."""
    found = case.call_kind
    if found is None:
        return None
    hit = case.rows["trace_key"].is_in(found.traces.implode()).to_numpy()
    part = float(hit[case.tail.tail_index].mean())
    claims = {stage: part * case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return None
    stage, kind = case.worst(*STAGES), printable(found.label)
    what = f"{found.late:,} of {found.n:,} calls with {kind} are late, {found.other_late:,} of {found.other:,} others"
    told = f"{what} ({say_ms(found.late_ms)} instead of {say_ms(found.usual_ms)})"
    saved = np.where(hit, np.maximum(case.spent(stage) - case.tail.usual_ms(stage), 0.0), 0.0)
    advice = _FIX.get(found.family, _ELSE)
    few = too_few_breaches(case)
    return few or named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Send calls with {kind} to a replica of their own, or without it where an answer can do without.",
            "Send them back.",
            bound_fix(
                case,
                "kind_apart",
                f"Mend what calls with {kind} wait for",
                advice,
                "they wait as long as the other calls",
                saved,
            ),
        ),
        headline=f"{told}; before, {found.before_late:,} of {found.before:,} calls of the kind",
        because=f"one kind of call waits: {told}",
        evidence={
            **{name: value for name, value in found._asdict().items() if name != "traces"},
            "share_of_slow": part,
        },
        weight=0.93,
        among=np.flatnonzero(case.breaching & hit),
    )
