"""What does an attack cost? Sends the small bodies of an attacker to a real server and reads its processor time, its peak memory and the answer of /healthz.

python -m tests.benchmarks.hardening [--write] [--only NAME]
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
import zstandard

from tests.benchmarks import results
from tests.benchmarks.http2 import EXPORT, PREFACE, frame, head
from tests.benchmarks.payload import SPANS_PER_BODY, make
from tests.conftest import ServerProcess

PROTOBUF, JSON = "application/x-protobuf", "application/json"
MIB: Final = 1 << 20
INFLATED: Final = 16 * MIB - 64  # as much as a server takes by default
WAIT_S = 120.0


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def block(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def bomb(path: tuple[int, ...], item: bytes = b"", size: int = INFLATED) -> bytes:
    """A message of `size` bytes, all of it repetitions of `item` at the end of `path`, a chain of field numbers from the request."""
    one = block(path[-1], item)
    content = one * (size // len(one))
    for number in reversed(path[:-1]):
        content = block(number, content)
    return content


# Of each signal, the repeated fields that an attacker can fill: the chain of field numbers from the request on.
BOMBS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "resource spans": ("traces", (1,)),
    "scope spans": ("traces", (1, 2)),
    "old scope spans": ("traces", (1, 1000)),
    "spans": ("traces", (1, 2, 2)),
    "span attributes": ("traces", (1, 2, 2, 9)),
    "span events": ("traces", (1, 2, 2, 11)),
    "event attributes": ("traces", (1, 2, 2, 11, 3)),
    "span links": ("traces", (1, 2, 2, 13)),
    "array items": ("traces", (1, 2, 2, 9, 2, 5, 1)),
    "map items": ("traces", (1, 2, 2, 9, 2, 6, 1)),
    "resource attributes": ("traces", (1, 1, 1)),
    "resource logs": ("logs", (1,)),
    "log records": ("logs", (1, 2, 2)),
    "log attributes": ("logs", (1, 2, 2, 6)),
    "metrics": ("metrics", (1, 2, 2)),
    "gauge points": ("metrics", (1, 2, 2, 5, 1)),
    "histogram points": ("metrics", (1, 2, 2, 9, 1)),
    "exemplars": ("metrics", (1, 2, 2, 5, 1, 5)),
    "quantiles": ("metrics", (1, 2, 2, 11, 1, 6)),
}


@dataclass
class Watch:
    """What a server spent and how long /healthz took while an attack went on."""

    cpu_s: float = 0.0
    peak_mib: float = 0.0
    healthz_s: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)


def cpu_s(pid: int) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int, line: str = "VmHWM") -> float:
    """Peak resident memory of a process (VmRSS: now)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split(f"{line}:")[1].split()[0]) / 1024


def send(address: str, signal: str, body: bytes, **headers: str) -> str:
    """The status of one POST; the kind of failure where there is none."""
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    sent = {"content-type": PROTOBUF} | {k.replace("_", "-"): v for k, v in headers.items()}
    try:
        connection.request("POST", f"/v1/{signal}", body, sent)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    else:
        return str(answer.status)
    finally:
        connection.close()


def stored(server: ServerProcess, signal: str, body: bytes) -> str:
    """The status of a body that is sent again for as long as there is no room for it."""
    until = time.monotonic() + WAIT_S
    while (status := send(server.address, signal, body)) == "503" and time.monotonic() < until:
        time.sleep(0.2)
    return status


def healthz_s(address: str) -> float:
    """Seconds until /healthz has answered; as long as was waited where it does not."""
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    began = time.monotonic()
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    connection.close()
    return time.monotonic() - began


