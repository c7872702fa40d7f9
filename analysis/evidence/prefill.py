"""Why does the first token take longer? Its excess split into longer input, lost cache, and slower reading; and what that work did to others."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.call_duration import untimed, whole_calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import (
    MIN_GROWTH,
    MIN_TOLD,
    Demand,
    Hits,
    cached_part,
    has_grown,
    hit_ratio,
    lost_and_longer,
    slope,
)
from overrun.analysis.evidence.remembered import remembered
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.evidence.token_speed import decode_parts, slowdown
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import MIN_BREACHING, MIN_LISTED

STAGES: Final = ("prefill", "first_token")
# Points of hit ratio (0..1) that calls find less, from which a cache is lost; own default.
MIN_DROP: Final = 0.15
# Where engines read this many times as much and nothing else has grown, it is what fills their queues; own default.
MUCH_TO_READ: Final = 2.0
# Growth of the mean input below this is ordinary variation of a mix; own default.
LONGER_PROMPTS: Final = 1.2
# Fewest requests with token counts on either side; as many as comparisons of the slow set ask of it.
MIN_REQUESTS: Final = 5


class Reading(NamedTuple):
    """Excess of the reading stage in ms: input + cache + speed = total where all are positive. Tokens are means per request."""

    stage: str
    input_ms: float
    cache_ms: float
    speed_ms: float
    token_ms: float
    input_slow: float
    input_usual: float
    hit_slow: float | None
    hit_usual: float | None


@remembered
def reading(case: Case) -> Reading | None:
    """Split the excess of prefill (or of the unsplit first token); None where token counts are missing.

    With c ms for a new token, the slope of the stage's time over new tokens among slow and reference requests: c x (tokens that the cache
    held before and holds no more) [cache] + c x (new tokens that were not there before) [input]; what is left is slower reading.
    """
    stage = case.worst(*STAGES)
    told = (
        case.tail.tail_ms if case.answered[case.tail.tail_index].all() else case.tail.reference_ms
    )
    if stage == "first_token" and told.get("prefill", 0.0) > told.get(stage, 0.0):
        # An engine reports its prefill time: the rest of the client's time is the network, or calls that it abandoned before the engine reported them.
        stage = "prefill"
    column = f"ttft_{stage}_ms" if case.times.path == "ttft" else f"{stage}_ms"
    cached = (
        max(
            rows["cached_tokens"].count() / max(rows.height, 1)
            for rows in (case.slow, case.reference)
        )
        >= MIN_TOLD
    )
    sides = [
        _side(rows, column, hits, cached)
        for rows, hits in zip((case.slow, case.reference), _hits(case), strict=True)
    ]
    if sides[0] is None or sides[1] is None:
        return None
    (n1, h1, x1, all_n1, all_x1), (n0, h0, x0, all_n0, all_x0) = sides[0], sides[1]
    cost = slope(np.r_[all_n1, all_n0], np.r_[all_x1, all_x0])
    cost = min(cost, max(x1 / max(float(all_n1.mean()), 1.0), x0 / max(float(all_n0.mean()), 1.0)))
    lost, longer = (
        cost * tokens
        for tokens in lost_and_longer(n0, n0 * (1.0 - (h0 or 0.0)), n1, n1 * (1.0 - (h1 or 0.0)))
    )
    if longer > 0.0 and _lost_alone(case):
        lost, longer = lost + longer, 0.0
    whole = max(0.0, x1 - x0)
    shrink = min(1.0, whole / (longer + lost)) if longer + lost > 0.0 else 1.0
    return Reading(
        stage,
        longer * shrink,
        lost * shrink,
        whole - (longer + lost) * shrink,
        cost,
        n1,
        n0,
        h1,
        h0,
    )


def _lost_alone(case: Case) -> bool:
    """Return whether calls have more to read because the cache lost it, and not because prompts have become longer, all calls taken together.

    With an empty cache the long prompts are slow, with a full one the prompts that miss: slow requests that are longer than the baseline's tell of
    that choice, not of prompts that grew.
    """
    work, hits = case.demand, hit_ratio(case)
    if work is None or hits is None or hits.before - hits.now < MIN_DROP:
        return False
    return work.lost_ratio >= MIN_GROWTH - 1.0 > max(work.longer_ratio, work.input_ratio - 1.0)


def _hits(case: Case) -> tuple[float | None, float | None]:
    """Hit ratios by the engine's counters, slow and usual, for requests whose caller does not see cached tokens."""
    hits: Hits | None = hit_ratio(case)
    return (
        (hits.now, hits.before)
        if hits is not None and hits.source == "engine metrics"
        else (None, None)
    )


