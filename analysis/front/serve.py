"""How does the server run? Composes the process: receivers, writer and assembly of the collector, and the query API, in one event loop.

The only process that has a database file open; a lake may have several (`role`). Everything is bound before it says `ready`; a port that is taken is named and the rest runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.front import api, predictor_watch
from overrun.analysis.front.alerts import serving as alerting
from overrun.analysis.front.alerts import settings as alert_settings
from overrun.analysis.front.kernel_warmup import compile_apart, warm
from overrun.analysis.front.predictor_watch import Lengths
from overrun.analysis.front.questions import check
from overrun.analysis.front.report import build
from overrun.analysis.numbers.requests.request_list import holdings
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif.worker import Worker
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import parse_slo
from overrun.collector.access import hosts
from overrun.collector.access.audit import Audit
from overrun.collector.access.auth import Tokens
from overrun.collector.access.tls import Certificates
from overrun.collector.config import RetentionSettings, Settings
from overrun.collector.errors import CollectorError, ConfigError
from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.lake_pipeline import open_pipeline as open_lake_pipeline
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.rounds import Assembling
from overrun.collector.ingest.writer import METRICS
from overrun.collector.lifecycle.lake_maintenance import maintaining
from overrun.collector.lifecycle.lake_retention import LakeRetention
from overrun.collector.lifecycle.retention import Retention, size_bytes
from overrun.collector.lifecycle.rollups import roll_up
from overrun.collector.process import compiled, footprint, tracing
from overrun.collector.receive import erase_http, otlp_grpc, otlp_http
from overrun.collector.receive.http_protocol import answering_to_the_end, limited
from overrun.collector.sources import scrape
from overrun.collector.store.database import open_store
from overrun.collector.store.proof import Claims

log = logging.getLogger("overrun.serve")
# How long senders in flight may take to finish when the server stops. Then what is pending is assembled for three seconds (pipeline.py).
_GRACE_S = 4
# So long after a signal the process ends, whatever still runs (a report that a client waits for): what was acknowledged is stored by then.
_STOP_S = 9.0
# A minute closes every minute; folding it takes milliseconds.
_FOLD_S = 60.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the server listens; None where the port was taken."""

    grpc: str | None
    http: str | None
    api: str | None = None  # where reading has a port of its own
    scheme: str = "http"
    token: bool = False  # whether senders need one


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the process has one place that decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: Settings,
    on_ready: Callable[[Addresses, bool], None],
    stop: asyncio.Event | None = None,
    scrape_urls: Sequence[str] = (),
    watched: Lengths | None = None,
) -> None:
    """Run until SIGINT or SIGTERM (or `stop`); then answer what was sent, assemble what is pending and close the store.

    The metrics pages at `scrape_urls` are read beside those of the settings (collector/sources/scrape.py). `watched` predicts the calls as they are assembled.

    `on_ready(addresses, empty)` is called once everything is bound; `empty` says that the store holds nothing yet.

    Raises:
        ConfigError: the settings hold what nobody could be answered with. StoreError: the database cannot be opened. CollectorError: neither port could
        be bound.
    """
    stop = stop or asyncio.Event()
    collector = settings.collector
    tokens = Tokens.find(os.environ, collector.token_file, collector.host, Path(collector.db))
    tokens.check_hosts(
        collector.host,
        collector.api_host if collector.api_port >= 0 and collector.api_host else collector.host,
    )
    certificates = Certificates.of(collector)
    # Refused before anything is opened.
    size_bytes(settings.retention.db_max_size)
    try:
        check(settings, datetime.now(UTC))
    except AnalysisError as error:
        raise ConfigError(str(error)) from error
    scraped = scrape.targets(settings.scrape, scrape_urls)
    alert_settings.read(settings.alerts)
    compiled.interpret(True)  # until `_warm` has ended
    pipeline = _open(settings, watched)
    threading.Thread(target=_warm, args=(settings,), name="overrun-warm", daemon=True).start()
    try:
        with _signals(stop), _maintenance(pipeline, settings):
            await _run(pipeline, settings, tokens, certificates, on_ready, stop, scraped, watched)
    finally:
        await asyncio.to_thread(pipeline.close)


