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
    indicate the provider.

Source
    Minute effect after adjusting for input: published advice on provider queueing, no published threshold; a median 1.3
    times the former one or late calls that gather (dispersion above 3): own defaults.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.client_view import clustering, outside, spikes, uncounted
from overrun.analysis.evidence.load_response import unknown_load
from overrun.analysis.evidence.slower_tokens import MOST_EACH, slower_tokens
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "provider_queueing"
STAGES: Final = ("first_token", "generation")
MIN_RATIO: Final = 1.3
MIN_CLUSTER: Final = 3.0
# More of the calls refused (429) than before from which the endpoint says itself that it is full, whatever the calls ask of it; own default.
MIN_REFUSED: Final = 0.01
# Rank correlation of first tokens with the caller's own calls in flight from which they follow these; own default.
FOLLOWS: Final = 0.5
# Late: over the P95 of before.
LATE: Final = 95.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the provider's queue, None when first tokens come as before or an engine reports more."""
    stage = case.worst(*STAGES)
    if case.tail.share(stage) < 0.25 or case.own_engines > 0.5 if len(case.slow_calls) else True:
        return None
    found = outside(case)
    if found is None and case.calls_before is None:
        return _by_exclusion(case)
    if found is None:
        return NotEnoughData(
            "a later first token of the provider shows only against a baseline: widen the window to before the onset"
        )
    now, before = float(np.median(found.now_ms)), float(np.median(found.before_ms))
    late = found.now_ms > float(np.percentile(found.before_ms, LATE))
    gathered = clustering(found.start_s, late, case.kept)
    ratio = now / max(before, 1.0)
    what = "first tokens at equal prompts" if found.first_token else "whole calls of equal length"
    if ratio < MIN_RATIO and gathered < MIN_CLUSTER:
        return RuledOut(
            what=RULE,
            figure=f"{what} take {ratio:.2f} times as long, late ones cluster (dispersion {gathered:.1f})",
        )
    spiky = spikes(found)
    if (
        ratio < MIN_RATIO
        and spiky.any()
        and clustering(found.start_s, spiky, case.kept) < MIN_CLUSTER
        and spiky[late].mean() > 0.5
    ):
        return None
    # What longer prompts or a lost cache added to the first token is not the provider's: lengths are taken out of both sides.
    slow = np.isin(found.keys.view(np.uint64), case.slow["trace_key"].to_numpy().astype(np.uint64))
    more = (
        float(found.now_ms[slow].mean() - np.percentile(found.before_ms, LATE))
        if slow.any()
        else 0.0
    )
    each = max(more, now - before) * _calls_each(case, int(slow.sum()))
    claims = {
        stage: min(
            case.excess_ms(stage),
            each if found.first_token else case.excess_ms(stage) - slower_tokens(case),
        )
    }
    if not enough(case, claims):
        return None
    few = too_few_breaches(case) or unknown_load(
        case.own_load, case.kept, f"{what} take {ratio:.2f} times as long"
    )
    if few is not None:
        return few
    limit = case.tail.reference_ms.get(stage, 0.0)
    refused, refused_before = _refused(case.calls), _refused(case.calls_before)
    if not found.counted and refused - refused_before < MIN_REFUSED:
        return uncounted(
            found,
            f"{what} take {ratio:.2f} times as long (lengths not known), late ones cluster (dispersion {gathered:.1f})",
        )
    grown, load = case.demand, case.own_load
    pace = (
        case.mine.median("tpot_ms"),
        case.calls_before.median("tpot_ms") if case.calls_before is not None else None,
    )
    fix = bound_fix(
        case,
        "second_provider",
        "Fail over to a second provider",
        f"Time out the first token at {say_ms(2.0 * limit)} and send the call to a second provider or region; ask for reserved capacity; "
        "respect Retry-After. Plan for a P99 of that timeout plus the second provider's.",
        "the second provider's first token is as fast as the first one's was before",
        np.maximum(case.spent(stage) - limit, 0.0),
        cost={"failed_over_ratio": float((case.spent(stage) > 2.0 * limit).mean())},
        parameters={"after_ms": round(2.0 * limit, 3)},
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "provider",
            "Route part of the traffic to another provider, region or model deployment.",
            "Route back when first tokens are as fast as before.",
            fix,
        ),
        headline=f"{what} take {ratio:.2f} times as long (median {say_ms(before)} before, {say_ms(now)} now), "
        f"{'and late ones cluster in the same half-minutes' if gathered >= MIN_CLUSTER else 'at all times alike'} (dispersion {gathered:.1f}); "
        f"{say_ratio(refused)} of the calls were refused",
        because=f"the provider's {'first token takes' if found.first_token else 'calls take'} {ratio:.1f} times as long at the same "
        f"{'prompts' if found.first_token else 'lengths'}"
        if ratio >= MIN_RATIO
        else "the provider delays the calls of some minutes",
        evidence={
            "first_token_ms_before": before,
            "first_token_ms_now": now,
            "ratio": ratio,
            "late_ratio": float(late.mean()),
            "dispersion": gathered,
            "refused_ratio": refused,
            "tpot_ms_now": pace[0],
            "tpot_ms_before": pace[1],
            "ratio_at_equal_load": load.first_equal if load is not None else None,
        },
        # A request that asks more of the endpoint (longer calls, the same one again, beside more others) waits there as well: what made it ask comes first.
        driven=(grown is not None and grown.growth > MOST_EACH * grown.arrivals_ratio)
        or (load is not None and (load.waits if found.first_token else load.answers))
        or case.thinned,
        why_no_service="the wait is the provider's",
    )


