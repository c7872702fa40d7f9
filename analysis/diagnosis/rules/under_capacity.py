"""under_capacity: more work arrives than the engine can serve, so requests wait in its queue.

Detects
    Queue time that explains the excess while the wait of each arrival grows with time (or exceeds the service
    time for nearly all), and tokens are not much slower than before. If slots are free and no request waits:
    more requests, larger batches, and the time per token that such batches always had.

Why it hurts
    Above its capacity an engine does not slow down a little: the wait grows as long as the overload lasts, and
    takes as long again to drain. All requests wait, large or small.

Evidence
    Share of the excess in the queue with a bootstrap interval; offered and admitted tokens per second while the wait
    grew; their ratio, which for a first-come queue is 1 + growth of the wait per second; waiting requests by the
    gauge `queue_depth`, and `kv_cache_usage`: above 90 % the memory for KV blocks is what is full ("KV-bound"). Without a wait:
    requests, batch and time per token before and now, and the time per token at equal batch sizes. Where a part of the engines'
    requests is stored: the tokens per second that the engines count, and those of the stored requests, before and now.

Fix
    Replicas for the offered load with a quarter spare, admission control until then; more KV memory or more
    concurrent sequences per replica. The gain shown limits the wait to the rest of the budget in every recorded
    request: a bound, without a simulation of the replicas.

False alarms
    A short burst on a sufficient engine drains by itself (`burst_arrivals`). A single slow or hot replica
    queues while others are idle (the first replica to fill, among equally fast ones with equal work, is
    neither). An engine that became slower queues at unchanged load. In the first two cases the wait of all
    requests does not grow for many service times; time per token and arrival rate exclude the third. If engines
    now read prompts in one piece, paused answers fill the batch: only the part that the same number of requests
    would have added before counts as load. A provider that delays calls while more are made is not overloaded
    by them if it is not affected by your load: time per token does not rise with your concurrent calls, nor
    does TTFT (rank correlations below 5 standard errors, own default).

Source
    Queue share of at least a quarter of the excess (a tenth where a baseline shows the growth, whose slower tokens count
    too), requests and work 1.1 times, one of them
    1.15 times their former values: own defaults. Fluid limit of a first-come
    queue, whose wait grows by (offered/served - 1) per second: Newell, Applications of Queueing Theory, ch. 2. 20-30
    % spare: published advice for LLM admission control.
"""

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import (
    Action,
    bound_fix,
    clipped,
    enough,
    named,
    open_fix,
)
from overrun.analysis.evidence.arrival_bursts import MIN_BURSTS, burstiness
from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.demand import MIN_GROWTH, Demand
from overrun.analysis.evidence.engine_lives import engines_at_once, sampled_at_once
from overrun.analysis.evidence.fleet import (
    AS_FAST,
    MIN_ENGINES,
    NEAR_OVER,
    lag_at_equal_batch,
    replicas,
)
from overrun.analysis.evidence.kv_cache import KV_FULL
from overrun.analysis.evidence.load_response import SAME, SLOWER_AT_EQUAL_LOAD, unknown_load
from overrun.analysis.evidence.more_requests import by_arrivals
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.evidence.queue_growth import (
    _LEAST_PER_BIN,
    STAGE,
    Load,
    service_ms,
    wait_growth,
)
from overrun.analysis.evidence.shared_engine import Others, others
from overrun.analysis.evidence.tenant_load import one_tenant
from overrun.analysis.evidence.token_speed import (
    MIN_TOKENS,
    Slowdown,
    decode_parts,
    same_batch_pace,
    slowdown,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
    MIN_LISTED,
    Diagnosis,
    Fix,
    NotEnoughData,
    RuledOut,
    say_limits,
    say_ms,
    say_ratio,
)

