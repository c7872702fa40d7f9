"""Every rule is a file with its page and its test."""

from pathlib import Path

import pytest

from analysis.rules import rules

HEADINGS = ("Detects", "Why it hurts", "Evidence", "Fix", "False alarms", "Source")


@pytest.mark.parametrize("name", sorted(rules()))
def test_rule_has_a_page_and_a_test(name: str) -> None:
    page = rules()[name].__doc__ or ""
    places = [page.find(f"\n{heading}\n") for heading in HEADINGS]
    assert page.startswith(f"{name}: ")
    assert -1 not in places
    assert places == sorted(places)
    assert (Path(__file__).parent / f"test_{name}.py").exists()


def test_rules_are_found_by_listing_the_folder() -> None:
    assert {"under_capacity", "long_outputs", "slow_dependency"} <= set(rules())
