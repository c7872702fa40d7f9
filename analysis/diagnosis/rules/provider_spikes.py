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

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.client_view import (
    SPIKE,
    Outside,
    clustering,
    outside,
    spikes,
    uncounted,
)
from overrun.analysis.evidence.hidden_reasoning import unsaid_thought
from overrun.analysis.evidence.load_response import huge_prompts
from overrun.analysis.evidence.prefill_stalls import Odds, odds_ratio
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
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
# Dispersion up to which spikes count as independent; own default.
MOST_GATHERED: Final = 3.0
MOST_MEDIAN: Final = 1.3
# Time per token of the late calls over the usual one up to which only their wait was unlucky; own default, as for a sag.
MOST_PACE: Final = 1.3


# Tenants differ where the calls of one are late so many times as often as all, or as rarely, and chi-square is as rare as so many standard deviations,
# among those of whose calls as many would be late by chance; own defaults.
PREFERRED: Final = 2.0
CLEAR_FACTOR: Final = 4.0
LEAST_EXPECTED: Final = 5.0


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
    if not RARE[0] <= share <= RARE[1] or gathered > MOST_GATHERED or ratio > MOST_MEDIAN:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(share)} of the calls take five times as long and cluster (dispersion {gathered:.1f})",
        )
    pace = _pace(case, found, late)
    other = _otherwise(case, found, late, pace)
    if other is not None:
        return other
    keys = set(found.keys[late].view(np.uint64).tolist())
    hit = np.fromiter(
        (key in keys for key in case.rows["trace_key"].to_list()),
        dtype=np.bool_,
        count=case.rows.height,
    )
    part = float(hit[case.tail.tail_index].mean())
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
    few = too_few_breaches(case)
    if few is not None:
        return few
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
    if pace is not None and pace > MOST_PACE:
        return RuledOut(
            what=RULE, figure=f"the tokens of the late calls take {pace:.1f} times as long as well"
        )
    odds = _follow(case, found, late)
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
    whose = _whose(case, found, late)
    if whose is not None:
        return RuledOut(
            what=RULE,
            figure=(
                f"{say_ratio(whose.most_late)} of {printable(whose.most)}'s calls are late and {say_ratio(whose.least_late)} of "
                f"{printable(whose.least)}'s: the spikes are not random"
            ),
        )
    return None


def _follow(case: Case, found: Outside, late: BoolArray) -> Odds | None:
    """Return the odds of a late call behind many tokens that the caller had just sent to be read, against behind few; None below ten late ones.

    Just: within what a late call takes. Many: as rare as late calls are, so that where those alone are to blame all of them are late.
    """
    if int(late.sum()) < MIN_BREACHING:
        return None
    asked = case.calls.asked_before(float(np.median(found.now_ms[late])) / 1e3)
    keys = pl.Series(found.keys[late].view(np.uint64)).cast(case.calls.frame["trace_key"].dtype)
    theirs = case.calls.frame["trace_key"].is_in(keys.implode()).to_numpy() & ~case.calls.has_engine
    much = asked > np.quantile(asked, 1.0 - late.mean())
    return odds_ratio(theirs[much].astype(np.float64), theirs[~much].astype(np.float64))


class Whose(NamedTuple):
    """The tenants whose calls are late most and least often, and these shares (0..1)."""

    most: str
    most_late: float
    least: str
    least_late: float


def _whose(case: Case, found: Outside, late: BoolArray) -> Whose | None:
    """Return whom late calls strike and whom they spare, None where they strike all tenants alike within chance, or nobody says who asks."""
    mine = dict(zip(case.rows["trace_key"].to_list(), case.rows["tenant"].to_list(), strict=True))
    told = pl.DataFrame(
        {"tenant": [mine.get(key) for key in found.keys.view(np.uint64).tolist()], "late": late},
        schema_overrides={"tenant": pl.String},
    )
    usual = float(late.mean())
    sides = (
        told.drop_nulls("tenant")
        .group_by("tenant")
        .agg(pl.len().alias("n"), pl.col("late").mean().alias("share"))
        .filter(pl.col("n") * usual >= LEAST_EXPECTED)
        .sort("share", "tenant")
    )
    free = sides.height - 1
    if free < 1:
        return None
    n, shares = sides["n"].to_numpy().astype(np.float64), sides["share"].to_numpy()
    squares = float((n * (shares - usual) ** 2).sum()) / (usual * (1.0 - usual))
    if deviations(squares, free) < CLEAR_FACTOR or (
        shares[-1] < PREFERRED * usual and shares[0] * PREFERRED > usual
    ):
        return None
    return Whose(
        str(sides["tenant"][-1]), float(shares[-1]), str(sides["tenant"][0]), float(shares[0])
    )


def deviations(squares: float, free: int) -> float:
    """Return how many standard deviations of a normal are as rare as a chi-square of so many degrees of freedom, which is far from normal where these are few.

    Wilson and Hilferty, PNAS 17 (1931): its cube root is nearly normal.
    """
    spread = 2.0 / (9.0 * free)
    return (math.cbrt(squares / free) - (1.0 - spread)) / math.sqrt(spread)


def _pace(case: Case, found: Outside, late: BoolArray) -> float | None:
    """Median time per token of the late calls over that of the others of the same time, whatever slows all; None where fewer than ten of either show it."""
    keys = pl.Series(found.keys[late].view(np.uint64)).cast(case.calls.frame["trace_key"].dtype)
    theirs = case.calls.frame["trace_key"].is_in(keys.implode()).to_numpy()
    pace = case.calls.of("tpot_ms")
    sides = [
        pace[side & known(pace) & ~case.calls.has_engine & case.calls.writers]
        for side in (theirs, ~theirs)
    ]
    if min(len(side) for side in sides) < MIN_BREACHING:
        return None
    return float(np.median(sides[0]) / max(float(np.median(sides[1])), 1e-3))
