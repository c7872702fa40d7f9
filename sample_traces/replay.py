"""Sends recorded scenarios to any OTLP endpoint as if they had just happened.

In: `recordings/<name>/NNN.{traces,metrics,logs}.pb.zst`, described by `MANIFEST.toml`. Out: OTLP over HTTP or gRPC, and
on standard output one JSON object with the `[from, to)` window of every recording, so that a caller can ask for one
report each.

All times of one recording move by one common offset of whole seconds. Whole seconds, because then every difference
stays exact and a time text of any precision moves without touching its fraction. Ids stay as recorded: replaying twice
at different moments into one collector sends the same span ids with other times, so a second demo wants a fresh one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    import grpc  # type: ignore[import-untyped, unused-ignore]
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

HERE = Path(__file__).parent
MANIFEST_PATH = HERE / "MANIFEST.toml"
RECORDINGS_PATH = HERE / "recordings"

NS_PER_S = 1_000_000_000
NS_PER_US = 1_000

Request = ExportTraceServiceRequest | ExportMetricsServiceRequest | ExportLogsServiceRequest
REQUESTS: dict[str, type[Request]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
GRPC_METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}

# Four bodies at a time: a collector that commits before it answers then takes several bodies into one commit.
IN_FLIGHT = 4
MAX_ATTEMPTS = 8
MAX_DELAY_S = 5.0
TIMEOUT_S = 30.0

# A value that is one point in time and nothing else, as is or JSON-quoted. Dates inside prose are words and stay.
TIME_TEXT = re.compile(
    r'("?)(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)((?:\.\d+)?(?:Z|z|[+-]\d\d:?\d\d)?"?)'
)


class ReplayError(Exception):
    """The recordings could not be read or could not be delivered; the text says what to do."""


class Refused(Exception):
    """The receiver asked to try again, after `retry_after_s` seconds where it said so."""

    def __init__(self, reason: str, retry_after_s: float | None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Payload:
    """One export request of a recording, still mutable inside: `shift` moves its times in place."""

    signal: str
    request: Request


@dataclass(frozen=True)
class Recording:
    """One recorded scenario; `facts` is its MANIFEST entry."""

    name: str
    facts: dict[str, Any]
    payloads: list[Payload]


@dataclass(frozen=True)
class Window:
    """Where a recording lies after shifting: all its times are in `[from_ns, to_ns)`, whole microseconds since 1970."""

    name: str
    from_ns: int
    to_ns: int
    offset_ns: int


# --- reading ---


def manifest(path: Path = MANIFEST_PATH) -> dict[str, dict[str, Any]]:
    """The facts of every recording by name, in the order in which they are replayed (the first one ends last)."""
    return dict(tomllib.loads(path.read_text(encoding="utf-8"))["recording"])


def load(name: str) -> Recording:
    """One recording, decompressed and parsed. ReplayError if there is none of that name."""
    known = manifest()
    if name not in known:
        raise ReplayError(f"there is no recording {name!r}; known: {', '.join(known)}")
    folder = RECORDINGS_PATH / name
    payloads = [
        parse(entry["name"], read(folder / f"{entry['name']}.zst"))
        for entry in known[name]["files"]
    ]
    return Recording(name, known[name], payloads)


def read(path: Path) -> bytes:
    """The uncompressed bytes of one recorded payload."""
    return zstandard.ZstdDecompressor().decompress(path.read_bytes())


def parse(file_name: str, body: bytes) -> Payload:
    """The payload in `body`; its signal is the middle part of a name such as `001.traces.pb`."""
    signal = file_name.split(".")[-2]
    request = REQUESTS[signal]()
    request.ParseFromString(body)
    return Payload(signal, request)


# --- times ---


def extent(payloads: Iterable[Payload]) -> tuple[int, int]:
    """First and last moment (ns) at which something happened.

    The start of a cumulative metric is left out: it tells when a process began to count, which may be hours earlier.
    """
    times = [time_ns for payload in payloads for time_ns in _moments(payload.request) if time_ns]
    if not times:
        raise ReplayError("the recording holds no time, so it cannot be placed in time")
    return min(times), max(times)


def _moments(request: Request) -> Iterator[int]:
    if isinstance(request, ExportTraceServiceRequest):
        for span in (
            s for r in request.resource_spans for scope in r.scope_spans for s in scope.spans
        ):
            yield span.start_time_unix_nano
            yield span.end_time_unix_nano
            yield from (event.time_unix_nano for event in span.events)
    elif isinstance(request, ExportMetricsServiceRequest):
        for metric in (
            m for r in request.resource_metrics for scope in r.scope_metrics for m in scope.metrics
        ):
            yield from (point.time_unix_nano for point in _points(metric))
    else:
        for record in (
            x for r in request.resource_logs for scope in r.scope_logs for x in scope.log_records
        ):
            yield record.time_unix_nano
            yield record.observed_time_unix_nano


def lay_out(extents: Sequence[tuple[str, int, int]], end_ns: int, gap_ns: int) -> list[Window]:
    """Places recordings one behind the other back in time: the first ends at `end_ns`, the next `gap_ns` before that.

    `extents` holds (name, first_ns, last_ns). Whole-second offsets let one end up to a second early, never late.
    """
    windows = []
    for name, first_ns, last_ns in extents:
        offset_ns = (end_ns - NS_PER_US - last_ns) // NS_PER_S * NS_PER_S
        # Edges in microseconds, because that is what receivers keep; the exclusive end lies behind the last time.
        from_ns = (first_ns + offset_ns) // NS_PER_US * NS_PER_US
        to_ns = ((last_ns + offset_ns) // NS_PER_US + 1) * NS_PER_US
        windows.append(Window(name, from_ns, to_ns, offset_ns))
        end_ns = from_ns - gap_ns
    return windows


def shift(payload: Payload, offset_ns: int) -> None:
    """Moves every time of `payload` by `offset_ns` (whole seconds) in place; a time of 0 is "unknown" and stays 0."""
    if offset_ns % NS_PER_S:
        raise ValueError(
            f"offset_ns is {offset_ns}, but must be whole seconds, so that time texts of any precision stay exact"
        )
    request = payload.request
    if isinstance(request, ExportTraceServiceRequest):
        _shift_traces(request, offset_ns)
    elif isinstance(request, ExportMetricsServiceRequest):
        _shift_metrics(request, offset_ns)
    else:
        _shift_logs(request, offset_ns)


def _shift_traces(request: ExportTraceServiceRequest, offset_ns: int) -> None:
    for resource_spans in request.resource_spans:
        _shift_texts(resource_spans.resource.attributes, offset_ns)
        for span in (span for scope in resource_spans.scope_spans for span in scope.spans):
            _move(span, ("start_time_unix_nano", "end_time_unix_nano"), offset_ns)
            _shift_texts(span.attributes, offset_ns)
            for event in span.events:
                _move(event, ("time_unix_nano",), offset_ns)
                _shift_texts(event.attributes, offset_ns)


def _shift_metrics(request: ExportMetricsServiceRequest, offset_ns: int) -> None:
    for resource_metrics in request.resource_metrics:
        _shift_texts(resource_metrics.resource.attributes, offset_ns)
        for metric in (
            metric for scope in resource_metrics.scope_metrics for metric in scope.metrics
        ):
            for point in _points(metric):
                _move(point, ("start_time_unix_nano", "time_unix_nano"), offset_ns)
                for exemplar in getattr(point, "exemplars", ()):  # a summary point has none
                    _move(exemplar, ("time_unix_nano",), offset_ns)


def _shift_logs(request: ExportLogsServiceRequest, offset_ns: int) -> None:
    for resource_logs in request.resource_logs:
        _shift_texts(resource_logs.resource.attributes, offset_ns)
        for record in (
            record for scope in resource_logs.scope_logs for record in scope.log_records
        ):
            _move(record, ("time_unix_nano", "observed_time_unix_nano"), offset_ns)
            _shift_texts(record.attributes, offset_ns)
            _shift_text(record.body, offset_ns)


def _points(metric: Any) -> Sequence[Any]:
    """The data points of a metric of any kind; their five types share no base class that has times."""
    kind = metric.WhichOneof("data")
    return getattr(metric, kind).data_points if kind else ()


def _move(message: Any, fields: tuple[str, ...], offset_ns: int) -> None:
    for field in fields:
        time_ns = getattr(message, field)
        if time_ns:
            setattr(message, field, time_ns + offset_ns)


def _shift_texts(attributes: Iterable[KeyValue], offset_ns: int) -> None:
    for attribute in attributes:
        _shift_text(attribute.value, offset_ns)


def _shift_text(value: AnyValue, offset_ns: int) -> None:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        moved = shift_time_text(value.string_value, offset_ns)
        if moved != value.string_value:
            value.string_value = moved
    elif kind == "array_value":
        for item in value.array_value.values:
            _shift_text(item, offset_ns)
    elif kind == "kvlist_value":
        _shift_texts(value.kvlist_value.values, offset_ns)


def shift_time_text(text: str, offset_ns: int) -> str:
    """`text` moved by whole seconds in its own format if it is an ISO 8601 time (JSON-quoted or not), else as is."""
    match = TIME_TEXT.fullmatch(text)
    if match is None:
        return text
    quote, date, separator, clock, rest = match.groups()
    try:
        moved = datetime.fromisoformat(f"{date}T{clock}") + timedelta(seconds=offset_ns // NS_PER_S)
    except (ValueError, OverflowError):  # looks like a time and is none, such as month 13
        return text
    return f"{quote}{moved.isoformat(sep=separator)}{rest}"


# --- sending ---

Send = Callable[[str, bytes], bytes]
"""Delivers one body of a signal and returns the receiver's answer; raises Refused or ReplayError."""


