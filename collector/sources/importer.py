"""How do files get in? OTLP in every form that the Collector's file exporter writes, what Jaeger, Zipkin, Tempo and Langfuse export (exports/), saved metrics
pages, results of load tests (load_tests/), and folders of them become bodies as of live traffic. What a file is follows from its content, not from its name.

A file is read, recognised and handed over body by body; the sender behind `send` is the writer itself or a running server.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import otlp_json
from overrun.collector.decode.old_otlp import modern
from overrun.collector.errors import BadPayload, ImportFailed
from overrun.collector.sources import (
    engine_logs,
    exports,
    load_tests,
    prometheus,
    request_logs,
    text_rows,
)
from overrun.collector.sources.exports import unread

_COMPRESSED = (".gz", ".zst", ".zstd")
# Of a folder, whose other files are none of ours; a file named on the command line is read with any name.
_KINDS = (".pb", ".binpb", ".proto", ".otlp", ".json", ".jsonl", ".ndjson", ".prom")
# Only where named: a folder may hold any table.
_TABLES = (".csv", ".parquet")
_ROOTS = {
    "resourceSpans": "traces",
    "resource_spans": "traces",
    "resourceMetrics": "metrics",
    "resource_metrics": "metrics",
    "resourceLogs": "logs",
    "resource_logs": "logs",
}
EXPECTED = (
    "OTLP (protobuf or JSON, also one request per line or length-prefixed, as the Collector's file exporter writes), a saved Prometheus metrics page .prom, "
    "JSON exports of Jaeger, Zipkin, Tempo, X-Ray, Application Insights, Langfuse, LangSmith, MLflow, Phoenix, Helicone, the OpenAI Agents SDK, ClickHouse, "
    "LiteLLM, Kong or Bedrock's invocation log, logs of vLLM, SGLang, TensorRT-LLM, TGI, Ollama and llama.cpp, access logs with durations, "
    "rows of calls with a begin and a duration, each also compressed by gzip or zstd; "
    f"or results of a load test: {load_tests.EXPECTED}"
)
# Of the files of a command so many bytes, unpacked, are kept to be looked at again (`read_once`).
_MOST_KEPT = 64 << 20
_KEPT: ContextVar[dict[Path, bytes] | None] = ContextVar("kept", default=None)
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# Any longer first message would begin as a bare request does, with the tag of its first field.
_MOST_FRAMED = 0x0A << 24
_HEAD = 4_000  # bytes that tell what a file is
# A name of the first line of a table.
_TABLE_NAME = re.compile(rb'\s*"?[\w@%][\w /%.()+@-]{0,200}"?\s*')
# The beginning of a text: protobuf has control characters there.
_PRINTED = re.compile(rb"[^\x00-\x08\x0b\x0c\x0e-\x1f]+")
# What is read at once, unpacked: a document, a line, a metrics page. A file of a few kB unpacks to gigabytes, and a line without an end is none.
MAX_DOCUMENT = 512 << 20
# Values of a JSON document: each takes up to 200 bytes of memory, however few it takes in the file. As many as the file has bytes ten times over (what tools
# write packs to about one byte a value) and some more; 29 kB hold ten million empty ones.
MAX_VALUES, SPARE_VALUES, VALUES_A_BYTE = 20_000_000, 1_000_000, 10
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(slots=True)
class Imported:
    """What came of an import: bodies and items stored, bodies that were already stored, items refused, logs left out, and files of a
    folder that turned out not to be OTLP (a folder may hold other JSON; a file that was named must be OTLP). `notes` say what must be known of load tests."""

    files: int = 0
    bodies: int = 0
    items: int = 0
    duplicates: int = 0
    rejected: int = 0
    logs: int = 0
    left_out: list[Path] = field(default_factory=list)
    why: str = ""  # the first of them was left out
    notes: list[str] = field(default_factory=list)
    engines: dict[Path, str] = field(default_factory=dict)  # of saved pages (`engines_of`)


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The importable files among `paths`; folders are searched through.

    Raises:
        ImportFailed: a path that is not there, or a folder without any.
    """
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) is not None)
            if not inside:
                raise ImportFailed(f"{path} holds no OTLP file: expected {EXPECTED}")
            out.extend(inside)
        elif not path.exists():
            raise ImportFailed(
                f"there is nothing at {path}: give an OTLP file or a folder of OTLP files"
            )
        else:
            out.append(path)
    return out


