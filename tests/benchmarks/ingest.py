"""How many spans a second does a collector acknowledge, store and assemble, and what does that cost it?

Starts the server on free loopback ports, sends it the reference payload (payload.py) over OTLP in a closed loop with a
given number of bodies in flight, waits until all is assembled, stops it, and counts what the database file holds.
Prints a Markdown table, and records its headlines with --write. It speaks only OTLP and reads only public views, so that any version
can be measured.

    python -m tests.benchmarks.ingest                    # 204,800 spans, HTTP and gRPC, 2 and 16 in flight
    python -m tests.benchmarks.ingest --quick --kill     # kill -9 right after the last acknowledgement, then count
    python -m tests.benchmarks.ingest --rate 40000       # paced: acknowledgement latency at a given load
    python -m tests.benchmarks.ingest --shape all --in-flight 4  # payloads of another make (payload_shapes.py), four senders
    python -m tests.benchmarks.ingest --poll --spans 1024000 --in-flight 16   # a report asked for every second meanwhile

Wall figures move with whatever else the machine does; figures per CPU-second of the server's process tree hardly do.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import math
import multiprocessing
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.benchmarks import payload_shapes, results
from tests.benchmarks.payload import SPANS_PER_BODY, Body, Payload, make
from tests.benchmarks.sent import Found, compare, known

if TYPE_CHECKING:
    import duckdb

ROOT = Path(__file__).parents[2]
SERVE_ARGUMENTS = ["serve", "--db", "{db}", "--http-port", "0", "--grpc-port", "0"]
SERVE = shlex.join([sys.executable, "-m", "overrun", *SERVE_ARGUMENTS])
READY = re.compile(r"ready grpc=(\S+) http=(\S+)")
PENDING = re.compile(r'"pending_traces":\s*(\d+)')
GRPC_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

START_TIMEOUT_S = 300.0
LOAD_TIMEOUT_S = 300.0
ASSEMBLY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
REFUSAL_WAIT_S = 0.1
WARM_UP_SPANS = 256
# Two client processes keep a server of two cores busy: a body costs a client 0.1-0.3 ms of CPU, a server at least 2 ms.
MAX_WORKERS = 2
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Forked, so that bodies are shared and not copied. The parent therefore never loads grpc or duckdb, whose threads a
# fork would break.
FORK = multiprocessing.get_context("fork")

Send = Callable[[bytes], bool]
"""Sends one body: True when acknowledged, False when the server asked to try again."""


@dataclass(frozen=True)
class Job:
    """One body and when it is due, in seconds after the start (0: as soon as a connection is free)."""

    body: Body
    due_s: float


@dataclass(frozen=True)
class Ack:
    """One acknowledged body; times are of the system-wide monotonic clock, `sent_s` that of the first attempt."""

    sent_s: float
    acked_s: float
    refusals: int


@dataclass(frozen=True)
class Usage:
    """What the server's process tree used from the first body on; None where it could not be seen."""

    acked_cpu_s: float | None
    assembled_cpu_s: float | None
    assembled_after_s: float | None
    peak_rss_bytes: int | None


@dataclass(frozen=True)
class Stored:
    """What a database file holds, beside what was acknowledged (sent.py); its requests, and its size after a checkpoint."""

    found: Found
    requests: int
    file_bytes: int


@dataclass(frozen=True)
class Run:
    """One row of the table. `spans` were sent on the clock, `acked_spans` with the warm-up before it."""

    protocol: str
    in_flight: int
    spans: int
    acked_spans: int
    acks: list[Ack]
    usage: Usage
    stored: Stored
    reports_s: list[float]

    @property
    def wall_s(self) -> float:
        """From the first send to the last acknowledgement."""
        return max(ack.acked_s for ack in self.acks) - min(ack.sent_s for ack in self.acks)


@dataclass(frozen=True)
class Options:
    """What is the same for every run of a table; `rate` is spans a second, None for as fast as it goes; `poll` asks for a report every second."""

    server: str
    kill: bool
    rate: float | None
    poll: bool = False


# --- the server ---


