"""What does a row that a form's SELECT made mean? Its documented columns in, OTLP requests out: spans with their raw attributes, or samples of metrics.

Spans: two of `start`, `end` and `duration_ms`, and as far as they are known trace_id, span_id, parent_id, name, kind, error, service, scope, message, trace_state,
attributes, resource, events, links. Calls of models besides: operation, model, provider, input_tokens, output_tokens, cached_tokens, reasoning_tokens, first (a
moment) or first_ms, status (of HTTP), route, session, tenant, request_id. Where a gateway reports a call: `around` are the attributes of its own request, which
takes `whole_ms`, does its part for `before_ms` and lets the call wait for `queue_ms`. `dotted` is a row whose attributes stand below `attributes`.
Samples: metric, time, value, and labels, service, instance.
A moment is a timestamp, a text in ISO's form, or a number of s, ms, us or ns since 1970. `attributes`, `resource` and `labels` are JSON objects, or lists of
key and value; every attribute passes through the vocabularies as if its sender had sent it.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import Metric as Family

from overrun.collector.errors import BadPayload
from overrun.collector.sources import prometheus
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import calls, otlp
from overrun.collector.sources.forms import framing

_SPAN: Final = (
    *("trace_id", "span_id", "parent_id", "name", "kind", "start", "end", "duration_ms", "error"),
    *("service", "scope", "message", "trace_state", "attributes", "resource", "events", "links"),
    *("dotted", "around", "whole_ms", "before_ms", "queue_ms"),
)
# Columns of a call, and the attribute that each is.
_CALL: Final = {
    "operation": "gen_ai.operation.name",
    "model": "gen_ai.request.model",
    "provider": "gen_ai.provider.name",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "status": "http.response.status_code",
    "route": "http.route",
    "session": "session.id",
    "tenant": "tenant.id",
    "request_id": "gen_ai.response.id",
}
SPAN_COLUMNS: Final = frozenset({*_SPAN, *_CALL, "first", "first_ms"})
POINT_COLUMNS: Final = frozenset({"metric", "time", "value", "labels", "service", "instance"})
_COUNTS: Final = frozenset(name for name in _CALL if name.endswith("_tokens")) | {"status"}
_FIRST: Final = "gen_ai.response.time_to_first_chunk"
_OWN: Final = "__name__"
_BELOW: Final = "attributes."
# Attributes by which OpenTelemetry's exporters to Jaeger and Zipkin write a span's fields.
_OF_SPAN: Final = {
    "kind": ("span.kind",),
    "scope": ("otel.scope.name", "otel.library.name"),
    "error": ("otel.status_code",),
    "trace_state": ("w3c.tracestate",),
}
_EVENT_NAMES: Final = ("event", "name", "message")
_STATUS: Final = {"ok": 1, "error": otlp.ERROR}
# Of one request; what is read at one time is more than a body of points where it must.
_SPANS_A_BODY: Final = 2_000
_POINTS_A_BODY: Final = 10_000
_LONGEST_S: Final = (
    7 * 86_400
)  # of a span: no request takes a week, a longer one is a number in another unit

Found = calls.Found
_Sample = tuple[dict[str, str], int, float]  # labels, ns since 1970, value


def check(columns: Iterable[str]) -> None:
    """Refuse columns that nobody documented.

    Raises:
        BadPayload: an unknown column, or none that says what a row is.
    """
    named = set(columns)
    known = POINT_COLUMNS if "metric" in named else SPAN_COLUMNS
    if unknown := sorted(named - known):
        raise BadPayload(
            f"a map has no column {unknown[0]!r}: expected some of {', '.join(sorted(known))}"
        )
    needed = {"metric", "time", "value"} if "metric" in named else set()
    if missing := sorted(needed - named):
        raise BadPayload(f"the map lacks the column {missing[0]!r}")
    if "metric" not in named and len(named & {"start", "end", "duration_ms"}) < 2:
        raise BadPayload("the map lacks two of the columns `start`, `end` and `duration_ms`")


def documents(
    rows: Iterable[Mapping[str, Any]], account: Account, named: str
) -> Iterator[dict[str, Any]]:
    """The requests that rows are; `named` is the form, which stands for a service or scope that no row names.

    Raises:
        BadPayload: the rows have columns that nobody documented.
    """
    spans, points = [], []
    for row in rows:
        if not account.rows:
            check(row)
        account.rows += 1
        try:
            if "metric" in row:
                points.append(_point(row))
            else:
                spans += _spans(row, account, named)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            account.lost = account.lost or f"row {account.rows:,}: {str(error)[:400]}"
        else:
            account.used += 1
        if len(spans) >= _SPANS_A_BODY:
            yield from otlp.request(spans)
            spans = []
    yield from otlp.request(spans) if spans else ()
    yield from samples(point for point in points if point is not None)


def samples(points: Iterable[_Sample]) -> Iterator[dict[str, Any]]:
    """The metrics requests of samples, each with its labels (its metric's name among them), time in ns and value: one for each instance and some time."""
    body: list[_Sample] = []
    for point in sorted(points, key=lambda point: point[1]):
        # What was read at one time stays together: a histogram is all of its buckets.
        if len(body) >= _POINTS_A_BODY and point[1] > body[-1][1]:
            yield from _of_instances(body)
            body = []
        body.append(point)
    yield from _of_instances(body)


def _of_instances(points: Iterable[_Sample]) -> Iterator[dict[str, Any]]:
    by_instance: dict[tuple[str, str], dict[str, list[Any]]] = {}
    for labels, at, value in points:
        own = dict(labels)
        name = own.pop(_OWN)
        metrics = by_instance.setdefault((own.pop("service.name", ""), own.get("instance", "")), {})
        metrics.setdefault(name, []).append(
            {"timeUnixNano": at, "asDouble": value, "attributes": otlp.attributes(own)}
        )
    for (service, instance), metrics in by_instance.items():
        yield _metrics(service, instance, metrics)


def _metrics(service: str, instance: str, metrics: Mapping[str, list[Any]]) -> dict[str, Any]:
    known = prometheus.service_of(Family(name, "", "unknown") for name in metrics)
    service = service or known or "prometheus"
    resource = {"service.name": service, "service.instance.id": instance or service}
    told = [
        {
            "name": name,
            # No type is said: they become themselves as on a page without types.
            "metadata": otlp.attributes({"prometheus.type": "unknown"}),
            "gauge": {"dataPoints": points},
        }
        for name, points in metrics.items()
    ]
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": otlp.attributes(resource)},
                "scopeMetrics": [{"scope": {"name": "prometheus"}, "metrics": told}],
            }
        ]
    }


