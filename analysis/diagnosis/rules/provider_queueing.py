"""provider_queueing: the provider delays calls before their first token, for minutes, independent of their prompts.

Detects
    Calls to another company's model (no engine telemetry) whose time to first token rose at equal prompt length
    for most calls, or for most calls of some minutes, while tokens then have the former pace. 429 answers
    support it. Without a baseline: late first tokens that neither prompts, nor the caller's own load, nor rare
    spikes explain.

Why it hurts
    The depth of a provider's queue is invisible and follows its load, not yours: your prompts, caps and retries do not
    change it.

Evidence
    Time to first token corrected for prompt length, now and before; how strongly late calls cluster in the same
    minutes (dispersion, 1 if independent); time per token; share of 429 answers.

Fix
    Timeout and fail over to a second provider or region (the P99 to plan for is the timeout plus the other's latency),
    reserved capacity, moving batch work to other hours. The gain gives each call its former first token: a bound.

False alarms
    The application's own back-off and semaphores wait before the call, not in it (`client_throttled`). Rare
    single spikes are `provider_spikes`. From outside, queueing and slow prefill look alike; a lost cache shows
    in the cached tokens. Without token counts longer prompts look the same: then only refused calls (429)
    indicate the provider. Where more calls are made and first tokens come as before at equal load, a limit
    on the caller's own rate fits as well, and neither is sure.

Source
    Minute effect after adjusting for input: published advice on provider queueing, no published threshold; a median 1.3
    times the former one or late calls that gather (dispersion above 3): own defaults.
"""

