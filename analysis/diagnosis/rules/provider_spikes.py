"""provider_spikes: single calls take many times as long, at random, independent of their content.

Detects
    A few calls without engine telemetry (0.2 to 30 %) whose time is more than five times the usual one of their length,
    scattered independently over the window, while the median stayed where it was and the tokens of those few came at the
    pace of the others.

Why it hurts
    One call in a hundred that takes 30 s is the P99 of all requests. A request with several calls meets one
    more often.

Evidence
    Share of spikes, their median time over the usual one, their independence (dispersion, 1 if independent),
    the median now and before, and the time per token of the spikes over that of other calls of the same time.
    Without a baseline the other calls of the same period are the usual ones.

Fix
    Hedge: send a second call when the first one is late, take the faster and cancel the loser; or cut it with a timeout and a
    fallback. The gain shown cuts every call at the hedging delay plus a usual call: independence of the second one is
    assumed.

False alarms
    Spikes that come together are a queue (`provider_queueing`), and long answers are long because they are long: the length
    is taken out first. Calls that wait and are then written slowly, too, met a slow host or a busy one: a second call would
    meet the same (`token_rate_sag`, `huge_context`). Late calls right behind long prompts of the caller's own wait for those.
    Calls that are late for some tenants and not for others are not so at random: hosts or quotas of their own, or other prompts.
    Without token counts a late call may as well have had more to read or thought longer: then nothing is named.

Source
    Mixture with a gap, independent in time: own defaults. Hedging near P95 duplicates 5 % and cuts the P99 of a lognormal by
    12 to 45 % for sigma 0.6 to 1.2: computed.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.arrival_bursts import MIN_BURSTS
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.client_view import (
    SPIKE,
    Outside,
    clustering,
    outside,
    spikes,
    uncounted,
)
from overrun.analysis.evidence.hidden_reasoning import unsaid_thought
from overrun.analysis.evidence.late_at_random import behind_prompts, pace_ratio, whose_are_late
from overrun.analysis.evidence.load_response import huge_prompts
from overrun.analysis.evidence.thresholds import LONGER
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "provider_spikes"
STAGES: Final = ("first_token", "generation", "decode")
RARE: Final = (0.002, 0.3)


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the spikes, None when there are none, too many, or they come together."""
    stage = case.worst(*STAGES)
    if case.tail.share(stage) < 0.25 or not len(case.slow_calls) or case.own_engines > 0.5:
        return None
    found = outside(case, alone=True)
    if found is None:
        return None
    late = spikes(found)
    share, gathered = float(late.mean()), clustering(found.start_s, late, case.kept)
    ratio = float(np.median(found.now_ms) / max(float(np.median(found.before_ms)), 1.0))
    if not RARE[0] <= share <= RARE[1] or gathered > MIN_BURSTS or ratio > LONGER:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(share)} of the calls take five times as long and cluster (dispersion {gathered:.1f})",
        )
    pace = pace_ratio(case, found, late)
    other = _otherwise(case, found, late, pace)
    if other is not None:
        return other
    keys = pl.Series(found.keys[late].view(np.uint64)).cast(case.rows["trace_key"].dtype)
    hit, part = case.share_of_slow(keys)
    struck = hit[case.tail.tail_index]
    claims = {
        name: float(
            np.where(
                struck,
                case.spent(name)[case.tail.tail_index] - case.tail.reference_ms.get(name, 0.0),
                0.0,
            ).mean()
        )
        for name in STAGES
    }
    if not enough(case, claims):
        return None
    usual = float(
        np.percentile(
            found.before_ms[found.before_ms <= SPIKE * np.percentile(found.before_ms, 75.0)], 95.0
        )
    )
    limit = usual + float(np.median(found.before_ms))
    fix = bound_fix(
        case,
        "hedging",
        f"Hedge calls that have no first token after {say_ms(usual)}",
        f"Send a second call after {say_ms(usual)} (the usual P95: about 5 % duplicates), take the faster one and cancel the other. Use another deployment for it if there is one.",
        f"the second call takes the usual time, so no call waits longer than {say_ms(limit)}",
        np.where(hit, np.maximum(case.spent(stage) - limit, 0.0), 0.0),
        cost={"duplicated_ratio": float((found.now_ms > usual).mean())},
        whatif="hedging",
        parameters={"delay_ms": round(usual, 3)},
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Set a timeout of {say_ms(2.0 * limit)} on the call with a fallback answer or model.",
            "Remove the timeout again.",
            fix,
        ),
        headline=f"{say_ratio(share)} of the calls take {float(np.median(found.now_ms[late]) / np.median(found.before_ms)):.0f} times as long as usual, "
        f"scattered over the window (dispersion {gathered:.1f}); the median of the rest is {ratio:.2f} times the former one",
        because=f"{say_ratio(share)} of the provider's calls take {say_ms(float(np.median(found.now_ms[late])))} instead of "
        f"{say_ms(float(np.median(found.before_ms)))}, at random",
        evidence={
            "spike_ratio": share,
            "spike_ms": float(np.median(found.now_ms[late])),
            "usual_ms": float(np.median(found.before_ms)),
            "dispersion": gathered,
            "median_ratio": ratio,
            "pace_ratio": pace,
            "share_of_slow": part,
        },
        among=np.flatnonzero(case.breaching & hit),
        why_no_service="the spikes are the provider's",
    )


def _otherwise(
    case: Case, found: Outside, late: BoolArray, pace: float | None
) -> NotEnoughData | RuledOut | None:
    """Why late calls are not so at random, or cannot be called so; None where nothing speaks against it."""
    share = float(late.mean())
    if not found.counted:
        return uncounted(
            found,
            f"{say_ratio(share)} of the calls take five times as long as usual, at scattered times",
        )
    thought = unsaid_thought(case)
    if thought is not None:
        return RuledOut(
            what=RULE,
            figure=f"late calls count {thought.added:,.0f} more tokens before the first visible one: reasoning",
        )
    if pace is not None and pace > LONGER:
        return RuledOut(
            what=RULE, figure=f"the tokens of the late calls take {pace:.1f} times as long as well"
        )
    odds = behind_prompts(case, found, late)
    if odds is not None and odds.clear:
        return RuledOut(
            what=RULE,
            figure=f"late calls begin behind long prompts of the same caller (odds ratio {odds.ratio:.1f}, at least {odds.low:.1f})",
        )
    huge = huge_prompts(case.calls) if case.thinned else 0
    if huge:
        return NotEnoughData(
            f"{say_ratio(share)} of the calls take five times as long as usual; {huge} prompts are huge, and {say_ratio(case.kept)} of all are "
            "stored: whether late calls begin behind others of that size is not known. Keep every trace for some minutes"
        )
    whose = whose_are_late(case, found, late)
    if whose is not None:
        return RuledOut(
            what=RULE,
            figure=(
                f"{say_ratio(whose.most_late)} of {printable(whose.most)}'s calls are late and {say_ratio(whose.least_late)} of "
                f"{printable(whose.least)}'s: the spikes are not random"
            ),
        )
    return None
