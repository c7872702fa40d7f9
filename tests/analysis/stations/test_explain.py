"""Place, state, mechanism and advice of recordings whose truth is known by arithmetic; and silence where nothing is wrong."""

from typing import Any

import numpy as np
import pytest

from tests.analysis.stations.world import T0_S, level, rate, steps, times, told

N = 80


def engine(
    running: tuple[float, float] = (8.0, 8.0),
    waiting: tuple[float, float] = (0.0, 0.0),
    tokens: tuple[float, float] = (800.0, 800.0),
    done: tuple[float, float] = (4.0, 4.0),
    kv: tuple[float, float] = (0.4, 0.4),
    **more: Any,
) -> list[dict[str, Any]]:
    """An engine before and since bin 40: each pair is (before, since). Its requests take what Little's law says."""
    name = {"instance": more.pop("instance", "gpu-0")}
    ended = steps(*done, noise=0.02)
    run, wait = steps(*running, noise=more.pop("varies", 0.01)), steps(*waiting)
    least = np.maximum(ended, 1e-9)
    rows = [
        level("running", run, **name),
        level("queue_depth", wait, **name),
        level("kv_cache_usage", steps(*kv), **name),
        rate("finished", ended, **name),
        rate("output_tokens", steps(*tokens, noise=0.02), **name),
        times("e2e", ended, (run + wait) / least, **name),
        times("queue", ended, wait / least, **name),
        times("decode", ended, run / least, **name),
        times("prefill", ended, np.zeros(N), **name),
    ]
    return rows + [
        (
            rate
            if indicator
            in ("prompt_tokens", "preemptions", "prefix_cache_hits", "prefix_cache_queries")
            else level
        )(indicator, steps(*pair, noise=0.02), **name)
        for indicator, pair in more.items()
    ]


def test_nothing_grew_nothing_is_said() -> None:
    made = told(*engine())
    assert (made.mode, made.places, made.mechanism) == ("none", [], None)


def test_more_load_that_costs_nothing_is_silent() -> None:
    """Twice as many arrive and run; each takes as long as before."""
    assert (
        told(*engine(running=(8.0, 16.0), tokens=(800.0, 1600.0), done=(4.0, 8.0))).mode == "none"
    )


def test_the_excess_of_a_place_is_seconds_a_request() -> None:
    """Twelve wait and four end a second: 3 s a request, all of the excess."""
    made = told(*engine(waiting=(0.0, 12.0)))
    place = made.places[0]
    assert (place.stage, place.where, place.words) == ("queue", "queue", "the queue of gpu-0")
    assert place.excess_ms == pytest.approx(3_000.0, rel=0.02)
    assert place.share == pytest.approx(1.0, abs=0.02)
    assert made.n_bad == pytest.approx(40 * 15 * 4, rel=0.05)


def test_requests_that_wait_beside_free_seats_and_a_free_cache_are_held_back() -> None:
    made = told(
        *engine(
            running=(48.0, 14.0),
            waiting=(0.0, 36.0),
            tokens=(750.0, 400.0),
            done=(5.0, 4.0),
            kv=(0.3, 0.12),
            varies=0.2,
        )
    )
    assert (made.state, made.mechanism) == ("held_back", None)
    assert not made.advice.do
    assert any("replicas, refusals" in text for text in made.advice.avoid)


def test_a_full_cache_that_throws_requests_out_is_pressure() -> None:
    made = told(
        *engine(
            waiting=(0.0, 12.0),
            kv=(0.5, 0.97),
            running=(8.0, 15.0),
            prompt_tokens=(400.0, 400.0),
            preemptions=(0.0, 1.0),
        )
    )
    assert (made.state, made.mechanism and made.mechanism.id) == ("at_ceiling", "kv_pressure")