def _open(settings: Settings, watched: Lengths | None) -> Assembling:
    """The file, or the lake where one is named."""
    collector, role = settings.collector, settings.collector.role
    made = watched.assemble if watched else assemble
    if collector.store:
        return open_lake_pipeline(
            collector.store,
            collector,
            settings.privacy,
            made,
            settings.words,
            assembles=_does(settings, "assembler"),
        )
    if role != "all":
        raise ConfigError(
            f"role {role!r} is a part of a server over a lake: give --store, or leave --role out for a file"
        )
    store = open_store(Path(collector.db), create=True, memory_limit=collector.memory_limit)
    return Pipeline(store, collector, settings.privacy, made, settings.words, serving=True)


def _maintenance(
    pipeline: Assembling, settings: Settings
) -> contextlib.AbstractContextManager[None]:
    if isinstance(pipeline, LakePipeline):
        if _does(settings, "maintainer"):
            retention = LakeRetention(pipeline.lake, pipeline.writer, _of_a_lake(settings))
            every_s = settings.retention.check_s
            return maintaining(pipeline.lake, pipeline.holder, every_s, retention)
        return contextlib.nullcontext()
    kept = Retention(pipeline.store, pipeline.writer, settings.retention, pipeline.clock)
    return kept.running()


def _of_a_lake(settings: Settings) -> RetentionSettings:
    """A lake has no limit of its size unless one is set: the default is meant for a file."""
    kept = settings.retention
    return kept if "retention.db_max_size" in settings.origins else replace(kept, db_max_size="0")


def _warm(settings: Settings) -> None:
    """Load the kernels, or have them compiled, which takes half a minute; what arrives meanwhile is taken by the same code as Python (compiled.py).

    It is taken so to the end where compiled code cannot be had: slowly, but no sender waits for a compiler.
    """
    try:
        warm(settings)
        if compiled.any_absent():
            log.info("compiling for this machine, once: until then telemetry is taken slowly")
            compile_apart()
            compiled.interpret(True)  # looks into the cache again
            warm(settings)
            if compiled.any_absent():
                log.warning(
                    "there is no compiled code after compiling (no folder to keep it in, or no memory for it): telemetry is still taken slowly, about "
                    "1,000 spans a second. Let XDG_CACHE_HOME name a folder that can be written, and start again"
                )
                return
            log.info("compiled: telemetry is taken at full speed")
        compiled.interpret(False)
    except Exception:  # the thread's edge
        log.exception(
            "the compiled code could not be prepared: telemetry is taken slowly until the next start"
        )
    finally:
        footprint.settle()


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run to the end, on uvloop where there is one: it halves the event loop's share of an OTLP body."""
    try:
        try:
            import uvloop
        except ImportError:
            asyncio.run(main)
        else:
            uvloop.run(main)
    finally:
        for timer in _ending:
            timer.cancel()


_ending: list[threading.Timer] = []


def _end(stop: asyncio.Event) -> None:
    """A signal came: stop, and be gone in time."""
    stop.set()
    if not _ending:
        timer = threading.Timer(_STOP_S, _give_up)
        timer.daemon = True
        timer.start()
        _ending.append(timer)


def _give_up() -> None:
    log.warning(
        "stopping took more than %g s: the process ends now. What was acknowledged is stored, and assembled at the next start",
        _STOP_S,
    )
    logging.shutdown()
    os._exit(0)


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not in the main thread (tests) or not on this platform: the caller's event then ends the server.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, _end, stop)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


