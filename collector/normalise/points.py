"""What do the sent metrics mean? OTLP metrics bytes in, rows of `points` and `sources` out, each named by its indicator where a table knows it.

Metrics are a thousand times rarer than spans, so this is the plain protobuf decoder and a loop. Exponential histograms become explicit
bounds (the conversion is exact: their bucket edges are powers of a base), so that one reader serves both.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    DataPointFlags,
    ExponentialHistogramDataPoint,
    Metric,
)

from overrun.collector.decode.columns import Source, any_value
from overrun.collector.dialects import Metric as Named
from overrun.collector.errors import BadPayload
from overrun.collector.normalise import stages, wording
from overrun.collector.normalise.metric_instances import Instances
from overrun.collector.normalise.metric_names import find_indicator, label, own_prefixes, place
from overrun.collector.normalise.quarantine import MAX_TIME_NS, MIN_TIME_NS
from overrun.collector.normalise.spans import MAX_NAME, Rules, clean_attributes, source_table
from overrun.collector.normalise.untyped_metrics import give_types

GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = 1, 2, 3, 4, 5
MAX_BUCKETS = 2_000  # a data point with more buckets than this is no latency histogram


@dataclass(slots=True)
class Points:
    """Rows of `points` (all columns but `batch`), their sources, and how many data points could not be used; `misdated` of these for their time."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    sources: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    rejected: int = 0
    misdated: int = 0


def decode_points(body: bytes, rules: Rules) -> Points:
    """The data points of one ExportMetricsServiceRequest.

    Raises:
        BadPayload: the body is not such a message.
    """
    try:
        request = ExportMetricsServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadPayload(
            f"the body is not an OTLP metrics export request in protobuf: {error}"
        ) from error
    out = Points()
    for resource_metrics in request.resource_metrics:
        resource = tuple((a.key, any_value(a.value)) for a in resource_metrics.resource.attributes)
        prefixes = own_prefixes(
            metric.name for scope in resource_metrics.scope_metrics for metric in scope.metrics
        )
        give_types(resource_metrics, prefixes)
        first = len(out.rows)
        for scope_metrics in resource_metrics.scope_metrics:
            scope = scope_metrics.scope
            scope_attributes = tuple((a.key, any_value(a.value)) for a in scope.attributes)
            source = Source(
                resource,
                scope.name,
                scope.version,
                scope_attributes,
                resource_metrics.schema_url,
                scope_metrics.schema_url,
            )
            ids, rows = source_table([source], rules)
            out.sources.extend(rows)
            for metric in scope_metrics.metrics:
                _decode_metric(
                    metric, source, int(ids[0]), rows[0][1]["instance"], prefixes, rules, out
                )
        Instances.name(out.rows[first:])
        for row in out.rows[first:] if not rules.store_text else ():
            row["instance"] = row["instance"] and wording.identity(row["instance"], rules.salt)
    _keep_best_named(out.rows)
    return out


def _decode_metric(
    metric: Metric,
    source: Source,
    source_id: int,
    instance: str | None,
    prefixes: frozenset[str],
    rules: Rules,
    out: Points,
) -> None:
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    code, read = _READERS[kind]
    temporality = getattr(data, "aggregation_temporality", 0)
    for point in data.data_points:
        if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            continue  # a staleness marker: its value must be ignored
        value = read(point)
        if not MIN_TIME_NS <= point.time_unix_nano < MAX_TIME_NS:
            out.rejected += 1
            out.misdated += 1
            continue
        if value is None:
            out.rejected += 1
            continue
        attributes = {a.key: any_value(a.value) for a in point.attributes}
        kept = clean_attributes(attributes.items(), rules)
        named = find_indicator(metric.name, attributes, source.scope_name, prefixes)
        if named is not None and named.labels:
            value, named = _told_by_labels(value, named, attributes)
        if not _is_amount(value):
            named = None
        row = {
            "source_id": source_id,
            "time_ns": _signed(point.time_unix_nano),
            "start_ns": _signed(point.start_time_unix_nano),
            "name": kept_name(metric.name, rules),
            "unit": kept_name(metric.unit, rules),
            "kind": code,
            "temporality": temporality if temporality in (1, 2) else 0,
            "monotonic": bool(getattr(data, "is_monotonic", False)),
            "series": _series(source_id, metric.name, kept),
            "instance": instance,
            "model": _model(attributes, rules),
            "labels": attributes,
            "indicator": named.indicator if named else None,
            "scale": named.scale * _unit_scale(metric, named) if named else None,
            "value": None,
            "bounds": None,
            "counts": None,
            "sum": None,
            "count": None,
            "attributes": kept,
            **value,
            "named": named,
        }
        out.rows.append(row)
        if named and named.sum_as and row["sum"] is not None:
            out.rows.append(
                row
                | {
                    "name": f"{row['name']}_sum",
                    "kind": SUM,
                    "monotonic": True,
                    "series": _series(source_id, f"{metric.name}_sum", kept),
                    "indicator": named.sum_as,
                    "value": row["sum"],
                    "bounds": None,
                    "counts": None,
                    "sum": None,
                    "count": None,
                }
            )


