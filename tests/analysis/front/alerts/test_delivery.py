"""A message arrives at least once: past receivers that are away, refuse or redirect, past kill -9, and in order."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from overrun.analysis.front.alerts import delivery
from overrun.analysis.front.alerts.delivery import Entry, Failed, deliver, send
from overrun.analysis.front.alerts.incidents import Condition, Seen
from overrun.analysis.front.alerts.messages import Message
from overrun.analysis.front.alerts.runner import Memory, Runner, remembered
from overrun.analysis.front.alerts.settings import AlertSettings, Receiver
from tests.analysis.front.alerts.test_messages import FIRED
from tests.collector.sources.remote.servers import (
    Answer,
    Asked,
    answer,
    dripping,
    raw,
    serving,
)
from tests.conftest import ServerProcess, StartServer
from tests.waiting import LIMIT_S, until

T0 = 1_795_600_000.0
WEBHOOK = Receiver(kind="webhook", name="hook", url="http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("status", "final"), [(302, True), (400, True), (404, True), (429, False), (503, False)]
)
def test_only_a_refusal_for_good_drops_a_message(status: int, final: bool) -> None:
    with serving(lambda asked: (status, {"location": "http://127.0.0.1:1/"}, b"no")) as server:
        receiver = Receiver(kind="webhook", name="hook", url=server.url)
        with pytest.raises(Failed, match=f"answered {status}") as raised:
            send(FIRED, receiver, T0, 60.0)
    assert raised.value.final is final
    assert len(server.asked) == 1


def test_a_secret_is_read_when_it_is_sent_and_is_in_no_message(tmp_path: Path) -> None:
    key = tmp_path / "key"
    receiver = Receiver(kind="webhook", name="hook", url="http://127.0.0.1:9", key_file=key)
    with pytest.raises(Failed, match="cannot be read") as raised:
        send(FIRED, receiver, T0, 60.0)
    assert not raised.value.final
    key.write_text("s3cret\n")
    with pytest.raises(Failed) as raised:
        send(FIRED, receiver, T0, 60.0)
    assert "s3cret" not in str(raised.value)
    with serving(lambda asked: answer({})) as server:
        send(FIRED, Receiver(kind="webhook", name="h", url=server.url, key_file=key), T0, 60.0)
    assert server.asked[0].headers["authorization"] == "Bearer s3cret"


def test_later_messages_wait_for_earlier_ones_of_their_receiver_alone() -> None:
    sent: list[tuple[str, str]] = []

    def unreliable(message: Message, receiver: Receiver, now: float, alive_s: float) -> None:
        if receiver.name == "away":
            raise Failed("no answer", final=False)
        sent.append((receiver.name, message.id))

    away = Receiver(kind="webhook", name="away", url="http://x")
    outbox = [
        Entry(receiver=name, message=FIRED, due=T0) for name in ("away", "hook", "away", "gone")
    ]
    done = deliver(outbox, [away, WEBHOOK], T0, 60.0, unreliable)
    assert sent == [("hook", FIRED.id)]
    assert (done.delivered, done.failed, done.dropped) == (1, 1, 1)
    assert [(e.receiver, e.attempts, e.due - T0) for e in done.left] == [
        ("away", 1, 10.0),
        ("away", 0, 0.0),
    ]
    # Not before it is due.
    assert deliver(done.left, [away], T0 + 5, 60.0, unreliable).failed == 0


def test_a_receiver_that_is_slow_holds_up_no_other() -> None:
    fine = threading.Event()

    def one_by_one(message: Message, receiver: Receiver, now: float, alive_s: float) -> None:
        if receiver.name == "hook":
            fine.set()
        elif not fine.wait(LIMIT_S):
            raise Failed("the other one was not served meanwhile", final=True)

    slow = Receiver(kind="webhook", name="slow", url="http://x")
    outbox = [Entry(receiver=name, message=FIRED, due=T0) for name in ("slow", "hook")]
    assert deliver(outbox, [slow, WEBHOOK], T0, 60.0, one_by_one).delivered == 2


HTTP = b"HTTP/1.1 200 OK\r\n"
ENDLESS = 200  # pieces of an answer that is larger than anybody reads


def endless(head: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def talk(made: socket.socket) -> None:
        made.sendall(head)
        for _ in range(ENDLESS):
            made.sendall(piece)
        made.recv(65_536)

    return talk


MAIL = Receiver(kind="email", name="m", host="127.0.0.1", tls="none", sender="a@b", to=("c@d",))


@pytest.mark.parametrize(
    ("kind", "talk"),
    [
        ("webhook", lambda made: made.recv(1) and time.sleep(2)),
        ("webhook", dripping(HTTP + b"x-long: ", b"\r\ncontent-length: 0\r\n\r\n")),
        ("webhook", endless(HTTP, b"x-more: " + b"x" * 16_000 + b"\r\n")),
        ("email", lambda made: time.sleep(2)),
        ("email", dripping(b"220 ", b"\r\n")),
        ("email", endless(b"220-a\r\n", b"220-" + b"x" * 4_000 + b"\r\n")),
        ("email", endless(b"220-a\r\n", b"220-\r\n" * 2_000)),
    ],
)
def test_a_receiver_whose_answer_does_not_end_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch, kind: str, talk: Callable[[socket.socket], None]
) -> None:
    monkeypatch.setattr(delivery, "_MOST_S", 0.2)
    with raw(talk) as port:
        web = Receiver(kind="webhook", name="hook", url=f"http://127.0.0.1:{port}")
        receiver = web if kind == "webhook" else dataclasses.replace(MAIL, port=port)
        with pytest.raises(Failed, match="no answer") as raised:
            send(FIRED, receiver, T0, 60.0)
    assert not raised.value.final


def test_of_an_endless_answer_the_status_is_enough() -> None:
    read: list[int] = []

    def talk(made: socket.socket) -> None:
        made.recv(65_536)
        made.sendall(HTTP + b"\r\n")
        try:
            for at in range(1_000_000):
                made.sendall(b"x" * 1_000)
                read.append(at)
        except OSError:
            read.append(-1)

    with raw(talk) as port:
        send(FIRED, Receiver(kind="webhook", name="h", url=f"http://127.0.0.1:{port}"), T0, 60.0)
        until(lambda: read[-1:] == [-1])  # it hung up


class World:
    """A runner in a process that may be killed: its memory is what it noted last."""

    def __init__(self) -> None:
        self.noted, self.sent = "", list[str]()
        self.kill_at_send = 0
        self.wrong = True

    def runner(self) -> Runner:
        settings = AlertSettings(every_s=60.0, resolve_after_s=300.0, receivers=(WEBHOOK,))
        return Runner(
            settings,
            remembered(self.noted),
            look=self.look,
            details=lambda now: (None, "0af7651916cd43dd8448eb211c80319c"),
            note=self.note,
            send=self.send,
        )

    def look(self, now: float) -> Seen:
        wrong = Condition(group="requests", key="a", severity="warning", summary="slow", for_s=0.0)
        return Seen(at=now, conditions=[wrong] if self.wrong else [])

    def note(self, text: str) -> None:
        self.noted = text

    def send(self, message: Message, receiver: Receiver, now: float, alive_s: float) -> None:
        self.kill_at_send -= 1
        if self.kill_at_send == 0:
            raise KeyboardInterrupt  # as a kill: nothing after it runs
        self.sent.append(message.id)


@pytest.mark.parametrize("kill_at", [1, 2])
def test_a_kill_between_noting_and_sending_loses_no_message(kill_at: int) -> None:
    world = World()
    world.kill_at_send = kill_at
    events: list[bool] = [True, True, False, False, False, False, False, False, False, False]
    runner = world.runner()
    for minute, wrong in enumerate(events):
        world.wrong = wrong
        try:
            runner.tick(T0 + 60 * minute)
        except KeyboardInterrupt:
            runner = world.runner()
            runner.send_due(T0 + 60 * minute + 1)
    kinds = [name.split("-")[3] for name in world.sent]
    assert kinds == ["fired", "resolved"]
    assert remembered(world.noted).outbox == []


def test_a_memory_of_another_version_begins_again() -> None:
    assert remembered('{"state": 7}') == Memory()
    assert remembered(None) == Memory()


def _settings(folder: Path, url: str) -> Path:
    path = folder / "overrun.toml"
    path.write_text(
        f"""
