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
    ones. Then answers must be cut by max_tokens, or form a second peak of lengths; otherwise the cap is listed
    as an opportunity. A new route with longer answers is a change of traffic: compare by route.

Source
    x_decode = n_out x TPOT, and at least a quarter of the excess from length: own default. The cap: a published rule of
    thumb sets 300 where 200 tokens are typical. Effect size: Cliff, Psychological Bulletin 114 (1993).
"""

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, enough, named
from overrun.analysis.evidence.abandoned_work import wasted
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.prefill import knock_on
from overrun.analysis.evidence.reasoning_share import thought_part
from overrun.analysis.numbers.statistics.effect_size import MIN_CLIFF, cliffs_delta
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
_STAGES: Final = ("decode", "generation")
# Cap over typical length: 300 tokens where 200 are typical (published rule of thumb).
CAP_OVER_TYPICAL: Final = 1.5
# Caps are set in round numbers; 16 tokens is the default KV block of vLLM, so a cap below a block saves no memory.
CAP_STEP: Final = 16
# Fewest requests with token counts on either side for means of them: as many as BubbleUp-style comparisons ask of the slow set.
MIN_TOKENS_N: Final = 5
# Growth of the mean answer of all calls from which those wait for it whose own is no longer; own default, as for prompts.
MIN_GROWTH: Final = 1.2
# So many times as many calls must run at a time for their pace to be the longer answers' doing; own default.
MIN_FULLER: Final = 1.1
# Without a baseline every long tail looks like this; two things tell answers of another kind from the tail that all lengths have. Part of the slow requests'
# answers that max_tokens cut (they would have run on); own default.
MIN_CUT: Final = 0.1
# Upper over lower half of the lengths on the log scale (P95 - P50 over P50 - P5, within routes): 1 for a lognormal however wide; own default.
MIN_LOPSIDED: Final = 1.5
# Fewest requests of a route whose lengths have a P5 and a P95, as for the percentiles themselves.
MIN_OF_ROUTE: Final = 72


class Parts(NamedTuple):
    """Excess of one stage in ms: length + speed + cross = total, exactly (before unknown token counts are dropped)."""

    length_ms: float
    speed_ms: float
    cross_ms: float
    tokens_tail: float
    tokens_reference: float
    token_ms_reference: float
    token_ms_tail: float


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the length cause with a cap and its bound, None when length explains too little of the excess."""
    stage = case.worst(*_STAGES)
    if case.metric not in ("e2e", "ttft"):
        return None
    # Longer answers of all calls keep the engine busy: a request that waits for it need not have a longer answer itself.
    work, answer_part = case.demand, max(0.0, 1.0 - thought_part(case) - _for_nobody(case))
    busier = {
        name: answer_part * ms
        for name, ms in knock_on(case, "output").items()
        if name != "decode" or _fuller(case)
    }
    lengthened = work is not None and work.output_ratio >= MIN_GROWTH and enough(case, busier)
    if case.tail.share(stage) < MIN_LISTED and not lengthened:
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    parts = _split(case.slow, case.reference, stage, case.times.path)
    if parts is None:
        return NotEnoughData(
            f"{stage} explains {say_ratio(case.tail.share(stage))} of the excess, but fewer than {MIN_TOKENS_N} slow or "
            f"{MIN_TOKENS_N} {case.tail.reference} requests carry output tokens: send gen_ai.usage.output_tokens "
            "(stream_options.include_usage when streaming)"
        )
    delta = cliffs_delta(_tokens(case.slow), _tokens(case.reference))
    own = (
        min(parts.length_ms, _longest_grew(case, parts.token_ms_reference)) * _visible(case)
        if delta >= MIN_CLIFF
        else 0.0
    )
    claims = {**busier, stage: max(0.0, own) + (busier.get(stage, 0.0) if lengthened else 0.0)}
    if (own <= 0.0 and not lengthened) or not enough(case, claims):
        figure = f"{parts.tokens_tail:,.0f} output tokens in slow and {parts.tokens_reference:,.0f} in {case.tail.reference} requests"
        return RuledOut(what=RULE, figure=figure)
    usual = case.tail.reference != "baseline" and not of_another_kind(case.rows, case.slow)
    return _diagnosis(
        case,
        stage if own > 0.0 else max(claims, key=lambda name: claims[name]),
        stage,
        parts,
        delta,
        claims,
        usual,
    )


