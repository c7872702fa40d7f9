"""Did the load wait for the answers? A closed-loop client sends less while the system is slow and so hides the queue (coordinated omission)."""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.words.finding import say_ratio

# Fewest requests to tell a loop from chance, share of arrivals that must come at the same number in flight, and how soon after an answer. Own defaults.
_LEAST: Final = 50
_PLATEAU: Final = 0.8
_SOON: Final = 0.2
_CORRELATED: Final = 0.5
# A stretch of this many requests shows a loop as well as a million do.
_MOST: Final = 20_000


def closed_loop(rows: pl.DataFrame) -> Check | None:
    """Return whether arrivals wait for completions: always the same number in flight, and each start right behind an end.

    None with fewer than 50 requests. Sign: at least 80 % of arrivals find exactly N - 1 requests in flight (N the most ever in flight), and they
    follow the latest completion in less than a fifth of the usual gap between completions, or gaps between starts follow the previous latency (> 0.5).
    """
    rows = rows.select("start_us", "end_us", "e2e_ms")
    if rows.height > _MOST:
        rows = rows[-_MOST:]
    n = rows.height
    if n < _LEAST:
        return None
    rows = rows.sort("start_us")
    start, end = rows["start_us"].to_numpy(), np.sort(rows["end_us"].to_numpy())
    ended = np.searchsorted(end, start, side="right")
    flying = np.arange(n) - ended
    most = int(flying.max()) + 1
    later = np.arange(n) >= most
    if (
        most < 1 or int(later.sum()) < _LEAST // 2
    ):  # requests that end as they start are never in flight
        return None
    plateau = float((flying[later] == most - 1).mean())
    after_end = (start - end[np.maximum(ended - 1, 0)])[later & (ended > 0)]
    usual = float(end[-1] - end[0]) / max(n - 1, 1)
    soon = float(np.median(after_end)) < _SOON * usual if len(after_end) and usual > 0.0 else False
    latency, gaps = rows["e2e_ms"].to_numpy()[:-1], np.diff(start)
    follows = (
        most == 1
        and latency.std() > 0.0
        and gaps.std() > 0.0
        and float(np.corrcoef(latency, gaps)[0, 1]) > _CORRELATED
    )
    if plateau < _PLATEAU or not (soon or follows):
        return Check(
            check="closed_loop_load",
            status="ok",
            detail=f"arrivals are independent of answers (at most {most:,} in flight, n {n:,})",
        )
    detail = (
        f"{say_ratio(plateau)} of arrivals come as soon as one of {most:,} requests in flight ends. Such a closed loop sends less while the "
        "system is slow, so every percentile leaves waiting out.  Send at a fixed rate, or record the intended send time"
    )
    return Check(check="closed_loop_load", status="warn", detail=detail)
