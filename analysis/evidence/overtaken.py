"""Do requests wait while others that came later are served? Then it is not capacity that lacks: something holds these back, and the rest of it is free.

Requests that wait for one pool are served in the order in which they came. Behind one busy worker or an unequal share of them, others go through meanwhile.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.evidence.observed import Observed
from overrun.analysis.words.finding import MIN_BREACHING

# A request counts that waits for this part of what it takes longer; one that is served meanwhile waits at most this part of its wait; own defaults.
MOST_OF_IT: Final = 0.5
AT_ONCE: Final = 0.25
# Where more of the later requests than this are served first, those that wait are held back by something else; above what two equal queues in turn give.
MOSTLY_SERVED: Final = 0.5


def overtaken(case: Observed) -> float | None:
    """Return the median part of the requests that came while a slow one waited in a queue and were served before it; None for fewer than 10 such slow ones,
    where one trace in so many is known alone, or where engines have a queue of their own."""
    if case.thinned or case.slow_calls.has_engine.any():
        return None
    start_ms = case.rows["start_us"].to_numpy() / 1e3
    wait_ms = case.rows["queue_ms"].fill_null(0.0).to_numpy()
    order = np.argsort(start_ms, kind="stable")
    start, wait = start_ms[order], wait_ms[order]
    slow = case.rows["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()[order]
    parts = []
    for at in np.flatnonzero(slow & (wait >= MOST_OF_IT * case.tail.excess_total_ms)):
        until = start[at] + wait[at]
        came = np.arange(at + 1, int(np.searchsorted(start, until, side="left")))
        if len(came):
            first = (start[came] + wait[came] < until) & (wait[came] <= AT_ONCE * wait[at])
            parts.append(float(first.mean()))
    return float(np.median(parts)) if len(parts) >= MIN_BREACHING else None
