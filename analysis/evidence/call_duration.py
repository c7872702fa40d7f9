"""Did calls without a recorded first token begin later, or were they written more slowly? Their whole time, split by how much they wrote.

Many instrumentations tell no first token (LangChain's, calls that do not stream): wait and pace then show in how the whole call grows with its answer.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.words.arrays import BoolArray

# Whole calls are fitted on medians of so many groups of like length, each of ten calls at least, and lengths must differ by so much (P90 over P10) for wait
# and pace to be separated; own defaults.
GROUPS: Final = 8
PER_GROUP: Final = 10
MIN_SPREAD: Final = 2.0


class Whole(NamedTuple):
    """Calls without a recorded first token: time (ms) = wait + pace x output tokens, before and now."""

    wait_before_ms: float
    pace_before_ms: float
    wait_now_ms: float
    pace_now_ms: float

    @property
    def ratio(self) -> float:
        """Time per token, now over before."""
        return self.pace_now_ms / max(self.pace_before_ms, 1e-6)


def whole_calls(before: Calls, now: Calls) -> Whole | None:
    """Split the time of whole calls into what does not depend on the length of the answer and what does; None where lengths are too much alike or unknown."""
    sides = [_line(side.where(untimed(side))) for side in (before, now)]
    return None if sides[0] is None or sides[1] is None else Whole(*sides[0], *sides[1])


def untimed(calls: Calls) -> BoolArray:
    """Return which calls were answered, by a model that writes, whose inside and first token nobody saw, with a count of it."""
    answered = (
        ~calls.has_engine
        & (calls.of("error") == 0.0)
        & (calls.of("output_tokens") > 0.0)
        & calls.writers
    )
    mask: BoolArray = answered & ~known(calls.of("ttft_ms")) & known(calls.of("e2e_ms"))
    return mask


def _line(calls: Calls) -> tuple[float, float] | None:
    """Wait and pace from medians of groups of like length, which a stuck call does not bend; neither is negative."""
    tokens, took = calls.of("output_tokens"), calls.of("e2e_ms")
    if len(calls) < GROUPS * PER_GROUP or np.percentile(tokens, 90.0) < MIN_SPREAD * np.percentile(
        tokens, 10.0
    ):
        return None
    parts = np.array_split(np.argsort(tokens, kind="stable"), GROUPS)
    x, y = (
        np.array([float(np.median(values[part])) for part in parts]) for values in (tokens, took)
    )
    pace, wait = np.polyfit(x, y, 1)
    if wait < 0.0 or pace < 0.0:
        return (0.0, float(np.median(y / x))) if wait < 0.0 else (float(np.median(y)), 0.0)
    return float(wait), float(pace)