[slo]
e2e = 1000
[alerts]
every = "1s"
resolve_after = "5s"
link = "http://dash.example:8501"
[[alerts.receivers]]
kind = "webhook"
name = "hook"
url = "{url}"
[scrape]
interval_s = 0.5
urls = ["http://127.0.0.1:9/metrics"]
"""
    )
    return path


def test_a_server_that_is_killed_sends_what_it_noted(
    tmp_path: Path, start_server: StartServer
) -> None:
    """The receiver is away while an incident is noted; the server is killed, and its successor sends the message."""
    import msgspec

    from overrun.analysis.front.alerts.runner import KEY
    from overrun.collector.store.database import open_store, set_meta

    away = True

    def respond(asked: Asked) -> Answer:
        return (503, {}, b"") if away else answer({})

    db = tmp_path / "x.db"
    entry = Entry(receiver="hook", message=FIRED, due=0.0)
    fired = msgspec.structs.replace(FIRED, at=time.time())
    store = open_store(db, create=True)
    note = msgspec.json.encode(Memory(outbox=[msgspec.structs.replace(entry, message=fired)]))
    set_meta(store.connection, KEY, note.decode())
    store.close()
    with serving(respond) as hook:
        config = _settings(tmp_path, hook.url)
        ports = ("--grpc-port", "0", "--http-port", "0", "--config", str(config))
        first: ServerProcess = start_server(db, *ports)
        until(lambda: hook.asked)
        first.kill()
        away, before = False, len(hook.asked)
        start_server(db, *ports)
        until(lambda: len(hook.asked) > before)
    event = hook.asked[-1].document
    assert event["type"] == "dev.overrun.incident.fired"
    assert event["data"]["trace_id"] == FIRED.trace_id
