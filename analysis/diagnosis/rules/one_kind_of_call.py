"""one_kind_of_call: calls of one kind wait, while other calls of the same time do not.

Detects
    Late calls that share a property of the request (a response format or schema, an adapter, tools or a tool
    choice, a model of the same engine) or what served it (a tier, a backend's fingerprint, a deployment), while calls of the same time without it are not late. The calls' own
    attributes show the property.

Why it hurts
    A step that only this kind needs delays it: a grammar that is compiled from a schema, an adapter that is
    loaded, a separate tier. Admitting fewer requests, or more replicas for all, costs the other calls something
    and does not help this kind.

Evidence
    The number of late calls of the kind and of the others, with the interval of the kind's share of late calls;
    the waits of both; the former waits of the kind.

Fix
    It depends on the kind: compile schemas early and keep them, use few different schemas, load adapters at
    start, or use a separate replica for the kind. The gain gives these calls the wait of the others: exact.

False alarms
    A kind with more to read or to write takes longer because of that: from a client alone it is not named then.
    Models on separate engines are not kinds of one engine. Late calls of one tenant are `noisy_tenant`.

Source
    Wilson intervals of both rates apart by a factor of two, most of the late calls: as for silences. Compile times of grammars: vllm-project/vllm#10785.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.call_kind import SERVED
from overrun.analysis.evidence.case import Case
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, printable, say_ms

RULE: Final = "one_kind_of_call"
# Where a call waits for what its kind needs; what it reads and writes is its own.
STAGES: Final = ("queue", "first_token", "generation", "network", "gateway")
_FIX: Final = {
    "response format": "Compile schemas early and keep them (one call of each at start, a larger grammar cache), use few different schemas, "
    "or another grammar backend (vLLM: xgrammar, llguidance).",
    "adapter": "Load the adapters at start and allow all of them in memory (vLLM --max-loras, --max-cpu-loras), or give them separate replicas.",
    "served tier": "Ask the provider why calls were served by another tier than they asked for: priority tiers have a limit of the rate at which traffic may rise, "
    "and a fallback beyond the reserved throughput. Raise traffic in steps, or reserve more.",
    "backend": "The provider serves these calls from another backend of the same model: send it the fingerprint, the region and the time.",
    "deployment": "Take this deployment out of rotation, or compare its region, quota and version with those of the others.",
    "model": "Allow all adapters of the engine in memory (vLLM --max-loras, --max-cpu-loras), or give this one a separate replica.",
}
_ELSE: Final = "Give this kind of call a separate replica or deployment, and compare its parameters with those of fast calls."


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the kind of call that waits with the gain of others' waits, None where late calls share none."""
    found = case.call_kind
    if found is None:
        return None
    hit, part = case.share_of_slow(found.traces)
    claims = case.facts["kind"].excess_ms
    if not enough(case, claims):
        return None
    stage, kind = case.worst(*STAGES), printable(found.label)
    what = f"{found.late:,} of {found.n:,} calls with {kind} are late, {found.other_late:,} of {found.other:,} others"
    told = f"{what} ({say_ms(found.late_ms)} instead of {say_ms(found.usual_ms)})"
    saved = np.where(hit, np.maximum(case.spent(stage) - case.tail.usual_ms(stage), 0.0), 0.0)
    advice = _FIX.get(found.family, _ELSE)
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Send these calls to another deployment or provider: {kind} serves them late, and others do not."
            if found.family in SERVED
            else f"Send calls with {kind} to a separate replica, which costs a machine, or send them without it if an answer is possible without.",
            "Send them back.",
            bound_fix(
                case,
                "kind_apart",
                f"Remove the wait of calls with {kind}",
                advice,
                "they wait no longer than the other calls",
                saved,
            ),
        ),
        headline=f"{told}; before, {found.before_late:,} of {found.before:,} calls of the kind",
        because=f"one kind of call waits: {told}",
        evidence={
            **{name: value for name, value in found._asdict().items() if name != "traces"},
            "share_of_slow": part,
        },
        among=np.flatnonzero(case.breaching & hit),
    )
