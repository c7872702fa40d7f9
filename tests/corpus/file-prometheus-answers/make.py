"""Answers of Prometheus's query API, saved with curl: gauges and counters of an engine, and a quantile that names no metric."""

import json
from pathlib import Path

T0 = 1_790_000_000


def answer(name: str, value: object, steps: int = 80) -> str:
    labels = {"instance": "gpu-0:8000", "job": "vllm", "model_name": "m"} | (
        {"__name__": name} if name else {}
    )
    told = {"metric": labels, "values": [[T0 + 15 * at, str(value(at))] for at in range(steps)]}  # type: ignore[operator]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [told]}})


def make(folder: Path) -> None:
    (folder / "waiting.json").write_text(
        answer("vllm:num_requests_waiting", lambda at: 0 if at < 40 else 30)
    )
    (folder / "running.json").write_text(
        answer("vllm:num_requests_running", lambda at: 8 if at < 40 else 16)
    )
    (folder / "usage.json").write_text(
        answer("vllm:kv_cache_usage_perc", lambda at: 0.4 if at < 40 else 0.99)
    )
    (folder / "preemptions.json").write_text(
        answer("vllm:num_preemptions_total", lambda at: 0 if at < 40 else 6 * (at - 39))
    )
    (folder / "tokens.json").write_text(
        answer("vllm:generation_tokens_total", lambda at: 9_000 * at)
    )
    (folder / "p95.json").write_text(answer("", lambda at: 0.5 if at < 40 else 9.5))
