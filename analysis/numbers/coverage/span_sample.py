"""Of how many requests are the spans read? Of all where they have few, else of one trace in so many, chosen by the hash of its id."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

# Spans read of the judged period and the baseline together, and besides of the slow requests and of those that they are compared with (each). 40,000 spans
# are 4,000 requests of ten, which take 25 ms to read; a share of such requests is right within 1.6 points in 95 of 100 samples.
MOST_SPANS: Final = 40_000
MOST_SPANS_APART: Final = 20_000
# However many spans each request has, those of so many requests are read: shares of 1,000 are right within 3.1 points.
LEAST_REQUESTS: Final = 1_000


def one_in(rows: pl.DataFrame, most: int, least: int = LEAST_REQUESTS) -> int:
    """Return of one request in how many the spans are read: of so many that they have `most` spans (column `spans`), but of `least` requests in any case."""
    return max(1, min(math.ceil(int(rows["spans"].sum()) / most), rows.height // least))


def error(n: int) -> float:
    """Return by how much a share found in `n` requests of a sample is wrong at most, in 95 of 100 samples: 1.96 standard errors of a half."""
    return 0.98 / math.sqrt(max(n, 1))
