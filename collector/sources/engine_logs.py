"""What did an engine write into its log? Lines with its figures (running, waiting, cache, tokens) become the metrics that its page would have had.

An engine is one entry of `_ENGINES`, as data: which lines, and which figure in them is which metric. Source: vLLM's loggers (v0 metrics.py, v1 loggers.py, its
speculation's line), SGLang's scheduler ("Prefill batch", "Decode batch") and TensorRT-LLM's executor (a line an iteration, py_executor.py), as pasted into
issues.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from overrun.collector.sources import prometheus
from overrun.collector.sources.log_lines import plain_lines, time_ns


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of a line: times `scale` it is the metric's value. With `each_s` it is a rate, and what came since the line before is counted; with `counts`
    the figure itself is what came."""

    metric: str
    pattern: str
    scale: float = 1.0
    each_s: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class _Engine:
    service: str
    line: str
    figures: tuple[_Figure, ...]
    rank: str = ""  # which of several engines of one log it is


_ENGINES = (
    _Engine(
        "vllm",
        r"Avg prompt throughput: [\d.]+ tokens/s|SpecDecoding metrics:",
        (
            _Figure("vllm:num_requests_running", r"Running: (\d+) reqs"),
            _Figure("vllm:num_requests_waiting", r"(?:Waiting|Pending): (\d+) reqs"),
            _Figure("vllm:num_requests_swapped", r"Swapped: (\d+) reqs"),
            _Figure("vllm:kv_cache_usage_perc", r"GPU KV cache usage: ([\d.]+)%", 0.01),
            _Figure(
                "vllm:gpu_prefix_cache_hit_rate",
                r"Prefix cache hit rate: (?:GPU: )?([\d.]+)%",
                0.01,
            ),
            _Figure(
                "vllm:prompt_tokens_total", r"Avg prompt throughput: ([\d.]+) tokens/s", each_s=True
            ),
            _Figure(
                "vllm:generation_tokens_total",
                r"Avg generation throughput: ([\d.]+) tokens/s",
                each_s=True,
            ),
            _Figure(
                "vllm:spec_decode_draft_acceptance_rate",
                r"(?:Avg )?[Dd]raft acceptance rate: ([\d.]+)%",
                0.01,
            ),
        ),
        rank=r"Engine (\d+):",
    ),
    _Engine(
        "sglang",
        r"\b(?:Prefill|Decode) batch\b.*#running-req",
        (
            _Figure("sglang:num_running_reqs", r"#running-req: (\d+)"),
            _Figure("sglang:num_queue_reqs", r"#queue-req: (\d+)"),
            _Figure("sglang:num_decode_prealloc_queue_reqs", r"#prealloc-req: (\d+)"),
            _Figure("sglang:num_decode_transfer_queue_reqs", r"#transfer-req: (\d+)"),
            _Figure("sglang:num_prefill_bootstrap_queue_reqs", r"#bootstrap-req: (\d+)"),
            _Figure("sglang:num_retracted_reqs", r"#retracted-req: (\d+)"),
            _Figure("sglang:token_usage", r"(?<!swa )(?<!mamba )token usage: ([\d.]+)"),
            _Figure("sglang:gen_throughput", r"gen throughput \(token/s\): ([\d.]+)"),
            _Figure("sglang:spec_accept_rate", r"accept rate: ([\d.]+)"),
            _Figure("sglang:spec_accept_length", r"accept len: ([\d.]+)"),
            _Figure("sglang:prompt_tokens_total", r"#new-token: (\d+)", counts=True),
            _Figure("sglang:prompt_tokens_total", r"#cached-token: (\d+)", counts=True),
            _Figure("sglang:cached_tokens_total", r"#cached-token: (\d+)", counts=True),
        ),
        rank=r"\bDP(\d+)\b",
    ),
    _Engine(
        "trtllm",
        r"num_scheduled_requests\b.*'num_generation_tokens'",
        (
            _Figure("trtllm_num_requests_running", r"num_scheduled_requests\s?[:=] (\d+)"),
            _Figure("trtllm_kv_cache_utilization", r"kv_cache_util = ([\d.]+)"),
            _Figure("trtllm_prompt_tokens_total", r"'num_ctx_tokens': (\d+)", counts=True),
            _Figure(
                "trtllm_generation_tokens_total", r"'num_generation_tokens': (\d+)", counts=True
            ),
        ),
        rank=r"\bglobal_rank = (\d+)",
    ),
)


@dataclass(slots=True)
class Read:
    """What a log held: a metrics request, and what must be known of it."""

    body: bytes
    note: str


@dataclass(slots=True)
class _Series:
    """What is known of one engine of the log: metric -> (time in ns -> value)."""

    gauges: dict[str, dict[int, float]] = field(default_factory=dict)
    counts: dict[str, dict[int, float]] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)  # of a rate's metric


def read(text: str, *, instance: str, written_ns: int) -> Read | None:
    """The metrics in an engine's log, None if no line has figures of a known engine."""
    if not any(re.search(engine.line, text) for engine in _ENGINES):
        return None
    found: dict[tuple[str, str], _Series] = {}
    told = others = 0
    for line, when in plain_lines(text):
        engine = next((one for one in _ENGINES if re.search(one.line, line)), None)
        at = (
            None
            if engine is None
            else time_ns(line, written_ns) or (time_ns(when, written_ns) if when else None)
        )
        if engine is None or at is None:
            others += bool(line.strip())
            continue
        rank = re.search(engine.rank, line)
        series = found.setdefault((engine.service, rank[1] if rank else ""), _Series())
        _add(series, engine, line, at)
        told += 1
    if not told:
        return None
    ranks = {service: sum(one == service for one, _ in found) for service, _ in found}
    request = ExportMetricsServiceRequest()
    for (service, which), series in found.items():
        name = f"{instance}/{which}" if ranks[service] > 1 else instance
        _write(request, service, name, series)
    engines = ", ".join(dict.fromkeys(service for service, _ in found))
    return Read(
        request.SerializeToString(),
        f"figures of {engines} in {told:,} lines, {others:,} others left out; times without a zone are read as UTC",
    )


def _add(series: _Series, engine: _Engine, line: str, at: int) -> None:
    for figure in engine.figures:
        match = re.search(figure.pattern, line)
        if match is None:
            continue
        value = float(match[1]) * figure.scale
        if figure.each_s:
            before = series.last_ns.get(figure.metric)
            series.last_ns[figure.metric] = at
            if before is None or before >= at:
                continue
            value *= (at - before) / 1e9
        if figure.each_s or figure.counts:
            counted = series.counts.setdefault(figure.metric, {})
            counted[at] = counted.get(at, 0.0) + value
        else:
            series.gauges.setdefault(figure.metric, {})[at] = value


def _write(
    request: ExportMetricsServiceRequest, service: str, instance: str, series: _Series
) -> None:
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(
        prometheus.pairs({"service.name": service, "service.instance.id": instance})
    )
    metrics = resource.scope_metrics.add().metrics
    for name, points in series.gauges.items():
        metric = metrics.add(name=name)
        for at, value in points.items():
            metric.gauge.data_points.add(time_unix_nano=at, as_double=value)
    for name, points in series.counts.items():
        metric = metrics.add(name=name)
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        for at, value in points.items():
            metric.sum.data_points.add(time_unix_nano=at, as_double=value)