class Server:
    """A collector in a process of its own, measured from outside through /proc."""

    def __init__(self, command: str, folder: Path) -> None:
        self.db = folder / "bench.duckdb"
        self.log = folder / "server.log"
        with self.log.open(
            "wb"
        ) as log:  # a file, because a pipe that nobody reads would stop the server
            argv = [part.replace("{db}", str(self.db)) for part in shlex.split(command)]
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT)
        self.addresses = self._wait_ready()

    def _wait_ready(self) -> dict[str, str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if match := READY.search(self.log.read_text(errors="replace")):
                return {"grpc": match[1], "http": match[2]}
            time.sleep(0.05)
        self.stop(signal.SIGKILL)
        raise SystemExit(
            f"the server did not become ready; it said:\n{self.log.read_text(errors='replace')[-2000:]}"
        )

    def cpu_s(self) -> float:
        """CPU seconds of the process tree so far, children that ended included."""
        # utime, stime, cutime and cstime of proc(5), counted from the field behind the name
        return (
            sum(int(ticks) for pid in self.tree() for ticks in _stat(pid)[11:15])
            / CLOCK_TICKS_PER_S
        )

    def peak_rss_bytes(self) -> int:
        """Largest resident size, summed over the processes of the tree that live now."""
        sizes = [
            re.search(r"VmHWM:\s+(\d+) kB", _read(f"/proc/{pid}/status")) for pid in self.tree()
        ]
        return sum(int(size[1]) * 1024 for size in sizes if size)

    def tree(self) -> list[int]:
        """Ids of the server's process and of those under it, each before its children."""
        stats = {int(entry): _stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
        parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat}
        tree = [self.process.pid]
        for pid in tree:  # grows while it is walked
            tree += [child for child, parent in parents.items() if parent == pid]
        return tree

    def stop(self, how: signal.Signals) -> None:
        """Sends `how` and waits for the end; a server that does not end is killed and reported."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise SystemExit(
                f"the server did not end within {STOP_TIMEOUT_S:.0f} s after {how.name}"
            ) from None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):  # ended between listing and reading
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold spaces; empty when the process is gone."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def wait_assembled(base_url: str, timeout_s: float = ASSEMBLY_TIMEOUT_S) -> float | None:
    """Seconds until GET /readyz shows `pending_traces` at 0; None without that number or after `timeout_s`. (/metrics would have a report computed.)"""
    start_s = time.monotonic()
    while (waited_s := time.monotonic() - start_s) < timeout_s:
        connection = http.client.HTTPConnection(base_url.removeprefix("http://"), timeout=10)
        try:
            connection.request("GET", "/readyz")
            values = PENDING.findall(connection.getresponse().read().decode())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if not values:
            return None
        if sum(map(float, values)) == 0:
            return waited_s
        time.sleep(0.2)
    return None


class Poll:
    """Asks for the report of the last hour once a second, from `with` to its end and once after it; `took_s` has what each answer took."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.took_s: list[float] = []

    def __enter__(self) -> Poll:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.ask()

    def _run(self) -> None:
        while not self._stop.wait(1.0):
            self.ask()

    def ask(self) -> None:
        """One report."""
        connection = http.client.HTTPConnection(self._address, timeout=LOAD_TIMEOUT_S)
        start_s = time.monotonic()
        connection.request("GET", "/api/v1/report?since=1h")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the report was answered {answer.status}: {body[:200]!r}")
        self.took_s.append(time.monotonic() - start_s)
        connection.close()


# --- the clients ---


def http_sender(address: str) -> Send:
    """A sender with a connection of its own; http.client, because the client's CPU is taken from the server here."""
    connection = http.client.HTTPConnection(address, timeout=LOAD_TIMEOUT_S)
    headers = {"content-type": "application/x-protobuf"}

    def send(body: bytes) -> bool:
        connection.request("POST", "/v1/traces", body, headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status not in (200, 429, 503):
            raise RuntimeError(f"HTTP {response.status}: {answer[:200]!r}")
        return response.status == 200

    return send


def grpc_sender(address: str) -> Send:
    """A sender with a channel of its own that passes raw bytes."""
    import grpc  # type: ignore[import-untyped, unused-ignore]

    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    call = grpc.insecure_channel(address, options).unary_unary(GRPC_METHOD)

    def send(body: bytes) -> bool:
        try:
            call(body, timeout=LOAD_TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            return False
        return True

    return send


SENDERS = {"http": http_sender, "grpc": grpc_sender}


def deliver(send: Send, body: bytes, due_s: float) -> Ack:
    """Sends `body` until it is acknowledged, not before `due_s` (0: at once).

    Latency counts from when the body was due: a stalled server must not hide the bodies that waited behind the stall.
    """
    time.sleep(max(0.0, due_s - time.monotonic()))
    sent_s = due_s or time.monotonic()
    refusals = 0
    while not send(body):
        refusals += 1
        if time.monotonic() - sent_s > LOAD_TIMEOUT_S:
            raise RuntimeError(f"refused {refusals} times in {LOAD_TIMEOUT_S:.0f} s")
        time.sleep(REFUSAL_WAIT_S)
    return Ack(sent_s, time.monotonic(), refusals)


def work(
    protocol: str,
    address: str,
    warm_ups: list[Body],
    jobs: list[Job],
    gate: Barrier,
    results: Connection,
) -> None:
    """A client process with one connection for each of `warm_ups`: warms up, waits at `gate`, hands back the Acks."""
    try:
        idle: SimpleQueue[Send] = SimpleQueue()
        for warm_up in warm_ups:
            send = SENDERS[protocol](address)
            deliver(send, warm_up.data, 0.0)
            idle.put(send)
        gate.wait(START_TIMEOUT_S)
        start_s = time.monotonic()

        def one(job: Job) -> Ack:
            send = idle.get()
            ack = deliver(send, job.body.data, job.due_s and start_s + job.due_s)
            idle.put(send)
            return ack

        with ThreadPoolExecutor(len(warm_ups)) as pool:
            results.send(list(pool.map(one, jobs)))
    except Exception as error:
        gate.abort()
        results.send(f"{type(error).__name__}: {error}")


class Clients:
    """The client processes of a run, each with its share of the connections and of the bodies."""

    def __init__(self, protocol: str, address: str, warm_ups: list[Body], jobs: list[Job]) -> None:
        workers = min(MAX_WORKERS, len(warm_ups))
        self.gate = FORK.Barrier(workers + 1)
        self.pipes: list[Connection] = []
        for i in range(workers):
            mine, theirs = FORK.Pipe(duplex=False)
            arguments = (
                protocol,
                address,
                warm_ups[i::workers],
                jobs[i::workers],
                self.gate,
                theirs,
            )
            FORK.Process(target=work, args=arguments, daemon=True).start()
            theirs.close()
            self.pipes.append(mine)

    def wait_warm(self) -> None:
        """Returns when every connection has had its warm-up acknowledged, or a client has failed."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while (
            self.gate.n_waiting < self.gate.parties - 1
            and not self.gate.broken
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)

    def run(self) -> list[Ack]:
        """Lets all clients go and returns every acknowledgement; SystemExit with the reason if one failed."""
        if not self.gate.broken:
            self.gate.wait(START_TIMEOUT_S)
        acks: list[Ack] = []
        for pipe in self.pipes:
            answer = (
                pipe.recv()
                if pipe.poll(2 * LOAD_TIMEOUT_S)
                else f"no end within {2 * LOAD_TIMEOUT_S:.0f} s"
            )
            if isinstance(answer, str):
                raise SystemExit(f"a client failed: {answer}")
            acks += answer
        return acks


# --- one run ---


def measure(protocol: str, in_flight: int, payload: Payload, options: Options) -> Run:
    """Starts a server with an empty database, loads it, stops it (or kills it right after the last ack), and counts."""
    warm_up = make(
        WARM_UP_SPANS * in_flight, end_ns=time.time_ns(), seed=2, spans_per_body=WARM_UP_SPANS
    )
    warm_ups = warm_up.bodies[:in_flight]
    spacing_s = SPANS_PER_BODY / options.rate if options.rate else 0.0
    jobs = [Job(body, i * spacing_s) for i, body in enumerate(payload.bodies)]
    with tempfile.TemporaryDirectory(prefix="overrun-bench-") as folder:
        server = Server(options.server, Path(folder))
        try:
            clients = Clients(protocol, server.addresses[protocol], warm_ups, jobs)
            clients.wait_warm()
            cpu_before_s = server.cpu_s()
            with (
                Poll(server.addresses["http"]) if options.poll else contextlib.nullcontext() as poll
            ):
                acks = clients.run()
            if options.kill:
                server.stop(signal.SIGKILL)
            usage = _usage(server, cpu_before_s)
        finally:
            server.stop(signal.SIGTERM)
        with FORK.Pool(1) as pool:
            stored = pool.apply(
                count, (server.db, [body.data for body in (*payload.bodies, *warm_ups)])
            )
    acked_spans = payload.spans + sum(body.spans for body in warm_ups)
    return Run(
        protocol,
        in_flight,
        payload.spans,
        acked_spans,
        acks,
        usage,
        stored,
        poll.took_s if poll else [],
    )


def _usage(server: Server, cpu_before_s: float) -> Usage:
    if server.process.poll() is not None:  # killed: /proc has nothing to say any more
        return Usage(None, None, None, None)
    acked_cpu_s = server.cpu_s() - cpu_before_s
    assembled_after_s = wait_assembled(f"http://{server.addresses['http']}")
    assembled_cpu_s = None if assembled_after_s is None else server.cpu_s() - cpu_before_s
    return Usage(acked_cpu_s, assembled_cpu_s, assembled_after_s, server.peak_rss_bytes())


def count(db: Path, bodies: Sequence[bytes]) -> Stored:
    """What the file holds now that no server has it open; also empties the write-ahead log into the file."""
    import duckdb

    found = compare(db, map(known, bodies))
    with duckdb.connect(str(db)) as connection:
        (requests,) = _row(connection, "select count(*) from v_requests")
        connection.execute("checkpoint")
    return Stored(found, requests, db.stat().st_size)


def _row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[int, ...]:
    row = connection.execute(query).fetchone()
    assert row is not None  # an aggregate without groups gives exactly one row
    return row


# --- the table ---

COLUMNS = (
    "protocol",
    "bodies in flight",
    "acked spans/s (wall)",
    "acked spans per server-CPU-s",
    "acked and assembled, per server-CPU-s",
    "assembled after last ack",
    "ack P50 / P99",
    "refusals",
    "peak RSS",
    "acked, stored",
    "lost / changed / doubled",
    "requests",
    "disk a span",
    "reports meanwhile: n, P50 / highest, last",
)


def row(run: Run) -> str:
    """One line of the Markdown table; `-` where something could not be measured."""
    latencies_ms = sorted((ack.acked_s - ack.sent_s) * 1000 for ack in run.acks)
    usage, stored = run.usage, run.stored
    cells = (
        run.protocol,
        str(run.in_flight),
        f"{run.spans / run.wall_s:,.0f}",
        _or_dash("{:,.0f}", _ratio(run.spans, usage.acked_cpu_s)),
        _or_dash("{:,.0f}", _ratio(run.spans, usage.assembled_cpu_s)),
        _or_dash("{:.1f} s", usage.assembled_after_s),
        f"{quantile(latencies_ms, 0.5):.0f} / {quantile(latencies_ms, 0.99):.0f} ms",
        str(sum(ack.refusals for ack in run.acks)),
        _or_dash("{:,.0f} MB", _ratio(usage.peak_rss_bytes, 1e6)),
        f"{run.acked_spans:,} {'>' if stored.found.lost else '='} {stored.found.stored:,}",
        f"{stored.found.lost} / {stored.found.changed} / {stored.found.doubled}",
        f"{stored.requests:,}",
        f"{stored.file_bytes / max(1, stored.found.stored):.0f} B",
        f"{len(run.reports_s)}, {quantile(sorted(run.reports_s), 0.5):.2f} / {max(run.reports_s):.2f} s, {run.reports_s[-1]:.2f} s"
        if run.reports_s
        else "-",
    )
    return f"| {' | '.join(cells)} |"


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _or_dash(form: str, value: float | None) -> str:
    return "-" if value is None else form.format(value)


def quantile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of sorted values, linear between neighbours."""
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def header(payload: Payload, options: Options) -> str:
    """Machine, versions, payload and the way of measuring, as a paragraph above the table."""
    model = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    machine = (
        f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, "
        f"{int(memory[1]) / 2**20 if memory else 0:.0f} GB, Linux {platform.release()}, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
    pace = f"paced at {options.rate:,.0f} spans/s" if options.rate else "closed loop"
    end = "kill -9 right after the last ack" if options.kill else "SIGTERM after assembly"
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {machine}; Python {platform.python_version()}, "
        f"duckdb {version('duckdb')}, grpcio {version('grpcio')}.\n"
        f"{payload.spans:,} spans in {len(payload.bodies)} bodies, {payload.traces:,} traces, "
        f"{payload.bytes_per_span:.0f} B a span (protobuf); {pace}, loopback, then {end}; a fresh database a row.\n"
        f"Yardstick in the same run: protobuf's own C decoder parses these bodies at {yardstick(payload):,.0f} spans per CPU-second.\n"
    )


def figures(runs: Sequence[Run], payload: Payload, options: Options) -> list[results.Figure]:
    """The headlines of runs that lost nothing, for docs/results; of several equal runs the last."""
    pace = f"paced at {options.rate:,.0f} spans/s" if options.rate else "closed loop"
    conditions = f"{payload.spans:,} spans of {payload.bytes_per_span:.0f} B in bodies of {SPANS_PER_BODY}, {pace} over loopback"
    found = []

    def add(what: str, value: float | None, unit: str, digits: int = 0) -> None:
        if value is not None:
            shown = round(value, digits) if digits else round(value)
            found.append(
                results.measured(
                    what, shown, unit, script="make bench-ingest", conditions=conditions
                )
            )

    for run in runs:
        protocol = {"http": "HTTP", "grpc": "gRPC"}.get(run.protocol, run.protocol)
        latencies_ms = sorted((ack.acked_s - ack.sent_s) * 1000 for ack in run.acks)
        if options.poll:
            if run.reports_s:
                what = "Report every second beside the load, median answer"
                add(f"{what}: {pace}", quantile(sorted(run.reports_s), 0.5), "s", 2)
        elif options.rate:
            what = f"P99 of acknowledgements at {options.rate:,.0f} spans a second, {protocol}"
            add(what, quantile(latencies_ms, 0.99), "ms")
        else:
            what = "Spans acknowledged, stored and assembled per CPU-second of the server"
            rate = _ratio(run.spans, run.usage.assembled_cpu_s)
            add(f"{what}: {protocol}, {run.in_flight} bodies in flight", rate, "spans")
            add(
                "Disk a span of about 400 bytes",
                run.stored.file_bytes / max(1, run.acked_spans),
                "B",
            )
            add("Peak memory of the server", _ratio(run.usage.peak_rss_bytes, 1e6), "MB")
            add("Acknowledged spans lost, or stored twice", 0, "spans")
    return list({figure.what: figure for figure in found}.values())


def yardstick(payload: Payload) -> float:
    """Spans per CPU-second of protobuf's C decoder (upb) on some of the bodies, best of five: what this machine is worth at the moment."""
    some = payload.bodies[:40]
    best = math.inf
    for _ in range(5):
        before = time.thread_time()
        for body in some:
            ExportTraceServiceRequest.FromString(body.data)
        best = min(best, time.thread_time() - before)
    return sum(body.spans for body in some) / best


def other_shapes(
    shapes: Sequence[str], spans: int, given: argparse.Namespace, options: Options
) -> int:
    """A row for each shape of payload, protocol and number in flight; 0 when every acknowledged span was found once."""
    print(f"| shape | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    found = []
    clean = True
    for shape in shapes:
        payload = payload_shapes.make(shape, spans, end_ns=time.time_ns() - 60 * 10**9)
        for protocol, in_flight in ((p, n) for p in given.protocol for n in given.in_flight):
            run = measure(protocol, in_flight, payload, options)
            clean = clean and run.stored.found.right
            print(f"| {shape} {row(run)}", flush=True)
            found += shape_figures(shape, run, payload)
    if given.write and clean and not given.quick:
        results.record("ingest", found)
    return 0 if clean else 1


def shape_figures(shape: str, run: Run, payload: Payload) -> list[results.Figure]:
    """The figure of one shape, with what else was seen in that run."""
    rate = _ratio(run.spans, run.usage.assembled_cpu_s)
    if rate is None:
        return []
    latencies_ms = sorted((ack.acked_s - ack.sent_s) * 1000 for ack in run.acks)
    more: dict[str, int | float | str] = {
        "P99 of acknowledgements, ms": round(quantile(latencies_ms, 0.99)),
        "peak memory, MB": round((run.usage.peak_rss_bytes or 0) / 1e6),
        "disk a span, B": round(run.stored.file_bytes / max(1, run.acked_spans)),
        "lost or doubled": run.stored.found.lost + run.stored.found.doubled,
    }
    protocol = {"http": "HTTP", "grpc": "gRPC"}.get(run.protocol, run.protocol)
    what = f"Another make, {shape}: spans per CPU-second, {protocol}, {run.in_flight} in flight"
    conditions = f"{payload.spans:,} spans of {payload.bytes_per_span:.0f} B in bodies of {SPANS_PER_BODY}, closed loop over loopback, machine shared"
    return [
        results.measured(
            what, round(rate), "spans", script="make bench-ingest", conditions=conditions, more=more
        )
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when every acknowledged span was found once, 1 when not."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.ingest", description="Measure ingest over OTLP."
    )
    parser.add_argument(
        "--spans",
        type=int,
        default=400 * SPANS_PER_BODY,
        help="default: %(default)s, in bodies of 512",
    )
    parser.add_argument("--protocol", nargs="+", choices=tuple(SENDERS), default=list(SENDERS))
    parser.add_argument("--in-flight", nargs="+", type=int, default=[2, 16], metavar="BODIES")
    parser.add_argument("--repeat", type=int, default=1, help="rows for each combination")
    parser.add_argument(
        "--rate", type=float, help="spans a second; without it, as fast as acknowledgements allow"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the spans: a smoke test, no figure to quote",
    )
    parser.add_argument(
        "--kill",
        action="store_true",
        help="kill -9 right after the last ack instead of a clean stop",
    )
    parser.add_argument(
        "--poll", action="store_true", help="ask for a report every second meanwhile"
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        choices=("all", *payload_shapes.SHAPES),
        default=[],
        help="payloads of another make than the reference",
    )
    parser.add_argument(
        "--server",
        default=SERVE,
        help="command; {db} is the database file (default: overrun serve)",
    )
    results.add_write_flag(parser)
    given = parser.parse_args(arguments)
    if min(given.spans, given.repeat, *given.in_flight) < 1 or (
        given.rate is not None and not given.rate > 0
    ):
        parser.error("--spans, --repeat, --in-flight and --rate must be above 0")
    options = Options(given.server, given.kill, given.rate, given.poll)
    spans = given.spans // (10 if given.quick else 1)
    if given.shape:
        shapes = list(payload_shapes.SHAPES) if "all" in given.shape else given.shape
        return other_shapes(shapes, spans, given, options)
    # A minute back, because the last traces of the payload go on for some seconds: no span ends in the future.
    payload = make(spans, end_ns=time.time_ns() - 60 * 10**9)
    print(header(payload, options))
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    clean = True
    runs = []
    for protocol, in_flight in [
        (p, n) for p in given.protocol for n in given.in_flight for _ in range(given.repeat)
    ]:
        run = measure(protocol, in_flight, payload, options)
        clean = clean and run.stored.found.right
        print(row(run), flush=True)
        runs.append(run)
    if given.write and clean and not given.quick:
        results.record("ingest", figures(runs, payload, options))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
