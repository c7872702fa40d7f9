"""How many tokens does a step with speculative decoding yield, and how many are drafted for it? As the engines' gauges or counters report it."""

from __future__ import annotations

from typing import Final

import polars as pl

# What proposing one token adds to a step, as a part of it: a head of one or two layers on a model of some thirty, and its launch; own default.
COST_A_TOKEN: Final = 0.05


def recorded_draft(points: pl.DataFrame) -> float:
    """Return how many tokens are drafted for each step by the engines' counters, 0 if they do not report it."""
    drafted, steps = _mean(points, "spec_draft_tokens"), _steps(points)
    return drafted / steps if drafted and steps else 0.0


def recorded_length(points: pl.DataFrame) -> float:
    """Return the tokens that a step yields by the engines' gauges, else by their counters; 0 where neither is there.

    A step of a sequence yields one token and those accepted beside it.
    """
    told = points.filter(pl.col("indicator") == "spec_accept_length")["value"]
    if len(told):
        return float(told.median())  # type: ignore[arg-type]
    accepted, steps = _mean(points, "spec_accepted_tokens"), _steps(points)
    return 1.0 + accepted / steps if accepted and steps else 0.0


def share_of(cost_ratio: float) -> float:
    """Return the part of a step that is drafting, from what that adds to one, as a part of it."""
    return cost_ratio / (1.0 + cost_ratio)


def _steps(points: pl.DataFrame) -> float:
    """Steps of sequences a second: as counted, else the output tokens that were not accepted from a draft."""
    counted, written, accepted = (
        _mean(points, name) for name in ("spec_drafts", "output_tokens", "spec_accepted_tokens")
    )
    return counted or max(0.0, written - accepted)


def _mean(points: pl.DataFrame, indicator: str) -> float:
    values = points.filter(pl.col("indicator") == indicator)["value"]
    return float(values.mean()) if len(values) else 0.0  # type: ignore[arg-type]
