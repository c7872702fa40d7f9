"""gateway_queue: calls wait between the application and the engine, in a proxy or in the engine's own front end.

Detects
    Gateway time (or the gap between client and engine) that grew and grows with the number of calls in flight, while the
    engine itself is no slower. Or time that the engine itself spent beside queue, prefill and decode, which is its front end's. Or a gap that follows
    the prompt tokens of the calls before, as behind one process that tokenises one call after the other.

Why it hurts
    A proxy with too few workers or connections queues in front of an idle engine, and no engine metric shows
    it. The engine's HTTP and tokenising process is such a proxy: its time is in none of queue, prefill and
    decode.

Evidence
    Gateway and network time of slow and reference requests, the gap between client and engine now and before, its rank
    correlation with the calls in flight, the engine's own queue. Of the front end: its work per call and per 1,000 prompt tokens, now and before, how well
    gaps follow it (rank correlation with its interval), and how busy that makes it.

Fix
    Raise the proxy's workers, connections or concurrency limit, or take it out of the path of streams. The gain gives back
    the former gateway time: exact.

False alarms
    A proxy that limits calls on purpose protects the engine: look at the engine's queue before you raise the
    limit. Calls that reach the engine only as others end are held by a limit: the callers' own
    (`client_throttled`) where they address the engine itself. A buffered stream is `not_streaming`.

Source
    Client minus engine gap with load: published signature; rank correlation above 0.3: own default. Work of a front end: a queue with one server (Lindley
    1952), rank correlation above 0.5 at the low end of its interval. vllm-project/vllm#10635, #25301.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.call_slots import Slots, asked_directly
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.front_end import FrontEnd, Inside
from overrun.analysis.evidence.network_gap import LONGER_GAP, engine_gaps, load_correlation
from overrun.analysis.evidence.prefill import LONGER_PROMPTS
from overrun.analysis.evidence.thresholds import FOLLOWS
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    Diagnosis,
    Fix,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "gateway_queue"
STAGES: Final = ("gateway", "network")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the proxy's queue with its gain, None when neither gateway nor gap grew with the load."""
    stages = (*STAGES, "other") if case.front_excess_ms > 0.0 else STAGES
    claims = {stage: case.excess_ms(stage) for stage in STAGES}
    claims["other"] = case.front_excess_ms
    grown = sum(claims.values())
    if grown <= 0.0 or not enough(case, claims):
        return None
    stops = case.engine_stops
    if stops is not None:
        return RuledOut(
            what=RULE,
            figure=f"{stops.waited:,} calls wait in front of the engine, and the answers that it writes meanwhile stand still as well",
        )
    gaps = engine_gaps(case)
    correlation = load_correlation(case.calls, gaps.now_ms) if gaps is not None else 0.0
    front = _front(case)
    if front is not None:
        correlation = max(correlation, front.correlation)
    gateway = case.excess_ms("gateway") > 0.5 * grown
    inside = case.front_inside if not gateway else None
    starved = inside if inside is not None and inside.grew else None
    if (
        not gateway
        and starved is None
        and (gaps is None or correlation < FOLLOWS or max(gaps.ratio, gaps.slow_ratio) < LONGER_GAP)
    ):
        return (
            RuledOut(
                what=RULE,
                figure=f"the gap in front of the engine follows the load (rank correlation {correlation:.2f})",
            )
            if gaps is not None
            else None
        )
    slots = None if gateway else case.call_slots
    if slots is not None and asked_directly(case):
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(slots.handed_ratio)} of the waiting calls reach the engine as another call ends: a limit holds them back",
        )
    stage = max(claims, key=lambda name: claims[name])
    usual = sum(case.tail.reference_ms.get(name, 0.0) for name in stages)
    now = sum(case.tail.tail_ms.get(name, 0.0) for name in stages)
    saved = np.maximum(sum(case.spent(name) for name in stages) - usual, 0.0)
    # The proxy where it has spans of its own; else the front end, where gaps follow its work.
    behind, starved = (None, None) if slots else (None if gateway else front, starved)
    own = _limit(slots) if slots else _starved(starved, case) if behind is None else _work(behind)
    said = own or (
        f"; the gap follows the calls in flight (rank correlation {correlation:.2f})"
        if gaps is not None
        else ""
    )
    fix = (
        _front_end_fix(case, saved)
        if behind or starved
        else bound_fix(
            case,
            "gateway_capacity",
            "Raise the proxy's capacity",
            "Raise its workers, connection pool and concurrency limit (LiteLLM: --num_workers, max_parallel_requests; nginx: keepalive, worker_connections), "
            "or call the engine directly. Check the engine's queue first: it must be able to serve the calls that the proxy holds back.",
            "the proxy forwards calls as fast as before",
            saved,
        )
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            "Send part of the calls to another replica, which costs a machine: each has a front end of its own."
            if behind or starved
            else "Add a replica of the proxy, or call the engine directly.",
            "Send them back." if behind or starved else "Remove the extra replica.",
            fix,
        ),
        headline=f"between application and engine a slow request spends {say_ms(now)}, a {case.tail.reference} one {say_ms(usual)}{said}",
        because=f"calls wait {say_ms(now)} in front of the engine, {say_ms(usual)} {case.when}{own}",
        evidence={
            "between_ms_slow": now,
            "between_ms_reference": usual,
            "gap_ms_now": gaps.median_ms if gaps else None,
            "gap_ms_before": gaps.before_ms if gaps else None,
            "load_correlation": correlation,
            "queue_ms_slow": case.tail.tail_ms.get("queue", 0.0),
            "front_end": None if behind is None else behind._asdict(),
            "front_end_inside": None if inside is None else inside._asdict(),
        },
    )