async def _run(
    pipeline: Assembling,
    settings: Settings,
    tokens: Tokens,
    certificates: Certificates | None,
    on_ready: Callable[[Addresses, bool], None],
    stop: asyncio.Event,
    scraped: Sequence[scrape.Target],
    watched: Lengths | None,
) -> None:
    collector = settings.collector
    grpc_server = otlp_grpc.server(
        pipeline.writer,
        collector.max_body_mib << 20,
        tokens.ingest,
        max_connections=collector.max_connections,
        body_timeout_s=collector.body_timeout_s,
    )
    collects, reads = _does(settings, "collector"), _does(settings, "reader")
    grpc_port = (
        _bind_grpc(grpc_server, collector.host, collector.grpc_port, certificates)
        if collects
        else None
    )
    http_socket = _bind_http(collector.host, collector.http_port, "HTTP", "--http-port")
    if grpc_port is None and http_socket is None:
        raise CollectorError(
            f"neither port is free on {collector.host}: choose others with --grpc-port and --http-port (0 picks a free one)"
        )
    apart = reads and collector.api_port >= 0
    api_socket = (
        _bind_http(collector.api_host or collector.host, collector.api_port, "API", "--api-port")
        if apart
        else None
    )
    worker = Worker()
    send, read = _routes(pipeline, settings, tokens, worker, watched)
    apps = [
        (http_socket, [*send, *(api.health_routes(pipeline) if apart else read)], collector.host),
        (api_socket, read, collector.api_host or collector.host),
    ]
    if grpc_port is not None:
        await grpc_server.start()
    running = [
        _web_server(
            _guarded(routes, host, pipeline, settings),
            certificates,
            bound,
            collector.max_connections,
        )
        for bound, routes, host in apps
        if bound is not None
    ]
    serving = [task for _, task in running]
    while not all(server.started or task.done() for server, task in running):
        await asyncio.sleep(0.01)
    addresses = Addresses(
        None if grpc_port is None else _host_port(collector.host, grpc_port),
        None if http_socket is None else _address(http_socket),
        None if api_socket is None else _address(api_socket),
        "https" if certificates else "http",
        tokens.ingest is not None,
    )
    asked_at = addresses.api if apart else addresses.http
    if asked_at:
        pipeline.store.announce(f"{addresses.scheme}://{asked_at}")
    end_tracing = tracing.start([a for a in (addresses.grpc, addresses.http, addresses.api) if a])
    empty = pipeline.writer.last_batch == 0
    on_ready(addresses, empty and collects)
    if reads and not empty:
        threading.Thread(
            target=rehearse, args=(pipeline,), name="overrun-rehearse", daemon=True
        ).start()
    scraper = scrape.Scraper(scraped if collects else (), pipeline.writer)
    beside = [asyncio.create_task(one) for one in _beside(pipeline, settings, watched)]
    await _until(stop, serving)
    for task in beside:
        task.cancel()
    await scraper.close()
    for server, _ in running:
        server.should_exit = True
    # Answers that take minutes are not waited for: the client is asked to retry.
    await asyncio.gather(
        grpc_server.stop(_GRACE_S),
        asyncio.to_thread(worker.close),
        asyncio.to_thread(pipeline.store.end_reading),
    )
    for task in serving:
        await task
    await asyncio.to_thread(end_tracing)


def _does(settings: Settings, role: str) -> bool:
    return settings.collector.role in ("all", role)


def _routes(
    pipeline: Assembling,
    settings: Settings,
    tokens: Tokens,
    worker: Worker,
    watched: Lengths | None,
) -> tuple[list[BaseRoute], list[BaseRoute]]:
    """What senders and readers may ask of this process."""
    collector = settings.collector
    audit = Audit.beside(Path(collector.db), collector.audit_log)
    send: list[BaseRoute] = []
    read: list[BaseRoute] = []
    # Before the receiver's, which answer for the rest of /v1.
    if isinstance(pipeline, Pipeline | LakePipeline):
        send.append(erase_http.route(pipeline, tokens, audit))
    if _does(settings, "collector"):
        send += otlp_http.Receiver(pipeline.writer, collector, tokens.ingest).routes()
    if _does(settings, "reader"):
        read += api.routes(pipeline, settings, worker, tokens, watched, audit)
    else:
        read += api.process_routes(pipeline, tokens)
    return send, read


def _beside(
    pipeline: Assembling, settings: Settings, watched: Lengths | None
) -> Iterator[Coroutine[Any, Any, None]]:
    """What runs beside the answers for as long as the server does."""
    if isinstance(pipeline, Pipeline):
        yield _fold(pipeline)
        yield alerting.run(pipeline, settings, watched)
    elif isinstance(pipeline, LakePipeline) and _does(settings, "maintainer"):
        yield alerting.run(pipeline, settings, watched)
    if watched is not None and _does(settings, "collector"):
        yield _tell(pipeline, watched)


