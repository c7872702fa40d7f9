"""What did an engine write into its log? Lines with its figures (running, waiting, cache, tokens) become the metrics that its page would have had.

An engine is one entry of `engine_logs.toml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from overrun.collector.sources import prometheus
from overrun.collector.sources.log_lines import plain_lines, time_ns


class _Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    metric: str
    pattern: str
    scale: float = 1.0
    each_s: bool = False
    counts: bool = False


class _Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    service: str
    line: str
    rank: str
    figures: list[_Figure]


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    engines: list[_Engine]


_ENGINES = msgspec.toml.decode(
    Path(__file__).with_suffix(".toml").read_bytes(), type=_Words
).engines


@dataclass(slots=True)
class Read:
    """What a log held: a metrics request, and what must be known of it."""

    body: bytes
    note: str


@dataclass(slots=True)
class _Series:
    """What is known of one engine of the log: metric -> (time in ns -> value)."""

    gauges: dict[str, dict[int, float]] = field(default_factory=dict)
    counts: dict[str, dict[int, float]] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)  # of a rate's metric


def read(text: str, *, instance: str, written_ns: int) -> Read | None:
    """The metrics in an engine's log, None if no line has figures of a known engine."""
    if not any(re.search(engine.line, text) for engine in _ENGINES):
        return None
    found: dict[tuple[str, str], _Series] = {}
    told = others = 0
    for line, when in plain_lines(text):
        engine = next((one for one in _ENGINES if re.search(one.line, line)), None)
        at = (
            None
            if engine is None
            else time_ns(line, written_ns) or (time_ns(when, written_ns) if when else None)
        )
        if engine is None or at is None:
            others += bool(line.strip())
            continue
        rank = re.search(engine.rank, line)
        series = found.setdefault((engine.service, rank[1] if rank else ""), _Series())
        _add(series, engine, line, at)
        told += 1
    if not told:
        return None
    ranks = {service: sum(one == service for one, _ in found) for service, _ in found}
    request = ExportMetricsServiceRequest()
    for (service, which), series in found.items():
        name = f"{instance}/{which}" if ranks[service] > 1 else instance
        _write(request, service, name, series)
    engines = ", ".join(dict.fromkeys(service for service, _ in found))
    return Read(
        request.SerializeToString(),
        f"figures of {engines} in {told:,} lines, {others:,} others left out; times without a zone are read as UTC",
    )


def _add(series: _Series, engine: _Engine, line: str, at: int) -> None:
    for figure in engine.figures:
        match = re.search(figure.pattern, line)
        if match is None:
            continue
        value = float(match[1]) * figure.scale
        if figure.each_s:
            before = series.last_ns.get(figure.metric)
            series.last_ns[figure.metric] = at
            if before is None or before >= at:
                continue
            value *= (at - before) / 1e9
        if figure.each_s or figure.counts:
            counted = series.counts.setdefault(figure.metric, {})
            counted[at] = counted.get(at, 0.0) + value
        else:
            series.gauges.setdefault(figure.metric, {})[at] = value


def _write(
    request: ExportMetricsServiceRequest, service: str, instance: str, series: _Series
) -> None:
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(
        prometheus.pairs({"service.name": service, "service.instance.id": instance})
    )
    metrics = resource.scope_metrics.add().metrics
    for name, points in series.gauges.items():
        metric = metrics.add(name=name)
        for at, value in points.items():
            metric.gauge.data_points.add(time_unix_nano=at, as_double=value)
    for name, points in series.counts.items():
        metric = metrics.add(name=name)
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        for at, value in points.items():
            metric.sum.data_points.add(time_unix_nano=at, as_double=value)
