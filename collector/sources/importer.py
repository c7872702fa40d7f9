"""How do files get in? OTLP files (.pb, .json, .jsonl), saved metrics pages (.prom), each also .gz or .zst, results of load tests (`load_tests.py`), and
folders become bodies as of live traffic.

A file is read, recognised and handed over body by body; the sender behind `send` is the writer itself or a running server.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import otlp_json, prometheus
from overrun.collector.errors import BadPayload, ImportFailed
from overrun.collector.sources import load_tests

_COMPRESSED = (".gz", ".zst")
_KINDS = (".pb", ".json", ".jsonl", ".prom")
# Only where named: a folder may hold any table.
_TABLES = (".csv", ".parquet")
_ROOTS = {"resourceSpans": "traces", "resource_spans": "traces", "resourceMetrics": "metrics", "resource_metrics": "metrics",
          "resourceLogs": "logs", "resource_logs": "logs"}
EXPECTED = ("an OTLP file: .traces.pb, .metrics.pb, .pb, .json or .jsonl (one request a line), or a saved Prometheus metrics page .prom, "
            f"each also as .gz or .zst; or what a load test wrote: {load_tests.EXPECTED}")


@dataclass(slots=True)
class Imported:
    """What came of an import: bodies and items stored, bodies that were there already, items refused, logs left out, and files of a
    folder that turned out not to be OTLP (a folder may hold other JSON; a file that was named must be OTLP). `notes` say what must be known of load tests."""

    files: int = 0
    bodies: int = 0
    items: int = 0
    duplicates: int = 0
    rejected: int = 0
    logs: int = 0
    left_out: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The importable files among `paths`; folders are searched through.

    Raises:
        ImportFailed: a path that is not there, a named file of another kind, or a folder without any.
    """
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) is not None)
            if not inside:
                raise ImportFailed(f"{path} holds no OTLP file: expected {EXPECTED}")
            out.extend(inside)
        elif not path.exists():
            raise ImportFailed(f"there is nothing at {path}: name an OTLP file or a folder of them")
        elif _kind(path) is None and path.suffix not in _TABLES:
            raise ImportFailed(f"{path} is not importable by its name: expected {EXPECTED}")
        else:
            out.append(path)
    return out


def _kind(path: Path) -> str | None:
    suffixes = [s for s in path.suffixes if s not in _COMPRESSED]
    return suffixes[-1] if suffixes and suffixes[-1] in _KINDS else None


def read_bodies(path: Path, notes: list[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """(signal, protobuf body) of every request in a file; what must be known of a load test is added to `notes`.

    Raises:
        ImportFailed: the content is not OTLP, nor a load test's; names the file and the reason.
    """
    try:
        if path.suffix in _TABLES:
            with path.open("rb") as table:
                digest = hashlib.file_digest(table, "sha256").digest()
            yield from _of_load_test(path, load_tests.read_table(path), digest, notes)
            return
        with _opened(path) as stream:
            if _kind(path) == ".pb":
                body = stream.read()
                yield _signal_of(path, body), body
            elif _kind(path) == ".prom":
                yield "metrics", _page(path, stream.read().decode("utf-8"))
            else:
                yield from _json_bodies(path, stream, notes)
    except (BadPayload, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{path} is not OTLP: {error}") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def _json_bodies(path: Path, stream: IO[bytes], notes: list[str] | None) -> Iterator[tuple[str, bytes]]:
    """The bodies of a file of JSON: OTLP, of which lines are read one by one, or a load test's result."""
    if _kind(path) == ".jsonl":
        begin = next((line for line in stream if line.strip()), b"")
        if (first := _otlp(begin)) is not None:
            for document in itertools.chain(first, (msgspec.json.decode(line) for line in stream if line.strip())):
                yield _from_json(document)
            return
        data = begin + stream.read()
    else:
        data = stream.read()
        if (documents := _otlp(data)) is not None:
            for document in documents:
                yield _from_json(document)
            return
    test = load_tests.read(load_tests.documents_of(data), path.stat().st_mtime_ns)
    yield from _of_load_test(path, test, hashlib.sha256(data).digest(), notes)


def _otlp(data: bytes) -> list[Any] | None:
    """The requests in JSON with a root of OTLP on top, or in its first element; None of any other."""
    try:
        found = _documents(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found and isinstance(found[0], dict) and not found[0].keys().isdisjoint(_ROOTS) else None


def _of_load_test(path: Path, test: load_tests.LoadTest, digest: bytes, notes: list[str] | None) -> Iterator[tuple[str, bytes]]:
    if notes is not None:
        notes.extend(f"{path.name}: {note}" for note in test.notes)
    for body in load_tests.bodies(test, digest):
        yield "traces", body


def _page(path: Path, text: str) -> bytes:
    """A saved metrics page: samples without a time are of the file's, and the folder names the instance."""
    families = prometheus.parse(text)
    if not any(family.samples for family in families):
        raise BadPayload("no sample on the page")
    written_ns = path.stat().st_mtime_ns
    service = prometheus.service_of(families) or "scrape"
    return prometheus.request(families, service=service, instance=path.resolve().parent.name, time_ns=written_ns)


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.GzipFile(path))
    if path.suffix == ".zst":
        return io.BufferedReader(_Unzstd(path.open("rb")))
    return path.open("rb")


class _Unzstd(io.RawIOBase):
    """A zstd file as a stream that says when it was cut off; zstandard's own stream_reader ends there without a word."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._frame: Any = zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._ready:
            piece = (self._frame.unused_data if self._frame.eof else b"") or self._packed.read(1 << 16)
            if not piece:
                if self._frame.eof:
                    return 0
                raise EOFError("the compressed file ends too early")
            if self._frame.eof:  # frames may follow each other
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(piece))
        size = min(len(into), len(self._ready))
        into[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._packed.close()
        super().close()


def _documents(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _from_json(document: Any) -> tuple[str, bytes]:
    if isinstance(document, dict):
        for root, signal in _ROOTS.items():
            if root in document:
                return signal, otlp_json.from_document(signal, document)
    raise BadPayload("no resourceSpans, resourceMetrics or resourceLogs at the top")


def _signal_of(path: Path, body: bytes) -> str:
    """The signal that a protobuf body carries: by the file's name, else by which message it fills with sense."""
    named = [signal for signal in ("traces", "metrics", "logs") if f".{signal}." in path.name]
    checks: dict[str, Callable[[bytes], bool]] = {"traces": _has_spans, "metrics": _has_metrics, "logs": _has_logs}
    for signal in named or list(checks):
        try:
            if checks[signal](body):
                return signal
        except DecodeError:
            continue
    raise BadPayload(f"no {' or '.join(named or list(checks))} export request in protobuf")


def _has_spans(body: bytes) -> bool:
    spans = [s for r in ExportTraceServiceRequest.FromString(body).resource_spans for scope in r.scope_spans for s in scope.spans]
    return any(len(s.trace_id) == 16 and len(s.span_id) == 8 for s in spans)


def _has_metrics(body: bytes) -> bool:
    metrics = [m for r in ExportMetricsServiceRequest.FromString(body).resource_metrics for scope in r.scope_metrics for m in scope.metrics]
    return any(m.name and m.WhichOneof("data") for m in metrics)


def _has_logs(body: bytes) -> bool:
    return any(scope.log_records for r in ExportLogsServiceRequest.FromString(body).resource_logs for scope in r.scope_logs)
