"""speculation_not_paying: speculative decoding drafts tokens that are not accepted, and costs more than it gains.

Detects
    The accepted share of draft tokens (or the accepted length) fell, and time per token rose with it at a batch
    and prefill load that do not explain it. Or nothing was drafted before, tokens are slower, and fewer than 30 %
    of the drafts are accepted. Without a baseline: the same while decode is slow.

Why it hurts
    Every refused draft was computed and verified without use. In large batches the verification itself takes
    capacity from other answers.

Evidence
    Acceptance now and before, accepted length if the engine reports it, time per token of slow and usual calls,
    the part of the slowdown that batch and prefill do not explain.

Fix
    Restore the accepted draft model if a step still yields clearly more than one token: without speculation
    tokens would be slower. Otherwise switch it off (at least above a batch size), or draft fewer tokens. Judge
    by the time per token on and off, or by accepted length against the draft's cost. No fixed line of 50 %
    holds: cheap drafts (n-grams) gain at 30 %. The gain gives tokens their former pace.

False alarms
    Other prompts (code instead of prose) have another acceptance rate without any fault. A larger batch lowers
    the gain by itself.

Source
    Mean accepted length against the draft's cost: Leviathan et al., ICML 2023. A fall of 10 points: own default. 30 %
    accepted gave +20 % latency and 70 % gave half in one published case.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import (
    Action,
    bound_fix,
    enough,
    in_stage,
    named,
    open_fix,
)
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH
from overrun.analysis.evidence.speculative_drafts import recorded_length
from overrun.analysis.evidence.thresholds import LEAST_PART, LONGER, MOST
from overrun.analysis.evidence.token_speed import decode_parts, same_batch_pace, slowdown
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "speculation_not_paying"
# Tokens a step from which a draft pays for itself: drafting and checking take some 15 % of a step, the default of the what-if.
PAYS: Final = 1.15
# Without a baseline: share of the draft tokens that is too few whatever drafting costs (published: 30 % accepted gave +20 % latency), and where only the
# tokens a step are told, the drafts of which it is that share: three are the fewest that engines propose by default.
TOO_FEW: Final = 0.3
FEWEST_DRAFTED: Final = 3


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the speculation that does not pay, None without it, or where acceptance or pace stayed."""
    now, before = case.gauge("spec_accept_rate"), case.gauge("spec_accept_rate", before=True)
    lengths = case.gauge("spec_accept_length"), case.gauge("spec_accept_length", before=True)
    if case.baseline is None:
        return _alone(case, now, lengths[0])
    scraped = len(case.gauge("running", before=True)) or len(
        case.gauge("kv_cache_usage", before=True)
    )
    if scraped and not len(before) and not len(lengths[1]):
        return _switched_on(case, now, lengths[0]) or _untold(case)
    relative = len(now) < 2 or len(before) < 2
    if relative:
        now, before = lengths
    if len(now) < 2 or len(before) < 2:
        return _untold(case) if not len(now) else None
    rate, was = float(now.mean()), float(before.mean())
    fell = (was - rate) / max(was, 1e-9) if relative else was - rate
    parts = decode_parts(case)
    if fell < LEAST_PART:
        return RuledOut(what=RULE, figure=f"acceptance is {rate:.2f}, {was:.2f} before")
    found = slowdown(case)
    if parts is None or found is None or found.slow_ms < MIN_GROWTH * found.usual_ms:
        return None
    speed = parts["speed"] if case.metric not in ("tpot", "itl") else case.excess_ms("decode")
    claims = {"decode": speed, "queue": case.excess_ms("queue")}
    if not enough(case, claims):
        return None
    said = (
        f"{rate:.2f} accepted tokens per step"
        if relative
        else f"{say_ratio(rate)} of the draft tokens are accepted"
    )
    said += f", {was:.2f} before" if relative else f", {say_ratio(was)} before"
    length = recorded_length(
        case.points.filter(pl.col("time_us") >= int(case.period.start.timestamp() * 1e6))
    )
    saved = case.spent("decode") * max(0.0, 1.0 - found.usual_ms / max(found.slow_ms, 1e-9))
    return named(
        case,
        RULE,
        "decode",
        claims,
        _action(case, length, saved),
        headline=f"{said}, and a token takes {say_ms(found.slow_ms)} instead of {say_ms(found.usual_ms)}",
        because=f"speculative decoding costs more than it gains: {said}",
        evidence={
            "accept_now": rate,
            "accept_before": was,
            "unit": "tokens a step" if relative else "ratio",
            "samples_now": len(now),
            "samples_before": len(before),
            "token_ms_slow": found.slow_ms,
            "token_ms_usual": found.usual_ms,
            "batch_ms": found.batch_ms,
            "prefill_ms": found.prefill_ms,
            "tokens_a_step": length or None,
            "deviation": float(np.std(now)),
        },
    )


def _too_few(rates: FloatArray, lengths: FloatArray) -> tuple[float, str, bool] | None:
    """The accepted share of drafts (or the tokens a step where only these are reported), in words, and whether it is too small whatever drafts cost."""
    relative = len(rates) < 2
    told, line = (lengths, 1.0 + TOO_FEW * FEWEST_DRAFTED) if relative else (rates, TOO_FEW)
    if len(told) < 2:
        return None
    rate = float(told.mean())
    said = (
        f"{rate:.2f} tokens come out of one step"
        if relative
        else f"{say_ratio(rate)} of the draft tokens are accepted"
    )
    return rate, said, rate < line


