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
from typing import Final

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
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH, Demand
from overrun.analysis.evidence.engine_lives import engines_at_once
from overrun.analysis.evidence.full_engine import (
    Gauges,
    first_to_fill,
    found_full,
    one_engine_waits,
    read_gauges,
    shared_slowness,
    slower_tokens_ratio,
)
from overrun.analysis.evidence.kv_cache import KV_FULL
from overrun.analysis.evidence.load_response import SAME, SLOWER_AT_EQUAL_LOAD, unknown_load
from overrun.analysis.evidence.more_requests import by_arrivals
from overrun.analysis.evidence.overtaken import MOSTLY_SERVED
from overrun.analysis.evidence.queue_growth import (
    _LEAST_PER_BIN,
    STAGE,
    Load,
    service_ms,
    wait_growth,
)
from overrun.analysis.evidence.shared_engine import Others, others
from overrun.analysis.evidence.tenant_load import one_tenant
from overrun.analysis.evidence.thresholds import LEAST_PART, MOST, MUCH_MORE, STEADY
from overrun.analysis.evidence.token_speed import (
    Slowdown,
    decode_parts,
    same_batch_pace,
    slowdown,
)
from overrun.analysis.words.finding import (
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
# Requests, or all the work with them, that grew by this much are more load, not the swing of a minute or of a day; requests must come `MIN_GROWTH` times
# as often, and be this part of the growth, else what grew is the work of a request; own defaults.
MIN_ARRIVALS: Final = 1.15
MIN_OF_GROWTH: Final = 0.35
# Seen from a client: a first token or a token that takes so many times as long at equal load is held up by something else than one's own load; own default,
# above what longer prompts alone do to first tokens.
MUCH_SLOWER: Final = 2.0
# Capacity kept free, share 0..1: published advice is 20-30 %.
SPARE_CAPACITY: Final = 0.25


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the capacity cause with replicas to add and its bound, None if queue or growth contradict it."""
    waiting, found = case.excess_ms(STAGE), case.demand
    if not waiting and case.own_load is not None:
        return _from_outside(case, found)
    shared = _by_others(case, others(case))
    if shared is not None:
        return shared
    # A fuller engine slows tokens before it makes anybody wait long: where the growth of its work is known, the wait need not carry the excess alone.
    if case.tail.share(STAGE) < (MIN_LISTED if found is None else LEAST_PART):
        return None if found is None else _by_batch(case, found)
    usual_ms = service_ms(case.rows)
    load = wait_growth(case.rows, usual_ms, case.every)
    if load is None:
        return NotEnoughData(
            f"too few requests to see the wait grow over time: at least {3 * _LEAST_PER_BIN} are needed"
        )
    lonely = one_engine_waits(case.calls.of_kind(model=case.slowest_model))
    if lonely is not None and (found is None or not first_to_fill(case)):
        return RuledOut(
            what=RULE,
            figure=f"the wait is {say_ms(lonely[0])} on one engine and {say_ms(lonely[1])} on another",
        )
    passed = case.overtaken
    if passed is not None and passed > MOSTLY_SERVED:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(passed)} of the requests that came while slow ones waited were served before them: the rest of the pool is free",
        )
    if found is not None:
        return _by_demand(case, load, found, usual_ms)
    other = _uncounted(case)
    if other is not None:
        return other
    gauges, slowdown = read_gauges(case.points, case.rows), slower_tokens_ratio(case)
    became_slower = slowdown is not None and slowdown > MUCH_MORE
    # Bursts fill an engine as well: they have a rule of their own.
    short = (
        load.growing
        or load.standing
        or (burstiness(case) < MIN_BURSTS and found_full(case.slow_calls, case.calls))
    )
    if not short or (became_slower and (load.arrival_rise or 1.0) < STEADY):
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
        if tenant is not None and tenant > MOST
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
    claims = {
        stage: shared_slowness(case) * ms for stage, ms in case.facts["arrivals"].excess_ms.items()
    }
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
    return named(
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
    if tenant is not None and tenant > MOST:
        return RuledOut(
            what=RULE, figure=f"{say_ratio(tenant)} of the added load comes from one tenant"
        )
    if found.arrivals_ratio < STEADY and burstiness(case) >= MIN_BURSTS:
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
        if load.waits and (load.first >= SLOWER_AT_EQUAL_LOAD or load.crowded >= MOST)
        else 0.0,
        "generation": case.excess_ms("generation")
        if load.answers and (load.whole >= SLOWER_AT_EQUAL_LOAD or load.crowded >= MOST)
        else 0.0,
        "decode": shared_slowness(case) * parts["speed"]
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
    return named(
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
        if isinstance(arrivals, float) and load.offered_ratio < MIN_GROWTH
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
        else f"work arrives {times:.{1 if times >= MIN_GROWTH else 2}f} times as {than} and {limit}",
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