def test_more_arrivals_before_the_queue_are_too_little_capacity() -> None:
    """4 a second arrive, then 8; 5 a second can end, so that 3 a second pile up from bin 40 on."""
    late = np.maximum(np.arange(N) - 39, 0)
    wait, ended = 45.0 * late, steps(4.0, 5.0, noise=0.005)
    run = steps(8.0, 10.0, noise=0.005)
    rows = [
        level("running", run),
        level("running_limit", np.full(N, 10.0)),
        level("queue_depth", wait),
        rate("finished", ended),
        rate("output_tokens", 200.0 * ended),
        times("ttft", ended, 0.1 + wait / ended),
        times("queue", ended, wait / ended),
    ]
    made = told(*rows)
    assert (made.state, made.mechanism and made.mechanism.id) == ("at_ceiling", "under_capacity")
    assert "admit less" in made.advice.do[0]


def test_a_ceiling_without_more_arrivals_is_no_reason_to_admit_less() -> None:
    made = told(
        *engine(
            running=(9.0, 9.0),
            waiting=(0.0, 8.0),
            done=(4.0, 2.0),
            tokens=(800.0, 400.0),
            running_limit=(9.0, 9.0),
        )
    )
    texts = [*made.advice.do, *made.advice.look]
    assert made.state != "unknown"
    assert not any("admit less" in text.lower() or "replicas" in text for text in texts)


def test_the_same_number_running_with_far_fewer_tokens_is_slower() -> None:
    made = told(*engine(running=(4.0, 4.0), tokens=(430.0, 31.0), done=(2.0, 0.15)))
    assert (made.state, made.places[0].stage) == ("slower", "decode")
    assert made.mechanism is None
    assert "instead of" in made.state_words


@pytest.mark.parametrize(
    ("running", "tokens", "done"),
    [((4.0, 4.0), (430.0, 400.0), (2.0, 1.86)), ((16.0, 2.0), (900.0, 110.0), (4.0, 0.5))],
)
def test_few_tokens_less_or_fewer_at_once_are_not_slower(
    running: tuple[float, float], tokens: tuple[float, float], done: tuple[float, float]
) -> None:
    assert told(*engine(running=running, tokens=tokens, done=done)).state != "slower"


@pytest.mark.parametrize(
    ("thrown", "named"), [((39,), True), ((), False), ((20, 39, 70), False), ((20,), False)]
)
def test_it_began_with_requests_thrown_out_only_where_it_did(
    thrown: tuple[int, ...], named: bool
) -> None:
    rows = engine(running=(4.0, 4.0), tokens=(430.0, 31.0), done=(2.0, 0.15), kv=(0.6, 0.6))
    out = np.zeros(N)
    usage = np.full(N, 0.6)
    for at in thrown:
        out[at], usage[at] = 0.1, 0.99
    rows = [row for row in rows if row["indicator"] != "kv_cache_usage"]
    made = told(*rows, level("kv_cache_usage", usage), rate("preemptions", out))
    assert (made.mechanism is not None and "thrown out" in made.mechanism.words) is named


@pytest.mark.parametrize(("now", "cause"), [(1.38e9, "gpu_throttled"), (1.86e9, None)])
def test_clocks_that_fell_are_named_where_they_did(now: float, cause: str | None) -> None:
    rows = engine(running=(8.0, 8.0), tokens=(800.0, 500.0), done=(4.0, 2.5))
    clock = level("gpu_clock", steps(1.89e9, now, noise=0.001), name="DCGM_FI_DEV_SM_CLOCK")
    made = told(*rows, clock)
    assert (made.mechanism.id if made.mechanism else None) == cause


def test_an_idle_gpu_whose_clock_fell_is_refuted_with_the_figure() -> None:
    rows = engine(running=(8.0, 3.9), tokens=(800.0, 150.0), done=(4.0, 0.75))
    clock = level("gpu_clock", steps(1.89e9, 1.0e9, noise=0.001), name="DCGM_FI_DEV_SM_CLOCK")
    made = told(*rows, clock)
    assert made.mechanism is None or made.mechanism.id != "gpu_throttled"
    assert [one.id for one in made.refuted] == ["gpu_throttled"]
    assert "an idle GPU lowers its clock" in made.refuted[0].figure


