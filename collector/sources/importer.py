"""How do files get in? OTLP in every form that the Collector's file exporter writes, what other tools export (forms/), saved metrics
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.config import Settings
from overrun.collector.decode import otlp_json
from overrun.collector.decode.old_otlp import modern
from overrun.collector.errors import BadPayload, ImportFailed
from overrun.collector.sources import (
    containers,
    engine_logs,
    exports,
    forms,
    load_tests,
    log_lines,
    prometheus,
    request_logs,
    text_rows,
)
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import unread
from overrun.collector.sources.forms import framing
from overrun.collector.store.counts import Counts

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
# How a file is opened; another way may keep what it holds, since a file is looked at more than once to learn what it is.
OPENED: ContextVar[Callable[[Path], IO[bytes]]] = ContextVar("opened")
UNREADABLE = (OSError, EOFError, zlib.error, zstandard.ZstdError)
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
    accounts: list[Account] = field(default_factory=list)  # of the files that were read
    became: Counts = field(
        default_factory=Counts
    )  # what a question can use of it, where it was stored here
    own: Sequence[forms.Form] = ()  # a map, or the operator's forms
    engines: dict[Path, str] = field(default_factory=dict)  # of saved pages (`engines_of`)


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The importable files among `paths`; folders are searched through.

    Raises:
        ImportFailed: a path that is not there, or a folder without any.
    """
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_ours(p))
            if not inside:
                raise ImportFailed(f"{path} holds no OTLP file: expected {EXPECTED}")
            out.extend(inside)
        elif not path.exists():
            raise ImportFailed(
                f"there is nothing at {path}: give an OTLP file or a folder of OTLP files"
            )
        else:
            out.extend(containers.members(path) if _is_archive(path) else [path])
    return out


def _is_archive(path: Path) -> bool:
    try:
        with OPENED.get(unpacked)(path) as stream:
            return containers.is_archive(path, stream.read(512))
    except (BadPayload, UnicodeDecodeError, *UNREADABLE):
        return False


def _is_ours(path: Path) -> bool:
    """Whether a file of a folder is taken in: by its suffix, or by a form that knows what is in it; results of load tests are asked for by themselves."""
    if _kind(path) is not None:
        return True
    try:
        form, _ = form_of(path, ())
    except (BadPayload, UnicodeDecodeError, *UNREADABLE):
        return False
    return form is not None and not form.tool and not form.refuse


def own_forms(settings: Settings, map_file: Path | None) -> Sequence[forms.Form]:
    """The map that files are read by, alone, or the forms of the operator's folder.

    Raises:
        ConfigError, BadPayload: one of them cannot be read, or is more than one SELECT.
    """
    if map_file is not None:
        return (replace(forms.of_map(map_file), needs=()),)
    if not settings.forms.folder:
        return ()
    return [replace(form, is_own=True) for form in forms.of_folder(Path(settings.forms.folder))]


def _written_ns(path: Path) -> int:
    return log_lines.dated_ns(path.stat().st_mtime_ns)


def _kind(path: Path) -> str | None:
    suffixes = [s for s in path.suffixes if s not in _COMPRESSED]
    if not suffixes:
        return "" if path.suffix in _COMPRESSED else None
    return suffixes[-1] if suffixes[-1] in _KINDS else None


def is_page(path: Path) -> bool:
    """Whether a file is a saved metrics page."""
    try:
        with OPENED.get(unpacked)(path) as stream:
            return _begins_page(path, _beginning(stream)[1])
    except UNREADABLE:
        return False  # it is refused when it is imported


