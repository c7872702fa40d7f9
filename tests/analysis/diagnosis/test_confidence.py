"""How sure is a cause whose baseline is a stretch of the judged window? Only as sure as its fact is clear of what any other stretch shows by chance."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

from overrun.analysis.diagnosis.confidence import sight, unlike_before
from overrun.analysis.evidence.fact import Draws, Facts, Measured, Row, Table
from overrun.analysis.incident.period import Period

START = datetime(2026, 1, 1, tzinfo=UTC)


def case(growth: float, *, inside: bool = True) -> SimpleNamespace:
    """Ten minutes of which the last one is slow; requests come `growth` times as often then, with a standard error of 5 %."""
    later = growth * np.exp(np.random.default_rng(1).normal(0.0, 0.05, 400))
    sides = Measured(Draws(growth, later, 100), Draws(1.0, np.ones(400), 900))
    row = Row("requests", "per_s", lambda _: sides, "requests", lambda _: {"queue": 900.0})
    told = SimpleNamespace(
        table=Table({"arrivals": row}),
        baseline=Period(START, START + timedelta(seconds=540)),
        period=Period(START + timedelta(seconds=540), START + timedelta(seconds=600)),
        onset_inside=inside,
        health=1.0,
        tail=SimpleNamespace(excess_total_ms=1_000.0),
        slow_calls=SimpleNamespace(of=lambda _: np.ones(10)),
        excess_ms=lambda *_: 1_000.0,
    )
    told.facts = Facts(told, told.table)
    return told


@pytest.mark.parametrize(
    ("growth", "inside", "seen"),
    # One of ten stretches shows 1.12 times as many by chance, not 1.2; an earlier day was not chosen for what it shows.
    [(1.12, True, 0.0), (1.2, True, 1.0), (1.12, False, 1.0)],
)
def test_a_stretch_of_the_window_is_a_baseline_where_chance_does_not_explain_it(
    growth: float, inside: bool, seen: float
) -> None:
    one = case(growth, inside=inside)
    told = sight(one, "under_capacity", 0.9)
    assert told.baseline == seen
    assert bool(unlike_before(one, "under_capacity")) != bool(seen)


def test_a_cause_whose_facts_are_not_measured_is_not_judged_by_chance() -> None:
    assert sight(case(1.0), "sequential_calls", 0.9).baseline == 1.0
