"""What happens when four times as much comes as can be stored? Refusals with a time to come again, flat memory, and recovery without a restart.

Measures what the server stores in a closed loop, then offers four times that at a steady pace, come what may. Memory is read every second, and /healthz is
asked all the time. With `--bombs` others send bodies of 8 kB meanwhile that are nothing but empty records (hardening.py). When the load ends, the time until
the server is ready and takes a body at once is measured; then it is stopped and every acknowledged span looked up.

    python -m tests.benchmarks.overload                # two minutes of overload
    python -m tests.benchmarks.overload --bombs        # with small bodies that become millions of records
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from tests.benchmarks import hardening, results
from tests.benchmarks.ingest import quantile
from tests.benchmarks.payload import SPANS_PER_BODY, make
from tests.benchmarks.sent import Found, Template, compare
from tests.benchmarks.sent import known as known_spans
from tests.conftest import ServerProcess

FACTOR = 4
# Each waits for its answer: enough to fill the queue (16 MiB, 80 bodies) five times over.
CONNECTIONS = 400
HEADERS = {"content-type": "application/x-protobuf"}
BOMBERS = 4


class Bodies:
    """Endless bodies: a few made ones, whose trace ids and response ids begin otherwise each time around (an id that returns would join all its traces)."""

    def __init__(self, bodies: int = 200) -> None:
        made = make(bodies * SPANS_PER_BODY, end_ns=time.time_ns()).bodies
        self._templates = [Template(b.data) for b in made if b.spans == SPANS_PER_BODY]

    def __call__(self, at: int) -> bytes:
        around, which = divmod(at, len(self._templates))
        return self._templates[which].body(around + 1)

    def sent(self, numbers: Iterable[int]) -> Iterator[pa.Table]:
        """The spans of these bodies, as their sender knows them."""
        for number in numbers:
            around, which = divmod(number, len(self._templates))
            yield self._templates[which].sent([around + 1])


@dataclass(frozen=True)
class Answers:
    """What a client process heard: which bodies were acknowledged, how many refused, refusals without a time to come again, and other answers; and which
    bodies had no last word."""

    acknowledged: list[int]
    unsure: list[int]
    refused: int
    without_hint: int
    other: int


async def offer(
    address: str, bodies: Bodies, first: int, per_s: float | None, seconds: float, connections: int
) -> Answers:
    """Send bodies for so many seconds, `per_s` a second at even distances (as fast as they are answered, if None), from number `first` on.

    A body that was refused is sent again with the next turn of its connection, so that only what is acknowledged costs this process a new one.
    """
    host, port = address.split(":")
    counts = {"refused": 0, "without_hint": 0, "other": 0}
    acknowledged: list[int] = []
    unsure: list[int] = []
    numbers, turns = itertools.count(first), itertools.count()
    started = time.monotonic()

    async def lane() -> None:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        number = next(numbers)
        body = bodies(number)
        while True:
            if per_s is not None:
                await asyncio.sleep(max(started + next(turns) / per_s - time.monotonic(), 0))
            if time.monotonic() - started > seconds:
                break
            writer.write(
                b"POST /v1/traces HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
                % len(body)
            )
            writer.write(body)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.split(b"content-length:")[1].split()[0]))
            kind = {b"200": "acknowledged", b"503": "refused"}.get(head[9:12], "other")
            if kind != "acknowledged":
                counts[kind] += 1
            counts["without_hint"] += kind == "refused" and b"retry-after:" not in head
            if kind == "acknowledged":
                acknowledged.append(number)
                number = next(numbers)
                body = bodies(number)
            if b"connection: close" in head:
                writer.close()
                reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
        unsure.append(number)
        writer.close()

    await asyncio.gather(*(lane() for _ in range(connections)))
    return Answers(acknowledged, unsure, **counts)


def _offer_into(queue: Any, *arguments: Any) -> None:
    queue.put(asyncio.run(offer(*arguments)))


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Beside:
    """What goes on beside the load: /healthz is asked ten times a second, and bombs are sent."""

    def __init__(self, address: str, bombs: int) -> None:
        self.healthz_s: list[float] = []
        self.bombs: Counter[str] = Counter()
        self._address = address
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask)]
        self._threads += [threading.Thread(target=self._bomb, args=(n,)) for n in range(bombs)]

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        while not self._over.wait(0.1):
            self.healthz_s.append(hardening.healthz_s(self._address))

    def _bomb(self, number: int) -> None:
        kinds = list(hardening.BOMBS.values())[number::BOMBERS]
        bodies = [(kind, gzip.compress(hardening.bomb(path), 9)) for kind, path in kinds]
        for kind, body in itertools.cycle(bodies):
            answer = hardening.send(self._address, kind, body, content_encoding="gzip")
            self.bombs[answer] += 1
            if self._over.wait(0.05):
                return


@dataclass(frozen=True)
class Result:
    """What one run showed."""

    capacity: float
    offered: float
    answers: Answers
    rss: list[float]
    ready_after_s: float
    found: Found
    healthz_s: list[float]
    bombs: Counter[str]

    @property
    def healthz_p99_s(self) -> float:
        """What 99 of 100 answers of /healthz took at most."""
        return quantile(sorted(self.healthz_s), 0.99)


def run(seconds: float, measure_s: float, db: Path, *, bombs: bool = False) -> Result:
    """One server through measuring, overload and recovery."""
    server = ServerProcess(db)
    spawn = multiprocessing.get_context("spawn")
    try:
        bodies = Bodies()
        begun = time.monotonic()
        known = asyncio.run(offer(server.address, bodies, 0, None, measure_s, 16))
        capacity = len(known.acknowledged) / (time.monotonic() - begun)
        per_s = FACTOR * capacity
        queue = spawn.SimpleQueue()
        client = spawn.Process(
            target=_offer_into,
            args=(queue, server.address, bodies, 10**6, per_s, seconds, CONNECTIONS),
        )
        begun = time.monotonic()
        client.start()
        rss = []
        with Beside(server.address, BOMBERS * bombs) as beside:
            while client.is_alive() and queue.empty():
                rss.append(rss_mib(server.process.pid))
                time.sleep(1.0)
        heard: Answers = queue.get()
        client.join()
        took_s = time.monotonic() - begun
        last = make(SPANS_PER_BODY, end_ns=time.time_ns(), seed=3).bodies[0].data
        ready_after_s = _recovered(server, last)
        rss.append(rss_mib(server.process.pid))
        assert server.stop() == 0
    finally:
        if server.process.poll() is None:
            server.kill()
    sent = len(heard.acknowledged) + heard.refused + heard.other
    acknowledged = [*bodies.sent([*known.acknowledged, *heard.acknowledged]), known_spans(last)]
    found = compare(db, acknowledged, bodies.sent([*known.unsure, *heard.unsure]))
    return Result(
        capacity * SPANS_PER_BODY,
        sent / took_s * SPANS_PER_BODY,
        heard,
        rss,
        ready_after_s,
        found,
        beside.healthz_s,
        beside.bombs,
    )


def _recovered(server: ServerProcess, body: bytes) -> float:
    """Seconds until it is ready and takes a body."""
    started = time.monotonic()
    while True:
        ready = (
            httpx.get(
                f"{server.http}/readyz", trust_env=False, verify=False, timeout=60
            ).status_code
            == 200
        )
        if (
            ready
            and httpx.post(
                f"{server.http}/v1/traces",
                content=body,
                headers=HEADERS,
                trust_env=False,
                verify=False,
                timeout=60,
            ).status_code
            == 200
        ):
            return time.monotonic() - started
        time.sleep(0.05)


def _bombs(found: Result) -> str:
    answers = ", ".join(f"{n} x {answer}" for answer, n in found.bombs.most_common())
    return f", beside {found.bombs.total()} bombs of 16 MiB inflated ({answers})" if answers else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--bombs", action="store_true", help="send bodies of empty records beside")
    results.add_write_flag(parser)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="overrun-overload-") as name:
        found = run(chosen.seconds, 8.0, Path(name) / "t.db", bombs=chosen.bombs)
    third = len(found.rss) // 3
    print(
        "| stored, closed loop (spans/s) | offered (spans/s) | for | acknowledged | refused | refused without a time to come again | other answers "
        "| RSS first / middle / last third (MB, highest) | ready again after | acknowledged and lost / changed / doubled |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    thirds = " / ".join(
        f"{max(part):.0f}"
        for part in (
            found.rss[: third or 1],
            found.rss[third : 2 * third] or found.rss,
            found.rss[2 * third :],
        )
    )
    if chosen.write:
        figure = partial(
            results.measured,
            script="make bench-overload",
            conditions=f"{found.offered:,.0f} spans/s offered for {chosen.seconds:.0f} s{_bombs(found)}",
        )
        highest = dict(zip(("first", "middle", "last"), map(int, thirds.split(" / ")), strict=True))
        first = highest.pop("first")
        mark = " and item bombs" if chosen.bombs else ""
        results.record(
            "overload",
            [
                figure(
                    f"/healthz under overload{mark}, P99",
                    round(found.healthz_p99_s, 2),
                    "s",
                    more={"answers": len(found.healthz_s)},
                ),
                figure(
                    f"Memory of the server, highest of each third: {CONNECTIONS} connections{mark}",
                    first,
                    "MB",
                    more=highest,
                ),
                figure(
                    f"Refused bodies without a time to come again{mark}",
                    found.answers.without_hint,
                    "bodies",
                    of=found.answers.refused,
                ),
                figure(f"Acknowledged spans lost{mark}", found.found.lost, "spans"),
                figure(
                    f"Ready again after the load ends{mark}", round(found.ready_after_s, 1), "s"
                ),
            ],
        )
    answers = found.answers
    held = found.found
    print(
        f"| {found.capacity:,.0f} | {found.offered:,.0f} | {chosen.seconds:.0f} s | {len(answers.acknowledged):,} | {answers.refused:,} "
        f"| {answers.without_hint} | {answers.other} | {thirds} | {found.ready_after_s:.1f} s | {held.lost} / {held.changed} / {held.doubled} |"
    )
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; /healthz P99 {found.healthz_p99_s:.2f} s{_bombs(found)}"
    )
    return int(bool(answers.without_hint or answers.other or not held.right))


if __name__ == "__main__":
    sys.exit(main())
