"""batch_past_knee: the engine runs more sequences at once than it can decode at normal pace.

Detects
    More calls in the batch than before at an unchanged arrival rate, and a time per token that rose with the
    batch size. The batch size is the largest part of the slowdown, in a fit together with concurrent prefill.
    If the batch is larger only at times: slow calls run in batches larger than any before, when calls waited
    for a free slot.

Why it hurts
    Up to the knee a larger batch is nearly free; past it every sequence slows all others, while throughput stays flat.

Evidence
    Batch size and time per token before and now, the slope of time per token over batch size, output tokens per second before
    and now, the split of the slowdown, the knee by a two-segment fit where one shows.

Fix
    Lower --max-num-seqs to the batch size at which the time per token was still within limits and keep 20-30 % spare with
    admission control, or add replicas. The gain gives tokens their usual pace: a bound, since some requests then wait.

False alarms
    An engine that is slower for another reason fills its batch as well (Little's law). So the pace at equal
    batch sizes must be unchanged on each replica; if no batch sizes are alike, the GPU clocks must be
    unchanged. More users fill the batch too (`under_capacity`). Where no call waited for a place before, no
    limit can have been lifted: an engine near its capacity fits as well, and neither is sure.

Source
    Two-segment regression of time per token on batch size: own choice among knee methods (USL and Kneedle find a knee in any
    curve). Knee at 20-30 requests and 20-30 % spare: published for one setup.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.batch_knee import token_time_knee, waited
from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH, Demand
from overrun.analysis.evidence.gpu_clocks import MIN_FALL
from overrun.analysis.evidence.prefill_stalls import stall_odds
from overrun.analysis.evidence.thresholds import FULLER, LONGER, MUCH_MORE, STEADY
from overrun.analysis.evidence.token_speed import Slowdown, decode_parts, slowdown, worst_batch_pace
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "batch_past_knee"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the batch past its knee, None when it is no larger or something else slowed the tokens."""
    parts = decode_parts(case)
    if (
        (case.tail.share("decode") < 0.25 and case.metric not in ("tpot", "itl"))
        or parts is None
        or case.calls_before is None
    ):
        return None
    found = slowdown(case)
    if found is None:
        return None
    running = found.now.running
    if running < FULLER * found.before.running:
        running = _at_times(case, found) or running
    ratio = running / max(found.before.running, 1.0)
    grown = case.demand
    stalls_ms = found.prefill_ms if _stalls(case, found) else 0.0
    if ratio < FULLER or found.batch_ms < stalls_ms or (grown is not None and _busier(case, grown)):
        return RuledOut(
            what=RULE,
            figure=f"{running:.1f} calls run at once, {found.before.running:.1f} before",
        )
    pace = worst_batch_pace(case.calls_before, case.calls_inside)
    if pace is not None and pace > LONGER:
        return RuledOut(
            what=RULE, figure=f"tokens take {pace:.2f} times as long at equal batch sizes"
        )
    # Where no batch of now is like one of before, the GPUs' recorded clocks say how much slower the engine itself can be.
    if pace is None and case.clocks.known and case.clocks.ratio > LONGER:
        fell = (
            f"GPU clocks fell by {say_ratio(case.clocks.fell)}"
            if case.clocks.fell >= MIN_FALL
            else "the GPU reports errors"
        )
        return RuledOut(
            what=RULE,
            figure=f"{fell}, which fills a batch by itself. No batch has the size of a batch before",
        )
    whole = found.batch_ms + found.prefill_ms + found.rest_ms
    share = 1.0 - stalls_ms / whole if whole > 0.0 else 0.0
    claims = {
        "decode": share * parts["speed"]
        if case.metric not in ("tpot", "itl")
        else share * case.excess_ms("decode")
    }
    if not enough(case, claims):
        return None
    if case.thinned:
        said = f"tokens take {say_ms(found.slow_ms)} instead of {say_ms(found.usual_ms)}, and {say_ratio(case.kept)} of the calls are stored"
        return NotEnoughData(
            f"{said}: the number of calls that ran at once is not known. Keep every trace for some minutes"
        )
    return _diagnosis(case, found, running, pace, claims)


