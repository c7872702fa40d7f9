"""What do the engines' /metrics say at a moment? vLLM's names, as the OpenTelemetry Collector's prometheus receiver encodes them.

Counters are cumulative sums of doubles that keep `_total`, histograms are cumulative with vLLM's own bounds, labels are strings.
"""

from __future__ import annotations

import bisect
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from overrun.sample_traces.simulator.engine import Engine, Sequence
from overrun.sample_traces.simulator.otlp import attributes_of, engine_instance

_TTFT: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    160.0,
    640.0,
    2560.0,
)
_ITL: Final = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
_LONG: Final = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
    960.0,
    1920.0,
    7680.0,
)
_TOKENS: Final = (
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10000.0,
    20000.0,
)
_STEP: Final = (
    1.0,
    8.0,
    16.0,
    32.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
)
_SCOPE: Final = (
    "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/prometheusreceiver",
    "0.150.0",
)
_BOUNDS: Final = {
    "vllm:time_to_first_token_seconds": _TTFT,
    "vllm:inter_token_latency_seconds": _ITL,
    "vllm:request_time_per_output_token_seconds": _ITL,
    "vllm:e2e_request_latency_seconds": _LONG,
    "vllm:request_queue_time_seconds": _LONG,
    "vllm:request_inference_time_seconds": _LONG,
    "vllm:request_prefill_time_seconds": _LONG,
    "vllm:request_decode_time_seconds": _LONG,
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:request_params_max_tokens": _TOKENS,
    "vllm:iteration_tokens_total": _STEP,
    "vllm:request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
}


class Scraper:
    """Reads one replica again and again; histograms gather between scrapes."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._counts = {name: [0] * (len(bounds) + 1) for name, bounds in _BOUNDS.items()}
        self._sums = dict.fromkeys(_BOUNDS, 0.0)
        self._told = 0

    def scrape(self, start_ns: int) -> ResourceMetrics:
        """All metrics of this moment."""
        engine, now_ns = self.engine, start_ns + round(self.engine.clock.now * 1e9)
        self._gather()
        out = ResourceMetrics(
            resource=Resource(
                attributes=attributes_of(
                    {
                        "service.name": "vllm",
                        "server.address": engine_instance(engine.index).split(":")[0],
                        "service.instance.id": engine_instance(engine.index),
                        "server.port": "8000",
                        "url.scheme": "http",
                    }
                )
            )
        )
        scope = out.scope_metrics.add()
        scope.scope.name, scope.scope.version = _SCOPE
        labels = {"engine": "0", "model_name": engine.settings.model}
        s, c = engine.settings, engine.counters
        for name, value in (
            ("vllm:num_requests_running", len(engine.prefilling) + len(engine.decoding)),
            ("vllm:num_requests_waiting", len(engine.waiting)),
            ("vllm:kv_cache_usage_perc", engine.kv_usage),
        ):
            _gauge(scope, name, float(value), labels, now_ns)
        counters: list[tuple[str, float, dict[str, str]]] = [
            ("vllm:num_preemptions_total", c.preemptions, {}),
            ("vllm:prefix_cache_queries_total", c.prefix_queries, {}),
            ("vllm:prefix_cache_hits_total", c.prefix_hits, {}),
            ("vllm:prompt_tokens_total", c.prompt_tokens, {}),
            ("vllm:prompt_tokens_cached_total", c.prefix_hits, {}),
            ("vllm:generation_tokens_total", c.output_tokens + self._in_flight(), {}),
        ]
        counters += [
            ("vllm:request_success_total", n, {"finished_reason": reason})
            for reason, n in c.finished.items()
        ]
        if s.draft_tokens:
            counters += [
                ("vllm:spec_decode_num_drafts_total", c.drafts, {}),
                ("vllm:spec_decode_num_draft_tokens_total", c.draft_tokens, {}),
                ("vllm:spec_decode_num_accepted_tokens_total", round(c.accepted_tokens), {}),
            ]
        for name in dict.fromkeys(name for name, _, _ in counters):
            _counter(
                scope,
                name,
                [(value, {**labels, **more}) for n, value, more in counters if n == name],
                start_ns,
                now_ns,
            )
        for name, bounds in _BOUNDS.items():
            self._histogram(scope, name, bounds, labels, start_ns, now_ns)
        _gauge(
            scope,
            "vllm:cache_config_info",
            1.0,
            {
                "block_size": "16",
                "cache_dtype": "auto",
                "enable_prefix_caching": str(s.prefix_cache),
                "engine": "0",
                "gpu_memory_utilization": "0.9",
                "num_gpu_blocks": str(s.kv_tokens // 16),
            },
            now_ns,
        )
        _gauge(scope, "up", 1.0, {}, now_ns)
        _gauge(scope, "scrape_duration_seconds", 0.012, {}, now_ns)
        return out

    def _in_flight(self) -> int:
        return sum(s.made for s in self.engine.decoding)

    def _gather(self) -> None:
        engine = self.engine
        ended, self._told = engine.ended[self._told :], len(engine.ended)
        for sequence in ended:
            for name, value in _observed(sequence).items():
                self._see(name, value, 1)
        for tokens, n in engine.counters.iterations:
            self._see("vllm:iteration_tokens_total", tokens, n)
        for seconds, n in engine.counters.gaps:
            self._see("vllm:inter_token_latency_seconds", seconds, n)
        engine.counters.iterations.clear()
        engine.counters.gaps.clear()

    def _see(self, name: str, value: float, n: int) -> None:
        if n > 0:
            self._counts[name][bisect.bisect_left(_BOUNDS[name], value)] += n
            self._sums[name] += n * value

    def _histogram(
        self,
        scope: ScopeMetrics,
        name: str,
        bounds: tuple[float, ...],
        labels: dict[str, str],
        start_ns: int,
        now_ns: int,
    ) -> None:
        metric = _metric(scope, name, "histogram")
        metric.histogram.aggregation_temporality = (
            AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        )
        counts = self._counts[name]
        metric.histogram.data_points.add(
            attributes=attributes_of(dict(labels)),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=self._sums[name],
            bucket_counts=counts,
            explicit_bounds=bounds,
        )


def scrape_gpu(engine: Engine, start_ns: int) -> ResourceMetrics:
    """What NVIDIA's DCGM exporter says of the accelerator under a replica: utilisation, clock, power, temperature."""
    now_ns = start_ns + round(engine.clock.now * 1e9)
    host = engine_instance(engine.index).split(".")[0]
    out = ResourceMetrics(
        resource=Resource(
            attributes=attributes_of(
                {
                    "service.name": "dcgm-exporter",
                    "server.address": f"{host}.gpu.svc",
                    "service.instance.id": f"{host}.gpu.svc:9400",
                    "server.port": "9400",
                    "url.scheme": "http",
                }
            )
        )
    )
    scope = out.scope_metrics.add()
    scope.scope.name, scope.scope.version = _SCOPE
    labels = {
        "gpu": "0",
        "UUID": f"GPU-{engine.index:08x}",
        "device": "nvidia0",
        "modelName": "NVIDIA L40S",
        "Hostname": host,
        "namespace": "inference",
        "pod": host,
    }
    hot = engine.settings.throttled
    busy = engine.load > 0
    for name, value in (
        ("DCGM_FI_DEV_GPU_UTIL", 96.0 if busy else 0.0),
        ("DCGM_FI_DEV_SM_CLOCK", round(2490.0 / hot)),
        ("DCGM_FI_DEV_POWER_USAGE", 60.0 + 250.0 * busy / hot),
        ("DCGM_FI_DEV_GPU_TEMP", 61.0 if hot == 1.0 else 88.0),
        ("DCGM_FI_DEV_XID_ERRORS", 0.0),
        ("DCGM_FI_DEV_FB_USED", 41_200.0),
    ):
        _gauge(scope, name, value, labels, now_ns)
    return out


