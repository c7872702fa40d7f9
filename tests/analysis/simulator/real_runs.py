"""Real vLLM runs (data/ATTRIBUTION.md) as recordings: settings, facts, and which calls had ended when half of them had."""

from pathlib import Path

import numpy as np
import polars as pl

from overrun.analysis.simulator.engine import Setup
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.words.arrays import IntArray
from tests.analysis.whatif.builders import calls, facts_of

DATA = Path(__file__).parent / "data"
SETTINGS = {
    "rtx4090": Setup(max_sequences=256, token_budget=2048, kv_tokens=41_408),
    "rtxpro6000": Setup(max_sequences=128, token_budget=2048),
}


def real(name: str) -> tuple[Facts, IntArray, IntArray]:
    """The run's facts, and the rows that ended in its first and its second half."""
    run = pl.read_parquet(DATA / f"vllm_{name}.parquet")
    ttft, e2e, queue = (
        run[column].to_numpy() * 1000.0 for column in ("ttft_s", "e2e_s", "queue_s")
    )
    made = calls(
        run.height,
        start_s=run["arrival_s"].to_numpy(),
        ttft_ms=ttft,
        e2e_ms=e2e,
        ttft_engine_ms=ttft,
        engine_e2e_ms=e2e,
        queue_ms=queue,
        prefill_ms=ttft - queue,
        decode_ms=e2e - ttft,
        input_tokens=run["input_tokens"].to_numpy(),
        output_tokens=run["output_tokens"].to_numpy(),
    )
    ended = (run["arrival_s"] + run["e2e_s"]).to_numpy()
    early = ended <= np.median(ended)
    return facts_of(made, percentile=95.0), np.flatnonzero(early), np.flatnonzero(~early)
