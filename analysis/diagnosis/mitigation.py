"""What can be done in the next five minutes where no rule names a cause, and who has to act on errors? Steps that are safe for any cause."""

from __future__ import annotations

import re
from collections.abc import Sequence

from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.stages.budget import GROUPS, StageTimes
from overrun.analysis.words.finding import Owner

# What went wrong is the caller's: it asks for what is not there or not allowed (HTTP 4xx but for the two that say that the endpoint is full or late).
_CALLERS = re.compile(
    r"\b4(?!08|29)\d\d\b|bad.?request|invalid|unauthori[sz]ed|authentication|permission|forbidden|not.?found|unprocessable|content.?filter",
    re.IGNORECASE,
)
# ...or of who serves: full, late, or broken.
_SERVERS = re.compile(
    r"\b(408|429|499|5\d\d)\b|rate.?limit|overload|quota|unavailable|timed?.?out|deadline|internal|server.?error|connection|refused|reset|"
    r"exhausted|out.?of.?memory|oom",
    re.IGNORECASE,
)


def stopgap(stage: str, owner: Owner, changed: Sequence[Changed]) -> tuple[str, str]:
    """Return (mitigation, rollback): what changed is rolled back where anything did, else load is taken off the stage or it is bounded."""
    step, undo = _by_owner(stage, owner)
    return rolled_back(step, undo, changed[0]) if changed else (step, undo)


def rolled_back(step: str, undo: str, change: Changed) -> tuple[str, str]:
    """Return (mitigation, rollback) that begin with a change at the onset."""
    return (
        f"Roll back what changed at the onset ({change.what}, now {change.after}) if that is quick. Else: {step}",
        f"Deploy the change again once it is cleared. {undo}",
    )


def _by_owner(stage: str, owner: Owner) -> tuple[str, str]:
    if owner == "provider":
        return (
            "Send part of the calls to another deployment or model of equal quality, and set a timeout with a fallback answer for the rest.",
            "Send the calls back and remove the timeout once the latency is within the limit.",
        )
    if owner == "platform":
        return (
            "Admit fewer requests at the gateway: pause batch and eval work first, then answer the least important requests with 429 and Retry-After.",
            "Admit all requests again once the latency is within the limit.",
        )
    where = "the slowest step" if stage == "other" else stage
    return (
        f"Set a timeout on {where} and continue without its result. If no answer is possible without it, admit fewer requests.",
        "Remove the timeout again.",
    )


def owner_of_errors(name: str | None, *, own_engines: bool) -> Owner | None:
    """Return who has to act on errors of this name: a caller's mistakes are the app's, a full or broken server its owner's; None where it does not say."""
    if name is None:
        return None
    if _CALLERS.search(name):
        return "app"
    if _SERVERS.search(name):
        return "platform" if own_engines else "provider"
    return None


def owner_of_stage(times: StageTimes, stage: str) -> Owner:
    """Who runs a stage: where calls are seen from their clients alone, what answers them is a provider's."""
    outside = any(
        times.ms[name].any() for name in ("first_token", "generation") if name in times.ms
    )
    if stage in ("first_token", "generation") or (stage in GROUPS["model"] and outside):
        return "provider"
    return "platform" if stage in (*GROUPS["model"], *GROUPS["network+gateway"]) else "app"
