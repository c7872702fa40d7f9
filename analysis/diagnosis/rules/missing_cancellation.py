"""missing_cancellation: engines continue to write answers after their clients have left.

Detects
    Engine calls that continue after their client's call has ended (or was abandoned), or model calls that an
    application continues after the user has left the request. Tokens written afterwards are above 2 % of all
    tokens and more than before (than at first, if it grew within the baseline), and the engine is busier because of
    them.

Why it hurts
    Abandoned answers hold batch slots and KV memory to their end, and other users wait for them.

Evidence
    Share of calls that outlive their client, tokens written afterwards as a share of all, before and now, and the growth of
    time in queue and per token.

Fix
    Pass the cancellation on through every proxy: close the upstream request when the client disconnects (await
    request.is_disconnected, abort of the fetch). The gain takes the wasted share off the added waiting: a
    bound.

False alarms
    Clients that disconnect on purpose may still want the answer written. A wrong clock makes engine calls look
    longer, so durations are compared, not ends.

Source
    Wasted tokens above 2 %: published default; 3 s wasted per cancel: published case.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.abandoned_work import Waste, wasted
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.prefill import spread
from overrun.analysis.evidence.queue_growth import service_ms, wait_growth
from overrun.analysis.evidence.repeated_calls import more_attempts
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.evidence.thresholds import FULLER, MUCH_MORE
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ratio

RULE: Final = "missing_cancellation"
MIN_WASTED: Final = 0.02
# Part of the baseline's calls (one in so many) that tells how it began, and the fewest of them: a quarter of so many tells a share to a tenth; own defaults.
FIRST: Final = 3
MIN_FIRST: Final = 300


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the waste with its bound, None when engines stop with their clients or as before."""
    now = wasted(case.calls, case.tree)
    if now is None:
        return None
    before = _before(case.calls_before, case.tree_before) if case.calls_before is not None else None
    was = before.tokens if before is not None else 0.0
    if now.tokens < MIN_WASTED or now.tokens < MUCH_MORE * was:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(now.tokens)} of the tokens are written after the client left, {say_ratio(was)} before",
        )
    grown = case.demand
    if more_attempts(case):
        return None
    fits = _fits(case, now.tokens, was)
    busier = not fits and (grown is None or grown.arrivals_ratio >= FULLER)
    share = (
        now.tokens / (now.tokens + grown.arrivals_ratio - 1.0)
        if busier and grown is not None
        else 1.0
    )
    claims = {name: ms * share for name, ms in spread(case, 1.0).items()}
    if not enough(case, claims):
        return None
    held = sum(
        np.maximum(case.spent(name) - case.tail.reference_ms.get(name, 0.0), 0.0) * share
        for name in ("queue",)
    )
    fix = bound_fix(
        case,
        "cancellation",
        "Cancel the engine call when the client leaves",
        "Close the upstream stream on disconnect (Starlette: await request.is_disconnected(); OpenAI SDK: close the stream; proxies: propagate the abort); "
        "vLLM and SGLang stop a request whose connection closes.",
        "no engine time goes into abandoned answers",
        np.asarray(held),
        whatif="cancellation",
        parameters={},
    )
    found = named(
        case,
        RULE,
        case.worst("queue", "decode"),
        claims,
        Action(
            "app",
            "Lower max_tokens on the route with the most abandoned requests: abandoned answers end earlier, and long ones are cut.",
            "Restore max_tokens.",
            fix,
        ),
        headline=f"{say_ratio(now.tokens)} of the engine's tokens are written after the client left ({say_ratio(was)} before), by {say_ratio(now.calls)} of "
        "the calls",
        because=f"engines continue after clients have left: {say_ratio(now.tokens)} of their tokens reach no client",
        evidence={
            "wasted_token_ratio": now.tokens,
            "wasted_token_ratio_before": was,
            "outliving_calls_ratio": now.calls,
            "given_up_ratio": now.left,
        },
        # Where more clients leave than before, what makes them leave comes first.
        driven=busier or (before is not None and now.left > MUCH_MORE * before.left),
    )
    return found


def _before(calls: Calls, tree: Tree | None) -> Waste | None:
    """Return the waste of the baseline; where it grew within that, of its first part: it may lie in wait until the load rises, and what came before the
    harm wastes as much by then."""
    whole, first = wasted(calls, tree), Calls(calls.frame.head(max(MIN_FIRST, len(calls) // FIRST)))
    early = wasted(first, tree) if len(first) >= MIN_FIRST else None
    return (
        early
        if whole is not None and early is not None and MUCH_MORE * early.tokens <= whole.tokens
        else whole
    )


def _fits(case: Case, now: float, was: float) -> bool:
    """Return whether the engine would keep up with all that arrives, did it waste no more of its tokens than before: then the wait is the waste's, however
    many more come."""
    load = wait_growth(case.rows, service_ms(case.rows), case.every)
    return load is not None and load.offered_ratio * (1.0 - now) / (1.0 - was) <= 1.0
