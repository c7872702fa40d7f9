"""Do name lookups stall, as many of them as before? From the spans of lookups: which wait for a resolver's time-out, and how many there are a request."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.call_inside import HANDSHAKE
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.span_tree import Tree

# Name lookups by their spans. One that stalls waits for a resolver's time-out, of which a second is the shortest that clients use (glibc: 5 s, resolv.conf(5));
# more lookups a request than this many times the former ones are new connections; own default.
LOOKUP: Final = r"(?i)(?:^|[^a-z])(?:dns|resolve|getaddrinfo)(?:$|[^a-z])"
LEAST_TIMEOUT_MS: Final = 1_000.0
MORE: Final = 1.2
MOSTLY: Final = 0.5
LONGER: Final = 2.0


class Stalls(NamedTuple):
    """Name lookups that wait for a resolver: the part of all that do (0..1), what those and the others take in ms, and lookups a request now and before."""

    ratio: float
    stalled_ms: float
    quick_ms: float
    each_now: float
    each_before: float


def lookup_stalls(case: Observed) -> Stalls | None:
    """Return the name lookups that stall, None where lookups are not most of it, or there are more of them (new connections)."""
    lookups = [
        tree.frame.filter(pl.col("name").str.contains(LOOKUP) & (pl.col("stage") == "network"))
        for tree in (case.slow_tree, case.tree, case.tree_before or case.usual_tree)
    ]
    slow, now, before = (frame["duration_ms"].to_numpy() for frame in lookups)
    if not len(slow) or (
        float(slow.sum())
        < MOSTLY * handshake_ms(case.slow_tree, case.slow) * case.slow_tree.requests
    ):
        return None
    each = (
        len(now) / max(case.tree.requests, 1),
        len(before) / max((case.tree_before or case.usual_tree).requests, 1),
    )
    quick_ms = float(np.median(before)) if len(before) else float(np.median(now))
    stalled = now >= max(LEAST_TIMEOUT_MS, LONGER * quick_ms)
    if not stalled.any() or each[0] > MORE * each[1]:
        return None
    return Stalls(float(stalled.mean()), float(np.median(now[stalled])), quick_ms, each[0], each[1])


def handshake_ms(tree: Tree, rows: pl.DataFrame) -> float:
    """Mean time of lookup, connect and TLS spans per request."""
    frame = tree.frame.filter(
        pl.col("name").str.contains(HANDSHAKE) & (pl.col("stage") == "network")
    )
    return float(frame["duration_ms"].sum()) / max(tree.requests, 1) if rows.height else 0.0
