"""decode_stall: answers stop while the engine reads other requests' prompts.

Detects
    Time per output token that rose with the input tokens that the same engine read for other requests
    meanwhile: every such token costs a running answer more time than before. Calls that arrive while a prompt
    is read wait until it is read. Without engine telemetry: streams that pause as they did not before, mostly
    while the same caller's other prompts are sent.

Why it hurts
    Without chunked prefill (or with too large a token budget) one long prompt occupies a whole engine step. The
    next token of every running answer waits for it.

Evidence
    Time per token of slow and usual calls, split by regression into batch size, concurrent prefill and rest;
    the cost of 1,000 prefilled tokens a second, now and before; the odds of a slow token under much prefill,
    with a 95 % interval; the longest gaps between chunks if they are recorded; the share of calls that arrived
    while a prompt was read and waited for its end.

Fix
    Chunked prefill (--enable-chunked-prefill) with a smaller token budget (--max-num-batched-tokens 2048), or
    separate replicas for prefill. The gain gives tokens their usual pace during prefill: a bound, because
    chunking moves time to the first token of the long prompts.

False alarms
    A larger batch slows tokens too (`batch_past_knee`), so both are fitted together. A single huge prompt now
    and then is `huge_context`.

Source
    Odds ratio above 3 with a lower limit above 1.5: published default. Stalls of up to 28 times the gap, and a P99 gap from
    1.08 to 0.29 s with chunking: published measurements.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named, open_fix
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import Demand, has_grown
from overrun.analysis.evidence.prefill import slower
from overrun.analysis.evidence.prefill_stalls import (
    SPIKE,
    Held,
    Odds,
    pauses,
    stall_odds,
    unchunked,
    waiting,
)
from overrun.analysis.evidence.thresholds import LONGER
from overrun.analysis.evidence.token_speed import Slowdown, decode_parts, slowdown
from overrun.analysis.words.finding import (
    MIN_LISTED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "decode_stall"
# From this part of the growth on, a lost prefix cache is what the engine reads again; own default.
MOST_CACHE: Final = 0.3


def _brought(grown: Demand) -> bool:
    """Return whether what the engine reads more of has a cause of its own: much more work of any kind, or a cache that was lost."""
    return grown.growth > LONGER or (has_grown(grown) and grown.cache >= MOST_CACHE)


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the stall with its bound, None when tokens come and calls are taken up as before, or slow down for another reason."""
    written = case.tail.share("decode") >= MIN_LISTED or case.metric in ("tpot", "itl")
    if not written and case.tail.share("queue") + case.tail.share("prefill") < MIN_LISTED:
        return None
    parts, found = decode_parts(case), slowdown(case)
    if parts is None or found is None:
        return _of_streams(case, parts)
    now, before = waiting(case, found)
    whole = unchunked(before, now)
    waits = _waits(case, before, now) if whole and before is not None else {}
    if not written and not enough(case, waits):
        return None
    if case.baseline is None and whole is False:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(now.share)} of the calls that arrive while a prompt is read wait until it is read",
        )
    odds = stall_odds(
        case.calls,
        np.where(case.calls.has_engine, case.calls.prefill_meanwhile, np.nan),
        found.usual_ms,
    )
    per_token = found.now.prefill_ms / max(found.before.prefill_ms, 1e-9)
    dearer = (
        case.baseline is None
        or per_token >= LONGER
        or found.now.prefill_ms * found.before.prefill > found.before.token_ms
    )
    # Calls that stand still fill the batch as well: where prompts are seen to be read in one piece, a batch that costs as much rules nothing out.
    if (
        odds is None
        or not odds.clear
        or not dearer
        or (found.prefill_ms < found.batch_ms and not whole)
    ):
        said = (
            "unknown" if odds is None else f"{odds.ratio:.1f} ({odds.low:.1f} to {odds.high:.1f})"
        )
        if odds is not None and odds.low > 1.0 and case.thinned:
            return NotEnoughData(
                f"the odds ratio of slow tokens during prefill of others is {said}, from {say_ratio(case.kept)} of the calls: whether other prompts "
                "were read meanwhile is not known for the rest. Keep every trace for some minutes"
            )
        return RuledOut(
            what=RULE, figure=f"odds ratio of slow tokens during prefill of others {said}"
        )
    change = found.batch_ms + found.prefill_ms + found.rest_ms
    share = found.prefill_ms / change if change > 0.0 else 0.0
    claims = waits | {
        "decode": share * parts["speed"]
        if case.metric not in ("tpot", "itl")
        else share * case.excess_ms("decode")
    }
    if not enough(case, claims):
        return None
    grown = case.demand
    brought = grown is not None and _brought(grown) and not (whole and before is not None)
    return _diagnosis(case, found, odds, claims, now, driven=brought)