def _switched_on(
    case: Case, rates: FloatArray, lengths: FloatArray
) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Where engines drafted nothing before: so few accepted drafts that no step can gain by them, and slower tokens.

    A longer step delays all that waits for its end: prompts, calls in the queue, and calls that the engine has not taken up.
    """
    few, found = _too_few(rates, lengths), slowdown(case)
    if few is None or found is None:
        return None
    rate, said, useless = few
    if not useless or found.slow_ms < MIN_GROWTH * found.usual_ms:
        return RuledOut(what=RULE, figure=f"{said}, no drafts before")
    claims = {stage: case.excess_ms(stage) for stage in ("decode", "prefill", "queue")}
    claims["other"] = case.front_excess_ms
    if not enough(case, claims):
        return None
    saved = sum(
        np.clip(case.spent(stage) - case.tail.usual_ms(stage), 0.0, None)
        for stage, more in claims.items()
        if more > 0.0
    )
    what = f"{said}, and no tokens were drafted before"
    answer = named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        _action(case, 0.0, np.asarray(saved)),
        headline=f"{what}; a token takes {say_ms(found.slow_ms)} instead of {say_ms(found.usual_ms)}",
        because=f"speculative decoding costs more than it gains: {what}",
        evidence={
            "accept_now": rate,
            "accept_before": None,
            "token_ms_slow": found.slow_ms,
            "token_ms_usual": found.usual_ms,
        },
    )
    return in_stage(answer, "decode")


def _alone(
    case: Case, rates: FloatArray, lengths: FloatArray
) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Without a baseline: so few accepted drafts that no step can gain by them, where slow requests are slow in writing."""
    few, relative = _too_few(rates, lengths), len(rates) < 2
    if few is None:
        return None
    (rate, said, useless), told = few, lengths if relative else rates
    claims = {"decode": case.excess_ms("decode")}
    if not useless:
        return RuledOut(what=RULE, figure=said)
    if not enough(case, claims, MOST):
        return None
    pace = float(np.nanmedian(case.calls.token_ms)) if known(case.calls.token_ms).any() else 0.0
    length = recorded_length(
        case.points.filter(pl.col("time_us") >= int(case.period.start.timestamp() * 1e6))
    )
    fix = open_fix(
        "speculation_off",
        "Compare speculation on and off",
        "Run one replica without --speculative-config (SGLang: --speculative-algorithm), or with fewer draft tokens, and compare time per token on the same "
        "traffic.",
        "the acceptance rate of drafts stays as it is",
        "the time of a step without drafts is not recorded",
    )
    return named(
        case,
        RULE,
        "decode",
        claims,
        Action(
            "platform",
            "Restart one replica without speculation; the calls that it runs are lost.",
            "Restart with speculation.",
            fix,
        ),
        headline=f"{said}, and a token takes {say_ms(pace)} at the median; its time at another acceptance rate is not recorded",
        because=f"speculative decoding costs more than it gains: {said}",
        evidence={
            "accept_now": rate,
            "unit": "tokens a step" if relative else "ratio",
            "samples_now": len(told),
            "token_ms": pace,
            "tokens_a_step": length or None,
            "deviation": float(np.std(told)),
        },
    )


def _untold(case: Case) -> NotEnoughData | None:
    """Where nothing tells of drafts: what to record if tokens, not prompts, take longer at equal batch sizes."""
    if (
        case.calls_before is None
        or case.tail.share("decode") < MOST
        or case.clocks.lower
        or case.thinned
    ):
        return None
    pace = same_batch_pace(case.calls_before, case.calls)
    if pace is None or pace < LONGER:
        return None
    return NotEnoughData(
        f"tokens take {pace:.2f} times as long at equal batch sizes, and no metric of drafts was recorded. If the engine uses speculative decoding, scrape its  "
        "vllm:spec_decode_* (SGLang: spec_accept_length) metrics. Else compare its version, quantisation and sampling options with the former ones"
    )


def _action(case: Case, length: float, saved: FloatArray) -> Action:
    """What helps: another draft where a step still yields more tokens than drafting costs (`length`, 0 unknown), else none."""
    if length > PAYS:
        fix = bound_fix(
            case,
            "speculation_draft",
            "Restore a draft model that is accepted",
            f"A step still yields {length:.2f} tokens, so tokens would be slower without speculation, unless drafting costs more than "
            f"{say_ratio(length - 1.0)} of a step. Restore the draft model or head made for this target model and tokenizer, or draft fewer tokens "
            "(num_speculative_tokens 1-2).",
            "tokens have the pace of before the onset",
            saved,
        )
        return Action(
            "platform",
            "Roll back the draft model or the target that changed.",
            "Deploy the change again.",
            fix,
        )
    fix = bound_fix(
        case,
        "speculation_off",
        "Switch speculative decoding off",
        "Leave out --speculative-config (SGLang: --speculative-algorithm), or draft fewer tokens (num_speculative_tokens 1-2) and disable it above a batch "
        "size; compare time per token on and off on the same traffic.",
        "tokens have the pace of before the onset",
        saved,
        whatif="speculation",
        parameters={"enabled": "false"},
    )
    return Action(
        "platform",
        "Drain one replica and restart it without speculation. Continue with the others if its tokens are faster.",
        "Restart with speculation.",
        fix,
    )
