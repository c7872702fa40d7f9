"""What sent metrics mean: five types, counters as rates across resets, exact bucket edges, and indicators under whatever spelling an exporter chose."""

import functools
import itertools
import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS
from overrun.collector.normalise.metric_names import find_indicator
from overrun.collector.normalise.points import MAX_BUCKETS, decode_points
from overrun.collector.normalise.spans import Rules
from overrun.sample_traces.replay import load
from tests.collector.conftest import T0_NS, attributes, rows
from tests.conftest import ROOT

S = 1_000_000_000
RULES = Rules(salt=b"s")
DELTA, CUMULATIVE = 1, 2


def request(*metrics: Metric, resource: dict[str, Any] | None = None) -> bytes:
    sent = ExportMetricsServiceRequest()
    resource_metrics = sent.resource_metrics.add()
    resource_metrics.resource.attributes.extend(
        attributes(resource or {"service.name": "vllm", "service.instance.id": "pod-1"})
    )
    resource_metrics.scope_metrics.add().metrics.extend(metrics)
    return sent.SerializeToString()


def gauge(name: str, value: float, **labels: str) -> Metric:
    metric = Metric(name=name)
    metric.gauge.data_points.add(time_unix_nano=T0_NS, as_double=value).attributes.extend(
        attributes({"model_name": "m", **labels})
    )
    return metric


def counter(
    name: str,
    samples: Sequence[tuple[int, int, float]],
    temporality: int = CUMULATIVE,
    monotonic: bool = True,
    **labels: str,
) -> Metric:
    """`samples` are (start_s, time_s, value) since T0."""
    metric = Metric(name=name)
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, monotonic
    for start_s, time_s, value in samples:
        point = metric.sum.data_points.add(
            start_time_unix_nano=T0_NS + start_s * S,
            time_unix_nano=T0_NS + time_s * S,
            as_double=value,
        )
        point.attributes.extend(attributes({"model_name": "m", **labels}))
    return metric


def send(pipeline: Pipeline, *metrics: Metric, **more: Any) -> None:
    assert pipeline.writer.submit(METRICS, request(*metrics, **more)).result(30).rejected == 0


def values(pipeline: Pipeline, indicator: str) -> list[float]:
    return [
        v
        for (v,) in rows(
            pipeline,
            f"select value from v_metric_points where indicator = '{indicator}' order by time",
        )
    ]


# --- the five types ---


def test_all_five_types_are_stored_with_what_they_carry(pipeline: Pipeline) -> None:
    histogram = Metric(name="h", unit="s")
    histogram.histogram.aggregation_temporality = CUMULATIVE
    histogram.histogram.data_points.add(
        time_unix_nano=T0_NS, count=6, sum=4.5, explicit_bounds=[0.1, 1.0], bucket_counts=[1, 2, 3]
    )
    exponential = Metric(name="e")
    exponential.exponential_histogram.aggregation_temporality = DELTA
    point = exponential.exponential_histogram.data_points.add(
        time_unix_nano=T0_NS, count=3, scale=0, zero_count=1
    )
    point.positive.offset, point.positive.bucket_counts[:] = 0, [2]
    summary = Metric(name="s")
    summary.summary.data_points.add(time_unix_nano=T0_NS, count=4, sum=2.0).quantile_values.add(
        quantile=0.5, value=0.4
    )
    whole = Metric(name="i")
    whole.gauge.data_points.add(time_unix_nano=T0_NS, as_int=-7)
    send(pipeline, whole, counter("c", [(0, 1, 5.0)]), histogram, exponential, summary)
    found = rows(
        pipeline,
        "select name, kind, temporality, monotonic, value, bounds, counts, sum, count from points order by kind",
    )
    assert found == [
        ("i", 1, 0, False, -7.0, None, None, None, None),
        ("c", 2, 2, True, 5.0, None, None, None, None),
        ("h", 3, 2, False, None, [0.1, 1.0], [1.0, 2.0, 3.0], 4.5, 6.0),
        ("e", 4, 1, False, None, [1.0, 2.0], [1.0, 2.0, 0.0], None, 3.0),
        ("s", 5, 0, False, None, None, None, 2.0, 4.0),
    ]


def test_a_staleness_marker_is_no_value(pipeline: Pipeline) -> None:
    metric = gauge("vllm:num_requests_running", 5.0)
    metric.gauge.data_points.add(time_unix_nano=T0_NS + S, as_double=math.nan, flags=1)
    send(pipeline, metric)
    assert values(pipeline, "running") == [5.0]