def says_its_times(path: Path) -> bool:
    """Whether the samples of a saved page carry times of their own; one that cannot be read is refused when it is imported.

    Raises:
        ImportFailed: the file cannot be opened.
    """
    try:
        with OPENED.get(unpacked)(path) as stream:
            return prometheus.own_times(prometheus.parse(_whole(stream).decode("utf-8")))
    except (BadPayload, UnicodeDecodeError):
        return True
    except UNREADABLE as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def read_bodies(
    path: Path,
    account: Account | None = None,
    page_ns: int | None = None,
    page_engine: str | None = None,
    own: Sequence[forms.Form] = (),
) -> Iterator[tuple[str, bytes]]:
    """(signal, protobuf body) of every request in a file; how it was read is written into `account`. `page_ns` is when a saved metrics
    page was read, by default its file's time, and `page_engine` whose it is, by default its folder's. `own` is a map that the file is read by,
    or the operator's own forms.

    Raises:
        ImportFailed: the content is not OTLP, nor a load test's; names the file and the reason.
    """
    account = account or Account(path.name)
    try:
        if path.is_file() and not path.stat().st_size:
            raise ImportFailed(
                f"{path} is empty: its sender has written nothing yet, or a copy failed"
            )
        form, head = form_of(path, own, account)
        if form is not None:
            yield from _of_form(path, form, head, account)
        elif path.suffix in _TABLES:
            yield from _of_table(path, account)
        else:
            with OPENED.get(unpacked)(path) as stream:
                yield from _of_content(path, stream, account, page_ns, page_engine)
        account.read_as("OTLP", "its messages")
    except (BadPayload, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ImportFailed(_refusal(path, str(error))) from error
    except UNREADABLE as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def _refusal(path: Path, why: str) -> str:
    """Why a file was not read, and the command that works on it."""
    known = why.startswith(("it ", "the map", "a map"))
    said = f"{path} cannot be read: {why}" if known else f"{path} is not OTLP: {why}"
    return f"{said.rstrip('.')}. See what is in it and map it yourself: `overrun store map {path}`"


def form_of(
    path: Path, own: Sequence[forms.Form], account: Account | None = None
) -> tuple[forms.Form | None, bytes]:
    """The form that a file is of, and its beginning; a map that was named for it is its form, whatever is in it."""
    if path.suffix == ".parquet":
        return None, b""
    with OPENED.get(unpacked)(path) as stream:
        head = stream.read(framing.LONGEST_HEAD)
    if len(own) == 1 and not own[0].needs:
        return own[0], head
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:_HEAD]
    if _begins_page(path, text) or _framed(head) or not _PRINTED.fullmatch(text):
        return None, head
    if any(f'"{root}"'.encode() in text for root in _ROOTS):
        return None, head
    if len(head) == framing.LONGEST_HEAD and not framing.head_objects(head) and text[:1] == b"{":
        with OPENED.get(unpacked)(path) as stream:
            head = _whole(stream)  # one document, which is known by what is in it
    form, others = forms.recognise(head, (*own, *forms.catalogue()))
    if form is not None and others and account is not None:
        account.note(
            f"{form.title} and {', '.join(other.title for other in others)} fit equally well: read as the first"
        )
    return form, head


def read_by(path: Path, form: forms.Form, account: Account) -> Iterator[dict[str, Any]]:
    """The OTLP requests that a map makes of a file.

    Raises:
        ImportFailed: the file cannot be opened. BadPayload: the map fails on it.
    """
    try:
        with OPENED.get(unpacked)(path) as stream:
            head = stream.read(framing.LONGEST_HEAD)
        with OPENED.get(unpacked)(path) as stream:
            yield from forms.read(form, path, stream, head, account)
    except UNREADABLE as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def _of_form(
    path: Path, form: forms.Form, head: bytes, account: Account
) -> Iterator[tuple[str, bytes]]:
    """The bodies of a file of a form.

    Raises:
        BadPayload: none of its rows is of use.
    """
    if form.tool:
        test = load_tests.with_requests(_test_of(path, form, head))
        with OPENED.get(unpacked)(path) as stream:
            digest = hashlib.file_digest(stream, "sha256").digest()  # type: ignore[arg-type]  # a raw stream is enough
        yield from _of_load_test(path, test, digest, account)
        return
    with OPENED.get(unpacked)(path) as stream:
        for document in forms.read(form, path, stream, head, account):
            yield from _from_json(document)
    if form.figures:
        with OPENED.get(unpacked)(path) as stream:
            yield from _figures(path, framing.whole(stream), account)
    if not account.used:
        raise BadPayload(forms.unused(form, account))


