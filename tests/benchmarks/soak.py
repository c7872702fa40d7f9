"""Does a server stand an hour of what happens? A steady load with readers; meanwhile it is restarted and killed, its disk is full and its clock jumps.

Four senders, half over HTTP and half over gRPC, send at a steady pace and repeat what they have no answer for; two readers ask for reports. In the first
part of the time the server is stopped (SIGTERM), killed (kill -9), cannot write to its files (RLIMIT_FSIZE, from outside), and its wall clock is a month
ahead (soak_server.py); the rest it is left alone, and the slope of its memory and file is taken from there. Afterwards every acknowledged span is looked up.

    python -m tests.benchmarks.soak                     # an hour at 1,000 spans/s
    python -m tests.benchmarks.soak --seconds 60
"""

from __future__ import annotations

import argparse
import random
import resource
import shlex
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.hardening import rss_mib
from tests.benchmarks.ingest import Server, wait_assembled
from tests.benchmarks.integrity import SENDERS, read
from tests.benchmarks.payload import make
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.benchmarks.sent import Found, Template, compare

BODY: Final = 50  # spans
LANES: Final = ("http", "grpc", "http", "grpc")
READERS: Final = 2
# What a reader asks about, and how long it rests after an answer. A window that grows with the run would hide in the slope of memory whether anything leaks.
SINCE: Final = "10m"
REST_S: Final = 10.0
MONTH_NS: Final = 31 * 86_400 * 10**9  # as long as telemetry is kept, and a day
FRESH_S: Final = 60.0  # after which bodies are made anew, so that their spans are of today
# When each thing happens, as a share of the time, and how long the last two last.
TERM_AT, KILL_AT, FULL_AT, JUMP_AT = 0.1, 0.2, 0.3, 0.4
LEAST_REST: Final = 0.4  # of the time it is left alone, however long the rest took
LASTS: Final = 0.05
SETTINGS: Final = "[retention]\nmax_age_days = 30\ncheck_s = 1\n"


@dataclass
class Sent:
    """What the senders know."""

    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    unsure: list[tuple[int, int]] = field(default_factory=list)
    refusals: int = 0
    broken: int = 0
    templates: list[Template] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Sample:
    """The server at a moment: seconds since the begin, resident MiB, bytes of its file and log, spans acknowledged so far."""

    at_s: float
    rss_mib: float
    file_bytes: int
    spans: int


@dataclass
class Soaked:
    """What a run showed."""

    seconds: float
    sent: Sent
    found: Found
    samples: list[Sample]
    rest_from_s: float
    refused_while_full: int
    restarts: int
    said: str
    stopped_with: int


