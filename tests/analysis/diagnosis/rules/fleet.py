"""Requests spread over replicas, for the rules that compare them."""

import numpy as np
import polars as pl

from tests.analysis.builders import calls_of, requests

N = 1200
LATE = np.arange(N) >= 600


def fleet(
    replica: np.ndarray, *, queue_ms: np.ndarray | float = 5.0, token_ms: np.ndarray | float = 10.0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return requests and their calls; `replica` is the number of the engine that served each."""
    rng = np.random.default_rng(5)
    tokens = rng.integers(80, 121, N)
    frame = requests(
        N,
        start_s=np.arange(N) * 0.5,
        queue_ms=np.full(N, queue_ms),
        prefill_ms=100.0 + rng.uniform(0, 5, N),
        decode_ms=tokens * token_ms,
        output_tokens=tokens,
        input_tokens=500,
    )
    return frame, calls_of(frame, engine_instance=[f"gpu-{k}" for k in replica])