def _of_streams(
    case: Case, parts: dict[str, float] | None
) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Without engine telemetry: streams that stop, not slow down, and most where long prompts of the caller's own are sent meanwhile."""
    found = None if case.baseline is None else pauses(case.slow_calls, case.usual_calls, case.calls)
    if found is None or parts is None:
        return None
    said = f"the longest gap in a stream is {found.slow:.1f} times its time per token in slow calls and {found.usual:.1f} in usual ones"
    claims = {"decode": parts["speed"]}
    if not found.clear or not enough(case, claims):
        return RuledOut(what=RULE, figure=said)
    fix = open_fix(
        "chunked_prefill",
        "Switch chunked prefill on",
        "On engines of your own: --enable-chunked-prefill with --max-num-batched-tokens 2048. At a provider: use a separate deployment for long prompts.",
        "streams no longer stop while prompts are read",
        "the prompts that the engine reads beside an answer are not recorded: trace the engine",
    )
    grown = case.demand
    answer = named(
        case,
        RULE,
        "decode",
        claims,
        Action(
            "platform",
            "Send long prompts to another deployment, at the price of its capacity.",
            "Restore the former routing.",
            fix,
        ),
        headline=f"{said}, longer when more prompt tokens are sent meanwhile (rank correlation {found.follows:.2f})",
        because=f"streams stop for {found.slow:.0f} times a token's time while other prompts of your application are read, {found.usual:.0f} times before",
        evidence={
            "gap_ratio_slow": found.slow,
            "gap_ratio_usual": found.usual,
            "follows_prompts": found.follows,
        },
        driven=grown is not None and _brought(grown) and found.usual >= SPIKE,
        why_no_service="no engine sends telemetry",
    )
    return answer


def _waits(case: Case, before: Held, now: Held) -> dict[str, float]:
    """Return what a slow request waited for prompts in front of it beyond what a usual one does, and read more slowly beside others, in ms a stage."""
    own = pl.DataFrame({"trace_key": case.calls.frame["trace_key"], "ms": now.ms}).join(
        case.slow.select("trace_key"), on="trace_key", how="semi"
    )
    ms = float(own["ms"].to_numpy().sum()) / max(case.slow.height, 1) - float(before.ms.mean())
    return {"queue": min(max(ms, 0.0), case.excess_ms("queue")), "prefill": slower(case)["prefill"]}


def _diagnosis(
    case: Case, found: Slowdown, odds: Odds, claims: dict[str, float], now: Held, *, driven: bool
) -> Diagnosis:
    share = min(1.0, found.prefill_ms / max(found.slow_ms, 1e-9))
    fix = bound_fix(
        case,
        "chunked_prefill",
        "Chunk the prefill",
        "vLLM: --enable-chunked-prefill with --max-num-batched-tokens 2048; SGLang: --chunked-prefill-size 2048; or separate replicas for "
        "prefill (disaggregated). Smaller chunks help running answers and delay the first token of long prompts.",
        "prefill of other requests no longer delays a running answer",
        share * np.where(case.values > np.median(case.values), case.spent("decode"), 0.0),
        whatif="chunked_prefill",
        parameters={"token_budget": 2048},
    )
    gaps = case.slow_calls.of("itl_max_ms")
    worst = float(np.nanmedian(gaps)) if known(gaps).any() else None
    stage = max(claims, key=lambda one: min(claims[one], case.excess_ms(one)))
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            "Send long prompts to separate replicas, or refuse them on interactive routes for now: their senders get no answer there.",
            "Restore the former routing once chunked prefill is on.",
            fix,
        ),
        headline=f"a token takes {say_ms(found.slow_ms)} in slow and {say_ms(found.usual_ms)} in usual calls, {say_ms(found.prefill_ms)} of it while the "
        f"engine reads other prompts (odds ratio {odds.ratio:.1f}, {odds.low:.1f} to {odds.high:.1f})",
        because=f"running answers stall while the engine reads other prompts ({say_ms(found.prefill_ms)} of {say_ms(found.slow_ms)} a token)"
        if stage == "decode"
        else f"the engine does nothing else while it reads a prompt, and {say_ratio(now.share)} of the calls that arrive meanwhile wait",
        evidence={
            "token_ms_slow": found.slow_ms,
            "token_ms_usual": found.usual_ms,
            "batch_ms": found.batch_ms,
            "prefill_ms": found.prefill_ms,
            "rest_ms": found.rest_ms,
            "waited_out_ratio": now.share if now.n else None,
            "odds_ratio": odds.ratio,
            "odds_interval": [odds.low, odds.high],
            "longest_gap_ms": worst,
            "ms_per_1000_prefill_tokens_s_now": 1000.0 * found.now.prefill_ms,
            "ms_per_1000_prefill_tokens_s_before": 1000.0 * found.before.prefill_ms,
        },
        driven=driven,
    )
