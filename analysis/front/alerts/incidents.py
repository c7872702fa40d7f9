"""When does an incident begin and end? Conditions over time in, notices out; no clock, no network, no store.

A condition opens an incident of its group after it has held for its own time without a break. While the incident is open, further conditions of the group
belong to it: they may raise its severity, which is worth one more notice, and nothing else is. It ends when no condition of the group has held for
`resolve_after_s`. Between two evaluations that lie further apart than three intervals (a restart) nothing is known: what had begun to hold begins anew, and
what is open stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import msgspec

from overrun.analysis.front.alerts.settings import SEVERITIES, Group
from overrun.analysis.words.finding import Severity

Event = Literal["fired", "raised", "resolved"]
# Where nothing can be judged any more (no traffic at all), an open incident ends after so long.
UNKNOWN_S: Final = 3_600.0
_GAP: Final = 3.0


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong now. `key` names it among those of its group, `for_s` is how long it must hold before it counts."""

    group: Group
    key: str
    severity: Severity
    summary: str
    for_s: float


class Incident(msgspec.Struct, kw_only=True):
    """What is open. Times in Unix seconds; `sent` says whether receivers know of it (it may be muted)."""

    id: str
    group: Group
    severity: Severity
    began: float
    held: float
    keys: list[str]
    summary: str
    sent: bool = False


class State(msgspec.Struct, kw_only=True):
    """What has to be remembered from one evaluation to the next. `began` holds since when each condition holds, by "group key"."""

    at: float = 0.0
    began: dict[str, float] = {}
    open: dict[str, Incident] = {}


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What receivers are to learn."""

    event: Event
    incident: Incident
    at: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation: the conditions that hold at `at`, and the groups of which nothing can be judged."""

    at: float
    conditions: list[Condition]
    unknown: frozenset[str] = frozenset()


def step(
    state: State,
    seen: Seen,
    *,
    every_s: float,
    resolve_after_s: float,
    muted: Callable[[str], bool] = lambda group: False,
) -> tuple[State, list[Notice]]:
    """Return the state after an evaluation, and what is to be sent. The state that was given is not changed."""
    gap = state.at > 0.0 and seen.at - state.at > _GAP * every_s
    known = {} if gap else state.began
    now = {f"{c.group} {c.key}": c for c in seen.conditions}
    began = {name: known.get(name, seen.at) for name in now}
    # What cannot be judged has neither gone nor lasted.
    began |= {
        name: at
        for name, at in known.items()
        if name not in now and name.split(" ")[0] in seen.unknown
    }
    after = State(at=seen.at, began=began, open={})
    notices: list[Notice] = []
    groups = dict.fromkeys([*state.open, *(c.group for c in seen.conditions)])
    for group in groups:
        mine = [c for c in seen.conditions if c.group == group]
        incident = state.open.get(group)
        if incident is None:
            ripe = [c for c in mine if seen.at - began[f"{group} {c.key}"] >= c.for_s]
            if ripe:
                incident = _opened(ripe, seen.at, min(began[f"{group} {c.key}"] for c in ripe))
        elif _over(incident, mine, seen, resolve_after_s):
            if incident.sent and not muted(group):
                notices.append(Notice(event="resolved", incident=incident, at=seen.at))
            elif incident.sent:
                after.open[group] = incident  # its end is sent when the mute ends
            continue
        if incident is None:
            continue
        incident, raised = _held(incident, mine, began, seen.at)
        after.open[group] = incident
        if not muted(group) and (raised or not incident.sent):
            event: Event = "raised" if incident.sent else "fired"
            incident = msgspec.structs.replace(incident, sent=True)
            after.open[group] = incident
            notices.append(Notice(event=event, incident=incident, at=seen.at))
    return after, notices


def _opened(ripe: Sequence[Condition], at: float, began: float) -> Incident:
    worst = max(ripe, key=lambda c: SEVERITIES.index(c.severity))
    return Incident(
        id=f"overrun-{worst.group}-{int(began)}",
        group=worst.group,
        severity=worst.severity,
        began=began,
        held=at,
        keys=sorted(c.key for c in ripe),
        summary=worst.summary,
    )


def _over(
    incident: Incident, mine: Sequence[Condition], seen: Seen, resolve_after_s: float
) -> bool:
    quiet_s = max(resolve_after_s, UNKNOWN_S) if incident.group in seen.unknown else resolve_after_s
    return not mine and seen.at - incident.held >= quiet_s


def _held(
    incident: Incident, mine: Sequence[Condition], began: dict[str, float], at: float
) -> tuple[Incident, bool]:
    """The incident after one more evaluation, and whether it became more severe."""
    if not mine:
        return incident, False
    ripe = [c for c in mine if at - began[f"{c.group} {c.key}"] >= c.for_s]
    worst = max(ripe, key=lambda c: SEVERITIES.index(c.severity), default=None)
    raised = worst is not None and SEVERITIES.index(worst.severity) > SEVERITIES.index(
        incident.severity
    )
    return (
        msgspec.structs.replace(
            incident,
            held=at,
            severity=worst.severity if worst is not None and raised else incident.severity,
            summary=worst.summary if worst is not None and raised else incident.summary,
            keys=sorted({*incident.keys, *(c.key for c in ripe)}),
        ),
        raised,
    )
