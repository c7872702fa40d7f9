"""The reliability table: groups, Brier score, and which cases count."""

import msgspec
import pytest

from tests.benchmarks.calibration import Said, brier, figures, groups, said, table
from tests.benchmarks.fault_case import Result


def a_case(cause: str | None, confidence: float, right: str = "kv_pressure") -> Result:
    return Result(
        scenario="s",
        severity="hard",
        seed=1,
        client_only=False,
        confounders=[],
        breach=0.1,
        causes=[right],
        accepted=[],
        stages=["queue"],
        chain=[],
        status="over_budget",
        stage="queue",
        cause=cause,
        ranked_stages=[],
        findings=[(cause, "warning", confidence)] if cause else [],
        sentence="",
        reasons={},
        onset_error_s=None,
        delay_s=None,
        baselines={},
        whatifs=[],
        seconds={},
    )


def test_the_first_cause_of_each_fault_counts_with_its_confidence() -> None:
    cases = [
        a_case("kv_pressure", 0.9),
        a_case("long_outputs", 0.6),
        a_case(None, 0.0),
        msgspec.structs.replace(a_case("kv_pressure", 0.8), severity=None),
    ]
    assert said(cases) == [Said(0.9, True), Said(0.6, False)]


def test_groups_and_score_are_those_of_the_definition() -> None:
    told = [Said(0.9, True), Said(0.95, True), Said(0.6, False), Said(0.5, True), Said(1.0, True)]
    assert brier(told) == pytest.approx((0.01 + 0.0025 + 0.36 + 0.25 + 0.0) / 5)
    found = groups(told)
    assert [(one.low, one.n, one.right) for one in found] == [(0.5, 2, 1), (0.9, 3, 3)]
    assert found[0].confidence == pytest.approx(0.55)
    assert "| 50% to 70% | 2 | 55% | 50% (1/2," in table(told)
    kept = figures(told, script="x", conditions="seed 1")
    assert [one.of for one in kept] == [None, 2, 3]
