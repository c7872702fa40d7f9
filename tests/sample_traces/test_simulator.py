"""The simulator keeps its own laws: nothing is lost, the same seed gives the same window, a fault does what its name says, a fix undoes it."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.sample_traces import simulate as program
from overrun.sample_traces.simulate import Job, make, write
from overrun.sample_traces.simulator.clock import Bucket, Clock, Process, Signal, Slots
from overrun.sample_traces.simulator.engine import Engine, Sequence
from overrun.sample_traces.simulator.run import Window, simulate
from overrun.sample_traces.simulator.settings import Settings, Telemetry
from overrun.sample_traces.simulator.traffic import NOISY
from overrun.sample_traces.simulator.truth import latency, users

SHORT_S = 40.0


def window(*, seed: int = 3, telemetry: Telemetry | None = None, **changes: object) -> Window:
    world = replace(Settings(), **changes)  # type: ignore[arg-type]
    return simulate(
        [(0.0, world)], duration_s=SHORT_S, seed=seed, telemetry=telemetry or Telemetry()
    )


def p95(found: Window) -> float:
    return float(latency(users(found.outcomes, 0.0, SHORT_S))["e2e_ms"]["p95"])


def test_processes_wait_for_time_signals_and_whichever_comes_first() -> None:
    clock, bell, told = Clock(), Signal(), []

    def waits() -> Process:
        yield 1.0
        told.append(("slept", clock.now))
        told.append(((yield (bell, 0.5)), clock.now))
        told.append(((yield bell), clock.now))
        return "done"

    done = clock.start(waits())
    clock.at(2.0, clock.fire, bell, "rang")
    clock.run(10.0)
    assert told == [("slept", 1.0), (False, 1.5), ("rang", 2.0)]
    assert done.value == "done"


def test_a_bucket_gives_what_it_holds_and_owes_what_was_used() -> None:
    clock = Clock()
    bucket = Bucket(clock, 2.0, 10.0)
    assert [bucket.take(6.0), bucket.take(6.0)] == [True, False]
    clock.run(1.0)
    assert bucket.take(6.0)
    bucket.owe(4.0)
    clock.run(3.0)
    assert not bucket.take(1.0)
    clock.run(100.0)
    assert bucket.take(50.0)  # a full one gives any number


def test_places_are_given_in_order_of_arrival() -> None:
    clock, order = Clock(), []
    slots = Slots(clock, 1)

    def one(name: str) -> Process:
        yield from slots.take()
        order.append((name, clock.now))
        yield 1.0
        slots.give()

    for name in "abc":
        clock.start(one(name))
    clock.run(10.0)
    assert order == [("a", 0.0), ("b", 1.0), ("c", 2.0)]


def engine_after(
    sequences: list[tuple[float, int, int]], **changes: object
) -> tuple[Engine, list[Sequence]]:
    """An engine that got (at, input tokens, output tokens) and ran until all was done."""
    clock = Clock()
    engine = Engine(clock, replace(Settings(), **changes), 0, 1)  # type: ignore[arg-type]
    made = [
        Sequence(i, o, 4096, (("system", min(256, i)),), "", Signal(), Signal(), at)
        for at, i, o in sequences
    ]
    for sequence in made:
        clock.at(sequence.arrived, engine.submit, sequence)
    clock.run(600.0)
    return engine, made


def test_an_engine_makes_every_token_once_and_gives_all_memory_back() -> None:
    engine, made = engine_after([(0.05 * k, 400 + 37 * k, 20 + 11 * (k % 9)) for k in range(60)])
    assert all(s.finished > s.first_token > s.scheduled >= s.queued for s in made)
    assert all(s.made + 0 == s.output_tokens for s in made)
    assert engine.counters.output_tokens == sum(s.output_tokens for s in made)
    assert engine.kv_own == 0
    assert engine.load == 0


def test_preempted_sequences_compute_again_and_still_end() -> None:
    engine, made = engine_after([(0.01 * k, 600, 400) for k in range(24)], kv_tokens=9_000)
    assert engine.counters.preemptions > 0
    assert all(s.made == s.output_tokens for s in made)
    assert max(s.preemptions for s in made) >= 1


def test_no_more_is_admitted_than_the_cache_holds_whoever_waits() -> None:
    clock = Clock()
    engine = Engine(clock, replace(Settings(), kv_tokens=9_000), 0, 1)
    held: list[int] = []

    def look() -> Process:
        while clock.now < 60.0:
            held.append(engine.kv_own + engine.kv_cache)
            yield 0.02

    clock.start(look())
    for _ in range(40):  # all at once: each by itself would fit
        clock.at(0.1, engine.submit, Sequence(600, 300, 4096, (), "", Signal(), Signal(), 0.1))
    clock.run(600.0)
    assert 8_000 < max(held) <= 9_000
    assert engine.counters.finished["stop"] == 40


def test_what_was_computed_before_a_preemption_is_found_again_where_nobody_wrote_over_it() -> None:
    clock = Clock()
    engine = Engine(clock, replace(Settings(), kv_tokens=2_200), 0, 1)
    made = [Sequence(900, 200, 4096, (), "", Signal(), Signal(), 0.1) for _ in range(2)]
    for sequence in made:
        clock.at(0.1, engine.submit, sequence)
    clock.run(600.0)
    assert [s.preemptions for s in made] == [0, 1]
    prompts = 2 * 900
    assert sum(tokens * n for tokens, n in engine.counters.iterations) < prompts + 2 * 200 + 300


def test_a_token_comes_after_the_one_before_it() -> None:
    engine, made = engine_after([(0.03 * k, 500, 60) for k in range(30)], kv_tokens=9_000)
    for sequence in made:
        times = [engine.token_time(sequence, k) for k in range(1, sequence.output_tokens + 1)]
        assert times == sorted(times)
        assert times[0] == sequence.first_token
        assert times[-1] == pytest.approx(sequence.finished, abs=0.2)


def test_a_known_prefix_is_not_computed_again() -> None:
    _, made = engine_after([(0.0, 1000, 5), (2.0, 1000, 5)])
    assert [s.cached for s in made] == [0, 256]
    assert made[1].first_token - made[1].scheduled < made[0].first_token - made[0].scheduled


def test_without_chunking_a_long_prompt_stalls_those_who_decode() -> None:
    jobs = [(0.0, 200, 200), (0.5, 16_000, 5)]
    gaps = []
    for chunked in (True, False):
        engine, made = engine_after(jobs, chunked=chunked)
        times = [engine.token_time(made[0], k) for k in range(1, 201)]
        gaps.append(max(b - a for a, b in itertools.pairwise(times)))
    assert gaps[1] > 3 * gaps[0]


def test_the_same_seed_gives_the_same_window_and_another_seed_another() -> None:
    first, again, other = window(), window(), window(seed=4)
    assert [(s.id, s.start, s.end) for s in first.spans] == [
        (s.id, s.start, s.end) for s in again.spans
    ]
    assert [s.id for s in first.spans] != [s.id for s in other.spans]


def test_a_fault_brings_the_same_requests() -> None:
    calm, faulty = window(), window(output_factor=3.0, output_share=0.5)
    assert [o.request.at for o in sorted(calm.outcomes, key=lambda o: o.request.index)] == [
        o.request.at for o in sorted(faulty.outcomes, key=lambda o: o.request.index)
    ]
    assert p95(faulty) > 1.5 * p95(calm)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "chat", "system_tokens": 900, "input_tokens": 90.0},
        {"kind": "agent", "rate_rps": 3.0},
        {"provider": True},
        {"provider": True, "provider_429": 0.2, "retries": 2},
        {"gateway_slots": 4},
        {"client_slots": 6},
        {"pooled": False},
        {"kind": "chat", "suggestion_tokens": 300.0, "cancels": False},
        {"router": "tenant"},
        {"buffered_share": 1.0},
        {"retry_after_s": 0.2, "retries": 2},
        {"give_up_share": 0.3, "give_up_s": 0.6, "cancels": False},
        {"batch_rps": 0.3},
        {"draft_tokens": 4},
        {"noisy_share": 0.3, "noisy_input_factor": 3.0},
        {"huge_every_s": 10.0, "huge_tokens": 20_000},
        {"guard_model": "gpt-4.1"},
        {"sequential_share": 1.0},
        {"tokenizer_us": 40.0},
        {"reasoning_share": 0.5, "reasoning_tokens": 200.0, "deep_share": 0.2},
        {"burst_every_s": 20.0, "burst_factor": 3.0},
    ],
)
def test_every_knob_leaves_whole_traces(changes: dict[str, object]) -> None:
    found = window(**changes)
    ids = {span.id for span in found.spans}
    assert len(ids) == len(found.spans)
    assert all(span.end >= span.start >= 0.0 for span in found.spans)
    assert all(span.parent == 0 or span.parent in ids for span in found.spans)
    assert len(found.outcomes) == found.arrivals
    per_trace = Counter(span.trace for span in found.spans if span.parent == 0)
    assert set(per_trace.values()) == {1}


def test_the_client_alone_sees_no_engine(tmp_path: Path) -> None:
    made = make(Job(scenario="long_outputs", duration_s=40.0, client_only=True, fixes=False))
    write(made, tmp_path)
    assert not list(tmp_path.glob("*.metrics.pb"))
    services = {
        a.value.string_value
        for path in tmp_path.glob("*.traces.pb")
        for r in ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans
        for a in r.resource.attributes
        if a.key == "service.name"
    }
    assert services == {"rag-api"}


def test_what_is_written_is_otlp_with_engines_and_their_metrics(tmp_path: Path) -> None:
    made = make(
        Job(scenario="long_outputs", seed=2, duration_s=40.0, confounders=False, fixes=False)
    )
    write(made, tmp_path)
    spans = [
        s
        for path in sorted(tmp_path.glob("*.traces.pb"))
        for r in ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans
        for scope in r.scope_spans
        for s in scope.spans
    ]
    assert len(spans) == len(made.window.spans)
    assert {"POST /rag/ask", "chat qwen3-8b-instruct", "llm_request", "qdrant.query_points"} <= {
        s.name for s in spans
    }
    names = {
        m.name
        for path in tmp_path.glob("*.metrics.pb")
        for r in ExportMetricsServiceRequest.FromString(path.read_bytes()).resource_metrics
        for scope in r.scope_metrics
        for m in scope.metrics
    }
    assert {
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_hits_total",
        "vllm:inter_token_latency_seconds",
    } <= names


def test_the_truth_has_the_same_requests_with_the_fix() -> None:
    truth = make(
        Job(scenario="slow_dependency", severity="easy", duration_s=80.0, confounders=False)
    ).truth
    [fix] = truth["fixes"]
    assert fix["latency"]["requests"] == truth["latency"]["after"]["requests"]
    assert fix["latency"]["e2e_ms"]["p95"] < truth["latency"]["after"]["e2e_ms"]["p95"]
    assert fix["again"]["requests"] == fix["latency"]["requests"]
    assert (
        fix["again"]["e2e_ms"]["p95"]
        != fix["latency"]["e2e_ms"]["p95"]
        == pytest.approx(fix["again"]["e2e_ms"]["p95"], rel=0.1)
    )
    assert truth["breach_ratio"]["before"] < 0.02 < truth["breach_ratio"]["after"]


def test_a_quota_refuses_the_noisy_tenant_alone_and_gives_it_no_more_than_its_bucket() -> None:
    world = {"noisy_share": 0.4, "noisy_input_factor": 3.0}
    free, limited = window(**world), window(**world, noisy_quota=500.0)
    assert [o.request.at for o in limited.outcomes if not o.ok and o.request.tenant != NOISY] == []
    passed = sum(
        call.sequences[0].input_tokens
        for o in limited.outcomes
        if o.ok and o.request.tenant == NOISY
        for call in o.calls
    )
    assert 0 < passed <= 500.0 * (60.0 + SHORT_S)
    assert len(free.outcomes) == len(limited.outcomes) == sum(o.ok for o in free.outcomes)
    assert sum(o.ok for o in limited.outcomes) < len(limited.outcomes)


def test_an_unknown_scenario_is_refused_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["long_output", "--out", str(tmp_path)]) == 2
    assert "long_outputs" in capsys.readouterr().err