@contextlib.contextmanager
def watched(server: ServerProcess, found: Watch) -> Iterator[None]:
    """Ask /healthz all the time and count what the server spends."""
    pid = server.process.pid
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")  # VmHWM begins anew
    before, over = cpu_s(pid), threading.Event()

    def ask() -> None:
        while not over.is_set():
            found.healthz_s = max(found.healthz_s, healthz_s(server.address))
            over.wait(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
        found.cpu_s, found.peak_mib = cpu_s(pid) - before, rss_mib(pid)


def item_bomb(name: str, senders: int = 1) -> Callable[[ServerProcess], dict[str, int]]:
    """The attack of row 1: gzip bodies of a few kB that are nothing but one empty repeated field."""
    signal, path = BOMBS[name]

    def attack(server: ServerProcess) -> dict[str, int]:
        body = gzip.compress(bomb(path), 9)
        return many(lambda _: send(server.address, signal, body, content_encoding="gzip"), senders)

    return attack


def json_flood(server: ServerProcess) -> dict[str, int]:
    """Row 2: 152 JSON bodies of 16 kB that inflate to 14 MB each."""
    text = b'{"resourceSpans":[' + b" " * (14 * MIB) + b"]}"
    body = gzip.compress(text, 9)
    return many(
        lambda _: send(server.address, "traces", body, content_encoding="gzip", content_type=JSON),
        152,
        152,
    )


def grpc_flood(server: ServerProcess) -> dict[str, int]:
    """Row 3: 6 connections with 20 streams of 15 MB each, without a token."""
    import grpc

    body = block(1, block(2, block(2, block(5, b"n" * (15 * MIB)))))
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(server.grpc, options) for _ in range(6)]

    def call(at: int) -> str:
        try:
            channels[at % 6].unary_unary(EXPORT)(body, timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    try:
        return many(call, 120, 120)
    finally:
        for channel in channels:
            channel.close()


def nested_calls(server: ServerProcess) -> dict[str, int]:
    """Row 10: 8,000 model calls, each in the one before, until they are a request."""
    from tests.collector.conftest import attributes, body, span

    told = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    spans = [
        span(1, i, i - 1, name="chat m", kind=3, start_ms=i * 0.01, ms=200 - i * 0.02)
        for i in range(1, 8_001)
    ]
    for one in spans:
        one.attributes.extend(attributes({**told, "gen_ai.usage.output_tokens": 10}))
    answer = send(server.address, "traces", body(spans))
    _assembled(server)
    return {answer: 1}


def scrape_bomb(server: ServerProcess) -> dict[str, int]:
    """Row 8: a metrics page of 48 kB that inflates to 1.5 GB, read for ten seconds."""
    time.sleep(10)
    points = httpx.get(
        f"{server.http}/metrics", trust_env=False, verify=False, timeout=WAIT_S
    ).status_code
    return {str(points): 1}


@contextlib.contextmanager
def bomb_page() -> Iterator[str]:
    """The address of a server whose metrics page is small and inflates to 1.5 GB."""
    page = zstandard.ZstdCompressor(level=3).compress(b"# " + b"x" * (1_500 * MIB))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-encoding", "zstd")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}/metrics"
    finally:
        served.shutdown()
        served.server_close()


def slow_heads(server: ServerProcess) -> dict[str, int]:
    """600 connections whose request line never ends; the last ones are to be answered all the same."""
    host, port = server.address.split(":")
    held = []
    for _ in range(600):
        with contextlib.suppress(OSError):
            made = socket.create_connection((host, int(port)), timeout=5)
            made.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: a\r\n")
            held.append(made)
    answer = send(server.address, "traces", b"")
    for made in held:
        made.close()
    return {answer: 1}


def rapid_reset(server: ServerProcess) -> dict[str, int]:
    """20,000 gRPC calls on one connection, each reset as soon as its head is sent (CVE-2023-44487)."""
    host, port = server.grpc.split(":")
    sent = 0
    made = socket.create_connection((host, int(port)), timeout=10)
    with made, contextlib.suppress(OSError):
        made.sendall(PREFACE + frame(4, 0, 0, b""))
        for stream in range(1, 40_001, 2):
            made.sendall(frame(1, 4, stream, head()) + frame(3, 0, stream, b"\0\0\0\x08"))
            sent += 1
        while made.recv(65_536):
            pass
    return {"streams reset": sent, f"then {send(server.address, 'traces', b'')}": 1}


def long_names(server: ServerProcess) -> dict[str, int]:
    """20 bodies of 15 MB, each of 900 spans with an attribute whose key has 16 kB and was in no other body."""

    def one(at: int) -> str:
        keys = (f"{at}.{n}.".encode() + b"k" * (16 << 10) for n in range(900))
        spans = (
            block(2, block(1, os.urandom(16)) + block(2, os.urandom(8)) + block(9, block(1, key)))
            for key in keys
        )
        return stored(server, "traces", block(1, block(2, b"".join(spans))))

    return many(one, 20, 1)


def long_metric_names(server: ServerProcess) -> dict[str, int]:
    """20 bodies of 15 MB, each of 900 metrics whose name has 16 kB and was in no other body."""

    def one(at: int) -> str:
        names = (f"m{at}_{n}_".encode() + b"k" * (16 << 10) for n in range(900))
        point = b"\x19" + (time.time_ns()).to_bytes(8, "little") + b"\x21" + bytes(8)
        metrics = (block(2, block(1, name) + block(5, block(1, point))) for name in names)
        return stored(server, "metrics", block(1, block(2, b"".join(metrics))))

    return many(one, 20, 1)


def slow_grpc(server: ServerProcess) -> dict[str, int]:
    """200 gRPC calls on 50 connections that send a byte a second of a body of 1 MB, for 20 s, beside a sender who sends a body each 0.1 s."""
    import grpc

    host, port = server.grpc.split(":")
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                made = socket.create_connection((host, int(port)), timeout=10)
                with made:
                    made.sendall(PREFACE + frame(4, 0, 0, b""))
                    for stream in (1, 3, 5, 7):
                        made.sendall(frame(1, 4, stream, head()))
                        made.sendall(frame(0, 0, stream, b"\0" + MIB.to_bytes(4, "big")))
                    for _ in range(5):
                        over.wait(1.0)
                        for stream in (1, 3, 5, 7):
                            made.sendall(frame(0, 0, stream, b"\n"))

    slow = [threading.Thread(target=drip, daemon=True) for _ in range(50)]
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    took_ms, refused = [], 0
    body = make(SPANS_PER_BODY, end_ns=time.time_ns()).bodies[0].data
    with grpc.insecure_channel(server.grpc, options) as channel:
        call = channel.unary_unary(EXPORT)
        call(body, timeout=WAIT_S)
        for one in slow:
            one.start()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                call(body, timeout=WAIT_S)
            except grpc.RpcError:
                refused += 1
            took_ms.append((time.monotonic() - began) * 1e3)
            time.sleep(0.1)
    over.set()
    took_ms.sort()
    return {
        "bodies beside them": len(took_ms),
        "refused": refused,
        "ms at P50": round(took_ms[len(took_ms) // 2]),
        "ms at most": round(took_ms[-1]),
    }


def wide_trace(server: ServerProcess) -> dict[str, int]:
    """One trace of 200,000 spans in 40 bodies, until it is a request."""
    from tests.collector.conftest import body, span

    answers: dict[str, int] = {}
    for first in range(0, 200_000, 5_000):
        spans = [
            span(1, i + 1, i // 8, name="step", start_ms=i * 0.001, ms=250 - i * 0.001)
            for i in range(first, first + 5_000)
        ]
        answer = send(server.address, "traces", body(spans))
        answers[answer] = answers.get(answer, 0) + 1
    _assembled(server)
    return answers


def _filled(server: ServerProcess, bodies: int = 20) -> None:
    """Give a server something to read: a request has about ten spans."""
    for one in make(bodies * SPANS_PER_BODY, end_ns=time.time_ns()).bodies:
        send(server.address, "traces", one.data)
    _assembled(server)


def _assembled(server: ServerProcess) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        ready = httpx.get(f"{server.http}/readyz", trust_env=False, verify=False, timeout=WAIT_S)
        if ready.json()["pending_traces"] == 0:
            break
        time.sleep(0.2)


def _settled(server: ServerProcess) -> None:
    """Until a server has done nothing for a second."""
    until, before = time.monotonic() + WAIT_S, -1.0
    while time.monotonic() < until and (now := cpu_s(server.process.pid)) - before > 0.05:
        before = now
        time.sleep(1.0)


def readers_that_leave(server: ServerProcess) -> dict[str, int]:
    """30 reports about 1,000 requests, each of another window; every client leaves after 0.1 s."""
    host, port = server.address.split(":")

    def leave(at: int) -> str:
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as made:
            path = f"/api/v1/report?since={1_000 + at}h"
            made.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            time.sleep(0.1)
        return "left"

    answers = many(leave, 30, 6)
    _settled(server)
    return answers


def readers_in_step(server: ServerProcess) -> dict[str, int]:
    """Twelve clients that ask for the same report at the same time."""
    url = f"{server.http}/api/v1/report?since=1000h"

    def ask(_: int) -> str:
        return str(httpx.get(url, trust_env=False, verify=False, timeout=WAIT_S).status_code)

    return many(ask, 12, 12)


def readers_in_turn(server: ServerProcess) -> dict[str, int]:
    """60 reports about 1,000 requests, each of another window, for two clients that ask again at once."""

    def ask(at: int) -> str:
        url = f"{server.http}/api/v1/report?since={1_000 + at}h"
        return str(httpx.get(url, trust_env=False, verify=False, timeout=WAIT_S).status_code)

    return many(ask, 60, 2)


def readers_that_stop(server: ServerProcess) -> dict[str, int]:
    """200 clients ask for a list of requests, and none takes the answer; then one asks as usual."""
    host, port = server.address.split(":")
    held = []
    for at in range(200):
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.connect((host, int(port)))
        path = f"/api/v1/requests?since={1_000 + at}h&limit=1000"
        made.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        held.append(made)
    time.sleep(10)
    url = f"{server.http}/api/v1/requests?since=1000h&limit=1"
    then = httpx.get(url, trust_env=False, verify=False, timeout=WAIT_S).status_code
    for made in held:
        made.close()
    return {f"then {then}": 1}


def many(call: Callable[[int], str], count: int, at_once: int = 8) -> dict[str, int]:
    """How often each answer came."""
    out: dict[str, int] = {}
    with ThreadPoolExecutor(at_once) as pool:
        for answer in pool.map(call, range(count)):
            out[answer] = out.get(answer, 0) + 1
    return out


ATTACKS: Final[dict[str, Callable[[ServerProcess], dict[str, int]]]] = {
    **{f"8 kB of empty {name}": item_bomb(name) for name in BOMBS},
    "eight bodies of empty log records at once": item_bomb("log records", 8),
    "152 JSON bodies, 14 MB each inflated": json_flood,
    "120 gRPC bodies of 15 MB without a token": grpc_flood,
    "8,000 nested model calls": nested_calls,
    "a metrics page of 48 kB, 1.5 GB inflated": scrape_bomb,
    "600 connections that never end their head": slow_heads,
    "20,000 gRPC calls, each reset at once": rapid_reset,
    "200 gRPC calls that send a byte a second": slow_grpc,
    "18,000 attribute keys of 16 kB": long_names,
    "18,000 metric names of 16 kB": long_metric_names,
    "a trace of 200,000 spans": wide_trace,
    "30 readers that leave after 0.1 s": readers_that_leave,
    "12 readers that ask the same at once": readers_in_step,
    "200 readers that take no answer": readers_that_stop,
    "60 reports for two readers": readers_in_turn,
}


def run(name: str) -> Watch:
    """One attack on a server of its own."""
    found = Watch()
    with tempfile.TemporaryDirectory() as folder, bomb_page() as page:
        ports = ["--grpc-port", "0", "--http-port", "0"]
        scraped = ["--scrape", page] if "metrics page" in name else []
        token = {"OVERRUN_INGEST_TOKEN": "a" * 32} if "without a token" in name else None
        server = ServerProcess(Path(folder) / "t.db", *ports, *scraped, environment=token)
        try:
            for _ in range(3):
                send(server.address, "traces", b"")
            if "readers" in name:
                _filled(server)
            with watched(server, found):
                found.answers = ATTACKS[name](server)
        finally:
            server.kill()
    return found


def main() -> None:
    """Run the attacks and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="attacks whose name holds this text")
    parser.add_argument("--build", default="after", help="what the rows are called in docs/results")
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    figures = []
    for name in ATTACKS:
        if chosen.only and chosen.only not in name:
            continue
        found = run(name)
        print(
            f"{name:45} {found.cpu_s:6.1f} CPU s {found.peak_mib:6.0f} MiB"
            f" healthz {found.healthz_s:5.2f} s {found.answers}",
            flush=True,
        )
        figures.append(
            results.measured(
                f"{name}, {chosen.build}",
                round(found.peak_mib),
                "MiB peak",
                script="python -m tests.benchmarks.hardening --write",
                more={
                    "CPU s": round(found.cpu_s, 1),
                    "longest /healthz s": round(found.healthz_s, 2),
                    "answers": ", ".join(f"{n} x {a}" for a, n in found.answers.items()),
                },
            )
        )
    if chosen.write:
        results.record("hardening", figures)


if __name__ == "__main__":
    main()
