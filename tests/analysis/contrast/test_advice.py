"""Advice passes the arithmetic of the window, and one that is not sure is something to look into."""

import numpy as np
import pytest

from overrun.analysis.contrast.advice import advise
from overrun.analysis.contrast.attributes import Attribute
from overrun.analysis.contrast.facts import At, names
from overrun.analysis.contrast.fit import fit
from overrun.analysis.contrast.mechanisms import Named, entries
from overrun.analysis.contrast.traits import Occurrences, Traits
from overrun.analysis.words.explanation import Mechanism


def _at(late: np.ndarray, there: np.ndarray) -> At:
    n = len(late)
    rng = np.random.default_rng(1)
    traits = Traits(n)
    traits.add("filter", Attribute(there.astype(np.int64), ["none", "by tenant"], None))
    y = rng.normal(100.0, 5.0, n) + 900.0 * late
    none = np.zeros(n, dtype=np.int64)
    found = Occurrences(np.arange(n), none, none, none, np.arange(n) * 1.0, y)
    fitted = fit(y, traits, np.arange(n), late)
    return At(
        none[:7], found, y, late, late, fitted, traits, False, 900.0, 1.0, (1.0, 0.1), (1.0, 1.0)
    )


def _facts(**more: object) -> dict[str, object]:
    known = {name: 0.0 for name in names() if name.startswith("gain_")}
    return dict.fromkeys(names()) | known | {"mode": "some", "what": "store"} | more


@pytest.mark.parametrize("untested", [[], ["whether it is so"]])
def test_what_is_not_sure_is_looked_into(untested: list[str]) -> None:
    late = np.arange(200) % 20 == 0
    for entry in entries():
        likely = Mechanism(id=entry.id, words=entry.words, confidence=0.4, untested=untested)
        found = advise(_facts(), Named((likely, entry)), [], _at(late, late))
        assert found.do == []
        assert any(entry.advice in one for one in found.look) == (entry.gate is None)
        assert found.undo is None
        assert "undo" in found.reasons


def test_a_time_out_that_cuts_a_class_is_advised_against() -> None:
    late = np.arange(200) % 20 == 0
    found = advise(_facts(late_share=0.05), Named(None), [], _at(late, late))
    assert found.avoid[0] == "time-out: it would cut all with filter is not none"


def test_capacity_is_advised_against_only_where_time_does_not_follow_load() -> None:
    late = np.arange(200) % 2 == 0
    still = advise(_facts(), Named(None), [], _at(late, late)).avoid
    loaded = advise(
        _facts(gain_load=0.6, arrivals_grew=1.4), Named(None), [], _at(late, late)
    ).avoid
    assert any(one.startswith("capacity") for one in still)
    assert any(one.startswith("shedding") for one in still)
    assert not any(one.startswith(("capacity", "shedding")) for one in loaded)
