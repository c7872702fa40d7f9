"""Small real payloads, and a collector in this process: real receivers on free ports over a real database file, whose writer a test can hold up."""

import asyncio
import itertools
import resource
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import Writer
from overrun.collector.receive import otlp_grpc, otlp_http
from overrun.collector.receive.http_protocol import GuardedProtocol
from tests.conftest import new_store
from tests.waiting import LIMIT_S, until_true

T0_NS = 1_790_000_000_000_000_000  # 2026-09-21 in nanoseconds
MS = 1_000_000
PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
_numbers = itertools.count(1)


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """No file may become larger than this, as on a disk that is full; what is in a file may be written over. Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- payloads ---


def any_value(value: Any) -> AnyValue:
    """A Python value as OTLP's AnyValue."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    out = AnyValue()
    if isinstance(value, list):
        out.array_value.values.extend(any_value(item) for item in value)
    elif isinstance(value, dict):
        out.kvlist_value.values.extend(attributes(value))
    elif value is not None:
        out.string_value = value
    return out


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """OTLP attributes of a mapping."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def trace_id(number: int) -> bytes:
    """A valid trace id."""
    return (0xABC << 64 | number).to_bytes(16, "big")


def span(
    trace: int,
    number: int,
    parent: int = 0,
    *,
    name: str = "work",
    start_ms: float = 0,
    ms: float = 10,
    kind: int = 1,
    **more: Any,
) -> Span:
    """One span; attributes as `attributes={...}`, everything else in OTLP's own names."""
    start = T0_NS + int(start_ms * MS)
    return Span(
        trace_id=trace_id(trace),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name,
        kind=kind,
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(ms * MS),
        attributes=attributes(more.pop("attributes", {})),
        **more,
    )


def request(
    spans: Sequence[Span], resource: Mapping[str, Any] | None = None, scope: str = "test"
) -> ExportTraceServiceRequest:
    """An export request of one resource and scope."""
    out = ExportTraceServiceRequest()
    resource_spans = out.resource_spans.add()
    resource_spans.resource.attributes.extend(
        attributes({"service.name": "shop"} if resource is None else resource)
    )
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return out


def body(spans: Sequence[Span], resource: Mapping[str, Any] | None = None) -> bytes:
    """As `request`, serialised."""
    return request(spans, resource).SerializeToString()


def plain_body(count: int = 1) -> bytes:
    """A body of `count` spans in a new trace that no other call has used."""
    number = next(_numbers)
    return body([span(number, i + 1) for i in range(count)])


def chat(
    trace: int, *, start_ms: float = 0, ms: float = 100, response_id: str | None = None
) -> list[Span]:
    """A user's request: a SERVER root and the model call under it."""
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 10,
    } | ({"gen_ai.response.id": response_id} if response_id else {})
    return [
        span(
            trace,
            1,
            name="POST /chat",
            start_ms=start_ms,
            ms=ms,
            kind=2,
            attributes={"http.route": "/chat"},
        ),
        span(
            trace, 2, 1, name="chat m", start_ms=start_ms + 10, ms=ms - 20, kind=3, attributes=call
        ),
    ]


# --- a collector in this process ---


