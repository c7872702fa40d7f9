"""Which spans have times that cannot be? They are kept whole in a table of their own, counted and said to the sender, and spoil no number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from overrun.collector.arrays import BoolArray, IntArray, WordArray

# No telemetry is from earlier: OpenTelemetry is of 2019. Milliseconds or microseconds that were sent as nanoseconds are of 1970.
MIN_TIME_NS = 946_684_800 * 10**9
# No telemetry is from later: nanoseconds end in 2262, and a clock that says 2200 is broken.
MAX_TIME_NS = 7_258_118_400 * 10**9
MAX_DURATION_NS = 10 * 365 * 86_400 * 10**9

FINE, NO_START, NO_END, BACKWARDS, TOO_LATE, TOO_LONG, TOO_EARLY = range(7)
REASONS = (
    "",
    "no start time",
    "no end time",
    "end before start",
    "time after 2200",
    "longer than ten years",
    "time before 2000: are these nanoseconds?",
)
WARNING = "spans with impossible times were quarantined (see v_quarantine for reasons) and belong to no request"

MISDATED_EVENTS = "span events from before 2000 were left out: times are nanoseconds since 1970"
MISDATED_POINTS = "data points from before 2000 or after 2200 (times are nanoseconds since 1970)"


def misdated(time_ns: IntArray) -> BoolArray:
    """Which times of events were sent and lie before 2000; 0 is none that was sent."""
    return (time_ns > 0) & (time_ns < MIN_TIME_NS)


def verdicts(begin: WordArray, finish: WordArray) -> IntArray:
    """A code of REASONS per span; 0 is fine. Times are unsigned nanoseconds as sent: a negative one reads as a time after 2262."""
    out = np.zeros(len(begin), dtype=np.int64)
    if not len(begin) or (
        begin.min() >= MIN_TIME_NS
        and finish.max() < MAX_TIME_NS
        and bool((finish >= begin).all())
        and (finish - begin).max() <= MAX_DURATION_NS
    ):
        return out
    out[(begin < MIN_TIME_NS) | (finish < MIN_TIME_NS)] = TOO_EARLY
    out[finish - np.minimum(begin, finish) > MAX_DURATION_NS] = TOO_LONG
    out[finish < begin] = BACKWARDS
    out[(begin >= MAX_TIME_NS) | (finish >= MAX_TIME_NS)] = TOO_LATE
    out[finish == 0] = NO_END
    out[begin == 0] = NO_START
    return out


def rows(
    spans: pa.Table, verdict: IntArray, start: WordArray, end: WordArray, usable: BoolArray
) -> pa.Table | None:
    """The rows of `quarantine` (all columns but `batch`): spans with ids (`usable`) and a verdict other than FINE; None if there are none."""
    aside = np.flatnonzero((verdict != FINE) & usable)
    if not len(aside):
        return None
    at = pa.array(aside)
    reasons = [REASONS[code] for code in verdict[aside].tolist()]
    found = spans.take(at).append_column("reason", pa.array(reasons, pa.string()))
    return found.append_column("sent_start_ns", pa.array(start[aside])).append_column(
        "sent_end_ns", pa.array(end[aside])
    )