RULE: Final = "under_capacity"
# Waits of the engines differ this much (shortest over longest median) where one of them is the problem, not the load; own default.
UNEVEN: Final = 0.25
# Running calls over the most that ever ran at a time (so many at least) from which an engine is full, and part of the waiting that must begin then;
# own defaults.
FULL: Final = 0.9
LEAST_RUNNING: Final = 4.0
MOSTLY_FULL: Final = 0.75
# A tenant that brings more than this part of the added work is the cause (`noisy_tenant`); own default.
MOST_BY_ONE: Final = 0.5
# Requests, or all the work with them, that grew by this much are more load, not the swing of a minute or of a day; requests must come `MIN_GROWTH` times
# as often, and be this part of the growth, else what grew is the work of a request; own defaults.
MIN_ARRIVALS: Final = 1.15
MIN_OF_GROWTH: Final = 0.35
# Up to this growth of the mean rate, bursts that are there and were not before explain more than the mean does: 20 %, published.
STEADY_RATIO: Final = 1.2
# Part of the excess that must be waiting for a load that grew to be more than the engine has room for; own default.
MIN_WAITING: Final = 0.1
# Offered over admitted work above which it is reported instead of the arrival rate; own default, above the error of binned medians.
MIN_OFFERED_RATIO: Final = 1.1
# Time per token this much slower at an arrival rate that did not rise is a slower engine, not more work; own defaults.
MAX_SLOWDOWN: Final = 1.5
MIN_ARRIVAL_RISE: Final = 1.2
# Seen from a client: a first token or a token that takes so many times as long at equal load is held up by something else than one's own load; own default,
# above what longer prompts alone do to first tokens.
MUCH_SLOWER: Final = 2.0
# Seen from a client: where most slow calls began in such a crowd, the crowd held them up, though most calls, made at other moments, are as quick as ever.
CROWDED_SHARE: Final = 0.5
# Capacity kept free, share 0..1: published advice is 20-30 %.
SPARE_CAPACITY: Final = 0.25