def test_a_metric_without_data_and_one_without_points_are_nothing(pipeline: Pipeline) -> None:
    empty = Metric(name="empty")
    empty.sum.is_monotonic = True
    send(pipeline, Metric(name="none"), empty)
    assert rows(pipeline, "select count(*) from points") == [(0,)]


def test_not_a_number_and_infinities_do_not_stop_a_body(pipeline: Pipeline) -> None:
    send(
        pipeline,
        *(gauge("vllm:num_requests_running", v) for v in (math.nan, math.inf, -math.inf, 1.0)),
    )
    assert rows(pipeline, "select count(*) from points") == [(4,)]


# --- rates ---


def test_a_cumulative_counter_is_a_rate_between_samples(pipeline: Pipeline) -> None:
    send(
        pipeline,
        counter(
            "vllm:generation_tokens_total",
            [(0, 10, 100.0), (0, 20, 300.0), (0, 25, 300.0), (0, 30, 1_300.0)],
        ),
    )
    assert values(pipeline, "output_tokens") == [20.0, 0.0, 200.0]


def test_samples_that_come_out_of_order_and_in_several_bodies_give_the_same_rates(
    pipeline: Pipeline,
) -> None:
    for sample in ((0, 20, 300.0), (0, 10, 100.0), (0, 30, 400.0)):
        send(pipeline, counter("vllm:generation_tokens_total", [sample]))
    assert values(pipeline, "output_tokens") == [20.0, 10.0]


def test_after_a_restart_the_whole_value_is_the_increase(pipeline: Pipeline) -> None:
    by_drop = [(0, 10, 100.0), (0, 20, 40.0), (0, 30, 60.0)]
    by_start = [(0, 10, 100.0), (15, 20, 150.0), (15, 30, 170.0)]
    send(
        pipeline,
        counter("vllm:generation_tokens_total", by_drop),
        counter("vllm:prompt_tokens_total", by_start),
    )
    assert values(pipeline, "output_tokens") == [4.0, 2.0]
    assert values(pipeline, "prompt_tokens") == [15.0, 2.0]


def test_a_delta_counter_is_its_value_over_its_interval(pipeline: Pipeline) -> None:
    send(
        pipeline,
        counter(
            "vllm:generation_tokens_total", [(0, 10, 100.0), (10, 20, 50.0), (20, 25, 50.0)], DELTA
        ),
    )
    assert values(pipeline, "output_tokens") == [10.0, 5.0, 10.0]


def _delta_since(starts: list[int | None]) -> Metric:
    """Deltas of 1,000 tokens every 10 s, with these start times (nanoseconds after T0; None: left out)."""
    metric = Metric(name="vllm:prompt_tokens")
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = DELTA, True
    for i, start in enumerate(starts, start=1):
        metric.sum.data_points.add(
            time_unix_nano=T0_NS + 10 * i * S,
            start_time_unix_nano=0 if start is None else T0_NS + start,
            as_double=1_000.0,
        )
    return metric


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param([None] * 5, id="absent"),
        pytest.param([-T0_NS] * 5, id="zero"),
        pytest.param([10 * i * S for i in range(1, 6)], id="the time itself"),
        pytest.param([10 * i * S + S for i in range(1, 6)], id="after the time"),
        pytest.param([0] * 5, id="the start of the process"),
    ],
)
def test_a_delta_without_a_usable_start_counts_since_the_sample_before_it(
    pipeline: Pipeline, starts: list[int | None]
) -> None:
    send(pipeline, _delta_since(starts))
    assert values(pipeline, "prompt_tokens")[-4:] == [100.0] * 4


def test_a_sum_that_goes_up_and_down_is_a_level(pipeline: Pipeline) -> None:
    send(
        pipeline,
        counter("vllm:num_requests_waiting", [(0, 10, 5.0), (0, 20, 3.0)], monotonic=False),
    )
    assert values(pipeline, "queue_depth") == [5.0, 3.0]


def test_series_of_different_labels_or_instances_are_not_mixed(pipeline: Pipeline) -> None:
    for instance, rate in (("a", 10), ("b", 20)):
        for model in ("m1", "m2"):
            send(
                pipeline,
                counter(
                    "vllm:generation_tokens_total",
                    [(0, 10, 0.0), (0, 20, rate * 10.0)],
                    model_name=model,
                ),
                resource={"service.instance.id": instance},
            )
    found = rows(
        pipeline,
        "select instance, model, value from v_metric_points where indicator = 'output_tokens' order by all",
    )
    assert found == [("a", "m1", 10.0), ("a", "m2", 10.0), ("b", "m1", 20.0), ("b", "m2", 20.0)]


