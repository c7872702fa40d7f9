"""What does a lake do when its object store fails, its assembler sleeps, or nobody looks after it? The parts of `make bench-lake` that are about faults and time."""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence

from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle.lake_maintenance import fold, maintain
from overrun.collector.lifecycle.lake_status import verify
from tests.benchmarks import payload, results
from tests.benchmarks.lake_running import SPANS, asked, bodies, compared, reading
from tests.collector.conftest import MS, T0_NS, attributes, body, chat
from tests.conftest import ServerProcess
from tests.lake.object_store import ObjectStore, Proxy
from tests.lake.processes import Lake

SCRIPT = "make bench-lake"


class Answers:
    """Senders that send one body after the other, each until it is stored; what they were answered meanwhile."""

    def __init__(self, servers: Sequence[ServerProcess], senders: int = 4) -> None:
        self.acked: list[bytes] = []
        self.spans, self.longest_s = 0, 0.0
        self.answers: Counter[str] = Counter()
        self._servers, self._bodies = servers, bodies()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(i,)) for i in range(senders)]
        for thread in self._threads:
            thread.start()

    def _send(self, at: int) -> None:
        while not self._stop.wait(0.1):
            with self._lock:
                sent = next(self._bodies)
            began = time.monotonic()
            while (answer := _answer(self._servers[at % len(self._servers)].http, sent.data)) != "200":  # fmt: skip
                with self._lock:
                    self.answers[answer] += 1
                at += 1
                time.sleep(1.0)
            with self._lock:
                self.answers[answer] += 1
                self.acked.append(sent.data)
                self.spans += sent.spans
                self.longest_s = max(self.longest_s, time.monotonic() - began)

    def stop(self) -> None:
        """Once every body that was begun is stored."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def _answer(address: str, content: bytes) -> str:
    """200, 503 with Retry-After, or anything else that nobody should be answered with."""
    sent = urllib.request.Request(f"{address}/v1/traces", content, {"Content-Type": "application/x-protobuf"})  # fmt: skip
    try:
        with urllib.request.urlopen(sent, timeout=60) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return f"{error.code}{' with Retry-After' if error.headers.get('Retry-After') else ''}"
    except OSError as error:
        return type(error).__name__


def objects_fail(lake: Lake, objects: ObjectStore, proxy: Proxy) -> list[results.Figure]:
    """Connections to the object store are refused, 10 and 30 of 100, then all of them for 20 s; two collectors, an assembler and a maintainer."""
    servers = [lake.start("collector"), lake.start("collector")]
    lake.start("assembler")
    lake.start("maintainer")
    sending = Answers(servers)
    refusals = {}
    for name, refused, down, seconds in (
        ("10 of 100 connections refused", 0.1, False, 20),
        ("30 of 100 connections refused", 0.3, False, 20),
        ("down for 20 s", 0.0, True, 20),
        ("afterwards", 0.0, False, 10),
    ):
        proxy.refused, proxy.down = refused, down
        if down:
            proxy.cut()
        before = Counter(sending.answers)
        time.sleep(seconds)
        refusals[name] = Counter(sending.answers) - before
        print(name, dict(refusals[name]), proxy.refusals, proxy.connections, flush=True)
    sending.stop()
    with reading(lake) as reader:
        [(stored, distinct)] = asked(reader, SPANS)
        differ = compared(reader, sending.acked)
        lake.stop()
        maintain(reader.lake, kept_s=0.0, orphaned_s=0.0)
        maintain(reader.lake, kept_s=0.0, orphaned_s=0.0)
        prefix = lake.address.rpartition("lake/")[2]
        listed = len(reader.lake.catalog.files())
        orphans = len(objects.objects(prefix)) - listed
    wrong = abs(sending.spans - distinct) + stored - distinct
    other = sum(n for answer, n in sending.answers.items() if answer not in ("200", "503 with Retry-After"))  # fmt: skip
    conditions = (
        f"SeaweedFS behind a proxy that refuses 10, then 30 of 100 connections for 20 s each, then all of them for 20 s; {len(sending.acked)} bodies of 64 spans over HTTP to "
        "two collectors"
    )
    answered_503 = {name: found["503 with Retry-After"] for name, found in refusals.items()}
    return [
        results.measured(
            "Acknowledged spans lost or stored twice while the object store fails", wrong, "spans", conditions=conditions, script=SCRIPT,
            more={"acknowledged": sending.spans, "rows that differ from a file's": differ["v_requests that differ"] + differ["v_llm_calls that differ"]},
        ),
        results.measured(
            "Bodies answered with 503 and Retry-After while the object store fails", sum(answered_503.values()), "answers", conditions=conditions, script=SCRIPT,
            more={**answered_503, "other refusals": other, "longest wait of a body, s": round(sending.longest_s, 1)},
        ),
        results.measured(
            "Objects that no snapshot has, after maintenance", orphans, "objects", conditions=conditions, script=SCRIPT, more={"listed": listed},
        ),
    ]  # fmt: skip


def assembler_sleeps(lake: Lake, asleep_s: float = 20.0) -> list[results.Figure]:
    """The assembler that works is stopped for longer than its lease, another takes over, and the first goes on."""
    servers = [lake.start("collector")]
    lake.start("assembler")
    lake.start("assembler")
    sending = Answers(servers, senders=2)
    with reading(lake) as reader:
        time.sleep(6.0)
        pid = _assembling(reader)
        os.kill(pid, signal.SIGSTOP)
        slept_s = time.monotonic()
        [(before,)] = asked(reader, "select count(*) from v_requests")
        while asked(reader, "select count(*) from v_requests") == [(before,)]:
            time.sleep(0.2)
        silent_s = time.monotonic() - slept_s
        time.sleep(max(asleep_s - silent_s, 0.0))
        os.kill(pid, signal.SIGCONT)
        time.sleep(5.0)
        taken = _assembling(reader)
        sending.stop()
        differ = compared(reader, sending.acked)
        lake.stop()
    wrong = differ["v_requests that differ"] + differ["v_llm_calls that differ"]
    return [
        results.measured(
            "Requests and calls that differ from a file's after an assembler slept past its lease and went on", wrong, "rows", script=SCRIPT,
            conditions=f"SIGSTOP for {asleep_s:.0f} s, SIGCONT; {len(sending.acked)} bodies of 64 spans",
            more={"another took over": int(taken != pid), "s without a new request": round(silent_s, 1), "requests": differ["v_requests in lake"]},
        )
    ]  # fmt: skip


def _assembling(reader: LakePipeline) -> int:
    """The process that holds the lease."""
    holder = reader.lake.catalog.overview().holders["assembler"]
    return int(holder.split("-")[-2])


def deleting(lake: Lake, seconds: float = 60.0) -> list[results.Figure]:
    """Four collectors store while the maintainer deletes what is older than twenty seconds, and one customer after the other is erased."""
    old = {"OVERRUN_MAX_AGE_DAYS": str(20 / 86_400)}
    servers = [lake.start("collector") for _ in range(4)]
    lake.start("assembler")
    maintainer = lake.start("maintainer", old)
    sending = Answers(servers)
    took_s = list[float]()
    erased, found, answers = 0, 0, Counter[str]()
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        named = {"tenant.id": f"customer-to-be-erased-{erased}"}
        spans = chat(50_000 + erased, start_ms=(time.time_ns() - T0_NS) // MS)
        spans[0].attributes.extend(attributes(named))
        answers[_answer(servers[erased % 4].http, body(spans))] += 1
        time.sleep(3.0)
        whom = json.dumps({"tenant": named["tenant.id"]}).encode()
        asked_to = urllib.request.Request(f"{servers[erased % 4].http}/v1/forget", whom, {"Content-Type": "application/json"})  # fmt: skip
        began = time.monotonic()
        try:
            with urllib.request.urlopen(asked_to, timeout=300) as answer:
                done = json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error
        took_s.append(time.monotonic() - began)
        print("erased", done, round(took_s[-1], 1), flush=True)
        found += done["found_rows"]
        erased += done["traces"]
    sending.stop()
    refused = [line for line in maintainer.said if "not maintained" in line]
    print(*refused, sep="", flush=True)
    with reading(lake) as reader:
        time.sleep(5.0)
        [(left,)] = asked(reader, "select count(*) from spans")
        wrong = sum(check.wrong for check in verify(reader.lake))
    lake.stop()
    other = sum(n for answer, n in (sending.answers + answers).items() if answer != "200")
    return [
        results.measured(
            "Bodies that four collectors refused while a maintainer deletes and people are erased", other, "bodies", script=SCRIPT,
            conditions=f"{seconds:.0f} s, max_age_days of 20 s, a round every 5 s, a customer erased every 3 s; SeaweedFS",
            more={
                "stored": sending.answers["200"], "spans stored": sending.spans, "spans that are left": left, "customers erased": erased, "their rows found": found,
                "wrong by `overrun lake verify`": wrong, "longest wait of a body, s": round(sending.longest_s, 1),
                "longest erasing, s": round(max(took_s), 1), "rounds of maintenance that were tried again": len(refused),
            },
        )
    ]  # fmt: skip


def an_hour(lake: Lake, objects: ObjectStore, commits_a_minute: int = 15) -> list[results.Figure]:
    """Sixty minutes in which each minute has its commits, assembled, and one round of maintenance; snapshots are kept for ten of these minutes."""
    rounds: list[float] = []
    files, stored, took_ms = list[int](), list[int](), list[float]()
    prefix = lake.address.rpartition("lake/")[2]
    with reading(lake) as one:
        assert one._holds()
        for minute in range(60):
            sent = payload.make(
                commits_a_minute * 64, end_ns=time.time_ns(), seed=minute, spans_per_body=64
            )
            for part in sent.bodies[:commits_a_minute]:
                one.writer.submit(TRACES, part.data).result()
            one._round()
            rounds.append(time.time())
            fold(one.lake)
            kept_s = time.time() - rounds[max(minute - 10, 0)]
            maintain(one.lake, kept_s=kept_s, orphaned_s=3_600.0, round_=minute)
            files.append(sum(row[2] for row in one.lake.catalog.table_sizes()))
            stored.append(len(objects.objects(prefix)))
            began = time.process_time()
            asked(one, "select quantile_cont(e2e_ms, 0.99) from v_requests")
            took_ms.append(1e3 * (time.process_time() - began))
            if minute % 10 == 9:
                print(minute, files[-1], stored[-1], round(took_ms[-1]), flush=True)
        [(spans, distinct)] = asked(one, SPANS)
        [(requests,)] = asked(one, "select count(*) from v_requests")
    conditions = f"60 rounds of maintenance, {commits_a_minute} commits of 64 spans before each, snapshots kept for 10 rounds; SeaweedFS"
    return [
        results.measured(
            "Files of all tables after each round of maintenance, most in an hour", max(files), "files", conditions=conditions, script=SCRIPT,
            more={"after 10 rounds": files[9], "after 60 rounds": files[-1], "commits": 60 * commits_a_minute, "spans": spans, "doubled": spans - distinct, "requests": requests},
        ),
        results.measured(
            "Objects in the bucket, most in an hour", max(stored), "objects", conditions=conditions, script=SCRIPT,
            more={"after 20 rounds": stored[19], "after 60 rounds": stored[-1]},
        ),
        results.measured(
            "CPU of a P99 over all requests, last ten rounds against rounds 10 to 20",
            round(statistics.median(took_ms[-10:]) / statistics.median(took_ms[10:20]), 2), "times", conditions=conditions, script=SCRIPT, page=False,
            more={"ms": round(statistics.median(took_ms[-10:]))},
        ),
    ]  # fmt: skip
