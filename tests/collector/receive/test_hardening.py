"""Small bodies that would take a server down: what they are answered, what they cost, and that whoever watches the server hears from it meanwhile."""

import contextlib
import gzip
import select
import socket
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from overrun.collector.decode import items
from overrun.collector.ingest.writer import TRACES
from overrun.collector.receive import health
from tests.benchmarks import fuzz_wire, hardening, http2
from tests.benchmarks.hardening import BOMBS, bomb
from tests.collector.conftest import JSON, Collector, body, collecting, held, plain_body, span
from tests.conftest import StartServer
from tests.waiting import LIMIT_S, until

MIB = 1 << 20
# What a server holds at rest (350 MiB) and a body of 16 MiB with everything that is made of it; the attacks took 2,944 MB.
PEAK_MIB = 700
# Before it was mended it answered after 91 s. How fast it answers on a quiet machine is a figure of bench-overload.
HANGS_S = 30.0
EXPORT = "/opentelemetry.proto.collector.{}.v1.{}Service/Export"
SERVICES = {
    "traces": ("trace", "Trace"),
    "metrics": ("metrics", "Metrics"),
    "logs": ("logs", "Logs"),
}


def refused(call: Any, content: bytes, **more: Any) -> grpc.RpcError:
    """The error that a gRPC call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        call(content, timeout=60, **more)
    return caught.value


def details(error: Any) -> Status:
    """The google.rpc.Status of an error."""
    return Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])


def test_item_bombs_are_refused_and_the_server_stays_small_and_answers(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "t.db")
    hardening.send(server.address, "traces", plain_body())  # the kernels are there
    found = hardening.Watch()
    with hardening.watched(server, found):
        for name in BOMBS:
            assert hardening.item_bomb(name)(server) == {"413": 1}, name
        some = hardening.item_bomb("log records", 8)(server)
        assert set(some) <= {"413", "503"}
    assert found.peak_mib < PEAK_MIB
    assert found.healthz_s < HANGS_S
    assert hardening.send(server.address, "traces", plain_body()) == "200"


def test_bodies_just_below_the_limit_are_taken_and_the_server_stays_small(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "t.db")
    found = hardening.Watch()
    with hardening.watched(server, found):
        for name in ("spans", "scope spans", "array items", "log records", "gauge points"):
            signal, path = BOMBS[name]
            weight = items.count(signal, bomb(path, size=4_000), 10**9) / 2_000
            sent = gzip.compress(bomb(path, size=int(490_000 / weight) * 2), 9)
            answers = hardening.many(
                lambda _, signal=signal, sent=sent: hardening.send(
                    server.address, signal, sent, content_encoding="gzip"
                ),
                4,
            )
            assert set(answers) <= {"200", "503"}, name
            assert "200" in answers, name
    assert found.peak_mib < PEAK_MIB
    assert found.healthz_s < HANGS_S


def test_json_of_too_many_objects_is_refused_before_it_is_decoded(collector: Collector) -> None:
    text = b'{"resourceSpans":[' + b"{}," * 300_000 + b"{}]}"
    with collecting(collector.path.with_name("json.db"), max_body_items=200_000) as small:
        answer = small.post("traces", text, content_type=JSON["content-type"])
        assert (answer.status_code, "max_body_items" in answer.text) == (413, True)


def test_a_flood_of_compressed_json_is_bounded_by_what_it_inflates_to(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "t.db")
    found = hardening.Watch()
    with hardening.watched(server, found):
        answers = hardening.json_flood(server)
    assert set(answers) <= {"200", "503"}
    assert sum(answers.values()) == 152
    assert found.peak_mib < PEAK_MIB
    assert found.healthz_s < HANGS_S


def test_grpc_bodies_without_a_token_are_refused_before_they_are_read(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(tmp_path / "t.db", environment={"OVERRUN_TOKEN": "a" * 32})
    found = hardening.Watch()
    with hardening.watched(server, found):
        answers = hardening.grpc_flood(server)
    assert answers == {"UNAUTHENTICATED": 120}
    assert found.peak_mib < PEAK_MIB
    assert found.healthz_s < HANGS_S


@pytest.mark.parametrize("signal", SERVICES)
def test_over_grpc_a_body_of_too_many_items_cannot_come_again(
    collector: Collector, signal: str
) -> None:
    path = {"traces": (1, 2, 2), "metrics": (1, 2, 2, 5, 1), "logs": (1, 2, 2)}[signal]
    with collecting(collector.path.with_name(f"{signal}.db"), max_body_items=2_000) as small:
        with grpc.insecure_channel(small.grpc, [("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary(EXPORT.format(*SERVICES[signal]))
            error = refused(call, bomb(path, size=10_000))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "max_body_items" in error.details()
        assert not details(error).details
        answer = small.post(signal, bomb(path, size=10_000))
        assert (answer.status_code, "max_body_items" in answer.text) == (413, True)


def test_items_that_wait_to_be_stored_count_over_all_ports(tmp_path: Path) -> None:
    def large(first: int) -> bytes:
        return body([span(first, i) for i in range(1, 1_500)])

    with contextlib.ExitStack() as stack:
        collector = stack.enter_context(collecting(tmp_path / "t.db", queue_items=2_000))
        options = [("grpc.enable_http_proxy", 0)]
        with held(collector.writer), grpc.insecure_channel(collector.grpc, options) as channel:
            call = channel.unary_unary(EXPORT.format(*SERVICES["traces"]))
            waiting = call.future(large(1), timeout=120)
            until(lambda: waiting.done() or collector.writer.admission.items >= 1_499)
            assert not waiting.done()
            answer = collector.post("traces", large(2))
            assert (answer.status_code, "queue_items" in answer.text) == (503, True)
            assert int(answer.headers["retry-after"]) >= 1
            error = refused(call, large(3))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            info = RetryInfo()
            assert details(error).details[0].Unpack(info)
            assert info.retry_delay.seconds >= 1
            spread = collector.post("traces", gzip.compress(large(4)), content_encoding="gzip")
            assert spread.status_code == 503
    assert collector.writer.admission.items == 0


def test_inflated_bytes_count_before_they_exist(tmp_path: Path) -> None:
    text = b'{"resourceSpans":[' + b" " * (3 * MIB) + b"]}"
    with collecting(tmp_path / "t.db", queue_mib=4, max_decompressed_mib=4) as collector:
        admission = collector.writer.admission
        with admission.body() as other:
            other.take(2 * MIB)
            for encoding, packed in (
                ("gzip", gzip.compress(text)),
                ("zstd", zstandard.compress(text)),
            ):
                answer = collector.post(
                    "traces", packed, content_encoding=encoding, content_type=JSON["content-type"]
                )
                assert (answer.status_code, "queue_mib" in answer.text) == (503, True)
        assert admission.bytes == 0
        answer = collector.post(
            "traces",
            gzip.compress(text),
            content_encoding="gzip",
            content_type=JSON["content-type"],
        )
        assert answer.status_code == 200


def test_a_body_that_no_server_takes_is_413_while_the_queue_is_full(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db", queue_mib=1) as collector, held(collector.writer):
        full = collector.writer.submit(
            TRACES, body([span(1, i, name="n" * 250) for i in range(1, 5_000)])
        )
        assert collector.post("traces", plain_body()).status_code == 503
        assert collector.post("traces", b"x" * (MIB + 1)).status_code == 413
    assert full.result(120).items == 4_999


def test_readiness_and_admission_are_one_condition(tmp_path: Path) -> None:
    with collecting(tmp_path / "t.db") as collector:
        admission = collector.writer.admission
        admission._soft = 1
        ready, said = health.readiness(collector.pipeline)
        assert (ready, "memory_soft_mib" in said["reason"]) == (False, True)
        answer = collector.post("traces", plain_body())
        assert (answer.status_code, "memory_soft_mib" in answer.text) == (503, True)
        admission._soft = 0
        assert health.readiness(collector.pipeline)[0]
        assert collector.post("traces", plain_body()).status_code == 200


def test_a_connection_that_sends_nothing_does_not_keep_others_out(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(
        tmp_path / "t.db",
        "--grpc-port",
        "0",
        "--http-port",
        "0",
        environment={"OVERRUN_MAX_CONNECTIONS": "16"},
    )
    host, port = server.address.split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(40)]
    for made in idle[::2]:
        made.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: a\r\n")
    answer = httpx.get(f"{server.http}/healthz", trust_env=False, verify=False, timeout=LIMIT_S)
    assert answer.status_code == 200
    # A refusal, or the end.
    until(lambda: len(select.select(idle, [], [], LIMIT_S)[0]) >= 24)
    for made in idle:
        made.close()


def test_a_grpc_path_that_is_no_text_does_not_end_grpc(tmp_path: Path) -> None:
    """grpcio's own loop ends at it (1.85.1), before any token was looked at: calls were refused for ever."""
    head = b"".join(
        http2.header(name, value)
        for name, value in (
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", b"/opentelemetry\xff/Export"),
            (b":authority", b"a"),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
        )
    )
    frames = http2.frame(4, 0, 0, b"") + http2.frame(1, 4, 1, head)
    with collecting(tmp_path / "t.db") as collector:
        host, port = collector.grpc.split(":")
        for _ in range(2):
            with fuzz_wire.connected(host, int(port)) as made:
                made.sendall(http2.PREFACE + frames)
                while made.recv(4096):
                    pass
        with grpc.insecure_channel(collector.grpc) as channel:
            call = channel.unary_unary(EXPORT.format("trace", "Trace"))
            answer = call(plain_body(), timeout=60, wait_for_ready=True)
        assert answer == b""
