"""What do real senders of other languages send? Runs each against a server that keeps the bodies, and stores them beside this file.

`make record-senders` installs the locked packages below `.venv/senders` and runs this; the suite reads what was recorded.
"""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
INSTALLED: Final = FOLDER.parents[1] / ".venv" / "senders"
REQUESTS: Final = 5


class _Keeper(BaseHTTPRequestHandler):
    bodies: list[bytes] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.bodies.append(self._body())
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

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

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Record the sender in Node.js: a chat endpoint that streams from a model server over http."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Keeper)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = INSTALLED / "otel-js"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    subprocess.run(["node", "app.js", url, str(REQUESTS)], cwd=folder, check=True, timeout=60)
    server.shutdown()
    [body] = _Keeper.bodies
    (FOLDER / "otel-js.traces.pb").write_bytes(body)


if __name__ == "__main__":
    main()
