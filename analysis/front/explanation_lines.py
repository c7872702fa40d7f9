"""How does an answer say what the open diagnosis found? Where, what distinguishes it, what changed, a cause if one fits, what to do and what not, a line each.

Place, regularity and mechanism have a confidence of their own each; one that is not known is left out, with the reason where there is one.
"""

from __future__ import annotations

from typing import Final

from overrun.analysis.words.explanation import Change, Explanation, Place, Regularity
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio

_MOST: Final = 3
# Characters of each statement: names in them come from telemetry.
_LONGEST: Final = 300


def explained(found: Explanation) -> dict[str, str]:
    """Return each line's words by its label, in order: WHERE, WHAT, CHANGED, CAUSE, DO and NOT; a label of which nothing is known is left out."""
    said = {
        "WHERE": _where(found),
        "WHAT": _what(found),
        "CHANGED": _changed(found),
        "CAUSE": _cause(found),
        "DO": _do(found),
        "NOT": ". ".join(_cut(one) for one in found.advice.avoid[:_MOST]),
    }
    return {label: words for label, words in said.items() if words}


def lines_of(found: Explanation) -> dict[str, str]:
    """Return the same by labels in small letters, for programs."""
    return {label.lower(): words for label, words in explained(found).items()}


def said_of(found: Explanation) -> dict[str, str | float | None]:
    """Return the sentence, the three confidences and the lines: what a program is answered."""
    named = found.mechanism
    return {
        "sentence": _cut(found.sentence) if found.sentence else None,
        "place_confidence": found.place_confidence,
        "regularity_confidence": found.regularity_confidence,
        "mechanism": named.id if named else None,
        "mechanism_confidence": named.confidence if named else None,
        **lines_of(found),
    }


def _where(found: Explanation) -> str:
    if not found.places:
        return _unknown(found, "places")
    return (
        f"{'. '.join(_place(one) for one in found.places[:_MOST])}{_sure(found.place_confidence)}"
    )


def _place(one: Place) -> str:
    stage = f"{one.stage}: " if one.stage and not one.words.startswith(one.stage) else ""
    on = f", on {', '.join(map(_cut, one.instances[:_MOST]))}" if one.instances else ""
    # Places that work at the same time can take more together than a request takes: no part is larger than the whole.
    part = min(one.share, 1.0)
    whole = f" of the {say_ms(one.excess_ms / part)}" if 0.0 < part < 1.0 else ""
    low, high = (say_ratio(min(edge, 1.0)) for edge in one.interval or (part, part))
    share = say_ratio(part) + (f", {low} to {high}" if low != high else "")
    carried = f"{say_ms(one.excess_ms)}{whole} that slow requests have more ({share})"
    return f"{stage}{_cut(one.words)}{on}, {carried}"


def _what(found: Explanation) -> str:
    said = [_regularity(one) for one in found.regularities[:_MOST]]
    sure = _sure(found.regularity_confidence) if said else ""
    said += [_cut(found.state_words)] if found.state_words else []
    return f"{'. '.join(said) or _unknown(found, 'regularities')}{sure}"


def _regularity(one: Regularity) -> str:
    counted = (
        f"{one.late_with:,} of {one.late:,} late, {one.others_with:,} of {one.others:,} others"
    )
    by_chance = "p < 1e-12" if one.p < 1e-12 else f"p {one.p:.1g}"
    alike = f"; parted alike by {', '.join(map(_cut, one.alike[:_MOST]))}" if one.alike else ""
    carried = f"carries {say_ratio(min(one.carried, 1.0))}, {by_chance}, {one.tried:,} traits tried"
    return f"{_cut(one.words)}: {counted} ({carried}{alike})"


def _changed(found: Explanation) -> str:
    since = f" at {found.onset:%H:%M:%S} UTC" if found.onset is not None else ""
    if found.changed:
        return "; ".join(_change(one) for one in found.changed[:_MOST]) + since
    return _unknown(found, "changed") or (f"nothing on the path{since}" if since else "")


def _change(one: Change) -> str:
    what, before, after = _cut(one.what), _cut(one.before or ""), _cut(one.after or "")
    if one.before is None:
        return f"{what} {after} is new"
    return f"{what} {before} is gone" if one.after is None else f"{what} {before} -> {after}"


def _cause(found: Explanation) -> str:
    fits = found.mechanism
    if fits is None:
        said = f"not known{': ' if (why := found.reasons.get('mechanism')) else ''}{why or ''}"
    else:
        tests = say_count(len(fits.refuted), "test")
        said = f"{_cut(fits.words)} ({tests} could not refute it){_sure(fits.confidence)}"
    untested = fits.untested if fits is not None else found.untested
    more = [f"not testable from here: {'; '.join(map(_cut, untested[:_MOST]))}"] if untested else []
    excluded = [f"{_cut(one.words)} ({_cut(one.figure)})" for one in found.refuted[:_MOST]]
    more += [f"tried and not so: {'; '.join(excluded)}"] if excluded else []
    return ". ".join([said, *more])


def _do(found: Explanation) -> str:
    advice = found.advice
    said = [f"undo first: {_cut(advice.undo)}"] if advice.undo else []
    said += map(_cut, advice.do[:_MOST])
    said += [f"look first: {'. '.join(map(_cut, advice.look[:_MOST]))}"] if advice.look else []
    return ". ".join(said) or _unknown(found, "advice")


def _unknown(found: Explanation, field: str) -> str:
    why = found.reasons.get(field)
    return f"not known: {_cut(why)}" if why else ""


def _sure(confidence: float | None) -> str:
    return "" if confidence is None else f"; sure {say_ratio(confidence)}"


def _cut(words: str) -> str:
    return printable(words, _LONGEST).rstrip(".")