def _of_table(path: Path, account: Account) -> Iterator[tuple[str, bytes]]:
    """The bodies of a table: a row a request, a generator's CSV, or a row a span or call."""
    with path.open("rb") as table:
        digest = hashlib.file_digest(table, "sha256").digest()
    try:
        test = load_tests.read_table(path)
    except BadPayload:
        found = _of_rows(path, account)
        if not found:
            raise
        for document in found:
            yield from _from_json(document)
        return
    yield from _of_load_test(path, test, digest, account)


def load_test_of(path: Path) -> load_tests.LoadTest | None:
    """The runs in a file, if it is what a load generator wrote, with requests or summaries; None of any other file.

    Raises:
        ImportFailed: a load test's result that cannot be read.
    """
    try:
        form, head = form_of(path, ())
        if form is not None:
            return _test_of(path, form, head) if form.tool else None
        if path.suffix == ".parquet":
            return load_tests.read_table(path)
        with OPENED.get(unpacked)(path) as stream:
            return load_tests.read_table(path) if _begins_table(_beginning(stream)[1]) else None
    except BadPayload as error:
        why = error
        try:
            if path.suffix in _TABLES and _of_rows(path, Account()):
                return None
        except BadPayload as of_rows:
            why = of_rows
        raise ImportFailed(f"{path} cannot be read: {why}") from why
    except (UnicodeDecodeError, *UNREADABLE) as error:
        raise ImportFailed(f"{path} cannot be read: {error}") from error


def _test_of(path: Path, form: forms.Form, head: bytes) -> load_tests.LoadTest:
    """The runs in a file of a load generator's form."""
    with OPENED.get(unpacked)(path) as stream:
        return forms.load_test(form, path, stream, head)


def _of_content(
    path: Path,
    stream: IO[bytes],
    account: Account,
    page_ns: int | None,
    page_engine: str | None,
) -> Iterator[tuple[str, bytes]]:
    """The bodies of an unpacked file, by what it begins with."""
    start, text = _beginning(stream)
    if _begins_page(path, text):
        account.read_as("a saved metrics page", "its first lines")
        yield "metrics", _page(path, _whole(stream).decode("utf-8-sig"), page_ns, page_engine)
    elif _framed(start):
        yield from _frames(path, stream, account)
    elif text[:1] in (b"{", b"[") or _kind(path) in (".json", ".jsonl", ".ndjson"):
        yield from _json_bodies(path, stream, account)
    elif _PRINTED.fullmatch(text):
        yield from _of_text(path, _whole(stream), account)
    else:
        body = modern(_whole(stream))
        yield _signal_of(path, body), body


def _of_text(path: Path, data: bytes, account: Account) -> Iterator[tuple[str, bytes]]:
    """The bodies of a text that is no JSON and of no form: a server's log, or one in which lines hold OTLP."""
    text = data.decode("utf-8-sig", "replace")
    written_ns = _written_ns(path)
    if log := _of_log(path, text, account):
        yield from log
        return
    logged = _logged(path, data, account)
    if not logged:
        _check_values(path, data)
        rows = _objects_of_lines(data) or text_rows.rows(text, written_ns)
        logged = (_of_unknown_rows(path, rows, account) or []) if rows else []
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
    """Refuse a JSON text that becomes much more in memory than its file is."""
    framing.check_values(text.count(b",") + text.count(b"{") + text.count(b"["), path)


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


def _frames(path: Path, stream: IO[bytes], account: Account) -> Iterator[tuple[str, bytes]]:
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
            for document in _otlp(msgspec.json.decode(message), account) or []:
                yield from _from_json(document)
        else:
            body = modern(message)
            yield _signal_of(path, body), body


