"""The fault benchmark in its shortest form: a window with a fault and one without, from simulation to score; and the scores themselves."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.whatif import catalogue
from overrun.sample_traces.simulate import Job, latency_with, make, write
from overrun.sample_traces.simulator.faults import FURTHER, SCENARIOS
from overrun.sample_traces.simulator.pairs import find
from overrun.sample_traces.simulator.scenarios import SEVERITIES
from tests.benchmarks import fault_figures, fault_tables, faults
from tests.benchmarks.fault_ablations import ABLATIONS, FEW, SKEW_S, ablate
from tests.benchmarks.fault_case import Options, Result, WhatIf, run
from tests.benchmarks.fault_fixes import BestFix, FixOutcome, applied


def result(**changes: Any) -> Result:
    """A right answer about a window with long outputs."""
    found = Result(
        scenario="long_outputs",
        severity="easy",
        seed=1,
        client_only=False,
        confounders=[],
        breach=0.3,
        causes=["long_outputs"],
        accepted=[],
        stages=["decode"],
        chain=[],
        status="over_budget",
        stage="decode",
        cause="long_outputs",
        ranked_stages=["decode", "queue"],
        findings=[("long_outputs", "critical", 0.9)],
        sentence="",
        reasons={},
        onset_error_s=1.0,
        delay_s=None,
        whatifs=[],
        seconds={},
        baselines=dict.fromkeys(
            ("inclusive duration", "always the LLM", "fixed thresholds"), ("x", "x")
        ),
    )
    return msgspec.structs.replace(found, **changes)


def easy(scenario: str) -> Job:
    """A short window with that fault."""
    return Job(scenario=scenario, severity="easy", seed=102, duration_s=160.0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where recordings stay for the next test that asks about them."""
    return tmp_path_factory.mktemp("kept")


@pytest.mark.parametrize(
    ("scenario", "stage"), [("slow_dependency", "retrieval"), ("under_capacity", "queue")]
)
def test_a_fault_is_found_from_its_telemetry_alone(kept: Path, scenario: str, stage: str) -> None:
    found = run(easy(scenario), Options(keep=kept))
    assert found.breach is not None
    assert found.breach > 0.15
    assert (found.status, found.stage, found.cause) == ("over_budget", stage, scenario)
    assert found.cause_right(1)
    assert found.stage_right(1)
    assert {path.name for path in kept.glob("*/*")} == {"case.db", "truth.json"}
    assert found.path


def test_the_path_is_wrong_where_exemplars_began_before_the_fault_or_the_stage_is_another(
    kept: Path, tmp_path: Path
) -> None:
    run(easy("slow_dependency"), Options(keep=kept))
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    [noted] = tmp_path.glob("slow_dependency-*/truth.json")
    truth = json.loads(noted.read_bytes())
    late = (datetime.fromisoformat(truth["end"]) - timedelta(seconds=10.0)).isoformat()
    for changed in ({"onset": late}, {"stages": ["guardrail"]}):
        noted.write_text(json.dumps(truth | {"fixes": []} | changed))  # no what-if is asked again
        assert run(easy("slow_dependency"), Options(keep=tmp_path)).path is False


def test_an_ablation_takes_away_what_it_says_and_nothing_else(tmp_path: Path) -> None:
    """Of one recording, its export requests kept: who counts tokens, who scrapes, which traces are left, whose clock is right."""
    job = Job(
        scenario="slow_dependency",
        severity="easy",
        seed=102,
        duration_s=60.0,
        confounders=False,
        amount=400.0,
        fixes=False,
    )
    write(make(job), tmp_path / "otlp")
    whole = counted(tmp_path / "otlp")
    for name in ABLATIONS:
        ablate(name, tmp_path / "otlp", tmp_path / name)
    got = {name: counted(tmp_path / name) for name in ABLATIONS}
    assert (whole["tokens"] > 0, whole["points"] > 0) == (True, True)
    assert got["no_engine_metrics"] == whole | {"points": 0}
    assert (got["no_token_counts"]["tokens"], got["no_token_counts"]["spans"]) == (
        0,
        whole["spans"],
    )
    assert 0 < got["no_token_counts"]["points"] < whole["points"]
    assert got["sampled"]["traces"] == pytest.approx(0.1 * whole["traces"], rel=0.5)
    assert got["sampled"]["points"] == whole["points"]
    assert got["few"]["traces"] == FEW
    assert got["skew"]["engine_ns"] - whole["engine_ns"] == round(SKEW_S * 1e9)  # the seed is even
    assert got["skew"] | {"engine_ns": 0} == whole | {"engine_ns": 0}