class Gauges(NamedTuple):
    """The engine's own gauges: waiting requests at first, at most and at last.

    KV usage and running at most.
    """

    instances: int
    waiting_first: float | None
    waiting_most: float | None
    waiting_last: float | None
    kv_p95: float | None
    running_most: float | None


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the capacity cause with replicas to add and its bound, None if queue or growth contradict it."""
    waiting, found = case.excess_ms(STAGE), case.demand
    if not waiting and case.own_load is not None:
        return _from_outside(case, found)
    shared = _by_others(case, others(case))
    if shared is not None:
        return shared
    # A fuller engine slows tokens before it makes anybody wait long: where the growth of its work is known, the wait need not carry the excess alone.
    if case.tail.share(STAGE) < (MIN_LISTED if found is None else MIN_WAITING):
        return None if found is None else _by_batch(case, found)
    few = too_few_breaches(case)
    if few is not None:
        return few
    usual_ms = service_ms(case.rows)
    load = wait_growth(case.rows, usual_ms, case.every)
    if load is None:
        return NotEnoughData(
            f"too few requests to see the wait grow over time: at least {3 * _LEAST_PER_BIN} are needed"
        )
    lonely = one_engine_waits(case.calls.of_kind(model=case.slowest_model))
    if lonely is not None and (found is None or not _first_to_fill(case)):
        return RuledOut(
            what=RULE,
            figure=f"the wait is {say_ms(lonely[0])} on one engine and {say_ms(lonely[1])} on another",
        )
    if found is not None:
        return _by_demand(case, load, found, usual_ms)
    other = _uncounted(case)
    if other is not None:
        return other
    gauges, slowdown = read_gauges(case.points, case.rows), _slowdown(case)
    became_slower = slowdown is not None and slowdown > MAX_SLOWDOWN
    # Bursts fill an engine as well: they have a rule of their own.
    short = (
        load.growing
        or load.standing
        or (burstiness(case) < MIN_BURSTS and found_full(case.slow_calls, case.calls))
    )
    if not short or (became_slower and (load.arrival_rise or 1.0) < MIN_ARRIVAL_RISE):
        return None
    if not enough(case, {STAGE: waiting}):
        return None
    return _diagnosis(
        case, load, gauges, {STAGE: waiting}, {"slowdown": slowdown, "service_ms": usual_ms}
    )


def _by_others(case: Case, found: Others | None) -> Diagnosis | None:
    """Where requests are stored that share their engines with others: the wait that goes with the work of these."""
    waiting = case.excess_ms(STAGE)
    if (
        found is None
        or found.growth < MIN_ARRIVALS
        or found.growth < MIN_ARRIVALS * found.own_growth
        or case.tail.share(STAGE) < MIN_LISTED
        or not enough(case, {STAGE: waiting})
        or too_few_breaches(case) is not None
    ):
        return None
    what = found.kind.replace("_", " ")
    said = (
        f"the engines process {found.now:,.0f} {what}/s, {found.before:,.0f} before ({found.growth:.2f} times as many), and the stored requests "
        f"{found.own_growth:.2f} times as many as before"
    )
    fix = open_fix(
        "replicas",
        "Run more replicas, or a pool of its own for these requests",
        "More replicas behind that endpoint, or engines that the other senders do not share; until then a limit on what each sender may have in flight.",
        "the other senders keep their load",
        "the other requests on the engines are not stored, so their batches cannot be replayed: trace the engine whole",
    )
    return named(
        case,
        RULE,
        STAGE,
        {STAGE: waiting},
        Action(
            "platform",
            "Limit how many requests the other senders may have in flight; the rest gets 429 and Retry-After instead of an answer.",
            "Raise the limit again with the capacity.",
            fix,
        ),
        headline=f"{said}: other senders fill the engines",
        because=f"other senders fill the engines that it shares: {said}",
        evidence=found._asdict(),
        why_no_service="the engines are shared",
    )


def _uncounted(case: Case) -> NotEnoughData | RuledOut | None:
    """Without token counts: the reason why a new wait is not attributed to the number of requests; None if it is, or may be."""
    before, now = case.calls_before, case.calls
    if (
        before is None
        or not len(before)
        or any(known(side.of("output_tokens")).any() for side in (before, now))
    ):
        return None
    rates = [side.frame["trace_key"].n_unique() / side.seconds for side in (before, now)]
    said = f"requests arrive {rates[1] / rates[0]:.2f} times as often as before"
    if rates[1] < MIN_ARRIVALS * rates[0]:
        return NotEnoughData(
            f"{said} and wait longer. Without token counts it is not known whether each brings more work or the engine is slower: record "
            "gen_ai.usage.input_tokens and output_tokens"
        )
    tenant = one_tenant(case)
    return (
        RuledOut(what=RULE, figure=f"{say_ratio(tenant)} of the added calls come from one tenant")
        if tenant is not None and tenant > MOST_BY_ONE
        else None
    )


def _by_demand(
    case: Case, load: Load, found: Demand, usual_ms: float
) -> Diagnosis | RuledOut | None:
    """With a baseline: the part of the waiting (and of slower tokens) that goes with more requests, not with more work in each."""
    other = _not_more_requests(case, found)
    if other is not None:
        return other
    claims = case.facts["arrivals"].excess_ms
    if not enough(case, claims):
        return None
    return _diagnosis(
        case,
        load,
        read_gauges(case.points, case.rows),
        claims,
        {**found._asdict(), "service_ms": usual_ms},
    )


def _by_batch(case: Case, found: Demand) -> Diagnosis | NotEnoughData | RuledOut | None:
    """With free slots no call waits: more requests make larger batches, and each token takes its usual time for a batch of that size."""
    other, before, parts = _not_more_requests(case, found), case.calls_before, slowdown(case)
    if other is not None or before is None or parts is None:
        return other
    said = f"requests arrive {found.arrivals_ratio:.2f} times as often as before"
    pace, share = _pace(before, case.calls_inside, parts), by_arrivals(case, found)
    if pace >= SAME:
        return RuledOut(
            what=RULE,
            figure=f"{said}, and tokens take {pace:.2f} times as long at equal batch sizes",
        )
    claims = {stage: _shared(case) * ms for stage, ms in case.facts["arrivals"].excess_ms.items()}
    if share < found.arrivals and not enough(case, claims):
        return RuledOut(
            what=RULE,
            figure=f"{said}, which explains {say_ratio(share)} of the slowdown; prompts that are read in one piece explain the rest",
        )
    if parts.now.running < MIN_ARRIVALS * parts.before.running or not enough(case, claims):
        return RuledOut(
            what=RULE,
            figure=f"{said}, and {parts.now.running:.1f} run at once, {parts.before.running:.1f} before",
        )
    count = engines_at_once(case.calls.where(case.calls.has_engine))
    replicas = max(count + 1, math.ceil(count * found.arrivals_ratio))
    slower = max(0.0, 1.0 - parts.usual_ms / max(parts.slow_ms, 1e-9))
    fix = bound_fix(
        case,
        "replicas",
        f"Run {replicas} replicas instead of {count}",
        "Enough replicas to restore the former batch size on each. Or set --max-num-seqs to the largest batch whose pace is within the "
        "limits, and answer the rest with 429 and Retry-After.",
        "batches have their former size",
        slower * case.spent("decode"),
        whatif="replicas",
        parameters={"replicas": replicas},
    )
    rate = len(case.rows) * case.every / max(case.period.seconds, 1e-3) / found.arrivals_ratio
    return too_few_breaches(case) or named(
        case,
        RULE,
        max(claims, key=lambda stage: min(claims[stage], case.excess_ms(stage))),
        claims,
        Action(
            "platform",
            f"Admit about {rate:.1f} requests/s at the gateway, as before; {_refused(found.arrivals_ratio)} get 429 and Retry-After instead of an answer.",
            "Raise the admission limit again as replicas become ready.",
            fix,
        ),
        headline=f"{said}, {parts.now.running:.1f} calls run at once instead of {parts.before.running:.1f}, and a token takes {say_ms(parts.slow_ms)} "
        f"instead of {say_ms(parts.usual_ms)} ({pace:.2f} times as long at equal batch sizes)",
        because=f"{said}, and batches of {parts.now.running:.0f} instead of {parts.before.running:.0f} are as slow as batches of that size always were",
        evidence={
            **found._asdict(),
            "running_before": parts.before.running,
            "running_now": parts.now.running,
            "token_ms_usual": parts.usual_ms,
            "token_ms_slow": parts.slow_ms,
            "same_batch_pace": pace,
        },
        why_no_service="all replicas are equally busy",
    )


def _pace(before: Calls, now: Calls, found: Slowdown) -> float:
    """Return the time per token now over before at equal batch sizes; where the sizes have nothing in common, over the former line's value for today's sizes."""
    former = found.before
    told = (
        former.base_ms + former.batch_ms * found.now.running + former.prefill_ms * found.now.prefill
    )
    return same_batch_pace(before, now) or found.now.token_ms / max(told, 1e-9)


def _not_more_requests(case: Case, found: Demand) -> RuledOut | None:
    """Return what grew instead of the number of requests, None if that number grew."""
    least, most = sorted((found.arrivals_ratio, found.growth))
    if least < MIN_GROWTH or most < MIN_ARRIVALS or found.arrivals < MIN_OF_GROWTH:
        return RuledOut(
            what=RULE, figure=f"requests arrive {found.arrivals_ratio:.2f} times as often as before"
        )
    tenant = one_tenant(case)
    if tenant is not None and tenant > MOST_BY_ONE:
        return RuledOut(
            what=RULE, figure=f"{say_ratio(tenant)} of the added load comes from one tenant"
        )
    if found.arrivals_ratio < STEADY_RATIO and burstiness(case) >= MIN_BURSTS:
        return RuledOut(
            what=RULE,
            figure=f"requests arrive {found.arrivals_ratio:.2f} times as often as before, but in bursts",
        )
    return None


def _from_outside(case: Case, found: Demand | None) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Without engine telemetry: more requests, and an endpoint that answers as before at equal load, is filled by them."""
    load, parts = case.own_load, decode_parts(case)
    if found is None or load is None:
        return None
    other = _not_more_requests(case, found)
    if other is not None:
        return other
    added = {
        "first_token": case.excess_ms("first_token")
        if load.waits and (load.first >= SLOWER_AT_EQUAL_LOAD or load.crowded >= CROWDED_SHARE)
        else 0.0,
        "generation": case.excess_ms("generation")
        if load.answers and (load.whole >= SLOWER_AT_EQUAL_LOAD or load.crowded >= CROWDED_SHARE)
        else 0.0,
        "decode": _shared(case) * parts["speed"]
        if parts is not None and load.paced and load.pace >= SLOWER_AT_EQUAL_LOAD
        else 0.0,
    }
    claims = {stage: found.arrivals * ms for stage, ms in added.items()}
    said = f"requests arrive {found.arrivals_ratio:.2f} times as often as before"
    if load.untold:
        return unknown_load(case.own_load, case.kept, said)
    if not load.moved:
        return RuledOut(
            what=RULE,
            figure=f"{said}, but the endpoint is not affected by your load: neither time per token nor TTFT rises with your number of concurrent calls",
        )
    if (
        not enough(case, claims)
        or max(load.first_equal or 0.0, load.pace_equal or 0.0, load.whole_equal or 0.0)
        >= MUCH_SLOWER
    ):
        return RuledOut(
            what=RULE,
            figure=f"{said}, but calls are slower at equal load as well, or other calls of the same time are not slower",
        )
    equal = " and ".join(
        f"{what} {ratio:.2f} times"
        for what, ratio in (
            ("a first token", load.first_equal),
            ("a token", load.pace_equal),
            ("a whole answer", load.whole_equal),
        )
        if ratio
    )
    fix = open_fix(
        "replicas",
        "Ask for more capacity, or send fewer calls at once",
        "More replicas behind that endpoint, or reserved capacity. Until then limit the calls in flight and answer the rest with 429 and Retry-After.",
        "the endpoint serves more calls at once",
        "its capacity is not recorded: trace the engine",
    )
    return too_few_breaches(case) or named(
        case,
        RULE,
        max(claims, key=lambda stage: min(claims[stage], case.excess_ms(stage))),
        claims,
        Action(
            "platform",
            "Limit the calls in flight; the rest gets 429 and Retry-After instead of an answer.",
            "Raise the limit with the capacity.",
            fix,
        ),
        headline=f"{said}, and with equally many calls in flight {equal} its former time: your own load fills the endpoint",
        because=f"{said} and fill the endpoint (with equally many calls in flight, {equal} its former time)",
        evidence={**load._asdict(), **found._asdict()},
        why_no_service="no engine sends telemetry",
    )


