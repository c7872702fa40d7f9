"""What is answered to the sender? The OTLP response messages per signal, and errors as google.rpc.Status with RetryInfo where coming again helps."""

from __future__ import annotations

from google.protobuf.message import Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from overrun.collector.errors import CollectorError
from overrun.collector.ingest.writer import Stored

SIGNALS = ("traces", "metrics", "logs")


def success(signal: str, stored: Stored) -> Message:
    """The response to a stored body; refused items make it a partial success, which senders must not repeat; a reason without them is a warning."""
    if signal == "traces":
        traces = ExportTraceServiceResponse()
        if stored.reason:
            traces.partial_success.rejected_spans = stored.rejected
            traces.partial_success.error_message = stored.reason
        return traces
    if signal == "metrics":
        metrics = ExportMetricsServiceResponse()
        if stored.reason:
            metrics.partial_success.rejected_data_points = stored.rejected
            metrics.partial_success.error_message = stored.reason
        return metrics
    logs = ExportLogsServiceResponse()
    if stored.reason:
        logs.partial_success.rejected_log_records = stored.rejected
        logs.partial_success.error_message = stored.reason
    return logs


def failure(error: CollectorError) -> Status:
    """The google.rpc.Status of an error."""
    status = Status(code=error.grpc_status, message=str(error))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        info = RetryInfo()
        info.retry_delay.FromSeconds(retry_after_s)
        status.details.add().Pack(info)
    return status
