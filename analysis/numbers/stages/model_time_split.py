"""Is the model slow because there is more to do, or because it does it more slowly? The model part of the tail, split without remainder.

decode = tokens x time per token, prefill = uncached tokens x time per token; each product's difference is shared between its two factors at their
middle (Shapley's split of a product), so that the parts sum exactly to the difference that is shown.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.budget import GROUPS, StageTimes
from overrun.analysis.words.arrays import FloatArray, IndexArray


class ModelSplit(msgspec.Struct, kw_only=True):
    """What makes the model part of slow requests longer than that of the others, in ms; the parts sum to `total_ms` exactly.

    `length` more output tokens at the middle speed, `speed` more time per token at the middle length, `prompt` more uncached input tokens,
    `prefill_speed` more time per input token, `queue` waiting; `kv_transfer`, `first_token` and `generation` are as recorded. Where token counts are
    missing, `decode` and `prefill` stand unsplit.
    """

    n_slow: int
    n_reference: int
    total_ms: float
    parts: dict[str, float]
    output_tokens: tuple[float, float] | None
    token_ms: tuple[float, float] | None
    uncached_tokens: tuple[float, float] | None
    reasons: dict[str, str] = {}


def model_split(
    rows: pl.DataFrame,
    times: StageTimes,
    slow: IndexArray,
    reference_rows: pl.DataFrame,
    reference_times: StageTimes,
) -> ModelSplit:
    """Split the difference of means between slow rows (indices into `rows` and `times`) and reference rows; pairs are (reference, slow)."""
    means = {
        stage: (_mean(reference_times, stage, None), _mean(times, stage, slow))
        for stage in GROUPS["model"]
    }
    parts = {stage: after - before for stage, (before, after) in means.items() if before or after}
    out = ModelSplit(
        n_slow=len(slow),
        n_reference=reference_rows.height,
        total_ms=0.0,
        parts=parts,
        output_tokens=None,
        token_ms=None,
        uncached_tokens=None,
    )
    tokens = _pair(reference_rows, rows[slow], _gaps)
    if tokens is not None and "decode" in parts and min(tokens) > 0.0:
        speed = (means["decode"][0] / tokens[0], means["decode"][1] / tokens[1])
        parts["length"] = (tokens[1] - tokens[0]) * (speed[0] + speed[1]) / 2.0
        parts["speed"] = parts.pop("decode") - parts["length"]
        out.output_tokens, out.token_ms = (tokens[0] + 1.0, tokens[1] + 1.0), speed
    else:
        out.reasons |= dict.fromkeys(
            ("output_tokens", "token_ms"),
            "not all requests carry output tokens, or none has a decode time",
        )
    uncached = _pair(reference_rows, rows[slow], _uncached)
    if uncached is not None and "prefill" in parts and min(uncached) > 0.0:
        rate = (means["prefill"][0] / uncached[0], means["prefill"][1] / uncached[1])
        parts["prompt"] = (uncached[1] - uncached[0]) * (rate[0] + rate[1]) / 2.0
        parts["prefill_speed"] = parts.pop("prefill") - parts["prompt"]
        out.uncached_tokens = uncached
    else:
        out.reasons["uncached_tokens"] = (
            "not all requests carry input tokens, or none has a prefill time"
        )
    out.total_ms = math.fsum(parts.values())
    return out


def _mean(times: StageTimes, stage: str, index: IndexArray | None) -> float:
    spent = times.ms.get(stage)
    if spent is None or not len(spent):
        return 0.0
    picked = spent if index is None else spent[index]
    return float(picked.mean()) if len(picked) else 0.0


def _pair(reference: pl.DataFrame, slow: pl.DataFrame, of: object) -> tuple[float, float] | None:
    values = [of(part) for part in (reference, slow)]  # type: ignore[operator]
    return (
        None
        if any(v is None or not len(v) for v in values)
        else (float(values[0].mean()), float(values[1].mean()))
    )


def _gaps(rows: pl.DataFrame) -> FloatArray | None:
    """Output tokens after the first."""
    return (
        None
        if rows["output_tokens"].null_count()
        else np.maximum(rows["output_tokens"].to_numpy().astype(np.float64) - 1.0, 0.0)
    )


def _uncached(rows: pl.DataFrame) -> FloatArray | None:
    """Input tokens that were not in the cache; where cached ones are not recorded, all of them."""
    if rows["input_tokens"].null_count():
        return None
    cached = rows["cached_tokens"].fill_null(0).to_numpy().astype(np.float64)
    return np.maximum(rows["input_tokens"].to_numpy().astype(np.float64) - cached, 0.0)
