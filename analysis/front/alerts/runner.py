"""How do the parts run beside the server? Once an interval: look, remember, then send. What is to be sent is in the store before the first attempt.

A process that is killed between an answer and the note of it sends that message once more: the message has the same id, and receivers that know it (PagerDuty,
Opsgenie, Alertmanager) count it once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from overrun.analysis.front.alerts.delivery import (
    MOST_WAITING,
    Entry,
    Failed,
    Send,
    Sent,
    deliver,
    send,
)
from overrun.analysis.front.alerts.incidents import Notice, Seen, State, step
from overrun.analysis.front.alerts.messages import Message, describe
from overrun.analysis.front.alerts.settings import AlertSettings, Receiver
from overrun.analysis.front.report import Report

log = logging.getLogger("overrun.alerts")
# The store's note of open incidents and of what is to be sent.
KEY: Final = "alerts"
# Of an incident that lasts, Alertmanager hears so often, and forgets it that long after the last time.
_REFRESH_S, _ALIVE_S = 300.0, 1_800.0
_NOTE_S: Final = 300.0
# A message of a trial is no incident: Alertmanager forgets it after a minute.
_TRIAL_ALIVE_S: Final = 60.0


class Memory(msgspec.Struct, kw_only=True):
    """What survives a restart. `refreshed` is when Alertmanager was last told of what is open."""

    state: State = msgspec.field(default_factory=State)
    outbox: list[Entry] = []
    last: dict[str, Message] = {}
    refreshed: float = 0.0


def remembered(text: str | None) -> Memory:
    """The memory that a store holds; a new one where there is none, or of another version."""
    try:
        return msgspec.json.decode(text, type=Memory) if text else Memory()
    except msgspec.MsgspecError:
        log.warning("the note of open incidents cannot be read: incidents begin again")
        return Memory()


class Runner:
    """Evaluates and sends. `look(now)` judges the moment, `details(now)` makes the whole report and names a slow request's trace, `note(text)` stores."""

    def __init__(
        self,
        settings: AlertSettings,
        memory: Memory,
        *,
        look: Callable[[float], Seen],
        details: Callable[[float], tuple[Report | None, str]],
        note: Callable[[str], None],
        send: Send = send,
    ) -> None:
        self.settings, self.memory = settings, memory
        self._look, self._details, self._note, self._send = look, details, note, send
        self._noted = 0.0

    def tick(self, now: float) -> Sent:
        """One evaluation at `now` (Unix seconds), and one round of deliveries."""
        settings = self.settings
        moment = datetime.fromtimestamp(now, UTC)

        def muted(group: str) -> bool:
            return any(mute.covers(group, moment) for mute in settings.mutes)

        before = self.memory.state
        self.memory.state, notices = step(
            before,
            self._look(now),
            every_s=settings.every_s,
            resolve_after_s=settings.resolve_after_s,
            muted=muted,
        )
        for notice in notices:
            self._enqueue(notice, now)
        same = set(before.open) == set(self.memory.state.open)
        if notices or not same or now - self._noted >= _NOTE_S:
            self._store(now)
        return self.send_due(now)

    def send_due(self, now: float) -> Sent:
        """One round of deliveries."""
        refreshes = self._refreshes(now)
        done = deliver(
            [*self.memory.outbox, *refreshes], self.settings.receivers, now, _ALIVE_S, self._send
        )
        known = {id(entry.message) for entry in refreshes}
        # A refresh that fails is not kept: the next one holds the same.
        left = [entry for entry in done.left if id(entry.message) not in known]
        if len(left) != len(self.memory.outbox) or done.failed:
            self.memory.outbox = left
            self._store(now)
        return done

    def _enqueue(self, notice: Notice, now: float) -> None:
        incident = notice.incident
        report, slowest = (None, "") if notice.event == "resolved" else self._details(now)
        message = describe(notice, report, slowest, self.settings.link)
        self.memory.outbox += [
            Entry(receiver=receiver.name, message=message, due=now)
            for receiver in self.settings.receivers
            if receiver.takes(incident.group, incident.severity)
        ]
        del self.memory.outbox[:-MOST_WAITING]
        if notice.event == "resolved":
            self.memory.last.pop(incident.group, None)
        else:
            self.memory.last[incident.group] = message

    def _refreshes(self, now: float) -> list[Entry]:
        """What Alertmanager is told again, of incidents that are open and that it knows of."""
        managers = [r for r in self.settings.receivers if r.kind == "alertmanager"]
        if not managers or now - self.memory.refreshed < _REFRESH_S:
            return []
        self.memory.refreshed = now
        return [
            Entry(receiver=receiver.name, message=message, due=now)
            for message in self.memory.last.values()
            for receiver in managers
            if receiver.takes(message.group, message.severity) and not self._waits(receiver)
        ]

    def _waits(self, receiver: Receiver) -> bool:
        return any(entry.receiver == receiver.name for entry in self.memory.outbox)

    def _store(self, now: float) -> None:
        self._note(msgspec.json.encode(self.memory).decode())
        self._noted = now


def tried(settings: AlertSettings, now: float) -> Iterator[tuple[str, str]]:
    """Send each receiver a message that fires and one that resolves, marked as a test; yields its name, and why it was not taken (empty: it was)."""
    message = Message(
        id=f"overrun-test-{int(now)}-fired",
        event="fired",
        incident=f"overrun-test-{int(now)}",
        group="requests",
        severity="info",
        title="Test of Overrun's alerts",
        summary="This is a test. Nothing is wrong, and nothing has to be done.",
        began=now,
        at=now,
        details={"verdict": "a test"},
        link=settings.link,
    )
    ended = msgspec.structs.replace(message, id=f"{message.incident}-resolved", event="resolved")
    for receiver in settings.receivers:
        try:
            for one in (message, ended):
                send(one, receiver, now, _TRIAL_ALIVE_S)
            yield receiver.name, ""
        except Failed as error:
            yield receiver.name, str(error)