def _limit(slots: Slots) -> str:
    """That a limit holds the calls, as the rest of a sentence."""
    under_way = "" if slots.at_once is None else f", with {slots.at_once} under way"
    return f"; each goes on as another one ends{under_way}, as behind the limit of a proxy or of the callers' own connections"


def _front(case: Case) -> FrontEnd | None:
    """The front end's work where calls wait for that of others, or it takes longer of prompts that are no longer than before; a long prompt's own is its own."""
    found = case.front_end
    if found is None or found.waits:
        return found
    sides = [side.mean("input_tokens") for side in (case.calls, case.calls_before) if side]
    longer = len(sides) < 2 or None in sides or sides[0] > LONGER_PROMPTS * sides[1]  # type: ignore[operator]
    return None if longer else found


def _starved(inside: Inside | None, case: Case) -> str:
    """What the engine itself measured of its front end, as the rest of a sentence; empty without it."""
    if inside is None:
        return ""
    return (
        f"; the engine's front end (HTTP, tokenising, detokenising) takes {say_ms(inside.slow_ms)} of a call beside queue, prefill and decode, "
        f"{say_ms(inside.usual_ms)} {case.when}"
    )


def _work(front: FrontEnd | None) -> str:
    """How the front end works through calls, as the rest of a sentence; empty without it."""
    if front is None:
        return ""
    if front.token_ms <= 0.0:
        each = f"{say_ms(front.call_ms)} a call"
    else:
        before = (
            ""
            if front.token_ms_before is None
            else f", {say_ms(1e3 * front.token_ms_before)} before"
        )
        each = f"{say_ms(1e3 * front.token_ms)} per 1,000 prompt tokens{before}"
    return f"; its front end takes one call after the other ({each}), and the gap follows that work (rank correlation {front.correlation:.2f})"


def _front_end_fix(case: Case, saved: FloatArray) -> Fix:
    return bound_fix(
        case,
        "front_end_capacity",
        "Give the engine's front end more room",
        "Run more front-end processes (vLLM --api-server-count, SGLang --tokenizer-worker-num) and give them CPU cores of their own, use the fast tokenizer, "
        "or tokenise in the callers and send token ids; shorter prompts take it less.",
        "the front end passes calls on as fast as before",
        saved,
    )
