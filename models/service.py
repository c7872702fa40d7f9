"""How does a router in another language or process ask for lengths?

A small HTTP service around one `Predictor`: POST /predict, POST /observe, GET /healthz. It looks for a newer artifact in its
folder once a second and takes it over without a pause. One process, one core: start several behind a router that needs more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn

from overrun.collector.access import auth, hosts
from overrun.collector.access.auth import Tokens
from overrun.collector.receive.http_protocol import limited
from overrun.models.artifact import MANIFEST
from overrun.models.errors import ModelsError, RequestError
from overrun.models.predict import Predictor
from overrun.models.request import parse_output_tokens, parse_request

log = logging.getLogger("overrun.predictor")
MAX_BODY: Final = 1 << 20
# Of all connections together: a body waits in memory until the last of it has come, and there may be one of each connection.
MAX_ARRIVING: Final = 32 << 20
# A batch holds up everyone else: 200 rows take about 5 ms.
MAX_BATCH: Final = 200
RELOAD_S: Final = 1.0
# A router's body comes at once; who sends it slowly gets 408. Connections beyond the number take the place of those that have been idle for longest.
BODY_S: Final = 10.0
MAX_CONNECTIONS: Final = 512
# Finished requests that a new artifact is told about when it takes over: it was trained before they came.
_CARRIED: Final = 2_000

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Service:
    """The predictor of a folder, answering; `reload` takes over what `overrun length train` has written there since."""

    def __init__(self, folder: Path) -> None:
        """Load the artifact.

        Raises:
            ArtifactError: it does not load.
        """
        self._folder = folder
        self._stamp = _stamp(folder)
        self._predictor = Predictor.load(folder)
        self._recent: deque[tuple[Mapping[str, Any], int]] = deque(maxlen=_CARRIED)
        self._problem: str | None = None
        self.observed = 0
        self.predicted = 0

    def predict(self, body: bytes) -> bytes:
        """Answer a JSON object with an object, an array with an array.

        Raises:
            RequestError: the body is not that, or a field of a row is wrong.
        """
        rows = _rows(body)
        answers = (
            self._predictor.predict(rows)
            if isinstance(rows, dict)
            else self._predictor.predict_batch(rows)
        )
        self.predicted += 1 if isinstance(rows, dict) else len(rows)
        return msgspec.json.encode(answers)

    def observe(self, body: bytes) -> bytes:
        """Take in finished requests: their rows with `output_tokens`.

        Raises:
            RequestError: the body is not that, or a field of a row is wrong; no row is taken in then, so that the caller may send them again.
        """
        rows = _rows(body)
        rows = rows if isinstance(rows, list) else [rows]
        for row in rows:
            parse_request(row)
            parse_output_tokens(row.get("output_tokens"))
        for row in rows:
            self._predictor.observe(row, row.get("output_tokens"))
            # Kept without what may be text of people.
            self._recent.append(
                (
                    {name: value for name, value in row.items() if name in _CARRIED_FIELDS},
                    row["output_tokens"],
                )
            )
        self.observed += len(rows)
        return b'{"observed":%d}' % len(rows)

    def health(self) -> bytes:
        """Say which artifact answers, how much it has done, whether traffic has drifted, and why a newer one could not be taken over."""
        counts = {"predicted": self.predicted, "observed": self.observed}
        problem = {"drift": self._predictor.drift.state(), "reload_error": self._problem}
        return msgspec.json.encode(
            {"status": "ok", "version": self._predictor.version} | counts | problem
        )

    def reload(self) -> bool:
        """Take over a changed artifact; True if there was one. One that does not load is said, and the old one stays."""
        stamp = _stamp(self._folder)
        if stamp is None or stamp == self._stamp:
            return False
        try:
            fresh = Predictor.load(self._folder)
            ended = _training_end(self._folder)
        except (ModelsError, OSError, ValueError, KeyError) as error:
            if self._problem != str(error):
                log.error("the newer artifact is not loaded: %s", error)
            self._problem = str(error)
            return False
        for row, output_tokens in list(self._recent):
            # A time that is absent compares as not newer: what training may have seen is not told twice.
            if parse_request(row).time_s > ended:
                fresh.observe(row, output_tokens)
        self._predictor, self._stamp, self._problem = fresh, stamp, None
        log.info("artifact %s is in use now", fresh.version)
        return True


_CARRIED_FIELDS: Final = frozenset(
    (
        "time",
        "route",
        "model",
        "input_tokens",
        "max_tokens",
        "temperature",
        "stream",
        "turn",
        "session",
        "tenant",
        "prefix_hash",
    )
)


def _rows(body: bytes) -> Any:
    try:
        rows = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            "the body is not JSON; expected one object, or an array of them"
        ) from error
    if isinstance(rows, dict):
        return rows
    several = rows if isinstance(rows, list) else [rows]
    if len(several) > MAX_BATCH:
        raise RequestError(
            f"the array has {len(several):,} rows; expected at most {MAX_BATCH}: send several requests"
        )
    if not all(isinstance(row, dict) for row in several):
        raise RequestError(
            "the body contains a value that is not an object; expected one object, or an array of them"
        )
    return rows


def _stamp(folder: Path) -> tuple[int, int, int] | None:
    try:
        found = (folder / MANIFEST).stat()
    except OSError:  # between the two renames of a swap
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _training_end(folder: Path) -> float:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    return datetime.fromisoformat(manifest["training"]["end"]).timestamp()


def application(
    service: Service, token: str | None = None
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The ASGI application; with a `token`, /predict and /observe ask for it."""

    arriving = _Arriving()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body = await _answer(service, token, arriving, scope, receive)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if status in (408, 413, 503):  # the rest of the body is not waited for
            headers.append((b"connection", b"close"))
        if status == 503:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def _answer(
    service: Service, token: str | None, arriving: _Arriving, scope: Scope, receive: Receive
) -> tuple[int, bytes]:
    path, method = scope["path"], scope["method"]
    if path == "/healthz":
        return (
            (200, service.health())
            if method in ("GET", "HEAD")
            else _error(405, "use GET for /healthz")
        )
    handler = {"/predict": service.predict, "/observe": service.observe}.get(path)
    if handler is None:
        return _error(404, "supported are POST /predict, POST /observe and GET /healthz")
    if method != "POST":
        return _error(405, f"use POST with a JSON body for {path}")
    try:
        auth.check(_header(scope, b"authorization"), token)
    except auth.Unauthorized as error:
        return _error(error.http_status, str(error))
    try:
        async with asyncio.timeout(BODY_S):
            body = await _body(receive, arriving)
    except TimeoutError:
        return _error(408, f"the body did not come within {BODY_S:g} s")
    except _Full:
        return _error(503, "too many bodies are arriving: use your own default, and ask again")
    if body is None:
        return _error(413, f"the body is over {MAX_BODY:,} bytes: send fewer rows")
    try:
        return 200, handler(body)
    except RequestError as error:
        return _error(400, str(error))
    except Exception:  # the edge: the caller learns that it failed, the log learns why
        log.exception("answering %s failed", path)
        return _error(500, "no prediction is possible: see the log, and use your own default")


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


