"""The table of mechanisms: each entry is read, can fit, and can be refuted by each of its tests; nothing is named by default."""

import numpy as np
import pytest

from overrun.analysis.contrast import signs
from overrun.analysis.contrast.facts import names
from overrun.analysis.contrast.mechanisms import SUREST, UNTESTED, entries, entry_of, name
from overrun.analysis.contrast.traits import Occurrences, kinds
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.words.conditions import ConditionError


def test_each_entry_names_facts_that_are_measured_and_rules_that_exist() -> None:
    known = set(rules())
    for one in entries():
        asked = {fact for test in (*one.needs, *one.refuted.values()) for fact in test.names}
        assert asked <= names()
        assert set(one.rules) | set(one.claims) <= known, one.id
        assert one.refuted
        assert len({one.id for one in entries()}) == len(entries())


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"words": "w", "advice": "a", "needs": ["new"]}, "at least one test"),
        (
            {"words": "w", "advice": "a", "needs": ["new"], "refuted": {"x": "old"}},
            "which is no fact",
        ),
        (
            {"words": "w", "advice": "a", "needs": ["new"], "refuted": {"x": "new"}, "then": 1},
            "has then",
        ),
    ],
)
def test_a_wrong_entry_is_refused(table: dict[str, object], why: str) -> None:
    with pytest.raises(ConditionError, match=why):
        entry_of("wrong", table)


def _facts(**more: object) -> dict[str, object]:
    """A place of which nothing is known but that no trait is a main one."""
    none = dict.fromkeys(names()) | {
        name: 0.0 if name.startswith("gain_") else False
        for name in names()
        if name.partition("_")[0] in ("kind", "alike", "up", "apart", "gain")
    }
    named = dict.fromkeys(kinds().named, False)
    return (
        none | named | {"mode": "some", "where": "itself", "metric": "e2e", "what": "call"} | more
    )


def test_without_facts_nothing_is_named() -> None:
    assert name(_facts()).first is None


def test_the_first_call_of_an_instance_is_a_cold_instance_unless_it_follows_load() -> None:
    cold = {
        "first_of_instance": True,
        "kind_first": True,
        "late_of_bad": 1.0,
        "explained": 0.9,
    }
    found = name(_facts(**cold))
    assert found.first is not None
    assert found.first[0].id == "cold_instance"
    assert found.first[0].confidence == pytest.approx(0.3 + 0.55 * 0.9, abs=0.01)
    assert found.first[0].confidence <= SUREST
    loaded = name(_facts(**cold | {"gain_load": 0.4}))
    assert loaded.first is None
    assert [one.id for one in loaded.refuted] == ["cold_instance"]


def test_what_could_not_be_tested_stays_likely_at_most() -> None:
    row = _facts(row=9.0, row_saves=0.8, mode="always", explained=0.9)
    found = name(row)
    assert found.first is not None
    assert found.first[0].id == "serial_calls"
    assert found.first[0].confidence == UNTESTED
    assert found.first[0].untested


def test_a_rule_whose_only_claim_is_measured_false_is_excluded() -> None:
    found = name(_facts(ceiling=0))
    assert "client_throttled" in found.refuted_rules
    assert "client_throttled" not in name(_facts(ceiling=None)).refuted_rules


@pytest.mark.parametrize(("process", "right"), [([0, 0, 0], 3), ([0, 0, 1], 2)])
def test_places_are_counted_in_the_process_that_waits(process: list[int], right: int) -> None:
    held = signs.Held(np.zeros(3), np.full(3, 60_000.0), np.array(process))
    none, at = np.zeros(12, dtype=np.int64), np.arange(12) * 1_000.0
    waits = Occurrences(none, none, none, none, at, np.full(12, 5_000.0))
    assert signs.ceiling(held, waits, none, np.ones(12, dtype=np.bool_)) == right
