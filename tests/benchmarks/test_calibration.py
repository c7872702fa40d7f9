"""The weights of confidence and the reliability table: what lowers it, groups, Brier score, and which cases count."""

import json
from pathlib import Path

import pytest

from overrun.analysis.diagnosis.confidence import Sight
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

ALL = Sight(share=1.0, baseline=1.0, tokens=1.0, rival=0.0, last=False)
REMAINS = ALL._replace(last=True)
BLIND = REMAINS._replace(baseline=0.0)


def test_only_causes_named_over_budget_count(tmp_path: Path) -> None:
    told = {"world": "a", "cause": "kv_pressure", "status": "over_budget", "right": True}
    rows = [
        told | {"seen": ALL._asdict()},
        told | {"cause": None, "seen": {}},
        told | {"status": "within_budget", "seen": ALL._asdict()},
    ]
    (tmp_path / "said").write_text("\n".join(map(json.dumps, rows)))
    assert read([tmp_path / "said"]) == [Case("a", ALL, True)]


def test_what_was_not_seen_lowers_confidence_and_never_raises_it() -> None:
    some = [Case("a", ALL, True)] * 20 + [Case("a", BLIND, at < 5) for at in range(10)]
    weights = fitted(some)
    assert on(weights, ALL) > 0.9
    assert on(weights, ALL) >= on(weights, REMAINS) > on(weights, BLIND)
    assert on(weights, ALL._replace(fits=2)) == on(weights, ALL) / 2.0 < 0.5
    turned = fitted([one._replace(right=not one.right) for one in some])
    assert min(turned[1:]) == 0.0


def test_a_world_is_judged_by_the_others_alone() -> None:
    cases = [*[Case("a", ALL, True)] * 8, *[Case("b", ALL, False)] * 8]
    told = held_out(cases)
    assert all(one.confidence < 0.2 for one in told[:8])
    assert all(one.confidence > 0.8 for one in told[8:])


def test_groups_and_score_are_those_of_the_definition() -> None:
    told = [Said(0.9, True), Said(0.95, True), Said(0.6, False), Said(0.5, True), Said(1.0, True)]
    assert brier(told) == pytest.approx((0.01 + 0.0025 + 0.36 + 0.25 + 0.0) / 5)
    found = groups(told)
    assert [(one.low, one.n, one.right) for one in found] == [(0.5, 2, 1), (0.9, 3, 3)]
    assert found[0].confidence == pytest.approx(0.55)
    assert "| 50% to 70% | 2 | 55% | 50% (1/2," in table(told)
    kept = figures(told, script="x", conditions="seed 1")
    assert [one.of for one in kept] == [None, 2, 3]
