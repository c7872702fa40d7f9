"""The table of numbers: every number of every rule, each with what moving it does."""

import pytest

from tests.benchmarks.moved_numbers import PAGE, constants, moved, page


def test_the_page_is_made_of_the_rules_and_their_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "stale: run `python -m tests.benchmarks.moved_numbers --page`"
    )


def test_every_number_of_a_rule_is_found_with_what_it_is() -> None:
    found = {(one.rule, one.name): one for one in constants()}
    least = found["under_capacity", "MIN_ARRIVALS"]
    assert (least.value, least.rules) == (1.15, ("under_capacity",))
    assert least.why.startswith("Requests, or all the work with them")


def test_a_number_that_rules_share_is_moved_in_all_of_them() -> None:
    found = {(one.rule, one.name): one for one in constants()}
    assert {"batch_past_knee", "provider_queueing"} < {*found["thresholds", "LONGER"].rules}


@pytest.mark.parametrize(("value", "up", "down"), [(3, 4, 2), (30, 40, 20), (0.3, 0.4, 0.2)])
def test_a_number_moves_by_a_third_and_a_whole_one_by_one_at_least(
    value: float, up: float, down: float
) -> None:
    assert moved(value, 1.0 / 3.0) == pytest.approx(up)
    assert moved(value, -1.0 / 3.0) == pytest.approx(down)
