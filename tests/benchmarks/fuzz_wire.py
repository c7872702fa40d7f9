"""Does anything that comes over a socket end or stall a server? Bodies of every signal and encoding, broken HTTP, HTTP/2 frames, and questions of the API.

A server of its own takes them all. After each input it must be alive; an input that is a whole request must be answered, and with no other failure than a
refusal (503). How long an input holds it is read as processor time of the server, which does not depend on what else the machine does, and every
hundredth input /healthz must answer. A traceback in the server's log counts as a crash.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import random
import re
import socket
import threading
import time
import urllib.parse
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc  # type: ignore[import-untyped, unused-ignore]
import msgspec
import zstandard

from overrun.analysis.front.openapi import openapi
from overrun.collector.decode import otlp_json
from tests.benchmarks.fuzz_breaks import broken, twisted
from tests.benchmarks.hardening import cpu_s
from tests.benchmarks.http2 import PREFACE, frame, head
from tests.collector.oracle_otlp import as_otlp_json
from tests.conftest import ServerProcess

MOST_CPU_S = 5.0
# Inputs under way at once: their bodies are committed together, and nobody waits for the disk alone.
AT_ONCE = 16
ANSWER_S = 300.0  # for an answer, on a machine that may be busy; a hang is seen by processor time
ABORTS_S = 0.002  # a connection whose request may be half a one is looked at for so long
METHODS: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_TYPES = ("application/x-protobuf", "application/json", "text/plain", "", "application/JSON; a=b")
_ENCODINGS = ("", "", "gzip", "deflate", "zstd", "br", "gzip, gzip", "identity")
_PATHS = ("/v1/traces", "/v1/metrics", "/v1/logs", "/api/public/otel/v1/traces", "/v1/x", "/", "*")
_WORDS = (
    "",
    "e2e",
    "ttft:1",
    "e2e:1000,errors:0.01",
    "-1h",
    "1h",
    "99999999999d",
    "2026-11-20",
    "2026-11-20T00:00:00Z",
    "0",
    "-1",
    "1e400",
    "nan",
    "\x00",
    "%",
    "' or 1=1 --",
    "\U0001f40d" * 40,
    "x" * 5_000,
    "[",
    "{}",
    "chat",
    "p99",
    "true",
    "../../etc/passwd",
)
_HEADS = (
    b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\ncontent-length: 4\r\n\r\nabcd",
    b"POST /v1/metrics HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /api/v1/report?since=1h HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: keep-alive\r\n\r\n",
    b"POST /v1/traces HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\n\r\n\x1f\x8b\x08\x00\x00",
    b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\nGET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


class _Own(threading.local):
    """The connection that a sender keeps."""

    http: http.client.HTTPConnection | None = None


class Wire:
    """A server, and what was sent to it."""

    def __init__(self, folder: Path, bodies: dict[str, list[bytes]]) -> None:
        self._bodies = bodies
        self._server = ServerProcess(folder / "t.db")
        self._questions = _questions()
        self._channel = grpc.insecure_channel(
            self._server.grpc, [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
        )
        self._own = _Own()
        self._made: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._said = 0
        self._sent = 0
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="wire")
        self._room = threading.Semaphore(2 * AT_ONCE)
        self._begun: list[Future[None]] = []
        self._kinds: Counter[str] = Counter()
        self.crashes: list[tuple[str, bytes]] = []
        self.slowest_s = 0.0

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.process.pid

    def close(self) -> int:
        """Stop the server: 0 if it ends as it should."""
        self._pool.shutdown()
        for made in self._made:
            made.close()
        self._channel.close()
        return self._server.stop()

    def begin(self, seed: str) -> None:
        """Send one input of a kind that the seed draws, as soon as one of the senders is free."""
        self._room.acquire()
        self._begun = [future for future in self._begun if not future.done()]
        self._begun.append(self._pool.submit(self._one, seed))

    def ended(self) -> Counter[str]:
        """What became of the inputs, once all have been answered."""
        for future in self._begun:
            future.result()
        return self._kinds

    def _one(self, seed: str) -> None:
        dice = random.Random(seed)
        kind = dice.choices(KINDS, WEIGHTS)[0]
        try:
            said, _ = self.send(kind, dice)
        except Exception as error:  # what this looks for
            said = "crashed"
            self.crashes.append((f"{kind} of seed {seed}: {type(error).__name__}: {error}", b""))
        finally:
            self._room.release()
        with self._lock:
            self._kinds[f"{kind} {said}"] += 1

    def send(self, kind: str, dice: random.Random) -> tuple[str, bytes]:
        """One input of a kind: what became of it, and its bytes.

        Raises:
            AssertionError: the server has ended, fell over the input, or was held by it for too long.
        """
        before = cpu_s(self._server.process.pid)
        said, data = _WAYS[kind](self, dice)
        with self._lock:
            self._sent += 1
            sent = self._sent
        assert self._server.process.poll() is None, "the server has ended"
        took_s = cpu_s(self._server.process.pid) - before
        # Others that were under way meanwhile are counted with it.
        self.slowest_s = max(self.slowest_s, took_s)
        assert took_s < MOST_CPU_S, f"{took_s:.1f} s of processor time"
        if sent % 100 == 0:
            assert self._ask("GET", "/healthz", b"", {})[0] == 200, "/healthz does not answer"
        with self._lock:
            new, self._said = self._server.said[self._said :], len(self._server.said)
        trace = next((i for i, line in enumerate(new) if "Traceback" in line), None)
        if trace is not None:
            time.sleep(1.0)  # the rest of it is still being written
            rest = self._server.said[self._said :]
            raise AssertionError("".join([*new[trace:], *rest])[:20_000])
        return said, data

    def _ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        for _ in range(2):  # a connection that the server has closed is made anew
            kept = self._own.http
            if kept is None:
                kept = http.client.HTTPConnection(self._server.address, timeout=ANSWER_S)
                self._own.http = kept
                self._made.append(kept)
            try:
                kept.request(method, path, body, headers)
                answer = kept.getresponse()
                return answer.status, answer.read()
            except (ConnectionError, http.client.HTTPException):
                kept.close()
                self._made.remove(kept)
                self._own.http = None
        raise AssertionError("no answer")

    def _body(self, dice: random.Random, *, as_json: bool = False) -> tuple[str, bytes]:
        signal = dice.choice(("traces", "metrics", "logs"))
        message = otlp_json.REQUESTS[signal]()
        message.ParseFromString(dice.choice(self._bodies[signal]))
        how = dice.random()
        if how < 0.8:
            twisted(message, dice)
        data = as_otlp_json(message) if as_json else bytes(message.SerializeToString())
        return signal, broken(data, dice) if how > 0.6 else data

    def bodies(self, dice: random.Random) -> tuple[str, bytes]:
        """A request that is whole, with a body in some encoding that need not be what it says."""
        media = dice.choice(_TYPES) if dice.random() < 0.2 else dice.choice(_TYPES[:2])
        signal, data = self._body(dice, as_json="json" in media.lower())
        encoding = dice.choice(_ENCODINGS)
        if dice.random() < 0.9:
            data = _encoded(data, encoding)
        if encoding and dice.random() < 0.4:
            data = broken(data, dice)
        path = f"/v1/{signal}" if dice.random() < 0.95 else dice.choice(_PATHS)
        headers = {"content-type": media} | ({"content-encoding": encoding} if encoding else {})
        status, answer = self._ask(dice.choice(("POST",) * 9 + ("PUT",)), path, data, headers)
        assert status < 500 or status == 503, f"{status} {answer[:300]!r}"
        return str(status), data

    def raw(self, dice: random.Random) -> tuple[str, bytes]:
        """Bytes that may be no request; of the answer, if any, the first line."""
        data = broken(dice.choice(_HEADS), dice)
        return self._thrown(self._server.address, data)

    def questions(self, dice: random.Random) -> tuple[str, bytes]:
        """A question of the API with parameters that nobody meant."""
        path, parameters = dice.choice(self._questions)
        chosen = [n for n in parameters if dice.random() < 0.3] + (
            ["limit"] * (dice.random() < 0.1)
        )
        words = [(name, dice.choice(_WORDS)) for name in chosen]
        query = urllib.parse.urlencode(words)
        if dice.random() < 0.2:
            query = broken(query.encode(), dice).decode("latin-1")
            query = re.sub(r"[^\x21-\x7e]", "%ff", query)
        target = (
            f"{re.sub(r'{[^}]*}', urllib.parse.quote(dice.choice(_WORDS), safe=''), path)}?{query}"
        )
        status, answer = self._ask("GET", target[:60_000], b"", {})
        assert status < 500 or status == 503, f"{target[:300]} {status} {answer[:300]!r}"
        return str(status), target.encode()

    def calls(self, dice: random.Random) -> tuple[str, bytes]:
        """A gRPC call with a body of the right method, or of another."""
        signal, data = self._body(dice)
        method = METHODS[signal if dice.random() < 0.9 else dice.choice(list(METHODS))]
        packed = grpc.Compression.Gzip if dice.random() < 0.3 else grpc.Compression.NoCompression
        try:
            self._channel.unary_unary(method)(data, timeout=ANSWER_S, compression=packed)
        except grpc.RpcError as error:
            code = error.code()
            # CANCELLED: gRPC is started again after a path that is no text; senders repeat such a call.
            fine = ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "CANCELLED")
            assert code.name in fine, f"{code.name} {error.details()}"
            return str(code.name), data
        return "OK", data

    def frames(self, dice: random.Random) -> tuple[str, bytes]:
        """HTTP/2 frames to the gRPC port: those of a call, in wrong orders, cut, and broken."""
        _, body = self._body(dice)
        data = frames(dice, body, dice.choice(list(METHODS.values())))
        if dice.random() < 0.6:
            data = broken(data, dice)
        return self._thrown(self._server.grpc, PREFACE + data)

    def _thrown(self, address: str, data: bytes) -> tuple[str, bytes]:
        host, port = address.rsplit(":", 1)
        answer = b""
        with (
            connected(host, int(port)) as made,
            contextlib.suppress(OSError),
        ):
            made.sendall(data)
            made.settimeout(ABORTS_S)
            answer = made.recv(64)
        found = re.match(rb"HTTP/1.1 (\d+)", answer)
        status = found[1].decode() if found else "bytes" if answer else "nothing"
        assert not status.startswith("50") or status == "503", (status, answer)
        return status, data


def connected(host: str, port: int) -> socket.socket:
    """A connection; where gRPC is being started again, as soon as it is."""
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=ANSWER_S)
        except ConnectionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def frames(dice: random.Random, body: bytes, method: str) -> bytes:
    """The frames of a call or two, with others among them."""
    headers = head(method)
    body = body[:16_000]
    message = bytes((dice.choice((0, 0, 0, 1)),)) + len(body).to_bytes(4, "big") + body
    stream = dice.choice((1, 1, 1, 2, 0, 2**31 - 1))
    all_of_them = [
        frame(4, 0, 0, b""),
        frame(1, 4, stream, headers),
        frame(0, 1, stream, message),
        frame(3, 0, stream, dice.randbytes(4)),  # a reset
        frame(6, 0, 0, bytes(8)),  # a ping
        frame(8, 0, dice.choice((0, stream)), dice.choice((bytes(4), b"\x7f\xff\xff\xff"))),
        frame(9, 4, stream, headers[:9]),  # a continuation of nothing
        frame(4, 0, 0, dice.randbytes(6 * dice.randint(1, 4))),  # settings
        frame(7, 0, 0, bytes(8)),  # away
        frame(
            dice.randrange(256), dice.randrange(256), stream, dice.randbytes(dice.randint(0, 40))
        ),
    ]
    if dice.random() < 0.1:  # many calls, each taken back at once
        return all_of_them[0] + b"".join(
            frame(1, 4, n, headers) + frame(3, 0, n, bytes(4)) for n in range(1, 200, 2)
        )
    chosen = all_of_them[:3]
    for _ in range(dice.randint(0, 5)):
        chosen.insert(dice.randrange(len(chosen) + 1), dice.choice(all_of_them))
    return b"".join(chosen)


def _encoded(data: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(data, 1)
    if encoding == "deflate":
        return zlib.compress(data, 1)
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=1).compress(data)
    return data


def _questions() -> list[tuple[str, list[str]]]:
    """Every path of the API, with the names of its parameters."""
    paths: dict[str, Any] = msgspec.json.decode(openapi())["paths"]
    return [
        (path, [p["name"] for p in of["get"].get("parameters", []) if p["in"] == "query"])
        for path, of in paths.items()
        if "get" in of
    ]


_WAYS: Final[dict[str, Callable[[Wire, random.Random], tuple[str, bytes]]]] = {
    "bodies": Wire.bodies,
    "raw": Wire.raw,
    "questions": Wire.questions,
    "calls": Wire.calls,
    "frames": Wire.frames,
}
KINDS: Final = tuple(_WAYS)
WEIGHTS: Final = (4, 3, 1, 3, 3)