def _guarded(
    routes: Sequence[BaseRoute], host: str, pipeline: Assembling, settings: Settings
) -> hosts.App:
    """The application of a port that listens at `host`."""
    app = Starlette(routes=routes, exception_handlers={404: otlp_http.not_found})
    app.router.redirect_slashes = False

    def refused() -> None:
        pipeline.writer.tally.count(
            "refused_requests", protocol="http", signal="none", reason="host"
        )

    return answering_to_the_end(hosts.guarded(app, host, settings.collector.allowed_hosts, refused))


def _web_server(
    app: hosts.App,
    certificates: Certificates | None,
    bound: socket.socket,
    max_connections: int,
) -> tuple[_Server, asyncio.Task[None]]:
    config = uvicorn.Config(
        app,
        loop="none",
        http=limited(max_connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        **(certificates.for_uvicorn() if certificates else {}),
    )
    server = _Server(config)
    return server, asyncio.create_task(server.serve(sockets=[bound]))


def rehearse(pipeline: Assembling) -> bool:
    """Report on the last minute that holds a request before anybody asks: what a first answer has to load (two seconds of CPU) is then loaded.

    Returns whether there was a request to report on.
    """
    rules()
    try:
        with pipeline.store.reading() as con:
            newest = holdings(con, Window(start=datetime.now(UTC))).newest
            if newest is not None:
                build(
                    con,
                    Window(start=newest - timedelta(minutes=1), end=newest + timedelta(seconds=1)),
                    parse_slo("chat"),
                )
            return newest is not None
    except Exception as error:  # the edge of a thread: no client waits for this answer
        log.info("the warm-up stopped early: %s", error)
        return False


async def _fold(pipeline: Pipeline) -> None:
    """Fold closed minutes into rollups, a step at a time, for as long as the server runs."""
    while True:
        try:
            while await _fold_once(pipeline, Claims()):
                pass
        except (
            CollectorError,
            duckdb.Error,
        ) as error:  # disk full or shutting down: the requests are still there, and it is tried again
            log.warning("minutes were not folded into rollups, trying again: %s", error)
        await asyncio.sleep(_FOLD_S)


async def _fold_once(pipeline: Pipeline, claims: Claims) -> bool:
    def cut(requests: int) -> None:
        pipeline.writer.tally.count("cut", requests, what="rollups")

    return await asyncio.wrap_future(
        pipeline.writer.call(
            lambda connection: roll_up(connection, pipeline.clock.now(), claims, cut), claims
        )
    )


async def _tell(pipeline: Assembling, watched: Lengths) -> None:
    """Store how the length predictor does as indicators, once a minute."""
    while True:
        await asyncio.sleep(predictor_watch.EVERY_S)
        body = predictor_watch.as_metrics(watched.state(), time.time_ns())
        try:
            if body is not None:
                await asyncio.wrap_future(pipeline.writer.submit(METRICS, body))
        except CollectorError as error:
            log.warning("the predictor's coverage was not stored: %s", error)


async def _until(stop: asyncio.Event, running: list[asyncio.Task[None]]) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _address(bound: socket.socket) -> str:
    return _host_port(*bound.getsockname()[:2])


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_http(host: str, port: int, what: str, flag: str) -> socket.socket | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except socket.gaierror as error:
        raise ConfigError(
            f"--host {host!r} is not an address of this machine: {error.strerror}"
        ) from error
    bound = socket.socket(family, kind, protocol)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        _busy(what, host, port, flag, error.strerror or "")
        return None
    bound.listen(1024)
    bound.setblocking(False)
    return bound


def _bind_grpc(server: Any, host: str, port: int, certificates: Certificates | None) -> int | None:
    # grpc prints its own refusal; asking the socket first gives the same answer in our words.
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM
    ) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            _busy("gRPC", host, port, "--grpc-port", error.strerror or "")
            return None
    try:
        at = _host_port(host, port)
        return int(
            server.add_secure_port(at, certificates.for_grpc())
            if certificates
            else server.add_insecure_port(at)
        )
    except RuntimeError as error:
        _busy("gRPC", host, port, "--grpc-port", str(error))
        return None


def _busy(what: str, host: str, port: int, flag: str, reason: str) -> None:
    said = f"the {what} port {host}:{port} cannot be used ({reason.lower()}): choose another with {flag}; everything else runs"
    print(f"overrun: {said}", file=sys.stderr, flush=True)