class Soak:
    """A server that is restarted on the same ports, with its clock and its senders."""

    def __init__(self, folder: Path, rate: float, seconds: float) -> None:
        self.folder = folder
        self.clock = folder / "clock"
        (folder / "overrun.toml").write_text(SETTINGS, encoding="utf-8")
        self._ports = free_ports(2)
        self._rate, self._seconds = rate, seconds
        self.sent = Sent(templates=[fresh(0)])
        self.samples: list[Sample] = []
        self.said: list[str] = []
        self.restarts = 0
        self.rest_from_s = 0.0
        self.began = 0.0
        self._over = threading.Event()
        self.server = self._started()

    def _started(self) -> Server:
        grpc, http = self._ports
        command = (
            sys.executable,
            *("-m", "tests.benchmarks.soak_server", str(self.clock), "serve"),
            *("--db", "{db}", "--config", str(self.folder / "overrun.toml")),
            *("--grpc-port", str(grpc), "--http-port", str(http)),
        )
        return Server(shlex.join(command), self.folder)

    def restart(self, how: signal.Signals) -> None:
        """End the server and start it on the same file and ports."""
        self.server.stop(how)
        self.said.append(self.server.log.read_text(errors="replace"))
        self.server = self._started()
        self.restarts += 1

    def wait(self, share: float) -> None:
        """Until that share of the time has gone, sampling on the way."""
        every_s = min(10.0, self._seconds / 20)
        until = self.began + share * self._seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(every_s, left))
            files = (self.server.db, self.server.db.with_name(f"{self.server.db.name}.wal"))
            size = sum(path.stat().st_size for path in files if path.exists())
            spans = len(self.sent.acknowledged) * BODY
            at_s = time.monotonic() - self.began
            self.samples.append(
                Sample(at_s, rss_mib(self.server.process.pid, "VmRSS"), size, spans)
            )
            print(self.samples[-1], flush=True)

    def progress(self, bodies: int = 8, patience_s: float = 300.0) -> None:
        """Until so many more bodies are acknowledged, however slow the machine is."""
        wanted = len(self.sent.acknowledged) + bodies
        until = time.monotonic() + patience_s
        while len(self.sent.acknowledged) < wanted:
            assert time.monotonic() < until, (
                f"no {bodies} bodies were acknowledged for {patience_s:g} s"
            )
            time.sleep(0.02)

    def full_disk(self) -> int:
        """No file may grow for a while; the number of refusals meanwhile."""
        before = self.sent.refusals
        pid = self.server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (65_536, hard))
        until = time.monotonic() + 60
        time.sleep(LASTS * self._seconds)
        while self.sent.refusals == before and time.monotonic() < until:
            time.sleep(0.05)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        return self.sent.refusals - before

    def lane(self, number: int) -> None:
        """One sender at its share of the pace; what has no answer is sent again."""
        protocol = LANES[number % len(LANES)]
        sender = SENDERS[protocol](self.server.addresses[protocol])
        dice = random.Random(number)
        every_s = BODY * len(LANES) / self._rate
        due = time.monotonic() + number / len(LANES) * every_s
        waiting: tuple[int, int] | None = None
        while not self._over.is_set():
            if waiting is None:
                time.sleep(max(0.0, due - time.monotonic()))
                due += every_s
                waiting = len(self.sent.templates) - 1, dice.getrandbits(63) | 1
            body = self.sent.templates[waiting[0]].body(waiting[1])
            answer = sender.send(body, packed=False)
            with self.sent.lock:
                if answer:
                    self.sent.acknowledged.append(waiting)
                    waiting = None
                    continue
                self.sent.refusals += answer is False
                self.sent.broken += answer is None
            self._over.wait(0.2)
        sender.close()
        if waiting is not None:
            self.sent.unsure.append(waiting)

    def refresh(self) -> None:
        """Bodies whose spans are of this minute, from time to time."""
        number = 0
        while not self._over.wait(FRESH_S):
            number += 1
            self.sent.templates.append(fresh(number))

    def reader(self) -> None:
        """Reports all the time; a server that is away is asked again."""
        while not self._over.wait(1.0):
            address = self.server.addresses["http"]
            read(address, self._over, since=SINCE, every_s=REST_S)

    def run(self) -> tuple[int, int]:
        """The whole course: refusals while the disk was full, and how the server ended."""
        self.began = time.monotonic()
        work: list[Callable[[], None]] = [self.refresh, *[self.reader] * READERS]
        threads = [threading.Thread(target=one) for one in work]
        threads += [threading.Thread(target=self.lane, args=(n,)) for n in range(len(LANES))]
        for thread in threads:
            thread.start()
        try:
            self.wait(TERM_AT)
            self.progress()
            self.restart(signal.SIGTERM)
            self.wait(KILL_AT)
            self.progress()
            self.restart(signal.SIGKILL)
            self.wait(FULL_AT)
            self.progress()
            refused = self.full_disk()
            self.wait(JUMP_AT)
            self.progress()
            self.clock.write_text(str(MONTH_NS), encoding="ascii")
            self.wait(JUMP_AT + LASTS)
            self.progress()
            time.sleep(2.5)  # the server looks every second
            self.clock.write_text("0", encoding="ascii")
            self.rest_from_s = time.monotonic() - self.began
            self.wait(max(1.0, self.rest_from_s / self._seconds + LEAST_REST))
        finally:
            self._over.set()
            for thread in threads:
                thread.join(120)
            wait_assembled(f"http://{self.server.addresses['http']}", 60.0)
            self.server.stop(signal.SIGTERM)
        self.said.append(self.server.log.read_text(errors="replace"))
        return refused, self.server.process.returncode


