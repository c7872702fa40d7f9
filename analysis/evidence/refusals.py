"""Which calls and attempts were refused for their rate? One reading of status and error for all who ask."""

from __future__ import annotations

from typing import Final

import polars as pl

from overrun.analysis.evidence.calls import Calls

_SAID: Final = r"(?i)rate.?limit|\b429\b|too.?many.?requests|quota"


def refused() -> pl.Expr:
    """Return whether a row (columns http_status, error_type) is a refusal: status 429, or an error that is named so."""
    told = pl.col("error_type").fill_null("").str.contains(_SAID)
    return (pl.col("http_status") == 429).fill_null(value=False) | told


def refused_ratio(calls: Calls | None) -> float:
    """Return the share of calls that were refused, 0 without calls."""
    return float(calls.frame.select(refused().mean()).item()) if calls else 0.0
