"""What do more requests add to each? Their part of the growth of the engines' work, and with it of the waiting and of the slower pace."""

from __future__ import annotations

from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import Demand, has_grown
from overrun.analysis.evidence.prefill import by_work
from overrun.analysis.evidence.prefill_stalls import set_whole
from overrun.analysis.evidence.token_speed import Line, slowdown


def added(case: Case) -> dict[str, float]:
    """Return what more requests add to the waiting and the pace of each, in ms per stage; nothing where the work of engines has not grown."""
    found = case.demand
    if found is None or not has_grown(found):
        return {}
    part = by_arrivals(case, found)
    return {stage: part * ms for stage, ms in by_work(case).items() if part > 0.0}


def by_arrivals(case: Case, found: Demand) -> float:
    """Return the part (0..1) of what is slower that goes with more requests; where engines read prompts in one piece that did not, no more than the same
    requests would have made slower before: paused answers fill the batch meanwhile, and that growth of the batch is not load."""
    parts = slowdown(case) if set_whole(case) else None
    return (
        found.arrivals
        if parts is None
        else found.arrivals * former_slowdown(parts.before, parts.now, found.arrivals_ratio)
    )


def former_slowdown(before: Line, now: Line, ratio: float) -> float:
    """Return which part (0..1) of the slower tokens the engine as it was before would have shown as well, had requests come `ratio` times as often.

    By Little's law as many calls run as come while one takes its time, so that with t for the time per token, s its value before and r the ratio
    t = base + prefill x r + batch x r x t / s. 1 where no t is enough: those requests were more than that engine could serve.
    """
    room = 1.0 - before.batch_ms * before.running * ratio / max(before.token_ms, 1e-9)
    slower = now.token_ms - before.token_ms
    if room <= 0.0 or slower <= 0.0:
        return 1.0
    alone = (before.base_ms + before.prefill_ms * before.prefill * ratio) / room
    return min(1.0, max(0.0, alone - before.token_ms) / slower)
