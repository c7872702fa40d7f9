"""What do metrics alone say of a window? Place, state, changes, a cause where one fits, and advice, as the typed answer of the open diagnosis.

The part of the way with the largest excess per request of the outermost observer is the place. A page where nothing grew is looked at for what is wrong without a
before: requests that wait beside idle peers, that no gauge sees, or that a station holds without writing a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.changes import MOST_SHOWN, Changes, changes_at
from overrun.analysis.stations.changes import Change as Moved
from overrun.analysis.stations.demand import UNKNOWN, demand_of
from overrun.analysis.stations.facts import facts_of
from overrun.analysis.stations.mechanisms import advice_of, mechanism_of
from overrun.analysis.stations.onset import Of, Onset, find_onset, parts_of_kind, work_of
from overrun.analysis.stations.parts import Part, parts_of
from overrun.analysis.stations.peers import full_and_free
from overrun.analysis.stations.sides import Sides, quotient
from overrun.analysis.stations.state import Judged, judge, stopped
from overrun.analysis.stations.station import Plant
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.explanation import Advice, Change, Explanation, Mode, Place, Where
from overrun.analysis.words.finding import begun, printable, say_ms, say_ratio

MOST_PLACES: Final = 3
# A place carries an eighth of the excess or more, else it is not shown; as for spans.
_LEAST_SHARE: Final = 0.12
# Without an onset, this part of all that is inside waits beside free peers, or is in no gauge; own defaults.
_WAITS_BESIDE: Final = 0.2
_NOT_SEEN: Final = 0.4
# A queue beside a larger batch is the place if it carries this part of the excess: it says that the batch is full.
_QUEUE_SAYS: Final = 0.2
_DRAWS: Final = 200
# A phase's stage, and which part of an operation it is.
_AS: Final[dict[str, tuple[str | None, Where]]] = {
    "front": ("gateway", "itself"),
    "behind": (None, "edge"),
    "queue": ("queue", "queue"),
    "transfer": ("kv_transfer", "transfer"),
    "prefill": ("prefill", "to_first_token"),
    "decode": ("decode", "after_first_token"),
    "rest": ("other", "unseen"),
    "work": (None, "itself"),
    "unseen": ("queue", "unseen"),
}
_KINDS: Final[dict[str, Of]] = {"ttft": "first", "itl": "tokens", "tpot": "tokens", "e2e": "all"}
_PHASES: Final = {
    "front": "the front end's own time",
    "behind": "what is behind the front end",
    "queue": "the queue",
    "transfer": "the transfer of the KV cache",
    "prefill": "reading prompts",
    "decode": "writing tokens",
    "rest": "time that belongs to no phase",
    "work": "the work",
    "unseen": "requests that no gauge sees",
}
_STATES: Final = {
    "held_back": "held back",
    "at_ceiling": "at a ceiling",
    "more_work": "more work for each request",
    "slower": "slower for the same work",
    "normal": "more at once than before",
    "more_arrivals": "more at once because more arrives",
    "idle": "idle",
    "stopped": "stopped",
    "unknown": "not known",
}


@dataclass(frozen=True)
class _Excess:
    """A part with its excess for each unit of finished work of the outermost observer, in seconds, and its share of the whole."""

    part: Part
    seconds: float
    share: float


def explain(plant: Plant, over: str | None = None) -> Explanation | None:
    """Return what the stations say; None where none says what it holds or finishes.

    `over` is a latency (ttft, itl, tpot, e2e) that is known to be over its limit: what belongs to it is explained, also where it always was so.
    """
    if not plant.recording.grid.bins or plant.outer is None:
        return None
    parts = parts_of(plant)
    of = None if over is None else _KINDS[over]
    onset = find_onset(plant, parts, of)
    if onset is None:
        return _without_onset(plant, parts, of)
    chosen = parts_of_kind(parts, onset.kinds)
    ranked = _ranked(plant, chosen, onset.sides)
    if not ranked:
        return _nothing()
    changes = changes_at(plant.recording, onset.at, onset.sides)
    case = Case(plant, onset.sides, demand_of(plant, onset), parts, changes)
    at, judged = _place(case, ranked)
    return _answer(case, [at, *(one for one in ranked if one is not at)], judged, onset)


def _ranked(plant: Plant, parts: list[Part], sides: Sides) -> list[_Excess]:
    """Parts by their excess per finished work, the largest first; those without any are left out."""
    work = work_of(plant)
    found = [(part, _excess(part, work, sides.now, sides.then)) for part in parts]
    total = sum(seconds for _, seconds in found if seconds > 0.0)
    return [
        _Excess(part, seconds, seconds / total)
        for part, seconds in sorted(found, key=lambda item: -item[1])
        if seconds > 0.0
    ]


def _excess(part: Part, work: FloatArray, now: BoolArray | None, then: BoolArray | None) -> float:
    return (quotient(part.inside, work, now) or 0.0) - (quotient(part.inside, work, then) or 0.0)


def _place(case: Case, ranked: list[_Excess]) -> tuple[_Excess, Judged]:
    """The first part with its state; the queue instead where the first is only a larger batch."""
    judged = judge(case, ranked[0].part)
    if judged.state not in ("normal", "more_arrivals"):
        return ranked[0], judged
    for one in ranked:
        if one.part.phase == "queue" and one.share >= _QUEUE_SAYS:
            return one, judge(case, one.part)
    return ranked[0], judged


def _without_onset(plant: Plant, parts: list[Part], over: Of | None) -> Explanation:
    """What is wrong without a before: nothing, as a rule; the longest part where a latency is over its limit, a queue first."""
    sides = Sides(np.ones(plant.recording.grid.bins, np.bool_), None)
    case = Case(plant, sides, UNKNOWN, parts)
    dead = stopped(case)
    found = _waits_all_along(case)
    if dead is not None:
        part = next(
            (
                one
                for one in parts
                if dead.stations[0] in one.group.stations and one.phase != "queue"
            ),
            None,
        )
        if part is not None:
            return _answer(case, [_Excess(part, 0.0, 1.0)], dead, None)
    if found is not None:
        return _answer(case, [_Excess(found, 0.0, 1.0)], judge(case, found), None)
    if over is None:
        return _nothing()
    longest = _ranked(plant, parts_of_kind(parts, {over}), sides)
    longest.sort(key=lambda one: one.part.phase != "queue" or one.share < _QUEUE_SAYS)
    return _answer(case, longest, judge(case, longest[0].part), None) if longest else _nothing()


def _waits_all_along(case: Case) -> Part | None:
    sides, found, most = case.sides, None, 0.0
    outer = case.plant.outer
    whole = None if outer is None else outer.inside()
    for part in case.parts:
        inside = sides.mean(part.inside) or 0.0
        if part.phase == "queue":
            full, free = full_and_free(sides, part.group)
            total = sides.mean(part.inside if whole is None else whole) or 0.0
            if full and free and inside >= _WAITS_BESIDE * total and inside > most:
                found, most = part, inside
        elif part.phase == "unseen" and found is None:
            total = sides.mean(part.group.inside()) or 0.0
            found = part if inside > _NOT_SEEN * total else None
    return found


def _nothing() -> Explanation:
    return Explanation(
        source="metrics",
        mode="none",
        metric="inside",
        sentence="Nothing grew beyond its noise.",
        reasons={
            "place_confidence": "nothing differs",
            "regularity_confidence": _NO_REQUESTS,
            **dict.fromkeys(
                ("onset", "until", "before_ms", "now_ms", "mechanism"), "nothing differs"
            ),
        },
        advice=Advice(reasons={"undo": "nothing differs"}),
    )


_NO_REQUESTS: Final = "metrics show no single request"


def _answer(case: Case, ranked: list[_Excess], judged: Judged, onset: Onset | None) -> Explanation:
    facts = facts_of(case, ranked[0].part, judged)
    mechanism, refuted, row = mechanism_of(facts)
    confidence = _confidence(case, ranked, onset)
    if mechanism is not None and confidence is not None:
        mechanism.confidence = min(mechanism.confidence, confidence)
    restarts = case.changes.restarts()
    undo = _undo(case, restarts[0].what, restarts[0].time_s) if restarts else None
    places = [
        _place_of(case, one, judged if one is ranked[0] else None, ranked)
        for one in ranked[:MOST_PLACES]
        if one is ranked[0] or one.share >= _LEAST_SHARE
    ]
    mode: Mode = "always" if onset is None else "stretch"
    times = _times(case, onset)
    state_words = (
        f"{_STATES[judged.state]}: {judged.which}" if judged.which else _STATES[judged.state]
    )
    if judged.seen:
        state_words += f" ({'; '.join(one for one in judged.seen if one)})"
    return Explanation(
        source="metrics",
        mode=mode,
        metric=onset.symptom.metric if onset else "waiting",
        onset=times[0],
        until=times[1],
        before_ms=_ms(onset.stretch.before) if onset and onset.symptom.seconds else None,
        now_ms=_ms(onset.stretch.after) if onset and onset.symptom.seconds else None,
        n_bad=_ended(case, case.sides.now),
        n_good=0 if case.sides.then is None else _ended(case, case.sides.then),
        sentence=_sentence(places[0], onset, case),
        places=places,
        place_confidence=confidence,
        changed=_changed(case.changes),
        state=judged.state,
        state_words=state_words,
        mechanism=mechanism,
        refuted=refuted,
        untested=list(mechanism.untested) if mechanism else [],
        advice=advice_of(facts, row, undo),
        reasons=_reasons(onset, confidence, known=mechanism is not None),
    )


def _reasons(onset: Onset | None, confidence: float | None, *, known: bool) -> dict[str, str]:
    reasons = {} if known else {"mechanism": "no known mechanism fits"}
    reasons |= {"regularity_confidence": _NO_REQUESTS}
    if onset is None:
        reasons |= dict.fromkeys(("onset", "until"), "it is so in the whole window")
    elif onset.stretch.until >= onset.sides.now.size:
        reasons["until"] = "it lasts to the end of the window"
    if onset is None or not onset.symptom.seconds:
        reasons |= dict.fromkeys(("before_ms", "now_ms"), "the symptom is no latency")
    if confidence is None:
        reasons["place_confidence"] = "there is no other time to compare with"
    return reasons


def _ms(seconds: float) -> float:
    return 1e3 * seconds


def _times(case: Case, onset: Onset | None) -> tuple[datetime | None, datetime | None]:
    grid = case.plant.recording.grid
    if onset is None:
        return None, None
    until = None
    if onset.stretch.until < grid.bins:
        until = datetime.fromtimestamp(grid.time_s(onset.stretch.until), UTC)
    return datetime.fromtimestamp(grid.time_s(onset.at), UTC), until


def _ended(case: Case, side: BoolArray) -> int:
    """How many requests the outermost observer ended in some bins; 0 where it counts none."""
    done = None if case.plant.outer is None else case.plant.outer.done()
    return (
        0
        if done is None
        else round(float(np.nansum(done[side])) * case.plant.recording.grid.step_s)
    )


def _confidence(case: Case, ranked: list[_Excess], onset: Onset | None) -> float | None:
    """In which part of resamples of the bins the place has the largest excess; None without a comparison."""
    if onset is None or case.sides.then is None:
        return None
    first = [_draws(case, one.part) for one in ranked[: MOST_PLACES + 1]]
    wins = np.argmax(np.array(first), axis=0) == 0
    # So many draws without a miss show no more than one in as many.
    return min(float(wins.mean()), 1.0 - 1.0 / _DRAWS)


def _draws(case: Case, part: Part) -> FloatArray:
    """The excess of a part in resamples of the bins of both sides; the same resamples for every part."""
    rng, work = np.random.default_rng(0), work_of(case.plant)
    sides = [np.flatnonzero(side) for side in (case.sides.now, case.sides.then) if side is not None]
    out = np.zeros(_DRAWS)
    for sign, bins in zip((1.0, -1.0), sides, strict=True):
        drawn = bins[rng.integers(0, len(bins), (_DRAWS, len(bins)))]
        both = np.isfinite(part.inside) & np.isfinite(work)
        above = np.where(both, part.inside, 0.0)[drawn].sum(axis=1)
        below = np.where(both, work, 0.0)[drawn].sum(axis=1)
        out += sign * np.divide(above, below, out=np.zeros(_DRAWS), where=below > 0.0)
    return out


def _place_of(case: Case, one: _Excess, judged: Judged | None, ranked: list[_Excess]) -> Place:
    part = one.part
    stage, where = _AS[part.phase]
    stations = judged.stations if judged else part.group.stations
    some = 0 < len(stations) < len(part.group.stations)
    names = [printable(station.name) for station in stations[:6]]
    of = (
        ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        if some
        else printable(part.group.name, 120)
    )
    made = Place(
        stage=stage,
        service=part.group.role,
        operation=printable(part.group.model) if part.group.model else None,
        where=where,
        excess_ms=_ms(one.seconds),
        share=one.share,
        interval=_interval(case, part, ranked) if judged and case.sides.then is not None else None,
        instances=names if some else [],
        words=f"{_PHASES[part.phase]} of {of}",
    )
    why = {
        "stage": "no stage of a request is known for it",
        "operation": "its stations serve several models, or name none",
        "interval": "only the first place is resampled, and only with another time to compare with",
        "caller": _NO_REQUESTS,
        "callee": _NO_REQUESTS,
    }
    made.reasons = {name: text for name, text in why.items() if getattr(made, name) is None}
    return made


def _interval(case: Case, part: Part, ranked: list[_Excess]) -> tuple[float, float]:
    """The 90 % bootstrap interval of the part's share of the excess, over bins."""
    mine = np.maximum(_draws(case, part), 0.0)
    total = np.sum([np.maximum(_draws(case, one.part), 0.0) for one in ranked], axis=0)
    shares = np.divide(mine, total, out=np.zeros(_DRAWS), where=total > 0.0)
    low, high = np.percentile(shares, (5.0, 95.0))
    return float(low), float(high)


