"""Do calls begin as others end, as behind a semaphore or in a full pool?"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, known
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import FloatArray

# A pause that counts; how far a call may begin before or after another one's end to have taken its place; the share of the calls that must, and how
# many there must be; own defaults.
MIN_PAUSE_MS: Final = 50.0
EARLY_S: Final = 0.002
HANDOVER_S: Final = 0.02
MIN_HANDED: Final = 0.5
MIN_HELD: Final = 10


def handed_over(case: Observed) -> bool:
    """Return whether calls that begin after a pause begin when another call ends: a place became free, as behind a semaphore or in a full pool.

    An application that is busy itself begins its calls when its own work is done, whatever others do.
    """
    waited = pauses(case.slow_tree)
    begun, ends = (
        np.sort(waited["start_s"].to_numpy()),
        np.sort(case.calls.end_s[known(case.calls.end_s)]),
    )
    if len(begun) < MIN_HELD or len(ends) < MIN_CALLS:
        return False
    return (follow(begun, ends) or 0.0) >= MIN_HANDED


def follow(begun: FloatArray, ends: FloatArray, slack_s: float = 0.0) -> float | None:
    """Return the share of moments (ascending, s) that follow one of `ends` (ascending, s) at once; None where that is no more than three times what chance gives.

    `slack_s`: all of them may be so much later than the end that they follow, by the same time.
    """
    last = np.searchsorted(ends, begun + EARLY_S, side="right") - 1
    lag = np.where(last >= 0, begun - ends[np.maximum(last, 0)], np.inf)
    lag = lag - np.clip(np.median(lag) - HANDOVER_S / 2.0, 0.0, slack_s)
    hits = float(((lag >= -EARLY_S) & (lag <= HANDOVER_S)).mean())
    chance = 1.0 - float(
        np.exp(-(EARLY_S + HANDOVER_S) * len(ends) / max(float(np.ptp(ends)), 1e-3))
    )
    return hits if hits >= 3.0 * chance else None


def pauses(tree: Tree) -> pl.DataFrame:
    """Return the time before a model call in which nothing else under its parent ran, one row per call with a pause worth the name."""
    siblings = (
        tree.frame.filter(pl.col("parent_key").is_not_null())
        .sort("trace_key", "parent_key", "start_s")
        .with_columns(
            free_s=pl.col("end_s")
            .cum_max()
            .shift(1)
            .over("trace_key", "parent_key")
            .fill_null(pl.col("parent_start_s"))
        )
    )
    return siblings.filter(
        (pl.col("role") == "llm") & (pl.col("start_s") - pl.col("free_s") > MIN_PAUSE_MS / 1e3)
    ).select(
        "trace_key",
        "start_s",
        held_ms=(pl.col("start_s") - pl.col("free_s")) * 1e3,
        name=pl.lit("no free slot for another call"),
    )