def _at_times(case: Case, found: Slowdown) -> float | None:
    """Return beside how many calls the slow ones ran where their batch is larger only at times, None where no limit can have let them in.

    More must run at once than ever did before, when calls waited for a place: what kept them out is gone.
    """
    before = case.calls_before
    if before is None or not waited(before) or _peak(case.calls) < FULLER * _peak(before):
        return None
    return found.slow_running if found.slow_running >= FULLER * found.before.running else None


def _peak(calls: Calls) -> float:
    """The most that ran at once, on the mean of a call."""
    return float(np.nanmax(calls.running[calls.has_engine]))


def _stalls(case: Case, found: Slowdown) -> bool:
    """Return whether tokens clearly stop for prompts: a fuller batch brings more of these as well, and no line separates what always goes together."""
    odds = stall_odds(
        case.calls,
        np.where(case.calls.has_engine, case.calls.prefill_meanwhile, np.nan),
        found.usual_ms,
    )
    return odds is not None and odds.clear


def _busier(case: Case, grown: Demand) -> bool:
    """Return whether more work fills the batch: each call has more of it, requests make more calls, or more of them come to the same limit.

    With more requests the batch counts as past its knee only where it is much larger than it ever was before, which a limit that stayed where
    it was does not let happen.
    """
    peaks = [_peak(side) for side in (case.calls_before, case.calls) if side is not None]
    each = grown.growth / max(grown.calls_ratio, 1e-9)
    return (
        each > MIN_GROWTH
        or grown.repeats > 0.3
        or (grown.arrivals_ratio > STEADY and peaks[-1] < MUCH_MORE * peaks[0])
    )


def _diagnosis(
    case: Case, found: Slowdown, running: float, pace: float | None, claims: dict[str, float]
) -> Diagnosis:
    before = case.calls_before
    chosen = known(case.calls.running, case.calls.token_ms) & case.calls.has_engine
    # As many as ever ran well: the former mean would keep everybody waiting.
    limit = np.ceil(max(1.0, _peak(before) if before is not None else found.before.running))
    out = [
        float(np.nansum(side.of("output_tokens"))) / max(period.seconds, 1e-3)
        for side, period in ((before, case.baseline), (case.calls, case.period))
        if side is not None and period is not None
    ]
    slower = np.maximum(0.0, 1.0 - found.usual_ms / max(found.slow_ms, 1e-9))
    unlimited = before is not None and not waited(before)
    fix = bound_fix(
        case,
        "max_sequences",
        f"Let at most {limit:.0f} sequences run at once",
        f"--max-num-seqs {limit:.0f} per replica (SGLang: --max-running-requests {limit:.0f}); admit less than the engine can hold, with 20-30 % spare, and "
        "answer the rest with 429. It takes a restart: one replica after the other, drained first.",
        "tokens come at their usual pace again (requests above the limit wait instead)",
        slower * case.spent("decode"),
        whatif="max_sequences",
        parameters={"sequences": round(float(limit))},
    )
    return named(
        case,
        RULE,
        "decode",
        claims,
        Action(
            "platform",
            f"Let at most {limit:.0f} calls a replica through at the gateway; the rest gets 429 and Retry-After instead of an answer.",
            "Lift the gateway's limit once the engines run with theirs.",
            fix,
        ),
        headline=f"{running:.1f} calls run at once, {found.before.running:.1f} before, and a token takes {say_ms(found.slow_ms)} instead of "
        f"{say_ms(found.usual_ms)}, at the same arrival rate",
        because=f"{running:.0f} sequences run at once instead of {found.before.running:.0f}, and every token takes {say_ms(found.slow_ms)}",
        evidence={
            "running_before": found.before.running,
            "running_now": running,
            "batch_ratio": running / max(found.before.running, 1.0),
            "token_ms_usual": found.usual_ms,
            "token_ms_slow": found.slow_ms,
            "batch_ms": found.batch_ms,
            "prefill_ms": found.prefill_ms,
            "rest_ms": found.rest_ms,
            "ms_per_sequence": found.now.batch_ms,
            "same_batch_pace": pace,
            "output_tps": out,
            "knee": token_time_knee(case.calls.running[chosen], case.calls.token_ms[chosen]),
        },
        # A higher limit lets in who waited for a place; where nobody did, a larger batch may follow from longer answers (Little's law).
        driven=unlimited,
        rather="the engine is at the limit of its capacity, where batches grow by chance (no call waited for a place before, so that no limit can have been lifted)"
        if unlimited
        else "",
    )