def _shared(case: Case) -> float:
    """Return the part (0..1) of a slow call's slower pace that the calls beside it share: a load slows all calls of that time, a slow host only its own.

    Calls that overlap with it count by their common time: the slow ones ran when it was fullest, and over all
    of the period others did not.
    """
    before = case.calls_before
    if before is None:
        return 1.0
    told = case.calls.where(
        known(case.calls.token_ms) & (case.calls.of("output_tokens") >= MIN_TOKENS)
    )
    slow = told.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    former = before.token_ms[known(before.token_ms) & (before.of("output_tokens") >= MIN_TOKENS)]
    if min(len(former), int(slow.sum())) < MIN_BREACHING:
        return 1.0
    begin, end, pace = told.of("start_s"), told.end_s, told.token_ms
    took = np.maximum(end - begin, 1e-6)
    own = begin[slow], end[slow]
    together = Flow(begin, begin + took, took).between(*own) - took[slow]
    theirs = Flow(begin, begin + took, took * pace).between(*own) - (took * pace)[slow]
    met = together > 1e-3
    if not met.any():
        return 1.0
    usual, beside, held = (
        float(np.median(ms)) for ms in (former, theirs[met] / together[met], pace[slow])
    )
    return min(1.0, max(0.0, beside - usual) / (held - usual)) if held > usual else 1.0


