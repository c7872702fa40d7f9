"""What a real sender sent, kept small and without this machine's name: recorded/NAME.SIGNAL.pb.zst. Its service is named after the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import zstandard
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FOLDER: Final = Path(__file__).parent / "recorded"
_REQUESTS: Final[dict[str, Any]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}
# Of the resource: what names the machine, its user or the process.
_OF_THE_MACHINE: Final = ("process.", "host.", "os.", "container.", "k8s.")


def keep(name: str, bodies: Mapping[str, Sequence[bytes]], folders: Iterable[str]) -> None:
    """Write the bodies of a run, one file a signal; `folders` are paths that become /app."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob(f"{name}.*.pb.zst"):
        old.unlink()
    for signal, some in bodies.items():
        request = _REQUESTS[signal].FromString(b"".join(some))
        for group in next(iter(request.ListFields()))[1]:
            kept = [a for a in group.resource.attributes if not a.key.startswith(_OF_THE_MACHINE)]
            del group.resource.attributes[:]
            group.resource.attributes.extend(kept)
            for attribute in group.resource.attributes:
                if attribute.key == "service.name":
                    attribute.value.string_value = name
        _rename(request, sorted(folders, key=len, reverse=True))
        packed = zstandard.ZstdCompressor(level=19).compress(request.SerializeToString())
        (FOLDER / f"{name}.{signal}.pb.zst").write_bytes(packed)


def _rename(message: Any, folders: Sequence[str]) -> None:
    """Put /app in the place of each folder, in every text of a message."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and not isinstance(value, str):
            for index, text in enumerate(value):
                value[index] = _without(text, folders)
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, _without(value, folders))
        elif field.type == field.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                _rename(inner, folders)


def _without(text: str, folders: Sequence[str]) -> str:
    for folder in folders:
        text = text.replace(folder, "/app")
    return text