@functools.cache
def _made_store() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    for folder in ("schema", "views"):
        for path in sorted((ROOT / "collector" / "store" / folder).glob("*.sql")):
            con.execute(path.read_text())
    return con


def _empty_store() -> duckdb.DuckDBPyConnection:
    """One store in memory for all examples."""
    _made_store().execute("delete from points")
    return _made_store()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1_000)), min_size=2, max_size=12))
def test_rates_of_any_counter_add_up_to_what_was_counted(steps: list[tuple[int, int]]) -> None:
    """The law: rate x interval summed is the value at the end plus what each restart threw away, minus the first sample."""
    con = _empty_store()
    times = list(itertools.accumulate(seconds for seconds, _ in steps))
    for time_s, (_, value) in zip(times, steps, strict=True):
        con.execute(
            "insert into points by name select 1 as batch, 1 as source_id, $t as time_ns, 0 as start_ns, 'c' as name, '' as unit, 2 as kind, 2 as temporality,"
            " true as monotonic, 9 as series, 'output_tokens' as indicator, $v as value, map() as attributes",
            {"t": time_s * S, "v": float(value)},
        )
    found = con.execute(
        "select epoch_ns(time) // 1000000000, value from v_metric_points where indicator = 'output_tokens' order by time"
    ).fetchall()
    want = sum(b if b < a else b - a for (_, a), (_, b) in itertools.pairwise(steps))
    assert len(found) == len(steps) - 1
    before = dict(zip(times[1:], times, strict=False))
    assert sum(rate * (time_s - before[time_s]) for time_s, rate in found) == pytest.approx(want)


# --- histograms ---


def exponential(scale: int, data: Sequence[float], **more: Any) -> bytes:
    """The histogram that an SDK makes of these numbers (OTLP data model: bucket i is (base**i, base**(i+1)])."""
    metric = Metric(name="gen_ai.server.time_to_first_token", unit="s")
    point = metric.exponential_histogram.data_points.add(
        time_unix_nano=T0_NS, count=len(data), sum=sum(data), scale=scale
    )
    for sign, buckets in ((1, point.positive), (-1, point.negative)):
        index = [math.ceil(math.log2(abs(v)) * 2**scale) - 1 for v in data if v * sign > 0]
        if index:
            buckets.offset = min(index)
            buckets.bucket_counts.extend(index.count(i) for i in range(min(index), max(index) + 1))
    point.zero_count = sum(1 for v in data if v == 0)
    return request(metric, **more)


numbers = st.floats(1e-3, 1e3).map(lambda v: float(f"{v:.6g}"))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(-3, 5),
    st.lists(st.one_of(numbers, numbers.map(lambda v: -v), st.just(0.0)), min_size=1, max_size=40),
)
def test_an_exponential_histogram_becomes_the_buckets_that_counting_gives(
    scale: int, data: list[float]
) -> None:
    # At an edge itself, rounding decides; no number of a histogram lies there on purpose.
    assume(
        all(
            v == 0 or abs(math.log2(abs(v)) * 2**scale - round(math.log2(abs(v)) * 2**scale)) > 1e-6
            for v in data
        )
    )
    decoded = decode_points(exponential(scale, data), RULES)
    assume(not decoded.rejected)
    [row] = decoded.rows
    bounds, counts = row["bounds"], row["counts"]
    assert bounds == sorted(bounds)
    assert len(counts) == len(bounds) + 1
    edges = [-math.inf, *bounds, math.inf]
    # Positive buckets hold (low, high], negative ones [low, high): no number of the data lies on an edge, so both count alike.
    assert counts == [
        sum(1 for v in data if low < v <= high) for low, high in itertools.pairwise(edges)
    ]
    assert (row["sum"], row["count"]) == (pytest.approx(sum(data)), len(data))


def _histogram(**fields: Any) -> Metric:
    metric = Metric(name="vllm:e2e_request_latency_seconds")
    metric.histogram.data_points.add(time_unix_nano=T0_NS, **fields)
    return metric


def _exponential(scale: int, offset: int, count: int) -> Metric:
    metric = Metric(name="vllm:e2e_request_latency_seconds")
    point = metric.exponential_histogram.data_points.add(
        time_unix_nano=T0_NS, scale=scale, count=count
    )
    point.positive.offset = offset
    point.positive.bucket_counts.extend([1] * count)
    return metric


