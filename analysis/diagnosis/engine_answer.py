"""How does a verdict by metrics alone follow the open diagnosis? Stage, cause, sentence and advice come from the place, the mechanism and what its gates allow."""

from __future__ import annotations

from typing import Final

from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import Owner, begun

_RECHECK_S: Final = 300
# From this confidence on a mechanism is reported as known.
_KNOWN: Final = 0.5
_UNNAMED: Final = "no known mechanism fits: the place and its state are what is known"
_NO_ADVICE: Final = "no step passes the tests that would make it safe"


def follow(verdict: Verdict, made: Explanation | None, owner: Owner) -> None:
    """Let the place, the mechanism and the advice of an explanation lead a verdict. In place; a verdict within its limit only gets the sentence."""
    if made is None or made.mode == "none" or not made.places:
        return
    why = _why(made)
    verdict.sentence = f"{verdict.sentence} {why}"
    if verdict.status != "not_enough_data":  # else what is not measured comes first
        verdict.why = why
    if verdict.status not in ("over_budget", "not_enough_data"):
        return
    verdict.stage = made.places[0].stage or verdict.stage
    verdict.onset = verdict.onset or made.onset
    verdict.owner, verdict.recheck_after_s = owner, _RECHECK_S
    mechanism = made.mechanism
    verdict.cause = mechanism.id if mechanism else None
    known = mechanism is not None and mechanism.confidence > _KNOWN
    verdict.cause_status = "known" if known else "not_known"
    steps = made.advice.do if known else [made.advice.undo or "", *made.advice.look]
    verdict.mitigation = " ".join(step for step in steps if step) or None
    verdict.rollback = (
        "Restore the former settings when the latency is within the limit." if known else None
    )
    reasons = {"cause": _UNNAMED, "mitigation": _NO_ADVICE, "rollback": "nothing is changed"}
    verdict.reasons = verdict.reasons | reasons
    for name in ("stage", "cause", "onset", "owner", "recheck_after_s", "mitigation", "rollback"):
        if getattr(verdict, name) is not None:
            verdict.reasons.pop(name, None)


def _why(made: Explanation) -> str:
    """Place, state and mechanism as sentences."""
    parts = [made.sentence, f"{begun(made.state_words)}." if made.state_words else ""]
    if made.mechanism is not None:
        fits = "" if made.mechanism.confidence > _KNOWN else ", which could not be tested"
        parts.append(f"{begun(made.mechanism.words)}{fits}.")
    return " ".join(part for part in parts if part)
