"""Roles, groups and views: numbers are added only where they count the same thing once."""

import numpy as np
import pytest

from overrun.analysis.stations.vocabulary import quantity_of, role_of, vocabulary
from tests.analysis.stations.world import level, plant, rate, times

N = 20


@pytest.mark.parametrize(
    ("name", "labels", "indicator", "role"),
    [
        ("vllm:num_requests_running", {}, "running", "engine"),
        ("vllm:num_requests_running", {"dynamo_component": "prefill"}, "running", "prefill"),
        ("sglang:num_running_reqs", {"engine_type": "decode"}, "running", "decode"),
        ("dynamo_frontend_request_duration_seconds", {}, "e2e", "frontend"),
        ("inference_objective_running_requests", {}, "running", "router"),
        ("inference_pool_average_queue_size", {}, "queue_depth", "view"),
        ("dynamo_frontend_worker_active_decode_blocks", {}, "kv_blocks_used", "view"),
        ("nv_inference_request_duration_us", {}, "e2e_total", "step"),
        ("te_queue_size", {}, "embedding_queue_depth", "embedder"),
        ("acme_requests", {}, "gateway_requests", "router"),
        ("acme_requests", {}, "client_e2e", "client"),
        ("lmcache:num_hit_tokens_total", {}, "external_prefix_cache_hits", "cache"),
        ("DCGM_FI_DEV_SM_CLOCK", {}, "gpu_clock", "surrounding"),
        ("container_cpu_cfs_throttled_seconds_total", {}, None, "surrounding"),
    ],
)
def test_a_series_has_the_role_of_its_name_or_label(
    name: str, labels: dict[str, str], indicator: str, role: str
) -> None:
    assert role_of(name, labels, indicator) == role


def test_every_indicator_is_said_by_one_quantity() -> None:
    table = vocabulary()
    said = [
        name
        for kind in (table.time, table.flow, table.level, table.size)
        for names in kind.values()
        for name in names
    ]
    assert len(said) == len(set(said))
    assert quantity_of("process_cpu_seconds_total", None) == ("flow", "cpu")
    assert quantity_of("acme", "gateway_e2e") == ("time", "e2e")
    assert quantity_of("acme_odd", None) is None


def test_a_view_is_never_added() -> None:
    """A router's copy of two workers' queues: 3 and 4 wait, not 14."""
    made = plant(
        level("queue_depth", [3.0] * N, instance="a"),
        level("queue_depth", [4.0] * N, instance="b"),
        level(
            "queue_depth", [7.0] * N, instance="router", name="inference_pool_average_queue_size"
        ),
    )
    [group] = made.groups
    waiting = group.quantity("waiting")
    assert waiting is not None
    assert waiting.tolist() == [7.0] * N
    assert made.front is None


def test_stations_of_another_model_or_role_are_another_group() -> None:
    made = plant(
        level("running", [1.0] * N, instance="a"),
        level("running", [2.0] * N, instance="b", model="other"),
        level("running", [4.0] * N, instance="c", labels={"engine_type": "prefill"}),
        level("running", [8.0] * N, instance="d"),
    )
    inside = {
        (group.role, group.model): float(np.nanmean(group.inside()))  # type: ignore[arg-type]
        for group in made.groups
    }
    assert inside == {("engine", "m"): 9.0, ("engine", "other"): 2.0, ("prefill", "m"): 4.0}


def test_one_token_a_request_is_reading_for_others() -> None:
    reads = [
        rate("finished", [2.0] * N, instance="p"),
        rate("output_tokens", [2.0] * N, instance="p"),
        level("running", [1.0] * N, instance="p"),
    ]
    writes = [
        rate("finished", [2.0] * N, instance="d", model="n"),
        rate("output_tokens", [400.0] * N, instance="d", model="n"),
    ]
    assert {group.role for group in plant(*reads, *writes).groups} == {"prefill", "engine"}
    assert [group.role for group in plant(*reads).groups] == ["engine"]


def test_ranks_that_say_one_number_twice_count_once() -> None:
    rows = [
        level("running", [5.0] * N, labels={"tp_rank": str(rank), "x": "y"}) for rank in range(4)
    ]
    [group] = plant(*rows).groups
    assert np.nanmean(group.inside()) == 5.0  # type: ignore[arg-type]


def test_a_share_is_a_mean_over_stations_and_a_count_a_sum() -> None:
    [group] = plant(
        level("kv_cache_usage", [0.2] * N, instance="a"),
        level("kv_cache_usage", [0.6] * N, instance="b"),
        level("running", [3.0] * N, instance="a"),
        level("running", [5.0] * N, instance="b"),
    ).groups
    assert group.quantity("kv")[0] == pytest.approx(0.4)  # type: ignore[index]
    assert group.quantity("running")[0] == 8.0  # type: ignore[index]


def test_gpus_belong_to_whom_they_name_and_otherwise_to_the_only_group() -> None:
    rows = [level("running", [1.0] * N, instance=name) for name in ("pod-a", "pod-b")]
    clock = level(
        "gpu_clock",
        [1e9] * N,
        instance="dcgm",
        name="DCGM_FI_DEV_SM_CLOCK",
        labels={"pod": "pod-b"},
    )
    [group] = plant(*rows, clock).groups
    assert [("gpu_clock" in one.sums) for one in group.stations] == [False, True]
    nobody = clock | {"attributes": {"gpu": "0"}}
    [group] = plant(*rows, nobody).groups
    assert [("gpu_clock" in one.sums) for one in group.stations] == [True, True]


def test_the_front_observes_alone_and_an_ensemble_stands_in_front_of_its_steps() -> None:
    made = plant(
        times(
            "e2e",
            [2.0] * N,
            [3.0] * N,
            instance="f",
            name="dynamo_frontend_request_duration_seconds",
        ),
        times("e2e", [2.0] * N, [2.0] * N, instance="w"),
    )
    assert made.outer is made.front
    assert made.observers == {"f"}
    whole, step = (
        [
            rate(
                "e2e_total",
                [seconds] * N,
                instance="t",
                model=model,
                name="nv_inference_request_duration_us",
            ),
            rate(
                "queue_total",
                [queue] * N,
                instance="t",
                model=model,
                name="nv_inference_queue_duration_us",
            ),
            rate(
                "finished",
                [1.0] * N,
                instance="t",
                model=model,
                name="nv_inference_request_success",
            ),
        ]
        for model, seconds, queue in (("ensemble", 5.0, 0.0), ("detector", 4.0, 1.0))
    )
    made = plant(*whole, *step)
    assert made.front is not None
    assert [group.model for group in made.groups] == ["detector"]