def found_full(slow: Calls, calls: Calls) -> bool:
    """Return whether slow calls waited because their engine was full when they came: most of their waiting is of calls that found nearly as many running as ever.

    Waits that come and go with the arrivals of a minute stand in no quarter of a window, and are want of room all the same.
    """
    waits, met, most = [], [], []
    for code in np.unique(calls.engine[calls.has_engine]):
        beside, theirs = (
            side.where(side.has_engine & (side.engine == code)) for side in (calls, slow)
        )
        taken, ended = np.sort(beside.scheduled_s), np.sort(beside.last_s)
        at, all_at = theirs.of("start_s"), beside.of("start_s")
        running = [
            np.searchsorted(taken, t, side="right") - np.searchsorted(ended, t, side="right")
            for t in (at, all_at)
        ]
        waits.append(np.nan_to_num(theirs.of("queue_ms")))
        met.append(running[0])
        most.append(
            np.full(len(at), np.percentile(running[1], 99.0)) if len(all_at) else np.zeros(0)
        )
    if not waits:
        return False
    wait, full = (
        np.concatenate(waits),
        np.concatenate(met) >= FULL * np.maximum(np.concatenate(most), LEAST_RUNNING),
    )
    return bool(wait.sum() > 0.0 and wait[full].sum() > MOSTLY_FULL * wait.sum())


