"""Requests to a model of somebody else: first token and decode as the client sees them."""

from typing import Any

import numpy as np
import polars as pl

from tests.analysis.builders import requests

N = 1200
LATE = np.arange(N) >= 600


def hosted(
    first_ms: np.ndarray | float = 400.0, token_ms: np.ndarray | float = 10.0, **columns: Any
) -> pl.DataFrame:
    rng = np.random.default_rng(7)
    first = np.full(N, first_ms) * rng.lognormal(0.0, 0.15, N)
    pace = np.full(N, token_ms)
    return requests(
        N,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=pace * 99.0,
        tpot_ms=pace,
        **{
            "start_s": np.arange(N) * 0.5,
            "input_tokens": rng.integers(400, 600, N),
            "provider": "openai",
        }
        | columns,
    )


def uncounted(rows: pl.DataFrame) -> pl.DataFrame:
    """The same requests, of which nobody counted the tokens."""
    return rows.with_columns(
        input_tokens=pl.lit(None, pl.Int64),
        output_tokens=pl.lit(None, pl.Int64),
        tpot_ns=pl.lit(None, pl.Int64),
    )