def _side(
    rows: pl.DataFrame, column: str, engine_hits: float | None, told: bool
) -> tuple[float, float | None, float, FloatArray, FloatArray] | None:
    chosen = rows.filter(rows["input_tokens"] > 0)
    if chosen.height < MIN_REQUESTS:
        return None
    n_in, spent = (
        chosen["input_tokens"].cast(pl.Float64).to_numpy(),
        chosen[column].fill_null(0.0).to_numpy(),
    )
    if engine_hits is None and told:
        cached = chosen["cached_tokens"].fill_null(0).cast(pl.Float64).to_numpy()
        hit: float | None = float(cached.sum() / n_in.sum())
        new = np.maximum(n_in - cached, 0.0)
    else:
        hit, new = engine_hits, n_in * (1.0 - (engine_hits or 0.0))
    return float(n_in.mean()), hit, float(spent.mean()), new, spent


def knock_on(case: Case, factor: str) -> dict[str, float]:
    """Return what one factor of the engine's growing work (a field of `Demand`) added to the waiting and to the pace of reading and writing, in ms a stage.

    What writing loses to reading is the readers' doing alone, however much more there is to write. And where the whole has not grown, what there is to read
    may have: prefill beside more prefill is slower, and if nothing else has grown, and this much, requests wait because of it as well: an engine
    short of memory frees it later."""
    found = case.demand
    if found is None:
        return {}
    grown, read = has_grown(found), _read_share(found, factor)
    if not grown and (1.0 + found.longer_ratio + found.lost_ratio) * found.calls_ratio < MIN_GROWTH:
        return {}
    share, stalled = (
        getattr(found, factor) if grown else read if _only_reads_more(found) else 0.0,
        _stalled(case),
    )
    if grown and factor == "cache" and asked_again_for_it(case, found):
        share = max(share, read)
    part = {"queue": share, "decode": stalled * read + (1.0 - stalled) * share} | dict.fromkeys(
        (*STAGES, "generation"), share if grown else read
    )
    return {stage: part[stage] * ms for stage, ms in by_work(case).items() if part[stage] > 0.0}


def by_work(case: Case) -> dict[str, float]:
    """Return what the engines' growing work adds, in ms a stage: `spread` without what an engine adds that is slower at the same load.

    Work and time per token multiply to how busy an engine is, so the waiting is split on the log scale. What goes with prompts that are read meanwhile is work,
    though nothing may tell what reading cost before.
    """
    slower_by, found = case.slower_engine / max(case.clocks.ratio, 1.0), case.demand
    slower_by = 1.0 + (slower_by - 1.0) * (1.0 - _stalled(case)) if slower_by > 1.0 else 1.0
    parts = spread(case, 1.0)
    if slower_by <= 1.0 or found is None:
        return parts
    more = math.log(max(1.0, found.growth))
    of_work = more / (more + math.log(slower_by))
    if "decode" in parts:
        kept = parts["decode"] - (1.0 - 1.0 / slower_by) * case.tail.tail_ms.get("decode", 0.0)
        parts["decode"] = max(0.0, kept)
    return {stage: ms if stage == "decode" else of_work * ms for stage, ms in parts.items()}


def _read_share(found: Demand, factor: str) -> float:
    """Return a factor's part (0..1) of the growth of what there is to read: calls, longer input and lost cache, on the log scale."""
    more = {"input": found.longer_ratio, "cache": found.lost_ratio}
    each = 1.0 + sum(more.values())
    if not more.get(factor):
        return 0.0
    return (
        more[factor]
        / sum(more.values())
        * min(1.0, math.log(each) / max(math.log(each * found.calls_ratio), 1e-9))
    )


