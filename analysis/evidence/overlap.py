"""How much of something that others did fell into an interval? Amounts spread evenly over intervals, added up between two moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from overrun.analysis.words.arrays import FloatArray


class Flow:
    """n amounts, each spread evenly over its interval [start, end); an empty interval counts as a microsecond.

    The running total is piecewise linear, so `between` costs a search each: O((n + m) log n) for m questions.
    """

    def __init__(self, start_s: FloatArray, end_s: FloatArray, amount: FloatArray) -> None:
        end_s = np.maximum(end_s, start_s + 1e-6)
        rate = amount / (end_s - start_s)
        at = np.r_[start_s, end_s]
        change = np.r_[rate, -rate]
        order = np.argsort(at, kind="stable")
        self._at = at[order]
        slope = np.cumsum(change[order])
        self._total: FloatArray = (
            np.r_[0.0, np.cumsum(slope[:-1] * np.diff(self._at))] if len(at) else np.zeros(0)
        )

    def until(self, moment_s: Any) -> FloatArray:
        """Return the amount that came before each moment."""
        if not len(self._at):
            return np.zeros(np.shape(moment_s))
        total: FloatArray = np.interp(moment_s, self._at, self._total)
        return total

    def between(self, from_s: Any, to_s: Any) -> FloatArray:
        """Return the amount that fell between pairs of moments."""
        return self.until(to_s) - self.until(from_s)
