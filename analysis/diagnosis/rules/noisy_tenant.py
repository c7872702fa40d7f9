"""noisy_tenant: one tenant's load slows the requests of all other tenants down.

Detects
    A tenant that sent most of the engine's added work and whose share of it rose, while requests of other
    tenants are among the slow ones.

Why it hurts
    Tenants share queue, batch and KV cache: many long prompts of one tenant delay all others.

Evidence
    The tenant's share of engine work before and now, its part of the added work, the share of slow requests that are other
    tenants', and the breach share with and without that tenant.

Fix
    A quota per tenant in tokens per second (not in requests), fair queueing between tenants, a separate replica
    for bulk work. The gain gives the other tenants' requests their former waits: a bound.

False alarms
    A tenant is judged by its effect on others. If only its own requests are slow because they are long, it is
    no noisy neighbour, unless other tenants' calls are clearly slower too. A small tenant that doubles is none
    either, unless that is most of the added work.

Source
    Most of the added work (half of it), a tenth of all former work (of its own, where the whole has not shrunk), 1.5 times its former share
    and three standard errors of conversations that come at random (compound Poisson): own defaults; comparing attribute shares in
    selection and rest: BubbleUp (Honeycomb). Quotas per tenant: published advice.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH
from overrun.analysis.evidence.load_response import SAME
from overrun.analysis.evidence.tenant_load import Noisy, noisiest
from overrun.analysis.evidence.thresholds import LEAST_PART, MOST, MUCH_MORE
from overrun.analysis.evidence.token_speed import slower_at_equal_load
from overrun.analysis.words.finding import (
    MIN_BREACHING,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ratio,
)
from overrun.analysis.words.timestamps import to_us

RULE: Final = "noisy_tenant"
# Share of slow requests that must be other tenants' for it to be a neighbour's noise, unless others' are slow half as often as its own; own default.
MIN_OTHERS: Final = 0.3


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the tenant that slows others, None when no tenant's work grew or only its own requests are slow."""
    found = noisiest(case)
    if found is None:
        return None
    grown = case.demand
    # What one tenant adds counts by itself where the whole has at least not shrunk: how much the others ask for varies by chance.
    enough_added = found.added >= MIN_GROWTH - 1.0
    more = (
        enough_added
        if grown is None
        else grown.growth >= MIN_GROWTH or (grown.growth > 1.0 and enough_added)
    )
    if (
        not more
        or (found.part_low if case.thinned else found.part) < MOST
        or found.share_now < max(LEAST_PART, MUCH_MORE * found.share_before)
    ):
        return RuledOut(
            what=RULE,
            figure=f"{printable(found.name)} sent most of the added work, {say_ratio(found.part)} of it",
        )
    if not found.clear:
        return RuledOut(
            what=RULE,
            figure=f"{printable(found.name)} has {say_ratio(found.share_now)} of the work, {say_ratio(found.share_before)} before: "
            "random arrivals of conversations vary as much",
        )
    slow = case.slow["tenant"]
    others = float((slow.fill_null("") != found.name).to_numpy().mean())
    if others < MIN_OTHERS and not _others_hit(case, found.name):
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(1.0 - others)} of the slow requests are {printable(found.name)}'s own",
        )
    claims = case.facts["tenant_share"].excess_ms
    pace = slower_at_equal_load(case, SAME)
    if pace is not None:
        return RuledOut(
            what=RULE,
            figure=f"tokens take {pace:.2f} times as long at equal batch sizes, with no more prompt tokens to read meanwhile",
        )
    if not enough(case, claims):
        return None
    return _diagnosis(case, found, others, claims)


def _others_hit(case: Case, name: str) -> bool:
    """Return whether other tenants' requests are slow about as often as this one's, and as many of them as a cause needs."""
    since = (case.rows["start_us"] >= to_us(case.period.start)).to_numpy()
    theirs = (case.rows["tenant"].fill_null("") == name).to_numpy()
    hit, own = (case.breaching[since & side] for side in (~theirs, theirs))
    return bool(int(hit.sum()) >= MIN_BREACHING and hit.mean() >= MOST * own.mean())


def _diagnosis(case: Case, found: Noisy, others: float, claims: dict[str, float]) -> Diagnosis:
    name = printable(found.name)
    theirs = (case.rows["tenant"].fill_null("") == found.name).to_numpy()
    stage = max(
        ("queue", "prefill", "decode", "first_token", "generation"),
        key=lambda one: claims.get(one, 0.0),
    )
    saved = sum(
        np.maximum(case.spent(one) - case.tail.reference_ms.get(one, 0.0), 0.0)
        for one in ("queue", "prefill", "first_token", "generation")
    )
    fix = bound_fix(
        case,
        "tenant_quota",
        f"Limit {name} to its former load",
        f"A quota in tokens per second for {name} at the gateway ({say_ratio(found.share_before)} of the work before, {say_ratio(found.share_now)} now), "
        "or weighted fair queueing between tenants.",
        "the other tenants wait no longer than before",
        np.where(theirs, 0.0, saved),
        cost={"limited_ratio": float(theirs.mean())},
        whatif="tenant_quota",
        parameters={
            "tenant": found.name,
            "share_ratio": round(max(_tokens_before(case, found), 0.01), 3),
        },
    )
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Rate-limit {name} at the gateway (429 with Retry-After) to its former tokens per second: what it sends beyond that is refused.",
            f"Lift the limit on {name}.",
            fix,
        ),
        headline=f"{name} has {say_ratio(found.share_now)} of the engine's work, {say_ratio(found.share_before)} before, which is {say_ratio(found.part)} of "
        f"what was added; {say_ratio(others)} of the slow requests belong to other tenants",
        because=f"{name} brings {say_ratio(found.share_now)} of the work, {say_ratio(found.share_before)} before, and other tenants' requests wait",
        evidence={
            "tenant": name,
            "share_before": found.share_before,
            "share_now": found.share_now,
            "part_of_added_work": found.part,
            "share_of_slow_by_others": others,
            "breach_ratio": float(case.breaching.mean()),
            "breach_ratio_without": float(case.breaching[~theirs].mean())
            if (~theirs).any()
            else None,
            "tenants": case.rows["tenant"].n_unique(),
        },
        among=np.flatnonzero(case.breaching & theirs),
    )
    return answer


def _tokens_before(case: Case, found: Noisy) -> float:
    """Return the tenant's share of all tokens before, which is what a quota counts; of the work where no call tells its tokens."""
    if case.calls_before is None:
        return found.share_before
    theirs = (case.calls_before.frame["tenant"].fill_null("") == found.name).to_numpy()
    tokens = np.nan_to_num(case.calls_before.of("input_tokens")) + np.nan_to_num(
        case.calls_before.of("output_tokens")
    )
    return float(tokens[theirs].sum() / tokens.sum()) if tokens.any() else found.share_before


def tenants(rows: pl.DataFrame) -> int:
    """Return how many tenants these requests name."""
    return rows["tenant"].drop_nulls().n_unique()