def _only_reads_more(found: Demand) -> bool:
    """Return whether engines have to read much more than before while neither more calls come nor answers are longer."""
    return (
        1.0 + found.longer_ratio + found.lost_ratio >= MUCH_TO_READ
        and max(found.calls_ratio, found.output_ratio) < MIN_GROWTH
    )


def asked_again_for_it(case: Case, found: Demand) -> bool:
    """Return whether a lost cache is why calls are repeated: there is much more to read, nothing else has grown but repeats, and it was lost before those came.

    Repeats that fill an engine's memory push what it kept out of it, too, but then they come first.
    """
    now, before = case.served
    if (
        before is None
        or found.lost_ratio < MUCH_TO_READ - 1.0
        or found.arrivals + found.input + found.output >= MIN_LISTED
    ):
        return False
    order = np.argsort(now.of("start_s"), kind="stable")
    soon = np.zeros(len(now), np.bool_)
    soon[order[np.cumsum(attempts(now).repeat[order]) < MIN_BREACHING]] = True
    had, has = cached_part(before), cached_part(now.some(soon))
    return had is not None and has is not None and had - has >= MIN_DROP


def _stalled(case: Case) -> float:
    """Return the part (0..1) of the slower pace of writing that goes with what the engine reads for others meanwhile."""
    found = slowdown(case)
    if found is None:
        return 0.0
    return found.prefill_ms / max(found.batch_ms + found.prefill_ms + found.rest_ms, 1e-9)


def spread(case: Case, share: float) -> dict[str, float]:
    """Return a share (0..1) of the excess that a busier engine makes: its queue, and prefill and decode that are slower rather than longer.

    A step's token budget is shared: prefill beside other prefill is slower, and so is decode. What lower clocks add is none of it.
    """
    parts = slower(case)
    lower = case.clocks.ratio
    if lower > 1.0:
        work = case.demand
        more = math.log(max(1.0, work.growth)) if work is not None else 0.0
        share *= more / (more + math.log(lower))
        parts = {
            stage: max(0.0, ms - (1.0 - 1.0 / lower) * case.tail.tail_ms.get(stage, 0.0))
            if stage != "queue"
            else ms
            for stage, ms in parts.items()
        }
    return {stage: share * ms for stage, ms in parts.items() if share * ms > 0.0}


def slower(case: Case) -> dict[str, float]:
    """Return the excess that is no longer work of the slow requests themselves, in ms: the queue, and reading and writing at a slower pace.

    Without engine telemetry, both hide in the first token: what it takes beyond its own tokens' cost; or in whole calls if it was not recorded."""
    parts, read = decode_parts(case), reading(case)
    writes = parts["speed"] if parts is not None else 0.0
    reads = read.speed_ms if read is not None and read.stage == "prefill" else 0.0
    hidden = (
        read.speed_ms
        if read is not None and read.stage == "first_token" and not case.calls.has_engine.any()
        else 0.0
    )
    return {
        "queue": case.excess_ms("queue"),
        "prefill": min(reads, case.excess_ms("prefill")),
        "decode": min(writes, case.excess_ms("decode")),
        "first_token": min(hidden, case.excess_ms("first_token")),
        "generation": _beyond_own(case),
    }


def _beyond_own(case: Case) -> float:
    """Return what whole calls of slow requests take beyond what as many calls as long as theirs took before, in ms; 0 with engine telemetry, or if nothing is known."""
    if (
        case.calls_before is None
        or case.excess_ms("generation") <= 0.0
        or case.calls.has_engine.any()
    ):
        return 0.0
    found = whole_calls(case.calls_before, case.calls)
    if found is None:
        return 0.0
    usual_ms = []
    for calls, requests in (
        (case.slow_calls, case.slow.height),
        (case.usual_calls, case.reference.height),
    ):
        tokens = calls.of("output_tokens")[untimed(calls)]
        usual_ms.append(
            (found.wait_before_ms * len(tokens) + found.pace_before_ms * float(tokens.sum()))
            / max(requests, 1)
        )
    return min(
        case.excess_ms("generation"),
        max(0.0, case.excess_ms("generation") - max(0.0, usual_ms[0] - usual_ms[1])),
    )
