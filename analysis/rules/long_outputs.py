"""long_outputs: slow requests are slow because their answers are longer, not because tokens come slower.

Detects
    Decode (or unsplit generation) time that explains the excess through the number of output tokens at the usual
    speed.

Why it hurts
    Every output token is one pass of the engine: time grows in proportion to length, and long answers hold KV cache
    and batch slots that others wait for.

Evidence
    Excess of the stage split exactly into a length part (more tokens x usual time per token), a speed part (usual
    tokens x slower tokens) and a cross term; output tokens of slow and reference requests with Cliff's delta; share
    cut by max_tokens.

Fix
    Cap `max_tokens` near 1.5 x the typical length, ask for brevity, offer "show more"; route long work elsewhere. The
    gain shown cuts each recorded answer at the cap at its own speed: a bound, because the freed engine time is not
    modelled; `truncated_ratio` says how many answers it cuts.

False alarms
    A long tail of lengths alone is no problem (every lognormal has one): only the share of the excess counts. A new
    route with longer answers is a change of traffic: compare by route.

Source
    x_decode = n_out x TPOT, and at least half of the excess from length: own default. The cap: a published rule of
    thumb sets 300 where 200 tokens are typical. Effect size: Cliff, Psychological Bulletin 114 (1993).
"""

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from analysis.finding import (
    MIN_SHARE,
    SEED,
    Case,
    Diagnosis,
    Finding,
    Fix,
    NotEnoughData,
    say_ms,
    say_ratio,
    too_few_breaches,
)
from analysis.latency import FloatArray
from analysis.whatif.cap import cap

_STAGES: Final = ("decode", "generation")
# Cap over typical length: 300 tokens where 200 are typical (published rule of thumb).
CAP_OVER_TYPICAL: Final = 1.5
# Caps are set in round numbers; 16 tokens is the default KV block of vLLM, so a cap below a block saves no memory.
CAP_STEP: Final = 16
# Fewest requests with token counts on either side for means of them: as many as BubbleUp-style comparisons ask of the slow set.
MIN_TOKENS_N: Final = 5
# Cliff's delta from which lengths differ by more than chance would interest anyone: the usual mark of a small effect.
MIN_CLIFF: Final = 0.15
_RECHECK_S: Final = 600


class Parts(NamedTuple):
    """Excess of one stage in ms: length + speed + cross = total, exactly (before unknown token counts are dropped)."""

    length_ms: float
    speed_ms: float
    cross_ms: float
    tokens_tail: float
    tokens_reference: float
    token_ms_reference: float
    token_ms_tail: float


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the length cause with a cap and its bound, None when length explains less than half of the excess."""
    stage = max(_STAGES, key=case.tail.share)
    if case.metric not in ("e2e", "ttft") or case.tail.share(stage) < MIN_SHARE:
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    slow, excess_ms = _slow(case)
    parts = _split(slow, case.reference, stage, case.times.path)
    if parts is None:
        return NotEnoughData(
            f"{stage} explains {say_ratio(case.tail.share(stage))} of the excess but fewer than {MIN_TOKENS_N} slow or "
            f"{MIN_TOKENS_N} {case.tail.reference} requests carry output tokens: send gen_ai.usage.output_tokens "
            "(stream_options.include_usage when streaming)"
        )
    share = parts.length_ms / excess_ms
    delta = cliffs_delta(_tokens(slow), _tokens(case.reference))
    if share < MIN_SHARE or delta < MIN_CLIFF:
        return None
    return _diagnosis(case, stage, parts, min(1.0, share), delta)


def _slow(case: Case) -> tuple[pl.DataFrame, float]:
    """The slow requests whose lengths are looked at, and how many ms they take more than the reference on average.

    They are the band around the SLO percentile; where that holds too few (under 125 requests in the window), all that are over the limit.
    """
    band = case.tail.tail_index
    if len(band) >= MIN_TOKENS_N:
        return case.rows[band], case.tail.excess_total_ms
    over = np.flatnonzero(case.breaching)
    more = float(case.values[over].mean() - case.values[band].mean())
    return case.rows[over], case.tail.excess_total_ms + more


def cliffs_delta(slow: FloatArray, rest: FloatArray) -> float:
    """Return P(slow > rest) - P(slow < rest) over all pairs, -1..1; the effect size of the Mann-Whitney test."""
    ordered = np.sort(rest)
    less = np.searchsorted(ordered, slow, side="left")
    greater = len(ordered) - np.searchsorted(ordered, slow, side="right")
    return float((less - greater).sum() / (len(slow) * len(ordered)))


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


def _diagnosis(case: Case, stage: str, parts: Parts, share: float, delta: float) -> Diagnosis:
    interval = case.share_interval(stage)
    typical = float(np.median(_tokens(case.reference)))
    tokens = max(CAP_STEP, math.ceil(CAP_OVER_TYPICAL * typical / CAP_STEP) * CAP_STEP)
    slow = f"{parts.tokens_tail:,.0f} output tokens in slow requests and {parts.tokens_reference:,.0f}"
    usual = f"in {case.tail.reference} ones at {say_ms(parts.token_ms_reference)} a token"
    cut = case.rows["truncated"].mean() if case.rows["truncated"].null_count() < case.rows.height else None
    finding = Finding(
        rule="long_outputs",
        stage=stage,
        service=None,
        severity=case.severity(),
        confidence=round(min(0.95, share, interval[0] if interval else share), 2),
        headline=f"{slow} {usual}; length alone is {say_ratio(share)} of the excess",
        evidence={
            "n": len(case.values),
            "n_breaching": int(case.breaching.sum()),
            "n_tail": len(case.tail.tail_index),
            "n_reference": case.tail.reference_n,
            "reference": case.tail.reference,
            "share_of_excess": share,
            "stage_share_of_excess": case.tail.share(stage),
            "stage_share_of_excess_interval": interval,
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
        exemplars=case.exemplars(stage),
        fix=_fix(case, tokens, parts),
        reasons={"service": "the length of an answer is not one service's fault"},
    )
    return Diagnosis(
        finding=finding,
        explained_ratio=share,
        because=f"slow requests write {parts.tokens_tail:,.0f} tokens instead of {parts.tokens_reference:,.0f}",
        owner="app",
        mitigation=f"Set max_tokens={tokens} on the routes that allow it; a cut answer ends with finish_reason=length.",
        rollback="Restore the former max_tokens.",
        recheck_after_s=_RECHECK_S,
    )


def _fix(case: Case, tokens: int, parts: Parts) -> Fix:
    counts = case.rows["output_tokens"].cast(pl.Float64).fill_null(math.nan).to_numpy()
    limits = case.rows["max_tokens"].drop_nulls().to_numpy()
    now = f"max_tokens is up to {int(limits.max()):,} now. " if len(limits) else ""
    predicted = cap(
        case.times,
        counts,
        tokens,
        metric=case.metric,
        percentile=case.slo.percentile,
        rng=np.random.default_rng(SEED),
        generation_token_ms=parts.token_ms_reference,
    )
    return Fix(
        id="cap",
        title=f"Cap answers at max_tokens={tokens}",
        detail=f"{now}Set max_tokens={tokens} (1.5 x the typical length), ask for short answers in the prompt and "
        f"offer 'show more'. It cuts {say_ratio(predicted.cost['truncated_ratio'])} of the answers.",
        assumption="every token comes as fast as it did (engine time that shorter answers free is not counted)",
        method="exact",
        predicted=predicted,
    )
