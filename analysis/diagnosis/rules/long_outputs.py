"""long_outputs: slow requests have longer answers, not slower tokens.

Detects
    Decode (or unsplit generation) time that explains the excess through the number of output tokens at the
    usual pace. Or answers of all calls that became longer, so that other calls wait for the full engine.

Why it hurts
    Every output token is one pass of the engine: time grows in proportion to length. Long answers hold KV cache
    and batch slots that other requests wait for.

Evidence
    Excess of the stage split exactly into a length part (more tokens x usual time per token), a speed part (usual
    tokens x slower tokens) and a cross term; output tokens of slow and reference requests with Cliff's delta; share
    cut by max_tokens.

Fix
    Cap `max_tokens` near 1.5 x the typical length, ask for brevity, offer "show more"; route long work elsewhere. The
    gain shown cuts each recorded answer at the cap at its own speed: a bound, because the freed engine time is not
    modelled; `truncated_ratio` is the share of requests with a cut answer.

False alarms
    A long tail of lengths alone is no problem (every lognormal has one): only the share of the excess counts.
    Without a baseline that is not enough either, because at any slow pace the longest answers are the slow
    ones. Then answers must be cut by max_tokens. A second peak of lengths looks like a heavy tail, so that
    slower tokens fit as well and neither is sure; one peak names nothing. A new route with longer answers is a change of traffic: compare by route.

Source
    x_decode = n_out x TPOT, and at least a quarter of the excess from length: own default. The cap: a published rule of
    thumb sets 300 where 200 tokens are typical. Effect size: Cliff, Psychological Bulletin 114 (1993).
"""

import math
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.longer_answers import STAGES, Parts, split, tokens_of
from overrun.analysis.evidence.thresholds import LEAST_PART, MUCH_MORE
from overrun.analysis.numbers.latency.percentiles import MIN_N_INTERVAL
from overrun.analysis.numbers.statistics.effect_size import cliffs_delta
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.whatif.fixes.cap import cap
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_LISTED,
    SEED,
    Diagnosis,
    Fix,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "long_outputs"
