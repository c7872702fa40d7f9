"""Every rule is a file whose first lines are its page, and has its test."""

from pathlib import Path

import pytest

from overrun.analysis.diagnosis.rules import rules

HEADINGS = ("Detects", "Why it hurts", "Evidence", "Fix", "False alarms", "Source")


@pytest.mark.parametrize("name", sorted(rules()))
def test_rule_has_a_page_and_a_test(name: str) -> None:
    page = rules()[name].__doc__ or ""
    places = [page.find(f"\n{heading}\n") for heading in HEADINGS]
    assert page.startswith(f"{name}: ")
    assert -1 not in places
    assert places == sorted(places)
    assert (Path(__file__).parent / f"test_{name}.py").exists()


def test_all_diagnoses_of_the_contract_are_there() -> None:
    wanted = """long_outputs prompt_bloat prefix_cache_lost kv_pressure decode_stall batch_past_knee under_capacity burst_arrivals
    huge_context straggler_replica hot_replica mixed_lengths noisy_tenant retry_storm provider_queueing token_rate_sag provider_spikes slow_dependency
    sequential_calls agent_loop oversized_side_model cold_start connection_churn cross_region not_streaming
    missing_cancellation speculation_not_paying client_throttled gateway_queue
    model_changed gpu_throttled one_kind_of_call engine_pauses too_few_seats stalled_connection head_of_line"""
    assert set(wanted.split()) <= set(rules())


def test_rules_are_found_by_listing_the_folder() -> None:
    assert {"under_capacity", "long_outputs", "slow_dependency"} <= set(rules())
