"""How does a message reach its receiver at least once? An outbox that is stored before anything is sent, and emptied entry by entry after each answer.

A receiver that is busy or away is tried again, later each time up to five minutes, for a day. One that refuses a message for good is logged, and the message
dropped. Redirects are not followed: messages go to the addresses of the settings alone. Receivers are served side by side, each has so much time for a message
altogether, and of what it answers little is read.
"""

from __future__ import annotations

import logging
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
import msgspec

from overrun.analysis.front.alerts.messages import Message, mail, outgoing
from overrun.analysis.front.alerts.settings import Receiver
from overrun.collector.access.deadline import BoundedTransport
from overrun.collector.access.trust import trusted

log = logging.getLogger("overrun.alerts")
# For one step of a connection, and for a message altogether.
_PATIENCE_S: Final = 10.0
_MOST_S: Final = 20.0
# Of a mail server's answers to one message: a line has 512 bytes at most (RFC 5321, 4.5.3.1.5), and a message takes about ten of them.
_MOST_ANSWERS: Final = 65_536
_AT_ONCE: Final = 8
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
                transport=BoundedTransport(_MOST_S, trusted(url)),
                timeout=_PATIENCE_S,
                follow_redirects=False,
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
        with _Smtp(receiver, context) as smtp:
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


class _Smtp(smtplib.SMTP):
    """A connection whose answers are few and come in time; the library's own reads lines for as long as the server says that there are more."""

    def __init__(self, receiver: Receiver, context: ssl.SSLContext) -> None:
        self._until = time.monotonic() + _MOST_S
        self._tls = context if receiver.tls == "tls" else None
        super().__init__(receiver.host, receiver.port, timeout=_PATIENCE_S)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made = socket.create_connection((host, port), timeout)
        return self._tls.wrap_socket(made, server_hostname=host) if self._tls else made

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = _Answers(self.sock, self._until)
        return super().getreply()


class _Answers:
    """The lines of a mail server's answers, as smtplib reads them.

    Raises:
        OSError: they are too long, or do not come in time.
    """

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._socket, self._until = connected, until
        self._waiting = bytearray()
        self._read = 0

    def readline(self, most: int) -> bytes:
        while b"\n" not in self._waiting and len(self._waiting) < most:
            left = self._until - time.monotonic()
            if left <= 0 or self._read > _MOST_ANSWERS:
                raise OSError("its answers do not end")
            self._socket.settimeout(min(left, _PATIENCE_S))
            part = self._socket.recv(4_096)
            if not part:
                break
            self._read += len(part)
            self._waiting += part
        end = self._waiting.find(b"\n") + 1 or len(self._waiting)
        line = bytes(self._waiting[: min(end, most)])
        del self._waiting[: len(line)]
        return line

    def close(self) -> None:
        """The connection is closed by whoever made it."""


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
    """Try every entry that is due, in the order of each receiver's messages: later ones wait for earlier ones, and for no other receiver's."""
    known = {receiver.name: receiver for receiver in receivers}
    of_each: dict[str, list[int]] = {}
    for at, entry in enumerate(outbox):
        of_each.setdefault(entry.receiver, []).append(at)

    def serve(name: str) -> tuple[Sent, dict[int, Entry]]:
        entries = {at: outbox[at] for at in of_each[name]}
        if name not in known:  # it is not in the settings any more
            return Sent(left=[], dropped=len(entries)), {}
        return _of_one(entries, known[name], now, alive_s, send)

    waits = [name for name in of_each if name in known and outbox[of_each[name][0]].due <= now]
    if len(waits) > 1:
        with ThreadPoolExecutor(min(len(waits), _AT_ONCE)) as pool:
            served = [*pool.map(serve, of_each)]
    else:
        served = [serve(name) for name in of_each]
    left = {at: entry for _, entries in served for at, entry in entries.items()}
    counts = ((sent.delivered, sent.failed, sent.dropped) for sent, _ in served)
    delivered, failed, dropped = (sum(n) for n in zip((0, 0, 0), *counts, strict=True))
    in_order = [left[at] for at in sorted(left)]
    return Sent(left=in_order, delivered=delivered, failed=failed, dropped=dropped)


def _of_one(
    entries: Mapping[int, Entry], receiver: Receiver, now: float, alive_s: float, send: Send
) -> tuple[Sent, dict[int, Entry]]:
    """The counts of one receiver's round, and its entries that are left, by their places in the outbox."""
    done, left = Sent(left=[]), dict[int, Entry]()
    for at, entry in entries.items():
        if left or entry.due > now:
            left[at] = entry
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
            left[at] = msgspec.structs.replace(entry, attempts=attempts, due=now + wait_s)
            done.failed += 1
    return done, left