class _Full(Exception):
    """There is no room for more of a body."""


class _Arriving:
    """The bytes of the bodies that are arriving, of all connections together."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self, size: int) -> None:
        """Take room.

        Raises:
            _Full: there is none.
        """
        if self.bytes + size > MAX_ARRIVING:
            raise _Full
        self.bytes += size


async def _body(receive: Receive, arriving: _Arriving) -> bytes | None:
    """The whole body; None if it is over MAX_BODY.

    Raises:
        _Full: too much arrives at once.
    """
    parts: list[bytes] = []
    taken = 0
    try:
        while True:
            message = await receive()
            part = message.get("body", b"")
            arriving.take(len(part))
            taken += len(part)
            parts.append(part)
            if taken > MAX_BODY:
                return None
            if not message.get("more_body"):
                return b"".join(parts)
    finally:
        arriving.bytes -= taken


def _error(status: int, sentence: str) -> tuple[int, bytes]:
    return status, msgspec.json.encode({"error": sentence})


def serve(
    folder: Path,
    host: str,
    port: int,
    ready: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` gets the address once it answers. Port 0 picks a free one.

    Raises:
        ArtifactError: the artifact does not load. ConfigError: beyond this machine without OVERRUN_TOKEN.
        OSError: the address cannot be bound.
    """
    tokens = Tokens.from_environment(environment)
    tokens.check_hosts("127.0.0.1", host)  # it takes nothing in
    service = Service(folder)
    gc.freeze()  # what was loaded stays: no collection need walk it again
    bound = socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=1024
    )
    allowed = [name.strip() for name in environment.get("OVERRUN_ALLOWED_HOSTS", "").split(",")]
    app = hosts.guarded(application(service, tokens.read), host, filter(None, allowed))
    config = uvicorn.Config(
        app, loop="none", http=limited(MAX_CONNECTIONS), ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=5)  # fmt: skip
    try:
        import uvloop
    except ImportError:
        asyncio.run(_run(service, _Server(config), bound, ready))
    else:
        uvloop.run(_run(service, _Server(config), bound, ready))


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: asked to end, the process ends with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(
                NotImplementedError, RuntimeError, ValueError
            ):  # not the main thread, or not this platform
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _run(
    service: Service, server: uvicorn.Server, bound: socket.socket, ready: Callable[[str], None]
) -> None:
    address, number = bound.getsockname()[:2]
    async with _reloading(service):
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        ready(f"[{address}]:{number}" if ":" in address else f"{address}:{number}")
        await serving


@contextlib.asynccontextmanager
async def _reloading(service: Service) -> AsyncIterator[None]:
    async def watch() -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            await asyncio.to_thread(service.reload)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
