"""How does the server tell of itself by the road of all metrics? Numbers as an OTLP body, for `writer.submit`."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


def body(instance: str, values: Mapping[str, float], time_ns: int) -> bytes:
    """Gauges of the service `overrun` by name, ratios, at `time_ns`."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, text in (("service.name", "overrun"), ("service.instance.id", instance)):
        resource.resource.attributes.add(key=key).value.string_value = text
    scope = resource.scope_metrics.add()
    for name, value in values.items():
        scope.metrics.add(name=name, unit="1").gauge.data_points.add(
            time_unix_nano=time_ns, as_double=value
        )
    return bytes(request.SerializeToString())