def _point(row: Mapping[str, Any]) -> _Sample | None:
    """A sample; None of one that is no number, as Prometheus keeps of what stood still."""
    name, at = row["metric"], otlp.moment_ns(row["time"])
    if not name or not at:
        raise ValueError(
            "no metric is named, or no time: of an expression such as rate() or histogram_quantile() the query alone names the figure. Ask for the "
            "metric itself, `vllm:num_requests_waiting[1h]`, or save a page, `curl http://HOST:9090/federate?match[]=... > page.prom`"
        )
    value = math.nan if row["value"] is None else float(row["value"])
    labels = {
        key: str(told) for key, told in mapping(row.get("labels")).items() if told is not None
    }
    for column, label in (("service", "service.name"), ("instance", "instance")):
        if row.get(column):
            labels[label] = str(row[column])
    return (labels | {_OWN: str(name)}, at, value) if math.isfinite(value) else None


def _spans(row: Mapping[str, Any], account: Account, named: str) -> list[Found]:
    """The span of a row, and those of the gateway around it."""
    start, end = _times(row)
    before_ms, queue_ms, whole_ms = (
        float(row.get(name) or 0.0) for name in ("before_ms", "queue_ms", "whole_ms")
    )
    shift = round((before_ms + queue_ms) * 1e6)
    inner = _span(row, start + shift, end + shift, account, named)
    if not row.get("around"):
        return [inner]
    around = {key: told for key, told in mapping(row["around"]).items() if told is not None}
    return calls.with_gateway(
        inner, around, start, calls.Waits(before_ms, queue_ms, whole_ms or (end - start) / 1e6)
    )


def _span(row: Mapping[str, Any], start: int, end: int, account: Account, named: str) -> Found:
    own = str(row.get("span_id") or f"row {account.rows} of {start}")
    attributes = _attributes(row, start, end, account)
    # What exporters of other formats write as attributes are a span's own fields.
    told = {name: row.get(name) for name in _OF_SPAN}
    for name, key in ((name, key) for name, keys in _OF_SPAN.items() for key in keys):
        told[name] = told[name] or attributes.pop(key, told[name])
    named_call = " ".join(str(row[key]) for key in ("operation", "model") if row.get(key))
    status = str(told["error"]).lower()
    resource = {"service.name": str(row.get("service") or named)}
    resource |= {k: one for k, one in mapping(row.get("resource")).items() if one is not None}
    if row.get("service"):
        resource["service.name"] = str(row["service"])
    return (
        resource,
        str(named if told["scope"] is None else told["scope"]),
        {
            "traceId": otlp.any_id(row.get("trace_id") or f"trace of {own}", 32),
            "spanId": otlp.any_id(own, 16),
            "parentSpanId": otlp.any_id(parent, 16)
            if (parent := row.get("parent_id")) and str(parent).strip("0")
            else "",
            "traceState": str(told["trace_state"] or ""),
            "name": str(row.get("name") or named_call or "row"),
            "kind": _kind(told["kind"]),
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "attributes": otlp.attributes(attributes),
            "events": [_event(one) for one in _objects(row.get("events"))],
            "links": [
                {
                    "traceId": otlp.any_id(one.get("trace_id"), 32),
                    "spanId": otlp.any_id(one.get("span_id"), 16),
                }
                for one in _objects(row.get("links"))
            ],
            "status": {
                "code": otlp.ERROR if status in ("true", "1") else _STATUS.get(status, 0),
                "message": str(row.get("message") or ""),
            },
        },
    )


