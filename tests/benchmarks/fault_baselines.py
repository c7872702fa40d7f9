"""What would simple methods say of the same window? Four of them, so that "better" is measured.

Inclusive duration: the stage whose spans, children included, grew most from typical to slow requests. Always the LLM: decode, because answers are long.
Fixed thresholds: the published four-step sequence (TTFT or speed, engine utilisation, length spread, retries). Subtraction: what-ifs that take the
fault's excess off each slow request alone, as if no other request gained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from overrun.analysis.front.report import Report
from overrun.analysis.whatif.facts import Facts
from overrun.collector.store import database as stores
from overrun.sample_traces.simulator.truth import limits_s

# The cause that each stage is blamed on most often, for a method that knows stages only.
_USUAL: Final = {
    "queue": "under_capacity",
    "decode": "long_outputs",
    "generation": "long_outputs",
    "prefill": "prompt_bloat",
    "first_token": "provider_queueing",
    "retrieval": "slow_dependency",
    "tool": "slow_dependency",
    "network": "connection_churn",
    "guardrail": "oversized_side_model",
    "other": "unattributed_time",
}
_KV_FULL: Final = 0.9
_SPREAD: Final = 3.0
_ATTEMPTS: Final = 1.1

_INCLUSIVE: Final = """
with slow as (select trace_id, e2e_ms > $limit as slow from v_requests where status = 'ok' and workload = 'chat'),
per as (select s.trace_id, s.stage, sum(s.duration_ms) as ms from v_spans s join slow using (trace_id) where s.parent_span_id is not null group by all)
select stage, sum(ms) filter (slow) / greatest(1, (select count(*) from slow where slow))
            - sum(ms) filter (not slow) / greatest(1, (select count(*) from slow where not slow)) as more
from per join slow using (trace_id) group by stage order by more desc nulls last
"""
_CALLS: Final = """
select quantile_cont(output_tokens, 0.99) / greatest(1, quantile_cont(output_tokens, 0.5)), quantile_cont(ttft_ms, 0.95), avg(coalesce(attempts, 1))
from v_llm_calls
"""
_KV: Final = (
    "select quantile_cont(value, 0.95) from v_metric_points where indicator = 'kv_cache_usage'"
)


def answers(db: Path, report: Report, slo: str) -> dict[str, tuple[str, str]]:
    """(stage, cause) per method."""
    limits = limits_s(slo)
    store = stores.open_store(db, create=False)
    try:
        with store.reading() as con:
            ranked = con.sql(_INCLUSIVE, params={"limit": 1000.0 * limits["e2el"]}).fetchall()
            spread, ttft_ms, attempts = con.sql(_CALLS).fetchall()[0]
            kv = con.sql(_KV).fetchall()[0][0]
    finally:
        store.close()
    top = next((stage for stage, more in ranked if more is not None and stage), "other")
    return {
        "inclusive duration": (top, _USUAL.get(top, "none")),
        "always the LLM": ("decode", "long_outputs"),
        "fixed thresholds": _four_steps(
            (ttft_ms or 0.0) > 1000.0 * limits["ttft"], kv, spread or 1.0, attempts or 1.0
        ),
    }


def _four_steps(late: bool, kv: float | None, spread: float, attempts: float) -> tuple[str, str]:
    if kv is not None and kv > _KV_FULL:
        return "queue", "kv_pressure"
    if attempts > _ATTEMPTS:
        return "queue", "retry_storm"
    if spread > _SPREAD:
        return "decode", "long_outputs"
    return ("queue", "under_capacity") if late else ("decode", "batch_past_knee")


def naive_after(facts: Facts, fix: dict[str, Any]) -> dict[float, float]:
    """Quantiles (0..1) of the judged metric in ms when a cap's tokens are cut off each request alone; empty for fixes that subtraction cannot say."""
    if fix["fix"] != "cap" or facts.metric != "e2e" or not len(facts):
        return {}
    e2e, ttft, tokens = facts.ms("e2e_ms"), facts.ms("ttft_ms"), facts.ms("output_tokens")
    cap = float(fix["parameters"]["max_tokens"])
    cut = np.nan_to_num(tokens, nan=0.0) > cap
    with np.errstate(invalid="ignore", divide="ignore"):
        saved = np.where(cut, (e2e - ttft) * (tokens - cap) / (tokens - 1.0), 0.0)
    after = e2e - np.nan_to_num(saved)
    return {q: float(np.percentile(after, 100.0 * q)) for q in (0.5, 0.95, 0.99)}