def counted(folder: Path) -> dict[str, int]:
    """How many spans, traces, token counts and metric points a folder of export requests holds, and when its first engine span begins."""
    spans: list[tuple[str, Any]] = []
    points = 0
    for path in folder.glob("*.traces.pb"):
        for resource in ExportTraceServiceRequest.FromString(path.read_bytes()).resource_spans:
            [service] = [
                one.value.string_value
                for one in resource.resource.attributes
                if one.key == "service.name"
            ]
            spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]
    for path in folder.glob("*.metrics.pb"):
        body = ExportMetricsServiceRequest.FromString(path.read_bytes())
        points += sum(
            len(scope.metrics)
            for resource in body.resource_metrics
            for scope in resource.scope_metrics
        )
    tokens = sum(
        one.key.startswith("gen_ai.usage.") for _, span in spans for one in span.attributes
    )
    return {
        "spans": len(spans),
        "traces": len({span.trace_id for _, span in spans}),
        "tokens": tokens,
        "points": points,
        "engine_ns": min(span.start_time_unix_nano for service, span in spans if service == "vllm"),
    }


def test_of_a_few_requests_saying_that_they_are_too_few_is_right() -> None:
    nothing = result(
        ablation="few",
        requests=60,
        needed=299,
        status="not_enough_data",
        stage=None,
        cause=None,
        findings=[],
    )
    assert (nothing.cause_right(1), nothing.stage_right(1)) == (True, True)
    assert not msgspec.structs.replace(nothing, requests=300).cause_right(1)
    assert not result(
        ablation="few",
        requests=60,
        needed=299,
        cause="kv_pressure",
        findings=[("kv_pressure", "warning", 0.9)],
    ).cause_right(1)


def test_a_healthy_window_raises_no_alarm(tmp_path: Path) -> None:
    found = run(
        Job(scenario="healthy", seed=103, duration_s=120.0, client_only=True),
        Options(keep=tmp_path),
    )
    assert (found.status, found.alarm) == ("within_budget", False)


def test_a_fix_in_the_true_world_is_scored_beside_the_others() -> None:
    job = Job(
        scenario="speculation_not_paying",
        severity="easy",
        seed=104,
        duration_s=60.0,
        confounders=False,
        amount=0.4,
    )
    now = latency_with(job, 25.0, lambda before, after: after)
    same = latency_with(
        job, 25.0, lambda before, after: applied("cap", {"max_tokens": 4_096}, before, after)
    )
    capped = latency_with(
        job, 25.0, lambda before, after: applied("cap", {"max_tokens": 20}, before, after)
    )
    assert (
        latency_with(job, 25.0, lambda before, after: applied("hedging", {}, before, after)) is None
    )
    assert now is not None
    assert now == same
    assert capped is not None
    assert capped["e2e_ms"]["p95"] < 0.5 * now["e2e_ms"]["p95"]
    cap, other = FixOutcome("cap", 880.0), FixOutcome("kv_size", 800.0)
    assert BestFix("e2e", "p95", 900.0, cap, [other]).regret == pytest.approx(0.1)
    assert BestFix("e2e", "p95", 900.0, None, [other]).regret is None
    table = fault_tables.tables(
        [
            result(best_fix=BestFix("e2e", "p95", 900.0, cap, [other])),
            result(best_fix=BestFix("e2e", "p95", 900.0, None, [])),
        ]
    )
    assert "1 of 2 cases" in table
    assert "better than no fix: 1 of 1" in table


