"""huge_context: a few requests with enormous prompts delay all other requests.

Detects
    Rare prompts far longer than before (over the former P99 and six times the usual one). Other requests wait
    and write slow tokens while the engine reads them, more often than by chance.

Why it hurts
    Reading 30,000 tokens takes seconds of the engine, and their KV memory stays in use to the end. Every
    request behind it waits for all of it.

Evidence
    Number of huge prompts and their tokens, usual tokens, their reading time, and the share of the slow
    requests' time that overlaps with it, against the reference requests. Seen from a client, nearly all time
    overlaps: there, the part of the added work that huge prompts bring.

Fix
    A hard context limit, a separate replica for long documents, chunked prefill. The gain takes the overlapping
    time off the other requests: a bound.

False alarms
    If all prompts grew, there are no huge ones but `prompt_bloat`. A long prompt that is in the cache is not
    read. If the engine now reads every prompt in one piece, long ones delay others because of that
    (`decode_stall`).

Source
    Overlap of at least 30 % of the other requests' wait and stall with the reading: published default. Six
    times the usual tokens: own default.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.beside_huge import beside_huge, beyond_chance
from overrun.analysis.evidence.calls import MIN_CALLS, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import token_costs
from overrun.analysis.evidence.prefill_stalls import set_whole
from overrun.analysis.evidence.thresholds import MUCH_MORE
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "huge_context"
TIMES_USUAL: Final = 6.0
MOST_HUGE: Final = 0.05
# Where only some of the calls are stored, fewest huge ones among them that stand for the others; own default.
LEAST_OF_SAMPLE: Final = 3
STAGES: Final = ("queue", "prefill", "decode", "first_token")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the huge prompts with their bound, None when there are none or others do not wait for them."""
    calls = case.calls
    if len(calls) < MIN_CALLS or not known(calls.of("input_tokens")).any():
        return None
    usual = (
        case.calls_before
        if case.calls_before is not None and len(case.calls_before) >= MIN_CALLS
        else calls
    )
    typical, highest = (float(q) for q in np.nanpercentile(usual.new_tokens, [50.0, 99.0]))
    # Where all prompts grew, the longest of them are no huge ones: these stand apart from the others of their own time as well.
    today, whole = (
        float(np.nanpercentile(tokens, 100.0 * (1.0 - MOST_HUGE)))
        for tokens in (calls.new_tokens, calls.of("input_tokens"))
    )
    # Without a baseline the P99 may be a huge one itself: they are measured by those of which there may be no more.
    line = max(
        TIMES_USUAL * max(typical, 1.0),
        MUCH_MORE * (max(highest, today) if usual is not calls else today),
    )
    # A prompt of usual length that the cache lost is no huge one.
    longest = (
        max(float(np.nanpercentile(usual.of("input_tokens"), 99.0)), whole)
        if usual is not calls
        else whole
    )
    huge = (calls.new_tokens > line) & (calls.of("input_tokens") > MUCH_MORE * longest)
    if int(huge.sum()) < (LEAST_OF_SAMPLE if case.thinned else 1) or huge.mean() > MOST_HUGE:
        return RuledOut(
            what=RULE, figure=f"{int(huge.sum())} prompts with more than {line:,.0f} new tokens"
        )
    beside = beside_huge(calls, huge, token_costs(usual)[0])
    keys = calls.frame["trace_key"]
    slow = calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy() & ~huge
    own = case.slow["trace_key"].is_in(keys.filter(pl.Series(huge)).implode()).to_numpy()
    if not slow.any():
        return RuledOut(what=RULE, figure="the slow requests are the ones with huge prompts")
    # Of a sample as few of the huge ones are known as of all.
    part = min(
        1.0,
        beyond_chance(calls, beside, slow, huge, keys)
        / case.kept
        / max(sum(case.excess_ms(stage) for stage in STAGES), 1.0),
    )
    part = part * float((~own).mean()) + float(own.mean())
    claims = {stage: part * case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(part)} of the slow requests' added time overlaps with {int(huge.sum())} huge prompts",
        )
    if set_whole(case):
        return RuledOut(
            what=RULE,
            figure=f"{int(huge.sum())} huge prompts, but the engine now reads every prompt in one piece while other requests wait",
        )
    return _diagnosis(case, huge, beside, line, typical, part, claims, float(own.mean()))


def _diagnosis(
    case: Case,
    huge: BoolArray,
    beside: FloatArray,
    line: float,
    typical: float,
    part: float,
    claims: dict[str, float],
    own: float,
) -> Diagnosis:
    calls = case.calls
    size = float(np.median(calls.new_tokens[huge]))
    reading = np.where(
        np.isnan(calls.of("prefill_ms")), calls.of("ttft_ms"), calls.of("prefill_ms")
    )[huge]
    took = (
        float(np.nanmedian(reading))
        if known(reading).any()
        else float(np.median(calls.of("e2e_ms")[huge]))
    )
    frame = (
        pl.DataFrame({"trace_key": calls.frame["trace_key"], "ms": beside})
        .group_by("trace_key")
        .agg(pl.col("ms").sum())
    )
    saved = (
        case.rows.select("trace_key")
        .join(frame, on="trace_key", how="left", maintain_order="left")["ms"]
        .fill_null(0.0)
        .to_numpy()
    )
    busy = sum(
        np.maximum(case.spent(stage) - case.tail.reference_ms.get(stage, 0.0), 0.0)
        for stage in STAGES
    )
    limit = int(np.ceil(line / 1024.0)) * 1024
    fix = bound_fix(
        case,
        "context_limit",
        f"Refuse or reroute prompts above {limit:,} tokens",
        f"Set a context limit (vLLM --max-model-len, SGLang --context-length, or at the gateway) "
        f"of {limit:,} tokens, or send longer prompts to a separate replica. Chunked prefill lets other requests run in between.",
        "other requests no longer run beside huge prompts",
        np.minimum(saved, np.asarray(busy)),
        cost={"rerouted_ratio": float(huge.mean())},
        whatif="context_limit",
        parameters={"max_input_tokens": limit},
    )
    stage = max(
        ("queue", "prefill", "decode", "first_token"),
        key=lambda one: min(claims[one], case.excess_ms(one)),
    )
    mine = np.flatnonzero(
        case.rows["trace_key"]
        .is_in(calls.frame["trace_key"].filter(pl.Series(huge)).implode())
        .to_numpy()
    )
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Reject prompts above {limit:,} tokens on interactive routes with a clear error: {say_ratio(float(huge.mean()))} of the calls are refused.",
            "Remove the limit once such prompts have a separate replica.",
            fix,
        ),
        headline=f"{int(huge.sum())} prompts of about {size:,.0f} new tokens ({typical:,.0f} usual) are read for {say_ms(took)} each, and "
        f"{say_ratio(part)} of the slow requests' extra time falls into that reading",
        because=f"{int(huge.sum())} prompts of about {size:,.0f} tokens delay other requests",
        evidence={
            "huge_calls": int(huge.sum()),
            "huge_ratio": float(huge.mean()),
            "new_tokens_huge": size,
            "new_tokens_usual": typical,
            "line": line,
            "read_ms": took,
            "overlap_ratio": part,
            "own_ratio": own,
        },
        among=mine,
    )
    return answer
