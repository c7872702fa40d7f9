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

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, in_stage, named
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "not_streaming"
MIN_HELD: Final = 0.5
LAST_PART: Final = 0.9
# Of the time that the tokens after the first take to write; a longer rest was streamed. Own default.
MOST_REST: Final = 0.25
# Answers with fewer tokens begin and end together; if they were not counted, those that take less to write; own defaults.
LONG: Final = 20
LONG_MS: Final = 250.0
MIN_RISE: Final = 0.02
STAGES: Final = ("decode", "network", "gateway", "other", "first_token", "generation")


class Pace(NamedTuple):
    """Usual time of a token, and between the first one and the end of an answer, in ms."""

    token_ms: float
    rest_ms: float


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the held stream with its gain, None when first tokens come as they are written or were as late before."""
    if case.metric != "ttft":
        return None
    pace = Pace(usual_token_ms(case), _usual_rest_ms(case))
    now, slow = _held(case.calls, pace), _held(case.slow_calls, pace)
    if not len(slow) or not len(now):
        return _in_pieces(case)
    usual = _held(case.calls_before, pace) if case.calls_before is not None else None
    before = (
        _share(case.calls_before, usual, pace)
        if case.calls_before is not None and usual is not None
        else 0.0
    )
    then = f", {say_ratio(before)} of all before" if usual is not None else ""
    share, of_all = _share(case.slow_calls, slow, pace), _share(case.calls, now, pace)
    if share < MIN_HELD or of_all - before < MIN_RISE:
        return _in_pieces(case) or RuledOut(
            what=RULE,
            figure=f"{say_ratio(share)} of the slow calls have their first token near the end{then}",
        )
    claims = {stage: share * case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    keys = set(case.calls.frame["trace_key"].filter(now).to_list())
    hit = np.fromiter(
        (key in keys for key in case.rows["trace_key"].to_list()),
        dtype=np.bool_,
        count=case.rows.height,
    )
    engine = case.slow_calls.of("ttft_engine_ms")
    first = (
        float(np.nanmedian(case.slow_calls.of("ttft_client_ms")))
        if known(case.slow_calls.of("ttft_client_ms")).any()
        else None
    )
    wrote = float(np.nanmedian(engine)) if known(engine).any() else None
    held = sum(
        np.maximum(case.spent(stage) - case.tail.reference_ms.get(stage, 0.0), 0.0)
        for stage in STAGES
    )
    fix = bound_fix(
        case,
        "streaming",
        "Stream end to end",
        "Set stream=True in the call, proxy_buffering off and X-Accel-Buffering: no in proxies, flush every chunk, and use no compression "
        "and no body-buffering middleware on this route.",
        "the first token reaches the user when the engine writes it (the whole answer takes as long)",
        np.where(hit, np.asarray(held), 0.0),
        whatif="streaming",
    )
    stage = case.worst(*STAGES)
    seen = (
        f": after {say_ms(first)} at the client, after {say_ms(wrote)} in the engine"
        if first is not None and wrote is not None
        else ""
    )
    return _on_its_way(
        case,
        named(
            case,
            RULE,
            stage,
            claims,
            Action(
                "platform",
                "Switch response buffering off in the proxy, or let the stream bypass it.",
                "Restore the proxy's setting.",
                fix,
            ),
            headline=f"{say_ratio(share)} of the slow calls show their first token only near the end{then}{seen}",
            because=f"the stream is buffered on its way to the client{seen}",
            evidence={
                "held_ratio_slow": share,
                "held_ratio_now": of_all,
                "held_ratio_before": before,
                "first_token_client_ms": first,
                "first_token_engine_ms": wrote,
            },
            among=np.flatnonzero(case.breaching & hit),
        ),
    )


def _on_its_way(case: Case, answer: Diagnosis) -> Diagnosis:
    """Return the answer with the stage that holds the stream: while chunks wait on their way the engine writes on, and the time is recorded as decode."""
    if answer.finding.stage != "decode":
        return answer
    return in_stage(answer, "gateway" if case.excess_ms("gateway") > 0.0 else "network")


def _in_pieces(case: Case) -> Diagnosis | NotEnoughData | None:
    """Streams that come in pieces of a buffer's size: first tokens are later, ends are not, and the rest of the answer still takes its time."""
    held = case.held_stream
    if held is None:
        return None
    part = min(1.0, held.held_ms / max(case.tail.excess_total_ms, 1e-9))
    claims = {stage: part * case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return None
    than = "the engine's" if held.measured else "before"
    pieces = (
        "" if held.burst_tokens is None else f", about {held.burst_tokens:,.0f} tokens at a time"
    )
    by = "behind the engine's" if held.measured else "later than before"
    detail = f"first tokens come {say_ms(held.first_ms)} {by}, ends {say_ms(max(held.end_ms, 0.0))}{pieces}"
    some = np.maximum(
        np.minimum(held.held_ms, case.values - case.tail.reference_ms.get("other", 0.0)), 0.0
    )
    late = case.values > min(held.held_ms, float(np.min(case.limits_ms)))
    stage = case.worst(*STAGES)
    few = too_few_breaches(case)
    if few is not None:
        return few
    return _on_its_way(
        case,
        named(
            case,
            RULE,
            stage,
            claims,
            Action(
                "platform",
                "Switch response buffering off in the proxy, or let the stream bypass it.",
                "Restore the proxy's setting.",
                bound_fix(
                    case,
                    "streaming",
                    "Stream end to end",
                    "Pass each chunk on as it comes: proxy_buffering off and HTTP/1.1 to the upstream (nginx), X-Accel-Buffering: no, no compression and no "
                    "fixed read size (a loop that reads 16 KB at a time) on this route.",
                    "the first token reaches the user when it is written (the whole answer takes as long)",
                    np.where(late, some, 0.0),
                    whatif="streaming",
                ),
            ),
            headline=detail,
            because=f"the stream is held back between {'engine' if held.measured else 'model'} and client: {detail}",
            evidence={
                "held_ms": held.held_ms,
                "held_ms_interval": list(held.interval),
                "held_ms_before": held.before_ms,
                "first_later_ms": held.first_ms,
                "end_later_ms": held.end_ms,
                "later_than": than,
                "burst_tokens": held.burst_tokens,
                "n_calls": held.n,
            },
            among=np.flatnonzero(case.breaching & late),
        ),
    )


def _share(calls: Calls, held: BoolArray, pace: Pace) -> float:
    """Return the share of held ones (shape of `calls`, or empty) among the calls that could be: with a long answer and a first token."""
    could = _long(calls, pace) & known(calls.of("ttft_client_ms"))
    return float(held[could].mean()) if len(held) and could.any() else 0.0


def _long(calls: Calls, pace: Pace) -> BoolArray:
    tokens = calls.of("output_tokens")
    mask: BoolArray = np.where(
        np.isnan(tokens), _writing_ms(calls, pace) >= LONG_MS, np.nan_to_num(tokens) >= LONG
    )
    return mask


def _writing_ms(calls: Calls, pace: Pace) -> FloatArray:
    """What the tokens after the first take to write: as the engine says, else at the usual pace; where they were not counted, what answers took before."""
    tokens, decode = calls.of("output_tokens"), calls.of("decode_ms")
    return np.where(
        ~np.isnan(decode),
        decode,
        np.where(np.isnan(tokens), pace.rest_ms, pace.token_ms * np.nan_to_num(tokens)),
    )


def _usual_rest_ms(case: Case) -> float:
    """Return the median time between the first token and the end of the calls before; 0 without them: today's may be held back."""
    if case.calls_before is None:
        return 0.0
    rest = case.calls_before.of("e2e_ms") - case.calls_before.of("ttft_client_ms")
    return float(np.nanmedian(rest)) if known(rest).any() else 0.0


def usual_token_ms(case: Case) -> float:
    """Return the median time per token of the calls before, else of those now; 0 if none reported it."""
    sides = [calls.token_ms for calls in (case.calls_before, case.calls) if calls is not None]
    return next((float(np.nanmedian(side)) for side in sides if known(side).any()), 0.0)


def _held(calls: Calls, pace: Pace) -> BoolArray:
    """Which calls with a long answer show their first token in the last tenth (or far behind the engine's) and the rest at once; as long as the calls."""
    first, whole, engine = (
        calls.of("ttft_client_ms"),
        calls.of("e2e_ms"),
        calls.of("ttft_engine_ms"),
    )
    tokens = np.nan_to_num(calls.of("output_tokens"))
    # Hidden thought comes before the first visible token: its time is no holding back.
    thought = np.nan_to_num(calls.of("reasoning_tokens")) / np.maximum(tokens, 1.0)
    wrote = np.nan_to_num(engine) + thought * np.maximum(whole - np.nan_to_num(engine), 0.0)
    late = np.where(
        known(engine),
        np.nan_to_num(first - wrote) > MIN_HELD * whole,
        (first > LAST_PART * whole) & (thought == 0.0),
    )
    writing = _writing_ms(calls, pace) * (1.0 - thought)
    at_once = (whole - first < MOST_REST * writing) | (writing <= 0.0)
    held: BoolArray = _long(calls, pace) & known(first) & late & at_once
    return held if len(calls) >= MIN_CALLS or held.any() else np.zeros(0, dtype=np.bool_)
