"""What of somebody's telemetry may leave their machine? OTLP without names, texts and dates, in which everything that is computed from it stays as it was.

Words of the vocabularies that Overrun knows stay, and so do numbers. Every other word becomes a hash of itself, the same wherever it stands, so that equal names stay
equal. Text that people or models wrote is replaced whole. Trace and span ids are hashed, and times count from a fixed moment on. The key of the
hashes is random and is thrown away, so nobody can try names against them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from overrun.collector.normalise import privacy

# The moment from which times count in what is written.
BEGIN_NS: Final = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)
# A camel-case word is read word by word, as vocabularies write them.
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+", re.UNICODE)
_MEASURE: Final = re.compile(
    r"-?\d{1,9}(\.\d{1,12})?(e-?\d{1,2})?\s?(ns|us|µs|ms|s|m|h|%)?", re.IGNORECASE
)
_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:?\d{2})?")
# Keys of names that somebody gave: every word is hashed, since two words of a vocabulary are a name already.
_IDENTITY: Final = re.compile(
    r"^(service|host|k8s|container|cloud|deployment|process|server|net|client|peer|messaging|db)\.|tenant|model|route|instance|pod|node|namespace|url|target|path",
    re.IGNORECASE,
)
_LONGEST_WORD: Final = 24
_LONGEST_NUMBER: Final = 3
_LEAST_PART: Final = 3  # of a camel-case word: of shorter parts any word could be put together
_TEXT: Final = "text"
# The rooms whose words are vocabulary: what senders are known to write, and what Overrun looks for.
_ROOMS: Final = ("dialects", "sources/exports", "sources/forms")
_FILES: Final = (
    "stages.py",
    "privacy.py",
    "words.toml",
    "model_endpoints.toml",
    "metric_names.py",
    "points.py",
    "untyped_metrics.py",
    "samplers.py",
)
_YEAR_NS: Final = 366 * 86_400 * 1_000_000_000


class Anonymiser:
    """Hides one set of bodies; equal words become equal hashes in all of them."""

    def __init__(self, begin_ns: int, key: bytes | None = None) -> None:
        self._begin_ns, self._key = begin_ns, secrets.token_bytes(16) if key is None else key

    def traces(self, body: bytes) -> ExportTraceServiceRequest:
        """A traces request with nothing in it by which its sender could be known."""
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            resource.schema_url = ""
            self._attributes(resource.resource)
            for scope in resource.scope_spans:
                scope.schema_url = ""
                self._scope(scope.scope)
                for span in scope.spans:
                    self._span(span)
        return request

    def metrics(self, body: bytes) -> ExportMetricsServiceRequest:
        """A metrics request with nothing in it by which its sender could be known."""
        request = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_metrics:
            resource.schema_url = ""
            self._attributes(resource.resource)
            for scope in resource.scope_metrics:
                scope.schema_url = ""
                self._scope(scope.scope)
                for metric in scope.metrics:
                    metric.name, metric.description = self.words(metric.name), ""
                    metric.unit = (
                        metric.unit
                        if _MEASURE.fullmatch(f"1{metric.unit}")
                        else self.words(metric.unit)
                    )
                    del metric.metadata[:]
                    for point in _points(metric):
                        self._point(point)
        return request

    def _span(self, span: Any) -> None:
        span.trace_id, span.span_id = self._id(span.trace_id), self._id(span.span_id)
        span.parent_span_id = self._id(span.parent_span_id)
        span.trace_state = self._trace_state(span.trace_state)
        span.name = self.name(span.name)
        span.start_time_unix_nano = self._moment(span.start_time_unix_nano)
        span.end_time_unix_nano = self._moment(span.end_time_unix_nano)
        span.status.message = _TEXT if span.status.message else ""
        self._attributes(span)
        for event in span.events:
            event.name, event.time_unix_nano = (
                self.name(event.name),
                self._moment(event.time_unix_nano),
            )
            self._attributes(event)
        for link in span.links:
            link.trace_id, link.span_id = self._id(link.trace_id), self._id(link.span_id)
            link.trace_state = self._trace_state(link.trace_state)
            self._attributes(link)

    def _point(self, point: Any) -> None:
        point.time_unix_nano = self._moment(point.time_unix_nano)
        point.start_time_unix_nano = self._moment(point.start_time_unix_nano)
        if hasattr(point, "exemplars"):
            del point.exemplars[:]
        self._attributes(point)

    def _scope(self, scope: Any) -> None:
        scope.name, scope.version = self.words(scope.name), self.words(scope.version)
        self._attributes(scope)

    def _attributes(self, holder: Any) -> None:
        for attribute in holder.attributes:
            self._attribute(attribute)

    def _attribute(self, attribute: KeyValue) -> None:
        key = attribute.key
        attribute.key = self.words(key)
        self._value(key, attribute.value)

    def _value(self, key: str, value: AnyValue) -> None:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            value.string_value = self.text(key, value.string_value)
        elif kind == "bytes_value":
            value.string_value = self.text(key, value.bytes_value.decode("utf-8", "replace"))
        elif kind == "array_value":
            for item in value.array_value.values:
                self._value(key, item)
        elif kind == "kvlist_value":
            for item in value.kvlist_value.values:
                self._attribute(item)
        elif kind == "int_value":
            if privacy.is_user(key):
                value.string_value = self._hash(str(value.int_value))
            else:
                value.int_value = self._number(value.int_value)

    def text(self, key: str, text: str) -> str:
        """A value that stands under a key."""
        if privacy.is_user(key):
            return self._hash(text) if text else ""
        if text[:1] in ("{", "[") and (document := _document(text)) is not None:
            return json.dumps(self._document(key, document), separators=(",", ":"))
        if _ISO.fullmatch(text):
            return self._iso(text)
        if _MEASURE.fullmatch(text) or text.lower() in ("true", "false", "null", "none", ""):
            return text
        if _IDENTITY.search(key) is not None and len(_WORD.findall(text)) > 1:
            return _WORD.sub(lambda found: self._own(found[0]), text)
        if privacy.action(key) in (privacy.DROP, privacy.REDACT, privacy.MEASURE):
            return _TEXT if text else ""
        return self.name(text)

    def name(self, text: str) -> str:
        """A name word by word; a sentence as a whole."""
        if privacy.is_sentence(text) or len(text) > 2 * privacy.MAX_UNKNOWN_TEXT:
            return f"{_TEXT} {self._hash(text)}"
        return self.words(text)

    def words(self, text: str) -> str:
        """A text whose words are vocabulary or hashes; what stands between them stays."""
        return _WORD.sub(lambda found: self._word(found[0]), text)

    def _own(self, word: str) -> str:
        """A word of a name that somebody gave, which of a vocabulary's words is a name already."""
        return word if word.isdecimal() and len(word) <= _LONGEST_NUMBER else self._hash(word)

    def _word(self, word: str) -> str:
        if _known(word) or (word.isdecimal() and len(word) <= _LONGEST_NUMBER):
            return word
        parts = _PART.findall(word)
        if (
            len(parts) > 1
            and "".join(parts) == word
            and all(
                (len(part) >= _LEAST_PART and _known(part))
                or (part.isdecimal() and len(part) <= _LONGEST_NUMBER)
                for part in parts
            )
        ):
            return word
        return self._hash(word)

    def _hash(self, text: str) -> str:
        digest = hashlib.blake2b(
            text.encode("utf-8", "surrogatepass"), digest_size=4, key=self._key
        )
        return f"x{digest.hexdigest()}"

    def _id(self, value: bytes) -> bytes:
        if not any(value):
            return value
        return hashlib.blake2b(value, digest_size=max(len(value), 1), key=self._key).digest()

    def _trace_state(self, text: str) -> str:
        """Of vendors' entries those of samplers stay, since figures are weighed by them."""
        kept = [
            part
            for part in text.split(",")
            if re.fullmatch(r"\s*(ot=[a-z:0-9;]{1,60}|es=s:[\d.]{1,10})\s*", part)
        ]
        return ",".join(kept)

    def _moment(self, time_ns: int) -> int:
        """A moment as long after the begin as it was; one that is no moment of this recording stays what it is: impossible."""
        if abs(time_ns - self._begin_ns) > _YEAR_NS:
            return min(time_ns, 1)
        return max(1, time_ns - self._begin_ns + BEGIN_NS)

    def _number(self, value: int) -> int:
        """A number; one that is a moment of this recording in ns, us, ms or s is moved as times are."""
        for unit in (1, 1_000, 1_000_000, 1_000_000_000):
            if value > 1_000_000_000 and abs(value * unit - self._begin_ns) < _YEAR_NS:
                return self._moment(value * unit) // unit
        return value

    def _iso(self, text: str) -> str:
        read = datetime.fromisoformat(text.replace("Z", "+00:00"))
        aware = read if read.tzinfo else read.replace(tzinfo=UTC)
        moved = aware - timedelta(microseconds=(self._begin_ns - BEGIN_NS) // 1_000)
        return moved.isoformat().replace("+00:00", "Z" if text.endswith("Z") else "+00:00")

    def _document(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                self.words(str(name)): self._document(str(name), item)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._document(key, item) for item in value]
        if isinstance(value, str):
            return self.text(key, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._hash(str(value)) if privacy.is_user(key) else self._number(value)
        return value


def first_moment(bodies: Iterable[tuple[str, bytes]]) -> int:
    """The earliest plausible moment of any body, in ns since 1970; 0 where there is none."""
    found = [
        moment
        for signal, body in bodies
        for moment in _moments(signal, body)
        if moment > 1_000_000_000_000_000_000
    ]
    return min(found, default=0)


def _moments(signal: str, body: bytes) -> Iterator[int]:
    if signal == "traces":
        traces = ExportTraceServiceRequest.FromString(body)
        for resource in traces.resource_spans:
            for scope in resource.scope_spans:
                yield from (span.start_time_unix_nano for span in scope.spans)
    elif signal == "metrics":
        metrics = ExportMetricsServiceRequest.FromString(body)
        for held in metrics.resource_metrics:
            for of in held.scope_metrics:
                for metric in of.metrics:
                    yield from (point.time_unix_nano for point in _points(metric))


def _points(metric: Any) -> Iterable[Any]:
    kind = metric.WhichOneof("data")
    points: Iterable[Any] = getattr(metric, kind).data_points if kind else ()
    return points


def _document(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _known(word: str) -> bool:
    return word.lower() in vocabulary()


@functools.cache
def vocabulary() -> frozenset[str]:
    """The words of the vocabularies: every word of a text in the code or data that knows them, documentation aside, and of HTTP."""
    found: set[str] = set()
    base = resources.files("overrun.collector")
    files = [path for room in _ROOMS for path in base.joinpath(room).iterdir()]
    files += [base.joinpath("normalise", name) for name in _FILES]
    known = [(path, path.name.rpartition(".")[2]) for path in files]
    read = [(path.read_text("utf-8"), kind) for path, kind in known if kind in _TEXTS_OF]
    for text in (text for source, kind in read for text in _TEXTS_OF[kind](source)):
        words = _WORD.findall(text)
        found.update(part.lower() for word in words for part in (word, *_PART.findall(word)))
    found.update(
        [
            "http",
            "https",
            "www",
            "com",
            "io",
            "api",
            "v1",
            "v2",
            "localhost",
            "get",
            "post",
            "put",
            "patch",
            "delete",
            "head",
            "options",
        ]
    )
    return frozenset(
        word for word in found if 1 <= len(word) <= _LONGEST_WORD and not word.isdecimal()
    )


def _texts(source: str) -> Iterator[str]:
    """The texts in a module that are no docstrings and no messages: messages are sentences, and a vocabulary has none."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} | {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Raise)
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def _held(value: Any) -> Iterator[str]:
    """The keys and texts of a document."""
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _held(one)
    if isinstance(value, str):
        yield value


# What a file of a vocabulary says, by the kind of the file: comments are prose.
_TEXTS_OF: Final[dict[str, Callable[[str], Iterable[str]]]] = {
    "py": _texts,
    "toml": lambda source: _held(tomllib.loads(source)),
    "sql": lambda source: [one for one in source.splitlines() if not one.startswith("--")],
}


def hidden_lines(bodies: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """The bodies of `hidden` as OTLP/JSON, a line each."""
    return [
        json.dumps(MessageToDict(message), separators=(",", ":")).encode()
        for _, message in hidden(bodies)
    ]


def hidden(bodies: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Message]]:
    """Each traces and metrics body without what its sender could be known by; logs are left out."""
    held = list(bodies)
    anonymiser = Anonymiser(first_moment(held))
    for signal, body in held:
        if signal == "traces":
            yield signal, anonymiser.traces(body)
        elif signal == "metrics":
            yield signal, anonymiser.metrics(body)