def test_naming_the_right_cause_second_counts_in_the_first_three_only() -> None:
    wrong = result(
        cause="under_capacity",
        findings=[("under_capacity", "warning", 0.8), ("long_outputs", "warning", 0.7)],
    )
    assert (wrong.cause_right(1), wrong.cause_right(3), wrong.set_right) == (False, True, False)


def test_naming_nothing_is_right_only_where_nothing_can_be_known() -> None:
    silent = result(cause=None, findings=[])
    assert not silent.cause_right(1)
    assert msgspec.structs.replace(silent, causes=["none", "provider_queueing"]).cause_right(1)


def test_what_follows_from_a_cause_does_not_spoil_the_set() -> None:
    rich = result(
        chain=["retry_storm"],
        findings=[
            ("long_outputs", "critical", 0.9),
            ("retry_storm", "warning", 0.5),
        ],
    )
    assert rich.set_right
    assert not result(
        findings=[("long_outputs", "critical", 0.9), ("burst_arrivals", "warning", 0.5)]
    ).set_right


def test_a_finding_of_warning_on_a_healthy_window_is_an_alarm_and_information_is_not() -> None:
    calm = result(
        severity=None,
        causes=[],
        stages=[],
        status="within_budget",
        findings=[("cold_start", "info", 0.3)],
    )
    assert not calm.alarm
    assert msgspec.structs.replace(calm, findings=[("cold_start", "warning", 0.3)]).alarm


def test_tables_count_what_was_asked_and_list_what_was_wrong() -> None:
    predicted = WhatIf(
        "cap",
        "simulated",
        "e2e",
        0.95,
        4000.0,
        2000.0,
        2100.0,
        (1900.0, 2200.0),
        2400.0,
        again=2020.0,
    )
    wrong = result(
        seed=2,
        cause="under_capacity",
        stage="queue",
        ranked_stages=["queue"],
        findings=[("under_capacity", "warning", 0.8)],
    )
    cases = [
        result(whatifs=[predicted]),
        wrong,
        result(
            seed=3,
            severity=None,
            causes=[],
            stages=[],
            scenario="healthy",
            status="within_budget",
            stage=None,
            cause=None,
            findings=[],
        ),
    ]
    text = fault_tables.tables(cases)
    assert "| full, easy | 50% (1/2, 9-91) | 50% (1/2, 9-91) | 50% (1/2, 9-91) |" in text
    assert "Healthy windows with an alarm: 0% (0/1" in text
    assert "| cap (simulated) | E2E P95 | 1 | 1 | 5.0% | 5.0% | 1/1 | 1/1 | 20.0% | 1.0% |" in text
    assert (
        "| simulated | E2E P95 | 1 | 5.0% | 5.0% | 100% (1/1, 21-100) | 100% (1/1, 21-100) | 20.0% | 1.0% |"
        in text
    )
    listed = fault_tables.confusions(cases)
    assert "long_outputs easy seed 2" in listed
    assert "seed 1" not in listed


def test_a_whole_run_gives_its_headlines_as_figures() -> None:
    close = WhatIf(
        "cap",
        "simulated",
        "e2e",
        0.99,
        before=1000.0,
        truth=800.0,
        after=840.0,
        interval=(700.0, 900.0),
    )
    refused = WhatIf(
        "cap", "simulated", "e2e", 0.99, before=1000.0, truth=800.0, after=None, interval=None
    )
    silent = result(
        scenario="healthy",
        severity=None,
        status="within_budget",
        causes=[],
        cause=None,
        findings=[],
        breach=None,
    )
    cases = [
        result(whatifs=[close, refused]),
        result(seed=2, cause="prompt_bloat"),
        result(seed=3, breach=0.001),
        silent,
    ]
    found = {
        f.what: (f.value, f.of)
        for f in fault_figures.diagnosis(cases, script="x", conditions="seed 1")
    }
    assert found["Cause named first, easy"] == (1, 2)
    assert found["Healthy windows with an alarm"] == (0, 1)
    predicted = {f.what: f for f in fault_figures.whatifs(cases, script="x", conditions="seed 1")}
    error = predicted["Error of simulated what-ifs, E2E P99"]
    assert (error.value, error.more) == (
        5.0,
        {"P90": 5.0, "inside": "1 of 1", "direction": "1 of 1"},
    )
    assert (
        predicted["Fixes that were answered"].value,
        predicted["Fixes that were answered"].of,
    ) == (1, 2)