def _observed(s: Sequence) -> dict[str, float]:
    seen = {
        "vllm:time_to_first_token_seconds": s.first_token - s.arrived,
        "vllm:e2e_request_latency_seconds": s.finished - s.arrived,
        "vllm:request_queue_time_seconds": s.scheduled - s.queued,
        "vllm:request_inference_time_seconds": s.finished - s.scheduled,
        "vllm:request_prefill_time_seconds": s.first_token - s.scheduled,
        "vllm:request_decode_time_seconds": s.finished - s.first_token,
        "vllm:request_prompt_tokens": float(s.input_tokens),
        "vllm:request_generation_tokens": float(s.output_tokens),
        "vllm:request_params_max_tokens": float(s.max_tokens),
        "vllm:request_num_preemptions": float(s.preemptions),
    }
    if s.output_tokens > 1:
        seen["vllm:request_time_per_output_token_seconds"] = (s.finished - s.first_token) / (
            s.output_tokens - 1
        )
    return seen


def _metric(scope: ScopeMetrics, name: str, kind: str) -> Metric:
    metric: Metric = scope.metrics.add(name=name)
    metric.metadata.extend(attributes_of({"prometheus.type": kind}))
    return metric


def _gauge(scope: ScopeMetrics, name: str, value: float, labels: Any, now_ns: int) -> None:
    _metric(scope, name, "gauge").gauge.data_points.add(
        attributes=attributes_of(dict(labels)), time_unix_nano=now_ns, as_double=value
    )


def _counter(
    scope: ScopeMetrics,
    name: str,
    points: list[tuple[float, dict[str, str]]],
    start_ns: int,
    now_ns: int,
) -> None:
    metric = _metric(scope, name, "counter")
    metric.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = True
    for value, labels in points:
        metric.sum.data_points.add(
            attributes=attributes_of(dict(labels)),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            as_double=float(value),
        )