# Cap over typical length: 300 tokens where 200 are typical (published rule of thumb).
CAP_OVER_TYPICAL: Final = 1.5
# Caps are set in round numbers; 16 tokens is the default KV block of vLLM, so a cap below a block saves no memory.
CAP_STEP: Final = 16


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the length cause with a cap and its bound, None when length explains too little of the excess."""
    stage = case.worst(*STAGES)
    if case.metric not in ("e2e", "ttft"):
        return None
    of_all, of_slow = case.facts["output"], case.facts["output_slow"]
    # Where answers of all calls are longer, a request waits whose own is not.
    lengthened = bool(of_all.clear) and enough(case, of_all.excess_ms)
    if case.tail.share(stage) < MIN_LISTED and not lengthened:
        return None
    parts = split(case.slow, case.reference, stage, case.times.path)
    if parts is None:
        return NotEnoughData(
            f"{stage} explains {say_ratio(case.tail.share(stage))} of the excess, but {of_slow.reasons['excess_total_ms']}: send gen_ai.usage.output_tokens "
            "(stream_options.include_usage when streaming)"
        )
    own = 0.0 if of_slow.clear is False else of_slow.excess_ms.get(stage, 0.0)
    others = of_all.excess_ms.get(stage, 0.0) if lengthened else 0.0
    claims = {**of_all.excess_ms, stage: own + others}
    if (own <= 0.0 and not lengthened) or not enough(case, claims):
        figure = f"{parts.tokens_tail:,.0f} output tokens in slow and {parts.tokens_reference:,.0f} in {case.tail.reference} requests"
        return RuledOut(what=RULE, figure=figure)
    delta = cliffs_delta(tokens_of(case.slow), tokens_of(case.reference))
    unseen = case.tail.reference != "baseline" and not cut_off(case.slow)
    if unseen and not lopsided(case.rows):
        return RuledOut(
            what=RULE, figure="lengths have one peak: at any pace the longest answers are slow"
        )
    return _diagnosis(
        case,
        stage if own > 0.0 else max(claims, key=lambda name: claims[name]),
        stage,
        parts,
        delta,
        claims,
        "every token takes longer than before, which shows in the longest answers first (what a token took before is not stored)"
        if unseen
        else "",
    )


def cut_off(slow: pl.DataFrame) -> bool:
    """Return whether max_tokens cut answers (column truncated) that would have run on."""
    cut = slow["truncated"].drop_nulls()
    return bool(len(cut)) and wilson(int(cut.sum()), len(cut), Z_ONE_SIDED)[0] > LEAST_PART


def lopsided(rows: pl.DataFrame) -> bool:
    """Return whether the lengths of answers (columns route, output_tokens) have a longer upper half than a lognormal: a second hump, or a heavy tail.

    Without a baseline, a slow pace for all shows in the longest answers as well. Neither says which of the two is new: between a hump of one answer in ten that is
    five times as long and a Pareto tail, no statistic of 1,000 lengths distinguishes."""
    told = [
        np.log(group["output_tokens"].to_numpy())
        for _, group in rows.filter(pl.col("output_tokens") > 0).group_by("route")
    ]
    around = [logs - np.median(logs) for logs in told if len(logs) >= MIN_N_INTERVAL[95.0]]
    if not around:
        return False
    # Upper over lower half on the log scale: 1 for a lognormal however wide.
    low, high = np.percentile(np.concatenate(around), [5.0, 95.0])
    return bool(high > -MUCH_MORE * low)


def _diagnosis(
    case: Case,
    stage: str,
    written: str,
    parts: Parts,
    delta: float,
    claims: dict[str, float],
    rather: str,
) -> Diagnosis:
    typical = float(np.median(tokens_of(case.reference)))
    tokens = max(CAP_STEP, math.ceil(CAP_OVER_TYPICAL * typical / CAP_STEP) * CAP_STEP)
    usual = f"in {case.tail.reference} ones at {say_ms(parts.token_ms_reference)} a token"
    cut = (
        case.rows["truncated"].mean()
        if case.rows["truncated"].null_count() < case.rows.height
        else None
    )
    said = f"{parts.tokens_tail:,.0f} output tokens in slow requests and {parts.tokens_reference:,.0f} {usual}"
    because = f"slow requests write {parts.tokens_tail:,.0f} tokens instead of {parts.tokens_reference:,.0f}"
    if stage != written:
        all_now, all_before = (
            side.mean("output_tokens") if side is not None else None for side in case.served
        )
        said = because = (
            f"answers of all calls have {all_now or 0.0:,.0f} tokens instead of {all_before or 0.0:,.0f}, so other requests wait for the engine"
        )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Set max_tokens={tokens} on the routes that allow it; a cut answer ends with finish_reason=length.",
            "Restore the former max_tokens.",
            _fix(case, tokens, parts),
            600,
        ),
        headline=said,
        because=because,
        evidence={
            "length_ms": parts.length_ms,
            "speed_ms": parts.speed_ms,
            "cross_ms": parts.cross_ms,
            "output_tokens_tail": parts.tokens_tail,
            "output_tokens_reference": parts.tokens_reference,
            "token_ms_reference": parts.token_ms_reference,
            "token_ms_tail": parts.token_ms_tail,
            "cliffs_delta": delta,
            "truncated_ratio_now": cut,
        },
        why_no_service="no single service decides the length of an answer",
        rather=rather,
    )


def _saved_by_calls(case: Case, tokens: int, token_ms: float) -> FloatArray:
    """Return what a cap on each call takes off the path of a request with several calls, in ms; NaN for one with a single call.

    Up to the first token the last call on the path is not counted: what it writes comes later. Calls that were not read save nothing.
    """
    sides = [case.calls] if case.calls_before is None else [case.calls, case.calls_before]
    calls = (
        pl.concat([side.frame for side in sides], how="vertical_relaxed")
        .filter(pl.col("on_path"))
        .unique(["trace_key", "start_s"])
    )
    if case.times.path == "ttft":
        calls = calls.filter(pl.col("start_s") < pl.col("start_s").max().over("trace_key"))
    cut = (pl.col("output_tokens") - tokens).clip(lower_bound=0)
    own = (
        pl.when(pl.col("ttft_ms").is_null())
        .then(token_ms)
        .otherwise((pl.col("e2e_ms") - pl.col("ttft_ms")) / (pl.col("output_tokens") - 1))
    )
    saved = calls.group_by("trace_key").agg(
        saved=pl.min_horizontal(cut * own, "e2e_ms").fill_null(0.0).fill_nan(0.0).sum()
    )
    rows = case.rows.select("trace_key", "llm_calls").join(
        saved, on="trace_key", how="left", maintain_order="left"
    )
    several: FloatArray = (
        rows.select(pl.when(pl.col("llm_calls") > 1).then(pl.col("saved").fill_null(0.0)))
        .to_series()
        .cast(pl.Float64)
        .fill_null(math.nan)
        .to_numpy()
    )
    return several


def _fix(case: Case, tokens: int, parts: Parts) -> Fix:
    counts = case.rows["output_tokens"].cast(pl.Float64).fill_null(math.nan).to_numpy()
    limits = case.rows["max_tokens"].drop_nulls().to_numpy()
    now = f"max_tokens is up to {int(limits.max()):,} now. " if len(limits) else ""
    some, calls_saved_ms = case.answered, _saved_by_calls(case, tokens, parts.token_ms_reference)
    predicted = cap(
        case.times.take(some),
        counts[some],
        tokens,
        metric=case.metric,
        percentile=case.slo.percentile,
        rng=np.random.default_rng(SEED),
        generation_token_ms=parts.token_ms_reference,
        calls_saved_ms=calls_saved_ms[some],
        limits_ms=np.broadcast_to(case.limits_ms, len(some))[some],
    )
    return Fix(
        id="cap",
        whatif="cap",
        parameters={"max_tokens": tokens},
        title=f"Cap answers at max_tokens={tokens}",
        detail=f"{now}Set max_tokens={tokens} (1.5 x the typical length), ask for short answers in the prompt and "
        f"offer 'show more'. It cuts answers of {say_ratio(predicted.cost['truncated_ratio'])} of the requests.",
        assumption="every token takes the same time as before (engine time that shorter answers free is not counted)",
        method="exact",
        predicted=predicted,
    )