@pytest.mark.parametrize(
    ("metric", "usable"),
    [
        (_histogram(), True),
        (_histogram(count=3, sum=1.0), True),
        (_histogram(count=3, bucket_counts=[3]), True),
        (_histogram(explicit_bounds=[1.0, 2.0], bucket_counts=[1, 2]), False),
        (_histogram(explicit_bounds=[1.0], bucket_counts=[1, 2, 3]), False),
        (
            _histogram(
                explicit_bounds=list(range(MAX_BUCKETS + 1)), bucket_counts=[0] * (MAX_BUCKETS + 2)
            ),
            False,
        ),
        (_histogram(explicit_bounds=[2.0, 1.0], bucket_counts=[1, 1, 1]), False),
        (_histogram(explicit_bounds=[math.nan], bucket_counts=[1, 1]), False),
        (_histogram(count=2**64 - 1, explicit_bounds=[1.0], bucket_counts=[2**64 - 1, 0]), True),
        (_exponential(-10, 2**31 - 10, 5), False),
        (_exponential(20, -(2**31), 5), True),
        (_exponential(0, 0, MAX_BUCKETS + 1), False),
        (_exponential(-(2**31), 1, 2), False),
        (_exponential(2**31 - 1, 1, 2), True),
        (_exponential(0, 0, 0), True),
    ],
)
def test_hostile_histograms_are_stored_or_refused_and_counted(
    pipeline: Pipeline, metric: Metric, usable: bool
) -> None:
    told = pipeline.writer.submit(
        METRICS, request(metric, gauge("vllm:num_requests_running", 1.0))
    ).result(30)
    assert (told.items, told.rejected) == ((2, 0) if usable else (1, 1))
    assert rows(pipeline, "select count(*) from v_metric_histograms") == [(int(usable),)]
    for bounds, counts in rows(pipeline, "select bounds, counts from v_metric_histograms"):
        assert bounds == sorted(bounds)
        assert not counts or len(counts) == len(bounds) + 1


def test_a_histogram_in_milliseconds_is_shown_in_seconds(pipeline: Pipeline) -> None:
    metric = Metric(name="sglang:kv_transfer_latency_ms")
    metric.histogram.data_points.add(
        time_unix_nano=T0_NS,
        count=1,
        sum=50.0,
        explicit_bounds=[10.0, 100.0],
        bucket_counts=[0, 1, 0],
    )
    send(pipeline, metric)
    assert rows(pipeline, "select indicator, bounds, sum from v_metric_histograms") == [
        ("kv_transfer", [0.01, 0.1], 0.05)
    ]


# --- names and units ---


@pytest.mark.parametrize(
    "name",
    [
        "vllm:generation_tokens_total",
        "vllm_generation_tokens_total",
        "vllm.generation_tokens_total",
        "vllm:generation_tokens",
        "vllm.generation.tokens",
        "VLLM:Generation_Tokens_Total",
        "vllm_generation_tokens",
    ],
)
def test_an_indicator_is_found_under_every_spelling(name: str) -> None:
    found = find_indicator(name, {})
    assert found is not None
    assert found.indicator == "output_tokens"


@pytest.mark.parametrize(
    ("name", "labels", "indicator"),
    [
        ("dynamo_frontend_tokenizer_latency_ms", {"operation": "tokenize"}, "tokenize"),
        ("dynamo_frontend_tokenizer_latency_ms", {"operation": "detokenize"}, None),
        ("vllm:request_success_total", {"finished_reason": "stop"}, "finished"),
        ("vllm:request_success_total", {"finished_reason": "abort"}, "aborts"),
        ("vllm:request_success_total", {}, None),
        ("trtllm_request_success_total", {"finished_reason": "length"}, "finished"),
        ("trtllm_request_success_total", {"finished_reason": "timeout"}, "aborts"),
        ("tgi_request_failure", {"err": "overloaded"}, "rejections"),
        ("tgi_request_failure", {"err": "generation"}, "aborts"),
        ("tgi_request_success", {}, "finished"),
        ("dynamo_frontend_requests_total", {"status": "success"}, "finished"),
        (
            "dynamo_frontend_requests_total",
            {"status": "error", "error_type": "overload"},
            "rejections",
        ),
        ("dynamo_frontend_requests_total", {"status": "error", "error_type": "internal"}, "aborts"),
        ("nv_inference_request_failure", {"reason": "REJECTED"}, "rejections"),
        ("sglang:per_stage_req_latency_seconds", {"stage": "prefill_forward"}, "prefill"),
        ("sglang:per_stage_req_latency_seconds", {"stage": "tokenize"}, None),
        (
            "nv_trt_llm_inflight_batcher_metrics",
            {"inflight_batcher_specific_metric": "total_context_tokens"},
            "batch_tokens",
        ),
        (
            "nv_trt_llm_disaggregated_serving_metrics",
            {"disaggregated_serving_type": "kv_cache_transfer_ms"},
            "kv_transfer",
        ),
        ("vllm:unheard_of", {}, None),
        ("total", {}, None),
        ("", {}, None),
        ("_total", {}, None),
    ],
)
def test_labels_choose_the_indicator_and_what_nobody_names_has_none(
    name: str, labels: dict[str, str], indicator: str | None
) -> None:
    found = find_indicator(name, labels)
    assert (found and found.indicator) == indicator


