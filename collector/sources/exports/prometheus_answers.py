"""Answers of Prometheus's query API that were saved to a file: the samples of named metrics, as those of its pages.

Source: Prometheus HTTP API, "Range vectors" and "Instant vectors". What an expression gave has no metric's name: which figure it is, only whoever asked knows.
"""

from __future__ import annotations

import math
from typing import Any

from prometheus_client import Metric as Family

from overrun.collector.sources import prometheus
from overrun.collector.sources.exports import otlp

_OWN = "__name__"


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The metrics requests of an answer, None if it is none.

    Raises:
        ValueError: it holds what an expression gave, or no sample.
    """
    data = value.get("data") if isinstance(value, dict) and "status" in value else None
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        return None
    series = [one for one in otlp.listed(data["result"]) if isinstance(one.get("metric"), dict)]
    named = [one for one in series if one["metric"].get(_OWN)]
    if not named:
        raise ValueError(
            "no metric is named in it: an expression such as rate() or histogram_quantile() was asked; "
            "ask for the metric itself, `vllm:num_requests_waiting[1h]`, or save a page, `curl http://HOST:9090/federate?match[]=... > page.prom`"
        )
    by_instance: dict[str, dict[str, Any]] = {}
    for one in named:
        labels = {str(key): str(told) for key, told in one["metric"].items()}
        name, instance = labels.pop(_OWN), labels.get("instance", "")
        points = [
            {
                "timeUnixNano": otlp.moment_ns(float(at)),
                "asDouble": number,
                "attributes": otlp.attributes(labels),
            }
            for at, told in one.get("values") or [one.get("value")]
            for number in [float(told)]
            if math.isfinite(number)
        ]
        metrics = by_instance.setdefault(instance, {})
        metrics.setdefault(name, []).extend(points)
    return [_request(instance, metrics) for instance, metrics in by_instance.items()]


def _request(instance: str, metrics: dict[str, Any]) -> dict[str, Any]:
    service = prometheus.service_of(Family(name, "", "unknown") for name in metrics) or "prometheus"
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