def one_engine_waits(calls: Calls) -> tuple[float, float] | None:
    """Return the longest and the shortest median wait of the engines in ms where the one is many times the other, else None."""
    wait, engine = calls.of("queue_ms"), calls.engine
    chosen = known(wait)
    groups = [wait[chosen & (engine == code)] for code in np.unique(engine[chosen])]
    medians = sorted(float(np.median(group)) for group in groups if len(group) >= _LEAST_PER_BIN)
    if len(medians) < 2 or medians[-1] < 50.0 or medians[0] > UNEVEN * medians[-1]:
        return None
    return medians[-1], medians[0]


def _first_to_fill(case: Case) -> bool:
    """Return whether the engine whose calls wait longest has no more work than its peers and is as fast in batches like theirs.

    Near capacity equal engines do not fill at the same moment: the first one keeps its queue (what waits there finds less in the cache), the others have just
    room enough. Then it is no fault of that one that calls wait.
    """
    every = replicas(case.calls, case.slowest_model)
    if len(every) < MIN_ENGINES:
        return False
    worst = max(every, key=lambda one: one.wait_ms)
    lag = lag_at_equal_batch(case.calls, worst.name)
    return worst.share * len(every) < NEAR_OVER and lag is not None and lag < AS_FAST


def read_gauges(points: pl.DataFrame, rows: pl.DataFrame) -> Gauges:
    """Sum the waiting requests over instances (each carries its last value on) and read KV usage and batch size."""
    waiting = summed(points, "queue_depth")
    kv = points.filter(pl.col("indicator") == "kv_cache_usage")["value"]
    running = summed(points, "running")
    seen = sampled_at_once(
        points.filter(pl.col("indicator").is_in(["queue_depth", "running", "kv_cache_usage"]))
    )
    # A client's instance is no replica of the engine: only requests that the engine itself recorded count.
    engines = rows.filter(pl.col("engine_only"))["instance"].drop_nulls().n_unique()
    return Gauges(
        instances=max(1, seen, engines),
        waiting_first=float(waiting[0]) if len(waiting) else None,
        waiting_most=float(waiting.max()) if len(waiting) else None,
        waiting_last=float(waiting[-1]) if len(waiting) else None,
        kv_p95=float(np.percentile(kv.to_numpy(), 95.0)) if len(kv) else None,
        running_most=float(running.max()) if len(running) else None,
    )


def summed(points: pl.DataFrame, indicator: str) -> FloatArray:
    """Return a gauge summed over its instances at every sample time, ascending; empty without samples. The last value of each holds until its next
    sample was due: nothing waits at an instance that is gone."""
    chosen = points.filter(pl.col("indicator") == indicator).with_columns(
        pl.col("instance").fill_null("")
    )
    if chosen.is_empty():
        return np.empty(0)
    wide = chosen.pivot(
        on="instance", index="time_us", values="value", aggregate_function="mean"
    ).sort("time_us")
    gap = pl.col("time_us").unique().sort().diff().median().cast(pl.Int64)
    due = chosen.group_by("instance").agg(until=pl.col("time_us").max() + 2 * gap)
    due = due.with_columns(pl.col("until").fill_null(int(wide["time_us"][-1])))
    told = wide.select(
        pl.when(pl.col("time_us") <= until).then(pl.col(name).fill_null(strategy="forward"))
        for name, until in due.iter_rows()
    )
    return told.sum_horizontal().to_numpy()


def _slowdown(case: Case) -> float | None:
    """Return median TPOT of slow requests over that of the reference, None where either is unknown."""
    slow, usual = (
        case.rows[case.tail.tail_index]["tpot_ms"].median(),
        case.reference["tpot_ms"].median(),
    )
    return (
        float(slow) / float(usual)
        if isinstance(slow, float) and isinstance(usual, float) and usual > 0.0
        else None
    )


