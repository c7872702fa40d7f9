"""not_streaming: the answer is streamed, but the user sees its first token only near the end.

Detects
    Calls whose client saw the first token long after the engine wrote it, near the end of the answer, more often than before;
    without engine times, first tokens that come with the end although the answer is long. The rest of the answer came at once:
    in less than a quarter of the time that its tokens take to write. Or streams that come in pieces of a buffer's size: first tokens are later, ends are not.

Why it hurts
    A streamed answer of four seconds is read from the first word on; one that a proxy holds back is a blank page for four
    seconds.

Evidence
    Share of calls whose first token comes in the last tenth, now and before; first token at the client and in the engine; what
    share of the whole call lies between. How much later first tokens and ends come, with the interval of the median, and how many tokens come at a time.

Fix
    Stream end to end: stream=True, no response buffering in proxies (nginx proxy_buffering off, X-Accel-Buffering: no), no
    middleware that collects the body. The gain gives the client's first token the engine's time: exact for what users
    perceive, the whole answer takes as long.

False alarms
    An instrumentation that sets the first token at the end of the span shows the same: see data quality. Answers of a few
    tokens begin and end together. A call that waited before its first token (a gateway's queue, a provider's spike) has a
    late one as well, but the rest of its answer takes its usual time, so that its end is as much later. Hidden reasoning comes before the first token too.

Source
    (client TTFT - engine TTFT) / E2E above 0.5: published signature; a quarter of the writing time: own default.
"""

from typing import Any, Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.held_until_end import (
    MIN_HELD,
    Pace,
    held_calls,
    held_share,
    usual_rest_ms,
    usual_token_ms,
)
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import Diagnosis, RuledOut, say_ms, say_ratio

RULE: Final = "not_streaming"
MIN_RISE: Final = 0.02
STAGES: Final = ("decode", "network", "gateway", "other", "first_token", "generation")


def diagnose(case: Case) -> Diagnosis | RuledOut | None:
    """Return the held stream with its gain, None when first tokens come as they are written or were as late before."""
    if case.metric != "ttft":
        return None
    pace = Pace(usual_token_ms(case), usual_rest_ms(case))
    now, slow = held_calls(case.calls, pace), held_calls(case.slow_calls, pace)
    if not len(slow) or not len(now):
        return _in_pieces(case)
    earlier = case.calls_before
    usual = held_calls(earlier, pace) if earlier is not None else None
    before = 0.0 if earlier is None or usual is None else held_share(earlier, usual, pace)
    then = f", {say_ratio(before)} of all before" if usual is not None else ""
    share, of_all = held_share(case.slow_calls, slow, pace), held_share(case.calls, now, pace)
    if share < MIN_HELD or of_all - before < MIN_RISE:
        return _in_pieces(case) or RuledOut(
            what=RULE,
            figure=f"{say_ratio(share)} of the slow calls have their first token near the end{then}",
        )
    hit, _ = case.share_of_slow(case.calls.frame["trace_key"].filter(now))
    first, wrote = (
        _median(case.slow_calls.of(name)) for name in ("ttft_client_ms", "ttft_engine_ms")
    )
    more = [
        np.maximum(case.spent(one) - case.tail.reference_ms.get(one, 0.0), 0.0) for one in STAGES
    ]
    seen = (
        f": after {say_ms(first)} at the client, after {say_ms(wrote)} in the engine"
        if first is not None and wrote is not None
        else ""
    )
    return _answer(
        case,
        share,
        hit,
        np.sum(more, axis=0),
        headline=f"{say_ratio(share)} of the slow calls show their first token only near the end{then}{seen}",
        because=f"the stream is buffered on its way to the client{seen}",
        evidence={
            "held_ratio_slow": share,
            "held_ratio_now": of_all,
            "held_ratio_before": before,
            "first_token_client_ms": first,
            "first_token_engine_ms": wrote,
        },
    )


def _in_pieces(case: Case) -> Diagnosis | None:
    """Streams that come in pieces of a buffer's size: first tokens are later, ends are not, and the rest of the answer still takes its time."""
    held = case.held_stream
    if held is None:
        return None
    many = held.burst_tokens
    pieces = "" if many is None else f", about {many:,.0f} tokens at a time"
    by = "behind the engine's" if held.measured else "later than before"
    detail = f"first tokens come {say_ms(held.first_ms)} {by}, ends {say_ms(max(held.end_ms, 0.0))}{pieces}"
    waited = case.values - case.tail.reference_ms.get("other", 0.0)
    return _answer(
        case,
        min(1.0, held.held_ms / max(case.tail.excess_total_ms, 1e-9)),
        case.values > min(held.held_ms, float(np.min(case.limits_ms))),
        np.maximum(np.minimum(held.held_ms, waited), 0.0),
        headline=detail,
        because=f"the stream is held back between {'engine' if held.measured else 'model'} and client: {detail}",
        evidence={
            "held_ms": held.held_ms,
            "held_ms_interval": list(held.interval),
            "held_ms_before": held.before_ms,
            "first_later_ms": held.first_ms,
            "end_later_ms": held.end_ms,
            "burst_tokens": many,
            "n_calls": held.n,
        },
    )


def _answer(
    case: Case, part: float, hit: BoolArray, saved_ms: FloatArray, **said: Any
) -> Diagnosis | None:
    """Return the answer of a cause of this part (0..1) of the excess in requests `hit`, which gain `saved_ms` (both of shape (n,)); None where that is too little."""
    claims = {stage: part * case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return None
    fix = bound_fix(
        case,
        "streaming",
        "Stream end to end",
        "Set stream=True in the call and pass each chunk on as it comes: proxy_buffering off and HTTP/1.1 to the upstream (nginx), X-Accel-Buffering: no, "
        "no compression, no fixed read size (a loop that reads 16 KB at a time) and no middleware that collects the body on this route.",
        "the first token reaches the user when it is written (the whole answer takes as long)",
        np.where(hit, saved_ms, 0.0),
        whatif="streaming",
    )
    action = Action(
        "platform",
        "Switch response buffering off in the proxy, or let the stream bypass it.",
        "Restore the proxy's setting.",
        fix,
    )
    stage = case.worst(*STAGES)
    answer = named(
        case, RULE, stage, claims, action, among=np.flatnonzero(case.breaching & hit), **said
    )
    if stage != "decode":
        return answer
    # While chunks wait on their way the engine writes on, and the time is recorded as decode.
    return in_stage(answer, "gateway" if case.excess_ms("gateway") > 0.0 else "network")


def _median(values: FloatArray) -> float | None:
    return float(np.nanmedian(values)) if known(values).any() else None