def _json_bodies(path: Path, stream: IO[bytes], account: Account) -> Iterator[tuple[str, bytes]]:
    """The bodies of a file of JSON: OTLP or what another tool exported, of which lines are read one by one, or a load test's result."""
    begin = next(_lines(stream), b"")
    begin = begin.removeprefix(b"\xef\xbb\xbf")
    _check_values(path, begin)
    try:
        value = msgspec.json.decode(begin)
        # A container's log may be of an engine, whose lines mean something together.
        together = _is_logged(value)
        first = None if together else _otlp(value, account)
    except (msgspec.DecodeError, RecursionError):
        data = begin + _whole(stream, len(begin))  # not a document a line
        _check_values(path, data)
        values = _values(data)
    else:
        if first is not None:
            others = 0
            lines = map(functools.partial(_line, path, account), _lines(stream))
            for found in itertools.chain((first,), lines):
                others += not found
                for document in found or ():
                    yield from _from_json(document)
            _say_others(others, account)
            return
        data = begin + _whole(stream, len(begin))
        _check_values(path, data)
        values = _values(data) if together else []
    yield from _of_documents(path, data, values, account)


def _is_logged(value: Any) -> bool:
    """Whether it is a line of a container's log, as Docker keeps it."""
    return isinstance(value, dict) and isinstance(value.get("log"), str)


def _of_documents(
    path: Path, data: bytes, values: list[Any], account: Account
) -> Iterator[tuple[str, bytes]]:
    """The bodies of a whole file: its documents, an engine's log that begins like one, or lines of a log."""
    if values and _is_logged(values[0]):
        values = []
    requests = [_otlp(value, account) for value in values]
    if requests and None not in requests:
        for document in itertools.chain.from_iterable(found or [] for found in requests):
            yield from _from_json(document)
        return
    if log := _of_log(path, data.decode("utf-8-sig", "replace"), account):
        yield from log
    elif known := _logged(path, data, account):
        for document in known:
            yield from _from_json(document)
    else:
        yield from _unknown(path, data, values or _values(data), account)


def _unknown(
    path: Path, data: bytes, values: list[Any], account: Account
) -> Iterator[tuple[str, bytes]]:
    """The bodies of rows of calls that nobody declared.

    Raises:
        BadPayload: it is of a form that is known not to be read, or of none.
    """
    named = (what for value in values if (what := unread.of_document(value)))
    if what := unread.of_bytes(data[:_HEAD]) or next(named, ""):
        raise BadPayload(f"it looks like {what}") from None
    found = _of_unknown_rows(path, values or _objects_of_lines(data), account)
    if not found:
        raise load_tests.unknown(load_tests.documents_of(data))
    for document in found:
        yield from _from_json(document)


def _of_unknown_rows(path: Path, values: list[Any], account: Account) -> list[Any] | None:
    """The requests in rows of calls whose columns nobody declared.

    Raises:
        BadPayload: they lack something, which is named.
    """
    return _concluded([item for value in values for item in _documents(value)], account)


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


def _otlp(value: Any, account: Account) -> list[Any] | None:
    """The requests in a document with a root of OTLP on top, or in its first element, or inside of something else; None of any other."""
    found = _documents(value)
    if found and isinstance(found[0], dict) and not found[0].keys().isdisjoint(_ROOTS):
        account.read_as("OTLP", "its root")
        return found
    inside = exports.otlp_inside(value)
    if inside:
        account.read_as("OTLP", "its root inside of another")
    return inside


def bodies_of(value: Any) -> Iterator[tuple[str, bytes]]:
    """(signal, protobuf body) of every request in a decoded document: OTLP/JSON, or of a form; none of any other.

    Raises:
        BadPayload: it is of a form, and none of its rows is of use.
    """
    account = Account()
    found = _otlp(value, account)
    for document in (forms.of_value(value, account) or ()) if found is None else found:
        yield from _from_json(document)


def _line(path: Path, account: Account, line: bytes) -> list[Any] | None:
    """The requests in a line of a file, before which a logger may have put its own words; None of what a program logged beside them."""
    _check_values(path, line)
    if line.lstrip().startswith((b"{", b"[")):
        value = msgspec.json.decode(line)
        found = _otlp(value, account)
        return _documents(value) if found is None else found
    at = line.find(b"{")
    try:
        return _otlp(msgspec.json.decode(line[at:]), account) if at >= 0 else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _logged(path: Path, data: bytes, account: Account) -> list[Any]:
    """The requests that stand in lines of a log; none if no line holds one."""
    try:
        lines = [_line(path, account, line) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, RecursionError):
        return []
    found = [document for line in lines for document in line or ()]
    if not any(isinstance(document, dict) and document.keys() & _ROOTS for document in found):
        return []
    _say_others(sum(not line for line in lines), account)
    return found


