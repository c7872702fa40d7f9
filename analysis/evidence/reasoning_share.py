"""How much of the growth of the output is reasoning, and what does it add to slow requests and to others?"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import slope, slope_within
from overrun.analysis.evidence.prefill import knock_on

STAGES: Final = ("decode", "generation", "first_token")
MIN_REQUESTS: Final = 5
MIN_SHARE_RISE: Final = 0.1


class Reasoned(NamedTuple):
    """Mean reasoning tokens of a slow and of a reference request, the stage in which they reason, and the time of one such token in ms."""

    slow: float
    reference: float
    stage: str
    token_ms: float


def reasoned(case: Case) -> Reasoned | None:
    """Return how long slow and reference requests reason, None where fewer than five of them report it."""
    # Many senders report reasoning only if there was some.
    told = [
        rows.filter(pl.col("output_tokens") > 0).select(
            pl.col("reasoning_tokens").fill_null(0), "output_tokens"
        )
        for rows in (case.slow, case.reference)
    ]
    if (
        min(rows.height for rows in told) < MIN_REQUESTS
        or case.slow["reasoning_tokens"].count() < MIN_REQUESTS
    ):
        return None
    (r1, _), (r0, _) = (rows.to_numpy().astype(np.float64).mean(axis=0) for rows in told)
    stage = case.worst(*STAGES)
    return Reasoned(float(r1), float(r0), stage, _token_ms(case, stage))


def added_to_others(case: Case) -> dict[str, float]:
    """Return what the longer reasoning of all calls adds to each, in ms per stage: a request that waits for the engine need not reason more itself."""
    thought = thought_part(case)
    return {name: thought * ms for name, ms in knock_on(case, "output").items()}


def own_reasoning(case: Case) -> Mapping[str, float] | str:
    """Return what the further reasoning of slow requests takes, in ms per stage; why that is not known."""
    found = reasoned(case)
    if found is None:
        return "fewer than five slow requests carry reasoning tokens"
    return {found.stage: max(0.0, found.slow - found.reference) * found.token_ms}


def thought_part(case: Case) -> float:
    """Return what part (0..1) of the growth of all calls' output is reasoning; 0 unless their reasoning share rose as much as that of a cause."""
    now, before = case.served
    if before is None:
        return 0.0
    (r1, n1), (r0, n0) = (_thought(side) for side in (now, before))
    if min(n1, n0) <= 0.0 or n1 <= n0 or r1 / n1 - r0 / n0 < MIN_SHARE_RISE:
        return 0.0
    return min(1.0, (r1 - r0) / (n1 - n0))


def _thought(calls: Calls) -> tuple[float, float]:
    """Mean tokens of thought and of output of the calls that report the latter, 0 and 0 below `MIN_CALLS` of them."""
    told = calls.of("output_tokens")[known(calls.of("output_tokens"))]
    thought = np.nan_to_num(calls.of("reasoning_tokens"))[known(calls.of("output_tokens"))]
    return (float(thought.mean()), float(told.mean())) if len(told) >= MIN_CALLS else (0.0, 0.0)


def _token_ms(case: Case, stage: str) -> float:
    """Time of a token of thought: the slope of the stage's time over them within the slow and within the reference requests, but no less than the usual time
    per token (or the slope over all tokens). The caller's own time per token spreads what came after the thought over all of the tokens."""
    column = f"ttft_{stage}_ms" if case.times.path == "ttft" else f"{stage}_ms"
    thought = [
        rows.select("reasoning_tokens", column).drop_nulls().to_numpy().astype(np.float64)
        for rows in (case.slow, case.reference)
    ]
    pace = slope_within([(side[:, 0], side[:, 1]) for side in thought])
    usual = case.reference["tpot_ms"].drop_nulls().to_numpy()
    if len(usual) >= MIN_REQUESTS and stage != "generation":
        return max(pace, float(np.median(usual)))
    both = pl.concat(
        [rows.select("output_tokens", column).drop_nulls() for rows in (case.slow, case.reference)]
    )
    return max(
        pace,
        slope(
            both["output_tokens"].to_numpy().astype(np.float64),
            both[column].to_numpy().astype(np.float64),
        ),
    )
