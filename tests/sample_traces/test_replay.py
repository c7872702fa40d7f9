"""Recordings are what the manifest says, and replay moves them in time as one piece and delivers them."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from overrun.sample_traces import record, replay

NAMES = list(replay.manifest())
END = "2027-03-01T12:00:00Z"
END_NS = replay.parse_moment(END)
SECOND = replay.NS_PER_S


# --- recordings ---


@pytest.mark.parametrize("name", NAMES)
def test_recording_holds_exactly_the_files_of_the_manifest(name: str) -> None:
    folder = replay.RECORDINGS_PATH / name
    listed = {entry["name"]: entry for entry in replay.manifest()[name]["files"]}
    assert {path.name for path in folder.iterdir()} == {f"{file}.zst" for file in listed}
    for file, entry in listed.items():
        body = replay.read(folder / f"{file}.zst")
        assert len(body) == entry["bytes"]
        assert hashlib.sha256(body).hexdigest() == entry["sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_recording_holds_as_many_spans_as_its_answer_says(name: str) -> None:
    recording = replay.load(name)
    spans = sum(
        len(scope.spans)
        for payload in recording.payloads
        if payload.signal == "traces"
        for resource in payload.request.resource_spans
        for scope in resource.scope_spans
    )
    assert spans == recording.facts["answer"]["spans"]


def test_every_recording_is_described() -> None:
    assert {path.name for path in replay.RECORDINGS_PATH.iterdir()} == set(NAMES)
    for name, facts in replay.manifest().items():
        assert set(facts) == {*record.EMPTY, "files"}, name
        assert all(facts[key] for key in facts), name
        assert facts["answer"]["model_calls"] >= facts["answer"]["requests"] >= 0, name


def test_manifest_is_what_the_packing_script_writes() -> None:
    assert record.dump(replay.manifest()) == replay.MANIFEST_PATH.read_text(encoding="utf-8")


def test_recordings_stay_small() -> None:
    assert sum(path.stat().st_size for path in replay.RECORDINGS_PATH.rglob("*.zst")) < 600_000


def test_packing_a_folder_again_gives_the_same_files_and_keeps_what_was_written_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, target, manifest_path = (
        tmp_path / "captured",
        tmp_path / "recordings",
        tmp_path / "MANIFEST.toml",
    )
    captured.mkdir()
    for entry in replay.manifest()["openllmetry"]["files"]:
        body = replay.read(replay.RECORDINGS_PATH / "openllmetry" / f"{entry['name']}.zst")
        (captured / entry["name"]).write_bytes(body)
    manifest_path.write_text(
        record.dump({"openllmetry": replay.manifest()["openllmetry"] | {"files": []}})
    )
    monkeypatch.setattr(record, "MANIFEST_PATH", manifest_path)
    monkeypatch.setattr(record, "RECORDINGS_PATH", target)
    monkeypatch.setattr(record, "manifest", lambda: replay.manifest(manifest_path))
    assert record.main(["openllmetry", str(captured)]) == 0
    assert replay.manifest(manifest_path)["openllmetry"] == replay.manifest()["openllmetry"]
    assert {path.name for path in (target / "openllmetry").iterdir()} == {
        "001.traces.pb.zst", "002.metrics.pb.zst", "003.metrics.pb.zst"
    }  # fmt: skip


def test_packing_refuses_what_is_no_otlp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record.main(["x", str(tmp_path)]) == 2
    (tmp_path / "001.traces.pb").write_bytes(b"\xff\xff\xff")
    assert record.main(["x", str(tmp_path)]) == 2
    assert "001.traces.pb is no OTLP export request" in capsys.readouterr().err


# --- times ---


def all_times(message: Any) -> list[int]:
    """Every `*_unix_nano` of a message in order, found by field name: the slow oracle of what `shift` has to reach."""
    times: list[int] = []
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name.endswith("_unix_nano"):
            times.append(value)
        elif field.message_type is not None:
            repeated = field.is_repeated
            present = value if repeated else ([value] if message.HasField(field.name) else [])
            for item in present:
                times += all_times(item)
    return times


def all_texts(message: Any) -> list[str]:
    """Every string of a message in order."""
    texts: list[str] = []
    for field, value in message.ListFields():
        for item in value if field.is_repeated else [value]:
            if field.message_type is not None:
                texts += all_texts(item)
            elif isinstance(item, str):
                texts.append(item)
    return texts


@pytest.mark.parametrize("name", NAMES)
def test_one_common_offset_moves_every_time_of_a_recording(name: str) -> None:
    before, after = replay.load(name), replay.load(name)
    offset = 123_456_789 * SECOND
    for old, new in zip(before.payloads, after.payloads, strict=True):
        replay.shift(new, offset)
        assert all_times(new.request) == [t + offset if t else 0 for t in all_times(old.request)]


def test_nothing_but_times_changes() -> None:
    for name in NAMES:
        before, after = replay.load(name), replay.load(name)
        changed = []
        for old, new in zip(before.payloads, after.payloads, strict=True):
            replay.shift(new, 86_400 * SECOND)
            pairs = zip(all_texts(old.request), all_texts(new.request), strict=True)
            changed += [pair for pair in pairs if pair[0] != pair[1]]
            replay.shift(new, -86_400 * SECOND)
            assert new.request == old.request
        assert all(a.replace("2026-11-20", "2026-11-21") == b for a, b in changed), name
        assert bool(changed) == (name in ("langfuse", "vercel-ai-sdk")), name


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ('"2026-11-20T10:23:25.503809Z"', '"2026-11-21T00:00:00.503809Z"'),
        ("2026-11-20T10:23:25.000Z", "2026-11-21T00:00:00.000Z"),
        ("2026-11-20T10:23:25Z", "2026-11-21T00:00:00Z"),
        ("2026-11-20 10:23:25", "2026-11-21 00:00:00"),
        ("2026-11-20T10:23:25.123456789+02:00", "2026-11-21T00:00:00.123456789+02:00"),
        ("2026-11-20", "2026-11-20"),
        ("2026-13-20T10:23:25Z", "2026-13-20T10:23:25Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("on 2026-11-20T10:23:25Z it rained", "on 2026-11-20T10:23:25Z it rained"),
        ("chatcmpl-1795170275071336", "chatcmpl-1795170275071336"),
        ("", ""),
    ],
)
def test_time_texts_move_in_their_own_format_and_other_texts_stay(text: str, moved: str) -> None:
    assert replay.shift_time_text(text, (13 * 3600 + 36 * 60 + 35) * SECOND) == moved


def test_time_texts_nested_in_lists_and_maps_move_too() -> None:
    request = ExportLogsServiceRequest()
    log = request.resource_logs.add().scope_logs.add().log_records.add(observed_time_unix_nano=5)
    log.body.array_value.values.add().string_value = "2026-11-20T10:00:00Z"
    log.body.array_value.values.add().kvlist_value.values.add(
        key="at"
    ).value.string_value = "2026-11-20T10:00:01Z"
    replay.shift(replay.Payload("logs", request), SECOND)
    assert all_texts(log.body) == ["2026-11-20T10:00:01Z", "at", "2026-11-20T10:00:02Z"]
    assert (log.time_unix_nano, log.observed_time_unix_nano) == (0, 5 + SECOND)


def test_offset_of_a_part_of_a_second_is_refused() -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        replay.shift(replay.Payload("traces", ExportTraceServiceRequest()), 1)


def test_start_of_a_cumulative_metric_is_not_part_of_the_extent() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.sum.data_points.add(start_time_unix_nano=1, time_unix_nano=50)
    metric.sum.data_points.add(start_time_unix_nano=1, time_unix_nano=60)
    assert replay.extent([replay.Payload("metrics", request)]) == (50, 60)
    with pytest.raises(replay.ReplayError, match="no time"):
        replay.extent([replay.Payload("metrics", ExportMetricsServiceRequest())])


def test_windows_lie_one_behind_the_other_and_hold_every_time() -> None:
    recordings = [replay.load(name) for name in NAMES]
    extents = [(recording.name, *replay.extent(recording.payloads)) for recording in recordings]
    gap = 120 * SECOND
    windows = replay.lay_out(extents, END_NS, gap)
    assert END_NS - SECOND <= windows[0].to_ns <= END_NS
    for later, earlier in itertools.pairwise(windows):
        assert gap <= later.from_ns - earlier.to_ns <= gap + SECOND
    for (_, first, last), window in zip(extents, windows, strict=True):
        assert window.from_ns <= first + window.offset_ns < last + window.offset_ns < window.to_ns
        assert (
            window.to_ns - window.from_ns - (last - first) <= 2_000
        )  # tight to the microsecond at either edge


# --- delivery ---


class Capture:
    """What a receiver got, and how many bodies it refuses before it accepts one."""

    def __init__(self, refusals: int = 0) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.refusals = refusals
        self.lock = threading.Lock()

    def take(self, signal: str, body: bytes) -> bool:
        with self.lock:
            if self.refusals:
                self.refusals -= 1
                return False
            self.bodies.append((signal, body))
            return True

    def spans(self) -> list[Any]:
        requests = [
            ExportTraceServiceRequest.FromString(body)
            for signal, body in self.bodies
            if signal == "traces"
        ]
        return [
            s
            for q in requests
            for r in q.resource_spans
            for scope in r.scope_spans
            for s in scope.spans
        ]


class Handler(BaseHTTPRequestHandler):
    """OTLP/HTTP receiver that keeps what it gets."""

    protocol_version = "HTTP/1.1"
    capture: ClassVar[Capture]

    def do_POST(self) -> None:
        assert self.headers["content-type"] == "application/x-protobuf"
        body = self.rfile.read(int(self.headers["content-length"]))
        accepted = self.capture.take(self.path.removeprefix("/v1/"), body)
        self.send_response(200 if accepted else 503)
        if not accepted:
            self.send_header("retry-after", "0")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def http_receiver(capture: Capture) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"capture": capture}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def grpc_export(capture: Capture, signal: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        if not capture.take(signal, body):
            status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="queue full")
            status.details.add().Pack(RetryInfo(retry_delay=Duration(nanos=1_000_000)))
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full")
        return b""

    return export


@contextmanager
def grpc_receiver(capture: Capture) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    for signal, path in replay.GRPC_METHODS.items():
        _, service, method = path.split("/")
        handler = grpc.unary_unary_rpc_method_handler(grpc_export(capture, signal))
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {method: handler})]
        )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


RECEIVERS = [("http/protobuf", http_receiver), ("grpc", grpc_receiver)]


@pytest.mark.parametrize(("protocol", "receiver"), RECEIVERS)
@pytest.mark.parametrize("refusals", [0, 3])
def test_all_recordings_arrive_whole_and_shifted(
    protocol: str,
    receiver: Callable[[Capture], Any],
    refusals: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capture = Capture(refusals)
    with receiver(capture) as endpoint:
        assert replay.main(["--endpoint", endpoint, "--protocol", protocol, "--end-at", END]) == 0
    rows = json.loads(capsys.readouterr().out)["recordings"]
    assert [row["name"] for row in rows] == NAMES
    assert capture.refusals == 0
    facts = replay.manifest().values()
    assert (
        len(capture.bodies)
        == sum(len(fact["files"]) for fact in facts)
        == sum(row["payloads"] for row in rows)
    )
    spans = capture.spans()
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(spans)
    assert len(spans) == sum(fact["answer"]["spans"] for fact in facts)
    edges = [(replay.parse_moment(row["from"]), replay.parse_moment(row["to"])) for row in rows]
    for span in spans:
        holding = [
            low
            for low, high in edges
            if low <= span.start_time_unix_nano <= span.end_time_unix_nano < high
        ]
        assert len(holding) == 1


def test_named_recordings_are_sent_alone_in_the_order_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capture = Capture()
    with http_receiver(capture) as endpoint:
        arguments = [
            "--endpoint",
            endpoint,
            "--end-at",
            END,
            "--gap",
            "0",
            "--recording",
            "vllm-joined",
            "langfuse",
        ]
        assert replay.main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["recordings"]
    assert [(row["name"], row["slo"], row["payloads"]) for row in rows] == [
        ("vllm-joined", "chat", 2),
        ("langfuse", "chat", 1),
    ]
    assert rows[1]["to"] <= rows[0]["from"] < rows[0]["to"] <= "2027-03-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("told_s", "waited"), [(0.5, 0.5), (3600.0, replay.MAX_DELAY_S), (None, 0.1)]
)
def test_a_refused_body_is_sent_again_after_the_told_delay(
    told_s: float | None, waited: float
) -> None:
    answers: list[Exception | bytes] = [replay.Refused("busy", told_s), b""]
    sleeps: list[float] = []

    def send(signal: str, body: bytes) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert replay.deliver(send, "traces", b"", sleeps.append) == 0
    assert sleeps == [waited]


def test_a_receiver_that_always_refuses_ends_in_an_error() -> None:
    def send(signal: str, body: bytes) -> bytes:
        raise replay.Refused("HTTP 503", 0.0)

    with pytest.raises(
        replay.ReplayError, match="gave up after 8 attempts to send metrics: HTTP 503"
    ):
        replay.deliver(send, "metrics", b"", lambda delay_s: None)


def test_rejected_items_are_counted() -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 7
    assert replay.deliver(lambda signal, body: answer.SerializeToString(), "traces", b"") == 7


@pytest.mark.parametrize(("protocol", "receiver"), RECEIVERS)
def test_delay_told_by_the_receiver_is_read(
    protocol: str, receiver: Callable[[Capture], Any]
) -> None:
    told_s = {"grpc": 0.001, "http/protobuf": 0.0}[protocol]
    with receiver(Capture(refusals=1)) as endpoint, replay.open_sender(endpoint, protocol) as send:
        with pytest.raises(replay.Refused) as refusal:
            send("traces", b"")
        assert refusal.value.retry_after_s == told_s


@pytest.mark.parametrize(
    "arguments",
    [
        ["--recording", "nope"],
        ["--gap", "-1"],
        ["--gap", "inf"],
        ["--end-at", "2026-11-20T10:00:00"],
        ["--end-at", "soon"],
    ],
)
def test_bad_input_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        replay.main(arguments)
    assert end.value.code == 2


def test_a_bad_endpoint_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["--endpoint", "127.0.0.1:4318", "--recording", "langfuse"]) == 1
    assert "'127.0.0.1:4318'" in capsys.readouterr().err


def test_moments_are_exact_to_the_microsecond() -> None:
    moment = datetime(2026, 11, 20, 10, 23, 25, 503809, tzinfo=UTC)
    assert (
        replay.parse_moment("2026-11-20T10:23:25.503809Z")
        == int(moment.timestamp()) * SECOND + 503_809_000
    )
    assert (
        replay.rfc3339(replay.parse_moment("2026-11-20T12:23:25.503809+02:00"))
        == "2026-11-20T10:23:25.503809Z"
    )
