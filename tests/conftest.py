"""A real `overrun serve` process or an empty store for any test that wants one."""

import atexit
import functools
import gc
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from overrun.collector.store.database import Store, open_store

ROOT = Path(__file__).parents[1]
# An example that takes long on a busy machine is no failure: nothing here asserts a time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


# Long files first and many small ones last: one file's tests follow one another, and no process shall be left alone with them at the end.
_FOLDERS = (
    "tests",
    "tests/sample_traces",
    "tests/models",
    "tests/dashboard",
    "tests/collector",
    "tests/analysis/whatif",
    "tests/analysis/simulator",
    "tests/analysis",
    "tests/analysis/diagnosis/rules",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for a browser begins first, then what starts programs; the rules, each a small file, come last."""
    place = {ROOT / name: number for number, name in enumerate(_FOLDERS)}
    items.sort(
        key=lambda item: (
            "browser" not in item.path.stem,
            next(place[folder] for folder in item.path.parents if folder in place),
        )
    )


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk through it again and again."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end everything may go."""
    gc.unfreeze()


@functools.cache
def empty_store() -> Path:
    """A store file that holds nothing, made once a process; gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="overrun-tests-"))
    atexit.register(shutil.rmtree, folder)
    open_store(folder / "empty.db", create=True).close()
    return folder / "empty.db"


def new_store(path: Path) -> Store:
    """The store at `path`, empty unless there is one: as `open_store` makes it, but copied, which takes a fourth of the time."""
    if path.exists():
        return open_store(path, create=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty_store(), path)
    made = open_store(path, create=False)
    made.connection.execute(
        "update meta set value = $salt where key = 'salt'", {"salt": secrets.token_hex(16)}
    )
    return made


class ServerProcess:
    """`overrun serve` on free ports, from its `ready` line to its end by its own process id."""

    def __init__(
        self, db: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "overrun",
            "serve",
            "--db",
            str(db),
            *(arguments or ("--grpc-port", "0", "--http-port", "0")),
        ]
        self.db = db
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OVERRUN_")}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",  # gRPC logs bytes as they came
            cwd=db.parent,
            env=inherited | {"PYTHONPATH": str(ROOT)} | (environment or {}),
        )
        self.said: list[str] = []
        self.grpc = self.address = self.api = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("ready "):
                at = dict(part.split("=", 1) for part in line.split()[1:])
                self.grpc, self.address, self.api = at["grpc"], at["http"], at.get("api", "")
                break
        # Kept flowing, so that a server that logs much never waits for us.
        self._reader = threading.Thread(
            target=self.said.extend, args=(self.process.stderr,), daemon=True
        )
        self._reader.start()

    @property
    def http(self) -> str:
        """The base URL."""
        return f"http://{self.address}"

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._end()

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to tidy up."""
        self.process.kill()
        self._end()

    def _end(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code


StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start `overrun serve --db FILE [more arguments]`; whatever still runs at the end of the test is ended."""
    started: list[ServerProcess] = []

    def start(
        db: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> ServerProcess:
        started.append(ServerProcess(db, *arguments, environment=environment))
        return started[-1]

    yield start
    for server in started:
        server.stop()
