"""A SeaweedFS server, which answers as S3 does, in a folder of its own and on free ports of this machine; and a proxy before it that refuses connections."""

import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from pyarrow import fs

BUCKET = "lake"
_KEY, _SECRET = "overrun", "of the tests alone"
_PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc")  # fmt: skip
_START_S = 60.0


class ObjectStore:
    """Runs from its making to `close`. `port` is the one that speaks S3; the bucket BUCKET is there."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="overrun-objects-"))
        keys = self.folder / "keys.json"
        rights = ["Admin", "Read", "List", "Tagging", "Write"]
        keys.write_text(json.dumps({"identities": [{"name": _KEY, "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}], "actions": rights}]}))  # fmt: skip
        ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
        self.port = ports["s3.port"]
        settings = {
            **ports, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "dir": self.folder, "filer": "true", "s3": "true", "s3.config": keys,
            "s3.port.iceberg": 0, "s3.port.lance": 0, "master.telemetry": "false", "master.volumeSizeLimitMB": 256, "volume.max": 16,
            "filer.localSocket": self.folder / "filer.sock", "s3.localSocket": self.folder / "s3.sock",
        }  # fmt: skip
        program = Path(sys.prefix) / "bin" / "weed"
        assert program.exists(), f"{program} is not there: `make .venv/.lake` installs it"
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [program, "server", *(f"-{name}={value}" for name, value in settings.items())],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )
        self._wait()

    def _wait(self) -> None:
        """Its parts come up one after the other; an object can be stored with the last."""
        until_s = time.monotonic() + _START_S
        while True:
            try:
                self.files().create_dir(BUCKET)
                with self.files().open_output_stream(f"{BUCKET}/ready") as made:
                    made.write(b"1")
                return self.files().delete_file(f"{BUCKET}/ready")
            except OSError as error:
                assert time.monotonic() < until_s, error
                assert self.process.poll() is None, error
                time.sleep(0.1)

    def files(self) -> fs.S3FileSystem:
        """Its objects."""
        return fs.S3FileSystem(
            access_key=_KEY,
            secret_key=_SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            connect_timeout=2,
            request_timeout=5,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        )

    def objects(self, prefix: str) -> list[str]:
        """The names below a prefix of the bucket."""
        below = fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True)
        return [found.path for found in self.files().get_file_info(below) if found.is_file]

    def environment(self, port: int | None = None) -> dict[str, str]:
        """What a process needs in order to use it, by another port if a proxy is between."""
        return {
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
        }

    def close(self) -> None:
        """Ends the server and deletes its folder."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Proxy:
    """Passes connections to `target` until `close`; of them it refuses the share `refused`, and all of them while `down`."""

    def __init__(self, target: int, seed: int = 1) -> None:
        self.refused, self.down = 0.0, False
        self.connections = self.refusals = 0
        self._target, self._chance = target, random.Random(seed)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed
                return
            self.connections += 1
            if self.down or self._chance.random() < self.refused:
                self.refusals += 1
                client.close()
                continue
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        self._open |= {client, server}
        back = threading.Thread(target=_relay, args=(server, client), daemon=True)
        back.start()
        _relay(client, server)
        back.join()
        for one in (client, server):
            self._open.discard(one)
            one.close()

    def cut(self) -> None:
        """Ends every connection that is open."""
        for one in tuple(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no more connections, and ends those that are open."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()


def _relay(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _free_ports(n: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [int(probe.getsockname()[1]) for probe in probes]
