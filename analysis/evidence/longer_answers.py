"""What do longer answers add? The time that the further tokens of slow requests take, and what the longer answers of all calls add to others.

A stage's excess is split exactly into a length part (more tokens at the usual pace), a speed part (usual tokens, more slowly) and a cross term. Of the length
part, reasoning, further calls and attempts that were given up are no answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.abandoned_work import wasted
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.prefill import knock_on
from overrun.analysis.evidence.reasoning_share import thought_part
from overrun.analysis.numbers.statistics.effect_size import MIN_CLIFF, cliffs_delta
from overrun.analysis.words.arrays import FloatArray

STAGES: Final = ("decode", "generation")
# Fewest requests with token counts on either side for means of them: as many as BubbleUp-style comparisons ask of the slow set.
MIN_TOKENS_N: Final = 5
# So many times as many calls must run at a time for their pace to be the longer answers' doing; own default.
MIN_FULLER: Final = 1.1


class Parts(NamedTuple):
    """Excess of one stage in ms: length + speed + cross = total, exactly (before unknown token counts are dropped)."""

    length_ms: float
    speed_ms: float
    cross_ms: float
    tokens_tail: float
    tokens_reference: float
    token_ms_reference: float
    token_ms_tail: float


def added_to_others(case: Case) -> dict[str, float]:
    """Return what the longer answers of all calls add to the waiting and the pace of each, in ms per stage.

    Longer answers of all calls keep the engine busy: a request that waits for it need not have a longer answer itself.
    """
    answer_part = max(0.0, 1.0 - thought_part(case) - _for_nobody(case))
    return {
        name: answer_part * ms
        for name, ms in knock_on(case, "output").items()
        if name != "decode" or _fuller(case)
    }


def own_length(case: Case) -> Mapping[str, float] | str:
    """Return what the further tokens of slow requests' own answers take, in ms per stage; why that is not known."""
    stage = case.worst(*STAGES)
    parts = split(case.slow, case.reference, stage, case.times.path)
    if parts is None:
        return f"fewer than {MIN_TOKENS_N} slow or {MIN_TOKENS_N} {case.tail.reference} requests carry output tokens"
    if cliffs_delta(tokens_of(case.slow), tokens_of(case.reference)) < MIN_CLIFF:
        return {}
    longer = min(parts.length_ms, _longest_grew(case, parts.token_ms_reference))
    return {stage: max(0.0, longer * _visible(case))}


def split(slow: pl.DataFrame, usual: pl.DataFrame, stage: str, path: str) -> Parts | None:
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
        sides.append((known[column].fill_null(0.0).to_numpy(), tokens_of(known)))
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


def tokens_of(rows: pl.DataFrame) -> FloatArray:
    """Return the output tokens of the requests that carry them."""
    return rows["output_tokens"].drop_nulls().cast(pl.Float64).to_numpy()


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