def _calls_each(case: Case, slow_calls: int) -> float:
    """Calls that wait one after the other in a slow request (an agent's steps), at least 1: further ones than the reference makes are not the provider's."""
    here, there = (
        float(np.nan_to_num(rows["llm_calls"].cast(pl.Float64).fill_null(0.0).to_numpy()).mean())
        for rows in (case.slow, case.reference)
    )
    return max(1.0, slow_calls / max(case.slow.height, 1) * min(1.0, there / max(here, 1.0)))


def _refused(calls: Calls | None) -> float:
    """Return the share of calls that were refused for their rate."""
    if calls is None or not len(calls):
        return 0.0
    status = calls.frame["http_status"].fill_null(0).to_numpy() == 429
    kinds = calls.frame["error_type"].fill_null("").str.contains("(?i)rate.?limit|429").to_numpy()
    return max(float(status.mean()), float(kinds.mean()))


def _by_exclusion(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Without a baseline: first tokens that are late at equal prompts, not now and then alone, whatever the caller has out at that moment."""
    found = outside(case, alone=True)
    lacking = NotEnoughData(
        "a later first token of the provider shows only against a baseline: widen the window to before the onset"
    )
    if found is None or not found.first_token or case.tail.share("first_token") < 0.25:
        return lacking
    if not found.counted:
        return uncounted(found, "first tokens of slow requests are late")
    usual, spiky = float(np.median(found.now_ms)), spikes(found)
    chosen = ~case.calls.has_engine & known(case.calls.of("ttft_ms")) & case.calls.writers
    follows = (
        pl.DataFrame(
            {"load": case.calls.in_flight[chosen], "first": case.calls.of("ttft_ms")[chosen]}
        )
        .select(pl.corr("load", "first", method="spearman"))
        .item()
    )
    if follows is not None and follows > FOLLOWS:
        return RuledOut(
            what=RULE,
            figure=f"first tokens follow the number of your own calls in flight (rank correlation {follows:.2f})",
        )
    slow = (
        np.isin(found.keys.view(np.uint64), case.slow["trace_key"].to_numpy().astype(np.uint64))
        & ~spiky
    )
    late_ms = float(found.now_ms[slow].mean()) if slow.any() else 0.0
    claims = {
        "first_token": min(
            case.excess_ms("first_token"),
            max(0.0, late_ms - usual) * float(slow.sum()) / max(len(case.slow), 1),
        )
    }
    if not enough(case, claims):
        return lacking
    few = too_few_breaches(case)
    if few is not None:
        return few
    limit = case.tail.reference_ms.get("first_token", 0.0)
    fix = bound_fix(
        case,
        "second_provider",
        "Fail over to a second provider",
        f"Time out the first token at {say_ms(2.0 * limit)} and send the call to a second provider or region; ask for reserved capacity.",
        "the second provider's first token takes the usual time",
        np.maximum(case.spent("first_token") - limit, 0.0),
        cost={"failed_over_ratio": float((case.spent("first_token") > 2.0 * limit).mean())},
        parameters={"after_ms": round(2.0 * limit, 3)},
    )
    return named(
        case,
        RULE,
        "first_token",
        claims,
        Action(
            "provider",
            "Route part of the traffic to another provider, region or model deployment.",
            "Route back when first tokens are early again.",
            fix,
        ),
        headline=f"first tokens take {say_ms(late_ms)} in slow requests and {say_ms(usual)} at the median, at equal prompts and at any load; their time before is not recorded",
        because=f"first tokens of slow requests take {say_ms(late_ms)} instead of {say_ms(usual)}, and neither their prompts nor your own load explains that",
        evidence={
            "first_token_ms_late": late_ms,
            "first_token_ms_usual": usual,
            "load_correlation": follows,
            "spike_ratio": float(spiky.mean()),
        },
        why_no_service="the wait is the provider's",
    )
