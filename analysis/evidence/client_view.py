"""What does a caller see of a model that shows nothing of its inside? First-token times and pace of calls without an engine, prompt length taken out."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.arrival_bursts import of_all
from overrun.analysis.evidence.call_duration import whole_calls
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import slope_within
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import NotEnoughData

# A call this many times over the usual one of its length is a spike, not spread; own default (the 99.9th percentile of a lognormal with sigma 0.5).
SPIKE: Final = 5.0
MINUTE_S: Final = 30.0


class Outside(NamedTuple):
    """First tokens (or whole calls where no first token was seen), corrected for input (and output) length, in ms, now and before."""

    now_ms: FloatArray
    before_ms: FloatArray
    start_s: FloatArray
    keys: FloatArray
    first_token: bool
    counted: bool = True
    """Whether most of the calls tell the length that was taken out; where they do not, a late one may have had more to read, or thought longer."""


def outside(case: Case, *, alone: bool = False) -> Outside | None:
    """Return the corrected times of calls that no engine explains, None where there are too few of them or no baseline.

    With `alone` a period without a baseline is compared with itself: what is rare in it differs from what is usual there."""
    before = case.calls if alone and case.calls_before is None else case.calls_before
    if before is None:
        return None
    sides = []
    for calls in (case.calls, before):
        some = calls.where(~calls.has_engine & (calls.of("error") == 0.0) & calls.writers)
        if len(some) < MIN_CALLS:
            return None
        sides.append(some)
    now, then = sides
    seen = float(known(now.of("ttft_ms")).mean()) > 0.5
    (y1, x1), (y0, x0) = ((_time(side, seen), _length(side, seen)) for side in (now, then))
    cost = slope_within([(x0, y0), (x1, y1)])  # lengths that came only now have their cost, too
    usual = float(np.nanmean(x0)) if known(x0).any() else 0.0
    whole = None if seen else whole_calls(then, now)
    if whole is not None:  # slower tokens are no longer wait
        y1 = y1 - (whole.pace_now_ms - whole.pace_before_ms) * np.nan_to_num(x1, nan=usual)
    keep, counted = known(y1), min(float(known(x).mean()) for x in (x0, x1)) > 0.5
    return Outside(
        (y1 - cost * (np.nan_to_num(x1, nan=usual) - usual))[keep],
        (y0 - cost * (np.nan_to_num(x0, nan=usual) - usual))[known(y0)],
        now.of("start_s")[keep],
        now.frame["trace_key"].to_numpy()[keep].astype(np.uint64).view(np.float64),
        seen,
        counted,
    )


def uncounted(found: Outside, what: str) -> NotEnoughData:
    """Say what to record before the endpoint is blamed for `what` ("7.8 % of the calls are late"): without lengths it may be the caller's own."""
    own = (
        "a longer prompt, a lost cache or longer reasoning"
        if found.first_token
        else "a longer answer"
    )
    return NotEnoughData(
        f"{what}. Without token counts it is not known whether the provider causes that or {own}: record gen_ai.usage.input_tokens, "
        "output_tokens and reasoning.output_tokens (stream_options.include_usage when streaming)"
    )


def _time(calls: Calls, seen: bool) -> FloatArray:
    return calls.of("ttft_ms") if seen else calls.of("e2e_ms")


def _length(calls: Calls, seen: bool) -> FloatArray:
    return calls.new_tokens if seen else calls.of("output_tokens")


def spikes(found: Outside) -> BoolArray:
    """Return which calls now are spikes: over five times the usual P75 of before."""
    mask: BoolArray = found.now_ms > SPIKE * float(np.percentile(found.before_ms, 75.0))
    return mask


def clustering(start_s: FloatArray, late: BoolArray, kept: float = 1.0) -> float:
    """Return the dispersion of the late calls over half-minutes (variance over mean of their counts, per expected count): 1 where independent.

    Of a sample of the calls (`kept` of all, 0..1) it is that of all of them, where it is one at all; see `bursts.of_all`."""
    if not late.any() or len(start_s) < MIN_CALLS:
        return 1.0
    slot = ((start_s - start_s.min()) / MINUTE_S).astype(np.int64)
    n, hits = np.bincount(slot), np.bincount(slot, late.astype(np.float64))
    expected = n * float(late.mean())
    some = expected > 0.0
    return of_all(
        float(
            (((hits - expected) ** 2)[some] / expected[some]).sum() / max(int(some.sum()) - 1, 1)
        ),
        int(some.sum()),
        kept,
    )
