"""Does a lake hold what it acknowledges, whatever is killed, and what does it cost? Real PostgreSQL, real object store, real servers, real OTLP over loopback.

`--rounds N`: four collectors, two assemblers, two readers and a maintainer over an object store; in each round one of them is killed with -9 and started again,
twice PostgreSQL is stopped hard.
`--twice N`: each of N bodies goes to two collectors at once. `--speed`: spans per CPU-second with one, two and four collectors. Runs with the lake's Python:
`.venv/lake/bin/python -m tests.benchmarks.lake`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.lifecycle.lake_status import compact
from tests.benchmarks import lake_answers, lake_faults, payload, results
from tests.benchmarks.dashboard import cpu_s
from tests.benchmarks.lake_running import BODY_SPANS, SPANS, asked, bodies, compared, reading
from tests.conftest import ServerProcess
from tests.lake.object_store import BUCKET, ObjectStore, Proxy
from tests.lake.postgres import Postgres
from tests.lake.processes import Lake, post, send

SCRIPT = "make bench-lake"
_FAULTS = ("objects", "sleep", "deleting", "hour")
COLLECTORS, ASSEMBLERS, READERS, MAINTAINERS = 4, 2, 2, 1
_SENDERS = 4


class Watch(threading.Thread):
    """Reads the lake all the time: each answer must hold whole commits, and never less than the one before."""

    def __init__(self, reader: LakePipeline) -> None:
        super().__init__(daemon=True)
        self._reader, self._ended = reader, threading.Event()
        self.reads = self.torn = self.failed = 0

    def run(self) -> None:
        """Until `stop`."""
        last = (0, 0)
        while not self._ended.wait(0.2):
            try:
                [(spans, told, requests)] = asked(
                    self._reader,
                    "select (select count(*) from spans), (select coalesce(sum(spans), 0) from batches), (select count(*) from v_requests)",
                )
            except Exception:  # PostgreSQL was stopped
                self.failed += 1
                continue
            self.reads += 1
            if spans != told or (spans, requests) < last:
                self.torn += 1
                print("torn:", last, spans, told, requests, flush=True)
            last = (spans, requests)

    def stop(self) -> None:
        """End."""
        self._ended.set()
        self.join()


class Sending:
    """Senders that go on until `stop`, each body until a collector says that it is stored; `acked` has them."""

    def __init__(self, servers: Sequence[ServerProcess], pause_s: float) -> None:
        self.acked: list[bytes] = []
        self.spans = self.tries = 0
        self._servers, self._pause_s = servers, pause_s
        self._bodies, self._lock, self._stop = bodies(), threading.Lock(), threading.Event()
        self._pool = ThreadPoolExecutor(_SENDERS)
        self._running = [self._pool.submit(self._send, i) for i in range(_SENDERS)]

    def _send(self, first: int) -> None:
        for at in itertools.count(first):
            if self._stop.wait(self._pause_s):
                return
            with self._lock:
                body = next(self._bodies)
            tries = send(self._servers, body.data, at, within_s=180)
            with self._lock:
                self.acked.append(body.data)
                self.spans += body.spans
                self.tries += tries

    def stop(self) -> None:
        """Once every body that was begun is stored."""
        self._stop.set()
        for one in self._running:
            one.result()
        self._pool.shutdown()


def rounds(lake: Lake, postgres: Postgres, n: int) -> dict[str, float]:
    """Kill one process after the other while senders send; what became of the telemetry."""
    chance = random.Random(n)
    roles = ["collector"] * COLLECTORS + ["assembler"] * ASSEMBLERS + ["reader"] * READERS
    roles += ["maintainer"] * MAINTAINERS
    with ThreadPoolExecutor(4) as pool:
        servers = [lake.start(roles[0]), *pool.map(lake.start, roles[1:])]
    collectors = servers[:COLLECTORS]
    with reading(lake) as reader:
        watch = Watch(reader)
        watch.start()
        sending = Sending(collectors, 0.1)
        for at in range(n):
            time.sleep(chance.uniform(0.2, 2.0))
            which = chance.randrange(len(servers))
            servers[which].kill()
            if at in (n // 3, 2 * n // 3):
                postgres.stop_hard()
                time.sleep(chance.uniform(0.2, 2.0))
                postgres.start()
            servers[which] = lake.start(roles[which])
            if which < COLLECTORS:
                collectors[which] = servers[which]
            print(f"round {at + 1}: {roles[which]}, {len(sending.acked)} bodies", flush=True)
        sending.stop()
        watch.stop()
        [(stored, distinct)] = asked(reader, SPANS)
        found = {"rounds": n, "bodies": len(sending.acked), "tries": sending.tries, "spans": sending.spans}  # fmt: skip
        found |= {"lost": sending.spans - distinct, "doubled": stored - distinct}
        found |= {"reads": watch.reads, "torn": watch.torn, "reads that failed": watch.failed}
        return found | compared(reader, sending.acked)


def twice(lake: Lake, n: int) -> dict[str, float]:
    """Each body to two collectors at the same moment."""
    pair = [lake.start("collector"), lake.start("collector")]
    with reading(lake) as reader:
        [(before, _)] = asked(reader, SPANS)
        sent = payload.make(n * 10, end_ns=time.time_ns(), seed=99, spans_per_body=10).bodies[:n]

        def both(body: payload.Body) -> bool:
            with ThreadPoolExecutor(2) as pool:
                return [*pool.map(lambda s: post(s.http, body.data), pair)] == [200, 200]

        with ThreadPoolExecutor(16) as pool:
            answered = sum(pool.map(both, sent))
        [(after, _)] = asked(reader, SPANS)
    for server in pair:
        server.stop()
    return {
        "bodies": n,
        "both answered": answered,
        "spans too many": after - before - sum(body.spans for body in sent),
    }


def speed(lake: Lake, n: int, spans: int = 81_920) -> dict[str, float]:
    """Spans per CPU-second of `n` collectors, 16 bodies of 512 spans in flight at each; acknowledgements in ms."""
    servers = [lake.start("collector") for _ in range(n)]
    sent = payload.make(spans, end_ns=time.time_ns(), seed=1_000 + n).bodies
    for server in servers:
        warm = payload.make(5_000, end_ns=time.time_ns(), seed=random.randrange(1 << 30)).bodies
        for body in warm:
            send([server], body.data)
    began = [cpu_s(server.process.pid) for server in servers]
    took_ms: list[float] = []

    def one(at: int) -> None:
        start = time.monotonic()
        send(servers, sent[at].data, at)
        took_ms.append(1e3 * (time.monotonic() - start))

    with ThreadPoolExecutor(16 * n) as pool:
        list(pool.map(one, range(len(sent))))
    used = sum(cpu_s(s.process.pid) - b for s, b in zip(servers, began, strict=True))
    commits = sum(_counter(server, "overrun_commits_total") for server in servers)
    for server in servers:
        server.stop()
    took_ms.sort()
    with reading(lake) as reader:
        [(stored, _)] = asked(reader, SPANS)
        before = reader.lake.used_bytes() / stored
        compact(reader.lake)
        after = reader.lake.used_bytes() / stored
    return {
        "spans per CPU-second": round(sum(body.spans for body in sent) / used),
        "bytes a span": round(before),
        "merged": round(after),
        "commits": commits,
        "P50, ms": round(took_ms[len(took_ms) // 2]),
        "P99, ms": round(took_ms[int(0.99 * len(took_ms))]),
    }


def _counter(server: ServerProcess, name: str) -> int:
    with urllib.request.urlopen(f"{server.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--twice", type=int, default=1_000)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--faults", nargs="*", choices=_FAULTS, default=[])
    results.add_write_flag(parser)
    asked_for = parser.parse_args()
    postgres, objects = Postgres(sync=True), ObjectStore()
    os.environ.update(objects.environment())  # what this process reads, too
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            if asked_for.rounds:
                lake = Lake(
                    postgres,
                    "rounds",
                    _made(Path(folder) / "rounds"),
                    f"s3://{BUCKET}/rounds",
                    {**objects.environment(), "OVERRUN_CHECK_S": "3"},
                )
                found = rounds(lake, postgres, asked_for.rounds)
                lake.stop()
                print(json.dumps(found), flush=True)
                figures += _of_rounds(found)
            if asked_for.twice:
                lake = Lake(postgres, "twice", _made(Path(folder) / "twice"))
                found = twice(lake, asked_for.twice)
                print(json.dumps(found), flush=True)
                figures += _of_twice(found)
            figures += _faults(postgres, objects, Path(folder), asked_for.faults)
            if asked_for.answers:
                figures += _answers(postgres, objects, _made(Path(folder) / "answers"))
            for n in (1, 2, 4) if asked_for.speed else ():
                lake = Lake(
                    postgres,
                    f"speed{n}",
                    _made(Path(folder) / f"speed{n}"),
                    f"s3://{BUCKET}/speed{n}",
                    objects.environment(),
                )
                found = speed(lake, n)
                print(n, json.dumps(found), flush=True)
                figures += _of_speed(n, found)
        finally:
            postgres.close()
            objects.close()
    if asked_for.write:
        results.record("lake", figures)


def _faults(
    postgres: Postgres, objects: ObjectStore, folder: Path, wanted: Sequence[str]
) -> list[results.Figure]:
    figures = []
    for name in wanted:
        proxy = Proxy(objects.port)
        environment = {
            **objects.environment(proxy.port),
            "OVERRUN_CHECK_S": "5",
            "OVERRUN_QUIET_S": "0.5",
        }
        lake = Lake(postgres, name, _made(folder / name), f"s3://{BUCKET}/{name}", environment)
        try:
            if name == "objects":
                figures += lake_faults.objects_fail(lake, objects, proxy)
            elif name == "sleep":
                figures += lake_faults.assembler_sleeps(lake)
            elif name == "deleting":
                figures += lake_faults.deleting(lake)
            else:
                figures += lake_faults.an_hour(lake, objects)
        finally:
            lake.stop()
            proxy.close()
        for figure in figures[-3:]:
            print(figure.what, figure.value, figure.more, flush=True)
    return figures


def _answers(postgres: Postgres, objects: ObjectStore, folder: Path) -> list[results.Figure]:
    """The same rows in a file of DuckDB 2, which another Python has, in one of this DuckDB, and in a lake; each step in a process of its own."""
    address = Lake(postgres, "answers", folder).address
    two = Path(sys.prefix).parent / "bin" / "python"
    for step in (
        [str(two), "--make", str(folder)],
        [sys.executable, "--ask", str(folder), "--store", address],
    ):
        command = [step[0], "-m", "tests.benchmarks.lake_answers", *step[1:]]
        subprocess.run(command, check=True, cwd=results.ROOT)
    figures = lake_answers.compare(folder)
    lake = Lake(
        postgres, "fresh", _made(folder / "fresh"), f"s3://{BUCKET}/fresh", objects.environment()
    )
    collector, reader = lake.start("collector"), lake.start("reader")
    lake.start("assembler")
    figures.append(lake_answers.fresh(collector.http, reader.http, "lake over SeaweedFS"))
    lake.stop()
    for figure in figures:
        print(figure.what, figure.value, figure.more, flush=True)
    return figures


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _of_rounds(found: dict[str, float]) -> list[results.Figure]:
    conditions = (
        f"{found['rounds']:.0f} rounds of kill -9 at a random one of {COLLECTORS} collectors, {ASSEMBLERS} assemblers, {READERS} readers and a maintainer, "
        f"PostgreSQL stopped hard twice, SeaweedFS as the object store; {found['bodies']:.0f} bodies of {BODY_SPANS} spans over HTTP, sent {found['tries']:.0f} times"
    )
    wrong = found["lost"] + found["doubled"]
    differ = found["v_requests that differ"] + found["v_llm_calls that differ"]
    return [
        results.measured(
            "Acknowledged spans lost, or stored twice",
            wrong,
            "spans",
            conditions=conditions,
            more={"acknowledged": found["spans"]},
            script=SCRIPT,
        ),
        results.measured(
            "Requests and calls that are not those of a file with the same bodies",
            differ,
            "rows",
            conditions=conditions,
            more={"requests": found["v_requests in lake"], "calls": found["v_llm_calls in lake"]},
            script=SCRIPT,
        ),
        results.measured(
            "Answers that held a part of a commit, or less than the one before",
            found["torn"],
            "answers",
            conditions=conditions,
            more={"read": found["reads"]},
            script=SCRIPT,
        ),
    ]


def _of_twice(found: dict[str, float]) -> list[results.Figure]:
    return [
        results.measured(
            "Bodies that two collectors got at once, stored twice",
            found["spans too many"] / 10,
            "bodies",
            conditions=f"{found['bodies']:.0f} bodies of 10 spans, {found['both answered']:.0f} answered by both",
            script=SCRIPT,
        )
    ]


def _of_speed(n: int, found: dict[str, float]) -> list[results.Figure]:
    return [
        results.measured(
            f"Acknowledged spans per CPU-second of the collectors: {n}",
            found["spans per CPU-second"],
            "spans",
            conditions="81,920 spans of 407 B in bodies of 512, 16 in flight at each collector, HTTP, SeaweedFS; P50 and P99 of an acknowledgement; bytes of the "
            "collectors' tables before and after merging; assembling, PostgreSQL and SeaweedFS are apart",
            more={
                name: found[name]
                for name in ("commits", "P50, ms", "P99, ms", "bytes a span", "merged")
            },
            script=SCRIPT,
        )
    ]


if __name__ == "__main__":
    main()
