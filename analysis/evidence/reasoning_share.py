"""How much of the growth of the output is reasoning?"""

from typing import Final

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case

MIN_SHARE_RISE: Final = 0.1


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