def fresh(seed: int) -> Template:
    """A body whose spans end now."""
    made = make(BODY, end_ns=time.time_ns(), seed=seed, spans_per_body=BODY)
    return Template(made.bodies[0].data)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def run(folder: Path, seconds: float, rate: float) -> Soaked:
    """One soak, and what its file holds."""
    soak = Soak(folder, rate, seconds)
    refused, stopped_with = soak.run()
    found = compare(
        soak.server.db,
        _tables(soak.sent, soak.sent.acknowledged),
        _tables(soak.sent, soak.sent.unsure),
    )
    return Soaked(
        seconds,
        soak.sent,
        found,
        soak.samples,
        soak.rest_from_s,
        refused,
        soak.restarts,
        "\n".join(soak.said),
        stopped_with,
    )


def _tables(sent: Sent, which: Sequence[tuple[int, int]]) -> list[Any]:
    masks: dict[int, list[int]] = defaultdict(list)
    for template, mask in which:
        masks[template].append(mask)
    return [sent.templates[template].sent(of) for template, of in masks.items()]


def slope_an_hour(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Least squares."""
    return float(np.polyfit([s.at_s / 3600 for s in samples], [value(s) for s in samples], 1)[0])


def figures(soaked: Soaked, rate: float) -> list[Figure]:
    """The headlines for docs/results."""
    rest = [s for s in soaked.samples if s.at_s > soaked.rest_from_s]
    spans = len(soaked.sent.acknowledged) * BODY
    conditions = (
        f"{soaked.seconds / 60:.0f} min, {rate:,.0f} spans/s over HTTP and gRPC offered, {spans / soaked.seconds:,.0f} acknowledged ({spans:,} in all), "
        f"two readers of the last {SINCE}, SIGTERM, kill -9, {soaked.refused_while_full} bodies refused while no file could grow, "
        f"clock 31 days ahead for {LASTS * soaked.seconds:.0f} s; on cores that others used"
    )
    grown = (rest[-1].file_bytes - rest[0].file_bytes) / max(1, rest[-1].spans - rest[0].spans)
    rows: list[tuple[str, float, str]] = [
        ("Acknowledged spans lost", soaked.found.lost, "spans"),
        ("Spans stored with another value", soaked.found.changed, "spans"),
        ("Spans stored twice", soaked.found.doubled, "spans"),
        ("Memory of the server, highest", round(max(s.rss_mib for s in soaked.samples)), "MiB"),
        (
            "Memory of the server, slope over the undisturbed half",
            round(slope_an_hour(rest, lambda s: s.rss_mib), 1),
            "MiB an hour",
        ),
        (
            "File, slope over the undisturbed half",
            round(slope_an_hour(rest, lambda s: s.file_bytes / 1e6), 1),
            "MB an hour",
        ),
        ("File, growth over the undisturbed half", round(grown), "B a span"),
    ]
    return [
        measured(f"Soak: {what}", value, unit, script="make bench-soak", conditions=conditions)
        for what, value, unit in rows
    ]


def tracebacks(said: str) -> Counter[str]:
    """The last lines of the tracebacks in a log."""
    found: Counter[str] = Counter()
    inside = False
    for line in said.splitlines():
        if line.startswith("Traceback"):
            inside = True
        elif inside and not line.startswith(" "):
            found[line[:300]] += 1
            inside = False
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="spans a second")
    add_write_flag(parser)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="overrun-soak-") as folder:
        soaked = run(Path(folder), chosen.seconds, chosen.rate)
    for figure in figures(soaked, chosen.rate):
        print(f"{figure.what}: {figure.value} {figure.unit}")
    print(
        f"{soaked.found}, {soaked.sent.refusals} refusals, {soaked.sent.broken} without an answer, ended with {soaked.stopped_with}, "
        f"{soaked.said.count('Traceback')} tracebacks"
    )
    for what, n in tracebacks(soaked.said).most_common(8):
        print(f"{n} x {what}")
    if chosen.write:
        record("soak", figures(soaked, chosen.rate))
    return int(not soaked.found.right or soaked.stopped_with != 0)


if __name__ == "__main__":
    sys.exit(main())
