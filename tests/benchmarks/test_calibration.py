"""The curve of confidence and the reliability table: groups, Brier score, and which cases count."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.calibration import (
    Case,
    Said,
    brier,
    figures,
    fitted,
    groups,
    held_out,
    on,
    read,
    table,
)


def test_only_named_causes_count(tmp_path: Path) -> None:
    rows = [
        {"world": "a", "cause": "kv_pressure", "share": 0.9, "right": True},
        {"world": "a", "cause": None, "share": None, "right": False},
    ]
    (tmp_path / "said").write_text("\n".join(map(json.dumps, rows)))
    assert read([tmp_path / "said"]) == [Case("a", 0.9, True)]


def test_the_curve_never_falls_and_pools_what_would() -> None:
    # Of ten causes each, 5, 9 and 7 are right: the last two groups are pooled, 16 of 20. One right and one wrong are assumed of each group.
    cases = [
        Case("a", share, at < right)
        for share, right in ((0.35, 5), (0.7, 9), (0.95, 7))
        for at in range(10)
    ]
    assert fitted(cases) == ((0.35, 0.5), (0.82, 0.77))
    assert on(fitted(cases), 0.2) == 0.5


def test_a_world_is_judged_by_the_others_alone() -> None:
    cases = [*[Case("a", 0.5, True)] * 8, *[Case("b", 0.5, False)] * 3]
    assert held_out(cases) == [*[Said(0.2, True)] * 8, *[Said(0.9, False)] * 3]


def test_groups_and_score_are_those_of_the_definition() -> None:
    told = [Said(0.9, True), Said(0.95, True), Said(0.6, False), Said(0.5, True), Said(1.0, True)]
    assert brier(told) == pytest.approx((0.01 + 0.0025 + 0.36 + 0.25 + 0.0) / 5)
    found = groups(told)
    assert [(one.low, one.n, one.right) for one in found] == [(0.5, 2, 1), (0.9, 3, 3)]
    assert found[0].confidence == pytest.approx(0.55)
    assert "| 50% to 70% | 2 | 55% | 50% (1/2," in table(told)
    kept = figures(told, script="x", conditions="seed 1")
    assert [one.of for one in kept] == [None, 2, 3]
