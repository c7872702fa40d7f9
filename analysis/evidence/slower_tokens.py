"""What do slower tokens add to a request without recorded first tokens?"""

from __future__ import annotations

from overrun.analysis.evidence.call_duration import untimed, whole_calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.thresholds import LONGER

# Growth of the work of a call from which a slower pace may follow from it; own default.


def slower_tokens(case: Case) -> float:
    """Return what slower tokens add to a slow request's calls without a recorded first token, in ms; 0 if wait and pace cannot be separated."""
    found = whole_calls(case.calls_before, case.calls) if case.calls_before is not None else None
    if found is None or found.ratio < LONGER or not case.slow.height:
        return 0.0
    written = (
        float(case.slow_calls.of("output_tokens")[untimed(case.slow_calls)].sum())
        / case.slow.height
    )
    return (found.pace_now_ms - found.pace_before_ms) * written