def of_another_kind(rows: pl.DataFrame, slow: pl.DataFrame) -> bool:
    """Return whether long answers (columns route, output_tokens, truncated) are more than the tail that lengths have: cut off at the limit, or a hump.

    Without it, a slow pace for all shows in the longest answers as well, and nobody knows which of the two is new."""
    cut = slow["truncated"].drop_nulls()
    if len(cut) and wilson(int(cut.sum()), len(cut), Z_ONE_SIDED)[0] > MIN_CUT:
        return True
    told = [
        np.log(group["output_tokens"].to_numpy())
        for _, group in rows.filter(pl.col("output_tokens") > 0).group_by("route")
    ]
    around = [logs - np.median(logs) for logs in told if len(logs) >= MIN_OF_ROUTE]
    if not around:
        return False
    low, high = np.percentile(np.concatenate(around), [5.0, 95.0])
    return bool(high > -MIN_LOPSIDED * low)


def _longest_grew(case: Case, token_ms: float) -> float:
    """Return by how much the longest answers became longer, in ms: of slow requests' own kinds (route, workload), as many as are slow, now against before.

    Those that are slow for another reason write more than most as well, but no more than the longest always did. Infinite where that is not known.
    """
    if case.calls_before is None:
        return math.inf
    slow = case.slow["trace_key"].implode()
    sides = [
        side.frame.group_by("trace_key")
        .agg(
            pl.col("output_tokens").sum(),
            pl.col("route", "workload").first(),
            n=pl.col("output_tokens").count(),
        )
        .filter(pl.col("n") > 0)
        for side in (case.calls, case.calls_before)
    ]
    grew = counted = 0.0
    for kind, now in sides[0].group_by("route", "workload"):
        theirs = int(now["trace_key"].is_in(slow).sum())
        before = sides[1].filter(
            pl.all_horizontal(
                pl.col(name).eq_missing(value)
                for name, value in zip(("route", "workload"), kind, strict=True)
            )
        )
        if theirs and min(now.height, before.height) >= MIN_CALLS:
            longest = [
                float(
                    side["output_tokens"]
                    .to_numpy()[np.argsort(-side["output_tokens"].to_numpy())][
                        : max(1, round(share * side.height))
                    ]
                    .mean()
                )
                for share in (theirs / now.height,)
                for side in (now, before)
            ]
            grew, counted = grew + theirs * (longest[0] - longest[1]), counted + theirs
    return max(0.0, grew / counted) * token_ms if counted else math.inf


def _visible(case: Case) -> float:
    """Return what part of the added tokens is answer: the rest is reasoning, or comes from further calls or from attempts that were given up."""
    (n1, r1), (n0, r0) = (_per_request(rows) for rows in (case.slow, case.reference))
    more = n1 - n0
    if more <= 0.0:
        return 1.0
    thought = max(0.0, r1 - r0)
    further = max(
        0.0,
        _by_further_calls(case, n0),
        _given_up(case.slow_calls, case.slow) - _given_up(case.usual_calls, case.reference),
    )
    return min(1.0, max(0.0, 1.0 - (thought + further) / more))


def _fuller(case: Case) -> bool:
    """Whether more calls run at a time: where no more do, longer answers slow nobody's pace but that of short ones beside them (`mixed_lengths`)."""
    sides = [
        calls.running[known(calls.running)]
        for calls in (case.calls, case.calls_before)
        if calls is not None
    ]
    return (
        len(sides) == 2
        and all(map(len, sides))
        and bool(sides[0].mean() > MIN_FULLER * sides[1].mean())
    )


def _for_nobody(case: Case) -> float:
    """Return what part (0..1) of the growth of all calls' output was written after clients had left (`missing_cancellation`)."""
    now, before = case.served
    n1, n0 = (None if side is None else side.mean("output_tokens") for side in (now, before))
    w1, w0 = (None if side is None else wasted(side) for side in (now, before))
    if n1 is None or n0 is None or n1 <= n0 or w1 is None:
        return 0.0
    return min(1.0, max(0.0, w1.tokens * n1 - (0.0 if w0 is None else w0.tokens) * n0) / (n1 - n0))