def test_a_lost_cache_and_longer_prompts_are_parted_by_what_was_computed() -> None:
    common: dict[str, Any] = {
        "waiting": (0.0, 12.0),
        "prompt_tokens": (4_000.0, 4_000.0),
        "prefix_cache_queries": (4_000.0, 4_000.0),
    }
    lost = told(*engine(**common, prefix_cache_hits=(3_200.0, 0.0)))
    assert lost.mechanism is not None
    assert (lost.state, lost.mechanism.id) == ("more_work", "prefix_cache_lost")
    common |= {"prompt_tokens": (4_000.0, 9_000.0), "prefix_cache_queries": (4_000.0, 9_000.0)}
    longer = told(*engine(**common, prefix_cache_hits=(3_200.0, 7_200.0)))
    assert longer.mechanism is not None
    assert (longer.state, longer.mechanism.id) == ("more_work", "prompt_bloat")


def test_idle_peers_are_routing_and_nobody_is_taken_out() -> None:
    """Two of three are full; the third has nothing: neither capacity nor a sick one."""
    rows = [
        row
        for name, load in (("a", 1.0), ("b", 1.0), ("c", 0.0))
        for row in engine(
            instance=name,
            running=(8.0 * load, 20.0 * load),
            waiting=(0.0, 30.0 * load),
            tokens=(800.0 * load, 1_600.0 * load),
            done=(4.0 * load, 8.0 * load),
        )
    ]
    made = told(*rows)
    assert made.mechanism is not None
    assert (made.state, made.mechanism.id) == ("held_back", "routing_imbalance")
    assert made.places[0].instances == ["a", "b"]
    assert "c of the same role" in made.advice.avoid[0]
    assert "out of rotation" not in " ".join(made.advice.do)


@pytest.mark.parametrize(("kv", "out"), [(0.3, True), (0.7, False)])
def test_a_slow_peer_is_taken_out_only_where_the_rest_can_carry_the_sum(
    kv: float, out: bool
) -> None:
    """Of two, one takes three times as long a token; the other one would get half as much again in work."""
    rows = [
        *engine(instance="a", kv=(kv, kv), tokens=(800.0, 800.0)),
        *engine(
            instance="b", kv=(kv, kv), tokens=(800.0, 400.0), done=(4.0, 2.0), running=(8.0, 12.0)
        ),
    ]
    made = told(*rows)
    assert made.mechanism is not None
    assert (made.state, made.mechanism.id) == ("slower", "straggler_replica")
    assert made.places[0].instances == ["b"]
    assert ("out of rotation" in made.advice.do[0]) is out
    assert any("out of rotation" in text for text in made.advice.avoid) is not out


def test_the_front_is_the_place_where_those_behind_are_idle() -> None:
    """20, then 100 clients: 10 requests a second whatever is inside, and 0.1 inside of the engine."""
    clients = np.repeat([20.0, 50.0, 100.0, 100.0], 20)
    ended = steps(10.0, 10.0, noise=0.02)
    front: dict[str, Any] = {"instance": "picker", "model": ""}
    rows = [
        level("running", clients, name="inference_objective_running_requests", **front),
        times(
            "e2e",
            ended,
            clients / ended,
            name="inference_objective_request_duration_seconds",
            **front,
        ),
        rate(None, [3.9] * N, name="process_cpu_seconds_total", **front),
        times("e2e", ended, np.full(N, 0.01)),
        level("running", [0.1] * N),
        level("queue_depth", [0.0] * N),
    ]
    made = told(*rows)
    assert (made.places[0].stage, made.places[0].service, made.state) == (
        "gateway",
        "router",
        "at_ceiling",
    )
    assert made.mechanism is not None
    assert made.mechanism.id == "front_cpu"
    assert made.advice.avoid == ["More engines or GPUs: the time is in front of them."]