from typing import Any, Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.arrival_bursts import MIN_BURSTS
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.client_view import Outside, clustering, outside, spikes, uncounted
from overrun.analysis.evidence.demand import MIN_GROWTH
from overrun.analysis.evidence.load_response import MORE, unknown_load
from overrun.analysis.evidence.refusals import refused_ratio
from overrun.analysis.evidence.slower_tokens import slower_tokens
from overrun.analysis.evidence.thresholds import FOLLOWS, LONGER
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import (
    MIN_LISTED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "provider_queueing"
LACKING: Final = NotEnoughData(
    "a later first token of the provider shows only against a baseline: widen the window to before the onset"
)
STAGES: Final = ("first_token", "generation")
# More of the calls refused (429) than before from which the endpoint says itself that it is full, whatever the calls ask of it; own default.
MIN_REFUSED: Final = 0.01
# Late: over the P95 of before.
LATE: Final = 95.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the provider's queue, None when first tokens come as before or an engine reports more."""
    stage = case.worst(*STAGES)
    if not len(case.slow_calls) or case.tail.share(stage) < MIN_LISTED or case.own_engines > 0.5:
        return None
    found = outside(case)
    if found is None and case.calls_before is None:
        return _by_exclusion(case)
    if found is None:
        return LACKING
    now, before = float(np.median(found.now_ms)), float(np.median(found.before_ms))
    latest = float(np.percentile(found.before_ms, LATE))
    late = found.now_ms > latest
    gathered, ratio = clustering(found.start_s, late, case.kept), now / max(before, 1.0)
    what = "first tokens at equal prompts" if found.first_token else "whole calls of equal length"
    said = f"{what} take {ratio:.2f} times as long"
    if ratio < LONGER and gathered < MIN_BURSTS:
        return RuledOut(what=RULE, figure=f"{said}, late ones cluster (dispersion {gathered:.1f})")
    if ratio < LONGER and _rather_spikes(case, found, late):
        return None
    # What longer prompts or a lost cache added to the first token is not the provider's: lengths are taken out of both sides.
    slow = _of_slow(case, found)
    more = float(found.now_ms[slow].mean() - latest) if slow.any() else 0.0
    each = max(more, now - before) * _calls_each(case, int(slow.sum()))
    most = each if found.first_token else case.excess_ms(stage) - slower_tokens(case)
    claims = {stage: min(case.excess_ms(stage), most)}
    if not enough(case, claims):
        return None
    unknown = unknown_load(case.own_load, case.kept, said)
    if unknown is not None:
        return unknown
    refused, refused_before = refused_ratio(case.calls), refused_ratio(case.calls_before)
    if not found.counted and refused - refused_before < MIN_REFUSED:
        dispersion = f"late ones cluster (dispersion {gathered:.1f})"
        return uncounted(found, f"{said} (lengths not known), {dispersion}")
    grown, load = case.demand, case.own_load
    takes, same = (
        ("first token takes", "prompts") if found.first_token else ("calls take", "lengths")
    )
    together = (
        "and late ones cluster in the same half-minutes"
        if gathered >= MIN_BURSTS
        else "at all times alike"
    )
    return _answer(
        case,
        stage,
        claims,
        headline=f"{said} (median {say_ms(before)} before, {say_ms(now)} now), {together} (dispersion {gathered:.1f}); "
        f"{say_ratio(refused)} of the calls were refused",
        because=f"the provider's {takes} {ratio:.1f} times as long at the same {same}"
        if ratio >= LONGER
        else "the provider delays the calls of some minutes",
        evidence={
            "first_token_ms_before": before,
            "first_token_ms_now": now,
            "ratio": ratio,
            "late_ratio": float(late.mean()),
            "dispersion": gathered,
            "refused_ratio": refused,
            "ratio_at_equal_load": load.first_equal if load is not None else None,
        },
        # A request that asks more of the endpoint (longer calls, the same one again, beside more others) waits there as well: what made it ask comes first.
        driven=(grown is not None and grown.growth > MIN_GROWTH * grown.arrivals_ratio)
        or (load is not None and (load.waits if found.first_token else load.answers))
        or case.thinned,
        rather=f"your own calls, {grown.arrivals_ratio:.1f} times as many, reach a limit of the endpoint (with as many in flight as before, a first token takes as long)"
        if grown is not None
        and grown.arrivals_ratio >= MORE
        and load is not None
        and found.first_token
        and load.waits
        else "",
    )


def _answer(case: Case, stage: str, claims: dict[str, float], **said: Any) -> Diagnosis:
    limit = case.tail.reference_ms.get(stage, 0.0)
    fix = bound_fix(
        case,
        "second_provider",
        "Fail over to a second provider",
        f"Time out the first token at {say_ms(2.0 * limit)} and send the call to a second provider or region; ask for reserved capacity; "
        "respect Retry-After. Plan for a P99 of that timeout plus the second provider's.",
        "the second provider's first token takes the usual time",
        np.maximum(case.spent(stage) - limit, 0.0),
        cost={"failed_over_ratio": float((case.spent(stage) > 2.0 * limit).mean())},
        parameters={"after_ms": round(2.0 * limit, 3)},
    )
    action = Action(
        "provider",
        "Route part of the traffic to another provider, region or model deployment.",
        "Route back when first tokens are as fast as before.",
        fix,
    )
    return named(
        case, RULE, stage, claims, action, why_no_service="the wait is the provider's", **said
    )


def _rather_spikes(case: Case, found: Outside, late: BoolArray) -> bool:
    """Return whether most late calls are single spikes at scattered times."""
    spiky = spikes(found)
    scattered = spiky.any() and clustering(found.start_s, spiky, case.kept) < MIN_BURSTS
    return bool(scattered and spiky[late].mean() > 0.5)


def _of_slow(case: Case, found: Outside) -> BoolArray:
    """Return which of the calls are slow requests' own."""
    return np.isin(found.keys.view(np.uint64), case.slow["trace_key"].to_numpy().astype(np.uint64))


def _calls_each(case: Case, slow_calls: int) -> float:
    """Calls that wait one after the other in a slow request (an agent's steps), at least 1: further ones than the reference makes are not the provider's."""
    here, there = (
        float(np.nan_to_num(rows["llm_calls"].cast(pl.Float64).fill_null(0.0).to_numpy()).mean())
        for rows in (case.slow, case.reference)
    )
    return max(1.0, slow_calls / max(case.slow.height, 1) * min(1.0, there / max(here, 1.0)))


def _by_exclusion(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Without a baseline: first tokens that are late at equal prompts, not now and then alone, whatever the caller has out at that moment."""
    found = outside(case, alone=True)
    if found is None or not found.first_token or case.tail.share("first_token") < MIN_LISTED:
        return LACKING
    if not found.counted:
        return uncounted(found, "first tokens of slow requests are late")
    usual, spiky = float(np.median(found.now_ms)), spikes(found)
    chosen = ~case.calls.has_engine & known(case.calls.of("ttft_ms")) & case.calls.writers
    follows = rank_correlation(case.calls.in_flight[chosen], case.calls.of("ttft_ms")[chosen])
    if follows > FOLLOWS:
        return RuledOut(
            what=RULE,
            figure=f"first tokens follow the number of your own calls in flight (rank correlation {follows:.2f})",
        )
    slow = _of_slow(case, found) & ~spiky
    late_ms = float(found.now_ms[slow].mean()) if slow.any() else 0.0
    more = max(0.0, late_ms - usual) * float(slow.sum()) / max(len(case.slow), 1)
    claims = {"first_token": min(case.excess_ms("first_token"), more)}
    if not enough(case, claims):
        return LACKING
    takes = f"take {say_ms(late_ms)}"
    return _answer(
        case,
        "first_token",
        claims,
        headline=f"first tokens {takes} in slow requests and {say_ms(usual)} at the median, at equal prompts and at any load; their time before is not recorded",
        because=f"first tokens of slow requests {takes} instead of {say_ms(usual)}, and neither their prompts nor your own load explains that",
        evidence={
            "first_token_ms_late": late_ms,
            "first_token_ms_usual": usual,
            "load_correlation": follows,
            "spike_ratio": float(spiky.mean()),
        },
    )
