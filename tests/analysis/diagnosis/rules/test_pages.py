"""Every rule is a file with its page and its test."""

from pathlib import Path

import pytest

from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.front.rule_pages import pages
from overrun.sample_traces.simulator.faults import FURTHER, SCENARIOS

HEADINGS = ("Detects", "Why it hurts", "Evidence", "Fix", "False alarms", "Source")


@pytest.mark.parametrize("name", sorted(rules()))
def test_rule_has_a_page_and_a_test(name: str) -> None:
    page = rules()[name].__doc__ or ""
    places = [page.find(f"\n{heading}\n") for heading in HEADINGS]
    assert page.startswith(f"{name}: ")
    assert -1 not in places
    assert places == sorted(places)
    assert (Path(__file__).parent / f"test_{name}.py").exists()


def test_pages_in_the_documentation_are_those_of_the_docstrings() -> None:
    folder = Path(__file__).parents[4] / "docs" / "rules"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert written == pages(), "stale: run `make pages`"


def test_all_diagnoses_of_the_contract_are_there() -> None:
    wanted = """long_outputs reasoning_inflation prompt_bloat prefix_cache_lost kv_pressure decode_stall batch_past_knee under_capacity burst_arrivals
    huge_context straggler_replica hot_replica mixed_lengths noisy_tenant retry_storm provider_queueing token_rate_sag provider_spikes slow_dependency
    sequential_calls agent_loop oversized_side_model cold_start connection_churn cross_region serial_orchestrator not_streaming
    missing_cancellation speculation_not_paying unattributed_time client_throttled gateway_queue
    model_changed gpu_throttled one_kind_of_call engine_pauses too_few_seats stalled_connection slower_engine head_of_line"""
    assert set(wanted.split()) <= set(rules())


def test_rules_are_found_by_listing_the_folder() -> None:
    assert {"under_capacity", "long_outputs", "slow_dependency"} <= set(rules())


def audited() -> list[list[str]]:
    """The cells of the audit table in docs/DIAGNOSIS.md."""
    page = (Path(__file__).parents[4] / "docs" / "DIAGNOSIS.md").read_text(encoding="utf-8")
    table = page[page.index("| cause | rule |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_audit_maps_each_cause_to_its_rule_its_test_and_a_recording() -> None:
    rows = audited()
    named = [row[1].split(" ")[0] for row in rows]
    assert set(rules()) <= set(named)
    tests = Path(__file__).parents[2]
    for row in rows:
        for test in row[3].split(", "):
            assert any(tests.rglob(f"{test}.py")), row
        assert row[4], row


def test_the_scenarios_of_the_audit_can_be_made() -> None:
    for row in audited():
        for name in row[4].split(";")[0].split(", "):
            assert name in SCENARIOS | FURTHER or name in ("-", "unit test"), row