def test_requests_in_no_gauge_are_behind_the_scheduler() -> None:
    """10 a second take 2 s, then 8 s: 80 are inside, 20 run and none waits; tokens of streams take 79 s a second."""
    ended = steps(10.0, 10.0, noise=0.02)
    rows = [
        level("running", np.full(N, 20.0)),
        level("queue_depth", np.zeros(N)),
        times("e2e", ended, steps(2.0, 8.0)),
        times("itl", 100.0 * ended, steps(0.02, 0.079)),
        rate("output_tokens", 100.0 * ended),
    ]
    made = told(*rows)
    assert (made.places[0].where, made.mechanism and made.mechanism.id) == (
        "unseen",
        "token_process",
    )


def test_a_station_that_holds_requests_and_writes_nothing_is_stopped() -> None:
    dead = [
        row
        for row in engine(instance="b", tokens=(0.0, 0.0))
        if row["kind"] == 1 or row["indicator"] == "output_tokens"
    ]
    made = told(*engine(instance="a"), *dead)
    assert (made.state, made.places[0].instances) == ("stopped", ["b"])


def test_a_limit_that_was_always_missed_is_explained_by_the_levels_alone() -> None:
    """Nine seats, all taken, and eight wait from the first scrape on."""
    rows = engine(running=(9.0, 9.0), waiting=(8.0, 8.0), running_limit=(9.0, 9.0))
    assert told(*rows).mode == "none"
    made = told(*rows, over="ttft")
    assert (made.mode, made.onset, made.state) == ("always", None, "at_ceiling")
    assert made.mechanism is not None
    assert made.mechanism.id == "too_few_seats"
    assert made.advice.undo is None


def test_what_came_with_a_restart_is_undone_first() -> None:
    rows = engine(
        running=(48.0, 14.0),
        waiting=(0.0, 36.0),
        tokens=(750.0, 400.0),
        done=(5.0, 4.0),
        kv=(0.3, 0.12),
        varies=0.2,
    )
    started = level(None, steps(T0_S - 5_000.0, T0_S + 590.0), name="process_start_time_seconds")
    offload = level(None, np.full(40, 3.0), first=40, name="vllm:kv_offload_blocks")
    made = told(*rows, started, offload)
    assert made.mechanism is not None
    assert made.mechanism.id == "kv_connector_holds"
    assert made.advice.undo is not None
    assert made.advice.undo.startswith("Undo what came when gpu-0 started at ")
    assert any("kv_offload_blocks" in one.what for one in made.changed)


@pytest.mark.parametrize(
    "without",
    [
        "running",
        "queue_depth",
        "kv_cache_usage",
        "finished",
        "output_tokens",
        "e2e",
        "queue",
        "decode",
    ],
)
def test_a_page_that_lacks_a_series_still_places_the_queue(without: str) -> None:
    rows = [row for row in engine(waiting=(0.0, 12.0)) if row["indicator"] != without]
    made = told(*rows)
    assert made.places[0].stage == "queue"


def test_gauges_alone_or_histograms_alone_place_it() -> None:
    rows = engine(waiting=(0.0, 12.0))
    for kinds in ((1,), (2, 3)):
        made = told(*(row for row in rows if row["kind"] in kinds))
        assert made.places[0].stage == "queue"


def test_a_hostile_name_is_printed_harmlessly() -> None:
    name = "gpu\x1b[31m\n<script>" * 20
    made = told(*engine(instance=name, waiting=(0.0, 12.0)))
    for text in (made.sentence, made.state_words, made.places[0].words):
        assert "\x1b" not in text
        assert "\n" not in text
        assert len(text) < 1_000


def test_an_instance_that_changes_its_name_is_no_fault() -> None:
    """A pod is replaced: its series end and another's begin with the same work."""
    rows = []
    for name, part in (("pod-1", slice(0, 40)), ("pod-2", slice(40, 80))):
        for row in engine(instance=name):
            cut = {key: row[key][part] for key in ("time_ns", "start_ns", "value", "sum", "count")}
            rows.append(row | cut)
    made = told(*rows)
    assert made.mechanism is None
    assert made.state in ("unknown", "normal")


