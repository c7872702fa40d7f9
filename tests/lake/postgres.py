"""A PostgreSQL server in a folder of its own, on a free port of this machine."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any


class Postgres:
    """Runs from its making to `close`."""

    def __init__(self, *, sync: bool = False) -> None:
        """`sync`: as in production, what is committed outlives the machine; without it, the process."""
        self.folder = Path(tempfile.mkdtemp(prefix="overrun-postgres-"))
        # PostgreSQL refuses to run as root.
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._data = str(self.folder / "data")
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", "overrun", "--locale=C", "--encoding=UTF8", "--no-sync")  # fmt: skip
        settings = (
            f"-p {self.port} -k '' -c listen_addresses=127.0.0.1 -c fsync={'on' if sync else 'off'}"
        )
        self._start = ("pg_ctl", "-D", self._data, "-w", "-s", "-o", settings, "-l", str(self.folder / "log"), "start")  # fmt: skip
        self.start()

    def start(self) -> None:
        """Starts the server, and waits until it answers."""
        self._run(*self._start)

    def stop_hard(self) -> None:
        """Ends the server at once, as a crash does."""
        self._run("pg_ctl", "-D", self._data, "-w", "-s", "-m", "immediate", "stop")

    def database(self, name: str) -> str:
        """The address of a new database."""
        self._run("psql", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", "overrun", "-d", "postgres", "-c", f"create database {name}")  # fmt: skip
        return f"postgresql://overrun@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """Ends the server and deletes its folder."""
        self.stop_hard()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_path_of(program), *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd="/",
            text=True,
            check=False,
            **self._as,
        )
        assert done.returncode == 0, done.stderr


def _path_of(program: str) -> str:
    """Debian keeps the server's programs away from the path."""
    found = [shutil.which(program), *sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{program}"))]
    paths = [path for path in found if path]
    assert paths, f"{program} is not there: install Debian's package postgresql"
    return paths[0]