def _is_amount(value: dict[str, Any]) -> bool:
    """Whether a number can be an indicator's: none of them is below zero or no number (vLLM says -1 for a hit rate without a cache)."""
    number = value.get("value")
    return number is None or (math.isfinite(number) and number >= 0.0)


# Times under a name that does not say the unit: what the sender says of it counts.
_SECONDS = {"ms": 1e-3, "us": 1e-6, "\u00b5s": 1e-6, "ns": 1e-9}


def _unit_scale(metric: Metric, named: Named) -> float:
    """What makes seconds of a metric whose table entry expects them."""
    return _SECONDS.get(metric.unit, 1.0) if named.scale == 1.0 else 1.0


def _keep_best_named(rows: list[dict[str, Any]]) -> None:
    """Of several metrics that report one indicator of one instance, leave it to the one that the tables name first. In place."""
    first: dict[tuple[Any, ...], int] = {}
    rivals = []
    for row in rows:
        named: Named | None = row.pop("named")
        if named is not None and not named.adds:
            key = (row["instance"], row["model"], row["indicator"], row["bounds"] is None)
            at = place(named)
            first[key] = min(first.get(key, at), at)
            rivals.append((key, at, row))
    for key, at, row in rivals:
        if at != first[key]:
            row["indicator"] = row["scale"] = None


def _told_by_labels(
    value: dict[str, Any], named: Named, attributes: dict[str, Any]
) -> tuple[dict[str, Any], Named | None]:
    """The product of the labels as the point's value; the point as it is and no indicator where one of them is no positive number."""
    try:
        product = math.prod(float(attributes[label]) for label in named.labels)
    except (KeyError, TypeError, ValueError):
        return value, None
    return (
        ({"value": product}, named) if math.isfinite(product) and product > 0.0 else (value, None)
    )


def _signed(time_ns: int) -> int:
    return min(time_ns, 2**63 - 1)


def _number(point: Any) -> dict[str, Any] | None:
    which = point.WhichOneof("value")
    return None if which is None else {"value": float(getattr(point, which))}


def _histogram(point: Any) -> dict[str, Any] | None:
    bounds, counts = list(point.explicit_bounds), [float(c) for c in point.bucket_counts]
    if len(bounds) > MAX_BUCKETS or (counts and len(counts) != len(bounds) + 1):
        return None
    if not all(map(math.isfinite, bounds)) or any(
        low >= high for low, high in itertools.pairwise(bounds)
    ):
        return None
    return {
        "bounds": bounds,
        "counts": counts,
        "sum": point.sum if point.HasField("sum") else None,
        "count": float(point.count),
    }


def _exponential(point: ExponentialHistogramDataPoint) -> dict[str, Any] | None:
    """Explicit edges of an exponential histogram: bucket i of scale s covers (b**i, b**(i+1)] with b = 2**(2**-s) (OTLP data model)."""
    negative, positive = list(point.negative.bucket_counts), list(point.positive.bucket_counts)
    if len(negative) + len(positive) > MAX_BUCKETS:
        return None
    try:
        below = (
            [
                -(2.0 ** ((point.negative.offset + i) * 2.0**-point.scale))
                for i in range(len(negative), -1, -1)
            ]
            if negative
            else []
        )
        above = (
            [
                2.0 ** ((point.positive.offset + i) * 2.0**-point.scale)
                for i in range(len(positive) + 1)
            ]
            if positive
            else []
        )
    except OverflowError:
        return None
    bounds = below + above
    counts = [
        0.0,
        *map(float, reversed(negative)),
        float(point.zero_count),
        *map(float, positive),
        0.0,
    ]
    if not below:
        counts = counts[1:]
    if not above:
        counts = counts[:-1] if below else [float(point.zero_count)]
        counts += [0.0] * (len(bounds) + 1 - len(counts))
    return {
        "bounds": bounds,
        "counts": counts,
        "sum": point.sum if point.HasField("sum") else None,
        "count": float(point.count),
    }


def _summary(point: Any) -> dict[str, Any]:
    return {"sum": point.sum, "count": float(point.count)}


_READERS: dict[str, tuple[int, Callable[[Any], dict[str, Any] | None]]] = {
    "gauge": (GAUGE, _number),
    "sum": (SUM, _number),
    "histogram": (HISTOGRAM, _histogram),
    "exponential_histogram": (EXPONENTIAL, _exponential),
    "summary": (SUMMARY, _summary),
}


def _series(source_id: int, name: str, attributes: list[tuple[str, str]]) -> int:
    text = f"{source_id}\0{name}\0{sorted(attributes)!r}"
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


@stages.derived
def _model_labels() -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for d in stages.dialects() for key in d.model_labels))


def _model(attributes: dict[str, Any], rules: Rules) -> str | None:
    # Of a label that it has nothing for, Prometheus pages of Python programs say "None".
    model = next(
        (
            found
            for key in _model_labels()
            if (found := _text(label(attributes, key))) and found != "None"
        ),
        None,
    )
    return model if model is None or rules.store_text else wording.identity(model, rules.salt)


def kept_name(text: str, rules: Rules) -> str:
    """A metric's name or unit as it may be stored."""
    return (text if rules.store_text else wording.name(text, rules.salt))[:MAX_NAME]


def _text(value: object) -> str | None:
    return value[:MAX_NAME] if isinstance(value, str) and value else None
