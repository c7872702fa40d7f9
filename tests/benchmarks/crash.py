"""Is what was acknowledged there after kill -9, once? Rounds of load, a kill at a random moment, a count of what the file holds.

Senders repeat what they have no answer for, as SDKs do. With `--full` the database lies on a small file system (a tmpfs in a mount namespace of
our own) that fills up: senders must be refused with a time to come again, in half of the rounds space comes back and the same process must take
telemetry again, and then it is killed. Every round ends with a comparison of every span that was ever sent with what the file holds (sent.py).

    python -m tests.benchmarks.crash                # 50 rounds
    python -m tests.benchmarks.crash --full         # 50 rounds on a disk that is full
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pyarrow as pa

from overrun.collector.store.database import open_store
from tests.benchmarks.results import add_write_flag, measured, record
from tests.benchmarks.sent import Found, compare, known
from tests.collector.conftest import PROTOBUF, body, span
from tests.conftest import ServerProcess

SPANS = 40  # of one body
SENDERS = 4
PATIENCE_S = (
    600.0  # of a sender, for an answer: the machine may be busy, and kernels not compiled yet
)
FULL_MIB = 160  # of the small file system
ROOM_MIB = 8  # left on it when it is filled


@dataclass
class Load:
    """What was sent so far: numbers of bodies that are acknowledged, and those that wait to be sent (again)."""

    spans: int = SPANS
    acknowledged: set[int] = field(default_factory=set)
    unsure: deque[int] = field(default_factory=deque)
    refusals: int = 0
    without_hint: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    sending: Callable[[int], object] = lambda number: None  # heard before each attempt
    _known: dict[int, pa.Table] = field(default_factory=dict)

    def body(self, number: int) -> bytes:
        """The body of a number, always the same bytes: one request of some spans."""
        call = span(number, 2, 1, name="chat m", ms=5, attributes={"gen_ai.operation.name": "chat"})
        return body(
            [
                span(number, 1, name="POST /chat", kind=2),
                call,
                *(span(number, i, 1) for i in range(3, self.spans + 1)),
            ]
        )

    def known(self, number: int) -> pa.Table:
        """The spans of the body of a number, as its sender knows them."""
        if number not in self._known:
            self._known[number] = known(self.body(number))
        return self._known[number]

    def send(self, url: str, stop: threading.Event) -> None:
        """One sender: what is unsure first, then new bodies, until the server is gone or `stop` is set."""
        with httpx.Client(
            base_url=url, headers=PROTOBUF, trust_env=False, verify=False, timeout=PATIENCE_S
        ) as client:
            while not stop.is_set():
                with self.lock:
                    number = self.unsure.popleft() if self.unsure else next(self.numbers)
                self.sending(number)
                try:
                    answer = client.post("/v1/traces", content=self.body(number))
                except httpx.HTTPError:
                    with self.lock:
                        self.unsure.append(number)
                    return
                with self.lock:
                    if answer.status_code == 200:
                        self.acknowledged.add(number)
                        continue
                    self.unsure.append(number)
                    self.refusals += 1
                    self.without_hint += (
                        answer.status_code != 503 or "retry-after" not in answer.headers
                    )
                time.sleep(0.02)

    def start(self, url: str, stop: threading.Event) -> list[threading.Thread]:
        """The senders, running."""
        threads = [threading.Thread(target=self.send, args=(url, stop)) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        return threads

    def reached(
        self, acknowledged: int = 0, refusals: int = 0, timeout_s: float = PATIENCE_S
    ) -> bool:
        """Wait until so many bodies were acknowledged and so many refused."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if len(self.acknowledged) >= acknowledged and self.refusals >= refusals:
                return True
            time.sleep(0.002)
        return False


def count(db: Path, load: Load) -> Found:
    """Open the file, as the next start would, and compare it with what was sent."""
    open_store(db, create=False).close()
    acknowledged = list(load.acknowledged)
    return compare(db, map(load.known, acknowledged), map(load.known, load.unsure))


def one_round(db: Path, load: Load, dice: random.Random, most: int) -> None:
    """Start, load, and kill after a random number of acknowledgements."""
    server = ServerProcess(db)
    try:
        stop = threading.Event()
        wanted = len(load.acknowledged) + dice.randint(1, most)
        threads = load.start(server.http, stop)
        assert load.reached(wanted), "the server does not acknowledge"
        time.sleep(dice.random() * 0.05)
    finally:
        server.kill()
    for thread in threads:
        thread.join(PATIENCE_S)