# Every other name of the engines', routers' and gateways' lists that is an indicator, under the indicator's name.
NAMED: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("keys.toml").read_text())[
    "named"
]


@pytest.mark.parametrize("indicator", NAMED)
def test_a_documented_metric_is_its_indicator(indicator: str) -> None:
    found = {name: find_indicator(name, {}) for name in NAMED[indicator]}
    assert {name: named and named.indicator for name, named in found.items()} == dict.fromkeys(
        found, indicator
    )


def test_a_scraped_pages_label_is_the_attribute_whose_name_it_spells(pipeline: Pipeline) -> None:
    usage = Metric(name="gen_ai_client_token_usage_token")
    usage.histogram.aggregation_temporality = CUMULATIVE
    for second, tokens in ((10, 100.0), (20, 300.0)):
        point = usage.histogram.data_points.add(
            time_unix_nano=T0_NS + second * S,
            count=9,
            sum=tokens,
            explicit_bounds=[100.0],
            bucket_counts=[9, 0],
        )
        point.attributes.extend(
            attributes({"gen_ai_token_type": "output", "gen_ai_response_model": "m"})
        )
    send(pipeline, usage)
    assert rows(pipeline, "select indicator, model, value from v_metric_points") == [
        ("client_output_tokens", "m", 20.0)
    ]


def test_tritons_summed_times_are_means_over_its_requests(pipeline: Pipeline) -> None:
    send(
        pipeline,
        counter("nv_inference_request_duration_us", [(0, 10, 1e6), (0, 20, 6e6)]),
        counter("nv_inference_queue_duration_us", [(0, 10, 0.0), (0, 20, 2e6)]),
        counter("nv_inference_request_success", [(0, 10, 5.0), (0, 20, 15.0)]),
    )
    assert (values(pipeline, "e2e_mean"), values(pipeline, "queue_mean")) == (
        [pytest.approx(0.5)],
        [pytest.approx(0.2)],
    )
    assert rows(
        pipeline,
        "select unit from v_metric_points where indicator in ('e2e_mean', 'e2e_total') order by indicator",
    ) == [("s",), ("s/s",)]


def test_a_gateways_page_tells_of_itself_and_of_the_deployments_behind_it(
    pipeline: Pipeline,
) -> None:
    labels = {"model_name": "", "litellm_model_name": "m", "requested_model": "None"}
    send(
        pipeline,
        counter("litellm_cache_hits_metric_total", [(0, 10, 0.0), (0, 20, 30.0)], **labels),
        counter("litellm_cache_misses_metric_total", [(0, 10, 0.0), (0, 20, 10.0)], **labels),
        *(
            gauge("litellm_remaining_requests_metric", left, **labels, api_base=base)
            for base, left in (("a", 7.0), ("b", 9.0))
        ),
        *(
            gauge("litellm_in_flight_requests", n, **labels, team=team)
            for team, n in (("x", 2.0), ("y", 3.0))
        ),
    )
    assert values(pipeline, "response_cache_hit_rate") == [0.75]
    assert (
        sorted(values(pipeline, "remaining_requests")),
        values(pipeline, "gateway_running"),
    ) == ([7.0, 9.0], [5.0])
    assert rows(pipeline, "select distinct model from v_metric_points") == [("m",)]


