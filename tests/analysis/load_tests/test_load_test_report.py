"""Load tests of a server whose capacity is known, as each generator writes them: percentiles, capacity, what breaks first, and the gates."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from overrun.analysis.diagnosis.load_test_verdict import load_verdict
from overrun.analysis.front.load_test import LoadTestReport, load_test_report
from overrun.analysis.numbers.load_tests.capacity import capacities
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import parse_slo
from overrun.cli import app
from overrun.collector.sources.load_test_files import find_load_tests
from tests.analysis.load_tests import worlds
from tests.analysis.load_tests.worlds import World, capacity, looped, served, write

SLO = "ttft:500 e2e:3000"
ROWS: dict[str, worlds.Writer] = {
    "vllm.json": worlds.vllm,
    "sglang.jsonl": worlds.sglang,
    "guidellm.json": worlds.guidellm,
    "guidellm-old.json": worlds.guidellm_old,
    "aiperf.jsonl": worlds.aiperf,
    "inference-perf.json": worlds.inference_perf,
    "inference-perf-old.json": lambda world: worlds.inference_perf(world, new=False),
    "k6.json": worlds.k6,
    "k6-with-ttft.json": lambda world: worlds.k6(world, ttft=True),
    "k6.csv": worlds.k6_csv,
}
SUMMARIES: dict[str, worlds.Writer] = {
    "vllm.json": lambda world: worlds.vllm(world, details=False),
    "sglang.jsonl": lambda world: worlds.sglang(world, details=False),
    "guidellm.json": lambda world: worlds.guidellm(world, requests=False),
    "aiperf.json": worlds.aiperf_json,
    "aiperf-records.json": lambda world: worlds.aiperf_json(world, records=True),
    "aiperf.csv": worlds.aiperf_csv,
    "inference-perf.json": worlds.inference_perf_stage,
    "k6.json": worlds.k6_summary,
    "k6-exported.json": lambda world: worlds.k6_summary(world, exported=True),
    "locust_stats.csv": worlds.locust_stats,
    "locust-ttft_stats.csv": lambda world: worlds.locust_stats(world, ttft=True),
}


def reported(*paths: Path, slo: str = SLO) -> LoadTestReport:
    return load_test_report(find_load_tests(list(paths)), parse_slo(slo))


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("name", ROWS)
def test_percentiles_are_those_of_the_requests(name: str, tmp_path: Path) -> None:
    world = served(6.0, failing=0.02)
    made = reported(write(tmp_path, f"result{Path(name).suffix}", ROWS[name](world)))
    [row] = made.runs
    assert (row.basis, row.requests, row.errors) == (
        "requests",
        len(world.start),
        int(world.failed.sum()),
    )
    assert row.e2e_ms.p95 == pytest.approx(world.ms("e2e", 95), rel=1e-3)
    if name not in ("k6.json", "k6.csv"):
        assert row.ttft_ms.p99 == pytest.approx(world.ms("ttft", 99), rel=1e-3)
    if "k6" not in name:
        assert row.tpot_ms.p50 == pytest.approx(world.ms("tpot", 50), rel=2e-3)


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_judged_by_its_percentiles_and_said_to_be_one(
    name: str, tmp_path: Path
) -> None:
    world = served(6.0, failing=0.02)
    made = reported(
        write(tmp_path, f"result{Path(name).suffix}", SUMMARIES[name](world)), slo="e2e:3000"
    )
    [row] = made.runs
    assert row.basis == "summary"
    assert row.e2e_ms.p95 == pytest.approx(world.ms("e2e", 95), rel=0.01)
    if name != "sglang.jsonl":  # which does not count what failed
        assert (row.requests, row.errors) == (len(world.start), int(world.failed.sum()))
    assert any("only the generator's summary" in note for note in made.notes)
    if "ttft" in name or "vllm" in name or "aiperf" in name:
        assert row.ttft_ms.p95 == pytest.approx(world.ms("ttft", 95), rel=0.01)


@pytest.mark.parametrize(
    "name", ["vllm.json", "guidellm.json", "guidellm-old.json", "aiperf.jsonl", "k6.json"]
)
def test_the_capacity_of_a_sweep_lies_in_its_interval(name: str, tmp_path: Path) -> None:
    rates = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0)
    for rate in rates:
        write(tmp_path, f"run-{rate:g}{Path(name).suffix}", ROWS[name](served(rate)))
    made = reported(tmp_path, slo="e2e:3000")
    [verdict] = made.verdicts
    truth = max(rate for rate in rates if served(rate, 2_000.0, seed=9).good(e2e=3_000) >= 0.95)
    beyond = min(rate for rate in rates if rate > truth)
    low, high = verdict.capacity.interval_rps
    assert (verdict.status, verdict.cause) == ("breaks", "under_capacity")
    assert verdict.capacity.breaks_first == "e2e"
    assert low is not None
    assert high is not None
    # In two minutes little of a queue builds up just above saturation: there a short test holds what a long one does not.
    assert low <= beyond
    assert high >= truth
    assert truth * 0.85 <= (verdict.capacity.holds_up_to_rps or 0.0) <= beyond
    assert verdict.capacity.saturated_rps == pytest.approx(capacity(), rel=0.1)
    assert "ever answered" in verdict.sentence


def test_intervals_cover_the_truth_over_many_seeds(tmp_path: Path) -> None:
    rates = (6.0, 8.0, 9.0, 10.0, 12.0)
    held = [rate for rate in rates if served(rate, 3_000.0, seed=77).good(ttft=500) >= 0.95]
    truth, missed = max(held), 0
    for seed in range(10):
        folder = tmp_path / str(seed)
        for rate in rates:
            write(folder, f"{rate:g}.json", worlds.vllm(served(rate, 60.0, seed=seed)))
        [verdict] = reported(folder, slo="ttft:500").verdicts
        low, high = verdict.capacity.interval_rps
        # The limit of capacity lies between the last rate that holds and the first that does not; rates of arrivals scatter by a tenth.
        missed += not ((low or 0.0) <= truth * 1.2 and (high is None or high >= truth * 0.9))
    assert missed <= 1


def test_the_metric_that_breaks_first_is_named(tmp_path: Path) -> None:
    """First tokens wait for a seat while the gaps of an answer stay as they are; failures can be what breaks."""
    for rate in (4.0, 12.0):
        write(tmp_path / "wait", f"{rate:g}.json", worlds.vllm(served(rate)))
        write(
            tmp_path / "fail",
            f"{rate:g}.json",
            worlds.vllm(served(4.0 + rate / 100, failing=0.0 if rate < 5 else 0.3)),
        )
    [waits] = reported(tmp_path / "wait", slo="ttft:500 tpot:60 e2e:60000").verdicts
    assert (waits.capacity.breaks_first, waits.stage) == ("ttft", "queue")
    [fails] = reported(tmp_path / "fail", slo="ttft:5000").verdicts
    assert fails.capacity.breaks_first == "errors"
    assert "of the requests fail" in fails.sentence


def test_a_closed_loop_is_told_in_requests_in_flight(tmp_path: Path) -> None:
    for users in (2, 4, 8, 16, 32):
        write(tmp_path, f"{users}.json", worlds.vllm(looped(users)))
    [verdict] = reported(tmp_path, slo="ttft:500").verdicts
    assert verdict.capacity.closed
    assert verdict.capacity.in_flight == 8
    assert verdict.capacity.interval_in_flight == (8, 16)
    assert "8 requests in flight" in verdict.sentence


def test_levels_of_users_in_a_locust_history(tmp_path: Path) -> None:
    levels = [looped(users, n=3_000) for users in (2, 4, 8, 16, 32)]
    write(tmp_path, "run_stats_history.csv", worlds.locust_history(levels))
    write(tmp_path, "run_failures.csv", b"Method,Name,Error,Occurrences\n")
    made = reported(tmp_path, slo="e2e:1500")
    assert [row.name for row in made.runs] == [f"{users} users" for users in (2, 4, 8, 16, 32)]
    assert made.verdicts[0].capacity.in_flight == 8


def test_files_of_one_run_are_told_once(tmp_path: Path) -> None:
    for users, folder in ((4, "a"), (16, "b")):
        world = looped(users)
        write(tmp_path / folder, "profile_export.jsonl", worlds.aiperf(world))
        write(tmp_path / folder, "profile_export_aiperf.json", worlds.aiperf_json(world))
        write(tmp_path / folder, "profile_export_aiperf.csv", worlds.aiperf_csv(world))
        write(tmp_path / folder, "inputs.json", b'{"data": [{"session_id": "a", "payloads": []}]}')
    made = reported(tmp_path, slo="ttft:500")
    assert [(row.basis, row.name, row.in_flight) for row in made.runs] == [
        ("requests", "4 in flight", 4),
        ("requests", "16 in flight", 16),
    ]


def test_stages_of_inference_perf_are_parted_by_their_counts(tmp_path: Path) -> None:
    stages = [served(rate, 60.0) for rate in (2.0, 6.0, 16.0)]
    rows: list[Any] = []
    for number, world in enumerate(stages):
        write(
            tmp_path, f"stage_{number}_lifecycle_metrics.json", worlds.inference_perf_stage(world)
        )
        moved = World(
            world.rate,
            world.start + 1_000.0 * number,
            world.ttft,
            world.e2e,
            world.tokens,
            world.failed,
        )
        rows += json.loads(worlds.inference_perf(moved))
    write(tmp_path, "per_request_lifecycle_metrics.json", json.dumps(rows).encode())
    made = reported(tmp_path, slo="ttft:500")
    assert [row.asked_rps for row in made.runs] == [2.0, 6.0, 16.0]
    assert [row.basis for row in made.runs] == ["requests"] * 3
    for row, world in zip(made.runs, stages, strict=True):
        assert row.ttft_ms.p95 == pytest.approx(world.ms("ttft", 95), rel=1e-3)
    (tmp_path / "per_request_lifecycle_metrics.json").unlink()
    whole = World(
        None,
        *(
            np.concatenate([getattr(w, f) for w in stages])
            for f in ("start", "ttft", "e2e", "tokens", "failed")
        ),
    )
    write(
        tmp_path, "summary_lifecycle_metrics.json", worlds.inference_perf_stage(whole, total=True)
    )
    assert [row.asked_rps for row in reported(tmp_path).runs] == [2.0, 6.0, 16.0]


def test_scenarios_of_k6_are_runs(tmp_path: Path) -> None:
    data = worlds.k6(served(2.0), "rate_2") + b"\n" + worlds.k6(served(16.0), "rate_16")
    made = reported(write(tmp_path, "k6.json", data), slo="e2e:3000")
    assert {row.name for row in made.runs} == {"rate_2", "rate_16"}
    assert made.verdicts[0].cause == "under_capacity"


def test_different_traffic_is_judged_apart(tmp_path: Path) -> None:
    long = served(4.0)
    long.tokens = long.tokens * 10
    write(tmp_path, "short.json", worlds.vllm(served(4.0)))
    write(tmp_path, "long.json", worlds.vllm(long))
    made = reported(tmp_path)
    assert len(made.verdicts) == 2
    assert any("judged alone" in note for note in made.notes)


def test_a_limit_that_no_load_meets_is_no_lack_of_capacity(tmp_path: Path) -> None:
    for rate in (1.0, 2.0, 4.0):
        write(tmp_path, f"{rate:g}.json", worlds.vllm(served(rate, 300.0)))
    [verdict] = reported(tmp_path, slo="ttft:20").verdicts
    assert (verdict.status, verdict.cause) == ("missed", None)
    assert verdict.fitting_ms["ttft_p95"] == pytest.approx(50.0, rel=0.05)
    assert "does not fit" in verdict.sentence


def test_one_run_near_saturation_has_its_capacity_from_what_was_in_flight(tmp_path: Path) -> None:
    """Eight seats at 9.5 of 9.9 requests/s: first tokens wait once more than eight are in flight, and bursts show it."""
    path = write(tmp_path, "r.json", worlds.vllm(served(9.5, 400.0)))
    [verdict] = reported(path, slo="ttft:500").verdicts
    assert (verdict.status, verdict.cause, verdict.stage) == ("missed", "under_capacity", "queue")
    within = reported(path, slo="ttft:500").runs[0].within
    assert within is not None
    assert 8 <= within.in_flight <= 14
    assert "Admit at most" in verdict.advice


def test_percentiles_that_a_summary_lacks_are_decided_by_their_neighbours_or_not_at_all(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "r.json", worlds.vllm(served(4.0), details=False))
    held = reported(path, slo="e2e_p90:60000").runs[0]
    assert held.holds == "yes"  # P95 is within the limit, so P90 is
    lost = reported(path, slo="e2e_p99.9:100").runs[0]
    assert lost.holds == "no"  # P99 is beyond it already
    unknown = reported(path, slo="e2e_p99.9:60000").runs[0]
    assert unknown.holds == "not known"
    assert "not P99.9" in unknown.limits[0].reasons["value_ms"]


def test_any_percentile_can_be_the_limit(tmp_path: Path) -> None:
    world = served(8.0, 300.0)
    path = write(tmp_path, "r.json", worlds.vllm(world))
    [p99] = reported(path, slo="ttft_p99:700").runs[0].limits[:1]
    assert (p99.percentile, p99.value_ms) == (99.0, pytest.approx(world.ms("ttft", 99), rel=1e-3))
    assert p99.met is (world.ms("ttft", 99) <= 700)
    both = reported(path, slo="ttft_p50:100 ttft_p99:700").runs[0]
    assert [row.percentile for row in both.limits] == [50.0, 99.0]
    assert both.held is False


GATES: dict[str, Callable[[str], None]] = {
    "text": lambda said: None,
    "json": lambda said: json.loads(said),
}


def test_a_failed_gate_prints_the_numbers_that_failed(tmp_path: Path) -> None:
    path = write(tmp_path, "r.json", worlds.vllm(served(9.5)))
    failed = run("check", path, "--slo", "ttft_p99:500")
    assert failed.exit_code == 1, failed.output
    assert "TTFT P99" in failed.stdout
    assert "limit 500 ms" in failed.stdout
    assert "of 1,140 requests missed it" in failed.stdout
    assert run("check", path, "--slo", "ttft_p99:60000").exit_code == 0


@pytest.mark.parametrize("form", ["junit", "github", "json"])
def test_ci_forms_carry_every_gate_and_the_numbers(form: str, tmp_path: Path) -> None:
    for rate in (4.0, 16.0):
        write(tmp_path, f"{rate:g}.json", worlds.vllm(served(rate)))
    done = run("check", tmp_path, "--slo", SLO, "--output", form)
    assert done.exit_code == 1
    if form == "junit":
        from xml.etree import ElementTree

        top = ElementTree.fromstring(done.stdout)
        assert (top.get("tests"), top.get("failures")) == ("2", "1")
        [failure] = top.iter("failure")
        assert "TTFT P95" in str(failure.text)
    elif form == "github":
        lines = done.stdout.splitlines()
        assert sum(line.startswith("::error title=") for line in lines) == 1
        assert sum(line.startswith("::notice title=") for line in lines) == 1
        assert all(line.startswith("::") for line in lines)
        assert "%25" in done.stdout
    else:
        assert [gate["passed"] for gate in json.loads(done.stdout)["gates"]] == [True, False]


def test_a_rate_can_be_the_gate(tmp_path: Path) -> None:
    for rate in (4.0, 8.0, 16.0):
        write(tmp_path, f"{rate:g}.json", worlds.vllm(served(rate)))
    assert run("check", tmp_path, "--slo", "e2e:3000", "--min-rate", "3.5").exit_code == 0
    failed = run("check", tmp_path, "--slo", "e2e:3000", "--min-rate", "14")
    assert failed.exit_code == 1
    assert "required: the SLO held up to 14 requests/s" in " ".join(failed.stdout.split())
    assert run("check", tmp_path, "--min-rate", "0").exit_code == 2


def test_the_report_of_a_folder_says_all_of_it(tmp_path: Path) -> None:
    for rate in (4.0, 16.0):
        write(tmp_path, f"{rate:g}.json", worlds.vllm(served(rate)))
    said = run("report", tmp_path, "--slo", SLO)
    assert said.exit_code == 0, said.output
    assert "BREAKS UNDER LOAD" in said.stdout
    assert "CAUSE under_capacity in queue" in said.stdout
    assert "queue grows" in said.stdout
    document = json.loads(run("report", tmp_path, "--slo", SLO, "--output", "json").stdout)
    assert document["load_test"]["verdicts"][0]["cause"] == "under_capacity"
    assert document["report"] is None
    assert "| RUNS |" in run("report", tmp_path, "--slo", SLO, "--output", "markdown").stdout
    assert run("report", tmp_path, "--output", "html").exit_code == 2
    assert run("report", tmp_path, "--route", "/x").exit_code == 2
    assert run("report", tmp_path, "--model", "n").exit_code == 2
    assert run("report", tmp_path, "--db", tmp_path / "x.db").exit_code == 2


def test_telemetry_is_reported_as_from_a_database_also_beside_results(tmp_path: Path) -> None:
    lines = ["time,e2e_ms,ttft_ms,output_tokens"]
    lines += [f"{1_790_000_000 + at},{800 + at % 7},90,20" for at in range(80)]
    table = write(tmp_path / "t", "requests.csv", "\n".join(lines).encode())
    alone = run("report", table, "--slo", SLO)
    assert alone.exit_code == 0, alone.output
    assert "80 requests" in alone.stdout
    assert "LOAD TEST" not in alone.stdout
    both = run("report", table, write(tmp_path, "r.json", worlds.vllm(served(4.0))), "--slo", SLO)
    assert "LOAD TEST" in both.stdout
    assert "80 requests" in both.stdout


def test_broken_results_are_refused_by_name(tmp_path: Path) -> None:
    bad = write(
        tmp_path, "k6.csv", b"metric_name,timestamp,metric_value\nhttp_req_duration,soon,3\n"
    )
    refused = run("report", bad)
    assert refused.exit_code == 2
    assert "k6.csv" in refused.output
    empty = write(tmp_path / "e", "locust_stats.csv", worlds.locust_stats(served(4.0))[:200])
    assert run("report", empty).exit_code == 2
    with pytest.raises(AnalysisError, match="no file holds a run"):
        load_test_report(find_load_tests([write(tmp_path / "n", "x.json", b"{}")]), parse_slo(SLO))


def test_a_run_that_missed_is_named_where_no_load_did(tmp_path: Path) -> None:
    quick, slow = served(2.0), served(2.0, seed=3)
    slow.ttft, slow.e2e = slow.ttft + 4.0, slow.e2e + 4.0
    for name, world in (("a", quick), ("b", served(2.0, seed=2)), ("slow", slow)):
        write(tmp_path, f"{name}.json", worlds.vllm(world))
    made = reported(tmp_path)
    [verdict] = made.verdicts
    assert verdict.status == "mixed"
    assert "(slow)" in verdict.sentence
    assert "every load" not in verdict.sentence
    assert "MISSED BY SOME RUNS" in run("report", tmp_path, "--slo", SLO).output

    placeless = [
        msgspec.structs.replace(row, rate_rps=None) if "slow" in row.name else row
        for row in made.runs
    ]
    [alone] = capacities(placeless)
    verdict = load_verdict(alone, placeless, parse_slo(SLO))
    assert verdict.status == "mixed"
    assert "Its load is not recorded" in verdict.sentence