@contextmanager
def open_sender(endpoint: str, protocol: str) -> Iterator[Send]:
    """A `Send` for `http://HOST:PORT` over `http/protobuf` or `grpc`, safe to call from several threads."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ReplayError(f"--endpoint is {endpoint!r}, but must look like http://127.0.0.1:4318")
    if protocol == "grpc":
        with _open_channel(parts.scheme, parts.netloc) as channel:
            yield _grpc_sender(channel)
    else:
        # trust_env off: a proxy setting of the machine must not swallow telemetry that is meant for a local collector.
        with httpx.Client(base_url=endpoint, timeout=TIMEOUT_S, trust_env=False) as client:
            yield _http_sender(client)


def _http_sender(client: httpx.Client) -> Send:
    headers = {"content-type": "application/x-protobuf"}

    def send(signal: str, body: bytes) -> bytes:
        try:
            response = client.post(f"/v1/{signal}", content=body, headers=headers)
        except httpx.TransportError as error:
            raise Refused(f"{client.base_url} does not answer: {error}", None) from error
        if response.status_code in (429, 502, 503, 504):
            raise Refused(
                f"HTTP {response.status_code}", _seconds(response.headers.get("retry-after"))
            )
        if response.status_code != 200:
            raise ReplayError(
                f"{response.url} answered HTTP {response.status_code}: {response.text[:200]}"
            )
        return response.content

    return send


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; its rare other form, a date, is treated like none."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _open_channel(scheme: str, target: str) -> grpc.Channel:
    import grpc  # 0.2 s to load, needed for this protocol only

    options = [("grpc.enable_http_proxy", 0)]
    if scheme == "https":
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(), options)
    return grpc.insecure_channel(target, options)


def _grpc_sender(channel: grpc.Channel) -> Send:
    import grpc

    retryable = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    calls = {signal: channel.unary_unary(method) for signal, method in GRPC_METHODS.items()}

    def send(signal: str, body: bytes) -> bytes:
        try:
            return bytes(calls[signal](body, timeout=TIMEOUT_S))
        except grpc.RpcError as error:
            if error.code() in retryable:
                raise Refused(
                    f"{error.code().name}: {error.details()}", _retry_info_s(error)
                ) from error
            raise ReplayError(
                f"{GRPC_METHODS[signal]} answered {error.code().name}: {error.details()}"
            ) from error

    return send


def _retry_info_s(error: grpc.RpcError) -> float | None:
    """Seconds of the google.rpc.RetryInfo that OTLP receivers attach to a refusal, None without it."""
    from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped, unused-ignore]
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped, unused-ignore]

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in Status.FromString(value).details:
                info = RetryInfo()
                if detail.Unpack(info):
                    return float(info.retry_delay.seconds + info.retry_delay.nanos / NS_PER_S)
    return None


def deliver(
    send: Send, signal: str, body: bytes, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Sends one body, waiting as told after a refusal, and returns how many items the receiver rejected for good.

    ReplayError after 8 attempts. A told delay above 5 s is cut to 5 s; without one the delay doubles from 0.1 s.
    """
    for attempt in range(MAX_ATTEMPTS):
        try:
            return _rejected(signal, send(signal, body))
        except Refused as refusal:
            if attempt == MAX_ATTEMPTS - 1:
                raise ReplayError(
                    f"gave up after {MAX_ATTEMPTS} attempts to send {signal}: {refusal}"
                ) from refusal
            told_s = refusal.retry_after_s
            sleep(min(0.1 * 2**attempt if told_s is None else told_s, MAX_DELAY_S))
    raise AssertionError("unreachable")


