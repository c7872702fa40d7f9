"""What is a metric without a type? A federating Prometheus and pages without TYPE lines send all as gauges; here they become themselves.

A series `x_bucket` with a label `le` is part of a histogram, of any declared type, with `x_sum` and `x_count`. A gauge of unknown type whose name ends in
`_total`, or that a table knows as a count, only grows. In place, on one sender's OTLP metrics, so that pages and a Collector that federates are read alike.
"""

from __future__ import annotations

import math
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Metric,
    ResourceMetrics,
    ScopeMetrics,
)

from overrun.collector.normalise.metric_names import COUNTS, find_indicator

# The Collector's Prometheus receiver puts the type of the page's TYPE line here; our reader of pages does the same.
TYPE = "prometheus.type"
UNKNOWN = "unknown"
_PARTS = ("_bucket", "_sum", "_count")


def mark(metric: Metric) -> None:
    """Mark a metric whose page gave no type."""
    metric.metadata.append(KeyValue(key=TYPE, value=AnyValue(string_value=UNKNOWN)))


def give_types(sent: ResourceMetrics, prefixes: frozenset[str]) -> None:
    """Make histograms and counters of what was sent without a type. In place."""
    for scope in sent.scope_metrics:
        bases = {
            metric.name.removesuffix("_bucket") for metric in scope.metrics if _is_buckets(metric)
        }
        if bases:
            _make_histograms(scope, bases)
        for metric in scope.metrics:
            if (
                metric.WhichOneof("data") == "gauge"
                and _is_untyped(metric)
                and _counts(metric, prefixes)
            ):
                _make_sum(metric)


def _is_untyped(metric: Metric) -> bool:
    return any(
        a.key == TYPE and a.value.string_value in (UNKNOWN, "untyped", "") for a in metric.metadata
    )


def _is_buckets(metric: Metric) -> bool:
    return metric.name.endswith("_bucket") and any(
        a.key == "le" for point in _numbers(metric)[:1] for a in point.attributes
    )


def _numbers(metric: Metric) -> Any:
    """The points of a metric of single numbers."""
    return (
        metric.gauge.data_points
        if metric.WhichOneof("data") == "gauge"
        else metric.sum.data_points
        if metric.WhichOneof("data") == "sum"
        else []
    )


def _counts(metric: Metric, prefixes: frozenset[str]) -> bool:
    if metric.name.endswith("_total"):
        return True
    labels = {
        a.key: a.value.string_value
        for point in metric.gauge.data_points[:1]
        for a in point.attributes
    }
    named = find_indicator(metric.name, labels, "", prefixes)
    return named is not None and named.indicator in COUNTS


def _make_sum(metric: Metric) -> None:
    points = list(metric.gauge.data_points)
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = (
        True,
        AGGREGATION_TEMPORALITY_CUMULATIVE,
    )
    metric.sum.data_points.extend(points)


def _make_histograms(scope: ScopeMetrics, bases: set[str]) -> None:
    found: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {base: {} for base in bases}
    rest = []
    for metric in scope.metrics:
        base, part = next(
            ((metric.name.removesuffix(end), end) for end in _PARTS if metric.name.endswith(end)),
            ("", ""),
        )
        if base not in found or metric.WhichOneof("data") not in ("gauge", "sum"):
            rest.append(metric)
            continue
        for point in _numbers(metric):
            value = (
                point.as_double if point.WhichOneof("value") == "as_double" else float(point.as_int)
            )
            labels = {a.key: a.value.string_value for a in point.attributes}
            edge = labels.pop("le", None)
            key = (point.time_unix_nano, *sorted(labels.items()))
            made = found[base].setdefault(
                key,
                {
                    "labels": labels,
                    "time": point.time_unix_nano,
                    "start": point.start_time_unix_nano,
                    "edges": {},
                },
            )
            if part == "_bucket" and edge is not None:
                made["edges"][_edge(edge)] = value
            else:
                made[part] = value
    del scope.metrics[:]
    scope.metrics.extend(rest)
    for base, series in found.items():
        metric = scope.metrics.add(name=base)
        metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        for made in series.values():
            _add_point(metric, made)


def _add_point(metric: Metric, made: dict[str, Any]) -> None:
    """One point from the counts up to each edge; where the last edge was left out, the count stands for it."""
    upto = {
        edge: value
        for edge, value in made["edges"].items()
        if not math.isnan(edge) and math.isfinite(value)
    }
    if math.inf not in upto and math.isfinite(made.get("_count", math.nan)):
        upto[math.inf] = made["_count"]
    if math.inf not in upto:
        return
    edges = sorted(upto)
    counts = [
        max(int(upto[edge] - before), 0)
        for edge, before in zip(edges, [0.0, *(upto[edge] for edge in edges)], strict=False)
    ]
    point = metric.histogram.data_points.add(
        time_unix_nano=made["time"], start_time_unix_nano=made["start"], count=sum(counts)
    )
    point.explicit_bounds.extend(edges[:-1])
    point.bucket_counts.extend(counts)
    if math.isfinite(made.get("_sum", math.nan)):
        point.sum = made["_sum"]
    point.attributes.extend(
        KeyValue(key=key, value=AnyValue(string_value=value))
        for key, value in made["labels"].items()
    )


def _edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