def _of_log(path: Path, text: str, account: Account) -> list[tuple[str, bytes]]:
    """The bodies in a server's log: figures of an engine, or a line a request; none of any other text."""
    written_ns = _written_ns(path)
    if figures := list(_figures(path, text, account)):
        return figures
    concluded: list[str] = []
    found = request_logs.documents(text, written_ns=written_ns, notes=concluded)
    if found:
        account.read_as("a server's log", "lines with a time, a model's API and a duration")
    for note in concluded:
        account.note(note)
    return [body for document in found for body in _from_json(document)]


def _figures(path: Path, text: str, account: Account) -> Iterator[tuple[str, bytes]]:
    """The metrics of an engine's log; none of any other text."""
    log = engine_logs.read(text, instance=path.stem, written_ns=_written_ns(path))
    if log is not None:
        account.read_as("an engine's log", "its lines have the engine's figures")
        account.note(log.note)
        yield "metrics", log.body


def _concluded(rows: list[Any], account: Account) -> list[Any] | None:
    """The requests in rows of calls whose columns nobody declared.

    Raises:
        BadPayload: they lack something, which is named.
    """
    concluded: list[str] = []
    found = exports.of_rows(rows, concluded, account)
    if found:
        account.read_as("rows of calls", "by the words of their columns")
        account.is_concluded = True
    for note in concluded:
        account.note(note)
    return found


def _of_rows(path: Path, account: Account) -> list[Any] | None:
    """The requests in a table whose rows are spans or calls, None of any other table.

    Raises:
        BadPayload: it cannot be read.
    """
    rows = load_tests.table_rows(path)
    return forms.of_value(rows, account) or _concluded(rows, account)


def _say_others(others: int, account: Account) -> None:
    if others:
        account.note(f"{others:,} {'line' if others == 1 else 'lines'} without telemetry left out")


def _of_load_test(
    path: Path, test: load_tests.LoadTest, digest: bytes, account: Account
) -> Iterator[tuple[str, bytes]]:
    account.read_as(f"a load test's result ({test.tool})", "its keys or columns")
    for note in test.notes:
        account.note(note)
    for body in load_tests.bodies(test, digest):
        yield "traces", body


def _page(path: Path, text: str, page_ns: int | None, engine: str | None) -> bytes:
    """A saved metrics page: samples without a time are of the page's, and the folder names the instance."""
    families = prometheus.parse(text)
    if not any(family.samples for family in families):
        raise BadPayload("no metric sample on the page")
    written_ns = _written_ns(path) if page_ns is None else page_ns
    service = prometheus.service_of(families) or "scrape"
    return prometheus.request(
        families, service=service, instance=engine or path.resolve().parent.name, time_ns=written_ns
    )


def unpacked(path: Path) -> IO[bytes]:
    """A file unpacked, if it is packed as a whole, and in UTF-8, if it is in UTF-16."""
    stream: IO[bytes] = path.open("rb")
    start = stream.peek(4)[:4]  # type: ignore[attr-defined]  # all of them have it
    if start[:2] == _GZIP:
        stream.close()
        stream = io.BufferedReader(gzip.GzipFile(path))
    elif start == _ZSTD:
        stream = io.BufferedReader(_Unzstd(stream))
    if not stream.peek(2)[:2].startswith(_UTF16):  # type: ignore[attr-defined]  # all of them have it
        return stream
    with stream:
        return io.BufferedReader(io.BytesIO(_whole(stream).decode("utf-16").encode()))  # type: ignore[arg-type]  # a raw stream is enough


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
            "`time=2026-09-21T14:13:20Z duration=2.3s model=NAME`"
        )
    raise BadPayload(
        f"it looks like {what}"
        if what
        else f"no {' or '.join(named or list(checks))} export request in protobuf"
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
