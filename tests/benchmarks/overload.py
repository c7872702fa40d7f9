"""What happens when four times as much comes as can be stored? Refusals with a time to come again, flat memory, and recovery without a restart.

Measures what the server stores in a closed loop, then offers four times that at a steady pace, come what may. Memory is read every second. When the
load ends, the time until the server is ready and takes a body at once is measured; then it is stopped and every acknowledged span counted.

    python -m tests.benchmarks.overload                # two minutes of overload
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from tests.benchmarks import results
from tests.benchmarks.payload import SPANS_PER_BODY, make
from tests.benchmarks.sent import Found, Template, compare
from tests.benchmarks.sent import known as known_spans
from tests.conftest import ServerProcess

FACTOR = 4
# Each waits for its answer: enough to fill the queue (16 MiB, 80 bodies) five times over.
CONNECTIONS = 400
HEADERS = {"content-type": "application/x-protobuf"}


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
                b"POST /v1/traces HTTP/1.1\r\nhost: bench\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
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


@dataclass(frozen=True)
class Result:
    """What one run showed."""

    capacity: float
    offered: float
    answers: Answers
    rss: list[float]
    ready_after_s: float
    found: Found


def run(seconds: float, measure_s: float, db: Path) -> Result:
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
        capacity * SPANS_PER_BODY, sent / took_s * SPANS_PER_BODY, heard, rss, ready_after_s, found
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    results.add_write_flag(parser)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="overrun-overload-") as name:
        found = run(chosen.seconds, 8.0, Path(name) / "t.db")
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
            conditions=f"{found.offered:,.0f} spans/s offered for {chosen.seconds:.0f} s",
        )
        highest = dict(zip(("first", "middle", "last"), map(int, thirds.split(" / ")), strict=True))
        first = highest.pop("first")
        results.record(
            "overload",
            [
                figure(
                    f"Memory of the server, highest of each third: {CONNECTIONS} connections",
                    first,
                    "MB",
                    more=highest,
                ),
                figure(
                    "Refused bodies without a time to come again",
                    found.answers.without_hint,
                    "bodies",
                    of=found.answers.refused,
                ),
                figure("Acknowledged spans lost", found.found.lost, "spans"),
                figure("Ready again after the load ends", round(found.ready_after_s, 1), "s"),
            ],
        )
    answers = found.answers
    held = found.found
    print(
        f"| {found.capacity:,.0f} | {found.offered:,.0f} | {chosen.seconds:.0f} s | {len(answers.acknowledged):,} | {answers.refused:,} "
        f"| {answers.without_hint} | {answers.other} | {thirds} | {found.ready_after_s:.1f} s | {held.lost} / {held.changed} / {held.doubled} |"
    )
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    return int(bool(answers.without_hint or answers.other or not held.right))


if __name__ == "__main__":
    sys.exit(main())
