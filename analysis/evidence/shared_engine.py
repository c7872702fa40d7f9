"""Did the work of others on the same engines grow? The engines' own token counters against the calls that are stored, before and now.

Reads the gauges and rates of the case. Says nothing where all that the engines serve is stored, or where they count no tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.incident.period import Period
from overrun.analysis.words.timestamps import to_us


class Others(NamedTuple):
    """Tokens per second of one kind (`prompt_tokens` or `output_tokens`), of all that the engines served and of the stored calls, before and now."""

    kind: str
    before: float
    now: float
    own_before: float
    own_now: float

    @property
    def growth(self) -> float:
        """How many times as much as before the engines serve."""
        return self.now / max(self.before, 1e-9)

    @property
    def own_growth(self) -> float:
        """How many times as much as before the stored calls ask for."""
        return self.own_now / max(self.own_before, 1e-9)


def others(case: Case) -> Others | None:
    """Return the tokens whose growth is most that of others; None without a baseline, without counters, or where all is stored."""
    if not case.thinned or case.baseline is None or case.calls_before is None:
        return None
    found = [
        Others(
            kind,
            before,
            now,
            _own(case.calls_before, kind, case.baseline),
            _own(case.calls, kind, case.period),
        )
        for kind in ("prompt_tokens", "output_tokens")
        for before, now in [(_rate(case, kind, case.baseline), _rate(case, kind, case.period))]
        if before is not None and now is not None
    ]
    return max(found, key=lambda one: one.growth / max(one.own_growth, 1e-9), default=None)


def _rate(case: Case, kind: str, period: Period) -> float | None:
    """Tokens per second over a period, all engines together."""
    points = case.points.filter(
        (pl.col("indicator") == kind)
        & (pl.col("time_us") >= to_us(period.start))
        & (pl.col("time_us") <= to_us(period.end))
    )
    if points.is_empty():
        return None
    each = points.group_by("instance", "model").agg(pl.col("value").mean())
    return float(each["value"].sum())


def _own(calls: Calls, kind: str, period: Period) -> float:
    tokens = calls.of("input_tokens" if kind == "prompt_tokens" else "output_tokens")
    return float(np.nansum(tokens)) / max(period.seconds, 1e-3)