def test_seeds_for_the_table_are_in_no_other_use() -> None:
    assert not set(faults.DEVELOPMENT) & set(faults.HELD_OUT)


def test_short_answers_beside_long_ones_are_told_and_their_lanes_come_true() -> None:
    case = run(
        Job(
            scenario="mixed_lengths",
            severity="medium",
            seed=102,
            duration_s=360.0,
            confounders=False,
        ),
        Options(),
    )
    assert (case.status, case.stage, case.cause) == ("over_budget", "decode", "mixed_lengths")
    assert case.path
    for predicted in case.whatifs:  # the P50, P95 and P99 of the same requests on lanes
        assert predicted.method == "simulated"
        assert predicted.after == pytest.approx(predicted.truth, rel=0.1)


def test_faults_beside_the_scenarios_are_counted_in_no_table_of_theirs() -> None:
    assert len(SCENARIOS) == 37
    assert not SCENARIOS.keys() & FURTHER.keys()


@pytest.mark.parametrize("name", [*SCENARIOS, *FURTHER])
def test_every_fix_of_the_truth_can_be_asked_for_with_its_parameters(name: str) -> None:
    scenario = (SCENARIOS | FURTHER)[name]
    for severity in SEVERITIES:
        faulty = scenario.fault(scenario.world, scenario.amount(severity))
        assert faulty != scenario.world
        for fix in scenario.fixes(scenario.world, faulty):
            assert fix.apply(faulty) != faulty
            if fix.id != "restore":
                catalogue.read(
                    fix.id,
                    {
                        key: value if isinstance(value, str) else f"{value:g}"
                        for key, value in fix.parameters.items()
                    },
                )


def test_two_faults_at_once_turn_what_each_turns_in_one_world() -> None:
    both, first, second = (
        find("slow_dependency+prefix_cache_lost"),
        SCENARIOS["slow_dependency"],
        SCENARIOS["prefix_cache_lost"],
    )
    assert both is not None
    assert (both.world.system_tokens, both.causes) == (
        3600,
        ("slow_dependency", "prefix_cache_lost"),
    )
    faulty = both.fault(both.world, both.amount("medium"))
    assert (faulty.search_share, faulty.search_factor, faulty.system_broken_share) == (
        first.amounts[1],
        40.0,
        second.amounts[1],
    )
    only = [fault(both.world, both.amount("medium")) for fault in both.alone]
    assert [(world.search_factor, world.system_broken_share) for world in only] == [
        (40.0, 0.0),
        (1.0, second.amounts[1]),
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tool_timeout+long_outputs", "different applications"),
        ("under_capacity+batch_past_knee", "different applications"),
        ("under_capacity+retry_storm", "both turn growth"),
    ],
)
def test_two_faults_that_cannot_come_together_are_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        find(name)
    assert find("slow_dependency+nonsense") is None


def test_a_pair_counts_only_where_each_fault_does_harm_on_its_own() -> None:
    pair = result(
        scenario="slow_dependency+long_outputs",
        causes=["slow_dependency", "long_outputs"],
        alone=[0.1, 0.01],
    )
    assert "Several faults at once, exact set: -" in fault_tables.tables([pair])
    assert "Several faults at once, exact set: 0% (0/1" in fault_tables.tables(
        [msgspec.structs.replace(pair, alone=[0.1, 0.1])]
    )
