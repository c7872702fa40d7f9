"""Where would a practised engineer look first? The four-step sequence as a checklist: TTFT against ITL, utilisation, output length, retries."""

from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import Latency, min_n, quantile
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.slo import Slo

# KV usage (0..1) and share of decode in the excess that fail a step (same values as the rules).
KV_FULL: Final = 0.9
MOST_BY_LENGTH: Final = 0.5
# From 1.1 attempts a request retries add load of their own: the 10 % retry budget of SRE practice.
MOST_ATTEMPTS: Final = 1.1


class Step(msgspec.Struct, kw_only=True):
    """One step of the four-step sequence: TTFT against ITL, engine utilisation, output length, retries."""

    step: str
    status: Literal["pass", "fail", "unknown"]
    detail: str


def checklist(
    frame: RequestFrame,
    slo: Slo,
    lengths: tuple[FloatArray, float | None] | None,
    told: Latency | None = None,
) -> list[Step]:
    """Return the four steps. `lengths` are output tokens per judged request and decode's share of the excess (None: within budget); `told` is what an
    engine's metrics tell where no request has spans."""
    return [
        _split_step(frame, slo, told),
        _utilisation_step(frame.points),
        _length_step(lengths),
        _retry_step(frame.rows),
    ]


def _split_step(frame: RequestFrame, slo: Slo, told: Latency | None) -> Step:
    """TTFT against the speed after it: which of the two is over its limit."""
    ok = frame.rows.select("error", "ttft_ms", "tpot_ms").filter(~pl.col("error"))
    parts, over = [], False
    for metric in ("ttft", "tpot"):
        values = ok[f"{metric}_ms"].drop_nulls().to_numpy()
        limit_ms = slo.limits().get(metric)
        stats = getattr(told, f"{metric}_ms", None)
        n = len(values) if stats is None else stats.n
        observed = getattr(stats, f"p{slo.percentile:g}".replace(".", "_"), None)
        if stats is None and n >= min_n(slo.percentile):
            observed = quantile(values, slo.percentile / 100.0)
        if observed is None:
            parts.append(f"{metric.upper()} has {say_count(n, 'sample')}")
            continue
        over = over or (limit_ms is not None and observed > limit_ms)
        limit = f" (limit {say_ms(limit_ms)})" if limit_ms is not None else ""
        parts.append(f"{metric.upper()} P{slo.percentile:g} {say_ms(observed)}{limit}")
    known = not all("sample" in part for part in parts)
    return Step(
        step="TTFT against ITL",
        status="unknown" if not known else "fail" if over else "pass",
        detail="; ".join(parts),
    )


def _utilisation_step(points: pl.DataFrame) -> Step:
    step = "engine utilisation"
    kv = points.filter(pl.col("indicator") == "kv_cache_usage")["value"].to_numpy()
    waiting = points.filter(pl.col("indicator") == "queue_depth")["value"].to_numpy()
    if not len(kv) and not len(waiting):
        return Step(
            step=step, status="unknown", detail="no engine gauges: scrape the engine's /metrics"
        )
    parts, full = [], False
    if len(kv):
        high = float(np.percentile(kv, 95.0))
        full = high > KV_FULL
        parts.append(
            f"KV cache usage P95 {say_ratio(high)} of {len(kv)} samples (full above {say_ratio(KV_FULL)}: a fixed default, not learned here)"
        )
    if len(waiting):
        most = float((waiting > 0).mean())
        full = full or most > 0.5
        parts.append(
            f"requests waiting in {say_ratio(most)} of {len(waiting)} samples, at most {waiting.max():,.0f}"
        )
    return Step(step=step, status="fail" if full else "pass", detail="; ".join(parts))


def _length_step(lengths: tuple[FloatArray, float | None] | None) -> Step:
    """Whether long answers make the excess; without a breach there is no excess to explain."""
    step = "output length"
    if lengths is None or not len(lengths[0]):
        return Step(step=step, status="unknown", detail="output tokens are not recorded")
    tokens, share = lengths
    usual, most = (quantile(tokens, p) for p in (0.5, 0.95))
    detail = f"output tokens P50 {usual:,.0f}, P95 {most:,.0f} (n {len(tokens):,})"
    detail += f"; decode is {say_ratio(share)} of the excess" if share is not None else ""
    return Step(
        step=step,
        status="fail" if share is not None and share >= MOST_BY_LENGTH else "pass",
        detail=detail,
    )


def _retry_step(rows: pl.DataFrame) -> Step:
    known = rows["attempts"].drop_nulls()
    if known.is_empty():
        return Step(
            step="retries",
            status="unknown",
            detail="attempts are not recorded, so retries inside a client are hidden",
        )
    mean = float(known.to_numpy().mean())
    return Step(
        step="retries",
        status="fail" if mean > MOST_ATTEMPTS else "pass",
        detail=f"{mean:.2f} attempts per request (n {len(known):,})",
    )
