"""prefix_cache_lost: prompts that were in the prefix cache are computed again.

Detects
    The share of input tokens served from the cache falls by more than 15 points (or, without a baseline, slow requests hit
    the cache 15 points less than usual ones and below 60 %), and the tokens that are computed again explain the excess.

Why it hurts
    Prefill grows with the uncached tokens. Every lost token delays the first one, and the engine that computes
    it again has less time for decode and queue of all requests.

Evidence
    Hit ratio before and now with its source (the calls' cached tokens, else the engine's counters), each with its interval;
    milliseconds of prefill per new token; the part of the excess from lost cache, apart from longer input and slower reading.

Fix
    Keep the beginning of the prompt constant: move timestamps, request ids and user names behind it. Send each
    session to the replica that holds its prefix. Enlarge the cache. The gain takes the recomputed tokens off
    each request at the measured cost of a token: a bound, because the freed engine time is not modelled.

False alarms
    At low traffic a cache entry expires between calls: the headline reports fewer calls. A new route or tenant
    with other prompts is a change of traffic. A full KV cache evicts prefixes (`kv_pressure`). A client without
    engine telemetry gets that answer if the beginnings of its prompts still hit and only later parts miss.

Source
    A drop of 15 points or a ratio below 60 %: published alert and case of 20 to 80 % hits. Prefill linear in uncached tokens:
    published measurements of 32k against 320 tokens, and the slope fitted here.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import hit_ratio
from overrun.analysis.evidence.fact import Fact
from overrun.analysis.evidence.kv_cache import shrunk
from overrun.analysis.evidence.prefill import MIN_DROP, Reading, reading
from overrun.analysis.evidence.thresholds import LEAST_PART, MOST
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "prefix_cache_lost"
# Hit ratio below which a published alert fires.
LOW_HITS: Final = 0.6
# The head is what all but so many per cent of the former calls found (to within a tenth); own defaults.
FEWEST: Final = 5.0
HEAD_PART: Final = 0.9


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the lost cache with its bound, None when hits did not fall or do not explain the excess."""
    found = reading(case)
    if found is None:
        return None
    if found.hit_slow is None or found.hit_usual is None:
        if case.tail.share(found.stage) < 0.5:
            return None
        return NotEnoughData(
            f"{found.stage} grew, but cache hits are not recorded: record gen_ai.usage.cache_read.input_tokens, or scrape the engine's "
            "prefix_cache_hits and _queries"
        )
    hits = hit_ratio(case)
    before, now = (hits.before, hits.now) if hits is not None else (found.hit_usual, found.hit_slow)
    drop = max(before - now, found.hit_usual - found.hit_slow)
    work = case.demand
    recomputed = work.lost_ratio if work is not None else 0.0
    if (drop < MIN_DROP and recomputed < LEAST_PART) or (
        case.baseline is None and found.hit_slow >= LOW_HITS
    ):
        return (
            RuledOut(
                what=RULE,
                figure=f"{say_ratio(max(now, 0.0))} of input tokens hit the cache, {say_ratio(before)} before",
            )
            if hits
            else None
        )
    if (
        not case.calls.has_engine.any()
        and case.calls_before is not None
        and _forgets(case.calls_before, case.calls)
    ):
        return RuledOut(
            what=RULE,
            figure=(
                f"{say_ratio(max(now, 0.0))} of input tokens hit the cache, {say_ratio(before)} before, but the beginnings of prompts still hit: the "
                "endpoint caches less, or a session's calls go to another replica"
            ),
        )
    fact, claims = case.facts["cache"], case.facts.excess("cache", "cache_slow")
    if claims.get("generation", 0.0) > claims.get(found.stage, 0.0):  # no first token was recorded
        found = found._replace(stage="generation")
    if not enough(case, claims) or fact.clear is False:
        return None
    return _diagnosis(
        case,
        found,
        before,
        now,
        fact,
        claims,
        hits.source if hits else "cached tokens of the calls",
    )


