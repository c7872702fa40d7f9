"""The processes of one lake, and a sender that does not give up."""

import http.client
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tests.conftest import ServerProcess
from tests.lake.postgres import Postgres


class Lake:
    """A database and a folder, and the servers that were started over them."""

    def __init__(
        self,
        postgres: Postgres,
        name: str,
        folder: Path,
        data: str = "",
        environment: dict[str, str] | None = None,
    ) -> None:
        """`data`: where the files are, in `folder` without it. `environment`: what every server of it needs."""
        self.folder = folder
        self._environment = environment or {}
        self.address = f"ducklake:{postgres.database(name)}?data={data or folder / 'data'}"
        self.servers: list[ServerProcess] = []

    def start(self, role: str, environment: dict[str, str] | None = None) -> ServerProcess:
        """A server on free ports."""
        ports = ("--grpc-port", "0", "--http-port", "0")
        made = ServerProcess(
            self.folder / "none.db",
            *("--store", self.address, "--role", role, *ports),
            environment=self._environment | (environment or {}),
            forked=True,
        )
        assert made.address, made.said
        self.servers.append(made)
        return made

    def stop(self) -> None:
        """Ends what still runs."""
        for server in self.servers:
            if server.process.poll() is None:
                server.stop()


def post(address: str, body: bytes, timeout_s: float = 30.0) -> int:
    """The status of one body's answer; 0 without an answer."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout_s)
    try:
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def send(servers: Sequence[ServerProcess], body: bytes, first: int = 0, within_s: float = 60.0) -> int:  # fmt: skip
    """Sends to one server after the other until one says that it is stored; how often it was sent."""
    until_s = time.monotonic() + within_s
    for n in itertools.count(1):
        if post(servers[(first + n) % len(servers)].http, body) == 200:
            return n
        assert time.monotonic() < until_s, "nobody stores it"
        time.sleep(0.05)
    raise AssertionError
