"""A real `overrun serve` process or an empty store for any test that wants one."""

import atexit
import functools
import gc
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.testing
from httpx._transports import default as httpx_transport
from hypothesis import settings

from overrun.collector.store.database import open_store
from overrun.collector.store.store import Store
from tests import programs
from tests.waiting import LIMIT_S, until

ROOT = Path(__file__).parents[1]
# An example that takes long on a busy machine is no failure: nothing here asserts a time.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# The certificates of authorities are read once a process, not for each request without a client of its own (22 ms of CPU).
_context_of = httpx_transport.create_ssl_context
_usual_context = functools.cache(_context_of)


def _context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    if (
        verify is True
        and cert is None
        and not os.environ.keys() & {"SSL_CERT_FILE", "SSL_CERT_DIR"}
    ):
        return _usual_context(trust_env=trust_env)
    return _context_of(verify=verify, cert=cert, trust_env=trust_env)


httpx_transport.create_ssl_context = _context

# The commands are put together once a process, not for each call of one of them (40 ms of CPU).
typer.testing._get_command = functools.cache(typer.testing._get_command)  # type: ignore[attr-defined]


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


gc.disable()  # until all is collected: little of what is imported meanwhile is garbage, and looking for it took a fourth of the time


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk through it again and again."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """At the end everything may go."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _forget_at_the_end_of_a_file(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the functions of a test file cached goes with its last test: rows of every recording, else kept to the end of the run."""
    yield
    for value in list(vars(request.module).values()):
        if hasattr(value, "cache_clear") and value.__module__ == request.module.__name__:
            value.cache_clear()


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
        self,
        db: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        """`forked`: from a process that has imported everything, where the environment allows it."""
        command = [
            "serve",
            "--db",
            str(db),
            *(arguments or ("--grpc-port", "0", "--http-port", "0")),
        ]
        self.db = db
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("OVERRUN_")}
        inherited |= {"PYTHONPATH": str(ROOT)} | (environment or {})
        self.process: subprocess.Popen[str] | programs.Program
        if forked and programs.may_fork(environment or {}):
            self.process = programs.start(command, db.parent, inherited)
        else:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "overrun", *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",  # gRPC logs bytes as they came
                cwd=db.parent,
                env=inherited,
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
        code = self.process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return code


def settled(url: str) -> None:
    """Wait until all that was sent to the server at `url` is assembled."""
    get = functools.partial(httpx.get, trust_env=False, verify=False, timeout=LIMIT_S)
    until(lambda: not get(f"{url}/readyz").json()["pending_traces"])


StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Start `overrun serve --db FILE [more arguments]`; whatever still runs at the end of the test is ended."""
    started: list[ServerProcess] = []

    def start(
        db: Path, *arguments: str, environment: dict[str, str] | None = None
    ) -> ServerProcess:
        started.append(ServerProcess(db, *arguments, environment=environment, forked=True))
        return started[-1]

    yield start
    for server in started:
        server.stop()