@pytest.mark.parametrize(
    ("name", "indicator", "value", "unit", "shown"),
    [
        ("vllm:kv_cache_usage_perc", "kv_cache_usage", 0.93, "ratio", 0.93),
        ("vllm:gpu_cache_usage_perc", "kv_cache_usage", 0.93, "ratio", 0.93),
        ("vllm:num_requests_waiting", "queue_depth", 12.0, "requests", 12.0),
        ("vllm:num_requests_running", "running", 8.0, "requests", 8.0),
        ("vllm:gpu_prefix_cache_hit_rate", "prefix_cache_hit_rate", 0.4, "ratio", 0.4),
        ("sglang:token_usage", "kv_cache_usage", 0.5, "ratio", 0.5),
        ("sglang:num_queue_reqs", "queue_depth", 3.0, "requests", 3.0),
        ("sglang:num_running_reqs", "running", 4.0, "requests", 4.0),
        ("sglang:cache_hit_rate", "prefix_cache_hit_rate", 0.2, "ratio", 0.2),
        ("sglang:gen_throughput", "throughput", 900.0, "tokens/s", 900.0),
        ("sglang:max_total_num_tokens", "kv_capacity", 5e5, "tokens", 5e5),
        ("sglang:fwd_occupancy", "gpu_util", 73.0, "ratio", 0.73),
        ("up", "up", 1.0, "ratio", 1.0),
        ("tgi_queue_size", "queue_depth", 3.0, "requests", 3.0),
        ("tgi_batch_current_size", "running", 3.0, "requests", 3.0),
        ("trtllm_num_requests_waiting", "queue_depth", 3.0, "requests", 3.0),
        ("trtllm_kv_cache_utilization", "kv_cache_usage", 0.3, "ratio", 0.3),
        ("trtllm_kv_cache_hit_rate", "prefix_cache_hit_rate", 0.3, "ratio", 0.3),
        ("nv_gpu_utilization", "gpu_util", 0.3, "ratio", 0.3),
        ("dynamo_frontend_queued_requests", "queue_depth", 3.0, "requests", 3.0),
        ("nv_llm_http_service_inflight_requests", "running", 3.0, "requests", 3.0),
        ("dynamo_component_gpu_cache_usage_percent", "kv_cache_usage", 0.3, "ratio", 0.3),
        ("inference_pool_average_kv_cache_utilization", "kv_cache_usage", 0.3, "ratio", 0.3),
        ("inference_pool_average_queue_size", "queue_depth", 3.0, "requests", 3.0),
        ("DCGM_FI_DEV_GPU_UTIL", "gpu_util", 73.0, "ratio", 0.73),
        ("DCGM_FI_DEV_FB_USED", "gpu_mem_used", 2.0, "bytes", 2.0 * 2**20),
    ],
)
def test_an_engine_gauge_is_its_indicator_in_si_units(
    pipeline: Pipeline, name: str, indicator: str, value: float, unit: str, shown: float
) -> None:
    send(pipeline, gauge(name, value))
    assert rows(
        pipeline, "select indicator, value, unit, instance, model, raw_name from v_metric_points"
    ) == [(indicator, pytest.approx(shown), unit, "pod-1", "m", name)]


def test_triton_says_everything_in_labels(pipeline: Pipeline) -> None:
    blocks, requests = "nv_trt_llm_kv_cache_block_metrics", "nv_trt_llm_request_metrics"
    send(
        pipeline,
        *(
            gauge(blocks, v, kv_cache_block_type=k)
            for k, v in (("used", 60.0), ("max", 80.0), ("tokens_per", 64.0), ("free", 20.0))
        ),
        *(
            gauge(requests, v, request_type=k)
            for k, v in (
                ("waiting", 5.0),
                ("scheduled", 3.0),
                ("active", 4.0),
                ("context", 1.0),
                ("max", 64.0),
            )
        ),
    )
    found = dict(
        rows(
            pipeline,
            "select indicator, value from v_metric_points where not contains(indicator, 'block')",
        )
    )
    assert found == {
        "kv_cache_usage": 0.75,
        "kv_capacity": 80 * 64.0,
        "queue_depth": 5.0,
        "running": 3.0,
    }


def test_dynamo_tells_of_each_worker_and_once_of_what_a_worker_has(pipeline: Pipeline) -> None:
    front = "dynamo_frontend_"
    send(
        pipeline,
        *(
            gauge(f"{front}worker_active_decode_blocks", v, worker_id=w)
            for w, v in (("1", 30.0), ("2", 50.0))
        ),
        gauge(f"{front}model_total_kv_blocks", 100.0),
        gauge(f"{front}model_kv_cache_block_size", 16.0),
    )
    assert (values(pipeline, "kv_cache_usage"), values(pipeline, "kv_capacity")) == (
        [0.4],
        [1600.0],
    )


