"""Small facts for what-if tests: one call per request unless said otherwise, times in milliseconds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.budget import STAGES
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.words.slo import Slo

START_US = 1_763_600_000_000_000
_CALL: dict[str, Any] = {
    "service": "chat",
    "instance": "a",
    "engine_instance": None,
    "route": "/chat",
    "model": "m",
    "provider": None,
    "workload": "chat",
    "session": None,
    "tenant": None,
    "prefix_hash": None,
    "streaming": True,
    "input_tokens": 500,
    "output_tokens": 101,
    "cached_tokens": None,
    "reasoning_tokens": None,
    "max_tokens": None,
    "ttft_source": "attribute",
    "ttft_client_ms": None,
    "ttft_engine_ms": None,
    "engine_e2e_ms": None,
    "queue_ms": None,
    "prefill_ms": None,
    "decode_ms": None,
    "finish_reason": "stop",
    "error": False,
    "error_type": None,
    "http_status": None,
    "attempts": None,
    "predicted_p50": None,
    "on_path": True,
    "engine_alone": False,
    "engine_start_us": None,
}
_TEXT = {
    "provider",
    "session",
    "tenant",
    "prefix_hash",
    "finish_reason",
    "error_type",
    "engine_instance",
}


def calls(n: int, *, every_s: float = 1.0, **columns: Any) -> pl.DataFrame:
    """n calls, the k-th of request k: `ttft_ms` and `e2e_ms` given, a column is one value for all or a sequence of n; `start_s` after the start."""
    start = START_US + (np.asarray(columns.pop("start_s", np.arange(n) * every_s)) * 1e6).astype(
        np.int64
    )
    data = {
        **_CALL,
        "trace_id": [f"{k:032x}" for k in range(n)],
        "span_id": [f"{k:016x}" for k in range(n)],
        "start_us": start,
        "request": np.arange(n),
        "ttft_ms": None,
        "e2e_ms": 1000.0,
        **columns,
    }
    frame = pl.DataFrame(
        {
            name: pl.Series(
                name, _spread(value, n), dtype=pl.String if name in _TEXT else None, strict=False
            )
            for name, value in data.items()
        }
    )
    numbers = [
        name
        for name in frame.columns
        if name.endswith(("_ms", "_tokens")) or name in ("attempts", "predicted_p50")
    ]
    frame = frame.with_columns(
        pl.col(numbers).cast(pl.Float64), pl.col("engine_start_us").cast(pl.Int64)
    )
    return frame.with_columns(
        end_us=pl.col("start_us") + (pl.col("e2e_ms") * 1000).cast(pl.Int64),
        tpot_ms=pl.when(pl.col("output_tokens") > 1).then(
            (pl.col("e2e_ms") - pl.col("ttft_ms")) / (pl.col("output_tokens") - 1)
        ),
    )


def requests_of(calls: pl.DataFrame, **columns: Any) -> pl.DataFrame:
    """The requests of such calls where each request is its call and nothing else, unless columns say otherwise."""
    own = calls.unique("request", keep="last", maintain_order=True).filter(pl.col("request") >= 0)
    n = own.height
    zero = {
        f"{prefix}{stage}_ms": pl.Series([0.0] * n) for stage in STAGES for prefix in ("", "ttft_")
    }
    given = {
        name: pl.Series(name, _spread(value, n), strict=False) for name, value in columns.items()
    }
    frame = own.select(
        "trace_id",
        "start_us",
        "service",
        "route",
        "model",
        "provider",
        "tenant",
        "session",
        "error",
        "error_type",
        "ttft_ms",
        "e2e_ms",
        "tpot_ms",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "max_tokens",
        "attempts",
    )
    frame = frame.with_columns(
        engine_only=pl.lit(False),
        itl_ms=pl.lit(None, pl.Float64),
        llm_calls=pl.lit(1),
        tool_calls=pl.lit(0),
        truncated=pl.lit(False),
    )
    return frame.with_columns(**zero).with_columns(**given)


def facts_of(
    calls: pl.DataFrame,
    *,
    metric: str = "e2e",
    percentile: float = 50.0,
    requests: pl.DataFrame | None = None,
    points: pl.DataFrame | None = None,
    spans: Callable[[], pl.DataFrame] = pl.DataFrame,
    slo: Slo | None = None,
) -> Facts:
    """Facts over such calls."""
    empty = pl.DataFrame(
        schema={
            "time_us": pl.Int64,
            "instance": pl.String,
            "model": pl.String,
            "indicator": pl.String,
            "value": pl.Float64,
        }
    )
    judged = slo or Slo(ttft_ms=1500.0, e2e_ms=2500.0, percentile=percentile)
    return Facts(
        requests_of(calls) if requests is None else requests,
        calls,
        empty if points is None else points,
        judged,
        metric,
        load_spans=spans,
    )


def _spread(value: Any, n: int) -> Any:
    return value if isinstance(value, (np.ndarray, list, pl.Series)) else [value] * n
