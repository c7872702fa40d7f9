"""client_throttled: the application delays its own calls: a semaphore, a connection pool, or back-off after a refusal.

Detects
    Waiting inside the application before model calls that grew and explains the excess. It shows as spans named
    after a semaphore, pool, rate limit or back-off; as pauses between refused calls (429) and the next attempt;
    or as pauses that end when another call ends (a free slot); or as attempts that failed, quickly or for another
    model to be asked, with the pauses after them. Inside a call, if its HTTP requests have spans:
    the time before the first of them (a full connection pool), failed attempts, and the pauses after them
    (back-off within the SDK). Without such spans: calls of which the SDK counted several attempts, and waits in front of the engine that end as other calls end,
    where calls are addressed to the engines themselves.

Why it hurts
    The provider's dashboard shows fast calls while users wait: the time passes before the call begins.

Evidence
    Waiting spans per slow and reference request with their names, pauses after refused calls, time inside calls
    before the HTTP request that was answered, the number of calls that were refused at least once, and the
    highest number of concurrent HTTP requests.

Fix
    Raise the concurrency limit if the endpoint has spare capacity, ask for a higher quota, spread load over
    deployments, respect Retry-After instead of long exponential back-off, refuse early. The gain gives back the
    former waiting: exact.

False alarms
    A limit that protects an engine does its job: look at the engine's queue. Time after the last HTTP request
    inside a call is the provider's (`provider_queueing`). So is the whole call if no HTTP request has a span.

Source
    Gap before the client span, attempts, Retry-After: published signature; a quarter of the excess: own default.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.held_back import (
    FAILED,
    NO_PLACE,
    REFUSED,
    TRIED,
    Held,
    in_front,
    inside,
    refused_calls,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Diagnosis, say_ms

RULE: Final = "client_throttled"
# What to change for good, and at once, by what holds the calls back: a full pool, refusals, or a limit of another name.
_ADVICE: Final = {
    NO_PLACE: (
        "raise the client's connection pool (httpx.Limits(max_connections), the SDK's http_client), share one client per process, and close "
        "responses that are not read to their end; ",
        "Raise the limit of the client's connection pool, or start more instances.",
    ),
    REFUSED: (
        "ask for a higher quota, spread the load over deployments, or send less at a time; ",
        "Send part of the calls to another deployment, or fewer at a time.",
    ),
    FAILED: (
        "leave an endpoint that fails out for a while (a circuit breaker; LiteLLM: allowed_fails and cooldown_time, which a single deployment of a group needs), and "
        "try it fewer times before the fallback; ",
        "Send calls to the fallback first until the endpoint that fails answers again.",
    ),
}
_LIMIT: Final = (
    "raise the concurrency limit while the endpoint has spare capacity, ask for a higher quota or spread the load over deployments; ",
    "Raise the limit of concurrent calls, or switch to the other deployment.",
)


def diagnose(case: Case) -> Diagnosis | None:
    """Return the application's own brake with its gain, None when nothing waits in front of calls or within them."""
    front, within = in_front(case), inside(case)
    sides = [side for side in (front, within) if side.more_ms > 0.0]
    claims = {side.stage: side.more_ms for side in sides}
    if not sides or not enough(case, claims):
        return None
    main = max(sides, key=lambda side: side.more_ms)
    told = f" ({main.what})" if main.what else ""
    now_ms, usual_ms = (
        sum(getattr(side, name) for side in sides) for name in ("now_ms", "usual_ms")
    )
    refused, calls = refused_calls(case.tree)
    for_good, at_once = _advice(main)
    attempts = main.what in (REFUSED, FAILED, TRIED)
    fix = bound_fix(
        case,
        "client_limits",
        "Have fewer attempts refused or failed"
        if attempts
        else "Raise the application's own limit",
        f"Calls are held back{told or ' after refusals'}: {for_good}wait no longer than Retry-After, and refuse a call early if it would wait past its limit.",
        "calls wait inside the application no longer than before",
        np.sum([_saved_ms(case, side) for side in sides], axis=0),
    )
    where = (
        "inside the application in front of their calls"
        if main is front
        else "inside their calls, before the request that is answered reaches the provider"
    )
    counted = (
        f"{refused:,} of {calls:,} calls were refused at least once"
        if within.several is None
        else f"{within.several:,} of {calls:,} calls needed several attempts"
    )
    answer = named(
        case,
        RULE,
        main.stage,
        claims,
        Action("app", at_once, "Send them as before." if attempts else "Restore the limit.", fix),
        headline=f"slow requests wait {say_ms(now_ms)} {where}{told}, {case.tail.reference} ones {say_ms(usual_ms)}; {counted}",
        because=(
            f"calls lose {say_ms(now_ms)} in {main.what}"
            if attempts
            else f"the application holds its own calls back for {say_ms(now_ms)}{told}"
        )
        + (f"; {counted}" if refused or within.several else ""),
        evidence={
            "held_ms_slow": now_ms,
            "held_ms_reference": usual_ms,
            "held_inside_calls_ms_slow": within.now_ms,
            "refused_ratio": refused / max(calls, 1),
            "refused_calls": refused,
            "calls": calls,
            "most_at_once": main.at_once,
            "operation": main.what,
        },
    )
    # A call that waits for a connection of its client has left no span: its wait is recorded as the way to the engine.
    return in_stage(answer, "queue") if main is within and main.stage == "network" else answer


def _advice(held: Held) -> tuple[str, str]:
    what = held.what or ""
    if what.startswith(NO_PLACE):
        return _ADVICE[NO_PLACE]
    if what in (FAILED, TRIED):
        return _ADVICE[FAILED]
    return _ADVICE[REFUSED] if what == REFUSED else _LIMIT


def _saved_ms(case: Case, held: Held) -> FloatArray:
    saved: FloatArray = np.minimum(held.each_ms - held.usual_ms, case.spent(held.stage))
    return np.maximum(saved, 0.0).astype(np.float64)
