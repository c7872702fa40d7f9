"""Calls on one engine whose time per token follows what runs beside them, for the rules that read batch and prefill."""

from typing import Any

import numpy as np
import polars as pl

from tests.analysis.builders import requests

N = 1000
LATE = np.arange(N) >= 500


def engine(
    *,
    prefill_cost: np.ndarray | float = 0.0,
    token_ms: np.ndarray | float = 10.0,
    cached: np.ndarray | int = 0,
    read_ms: np.ndarray | float = 0.05,
    **columns: Any,
) -> pl.DataFrame:
    """Pairs of calls, two seconds apart in time: an answer of 100 tokens, and a prompt of 200 or 4,000 tokens that is read 300 ms later.

    `prefill_cost` is what each token read beside it costs the answer, in ms; `token_ms` the time of its tokens otherwise; `cached` are tokens of long
    prompts that need not be read, `read_ms` is what reading each other one takes.
    """
    answer = np.arange(N) % 2 == 0
    long = (np.arange(N) // 2) % 2 == 0
    n_in = np.where(answer, 200, np.where(long, 4_000, 200))
    held = np.where(n_in > 200, cached, 0)
    new = n_in - held
    met = np.where(answer, np.r_[new[1:], 200], 0)
    spent = np.where(answer, 99.0 * np.full(N, token_ms) + np.full(N, prefill_cost) * met, 10.0)
    out = np.where(answer, 100, 2)
    return requests(
        N,
        start_s=(np.arange(N) // 2) * 2.0 + np.where(answer, 0.0, 0.3),
        queue_ms=1.0,
        prefill_ms=new * np.full(N, read_ms),
        decode_ms=spent,
        input_tokens=n_in,
        cached_tokens=held,
        output_tokens=out,
        tpot_ms=spent / (out - 1),
        **columns,
    )
