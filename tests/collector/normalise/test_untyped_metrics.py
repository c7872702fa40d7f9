"""Pages that say no types, federated pages of several engines, and what a Collector makes of them."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS
from overrun.collector.normalise import untyped_metrics
from overrun.collector.sources import prometheus
from tests.collector.conftest import T0_NS, attributes, rows
from tests.collector.normalise.test_points import S, send

T0_MS = T0_NS // 1_000_000
TYPES = "".join(
    f"# TYPE vllm:{name} untyped\n"
    for name in (
        "num_requests_running",
        "generation_tokens_total",
        "time_to_first_token_seconds_bucket",
        "time_to_first_token_seconds_sum",
        "time_to_first_token_seconds_count",
    )
)


def page(step: int, *, labels: str = "", stamp: bool = False, types: str = "") -> str:
    """A page of one engine after `step` times 15 s: 100 tokens/s, ten first tokens a step, half of them below 0.1 s."""
    when = f" {T0_MS + 15_000 * step}" if stamp else ""
    lines = [
        f"vllm:num_requests_running{{{labels}}} 3",
        f"vllm:generation_tokens_total{{{labels}}} {1_500 * step}",
        *(
            f'vllm:time_to_first_token_seconds_bucket{{le="{edge}"{"," if labels else ""}{labels}}} {count * step}'
            for edge, count in (("0.1", 5), ("1.0", 9), ("+Inf", 10))
        ),
        f"vllm:time_to_first_token_seconds_sum{{{labels}}} {4.5 * step}",
        f"vllm:time_to_first_token_seconds_count{{{labels}}} {10 * step}",
    ]
    return types + "".join(f"{line}{when}\n" for line in lines)


def store(pipeline: Pipeline, text: str, step: int) -> None:
    body = prometheus.request(
        prometheus.parse(text),
        service="vllm",
        instance="prometheus:9090",
        time_ns=T0_NS + 15 * step * S,
    )
    assert pipeline.writer.submit(METRICS, body).result(30).rejected == 0


HISTOGRAM = "select instance, bounds, counts, sum, temporality from v_metric_histograms where indicator = 'ttft' order by instance, time"
RATES = "select instance, value from v_metric_points where indicator = 'output_tokens' order by instance, time"


@pytest.mark.parametrize("types", ["", TYPES, TYPES.replace("untyped", "gauge")])
def test_a_page_without_types_gives_histograms_and_rates(pipeline: Pipeline, types: str) -> None:
    for step in (1, 2):
        store(pipeline, page(step, types=types), step)
    assert rows(pipeline, HISTOGRAM) == [
        ("prometheus:9090", [0.1, 1.0], [5.0 * n, 4.0 * n, 1.0 * n], 4.5 * n, "cumulative")
        for n in (1, 2)
    ]
    if "gauge" not in types:  # who says that it goes up and down is believed
        assert rows(pipeline, RATES) == [("prometheus:9090", 100.0)]
    assert rows(
        pipeline, "select distinct value from v_metric_points where indicator = 'running'"
    ) == [(3.0,)]


def test_engines_on_a_federated_page_are_told_apart_at_their_own_times(pipeline: Pipeline) -> None:
    for step in (1, 2):
        text = "".join(
            page(step, labels=f'instance="gpu-{gpu}:8000",job="vllm"', stamp=True) for gpu in (0, 1)
        )
        store(pipeline, text, 100 * step)
    assert rows(pipeline, RATES) == [("gpu-0:8000", 100.0), ("gpu-1:8000", 100.0)]
    assert [row[0] for row in rows(pipeline, HISTOGRAM)] == ["gpu-0:8000"] * 2 + ["gpu-1:8000"] * 2
    assert rows(pipeline, "select distinct time_ns from points order by all") == [
        (T0_NS + 15 * S,),
        (T0_NS + 30 * S,),
    ]


def test_a_sample_that_is_repeated_until_the_next_comes_counts_once(pipeline: Pipeline) -> None:
    """A federating Prometheus that reads its engines every 15 s, read itself every 5 s."""
    for read in range(6):
        store(
            pipeline,
            page(read // 3 + 1, labels='instance="gpu-0:8000"', stamp=True) + f"odd {read}\n",
            read,
        )
    assert rows(pipeline, "select value from v_metric_points where indicator = 'running'") == [
        (3.0,),
        (3.0,),
    ]
    assert rows(pipeline, RATES) == [("gpu-0:8000", 100.0)]


def test_counters_without_total_are_known_by_their_table(pipeline: Pipeline) -> None:
    for step in (1, 2):
        store(
            pipeline,
            f"nv_inference_request_success {30 * step}\ntgi_request_success {45 * step}\n",
            step,
        )
    assert rows(
        pipeline, "select value from v_metric_points where indicator = 'finished' order by all"
    ) in ([(5.0,)], [(2.0,)], [(3.0,)])
    assert rows(pipeline, "select distinct kind, monotonic from points") == [(2, True)]


def test_a_collector_that_federates_sends_gauges_of_unknown_type(pipeline: Pipeline) -> None:
    for step in (1, 2):
        edges = [
            ("vllm:time_to_first_token_seconds_bucket", {"le": edge}, count * step)
            for edge, count in (("0.1", 5.0), ("+Inf", 10.0))
        ]
        metrics = []
        for name, labels, value in [
            ("vllm:generation_tokens_total", {}, 1_500.0 * step),
            ("vllm:time_to_first_token_seconds_sum", {}, 4.5 * step),
            *edges,
        ]:
            metric = Metric(name=name)
            metric.gauge.data_points.add(
                time_unix_nano=T0_NS + 15 * step * S, as_double=value
            ).attributes.extend(attributes(labels))
            untyped_metrics.mark(metric)
            metrics.append(metric)
        send(pipeline, *metrics)
    assert rows(pipeline, RATES) == [("pod-1", 100.0)]
    assert [row[2] for row in rows(pipeline, HISTOGRAM)] == [[5.0, 5.0], [10.0, 10.0]]


@pytest.mark.parametrize(
    "lines",
    [
        'x_bucket{le="a"} 1\nx_count 3\n',
        'x_bucket{le="1"} NaN\n',
        'x_bucket{le="1"} 5\nx_bucket{le="+Inf"} 3\n',
        'x_bucket{le="1"} 2\n',
        "x_bucket 2\n",
        'x_bucket{le="+Inf"} Inf\n',
        'x_bucket{le="1"} -3\nx_bucket{le="+Inf"} 3\n',
    ],
)
def test_buckets_that_make_no_histogram_stop_nothing(pipeline: Pipeline, lines: str) -> None:
    store(
        pipeline,
        lines.replace("x_", "vllm:time_to_first_token_seconds_") + "vllm:num_requests_running 3\n",
        1,
    )
    assert rows(pipeline, "select value from v_metric_points where indicator = 'running'") == [
        (3.0,)
    ]
    assert all(
        count >= 0
        for (counts,) in rows(pipeline, "select counts from v_metric_histograms")
        for count in counts
    )


def test_each_process_on_a_federated_page_has_its_own_start() -> None:
    starts = "".join(
        f'process_start_time_seconds{{instance="{gpu}"}} {1_700_000_000 + gpu}\n' for gpu in (0, 1)
    )
    counted = "# TYPE vllm:prompt_tokens_total counter\n" + "".join(
        f'vllm:prompt_tokens_total{{instance="{gpu}"}} 5\n' for gpu in (0, 1)
    )
    body = prometheus.request(
        prometheus.parse(starts + counted), service="vllm", instance="p", time_ns=1_800_000_000 * S
    )
    (sent,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    (metric,) = [m for m in sent.scope_metrics[0].metrics if m.name == "vllm:prompt_tokens_total"]
    assert [point.start_time_unix_nano for point in metric.sum.data_points] == [
        1_700_000_000 * S,
        1_700_000_001 * S,
    ]