def _sentence(place: Place, onset: Onset | None, case: Case) -> str:
    """Place, change and time as one sentence."""
    if onset is None:
        return f"All along it is {place.words}."
    symptom, found = onset.symptom, onset.stretch
    at = datetime.fromtimestamp(case.plant.recording.grid.time_s(onset.at), UTC)
    change = (
        f"from {say_ms(_ms(found.before))} to {say_ms(_ms(found.after))}"
        if symptom.seconds
        else f"from {found.before:,.3g} to {found.after:,.3g}"
    )
    words = printable(symptom.words, 160)
    return (
        f"{begun(words)} went {change} since {at:%H:%M:%S} UTC; "
        f"{say_ratio(place.share)} of what is more is {place.words}."
    )


def _changed(changes: Changes) -> list[Change]:
    return [_change(one) for one in changes.found[:MOST_SHOWN]]


def _change(one: Moved) -> Change:
    plain = one.kind in ("restart", "new instance", "gone instance")
    what = one.what if plain else f"{one.kind}: {one.what}"
    if one.before is None or one.after is None:
        reasons = dict.fromkeys(("before", "after"), "it is a restart, or it is new or gone")
        return Change(what=what, before=None, after=None, reasons=reasons)
    return Change(what=what, before=f"{one.before:.3g}", after=f"{one.after:.3g}")


def _undo(case: Case, what: str, time_s: float) -> str:
    at = datetime.fromtimestamp(time_s, UTC)
    new = next(
        (one.what for one in case.changes.found if one.kind in ("new series", "version")), None
    )
    more = f" ({new} is new)" if new else ""
    return f"Undo what came when {what} at {at:%H:%M:%S} UTC{more}."
