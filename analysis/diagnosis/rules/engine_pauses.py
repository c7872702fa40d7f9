"""engine_pauses: all running answers pause at the same moments, independent of prompts and lengths.

Detects
    Streams whose longest gap is many token times, while the pace between the gaps is unchanged. One clock
    predicts the pauses of each call, or calls that run at the same time share their longest gap. The pauses do
    not follow the prompts that are read meanwhile. Where gaps are not recorded: calls that wait for a first token
    get it at the same moment as the others that wait, and the answers that are written meanwhile lose as much time.

Why it hurts
    While the engine's process stands still, no answer gets a token. Reasons are garbage collection, an
    exhausted CPU quota, a checkpoint, or a scrape that holds a lock.

Evidence
    Length and period of the pauses, share of the calls with one, number of calls that one clock predicts (with
    its interval, and by chance), time lost per slow call, longest gap before, rank correlation with prompts.

Fix
    Find what stops the process at that period and take it out of the serving process. The gain gives answers their pace without the pauses: exact.

False alarms
    Prompts that are read in one piece pause all streams as well (`decode_stall`): pauses that follow prompts
    belong to that rule. A proxy that forwards several tokens at once shows gaps of one length too, but loses no
    time over the whole answer. A queue releases one call after the other, and a slow front end takes nothing from
    the answers that are written meanwhile.

Source
    A gap of five token times is a stall: published. One clock for 80 % of the calls, neighbours twice as often alike: by their Wilson intervals.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.engine_stops import Stops
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ms, say_ratio

RULE: Final = "engine_pauses"
STAGE: Final = "decode"
# Where the wait of a call is counted that comes while its engine stands still.
WAITS: Final = ("other", "network", "gateway", "queue", "prefill", "first_token")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the pauses with the gain of answers without them, None where streams do not stop together."""
    if case.stream_pauses is None and case.engine_stops is not None:
        return _by_waits(case, case.engine_stops)
    found = case.stream_pauses
    per_token = case.metric in ("tpot", "itl")
    if found is None or not (per_token or case.excess_ms(STAGE) > 0.0):
        return None
    more = case.excess_ms(STAGE)
    claims = {STAGE: more if per_token else min(more, found.paused_ms)}
    if not enough(case, claims):
        return None
    period = "" if found.every_s is None else f" every {found.every_s:.2g} s"
    what = f"all streams pause at the same time for {say_ms(found.length_ms)}{period}, independent of prompts"
    proof = (
        f"one clock predicts the pauses of at least {say_ratio(found.together[0])} of {found.n:,} calls"
        if found.every_s is not None
        else f"at least {say_ratio(found.together[0])} of the calls share their longest gap with a concurrent one ({say_ratio(found.by_chance)} by chance)"
    )
    saved = found.part_of_writing * case.spent(STAGE)
    return named(
        case,
        RULE,
        STAGE,
        claims,
        _action(case, np.where(case.breaching, saved, 0.0)),
        headline=f"{what}: {say_ms(found.paused_ms)} of a slow answer; {proof}; the longest gap was {say_ms(found.before_ms)} before",
        because=f"{what} ({say_ms(found.paused_ms)} of a slow answer)",
        evidence={**found._asdict(), "together": list(found.together)},
    )


def _by_waits(case: Case, found: Stops) -> Diagnosis | NotEnoughData | None:
    """Without times of tokens: calls that wait together, and answers that lose time meanwhile."""
    waiting = case.worst(*WAITS)
    claims = {
        waiting: min(case.excess_ms(waiting), found.waited_ms),
        STAGE: min(case.excess_ms(STAGE), found.lost_ms),
    }
    if not enough(case, claims):
        return None
    usual = {stage: case.tail.usual_ms(stage) for stage in claims}
    saved = sum(np.clip(case.spent(stage) - usual[stage], 0.0, found.length_ms) for stage in claims)
    what = f"the engine stands still for up to {say_ms(found.length_ms)} at a time"
    answer = named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        _action(case, np.where(case.breaching, saved, 0.0)),
        headline=f"{what}: {found.waited:,} calls wait and at least {say_ratio(found.at_once[0])} of neighbours go on at the same moment, and at least "
        f"{say_ratio(found.lost[0])} of the {found.met:,} answers that are written meanwhile lose as much (at most {say_ratio(found.lost_else)} of the others)",
        because=f"{what}: calls that wait go on at the same moment, and answers lose as much meanwhile",
        evidence={**found._asdict(), "at_once": list(found.at_once), "lost": list(found.lost)},
    )
    return in_stage(answer, STAGE)


def _action(case: Case, saved_ms: FloatArray) -> Action:
    return Action(
        "platform",
        "Send part of the calls to replicas that do not pause, if any. Restart one, which loses the calls that it runs, and check whether its pauses return at once or grow.",
        "Send them back.",
        bound_fix(
            case,
            "no_pauses",
            "Remove the cause of the pauses from the engine's process",
            "Check these at the moments of the pauses: garbage collection (Python: gc.freeze() after start and a higher threshold; JVM: its log), a CPU quota "
            "(cgroup cpu.stat nr_throttled), snapshots, scrapes or log writes that hold a lock, compaction of memory.",
            "tokens have the pace between the pauses all the time",
            saved_ms,
        ),
    )
