"""A small server that answers as an API is documented to, and remembers what it was asked."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(slots=True)
class Asked:
    """One request: its path, its parameters (the last of a name), its body and its headers."""

    path: str
    parameters: dict[str, str]
    body: bytes
    headers: dict[str, str]

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class Server:
    """Where it listens, and every request."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)


Answer = tuple[int, dict[str, str], bytes]


def answer(value: Any) -> Answer:
    """A document as JSON."""
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


@contextmanager
def serving(respond: Callable[[Asked], Answer]) -> Iterator[Server]:
    """A server on a free port that answers by `respond`."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = Asked(
                parts.path,
                dict(parse_qsl(parts.query)),
                body,
                {name.lower(): value for name, value in self.headers.items()},
            )
            server.asked.append(asked)
            status, headers, content = respond(asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # of a client that has read enough
                self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


@contextmanager
def raw(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port at which `talk` has each connection, for servers that HTTP knows nothing of; it ends when the client is gone."""
    listening = socket.create_server(("127.0.0.1", 0))

    def one(made: socket.socket) -> None:
        with made, suppress(OSError):
            talk(made)

    def accept() -> None:
        with suppress(OSError):
            while True:
                made, _ = listening.accept()
                threading.Thread(target=one, args=(made,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def dripping(head: bytes, tail: bytes, count: int = 200) -> Callable[[socket.socket], None]:
    """Sends `head`, then `count` bytes one by one, then `tail`: an answer that is whole after seconds, each byte in time."""

    def talk(made: socket.socket) -> None:
        made.recv(65_536)
        made.sendall(head)
        for _ in range(count):
            made.sendall(b"x")
            time.sleep(0.02)
        made.sendall(tail)

    return talk