@dataclass
class Collector:
    """A pipeline with its receivers."""

    pipeline: Pipeline
    http: str
    grpc: str
    path: Path

    @property
    def writer(self) -> Writer:
        return self.pipeline.writer

    def post(self, signal: str, content: bytes, **headers: str) -> httpx.Response:
        """POST to /v1/SIGNAL as protobuf unless a `content_type` is given; underscores in header names stand for hyphens."""
        sent = PROTOBUF | {name.replace("_", "-"): value for name, value in headers.items()}
        # verify=False: there is no TLS here, and reading the certificates anew for every call takes 40 ms.
        return httpx.post(
            f"{self.http}/v1/{signal}",
            content=content,
            headers=sent,
            trust_env=False,
            verify=False,
            timeout=LIMIT_S,
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What another cursor reads now."""
        return rows(self.pipeline, query)


def rows(pipeline: Pipeline, query: str) -> list[tuple[Any, ...]]:
    """What a cursor of its own reads now."""
    cursor = pipeline.store.cursor()
    try:
        return cursor.execute(query).fetchall()
    finally:
        cursor.close()


def one(pipeline: Pipeline, query: str) -> Any:
    """The single value of a query."""
    return rows(pipeline, query)[0][0]


@contextmanager
def held(writer: Writer) -> Iterator[None]:
    """The writer thread is busy (with a job of ours) for as long as the block lasts, as it is during a long commit."""
    started, release = threading.Event(), threading.Event()

    def job(connection: duckdb.DuckDBPyConnection) -> None:
        started.set()
        assert release.wait(LIMIT_S)

    done = writer.call(job)
    assert started.wait(LIMIT_S)
    try:
        yield
    finally:
        release.set()
        done.result(LIMIT_S)


@contextmanager
def opened(
    path: Path, *, privacy: PrivacySettings | None = None, **settings: Any
) -> Iterator[Pipeline]:
    """A pipeline over the database at `path`. Nothing goes quiet by itself: a test drains."""
    chosen = CollectorSettings(db=str(path), **{"quiet_s": 3600.0, **settings})
    pipeline = Pipeline(new_store(path), chosen, privacy or PrivacySettings(), assemble)
    try:
        yield pipeline
    finally:
        pipeline.close()


@contextmanager
def collecting(
    path: Path, *, privacy: PrivacySettings | None = None, **settings: Any
) -> Iterator[Collector]:
    """A pipeline with OTLP receivers on free ports of this machine."""
    with opened(path, privacy=privacy, **settings) as pipeline:
        ready: list[Collector] = []
        bound, stop = threading.Event(), []

        async def receive() -> None:
            limit = settings.get("max_body_mib", 1) << 20
            grpc_server = otlp_grpc.server(pipeline.writer, limit)
            grpc_port = grpc_server.add_insecure_port("127.0.0.1:0")
            await grpc_server.start()
            chosen = CollectorSettings(**{"max_body_mib": 1, "max_decompressed_mib": 1, **settings})
            app = Starlette(
                routes=otlp_http.Receiver(pipeline.writer, chosen).routes(),
                exception_handlers={404: otlp_http.not_found},
            )
            config = uvicorn.Config(
                app, port=0, lifespan="off", log_config=None, ws="none", http=GuardedProtocol
            )
            http_server = uvicorn.Server(config)
            http_server.capture_signals = _no_signals  # type: ignore[method-assign]
            running = asyncio.create_task(http_server.serve())
            await until_true(lambda: http_server.started)
            port = http_server.servers[0].sockets[0].getsockname()[1]
            ready.append(
                Collector(pipeline, f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}", path)
            )
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            stop.append(lambda: loop.call_soon_threadsafe(ended.set))
            bound.set()
            await ended.wait()
            http_server.should_exit = True
            await running
            await grpc_server.stop(1)

        thread = threading.Thread(target=lambda: asyncio.run(receive()))
        thread.start()
        assert bound.wait(LIMIT_S)
        try:
            yield ready[0]
        finally:
            stop[0]()
            thread.join(LIMIT_S)


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline over a new database."""
    with opened(tmp_path / "t.db") as made:
        yield made


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Receivers over a new database, shared by the tests of one file."""
    with collecting(tmp_path_factory.mktemp("collector") / "t.db") as made:
        yield made


@pytest.fixture
def start_collector(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Start receivers with settings of their own."""
    contexts = []

    def start(**settings: Any) -> Collector:
        contexts.append(collecting(tmp_path / f"t{len(contexts)}.db", **settings))
        return contexts[-1].__enter__()

    yield start
    for context in contexts:
        context.__exit__(None, None, None)