LATENCIES = {
    "ttft": [
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "trtllm_time_to_first_token_seconds",
        "dynamo_frontend_time_to_first_token_seconds",
        "inference_objective_request_ttft_seconds",
        "gen_ai.server.time_to_first_token",
        "gen_ai_server_time_to_first_token_seconds",
        "llm_d_router_epp_request_ttft_seconds",
        "dynamo_component_router_time_to_first_token_seconds",
    ],
    "itl": ["vllm:time_per_output_token_seconds", "dynamo_frontend_inter_token_latency_seconds"],
    "tpot": ["trtllm_time_per_output_token_seconds", "inference_objective_request_tpot_seconds"],
    "e2e": [
        "tgi_request_duration",
        "trtllm_e2e_request_latency_seconds",
        "dynamo_frontend_request_duration_seconds",
        "inference_model_request_duration_seconds",
        "llm_d_router_epp_request_duration_seconds",
    ],
    "queue": [
        "tgi_request_queue_duration",
        "vllm:time_in_queue_requests",
        "inference_extension_flow_control_request_queue_duration_seconds",
    ],
    "client_ttft": ["gen_ai.client.operation.time_to_first_chunk"],
}


@pytest.mark.parametrize(
    ("indicator", "name"),
    [(indicator, name) for indicator, names in LATENCIES.items() for name in names],
)
def test_a_latency_histogram_is_its_indicator(indicator: str, name: str) -> None:
    found = find_indicator(name, {})
    assert found is not None
    assert (found.indicator, found.scale) == (indicator, 1.0)


def test_what_an_instrumentation_calls_the_servers_is_measured_at_the_client() -> None:
    found = find_indicator(
        "gen_ai.server.time_to_first_token", {}, "opentelemetry.instrumentation.openai.v1"
    )
    assert found is not None
    assert found.indicator == "client_ttft"


def test_of_a_metric_and_its_successor_one_counts(pipeline: Pipeline) -> None:
    send(
        pipeline,
        gauge("vllm:gpu_cache_usage_perc", 0.5),
        gauge("vllm:kv_cache_usage_perc", 0.5),
        gauge("DCGM_FI_DEV_GPU_UTIL", 90.0, gpu="0"),
        gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.4, gpu="0"),
        gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.6, gpu="1"),
    )
    assert (values(pipeline, "kv_cache_usage"), sorted(values(pipeline, "gpu_util"))) == (
        [0.5],
        [0.4, 0.6],
    )
    assert rows(pipeline, "select count(*) from points") == [(5,)]


def test_a_router_that_says_everything_under_two_prefixes_is_heard_once(pipeline: Pipeline) -> None:
    send(
        pipeline,
        gauge("inference_pool_average_queue_size", 3.0),
        gauge("llm_d_router_epp_average_queue_size", 3.0),
        gauge("inference_objective_running_requests", 5.0),
        gauge("llm_d_router_epp_running_requests", 5.0),
    )
    assert (values(pipeline, "queue_depth"), values(pipeline, "running")) == ([3.0], [5.0])


def test_what_an_instance_counts_in_parts_is_their_sum_and_its_ratios_stay_apart(
    pipeline: Pipeline,
) -> None:
    send(
        pipeline,
        *(
            gauge(name, value, reason=part)
            for name, value in (
                ("vllm:num_requests_waiting", 3.0),
                ("vllm:kv_cache_usage_perc", 0.5),
            )
            for part in "0123"
        ),
        gauge("sglang:num_queue_reqs", 1.0, model_name="s"),
        gauge("sglang:num_decode_prealloc_queue_reqs", 2.0, model_name="s"),
    )
    assert rows(
        pipeline,
        "select model, value from v_metric_points where indicator = 'queue_depth' order by all",
    ) == [("m", 12.0), ("s", 3.0)]
    assert values(pipeline, "kv_cache_usage") == [0.5] * 4


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_no_amount_is_no_indicator(pipeline: Pipeline, value: float) -> None:
    send(pipeline, gauge("vllm:gpu_prefix_cache_hit_rate", value))
    assert values(pipeline, "prefix_cache_hit_rate") == []


