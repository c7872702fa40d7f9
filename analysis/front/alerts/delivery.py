"""How does a message reach its receiver at least once? An outbox that is stored before anything is sent, and emptied entry by entry after each answer.

A receiver that is busy or away is tried again, later each time up to five minutes, for a day. One that refuses a message for good is logged, and the message
dropped. Redirects are not followed: messages go to the addresses of the settings alone.
"""

from __future__ import annotations

import logging
import smtplib
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import httpx
import msgspec

from overrun.analysis.front.alerts.messages import Message, mail, outgoing
from overrun.analysis.front.alerts.settings import Receiver
from overrun.collector.access.trust import trusted

log = logging.getLogger("overrun.alerts")
_PATIENCE_S: Final = 10.0
_LONGEST_WAIT_S: Final = 300.0
GIVE_UP_S: Final = 86_400.0
MOST_WAITING: Final = 1_000
_AGAIN: Final = (408, 425, 429)


class Entry(msgspec.Struct, kw_only=True):
    """A message that a receiver does not have yet; `due` is when it is tried next (Unix seconds)."""

    receiver: str
    message: Message
    due: float
    attempts: int = 0


class Failed(Exception):
    """The receiver did not take a message. `final` says that it never will."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


Send = Callable[[Message, Receiver, float, float], None]


def send(message: Message, receiver: Receiver, now: float, alive_s: float) -> None:
    """Hand one message to its receiver.

    Raises:
        Failed: with the reason, without keys.
    """
    try:
        if receiver.kind == "email":
            _mail(message, receiver)
            return
        asked = outgoing(message, receiver, now, alive_s)
        url = receiver.address()
    except OSError as error:
        raise Failed(
            f"a file of its settings cannot be read: {error.strerror}", final=False
        ) from error
    headers = {"content-type": "application/json", "user-agent": "overrun", **asked.headers}
    try:
        with (
            httpx.Client(
                timeout=_PATIENCE_S, trust_env=False, follow_redirects=False, verify=trusted(url)
            ) as client,
            client.stream(
                "POST",
                f"{url}{asked.path}",
                content=msgspec.json.encode(asked.body),
                headers=headers,
            ) as answer,
        ):
            status = answer.status_code
    except httpx.HTTPError as error:
        raise Failed(f"no answer ({type(error).__name__})", final=False) from error
    if not 200 <= status < 300:
        raise Failed(f"it answered {status}", final=status < 500 and status not in _AGAIN)


def _mail(message: Message, receiver: Receiver) -> None:
    made, context = mail(message, receiver), ssl.create_default_context()
    try:
        smtp: smtplib.SMTP
        if receiver.tls == "tls":
            smtp = smtplib.SMTP_SSL(
                receiver.host, receiver.port, timeout=_PATIENCE_S, context=context
            )
        else:
            smtp = smtplib.SMTP(receiver.host, receiver.port, timeout=_PATIENCE_S)
        with smtp:
            if receiver.tls == "starttls":
                smtp.starttls(context=context)
            if receiver.user:
                smtp.login(receiver.user, receiver.key())
            smtp.send_message(made)
    except smtplib.SMTPResponseException as error:
        raise Failed(
            f"it answered {error.smtp_code}", final=500 <= error.smtp_code < 600
        ) from error
    except (smtplib.SMTPException, OSError) as error:
        raise Failed(f"no answer ({type(error).__name__})", final=False) from error


class Sent(msgspec.Struct, kw_only=True):
    """What came of one round: entries that are left, and how many were delivered, failed for now, and were dropped."""

    left: list[Entry]
    delivered: int = 0
    failed: int = 0
    dropped: int = 0


def deliver(
    outbox: Sequence[Entry],
    receivers: Sequence[Receiver],
    now: float,
    alive_s: float,
    send: Send = send,
) -> Sent:
    """Try every entry that is due, in the order of each receiver's messages: later ones wait for earlier ones."""
    known = {receiver.name: receiver for receiver in receivers}
    done, stuck = Sent(left=[]), set()
    for entry in outbox:
        receiver = known.get(entry.receiver)
        if receiver is None:
            done.dropped += 1  # it is not in the settings any more
            continue
        if entry.receiver in stuck or entry.due > now:
            stuck.add(entry.receiver)
            done.left.append(entry)
            continue
        try:
            send(entry.message, receiver, now, alive_s)
            done.delivered += 1
        except Failed as error:
            old = now - entry.message.at > GIVE_UP_S
            if error.final or old:
                log.error(
                    "%s did not take the message %s: %s", receiver.name, entry.message.id, error
                )
                done.dropped += 1
                continue
            attempts = entry.attempts + 1
            wait_s = min(5.0 * 2.0 ** min(attempts, 10), _LONGEST_WAIT_S)
            log.warning(
                "%s does not take messages, again in %d s: %s", receiver.name, wait_s, error
            )
            done.left.append(msgspec.structs.replace(entry, attempts=attempts, due=now + wait_s))
            done.failed += 1
            stuck.add(entry.receiver)
    return done