def _by_further_calls(case: Case, usual_tokens: float) -> float:
    """Return the output tokens of the calls that a slow request makes beyond a usual one's, each as long as the usual call of its model.

    What a model that is new writes a call counts up to a usual request's tokens: a side task's is short, a successor's writes no further answer.
    """
    now, before = (
        calls.frame.group_by("model").agg(
            calls=pl.len() / max(rows.height, 1),
            tokens=pl.col("output_tokens").mean().fill_null(0.0),
        )
        for calls, rows in ((case.slow_calls, case.slow), (case.usual_calls, case.reference))
    )
    both = now.join(
        before, on="model", how="full", coalesce=True, nulls_equal=True, suffix="_before"
    )
    tokens = pl.coalesce("tokens_before", pl.min_horizontal("tokens", pl.lit(usual_tokens)))
    return float(
        both.select(
            (
                (pl.col("calls").fill_null(0.0) - pl.col("calls_before").fill_null(0.0)) * tokens
            ).sum()
        ).item()
    )


def _given_up(calls: Calls, rows: pl.DataFrame) -> float:
    """Return the output tokens a request of failed calls: an engine writes on for who gave up, and the next attempt writes the answer again."""
    return float(np.nansum(calls.of("output_tokens")[calls.of("error") == 1.0])) / max(
        rows.height, 1
    )


def _per_request(rows: pl.DataFrame) -> tuple[float, float]:
    """Mean output and reasoning tokens of a request; many senders report reasoning only if there was some."""
    told = rows.filter(pl.col("output_tokens").is_not_null())
    means = told.select(
        pl.col("output_tokens", "reasoning_tokens").fill_null(0).cast(pl.Float64).mean()
    ).row(0)
    return float(means[0] or 0.0), float(means[1] or 0.0)


def _split(slow: pl.DataFrame, usual: pl.DataFrame, stage: str, path: str) -> Parts | None:
    """Split a stage's excess into length, speed and cross; None when token counts are missing.

    Decode: x = n x t with t = sum x / sum n of each side. Generation holds a part that does not depend on length, so
    t is the slope of time over tokens among the reference, and what length does not explain is left to speed.
    """
    column = f"ttft_{stage}_ms" if path == "ttft" else f"{stage}_ms"
    sides = []
    for rows in (slow, usual):
        known = rows.filter(pl.col("output_tokens") > 0)
        if known.height < MIN_TOKENS_N:
            return None
        sides.append((known[column].fill_null(0.0).to_numpy(), _tokens(known)))
    (x_tail, n_tail), (x_usual, n_usual) = sides
    more = float(n_tail.mean() - n_usual.mean())
    t_tail, t_usual = float(x_tail.sum() / n_tail.sum()), float(x_usual.sum() / n_usual.sum())
    if stage == "generation":
        slope = token_slope_ms(np.concatenate([x_tail, x_usual]), np.concatenate([n_tail, n_usual]))
        length = more * slope
        rest = float(x_tail.mean() - x_usual.mean()) - length
        return Parts(length, rest, 0.0, float(n_tail.mean()), float(n_usual.mean()), slope, slope)
    faster = t_tail - t_usual
    length, speed, cross = more * t_usual, float(n_usual.mean()) * faster, more * faster
    return Parts(length, speed, cross, float(n_tail.mean()), float(n_usual.mean()), t_usual, t_tail)


def token_slope_ms(time_ms: FloatArray, tokens: FloatArray) -> float:
    """Return the least-squares slope of time over tokens in ms per token, never below 0; 0 when lengths do not vary."""
    spread = float(((tokens - tokens.mean()) ** 2).sum())
    if spread == 0.0:
        return 0.0
    return max(0.0, float(((tokens - tokens.mean()) * (time_ms - time_ms.mean())).sum()) / spread)


def _tokens(rows: pl.DataFrame) -> FloatArray:
    return rows["output_tokens"].drop_nulls().cast(pl.Float64).to_numpy()


def _diagnosis(
    case: Case,
    stage: str,
    written: str,
    parts: Parts,
    delta: float,
    claims: dict[str, float],
    usual_tail: bool,
) -> Diagnosis:
    typical = float(np.median(_tokens(case.reference)))
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
        opportunity=usual_tail,
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