def _rejected(signal: str, answer: bytes) -> int:
    if signal == "traces":
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    if signal == "metrics":
        return int(
            ExportMetricsServiceResponse.FromString(answer).partial_success.rejected_data_points
        )
    return int(ExportLogsServiceResponse.FromString(answer).partial_success.rejected_log_records)


# --- the whole thing ---


def replay(
    endpoint: str,
    names: Sequence[str] = (),
    *,
    protocol: str = "http/protobuf",
    end_ns: int,
    gap_s: float = 120.0,
) -> list[dict[str, Any]]:
    """Sends the named recordings (all of them by default) so that the first named ends at `end_ns`.

    One row a recording, in the order given: name, title, slo, from and to (RFC 3339), offset_s, what was sent, and how
    many items the receiver rejected.
    """
    recordings = [load(name) for name in dict.fromkeys(names or manifest())]
    extents = [(recording.name, *extent(recording.payloads)) for recording in recordings]
    windows = lay_out(extents, end_ns, round(gap_s * NS_PER_S))
    with open_sender(endpoint, protocol) as send, ThreadPoolExecutor(IN_FLIGHT) as pool:
        return [
            _replay_one(recording, window, send, pool)
            for recording, window in zip(recordings, windows, strict=True)
        ]


def _replay_one(
    recording: Recording, window: Window, send: Send, pool: ThreadPoolExecutor
) -> dict[str, Any]:
    bodies = []
    for payload in recording.payloads:
        shift(payload, window.offset_ns)
        bodies.append((payload.signal, payload.request.SerializeToString()))
    rejected = sum(pool.map(lambda body: deliver(send, *body), bodies))
    return {
        "name": recording.name,
        "title": recording.facts["title"],
        "slo": recording.facts["slo"],
        "from": rfc3339(window.from_ns),
        "to": rfc3339(window.to_ns),
        "offset_s": window.offset_ns // NS_PER_S,
        "payloads": len(bodies),
        "bytes": sum(len(body) for _, body in bodies),
        "rejected": rejected,
    }


