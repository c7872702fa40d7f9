"""What is to be done first, and what not? Each step passes a gate of arithmetic on the window: whom it cuts, what changed, whether time follows load."""

from __future__ import annotations

from typing import Final

from overrun.analysis.contrast.changes import Moved
from overrun.analysis.contrast.facts import At
from overrun.analysis.contrast.mechanisms import Named
from overrun.analysis.contrast.wording import trait_words
from overrun.analysis.words.conditions import Facts
from overrun.analysis.words.explanation import Advice
from overrun.analysis.words.finding import printable, say_ratio

# Time does not follow load where traits of load explain less than this part of the variance; own default.
NOT_LOAD: Final = 0.1
# A time-out may cut this part of the occurrences at most; own default.
MOST_CUT: Final = 0.1
# What a mechanism advises is done where it is at least so sure, and looked into below that.
SURE: Final = 0.5
_MOST_UNDONE: Final = 2
# Kinds of traits that say when, not which.
_WHEN: Final = ("time", "phase", "version")


def advise(facts: Facts, named: Named, moved: list[Moved], at: At) -> Advice:
    """Return the advice for the first place."""
    first = named.first
    undo = _undo(facts, moved)
    do: list[str] = []
    likely: list[str] = []
    if first is not None:
        mechanism, entry = first
        gate = True if entry.gate is None else entry.gate.holds(facts)
        if gate and mechanism.confidence >= SURE:
            do.append(entry.advice)
        elif gate:
            on = [f"It depends on this: {one}." for one in mechanism.untested[:1]]
            likely.append(" ".join([entry.advice, *on]))
    look = [*likely, *_look(facts, named, at, undo)]
    why = {} if undo else {"undo": "nothing that one could undo is recorded to change at an onset"}
    return Advice(do=do, undo=undo, look=look, avoid=_avoid(facts, at, undo), reasons=why)


def _undo(facts: Facts, moved: list[Moved]) -> str | None:
    """Undo first what changed with the onset; None where nothing that one could undo was recorded to change."""
    if facts.get("mode") != "stretch":
        return None
    settings = [one for one in moved if one.undo]
    settings.sort(key=lambda one: "version" not in one.key)
    if not settings:
        return None
    said = [_said(one) for one in settings[:_MOST_UNDONE]]
    return f"Undo what changed at the onset: {'; '.join(said)}"


def _said(one: Moved) -> str:
    if one.key == "operation":
        what = "is new" if one.before is None else "is gone"
        return f"{printable(one.operation)} in {printable(one.service)} {what}"
    return f"{printable(one.key)} {printable(one.before)} -> {printable(one.after)} ({printable(one.service)})"


def _look(facts: Facts, named: Named, at: At, undo: str | None) -> list[str]:
    """What to look at where no step is known to help."""
    out = []
    main = at.main
    if main and main[0].candidate.form in ("is", "given"):
        out.append(f"Compare a trace with {trait_words(main[0].text)} with one without.")
    elif named.first is None:
        out.append("Compare a trace of a slow request with one of another.")
    if facts.get("what") == "own" and (facts.get("share") or 0.0):
        out.append(
            "Add spans or a profile around this stretch: nothing recorded shows what is done there."
        )
    if facts.get("mode") == "stretch" and undo is None:
        out.append(
            "Look outside of the telemetry for what changed at the onset: settings, restarts, neighbours, its provider."
        )
    return out


def _avoid(facts: Facts, at: At, undo: str | None) -> list[str]:
    """What would do harm or nothing, with the figure that says so."""
    out = []
    ceiling, grew = facts.get("ceiling"), facts.get("arrivals_grew")
    late = facts.get("late_share")
    of_class = _class_of(at)
    if of_class is not None:
        out.append(f"time-out: it would cut all with {of_class}")
    elif isinstance(late, float) and late > MOST_CUT:
        out.append(f"time-out: it would cut {say_ratio(late)} of these calls")
    load = facts.get("gain_load")
    if isinstance(load, float) and load < NOT_LOAD and not ceiling:
        out.append("capacity: their time does not follow load")
    if not (isinstance(grew, float) and grew >= 1.15):
        out.append("shedding: no more requests arrive than before")
    if undo is None:
        why = (
            "nothing that one could undo changed at the onset"
            if facts.get("mode") == "stretch"
            else "it is so all along"
        )
        out.append(f"rollback: {why}")
    return out


def _class_of(at: At) -> str | None:
    """The class of occurrences that are late nearly without exception, and that hardly any other is in; None without one."""
    for one in at.main[:1]:
        late, others = one.slow[at.late], one.slow[~at.late]
        regular = one.candidate.form != "line" and one.kind not in _WHEN and late.mean() > 0.8
        if regular and len(others) and others.mean() < 0.05:
            return trait_words(one.text)
    return None
