"""OTLP over gRPC: the three services with the real stubs, and the status that a sender reads when something is wrong."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc._cython import cygrpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from overrun.collector.errors import QueueFull, TooSlow
from overrun.collector.receive import otlp_grpc
from tests.collector.conftest import T0_NS, Collector, body, held, request, span
from tests.waiting import LIMIT_S, until

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
NO_PROXY = [("grpc.enable_http_proxy", 0)]


@pytest.fixture
def channel(collector: Collector) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(collector.grpc, options=NO_PROXY) as made:
        yield made


def details(error: grpc.RpcError) -> Status:
    """The google.rpc.Status that travels in the trailing metadata."""
    found: dict[str, Any] = dict(error.trailing_metadata())
    return Status.FromString(found["grpc-status-details-bin"])


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
def test_spans_are_stored_before_the_answer(
    collector: Collector, channel: grpc.Channel, compression: grpc.Compression
) -> None:
    service = f"grpc-{compression}"
    answer = TraceServiceStub(channel).Export(
        request([span(1, 1), span(1, 2, 1)], {"service.name": service}),
        compression=compression,
        timeout=LIMIT_S,
    )
    assert not answer.HasField("partial_success")
    assert collector.rows(
        f"select count(*) from stored_spans join sources using (source_id) where service = '{service}'"
    ) == [(2,)]


def test_metrics_are_stored_before_the_answer(collector: Collector, channel: grpc.Channel) -> None:
    sent = ExportMetricsServiceRequest()
    sent.resource_metrics.add().scope_metrics.add().metrics.add(
        name="grpc.metric"
    ).gauge.data_points.add(time_unix_nano=T0_NS, as_int=7)
    assert not MetricsServiceStub(channel).Export(sent, timeout=LIMIT_S).HasField("partial_success")
    assert collector.rows("select value from points where name = 'grpc.metric'") == [(7.0,)]


def test_logs_are_counted_and_said_not_to_be_stored(channel: grpc.Channel) -> None:
    sent = ExportLogsServiceRequest()
    sent.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "text"
    assert (
        LogsServiceStub(channel).Export(sent, timeout=LIMIT_S).partial_success.rejected_log_records
        == 1
    )


def test_spans_with_invalid_ids_are_a_partial_success(channel: grpc.Channel) -> None:
    wrong = span(2, 2)
    wrong.span_id = b"tiny"
    assert (
        TraceServiceStub(channel)
        .Export(request([span(2, 1), wrong]), timeout=LIMIT_S)
        .partial_success.rejected_spans
        == 1
    )


@pytest.mark.parametrize(
    "service", ["trace.v1.TraceService", "metrics.v1.MetricsService", "logs.v1.LogsService"]
)
def test_a_malformed_body_is_invalid_argument(channel: grpc.Channel, service: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/opentelemetry.proto.collector.{service}/Export")(
            b"\xff\xff\xff", timeout=LIMIT_S
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (details(caught.value).code, len(details(caught.value).details)) == (3, 0)
    assert "protobuf" in caught.value.details()


def test_an_unknown_service_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(
            "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
        )(b"", timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_body_over_the_limit_is_resource_exhausted_and_not_to_be_sent_again(
    channel: grpc.Channel,
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(EXPORT)(bytes((1 << 20) + 1), timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata() or ())


def test_a_full_queue_is_resource_exhausted_with_the_time_to_come_again(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector(queue_mib=1, max_body_mib=2)
    large = body([span(1, i, name="n" * 200) for i in range(1, 5_000)])
    with grpc.insecure_channel(
        collector.grpc, options=[*NO_PROXY, ("grpc.max_send_message_length", 4 << 20)]
    ) as channel:
        export = channel.unary_unary(EXPORT)
        with held(collector.writer):
            first = export.future(large, timeout=LIMIT_S)
            until(lambda: collector.writer.waiting_bytes)
            with pytest.raises(grpc.RpcError) as caught:
                export(body([span(2, 1)]), timeout=LIMIT_S)
        assert first.result(LIMIT_S) == b""
        status = details(caught.value)
        info = RetryInfo()
        assert status.details[0].Unpack(info)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (status.code, info.retry_delay.seconds) == (8, 1)
        assert export(body([span(2, 1)]), timeout=LIMIT_S) == b""


def test_a_store_that_refuses_is_unavailable_with_the_time_to_come_again(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector()
    collector.writer.call(
        lambda connection: connection.execute("alter table spans rename to away")
    ).result()
    with (
        grpc.insecure_channel(collector.grpc, options=NO_PROXY) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(EXPORT)(body([span(1, 1)]), timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(details(caught.value).details) == 1


def test_many_senders_at_once_are_all_stored(collector: Collector, channel: grpc.Channel) -> None:
    export = TraceServiceStub(channel).Export
    with ThreadPoolExecutor(16) as pool:
        sent = [
            pool.submit(
                export,
                request([span(trace, 1), span(trace, 2, 1)], {"service.name": "crowd"}),
                timeout=LIMIT_S,
            )
            for trace in range(100, 200)
        ]
        assert all(not s.result().HasField("partial_success") for s in sent)
    assert collector.rows(
        "select count(*) from stored_spans join sources using (source_id) where service = 'crowd'"
    ) == [(200,)]


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_the_opentelemetry_sdk_delivers_over_grpc(
    collector: Collector, compression: grpc.Compression
) -> None:
    service = f"sdk-{compression}"
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint=collector.grpc, insecure=True, compression=compression)
        )
    )
    tracer = provider.get_tracer("real.sender")
    for _ in range(20):
        with tracer.start_as_current_span("POST /chat"), tracer.start_as_current_span("chat m"):
            pass
    assert provider.force_flush()
    provider.shutdown()
    assert collector.rows(
        f"select count(*), count(distinct trace_id) from v_spans where service = '{service}'"
    ) == [(40, 20)]


async def never() -> AsyncIterator[bytes]:
    await asyncio.sleep(3600)
    yield b""


async def at_once() -> AsyncIterator[bytes]:
    yield b"body"


def test_slow_connections_do_not_hold_up_one_that_has_been_in_time() -> None:
    """However long their patience: its bodies have places of their own, until one of them does not come in time."""

    async def beside() -> None:
        reader = otlp_grpc._Reader(3600.0)
        assert await reader.body(at_once(), "good") == b"body"
        waiting = otlp_grpc._READING_NEW + otlp_grpc._WAITING
        slow = [asyncio.create_task(reader.body(never(), f"slow {n}")) for n in range(waiting)]
        await asyncio.sleep(0)
        for _ in range(20):
            assert await reader.body(at_once(), "good") == b"body"
        with pytest.raises(QueueFull):  # others may wait, not without end
            await reader.body(at_once(), "new")
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(beside())


def test_a_connection_that_was_slow_has_to_be_in_time_again() -> None:
    async def once() -> None:
        reader = otlp_grpc._Reader(0.05)
        await reader.body(at_once(), "a")
        with pytest.raises(TooSlow):
            await reader.body(never(), "a")
        assert "a" not in reader._in_time
        await reader.body(at_once(), "a")
        assert "a" in reader._in_time

    asyncio.run(once())


def test_bodies_that_do_not_come_make_room_for_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp_grpc, "_PATIENCE_NEW_S", 0.05)

    async def both() -> bytes:
        reader = otlp_grpc._Reader(3600.0)
        slow = [
            asyncio.create_task(reader.body(never(), f"slow {n}"))
            for n in range(otlp_grpc._READING_NEW)
        ]
        await asyncio.sleep(0)
        async with asyncio.timeout(120):
            found = await reader.body(at_once(), "new")
        for task in slow:
            task.cancel()
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert sum(isinstance(error, TooSlow) for error in ended) >= 1
        return found

    assert asyncio.run(both()) == b"body"


def test_an_answer_that_fails_because_its_call_is_gone_is_no_news() -> None:
    """grpcio logs a traceback if it has not yet heard that the client broke the call off, or of one that ends while it is refused; a fuzz run of 230,000 inputs met two."""

    def record(error: BaseException) -> logging.LogRecord:
        made = (type(error), error, None)
        return logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, "", 0, "raised", (), made)

    assert not otlp_grpc._is_news(record(cygrpc.ExecuteBatchError("Failed")))
    assert not otlp_grpc._is_news(record(asyncio.CancelledError()))
    assert otlp_grpc._is_news(record(ValueError("a fault of ours")))