def full_round(db: Path, load: Load, dice: random.Random, most: int) -> None:
    """As `one_round` on a disk that fills up; in half of the rounds space comes back before the kill, and telemetry must be taken again."""
    ballast = db.parent / "ballast"
    server = ServerProcess(db)
    try:
        stop = threading.Event()
        threads = load.start(server.http, stop)
        assert load.reached(len(load.acknowledged) + dice.randint(1, most)), (
            "the server does not acknowledge"
        )
        fill(ballast, ROOM_MIB << 20 if dice.random() < 0.5 else 0)
        assert load.reached(refusals=load.refusals + dice.randint(1, 60)), (
            "a full disk is not refused"
        )
        if dice.random() < 0.5:
            ballast.unlink()
            assert load.reached(len(load.acknowledged) + dice.randint(1, most)), (
                "it does not recover when space comes back"
            )
        time.sleep(dice.random() * 0.05)
    finally:
        server.kill()
    for thread in threads:
        thread.join(PATIENCE_S)


def fill(ballast: Path, leave: int) -> None:
    """Take the room of a file system but for `leave` bytes."""
    with ballast.open("wb") as out:
        while (
            free := os.statvfs(ballast.parent).f_bavail * os.statvfs(ballast.parent).f_frsize
        ) > leave:
            try:
                out.write(bytes(min(1 << 20, free - leave)))
                out.flush()
            except OSError:
                return


def run(
    folder: Path, rounds: int, *, full: bool, seed: int, most: int = 150, spans: int = SPANS
) -> tuple[Load, list[Found]]:
    """All rounds over one file, with a count after each."""
    dice = random.Random(seed)
    load = Load(spans)
    db = folder / "t.db"
    counts = []
    for i in range(rounds):
        (full_round if full else one_round)(db, load, dice, most)
        counts.append(count(db, load))
        (folder / "ballast").unlink(missing_ok=True)
        if full and i % 10 == 9:  # a new file: this one has grown into the room
            load = Load(spans, refusals=load.refusals, without_hint=load.without_hint)
            for name in ("t.db", "t.db.wal"):
                (folder / name).unlink(missing_ok=True)
    return load, counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--full", action="store_true", help="on a disk that is full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    add_write_flag(parser)
    chosen = parser.parse_args(arguments)
    if chosen.full and not chosen.inside:
        # A user namespace gives the right to mount; the file system ends with the process.
        again = [
            sys.executable,
            "-m",
            "tests.benchmarks.crash",
            *(sys.argv[1:] if arguments is None else arguments),
            "--inside",
        ]
        return subprocess.run(
            ["unshare", "--map-root-user", "--mount", *again], check=False
        ).returncode
    with tempfile.TemporaryDirectory(prefix="overrun-crash-") as name:
        if chosen.full:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={FULL_MIB}m", "none", name], check=True
            )
        started = time.monotonic()
        try:
            load, counts = run(
                Path(name),
                chosen.rounds,
                full=chosen.full,
                seed=chosen.seed,
                spans=400 if chosen.full else SPANS,
            )
        finally:
            if chosen.full:
                subprocess.run(["umount", name], check=True)
        took_s = time.monotonic() - started
    lost, changed, doubled = (
        sum(getattr(c, what) for c in counts) for what in ("lost", "changed", "doubled")
    )
    print(
        "| disk | rounds of kill -9 | spans stored | refused | refused without a time to come again | lost | changed | stored twice | took |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    row = [
        ("full" if chosen.full else "with room"),
        len(counts),
        max(c.stored for c in counts),
        load.refusals,
        load.without_hint,
        lost,
        changed,
        doubled,
    ]
    print("| " + " | ".join(map(str, row)) + f" | {took_s:.0f} s |")
    if chosen.write:
        disk = "full disk" if chosen.full else "disk with room"
        conditions = f"{len(counts)} rounds of kill -9, seed {chosen.seed}"
        headlines = {
            f"Acknowledged spans lost: {disk}": lost,
            f"Spans stored twice: {disk}": doubled,
        }
        record(
            "durability",
            [
                measured(what, value, "spans", script="make bench-crash", conditions=conditions)
                for what, value in headlines.items()
            ],
        )
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {load.spans} spans a body, {SENDERS} senders, seed {chosen.seed}"
    )
    return int(bool(not all(c.right for c in counts) or load.without_hint))


if __name__ == "__main__":
    sys.exit(main())
