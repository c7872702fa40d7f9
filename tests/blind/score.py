"""Is an answer right about an incident? The place, the regularity or mechanism, and the advice, judged by the words of a truth that was written before the first run.

A folder holds the input (`traces.json.gz`, or `pages.tar.xz` of Prometheus pages), `truth.md` for people and `truth.toml`:

    slo = "e2el:3000"                          # "" asks without a limit
    place = [["vector|qdrant"], ["search"]]    # every list needs one match in what the answer says of the place
    partly = ["retrieval"]                     # else the place is partly right
    regularity = ["filter"]                    # what parts late from others, or what changed
    mechanism = ["index"]                      # names that are right
    wrong = ["cold"]                           # names that are wrong
    helps = ["index"]
    harms = ["time-?out", "replica"]

Expressions are matched without regard to case. Only what is advised counts as advice: neither what is advised against nor what to look at.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

# From this confidence on a name counts as claimed (OPEN.md: untested names stay at 0.5).
CLAIMED: Final = 0.5
_MOST_PLACES: Final = 3
KEYS: Final = frozenset(
    ["id", "kind", "slo", "place", "partly", "regularity", "mechanism", "wrong", "helps", "harms"]
)

Place = Literal["right", "partly", "wrong"]
Cause = Literal["right", "unnamed", "wrong"]
Help = Literal["helps", "harmless", "harmful"]


class Truth(msgspec.Struct, kw_only=True):
    """What is right of one incident, as regular expressions."""

    slo: str
    place: list[list[str]]
    partly: list[str] = []
    regularity: list[str] = []
    mechanism: list[str] = []
    wrong: list[str] = []
    helps: list[str] = []
    harms: list[str] = []


class Said(msgspec.Struct, kw_only=True):
    """What an answer says: where, what parts late from others or changed, the name with its confidence, and what to do."""

    where: str
    regularity: str
    name: str
    confidence: float
    advice: str


class Score(msgspec.Struct, kw_only=True):
    """The judgement of one incident, with what was said for a person to judge again."""

    incident: str
    place: Place
    cause: Cause
    advice: Help
    confidence: float
    said: Said


def read_truth(folder: Path) -> Truth:
    """Read `truth.toml` of a folder.

    Raises:
        ValueError: a key is unknown, or an expression cannot be read.
    """
    told = tomllib.loads((folder / "truth.toml").read_text())
    if unknown := told.keys() - KEYS:
        raise ValueError(
            f"{folder.name}/truth.toml has no key {sorted(unknown)}; known: {sorted(KEYS)}"
        )
    truth = msgspec.convert({k: v for k, v in told.items() if k not in ("id", "kind")}, Truth)
    words = (truth.partly, truth.regularity, truth.mechanism, truth.wrong, truth.helps, truth.harms)
    for one in chain(*truth.place, *words):
        re.compile(one)
    return truth


def said(report: dict[str, Any]) -> Said:
    """What a report's JSON says, the open diagnosis first; of a report without one, what its verdict says."""
    verdict, found = report["verdict"], report.get("explanation") or {}
    advice = found.get("advice") or {}
    places = found.get("places") or []
    where = _joined(
        found.get("sentence"),
        *(_place(one) for one in places[:_MOST_PLACES]),
        *((verdict["stage"], verdict["why"] or verdict["sentence"]) if not places else ()),
    )
    regularity = _joined(
        *(_joined(one["words"], *one["alike"]) for one in found.get("regularities") or []),
        *(_change(one) for one in found.get("changed") or []),
        found.get("state_words"),
        *(_change(one) for one in verdict["changed"]),
    )
    name, confidence = _named(report)
    fixes = [one["fix"] for one in report["findings"] if one["rule"] == verdict["cause"]]
    return Said(
        where=where,
        regularity=regularity,
        name=name,
        confidence=confidence,
        advice=_joined(
            *advice.get("do", []),
            advice.get("undo"),
            verdict["mitigation"],
            *(fix["title"] for fix in fixes if fix and verdict["mitigation"]),
        ),
    )


def _named(report: dict[str, Any]) -> tuple[str, float]:
    """The name that the answer claims most, by the open diagnosis or by the verdict's cause."""
    verdict, found = report["verdict"], report.get("explanation") or {}
    claims = []
    if mechanism := found.get("mechanism"):
        claims.append((_joined(mechanism["id"], mechanism["words"]), mechanism["confidence"]))
    for one in report["findings"]:
        if one["rule"] == verdict["cause"]:
            name = _joined(one["rule"].replace("_", " "), one["headline"])
            claims.append((name, one["confidence"]))
    return max(claims, key=lambda claim: claim[1], default=("", 0.0))


def _place(place: dict[str, Any]) -> str:
    names = ("words", "stage", "service", "operation", "where", "caller", "callee")
    return _joined(*(place.get(name) for name in names), *place["instances"])


def _change(change: dict[str, Any]) -> str:
    return f"{change['what']}: {change['before']} -> {change['after']}"


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)


def score(incident: str, truth: Truth, answer: Said) -> Score:
    """Judge what was said; a name below `CLAIMED` is unnamed, and a right regularity is right whatever hedged name stands beside it."""
    claimed = answer.confidence >= CLAIMED
    right = _any(truth.mechanism, answer.name) or _any(truth.regularity, answer.regularity)
    wrong = claimed and bool(answer.name) and not _any(truth.mechanism, answer.name)
    if wrong and right and not _any(truth.wrong, answer.name):
        wrong = False
    return Score(
        incident=incident,
        place=_judged_place(truth, answer.where),
        cause="wrong" if wrong else "right" if right else "unnamed",
        advice="harmful"
        if _any(truth.harms, answer.advice)
        else "helps"
        if _any(truth.helps, answer.advice)
        else "harmless",
        confidence=answer.confidence,
        said=answer,
    )


def _judged_place(truth: Truth, where: str) -> Place:
    if all(_any(alternatives, where) for alternatives in truth.place):
        return "right"
    return "partly" if _any(truth.partly, where) else "wrong"


def _any(expressions: Iterable[str], text: str) -> bool:
    return any(re.search(one, text, re.IGNORECASE) for one in expressions)


def table(scores: list[Score]) -> str:
    """One line an incident, and the counts."""
    rows = [
        f"{one.incident:32} place {one.place:6} cause {one.cause:8} advice {one.advice:8} {one.confidence:4.0%} {one.said.name[:50]}"
        for one in scores
    ]
    return "\n".join(
        [*rows, ", ".join(f"{name} {value}" for name, value in counts(scores).items())]
    )


def counts(scores: list[Score]) -> dict[str, int]:
    """How many of each judgement; `wrong above 50 %` counts names that were claimed."""
    made = {"incidents": len(scores)}
    for part in ("place", "cause", "advice"):
        for word in ("right", "partly", "unnamed", "wrong", "helps", "harmless", "harmful"):
            number = sum(getattr(one, part) == word for one in scores)
            if number:
                made[f"{part} {word}"] = number
    return made
