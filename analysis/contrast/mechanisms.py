"""Which known mechanism fits the facts of a place? One whose needs hold and that no test refutes; what was tried, what refuted it and what could not be tested."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from overrun.analysis.contrast.facts import names
from overrun.analysis.words.conditions import Condition, ConditionError, Facts, condition
from overrun.analysis.words.explanation import Mechanism, RefutedMechanism
from overrun.analysis.words.finding import say_ratio

# Where something that would refute it could not be tried, a mechanism is rather not known. Else it is as sure as its terms explain, from the least (nothing) to the
# surest (all), which stays below what a finding of its own proves; own defaults.
UNTESTED: Final = 0.4
LEAST: Final = 0.3
SUREST: Final = 0.85
_FIELDS: Final = {
    "words",
    "needs",
    "refuted",
    "weight",
    "advice",
    "gate",
    "untested",
    "rules",
    "claims",
    "over",
}


@dataclass(frozen=True)
class Entry:
    """One mechanism of the table, its conditions checked."""

    id: str
    words: str
    needs: list[Condition]
    refuted: dict[str, Condition]
    weight: float
    advice: str
    gate: Condition | None
    untested: str | None
    rules: list[str]
    claims: list[str]
    over: list[str]

    @property
    def claimed(self) -> set[str]:
        """Rules of diagnosis that name the same."""
        return {*self.rules, *self.claims}


@dataclass(frozen=True)
class Named:
    """The mechanism that fits best with its entry, and those whose needs hold but which a test excludes."""

    first: tuple[Mechanism, Entry] | None
    refuted: list[RefutedMechanism] = field(default_factory=list)
    refuted_rules: dict[str, str] = field(default_factory=dict)


@functools.cache
def entries() -> list[Entry]:
    """The table of mechanisms.

    Raises:
        ConditionError: an entry without a test that refutes it, an unknown field, or a condition that is none.
    """
    text = resources.files("overrun.analysis.contrast").joinpath("mechanisms.toml")
    return [entry_of(name, one) for name, one in tomllib.loads(text.read_text("utf-8")).items()]


def entry_of(name: str, table: Mapping[str, Any]) -> Entry:
    """One entry, checked; raises as `entries`."""
    unknown = table.keys() - _FIELDS
    if unknown:
        raise ConditionError(
            f"{name} has {', '.join(sorted(unknown))}; fields are {', '.join(sorted(_FIELDS))}"
        )
    if not table.get("refuted") or not table.get("needs"):
        raise ConditionError(f"{name} needs conditions and at least one test that refutes it")
    gate = table.get("gate")
    return Entry(
        name,
        table["words"],
        [condition(text, names()) for text in table["needs"]],
        {why: condition(text, names()) for why, text in table["refuted"].items()},
        float(table.get("weight", 1.0)),
        table["advice"],
        None if gate is None else condition(gate, names()),
        table.get("untested"),
        list(table.get("rules", [])),
        list(table.get("claims", [])),
        list(table.get("over", [])),
    )


def name(facts: Facts) -> Named:
    """Return the mechanism that fits the facts of a place best, if any."""
    fitting: list[tuple[float, Mechanism, Entry]] = []
    excluded: list[RefutedMechanism] = []
    rules: dict[str, str] = {}
    lacking: dict[str, list[str]] = {}
    for one in entries():
        needed = [need.holds(facts) for need in one.needs]
        if not all(needed):
            for rule in one.claims if False in needed else ():
                lacking.setdefault(rule, []).append(_lacks(one, needed.index(False), facts))
            continue
        tried = {why: test.holds(facts) for why, test in one.refuted.items()}
        against = next((why for why, held in tried.items() if held), None)
        if against is not None:
            figure = _figure(one.refuted[against], facts)
            excluded.append(
                RefutedMechanism(id=one.id, words=one.words, figure=f"{against}{figure}")
            )
            rules |= dict.fromkeys(one.rules, against)
            continue
        fitting.append((one.weight, _mechanism(one, tried, facts), one))
    for rule, whys in lacking.items():
        # What several mechanisms would each do is excluded where none of them can be.
        if len(whys) == sum(rule in one.claims for one in entries()):
            rules.setdefault(rule, whys[0])
    fitting.sort(key=lambda one: -one[0])
    first = (fitting[0][1], fitting[0][2]) if fitting else None
    fits = {rule for _, _, one in fitting for rule in one.rules}
    return Named(first, excluded, {rule: why for rule, why in rules.items() if rule not in fits})


def _mechanism(one: Entry, tried: Mapping[str, bool | None], facts: Facts) -> Mechanism:
    """A mechanism with its confidence: what the terms explain on the half that did not choose them, as far as tests could be tried."""
    untested = [why for why, held in tried.items() if held is None]
    if one.untested is not None:
        untested.append(one.untested)
    explained = facts.get("explained")
    sure = LEAST + (SUREST - LEAST) * min(1.0, explained if isinstance(explained, float) else 0.0)
    return Mechanism(
        id=one.id,
        words=one.words,
        confidence=round(UNTESTED if untested else min(SUREST, sure), 2),
        refuted=[why for why, held in tried.items() if held is False],
        untested=untested,
    )


def _lacks(one: Entry, at: int, facts: Facts) -> str:
    """Which sign a mechanism lacks."""
    return (
        f"no sign that {one.words} ({one.needs[at].text}{_figure(one.needs[at], facts)} is not so)"
    )


def _figure(asked: Condition, facts: Facts) -> str:
    """The figures that a test was decided by, in brackets; empty where it asks for none."""
    said = []
    for fact in sorted(asked.names):
        value = facts.get(fact)
        if isinstance(value, float) and not isinstance(value, bool):
            shown = say_ratio(value) if 0.0 <= value <= 1.0 else f"{value:.3g}"
            said.append(f"{fact.replace('_', ' ')} {shown}")
    return f" ({', '.join(said[:3])})" if said else ""