def _kind(path: Path) -> str | None:
    suffixes = [s for s in path.suffixes if s not in _COMPRESSED]
    if not suffixes:
        return "" if path.suffix in _COMPRESSED else None
    return suffixes[-1] if suffixes[-1] in _KINDS else None


def is_page(path: Path) -> bool:
    """Whether a file is a saved metrics page."""
    try:
        with _opened(path) as stream:
            return _begins_page(path, _beginning(stream)[1])
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        return False  # it is refused when it is imported


def says_its_times(path: Path) -> bool:
    """Whether the samples of a saved page carry times of their own; one that cannot be read is refused when it is imported.

    Raises:
        ImportFailed: the file cannot be opened.
    """
    try:
        with _opened(path) as stream:
            return prometheus.own_times(prometheus.parse(_whole(stream).decode("utf-8")))
    except (BadPayload, UnicodeDecodeError):
        return True
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def read_bodies(
    path: Path,
    notes: list[str] | None = None,
    page_ns: int | None = None,
    page_engine: str | None = None,
) -> Iterator[tuple[str, bytes]]:
    """(signal, protobuf body) of every request in a file; what must be known of a load test is added to `notes`. `page_ns` is when a saved metrics page
    was read, by default its file's time, and `page_engine` whose it is, by default its folder's.

    Raises:
        ImportFailed: the content is not OTLP, nor a load test's; names the file and the reason.
    """
    try:
        if path.is_file() and not path.stat().st_size:
            raise ImportFailed(
                f"{path} is empty: its sender has written nothing yet, or a copy failed"
            )
        if path.suffix in _TABLES:
            yield from _of_table(path, notes)
            return
        with _opened(path) as stream:
            yield from _of_content(path, stream, notes, page_ns, page_engine)
    except (BadPayload, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImportFailed(f"{path} is not OTLP: {error}") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def _of_table(path: Path, notes: list[str] | None) -> Iterator[tuple[str, bytes]]:
    """The bodies of a table: a row a request, a generator's CSV, or a row a span or call."""
    with path.open("rb") as table:
        digest = hashlib.file_digest(table, "sha256").digest()
    try:
        test = _table(path)
    except BadPayload:
        concluded: list[str] = []
        found = _of_rows(path, concluded)
        if not found:
            raise
        if notes is not None:
            notes.extend(f"{path.name}: {note}" for note in concluded)
        for document in found:
            yield from _from_json(document)
        return
    yield from _of_load_test(path, test, digest, notes)


def load_test_of(path: Path) -> load_tests.LoadTest | None:
    """The runs in a file, if it is what a load generator wrote, with requests or summaries; None of any other file.

    Raises:
        ImportFailed: a load test's result that cannot be read.
    """
    try:
        if path.suffix == ".parquet":
            return load_tests.read_table(path)
        with _opened(path) as stream:
            _, text = _beginning(stream)
            if text[:1] in (b"{", b"[") and not _begins_page(path, text):
                data = _whole(stream)
                _check_values(path, data)
                return _runs_of_json(data, path.stat().st_mtime_ns)
            if _begins_table(text):
                return load_tests.read_csv(
                    _whole(stream).decode("utf-8-sig"), path.stat().st_mtime_ns
                ) or _table(path)
            if _PRINTED.fullmatch(text) and not _begins_page(path, text):
                printed = _whole(stream).decode("utf-8", "replace")
                return load_tests.read_text(printed, path.stat().st_mtime_ns)
    except TooLarge:
        return None  # no summary: line by line it may be OTLP
    except BadPayload as error:
        why = error
        try:
            if path.suffix in _TABLES and _of_rows(path):
                return None
        except BadPayload as of_rows:
            why = of_rows
        raise ImportFailed(f"{path} cannot be read: {why}") from why
    except UnicodeDecodeError as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error
    return None


def _runs_of_json(data: bytes, written_ns: int) -> load_tests.LoadTest | None:
    try:
        documents = load_tests.documents_of(data)
    except BadPayload:
        return None  # not a load test's: whoever reads it as telemetry says what it is
    return load_tests.recognised(documents, written_ns)


def _table(path: Path) -> load_tests.LoadTest:
    """The requests in a table of one request a row, or in a generator's CSV."""
    if path.suffix == ".csv":
        found = load_tests.read_csv(path.read_bytes().decode("utf-8-sig"), path.stat().st_mtime_ns)
        if found is not None:
            return load_tests.with_requests(found)
    return load_tests.read_table(path)


def _of_content(
    path: Path,
    stream: IO[bytes],
    notes: list[str] | None,
    page_ns: int | None,
    page_engine: str | None,
) -> Iterator[tuple[str, bytes]]:
    """The bodies of an unpacked file, by what it begins with."""
    start, text = _beginning(stream)
    if _begins_page(path, text):
        yield "metrics", _page(path, _whole(stream).decode("utf-8-sig"), page_ns, page_engine)
    elif _framed(start):
        yield from _frames(path, stream)
    elif (
        text[:1] in (b"{", b"[")
        or _kind(path) in (".json", ".jsonl", ".ndjson")
        or start.startswith(_UTF16)
    ):
        yield from _json_bodies(path, stream, notes)
    elif _PRINTED.fullmatch(text):
        yield from _of_text(path, _whole(stream), notes)
    else:
        body = modern(_whole(stream))
        yield _signal_of(path, body), body


def _of_text(path: Path, data: bytes, notes: list[str] | None) -> Iterator[tuple[str, bytes]]:
    """The bodies of a text that is no JSON: a generator's table or printed figures, or a log in which lines hold OTLP."""
    text = data.decode("utf-8-sig", "replace")
    written_ns = path.stat().st_mtime_ns
    test = load_tests.read_csv(text, written_ns) or load_tests.read_text(text, written_ns)
    if test is not None:
        digest = hashlib.sha256(data).digest()
        yield from _of_load_test(path, load_tests.with_requests(test), digest, notes)
        return
    if log := _of_log(path, text, notes):
        yield from log
        return
    logged = _logged(path, data, notes)
    if not logged:
        _check_values(path, data)
        rows = _objects_of_lines(data) or text_rows.rows(text, written_ns)
        logged = (_of_unknown_rows(path, rows, notes) or []) if rows else []
    if not logged:
        yield _signal_of(path, data), data
    for document in logged:
        yield from _from_json(document)


class TooLarge(BadPayload):
    """More than is read at once."""


def _whole(stream: IO[bytes], before: int = 0) -> bytes:
    """All that is left of a stream.

    Raises:
        TooLarge: it is larger than MAX_DOCUMENT, together with what was read `before`.
    """
    data = stream.read(MAX_DOCUMENT + 1 - before)
    if len(data) + before > MAX_DOCUMENT:
        raise TooLarge(_too_large("document"))
    return data


def _check_values(path: Path, text: bytes) -> None:
    """Refuse a JSON text that becomes much more in memory than its file is.

    Raises:
        BadPayload: it has too many values.
    """
    values = text.count(b",") + text.count(b"{") + text.count(b"[")
    most = min(MAX_VALUES, SPARE_VALUES + VALUES_A_BYTE * path.stat().st_size)
    if values > most:
        raise BadPayload(
            f"it holds about {values:,} values at once, expected at most {most:,} for its size: write a request a line, or split it"
        )


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """The lines that hold something.

    Raises:
        TooLarge: one of them is longer than MAX_DOCUMENT.
    """
    while line := stream.readline(MAX_DOCUMENT + 1):
        if len(line) > MAX_DOCUMENT:
            raise TooLarge(_too_large("line"))
        if line.strip():
            yield line


def _too_large(what: str) -> str:
    return f"it holds a {what} of more than {MAX_DOCUMENT >> 20} MiB: write a request a line, or split it"


def _beginning(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """The first bytes of an unpacked file, and the same without a byte order mark and white space before its text."""
    start: bytes = stream.peek(_HEAD)[:_HEAD]  # type: ignore[attr-defined]  # each stream that _opened gives has it
    return start, start.removeprefix(b"\xef\xbb\xbf").lstrip()


def _begins_page(path: Path, text: bytes) -> bool:
    return _kind(path) == ".prom" or text.startswith((b"# HELP ", b"# TYPE "))


def _begins_table(text: bytes) -> bool:
    """Whether the first line holds names between commas and nothing else."""
    names = text.partition(b"\n")[0].split(b",")
    return len(names) > 1 and all(map(_TABLE_NAME.fullmatch, names))


def _framed(start: bytes) -> bool:
    """Whether each message has its length before it, as the Collector's file exporter writes protobuf and what it compresses message by message."""
    return (
        len(start) > 4
        and 0 < int.from_bytes(start[:4], "big") < _MOST_FRAMED
        and (start[4:8] == _ZSTD or start[4:5] in (b"\n", b"{"))
    )


def _frames(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """The bodies of such a file: 4 bytes of length, then a message in protobuf or JSON, which may be compressed on its own."""
    while length := stream.read(4):
        size = int.from_bytes(length, "big")
        message = stream.read(size)
        if len(length) < 4 or len(message) < size:
            raise EOFError("its last message is incomplete")
        if message[:4] == _ZSTD:
            message = _whole(io.BufferedReader(_Unzstd(io.BytesIO(message))))
        if message[:1] == b"{":
            _check_values(path, message)
            for document in _otlp(msgspec.json.decode(message)) or []:
                yield from _from_json(document)
        else:
            body = modern(message)
            yield _signal_of(path, body), body


def _json_bodies(
    path: Path, stream: IO[bytes], notes: list[str] | None
) -> Iterator[tuple[str, bytes]]:
    """The bodies of a file of JSON: OTLP or what another tool exported, of which lines are read one by one, or a load test's result."""
    begin = next(_lines(stream), b"")
    if begin.startswith(_UTF16):
        stream = io.BytesIO((begin + _whole(stream, len(begin))).decode("utf-16").encode())
        begin = next(_lines(stream), b"")
    begin = begin.removeprefix(b"\xef\xbb\xbf")
    _check_values(path, begin)
    try:
        value = msgspec.json.decode(begin)
        # A container's log may be of an engine, whose lines mean something together.
        together = exports.belongs_together(value) or _is_logged(value)
        first = None if together else _otlp(value)
    except (msgspec.DecodeError, RecursionError):
        data = begin + _whole(stream, len(begin))  # not a document a line
        _check_values(path, data)
        values = _values(data)
    else:
        if first is not None:
            others = 0
            lines = map(functools.partial(_line, path), _lines(stream))
            for found in itertools.chain((first,), lines):
                others += not found
                for document in found or ():
                    yield from _from_json(document)
            _say_others(path, others, notes)
            return
        data = begin + _whole(stream, len(begin))
        _check_values(path, data)
        values = _values(data) if together else []
    yield from _of_documents(path, data, values, notes)


def _is_logged(value: Any) -> bool:
    """Whether it is a line of a container's log, as Docker keeps it."""
    return isinstance(value, dict) and isinstance(value.get("log"), str)


def _of_documents(
    path: Path, data: bytes, values: list[Any], notes: list[str] | None
) -> Iterator[tuple[str, bytes]]:
    """The bodies of a whole file: its documents, an engine's log that begins like one, lines of a log, or a load test's result."""
    if values and exports.belongs_together(values[0]):
        values = [values]
    elif values and _is_logged(values[0]):
        values = []
    requests = [_otlp(value) for value in values]
    if requests and None not in requests:
        for document in itertools.chain.from_iterable(found or [] for found in requests):
            yield from _from_json(document)
        return
    try:
        test = load_tests.read(load_tests.documents_of(data), path.stat().st_mtime_ns)
    except BadPayload as error:
        if log := _of_log(path, data.decode("utf-8-sig", "replace"), notes):
            yield from log
            return
        if known := _logged(path, data, notes):
            for document in known:
                yield from _from_json(document)
            return
        yield from _unknown(path, data, values or _values(data), error, notes)
        return
    yield from _of_load_test(path, test, hashlib.sha256(data).digest(), notes)


def _unknown(
    path: Path, data: bytes, values: list[Any], error: BadPayload, notes: list[str] | None
) -> Iterator[tuple[str, bytes]]:
    """The bodies of rows of calls that nobody declared.

    Raises:
        BadPayload: it is of a form that is known not to be read, or of none.
    """
    named = (what for value in values if (what := unread.of_document(value)))
    if what := unread.of_bytes(data[:_HEAD]) or next(named, ""):
        raise BadPayload(f"it looks like {what}") from None
    found = _of_unknown_rows(path, values or _objects_of_lines(data), notes)
    if not found:
        raise error
    for document in found:
        yield from _from_json(document)


def _of_unknown_rows(path: Path, values: list[Any], notes: list[str] | None) -> list[Any] | None:
    """The requests in rows of calls whose columns nobody declared.

    Raises:
        BadPayload: they lack something, which is named.
    """
    concluded: list[str] = []
    found = exports.of_rows([item for value in values for item in _documents(value)], concluded)
    if notes is not None:
        notes.extend(f"{path.name}: {note}" for note in concluded)
    return found


def _objects_of_lines(data: bytes) -> list[Any]:
    """The JSON objects that end the lines of a log, before which a container or a shipper may have put words; none unless most lines hold one. A last line
    that was cut off is left out."""
    lines = [line for line in data.splitlines() if line.strip()]
    found = []
    for line in lines:
        at = line.find(b"{")
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            if at >= 0:
                found.append(msgspec.json.decode(line[at:]))
    return found if 2 * len(found) > len(lines) else []


def _values(data: bytes) -> list[Any]:
    """The JSON documents that follow one another in these bytes, however they are indented; none if they are not JSON."""
    decoder, out, at = json.JSONDecoder(), [], 0
    try:
        text = data.decode("utf-8")
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            value, at = decoder.raw_decode(text, at)
            out.append(value)
    except (ValueError, RecursionError):
        return []
    return out


def _otlp(value: Any) -> list[Any] | None:
    """The requests in a document with a root of OTLP on top, or in its first element, or in a form that another tool exports; None of any other."""
    found = _documents(value)
    if found and isinstance(found[0], dict) and not found[0].keys().isdisjoint(_ROOTS):
        return found
    return exports.as_otlp(value)


def bodies_of(value: Any) -> Iterator[tuple[str, bytes]]:
    """(signal, protobuf body) of every request in a decoded document: OTLP/JSON, or a form that another tool exports; none of any other.

    Raises:
        BadPayload: it is of a known form, but a value in it is of another type.
    """
    for document in _otlp(value) or ():
        yield from _from_json(document)


def _line(path: Path, line: bytes) -> list[Any] | None:
    """The requests in a line of a file, before which a logger may have put its own words; None of what a program logged beside them."""
    _check_values(path, line)
    if line.lstrip().startswith((b"{", b"[")):
        value = msgspec.json.decode(line)
        found = _otlp(value)
        return _documents(value) if found is None else found
    at = line.find(b"{")
    try:
        return _otlp(msgspec.json.decode(line[at:])) if at >= 0 else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _logged(path: Path, data: bytes, notes: list[str] | None) -> list[Any]:
    """The requests that stand in lines of a log; none if no line holds one."""
    try:
        lines = [_line(path, line) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, RecursionError):
        return []
    found = [document for line in lines for document in line or ()]
    if not any(isinstance(document, dict) and document.keys() & _ROOTS for document in found):
        return []
    _say_others(path, sum(not line for line in lines), notes)
    return found


def _of_log(path: Path, text: str, notes: list[str] | None) -> list[tuple[str, bytes]]:
    """The bodies in a server's log: figures of an engine, or a line a request; none of any other text."""
    written_ns = path.stat().st_mtime_ns
    log = engine_logs.read(text, instance=path.stem, written_ns=written_ns)
    if log is not None:
        if notes is not None:
            notes.append(f"{path.name}: {log.note}")
        return [("metrics", log.body)]
    concluded: list[str] = []
    found = request_logs.documents(text, written_ns=written_ns, notes=concluded)
    if notes is not None:
        notes.extend(f"{path.name}: {note}" for note in concluded)
    return [body for document in found for body in _from_json(document)]


def _of_rows(path: Path, notes: list[str] | None = None) -> list[Any] | None:
    """The requests in a table whose rows are spans or calls, None of any other table.

    Raises:
        BadPayload: it cannot be read.
    """
    rows = load_tests.table_rows(path)
    return exports.as_otlp(rows) or exports.of_rows(rows, notes)


def _say_others(path: Path, others: int, notes: list[str] | None) -> None:
    if others and notes is not None:
        notes.append(
            f"{path.name}: {others:,} {'line' if others == 1 else 'lines'} without telemetry left out"
        )


def _of_load_test(
    path: Path, test: load_tests.LoadTest, digest: bytes, notes: list[str] | None
) -> Iterator[tuple[str, bytes]]:
    if notes is not None:
        notes.extend(f"{path.name}: {note}" for note in test.notes)
    for body in load_tests.bodies(test, digest):
        yield "traces", body


def _page(path: Path, text: str, page_ns: int | None, engine: str | None) -> bytes:
    """A saved metrics page: samples without a time are of the page's, and the folder names the instance."""
    families = prometheus.parse(text)
    if not any(family.samples for family in families):
        raise BadPayload("no metric sample on the page")
    written_ns = path.stat().st_mtime_ns if page_ns is None else page_ns
    service = prometheus.service_of(families) or "scrape"
    return prometheus.request(
        families, service=service, instance=engine or path.resolve().parent.name, time_ns=written_ns
    )


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within, a file is read and unpacked once, however often it is looked at to recognise it and to take it in; what is too much to keep is read again."""
    token = _KEPT.set({})
    try:
        yield
    finally:
        _KEPT.reset(token)


def _opened(path: Path) -> IO[bytes]:
    """A file unpacked, if it is packed as a whole."""
    kept = _KEPT.get()
    if kept is None:
        return _unpacked(path)
    if path not in kept:
        most = _MOST_KEPT - sum(map(len, kept.values()))
        try:
            with _unpacked(path) as stream:
                data = stream.read(most + 1)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError):
            return _unpacked(path)  # what comes before its damage is read
        if len(data) > most:
            return _unpacked(path)
        kept[path] = data
    return io.BufferedReader(io.BytesIO(kept[path]))


def _unpacked(path: Path) -> IO[bytes]:
    packed = path.open("rb")
    start = packed.peek(4)[:4]
    if start[:2] == _GZIP:
        packed.close()
        return io.BufferedReader(gzip.GzipFile(path))
    return io.BufferedReader(_Unzstd(packed)) if start == _ZSTD else packed


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
            piece = (self._frame.unused_data if self._frame.eof else b"") or self._packed.read(
                1 << 16
            )
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


def _from_json(document: Any) -> Iterator[tuple[str, bytes]]:
    """A body per signal in a request; more than one is no real request, but put together by hand."""
    found = [
        (root, signal)
        for root, signal in _ROOTS.items()
        if isinstance(document, dict) and root in document
    ]
    if not found:
        raise BadPayload("no resourceSpans, resourceMetrics or resourceLogs at the top")
    for _, signal in found:
        yield signal, otlp_json.from_document(signal, document)


def _signal_of(path: Path, body: bytes) -> str:
    """The signal that a protobuf body carries: by the file's name, else by which message it fills with sense."""
    named = [signal for signal in ("traces", "metrics", "logs") if f".{signal}." in path.name]
    checks: dict[str, Callable[[bytes], bool]] = {
        "traces": _has_spans,
        "metrics": _has_metrics,
        "logs": _has_logs,
    }
    for signal in named or list(checks):
        try:
            if checks[signal](body):
                return signal
        except DecodeError:
            continue
    what = unread.of_bytes(body[:_HEAD])
    if not what and _PRINTED.fullmatch(body[:_HEAD]):
        what = (
            "a text without calls: each needs a time, a model and a duration in one line, in JSON or as key=value, such as "
            f"`time=2026-09-21T14:13:20Z duration=2.3s model=NAME`; expected {EXPECTED}"
        )
    raise BadPayload(
        f"it looks like {what}"
        if what
        else f"no {' or '.join(named or list(checks))} export request in protobuf; expected {EXPECTED}"
    )


def _has_spans(body: bytes) -> bool:
    spans = [
        s
        for r in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in r.scope_spans
        for s in scope.spans
    ]
    return any(len(s.trace_id) == 16 and len(s.span_id) == 8 for s in spans)


def _has_metrics(body: bytes) -> bool:
    metrics = [
        m
        for r in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in r.scope_metrics
        for m in scope.metrics
    ]
    return any(m.name and m.WhichOneof("data") for m in metrics)


def _has_logs(body: bytes) -> bool:
    return any(
        scope.log_records
        for r in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in r.scope_logs
    )
