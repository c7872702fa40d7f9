"""token_rate_sag: the provider writes tokens more slowly than before.

Detects
    Time per output token up by 30 % and more at the same model for calls without engine telemetry, or tokens of the second
    half of an answer that come that much slower than those of the first half. Where no first token was seen, whole calls that
    take longer the more they write. Where only some calls are slow and the others
    keep their pace, a slow host stands behind them: what they waited for their first token is counted with it.

Why it hurts
    Decode is tokens x time per token: a provider that throttles slows every answer, and long ones most.

Evidence
    Time per token of slow and usual calls and over all calls now and before; how it differs between models of the provider; the
    odds of slow tokens where many prompt tokens are sent meanwhile; the part of the excess from speed, apart from length.

Fix
    Back off to the rate limit that the provider's headers state, another tier or deployment, shorter answers meanwhile. The
    gain gives every token its former pace.

False alarms
    For an engine of your own, other rules find the reason (batch, prefill, clocks). A changed model has its own
    pace (`model_changed`). Tokens that pause while the caller's own long prompts are read are a consequence of
    these: other causes are named first.

Source
    Ratio above 1.3 against the baseline: published advice to watch token-rate sag, own default for the factor.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.call_duration import whole_calls
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH
from overrun.analysis.evidence.load_response import unknown_load
from overrun.analysis.evidence.new_model import newcomer
from overrun.analysis.evidence.prefill_stalls import stall_odds
from overrun.analysis.evidence.provider_pace import overall_ratio, pooled, some_slow
from overrun.analysis.evidence.slower_tokens import slower_tokens
from overrun.analysis.evidence.thresholds import LONGER
from overrun.analysis.evidence.token_speed import decode_parts
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms

RULE: Final = "token_rate_sag"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the slower provider, None when tokens come as fast as before or an engine shows why."""
    if case.tail.share("decode") < 0.25 and case.metric != "tpot":
        return _whole(case) if case.tail.share("generation") >= 0.25 else None
    now, before = (
        side.where(~side.has_engine & known(side.of("tpot_ms")))
        for side in (case.slow_calls, case.usual_calls)
    )
    if min(len(now), len(before)) < 5 or case.own_engines > 0.5:
        return None
    slow_ms, usual_ms = pooled(now), pooled(before)
    everyone = overall_ratio(case)
    ratio = slow_ms / max(usual_ms, 1e-3)
    if ratio < LONGER or (everyone is not None and everyone < 1.0 + (LONGER - 1.0) / 3.0):
        return RuledOut(
            what=RULE,
            figure=f"a token takes {say_ms(slow_ms)} in slow and {say_ms(usual_ms)} in {case.tail.reference} requests",
        )
    parts = decode_parts(case)
    claims = {
        "decode": parts["speed"]
        if parts is not None
        else case.excess_ms("decode") * (1.0 - 1.0 / ratio)
    }
    some = some_slow(case, now, usual_ms)
    claims |= {"first_token": some * case.excess_ms("first_token")} if some else {}
    if case.metric in ("tpot", "itl"):
        claims = {"decode": case.excess_ms("decode")}
    if not enough(case, claims):
        return None
    grown = case.demand
    each = grown.growth / max(grown.calls_ratio, 1e-9) if grown is not None else 1.0
    odds = stall_odds(
        case.calls, np.where(case.calls.has_engine, np.nan, case.calls.asked_meanwhile), usual_ms
    )
    stalls = odds is not None and odds.clear
    if (
        stalls and odds is not None and case.baseline is None
    ):  # whether the endpoint lost its pace is not known, that one's own prompts cost it is
        return RuledOut(
            what=RULE,
            figure=f"tokens are slow while other prompts of your application are sent (odds ratio {odds.ratio:.1f})",
        )
    load = case.own_load
    filled = (
        load is not None and load.paced and not some
    )  # as fast as ever with as many calls in flight; of a sample nobody knows
    unknown = unknown_load(
        case.own_load,
        case.kept,
        f"a token takes {say_ms(slow_ms)} in slow calls and {say_ms(usual_ms)} in usual ones",
    )
    if unknown is not None:
        return unknown
    pace = np.nan_to_num(case.rows["tpot_ms"].fill_null(np.nan).to_numpy())
    saved = case.spent("decode") * np.maximum(0.0, 1.0 - usual_ms / np.maximum(pace, usual_ms))
    if some:
        waited = np.maximum(
            case.spent("first_token") - case.tail.reference_ms.get("first_token", 0.0), 0.0
        )
        saved += np.where(pace > LONGER * usual_ms, waited, 0.0)
    return named(
        case,
        RULE,
        "decode",
        claims,
        _action(case, usual_ms, saved),
        headline=f"a token takes {say_ms(slow_ms)} in slow calls and {say_ms(usual_ms)} in usual ones"
        + ("; most calls keep their pace, so some hosts are slow" if some else "")
        + (
            f", mostly while other prompts of your application are sent (odds ratio {odds.ratio:.1f}, {odds.low:.1f} to {odds.high:.1f})"
            if odds is not None and stalls
            else ""
        ),
        because=f"{'some hosts of ' if some else ''}the provider {'need' if some else 'needs'} {say_ms(slow_ms)} for a token, {say_ms(usual_ms)} {case.when}",
        evidence={
            "token_ms_slow": slow_ms,
            "token_ms_usual": usual_ms,
            "ratio": ratio,
            "ratio_of_all_calls": everyone,
            "slow_paced_of_slow": some,
            "prompt_odds_ratio": odds.ratio if odds is not None else None,
            "ratio_at_equal_load": load.pace_equal if load is not None else None,
        },
        # Calls that have more to read, prompts that stop the answers beside them, and another model slow the endpoint down as well: then what else is found
        # comes first.
        driven=each > MIN_GROWTH or stalls or filled or case.thinned or _replaced(case),
        why_no_service="the pace is the provider's",
    )