def test_milliseconds_are_read_as_the_sender_says(pipeline: Pipeline) -> None:
    metric = Metric(name="gen_ai.server.time_to_first_token", unit="ms")
    metric.histogram.data_points.add(
        time_unix_nano=T0_NS, count=1, sum=50.0, explicit_bounds=[100.0], bucket_counts=[1, 0]
    )
    send(pipeline, metric)
    assert rows(pipeline, "select indicator, bounds, sum from v_metric_histograms") == [
        ("ttft", [pytest.approx(0.1)], pytest.approx(0.05))
    ]


def test_a_histogram_of_lengths_tells_tokens_per_second(pipeline: Pipeline) -> None:
    metric = Metric(name="tgi_request_generated_tokens")
    metric.histogram.aggregation_temporality = CUMULATIVE
    for second, tokens in ((10, 100.0), (20, 300.0)):
        metric.histogram.data_points.add(
            time_unix_nano=T0_NS + second * S,
            count=9,
            sum=tokens,
            explicit_bounds=[100.0],
            bucket_counts=[9, 0],
        )
    send(pipeline, metric)
    assert values(pipeline, "output_tokens") == [20.0]


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ({"num_gpu_blocks": "5000", "block_size": "16"}, [80_000.0]),
        ({"num_gpu_blocks": "many", "block_size": "16"}, []),
        ({"block_size": "16"}, []),
        ({"num_gpu_blocks": "nan", "block_size": "16"}, []),
    ],
)
def test_vllm_tells_its_kv_capacity_in_the_labels_of_an_info_metric(
    pipeline: Pipeline, labels: dict[str, str], shown: list[float]
) -> None:
    send(pipeline, gauge("vllm:cache_config_info", 1.0, **labels))
    assert values(pipeline, "kv_capacity") == shown


def test_the_prefix_cache_hit_rate_is_the_ratio_of_its_counters_over_the_same_interval(
    pipeline: Pipeline,
) -> None:
    send(
        pipeline,
        counter("vllm:prefix_cache_hits_total", [(0, 10, 100.0), (0, 20, 130.0), (0, 30, 130.0)]),
        counter(
            "vllm:prefix_cache_queries_total", [(0, 10, 200.0), (0, 20, 300.0), (0, 30, 300.0)]
        ),
    )
    assert values(pipeline, "prefix_cache_hit_rate") == [
        pytest.approx(0.3)
    ]  # nothing was asked in the last interval: no ratio
    assert rows(
        pipeline, "select distinct unit from v_metric_points where indicator = 'prefix_cache_hits'"
    ) == [("tokens/s",)]


def test_the_recorded_vllm_metrics_give_its_indicators(pipeline: Pipeline) -> None:
    for payload in load("vllm-spans").payloads:
        if payload.signal == "metrics":
            told = pipeline.writer.submit(METRICS, payload.request.SerializeToString()).result(30)
            assert told.rejected == 0
    found = dict(
        rows(pipeline, "select indicator, max(value) from v_metric_points group by indicator")
    )
    assert found.keys() >= {
        "kv_cache_usage",
        "queue_depth",
        "running",
        "preemptions",
        "prefix_cache_hit_rate",
        "output_tokens",
        "prompt_tokens",
        "finished",
    }
    assert 0.9 < found["kv_cache_usage"] <= 1.0
    assert found["queue_depth"] > 300
    histograms = {
        i for (i,) in rows(pipeline, "select distinct indicator from v_metric_histograms")
    }
    assert histograms >= {"ttft", "itl", "e2e", "queue", "prefill", "decode"}
    assert rows(
        pipeline, "select count(*) from v_metric_histograms where len(counts) <> len(bounds) + 1"
    ) == [(0,)]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_points_or_a_refusal(content: bytes) -> None:
    from overrun.collector.errors import BadPayload

    try:
        decode_points(content, RULES)
    except BadPayload as error:
        assert "metrics" in str(error)


@pytest.mark.parametrize(
    ("operation", "indicator", "summed"),
    [
        ("chat", "client_input_length", "client_input_tokens"),
        ("embeddings", "embedding_length", "embedding_tokens"),
        (None, "client_input_length", "client_input_tokens"),
    ],
)
def test_texts_to_embed_are_no_prompts(operation: str | None, indicator: str, summed: str) -> None:
    told = {"gen_ai.token.type": "input"} | (
        {"gen_ai.operation.name": operation} if operation else {}
    )
    found = find_indicator("gen_ai.client.token.usage", told)
    assert found is not None
    assert (found.indicator, found.sum_as) == (indicator, summed)
