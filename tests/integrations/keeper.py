"""A server between a sender and `overrun serve`: it hands everything on and keeps the bodies of telemetry."""

from __future__ import annotations

import gzip
import http.client
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

SIGNALS: Final = ("traces", "metrics", "logs")


class Keeper(ThreadingHTTPServer):
    """Listens on a free port of loopback and hands on to `target`, a port."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.bodies: dict[str, list[bytes]] = defaultdict(list)
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Keeper

    def do_GET(self) -> None:
        """Hand a question on."""
        self._hand_on(b"")

    def do_POST(self) -> None:
        """Hand a body on, and keep it if it is telemetry."""
        body = self._body()
        signal = self.path.rsplit("/", 1)[-1]
        self._hand_on(body)
        if signal in SIGNALS:
            plain = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            with self.server.lock:
                self.server.bodies[signal].append(plain)

    def _body(self) -> bytes:
        """The body, in one piece or, as Node.js sends it, in chunks."""
        length = self.headers["content-length"]
        if length is not None:
            return self.rfile.read(int(length))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _hand_on(self, body: bytes) -> None:
        behind = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        drop = ("host", "transfer-encoding", "content-length", "connection")
        headers = {name: text for name, text in self.headers.items() if name.lower() not in drop}
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, text in answer.getheaders():
            if name.lower() not in drop:
                self.send_header(name, text)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""
