"""What is the sender told? The OTLP response messages per signal, and errors as google.rpc.Status with RetryInfo where coming again helps."""

from __future__ import annotations

from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collector.errors import BadPayload, CollectorError
from collector.writer import Stored

LOGS_NOT_STORED = "log records are not stored: send traces and metrics here, and logs to a log store"
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


def logs(body: bytes) -> Stored:
    """The answer to a logs request: understood, counted, and said not to be stored.

    Raises:
        BadPayload: the body is not a logs request.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadPayload(f"the body is not an OTLP logs export request in protobuf: {error}") from error
    count = sum(len(scope.log_records) for resource in request.resource_logs for scope in resource.scope_logs)
    return Stored(0, count, LOGS_NOT_STORED if count else "")


def failure(error: CollectorError) -> Status:
    """The google.rpc.Status of an error."""
    status = Status(code=error.grpc_status, message=str(error))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        info = RetryInfo()
        info.retry_delay.FromSeconds(retry_after_s)
        status.details.add().Pack(info)
    return status