@pytest.mark.parametrize(("now", "named"), [(0.6, True), (0.02, False)])
def test_a_container_that_may_not_run_is_named_by_its_pod(now: float, named: bool) -> None:
    rows = engine(instance="pod-a", running=(8.0, 8.0), tokens=(800.0, 400.0), done=(4.0, 2.0))
    throttled = rate(
        None,
        steps(0.01, now),
        name="container_cpu_cfs_throttled_seconds_total",
        instance="kubelet",
        labels={"pod": "pod-a"},
    )
    made = told(*rows, throttled)
    assert (made.mechanism is not None and made.mechanism.id == "cpu_quota") is named


def test_fewer_replicas_than_before_are_brought_back() -> None:
    rows = engine(running=(8.0, 16.0), waiting=(0.0, 12.0), running_limit=(16.0, 16.0))
    ready = level(
        None,
        steps(4.0, 2.0),
        name="kube_deployment_status_replicas_available",
        instance="kube-state-metrics",
        labels={"deployment": "vllm"},
    )
    made = told(*rows, ready)
    assert made.mechanism is not None
    assert made.mechanism.id == "fewer_replicas"
    assert "autoscaler" in made.advice.do[0]


def test_an_instance_that_vanishes_at_the_onset_is_a_change() -> None:
    rows = engine(instance="a", waiting=(0.0, 12.0))
    for row in engine(instance="b"):
        cut = {key: row[key][:40] for key in ("time_ns", "start_ns", "value", "sum", "count")}
        rows.append(row | cut)
    made = told(*rows)
    assert "b vanished" in [one.what for one in made.changed]


def test_more_at_once_at_equal_arrivals_is_an_effect() -> None:
    """Little's law: 4 a second end as before, 16 are inside instead of 8, whatever larger batches took before."""
    wave = 1.0 + 0.3 * np.sin(np.arange(N) * 2.399963)
    run, ended = steps(8.0, 16.0) * wave, 4.0 * wave
    # The past: twice as many at once took twice as long for a token.
    tokens = np.full(N, 800.0)
    rows = [
        level("running", run),
        rate("finished", ended),
        rate("output_tokens", tokens),
        times("e2e", ended, run / ended),
        times("decode", ended, run / ended),
        times("prefill", ended, np.zeros(N)),
    ]
    assert told(*rows).state == "slower"


def test_fewer_tokens_a_draft_are_said_with_figures() -> None:
    rows = engine(running=(8.0, 12.0), varies=0.3)
    rows += [
        rate("spec_draft_tokens", steps(1_000.0, 1_600.0, noise=0.02)),
        rate("spec_accepted_tokens", steps(600.0, 320.0, noise=0.02)),
    ]
    made = told(*rows)
    assert (made.state, made.mechanism and made.mechanism.id) == (
        "slower",
        "speculation_not_paying",
    )
    assert "0.20 of the drafted tokens are accepted instead of 0.60" in made.state_words
    assert "0.50 written ones instead of 0.80" in made.state_words


def test_prompts_that_no_longer_come_from_elsewhere_are_computed_here() -> None:
    """A decode worker beside the one that reads for it: both send vLLM's names and no role."""
    read = np.full(N, 4.0)
    reads = [
        {**row, "instance": "worker-a"}
        for row in (
            rate("finished", read),
            rate("output_tokens", read),
            times("e2e", read, np.full(N, 0.3)),
        )
    ]
    found = steps(4_000.0, 0.0)
    seconds = steps(0.02, 0.4, noise=0.02)
    writes = [
        {**row, "instance": "worker-b"}
        for row in (
            rate("finished", read),
            rate("output_tokens", steps(800.0, 800.0, noise=0.02)),
            rate("prompt_tokens", np.full(N, 4_000.0)),
            rate("external_prefix_cache_queries", np.full(N, 4_000.0)),
            rate("external_prefix_cache_hits", found),
            times("e2e", read, 2.0 + seconds),
            times("prefill", read, seconds),
            times("decode", read, np.full(N, 2.0)),
        )
    ]
    made = told(*reads, *writes)
    assert made.places[0].words == "reading prompts of worker-b"
    assert (made.state, made.mechanism and made.mechanism.id) == ("more_work", "kv_transfer_lost")