def rfc3339(time_ns: int) -> str:
    """`time_ns` as RFC 3339 in UTC with microseconds."""
    moment = datetime.fromtimestamp(time_ns // NS_PER_S, UTC).replace(
        microsecond=time_ns % NS_PER_S // NS_PER_US
    )
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_moment(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 text or of `now`; argparse turns its ValueError into a usage error."""
    if text == "now":
        return time.time_ns()
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write {text}Z for UTC")
    since_1970 = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (
        since_1970.days * 86_400 + since_1970.seconds
    ) * NS_PER_S + since_1970.microseconds * NS_PER_US


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when everything was acknowledged, 1 when not, 2 on bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m overrun.sample_traces.replay",
        description="Send recorded telemetry over OTLP.",
    )
    parser.add_argument(
        "--endpoint",
        default="http://127.0.0.1:4318",
        help="base URL; with grpc http://127.0.0.1:4317",
    )
    parser.add_argument("--protocol", choices=("http/protobuf", "grpc"), default="http/protobuf")
    parser.add_argument(
        "--recording",
        nargs="+",
        action="extend",
        choices=list(manifest()),
        metavar="NAME",
        default=[],
    )
    parser.add_argument(
        "--end-at",
        type=parse_moment,
        default="now",
        metavar="RFC3339|now",
        help="when the first one ends",
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="between neighbouring recordings",
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.gap < float("inf"):
        parser.error(f"--gap is {options.gap}, but must be 0 or more seconds")
    try:
        rows = replay(
            options.endpoint,
            options.recording,
            protocol=options.protocol,
            end_ns=options.end_at,
            gap_s=options.gap,
        )
    except ReplayError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"recordings": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
