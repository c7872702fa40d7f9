"""decode_stall: tokens stop coming while the engine reads other requests' prompts.

Detects
    Time per output token that rose with the input tokens that the same engine prefilled for others meanwhile: every token
    prefilled beside a running answer costs it more than before.

Why it hurts
    Without chunking (or with too large a token budget) one long prompt occupies a whole iteration: everybody's next token
    waits for it.

Evidence
    Time per token of slow and usual calls, split by regression into batch size, prefill meanwhile and rest; the cost of 1,000
    tokens prefilled a second, now and before; odds of a slow token given much prefill meanwhile, with a 95 % interval; longest
    gaps between chunks where they are recorded.

Fix
    Chunked prefill (--enable-chunked-prefill) with a smaller token budget (--max-num-batched-tokens 2048), or prefill on
    replicas of its own. The gain gives tokens their usual pace under prefill: a bound, since chunking moves time to the first
    token of the long prompts.

False alarms
    More batch slows tokens too (`batch_past_knee`), so both are fitted at once. A single huge prompt now and then is
    `huge_context`.

Source
    Odds ratio above 3 with a lower limit above 1.5: published default. Stalls of up to 28 times the gap, and a P99 gap from
    1.08 to 0.29 s with chunking: published measurements.
"""

from typing import Final

import numpy as np

from analysis.calls import known
from analysis.case import Case, too_few_breaches
from analysis.cause import Action, bound_fix, enough, named
from analysis.demand import Demand, has_grown
from analysis.finding import Diagnosis, NotEnoughData, RuledOut, say_ms
from analysis.speed import Slowdown, decode_parts, slowdown
from analysis.stalls import Odds, stall_odds

RULE: Final = "decode_stall"
# Each token prefilled beside an answer must cost it this many times what it did, else more prefill came and nothing changed; own default.
MIN_DEARER: Final = 1.3
# From this growth of the engine's work on everything costs more, prefill among it: what brought the work comes first; own default.
MOST_GROWTH: Final = 1.3
# From this part of the growth on, a lost prefix cache is what the engine reads again; own default.
MOST_CACHE: Final = 0.3


def _brought(grown: Demand) -> bool:
    """Say whether what the engine reads more of has a cause of its own: much more work of any kind, or a cache that was lost."""
    return grown.growth > MOST_GROWTH or (has_grown(grown) and grown.cache >= MOST_CACHE)


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the stall with its bound, None when tokens come as before or slow down for another reason."""
    parts = decode_parts(case)
    if (case.tail.share("decode") < 0.25 and case.metric not in ("tpot", "itl")) or parts is None:
        return None
    found = slowdown(case)
    if found is None:
        return None
    odds = stall_odds(case.calls, np.where(case.calls.has_engine, case.calls.prefill_meanwhile, np.nan), found.usual_ms)
    per_token = found.now.prefill_ms / max(found.before.prefill_ms, 1e-9)
    dearer = case.baseline is None or per_token >= MIN_DEARER or found.now.prefill_ms * found.before.prefill > found.before.token_ms
    if odds is None or not odds.clear or found.prefill_ms < found.batch_ms or not dearer:
        said = "unknown" if odds is None else f"{odds.ratio:.1f} ({odds.low:.1f} to {odds.high:.1f})"
        return RuledOut(what=RULE, figure=f"odds ratio of slow tokens during prefill of others {said}")
    whole = found.batch_ms + found.prefill_ms + found.rest_ms
    share = found.prefill_ms / whole if whole > 0.0 else 0.0
    claims = {"decode": share * parts["speed"] if case.metric not in ("tpot", "itl") else share * case.excess_ms("decode")}
    if not enough(case, claims):
        return None
    grown = case.demand
    return too_few_breaches(case) or _diagnosis(case, found, odds, claims, amplifier=grown is not None and _brought(grown))


def _diagnosis(case: Case, found: Slowdown, odds: Odds, claims: dict[str, float], *, amplifier: bool) -> Diagnosis:
    share = min(1.0, found.prefill_ms / max(found.slow_ms, 1e-9))
    fix = bound_fix(
        case, "chunked_prefill", "Chunk the prefill",
        "vLLM: --enable-chunked-prefill with --max-num-batched-tokens 2048; SGLang: --chunked-prefill-size 2048; or prefill on replicas of its own "
        "(disaggregated). Smaller chunks help running answers and delay the first token of long prompts.",
        "prefill of others costs a running answer nothing", share * np.where(case.values > np.median(case.values), case.spent("decode"), 0.0),
        whatif="chunked_prefill", parameters={"token_budget": 2048})
    gaps = case.slow_calls.of("itl_max_ms")
    worst = float(np.nanmedian(gaps)) if known(gaps).any() else None
    return named(
        case, RULE, "decode", claims,
        Action("platform", "Switch chunked prefill on, or send prompts above a length to other replicas.", "Restore the former scheduler settings.", fix),
        headline=f"a token takes {say_ms(found.slow_ms)} in slow and {say_ms(found.usual_ms)} in usual calls, {say_ms(found.prefill_ms)} of it while the "
        f"engine reads other prompts (odds ratio {odds.ratio:.1f}, {odds.low:.1f} to {odds.high:.1f})",
        because=f"running answers stall while the engine reads other prompts ({say_ms(found.prefill_ms)} of {say_ms(found.slow_ms)} a token)",
        evidence={
            "token_ms_slow": found.slow_ms, "token_ms_usual": found.usual_ms, "batch_ms": found.batch_ms, "prefill_ms": found.prefill_ms,
            "rest_ms": found.rest_ms, "odds_ratio": odds.ratio, "odds_interval": [odds.low, odds.high], "longest_gap_ms": worst,
            "ms_per_1000_prefill_tokens_s_now": 1000.0 * found.now.prefill_ms, "ms_per_1000_prefill_tokens_s_before": 1000.0 * found.before.prefill_ms},
        weight=0.93, amplifier=amplifier)