def _whole(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Where no first token was seen: whole calls that take longer the more they write, against what they took before."""
    found = whole_calls(case.calls_before, case.calls) if case.calls_before is not None else None
    if found is None or not len(case.slow_calls) or case.own_engines > 0.5:
        return None
    said = f"a token takes (over the whole answer) {say_ms(found.pace_now_ms)}, {say_ms(found.pace_before_ms)} {case.when}"
    if found.ratio < LONGER:
        return RuledOut(what=RULE, figure=said)
    claims = {"generation": min(case.excess_ms("generation"), slower_tokens(case))}
    if not enough(case, claims):
        return None
    tokens = case.rows["output_tokens"].fill_null(0).to_numpy().astype(np.float64)
    saved = np.minimum(
        case.spent("generation"), (found.pace_now_ms - found.pace_before_ms) * tokens
    )
    grown, load = case.demand, case.own_load
    each = grown.growth / max(grown.calls_ratio, 1e-9) if grown is not None else 1.0
    return unknown_load(case.own_load, case.kept, said) or named(
        case,
        RULE,
        "generation",
        claims,
        _action(case, found.pace_before_ms, saved),
        headline=said,
        because=f"the provider takes {say_ms(found.pace_now_ms)} for a token, {say_ms(found.pace_before_ms)} {case.when}",
        evidence={
            **found._asdict(),
            "ratio": found.ratio,
            "ratio_at_equal_load": load.whole_equal if load is not None else None,
        },
        driven=each > MIN_GROWTH
        or (load is not None and load.answers)
        or case.thinned
        or _replaced(case),
        why_no_service="the pace is the provider's",
    )


def _replaced(case: Case) -> bool:
    """Return whether a slower model took over: slow requests are then those that met its slowest tokens."""
    model = newcomer(case)
    return model is not None and model.replaced


def _action(case: Case, usual_ms: float, saved: FloatArray) -> Action:
    fix = bound_fix(
        case,
        "other_tier",
        f"Move to a tier or deployment with the {'former' if case.baseline is not None else 'usual'} pace",
        "Compare the rate-limit headers (x-ratelimit-remaining-tokens) with the pace, spread the load over deployments, ask for provisioned throughput.",
        f"a token takes {say_ms(usual_ms)} again",
        saved,
    )
    return Action(
        "provider",
        "Send part of the traffic to another deployment or model of equal quality; lower max_tokens meanwhile, and long answers are cut.",
        "Route back when the former pace is back.",
        fix,
    )