def _forgets(before: Calls, now: Calls) -> bool:
    """Return whether calls still find what nearly all found, and miss what only some did: a cache that forgets sooner, and no head that changed."""
    sides = [side.cached_tokens[known(side.of("input_tokens"))] for side in (before, now)]
    if min(len(side) for side in sides) < MIN_CALLS:
        return False
    head = float(np.percentile(sides[0], FEWEST))
    missed = [int((side < HEAD_PART * head).sum()) for side in sides]
    beyond = float((sides[0] > head / HEAD_PART).mean())
    return (
        head > 0.0
        and beyond < MOST
        and wilson(missed[1], len(sides[1]))[0] <= wilson(missed[0], len(sides[0]))[1]
    )


def _diagnosis(
    case: Case,
    found: Reading,
    before: float,
    now: float,
    fact: Fact,
    claims: dict[str, float],
    source: str,
) -> Diagnosis:
    quiet = _quiet(case)
    saved = np.minimum(case.spent(found.stage), _lost_tokens(case, before) * found.token_ms)
    why = "fewer calls arrive, so entries expire between them; " if quiet else ""
    act = (
        "send a keep-alive call per prefix or ask for a longer cache lifetime"
        if quiet
        else "move parts that change per request (timestamps, ids, names) behind the constant part, and keep tools and examples in one order"
    )
    fix = bound_fix(
        case,
        "prefix_cache",
        "Restore the prefix cache",
        f"{why}{act[0].upper()}{act[1:]}; route sessions to the replica that holds their prefix. vLLM: --enable-prefix-caching, SGLang: no "
        "--disable-radix-cache.",
        f"{say_ratio(before)} of the input is in the cache again (engine time that this frees is not counted)",
        saved,
        whatif="prefix_cache",
        parameters={"hit_ratio": round(min(before, 0.999), 3)},
    )
    answer = named(
        case,
        RULE,
        found.stage,
        claims,
        Action(
            "app",
            "Roll back the last change of the prompt template. Send each session to the same replica (consistent hashing on the prefix).",
            "Restore the former routing. Deploy the new template again once its beginning is constant.",
            fix,
        ),
        headline=f"{why}cache hits fell from {say_ratio(before)} to {say_ratio(now)} of input tokens ({source}). Computing them again adds "
        f"{say_ms(found.cache_ms)} to the first token of a slow request",
        because=f"only {say_ratio(now)} of the input hits the prefix cache, {say_ratio(before)} before",
        evidence={
            "hit_ratio_before": before,
            "hit_ratio_now": now,
            "hit_ratio_slow": found.hit_slow,
            "hit_ratio_reference": found.hit_usual,
            "hit_ratio_before_interval": fact.before.interval if fact.before else None,
            "hit_ratio_now_interval": fact.now.interval if fact.now else None,
            "source": source,
            "prefill_ms_per_new_token": found.token_ms,
            "cache_ms": found.cache_ms,
            "input_ms": found.input_ms,
            "speed_ms": found.speed_ms,
            "input_tokens_slow": found.input_slow,
            "input_tokens_reference": found.input_usual,
            "low_traffic": quiet,
        },
        # A cache that holds less because its memory shrank is that memory's loss.
        driven=shrunk(case),
    )
    # While the engine reads again, other answers stall; and calls that last longer are more at a time.
    return answer


def _quiet(case: Case) -> bool:
    if case.baseline is None or case.calls_before is None or not len(case.calls_before):
        return False
    return len(case.calls) / max(case.period.seconds, 1e-3) < MOST * len(case.calls_before) / max(
        case.baseline.seconds, 1e-3
    )


def _lost_tokens(case: Case, before: float) -> np.ndarray:
    """Per request, the input tokens that the former hit ratio would have covered and the present one does not."""
    n_in = case.rows["input_tokens"].fill_null(0).to_numpy().astype(np.float64)
    cached = case.rows["cached_tokens"].fill_null(0).to_numpy().astype(np.float64)
    return np.maximum(before * n_in - cached, 0.0)