def _diagnosis(
    case: Case, load: Load, gauges: Gauges, claims: dict[str, float], more: dict[str, object]
) -> Diagnosis:
    kv_bound = gauges.kv_p95 is not None and gauges.kv_p95 > KV_FULL
    seen = (gauges.waiting_most or 0.0) >= _LEAST_PER_BIN
    limit = "its KV cache is full" if kv_bound else "its capacity is used up"
    kv = (
        f", KV cache at {say_ratio(gauges.kv_p95)}"
        if kv_bound and gauges.kv_p95 is not None
        else ""
    )
    peak = (
        f", {gauges.waiting_most:,.0f} waiting at the peak"
        if seen and gauges.waiting_most is not None
        else ""
    )
    arrivals = more.get("arrivals_ratio")
    full = case.baseline is None and not (load.growing or load.standing)
    said = (
        f"slow requests wait {say_ms(case.tail.tail_ms.get(STAGE, 0.0))}, and their engine was at its fullest when they arrived"
        if full
        else (
            f"load beyond capacity: {load.offered_rps:.1f} requests/s arrived, {load.admitted_rps:.1f} were admitted, and the wait grew from "
            f"{say_ms(load.wait_from_ms)} to {say_ms(load.wait_to_ms)}"
        )
    )
    times = (
        float(arrivals)
        if isinstance(arrivals, float) and load.offered_ratio < MIN_OFFERED_RATIO
        else load.offered_ratio
    )
    # Never below what was served without a wait before.
    healthy = load.offered_rps / arrivals if isinstance(arrivals, float) and arrivals > 1.0 else 0.0
    admit = max((1.0 - SPARE_CAPACITY) * load.admitted_rps, min(healthy, load.admitted_rps))
    than = "often as before" if times != load.offered_ratio else "fast as the engine admits it"
    return named(
        case,
        RULE,
        STAGE if claims.get(STAGE, 0.0) > 0.0 else max(claims, key=lambda stage: claims[stage]),
        claims,
        Action(
            "platform",
            f"Admit at most {admit:.1f} requests/s at the gateway; {_refused(load.offered_rps / max(admit, 1e-9))} get 429 and Retry-After instead of an answer.",
            "Raise the admission limit again as replicas become ready.",
            _fix(case, load, gauges, kv_bound),
        ),
        headline=f"{'KV-bound: ' if kv_bound else ''}{said}{peak}{kv}",
        because="their engine is full when they arrive (only a baseline shows whether there are more requests or larger ones)"
        if full
        else f"work arrives {times:.{1 if times >= MIN_OFFERED_RATIO else 2}f} times as {than} and {limit}",
        evidence={**load._asdict(), **gauges._asdict(), **more, "kv_bound": kv_bound},
        why_no_service="the queue is the engine's; evidence.instances has its name where it is known",
    )


def _refused(over: float) -> str:
    """Which part of the requests is refused where so many times as many arrive as are admitted, in words."""
    return f"the others ({say_ratio(max(0.0, 1.0 - 1.0 / max(over, 1.0)))} of the requests)"


def _fix(case: Case, load: Load, gauges: Gauges, kv_bound: bool) -> Fix:
    limits_ms = case.stage_limits_ms(STAGE)
    predicted = clipped(case, STAGE, limits_ms)
    ratio = max(load.offered_ratio, 1.0)
    replicas = max(
        gauges.instances + 1, math.ceil(gauges.instances * ratio / (1.0 - SPARE_CAPACITY))
    )
    per_replica = (
        "Or free KV blocks: --gpu-memory-utilization 0.95 (SGLang: --mem-fraction-static), --kv-cache-dtype fp8; raising --max-num-seqs does not help now."
        if kv_bound
        else "Raise --max-num-seqs (SGLang: --max-running-requests) only while KV usage stays below 90 % and TPOT within its limit."
    )
    return Fix(
        id="replicas",
        whatif="replicas",
        parameters={"replicas": replicas},
        title=f"Run {replicas} replicas instead of {gauges.instances}",
        detail=f"{load.offered_tps:,.0f} tokens/s arrive and {load.admitted_tps:,.0f} are admitted. {replicas} equal "
        f"replicas leave {say_ratio(SPARE_CAPACITY)} spare. {per_replica}",
        assumption=f"no request waits longer than {say_limits(limits_ms)} (replicas are not simulated)",
        method="exact",
        predicted=predicted,
    )