def _times(row: Mapping[str, Any]) -> tuple[int, int]:
    """When a row's call began and ended, in ns since 1970."""
    start, end = otlp.moment_ns(row.get("start")), otlp.moment_ns(row.get("end"))
    took_ns = None
    if row.get("duration_ms") is not None and not (start and end):
        took = float(row["duration_ms"])
        if not 0.0 <= took <= _LONGEST_S * 1e3:
            raise ValueError(f"its duration is none: {took:g} ms")
        took_ns = round(took * 1e6)
    if not start and end and took_ns is not None:
        start = end - took_ns
    if not start:
        raise ValueError(f"its start is no moment: {str(row.get('start'))[:80]!r}")
    if not end and took_ns is not None:
        end = start + took_ns
    if not end:
        raise ValueError("it has neither an end nor a duration")
    if not 0 <= end - start <= _LONGEST_S * 10**9:
        raise ValueError(f"it ends {(end - start) / 1e9:,.3f} s after its start")
    return start, end


def _attributes(row: Mapping[str, Any], start: int, end: int, account: Account) -> dict[str, Any]:
    """The attributes of a row, and what its columns say under the names of the conventions."""
    found = mapping(row.get("attributes")) | dict(_dotted("", mapping(row.get("dotted"))))
    for column, key in _CALL.items():
        if (told := row.get(column)) not in (None, ""):
            found[key] = _count(told) if column in _COUNTS else told
    if (first := _first_s(row, start, end, account)) is not None:
        found[_FIRST] = first
    if isinstance(code := found.get(_CALL["status"]), int):
        account.statuses[code] += 1
    return {key: told for key, told in found.items() if told is not None}


def _dotted(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What stands below `attributes`, under whole names; counts that a table made fractions of are counts."""
    for key, told in values.items():
        name = f"{before}{key}"
        if isinstance(told, dict):
            yield from _dotted(f"{name}.", told)
        elif name.startswith(_BELOW):
            value = framing.cell(name, told)
            whole = isinstance(value, float) and value.is_integer()
            yield name.removeprefix(_BELOW), int(value) if whole else value


def _first_s(row: Mapping[str, Any], start: int, end: int, account: Account) -> float | None:
    """Seconds from the start to the first token, if it lies within the call."""
    moment, ms = otlp.moment_ns(row.get("first")), row.get("first_ms")
    if not moment and ms is None:
        return None
    account.firsts += 1
    after = (moment - start) / 1e9 if moment else float(ms) / 1e3  # type: ignore[arg-type]  # one of both is there
    if 0.0 <= after <= (end - start) / 1e9:
        return after
    account.firsts_outside += 1
    return None


def _count(told: Any) -> int | None:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if 0 <= (number := float(told)) < 2**63:
            return round(number)
    return None


def mapping(told: Any) -> dict[str, Any]:
    """An object from itself, its JSON text, or a list of pairs of a key and a value (`{Type, Value}` is its value)."""
    if isinstance(told, str):
        told = json.loads(told) if told.strip() else {}
    if isinstance(told, list):
        told = {
            str(one.get("key", one.get("Key"))): one.get("value", one.get("Value"))
            for one in told
            if isinstance(one, dict)
        }
    if not isinstance(told, dict):
        return {}
    return {str(key): _plain(value) for key, value in told.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"Type", "Value"}:
        return value["Value"]
    return value


def _objects(told: Any) -> list[dict[str, Any]]:
    return otlp.listed(json.loads(told) if isinstance(told, str) else told)


def _event(told: Mapping[str, Any]) -> dict[str, Any]:
    attributes = mapping(told.get("attributes"))
    name = told.get("name") or next(
        (attributes.pop(key) for key in _EVENT_NAMES if key in attributes), ""
    )
    return {
        "timeUnixNano": otlp.moment_ns(told.get("time")),
        "name": str(name),
        "attributes": otlp.attributes(attributes),
    }


def _kind(told: Any) -> int:
    """OTLP's number of a kind, from its name (`SPAN_KIND_CLIENT`, `Client`) or itself."""
    if isinstance(told, int):
        return told if 0 <= told <= 5 else 0
    return otlp.KINDS.get(str(told or "").lower().rpartition("_")[2].rpartition(".")[2], 0)
