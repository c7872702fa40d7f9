"""A small HTTP server that answers /api/v1 from a real store of made requests, or refuses as it is told."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import duckdb
import msgspec

from overrun.analysis.diagnosis.sampled_causes import Sought, seek
from overrun.analysis.front.predictor_watch import State
from overrun.analysis.front.question_table import ENTRIES, PREDICTOR, TRACE
from overrun.analysis.front.questions import Prepared
from overrun.analysis.numbers.requests.request_trace import (
    PathPiece,
    Trace,
    TraceSpan,
    UnknownTrace,
)
from overrun.analysis.whatif import catalogue
from overrun.analysis.words.encoding import encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings
from tests.analysis.builders import T0

TRACE_SPANS = 4
GONE = "f" * 32


class FakeApi(ThreadingHTTPServer):
    """`con` is the store; `settings` are the server's; `refuse` = (status, body) answers everything instead; `asked` has every path and its parameters.

    What was answered once is answered again as it was: the store must stay as it is while it is served.
    """

    daemon_threads = True

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.con = con
        self.lock = threading.Lock()
        self.refuse: tuple[int, bytes] | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.predictor: State | None = None
        self.sought: Sought = seek
        self.settings = Settings()
        self.kept: dict[tuple[Any, ...], bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, parameters: Mapping[str, str]) -> Any:
        head, _, last = path.partition("/")
        entry = next(
            e
            for e in ENTRIES.values()
            if e.path.split("/{")[0] == head and ("{" in e.path) == bool(last)
        )
        if entry is TRACE:
            if last == GONE:
                raise UnknownTrace(
                    f"no span of trace {GONE} is stored: it may have expired, or it is in another --db"
                )
            return a_trace(last, spans=TRACE_SPANS)
        in_path = {p.name: last for p in entry.parameters if entry.in_path(p)}
        asked = Prepared.read(
            entry, {**parameters, **in_path}, self.settings, now=T0, default_since="1h"
        )
        if entry is PREDICTOR:
            return self.predictor
        return asked.answer(
            lambda: nullcontext(self.con.cursor()), sought=self.sought, ask=catalogue.ask
        )


class _Handler(BaseHTTPRequestHandler):
    server: FakeApi

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path, parameters = parts.path.removeprefix("/api/v1/"), dict(parse_qsl(parts.query))
        status, body = self.server.refuse or (200, b"")
        if not body:
            with self.server.lock:
                self.server.asked.append((path, parameters))
                known = (
                    path,
                    *sorted(parameters.items()),
                    self.server.sought,
                    id(self.server.predictor),
                    id(self.server.settings),
                )
                try:
                    body = self.server.kept.get(known) or encode(
                        self.server.answer(path, parameters)
                    )
                    self.server.kept[known] = body
                except AnalysisError as error:
                    status, body = 400, msgspec.json.encode({"error": str(error)})
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def fake_api(con: duckdb.DuckDBPyConnection) -> Iterator[FakeApi]:
    """A running server over a store."""
    with FakeApi(con) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def a_trace(trace_id: str = "a" * 32, *, name: str = "GET /ask", spans: int = 3) -> Trace:
    """A request of 1,000 ms: retrieval 200 ms on the path, a parallel lookup off it, a model call with its first token at 600 ms."""
    rows = [
        _span("r", None, 0, name, "other", 0.0, 1000.0, 100.0),
        _span("s", "r", 1, "search", "retrieval", 0.0, 200.0, 200.0),
        _span("p", "r", 1, "cache lookup", "tool", 0.0, 150.0, 0.0),
        _span("m", "r", 1, "chat", "model", 300.0, 700.0, 700.0),
    ]
    rows += [
        _span(f"x{i}", "r", 1, f"tiny {i}", "tool", 1.0 * i, 0.5, 0.0)
        for i in range(max(spans - 4, 0))
    ]
    path = [
        ("s", "retrieval", 0.0, 200.0),
        ("r", "other", 200.0, 300.0),
        ("m", "first_token", 300.0, 600.0),
        ("m", "decode", 600.0, 1000.0),
    ]
    return Trace(
        trace_id=trace_id,
        service="rag",
        route="/ask",
        start="2026-11-20T10:00:00Z",
        e2e_ms=1000.0,
        ttft_ms=600.0,
        wait_user_ms=0.0,
        stages={"retrieval": 200.0, "other": 100.0, "first_token": 300.0, "decode": 400.0},
        spans=rows,
        path=[
            PathPiece(span_id=span, stage=stage, from_ms=start, to_ms=end)
            for span, stage, start, end in path
        ],
    )


def _span(
    span_id: str,
    parent: str | None,
    depth: int,
    name: str,
    stage: str,
    start: float,
    duration: float,
    on_path: float,
) -> TraceSpan:
    return TraceSpan(
        span_id=span_id,
        parent_span_id=parent,
        depth=depth,
        service="rag",
        instance=None,
        name=name,
        stage=stage,
        role="plain",
        start_ms=start,
        duration_ms=duration,
        path_ms=on_path,
        error=False,
        model=None,
        input_tokens=None,
        output_tokens=None,
        ttft_ms=None,
        inferred_parent=False,
        clock_shifted=False,
    )
