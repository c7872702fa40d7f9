"""Names of engines' metrics as they really come: other prefixes, no prefix, labels that hold the engine's name, and names that nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.normalise.metric_names import find_indicator, is_known, own_prefixes
from tests.collector.conftest import rows
from tests.collector.normalise.test_points import counter, gauge, send

FAMILY = (
    "num_requests_running",
    "num_requests_waiting",
    "gpu_cache_usage_perc",
    "prompt_tokens_total",
    "time_to_first_token_seconds",
)
MEANT = ("running", "queue_depth", "kv_cache_usage", "prompt_tokens", "ttft")


@pytest.mark.parametrize(
    "prefix",
    [
        "vllm:",
        "vllm_",
        "ray_vllm_",
        "acme.vllm.",
        "",
        "nim:",
        "lmdeploy:",
        "fastdeploy:",
        "aphrodite_",
        "my_own_engine_",
    ],
)
def test_vllms_names_are_found_under_any_prefix(prefix: str) -> None:
    names = [f"{prefix}{name}" for name in FAMILY]
    prefixes = own_prefixes([*names, "python_gc_objects_collected_total"])
    found = [find_indicator(name, {}, "", prefixes) for name in names]
    assert tuple(named.indicator for named in found if named) == MEANT


@pytest.mark.parametrize(
    "names",
    [
        ["prompt_tokens_total", "generation_tokens_total"],
        ["shop_time_to_first_token_seconds", "shop_orders_total"],
        [
            "prompt_tokens_total",
            "gateway_time_to_first_token_seconds",
            "gateway2_e2e_request_latency_seconds",
        ],
        ["not_vllm_like_num_requests", "rag_ollama_inflight_requests"],
    ],
)
def test_names_that_anybody_may_choose_are_no_engines_alone(names: list[str]) -> None:
    prefixes = own_prefixes(names)
    assert [find_indicator(name, {}, "", prefixes) for name in names] == [None] * len(names)


@pytest.mark.parametrize(
    ("name", "labels", "indicator"),
    [
        ("num_request_max", {}, "running_limit"),
        ("request_failure_total", {}, "aborts"),
        ("request_success_total", {"model_name": "m"}, "finished"),
        ("request_success_total", {"finished_reason": "stop"}, "finished"),
        ("request_success_total", {"finished_reason": "abort"}, "aborts"),
        ("kv_cache_utilization", {}, "kv_cache_usage"),
        ("kv_cache_hit_rate", {}, "prefix_cache_hit_rate"),
        ("llamacpp:requests_deferred", {}, "queue_depth"),
        ("llamacpp_requests_processing", {}, "running"),
        ("ollama_request_queue_length", {}, "queue_depth"),
        ("ollama_response_seconds", {}, "e2e"),
        ("te_queue_size", {}, "embedding_queue_depth"),
        ("te_request_duration", {}, "embedding_e2e"),
    ],
)
def test_servers_have_names_of_their_own(name: str, labels: dict[str, Any], indicator: str) -> None:
    found = find_indicator(name, labels, "", frozenset({""}))
    assert found is not None
    assert found.indicator == indicator


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("vllm:lora_requests_info", True),
        ("vllm:spec_decode_num_accepted_tokens_per_pos_total", True),
        ("python_gc_collections_total", True),
        ("http_request_duration_seconds", True),
        ("process_start_time_seconds", True),
        ("up", True),
        ("ray_tasks", True),
        ("ray_component_rss_bytes", True),
        ("v8js.memory.heap.used", True),
        ("raytracer_frames", False),
        ("request_preprocess_seconds", False),
        ("acme_queue_len", False),
        ("llm_requests_total", False),
        ("inference_requests", False),
        ("my_tokens", False),
    ],
)
def test_only_names_of_no_table_and_no_runtime_are_unknown(name: str, known: bool) -> None:
    assert is_known(name) is known


# --- which engine a point is of ---


def instances(pipeline: Pipeline) -> list[tuple[str, float]]:
    return rows(
        pipeline,
        "select instance, value from v_metric_points where indicator = 'running' order by all",
    )


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([{"engine": "0"}], ["pod-1"]),
        ([{"engine": "0"}, {"engine": "1"}], ["pod-1/engine 0", "pod-1/engine 1"]),
        ([{"engine": "1"}], ["pod-1/engine 1"]),
        ([{"engine": "vllm"}], ["pod-1"]),
        ([{"dp_rank": "0"}, {"dp_rank": "3"}], ["pod-1/rank 0", "pod-1/rank 3"]),
        ([{"instance": "gpu-0:8000"}, {"instance": "gpu-1:8000"}], ["gpu-0:8000", "gpu-1:8000"]),
        (
            [{"instance": "gpu-0:8000", "engine": "0"}, {"instance": "gpu-0:8000", "engine": "1"}],
            ["gpu-0:8000/engine 0", "gpu-0:8000/engine 1"],
        ),
        ([{"exported_instance": "gpu-7:8000", "instance": "prometheus:9090"}], ["gpu-7:8000"]),
        ([{"ReplicaId": "a1", "WorkerId": "x"}], ["pod-1/a1"]),
        ([{"WorkerId": "x"}, {"WorkerId": "y"}], ["pod-1/x", "pod-1/y"]),
        ([{"pod": "llm-0"}, {"pod": "llm-1"}], ["pod-1/llm-0", "pod-1/llm-1"]),
        ([{"pod": "llm-0"}], ["pod-1"]),
        (
            [{"server": "http://10.0.0.1:8000"}, {"server": "http://10.0.0.2:8000"}],
            ["pod-1/http://10.0.0.1:8000", "pod-1/http://10.0.0.2:8000"],
        ),
    ],
)
def test_labels_tell_engines_apart_that_share_a_sender(
    pipeline: Pipeline, labels: list[dict[str, str]], named: list[str]
) -> None:
    send(
        pipeline,
        *(gauge("vllm:num_requests_running", float(i), **some) for i, some in enumerate(labels)),
    )
    assert instances(pipeline) == [(name, float(i)) for i, name in enumerate(named)]


def test_who_uses_a_gpu_is_not_who_speaks(pipeline: Pipeline) -> None:
    send(pipeline, *(gauge("DCGM_FI_DEV_POWER_USAGE", 300.0, pod=pod, gpu=pod) for pod in "01"))
    assert rows(pipeline, "select distinct instance from v_metric_points") == [("pod-1",)]


def test_llamacpp_tells_a_token_s_mean_time(pipeline: Pipeline) -> None:
    send(
        pipeline,
        counter("llamacpp:tokens_predicted_total", [(0, 10, 0.0), (0, 20, 400.0)]),
        counter("llamacpp:tokens_predicted_seconds_total", [(0, 10, 0.0), (0, 20, 10.0)]),
    )
    assert rows(
        pipeline, "select value, unit from v_metric_points where indicator = 'tpot_mean'"
    ) == [(pytest.approx(0.025), "s")]