def test_a_wait_at_idle_hardware_that_load_does_not_lengthen_is_a_delay() -> None:
    """Batches of four instead of one: who arrives when more do waits less."""
    wave = 0.3 * np.sin(np.arange(N) * 2.399963)
    ended = 10.0 * (1.0 + wave)
    wait = np.where(np.arange(N) < 40, 0.002, 0.18 * (1.0 - wave))
    rows = [
        {**row, "name": row["name"].replace("vllm:", "nv_inference_")}
        for row in (
            rate("finished", ended),
            rate("e2e_total", ended * (wait + 0.008)),
            rate("queue_total", ended * wait),
            rate("inference_total", ended * 0.006),
            rate(None, ended / steps(1.0, 4.0), name="nv_inference_exec_count"),
        )
    ]
    made = told(*rows)
    assert (made.state, made.mechanism and made.mechanism.id) == ("held_back", "batching_delay")
    assert "4 requests are executed together instead of 1" in made.state_words
    assert not any("replicas" in text for text in made.advice.do)


def test_a_queue_in_front_of_full_replicas_on_other_pages_is_their_ceiling() -> None:
    """A proxy whose queue fills where both replicas have six, before the rest of what is inside grows."""
    wave = np.sin(np.arange(N) * 2.399963)
    late = np.arange(N) >= 40
    wait = np.where(late & (wave > 0.0), 14.0 * wave, 0.0)
    ended = np.where(late, 2.0, 1.0) * (1.0 + 0.02 * wave)
    inside = np.where(late, np.where(wait > 0.0, 6.0, 4.5), 2.0)
    serve = {"name": "ray_serve_http_request_latency_ms", "instance": "proxy", "model": ""}
    rows = [
        times("e2e", ended, (2 * inside + wait) / ended, **serve),
        level("queue_depth", wait, instance="proxy", name="ray_serve_deployment_queued_queries"),
    ]
    for name in ("one", "two"):
        rows += [
            level("running", inside, instance=name, name="ray_serve_replica_processing_queries"),
            times(
                "inference",
                ended / 2,
                2 * inside / ended,
                instance=name,
                name="ray_serve_deployment_processing_latency_ms",
            ),
        ]
    made = told(*rows, over="e2e")
    assert (made.places[0].stage, made.state) == ("queue", "at_ceiling")
    assert "never more than 12 run at a time" in made.state_words
    assert made.mechanism is not None
    assert "Add replicas" in made.advice.do[0]
    assert "ceiling of 12" in made.advice.do[0]


def test_a_proxy_that_its_quota_stops_is_the_place_and_not_the_engines_behind_it() -> None:
    many = np.full(N, 20.0)
    whole = steps(0.11, 0.23, noise=0.02)
    proxy = {"instance": "envoy-gw-0", "model": ""}
    rows = engine(done=(20.0, 20.0), running=(2.0, 2.0), tokens=(200.0, 200.0))
    rows += [
        times("gateway_e2e", many, whole, name="envoy_http_downstream_rq_time", **proxy),
        times(
            "gateway_call_e2e",
            many,
            np.full(N, 0.105),
            name="envoy_cluster_upstream_rq_time",
            **proxy,
        ),
        rate(
            None,
            steps(0.0, 0.9),
            name="container_cpu_cfs_throttled_seconds_total",
            instance="cadvisor",
            model="",
            labels={"pod": "envoy-gw-0"},
        ),
    ]
    made = told(*rows, over="e2e")
    place = made.places[0]
    assert (place.stage, place.service, made.state) == ("gateway", "router", "slower")
    assert made.mechanism is not None
    assert made.mechanism.id == "cpu_quota"
