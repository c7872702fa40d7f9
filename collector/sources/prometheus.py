"""What is on a /metrics page? Prometheus or OpenMetrics text in, one OTLP metrics request out, so that it takes the same road as live metrics.

Names as the OpenTelemetry Collector's Prometheus receiver has them: a counter keeps its sample's name (`_total` stays), a histogram its family's.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Metric,
    ScopeMetrics,
)
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families as plain_text

from overrun.collector.errors import BadPayload
from overrun.collector.normalise import metric_names, untyped_metrics
from overrun.collector.sources import openmetrics

MAX_SAMPLES = 100_000  # of one page; a page with more is no engine's. They take 2 kB each while they are read.
MAX_LABELS = 1_000_000  # of one page, all samples together
# Characters of a line: the parser's time grows with the square of a sample's labels.
MAX_LINE = 65_536
PROCESS_START = "process_start_time_seconds"
# First words of metric names -> what runs there.
_BY_OWN_NAME = ("dynamo", "litellm", "lmdeploy", "ollama", "sglang", "tgi", "trtllm", "vllm")
_SERVICES = dict(zip(_BY_OWN_NAME, _BY_OWN_NAME, strict=True)) | {
    "nv": "triton",
    "dcgm": "dcgm-exporter",
    "llamacpp": "llama.cpp",
    "te": "text-embeddings-inference",
}
_PLAIN = r'(?!__)[a-zA-Z_][a-zA-Z0-9_]*="[^"\\]*"'
_LABELLED = re.compile(
    rf"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\{{({_PLAIN}(?:,{_PLAIN})*,?)\}}\s*([^{{\s][^{{]*)"
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Labels by which a federating Prometheus names the source of samples.
_FEDERATED = ("exported_instance", "instance")


class TooManySamples(BadPayload):
    """A page with more samples, lines or labels than any engine's."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the page has more than {what}: is it an engine's /metrics?")


def parse(text: str, content_type: str = "") -> list[Family]:
    """The metric families of a page, in either format.

    Raises:
        BadPayload: it is neither. TooManySamples: it has more than MAX_SAMPLES samples, three times as many lines, MAX_LABELS labels, or a longer line.
    """
    # Before anything is made of them; a family has two lines beside its samples.
    if text.count("\n") > 3 * MAX_SAMPLES:
        raise TooManySamples(f"{3 * MAX_SAMPLES:,} lines")
    # Each value stands between two quotation marks; there may be spaces around its equals sign.
    if text.count('"') > 2 * MAX_LABELS:
        raise TooManySamples(f"{MAX_LABELS:,} labels")
    if any(len(line) > MAX_LINE for line in text.splitlines()):
        raise TooManySamples(f"{MAX_LINE:,} characters in one line")
    if "openmetrics" in content_type or text.rstrip().endswith("# EOF"):
        text = openmetrics.plain(text)
    families: list[Family] = []
    samples, (text, labels) = 0, _without_labels(text)
    try:
        for family in plain_text(text):
            for sample, own in zip(family.samples, labels, strict=False):
                sample.labels.update(own)
            samples += len(family.samples)
            if samples > MAX_SAMPLES:
                raise TooManySamples(f"{MAX_SAMPLES:,} samples")
            families.append(family)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadPayload(f"the page is not Prometheus text: {error}") from error
    return families


def _without_labels(text: str) -> tuple[str, Iterator[dict[str, str]]]:
    """A page without its plain labels, and those of each sample in order: prometheus_client walks through labels a character at a time (two thirds of
    the CPU of a page of vLLM). Labels with an escape, twice the same or beyond ASCII are left to it."""
    lines, labels = [], []
    for line in text.split("\n"):
        found = _LABELLED.fullmatch(line)
        own = dict(pairs := _LABEL.findall(found[2])) if found else {}
        if found and len(own) < len(pairs):
            found, own = None, {}
        lines.append(f"{found[1]} {found[3]}" if found else line)
        if line.strip() and not line.lstrip().startswith("#"):
            labels.append(own)
    return "\n".join(lines), iter(labels)


def counters(families: Iterable[Family]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every value that only grows while a process lives: counters, and the counts of histograms and summaries."""
    out = {}
    for family in families:
        for sample in family.samples:
            grows = family.type == "counter" or (
                family.type in ("histogram", "summary") and sample.name.endswith("_count")
            )
            if grows and not sample.name.endswith("_created") and math.isfinite(sample.value):
                out[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return out


def started(families: Iterable[Family]) -> float | None:
    """When the process behind the page started (Unix seconds), if it reports it."""
    return next(iter(_starts(families).values()), None)


def _starts(families: Iterable[Family]) -> dict[str | None, float]:
    """The start of each process on the page, by the instance that its samples are of (None: the page's own)."""
    samples = (
        s for f in families if f.name == PROCESS_START for s in f.samples if 0 < s.value < 9e9
    )
    return {_federated(sample.labels): sample.value for sample in samples}


def _federated(labels: dict[str, str]) -> str | None:
    return next((labels[key] for key in _FEDERATED if labels.get(key)), None)


def is_federated(families: Iterable[Family]) -> bool:
    """Whether the samples are of other programs than the page's own."""
    return any(_federated(sample.labels) for family in families for sample in family.samples)


def own_times(families: Iterable[Family]) -> bool:
    """Whether every sample with a value has its own time, like those of a federated page do."""
    samples = [sample for family in families for sample in family.samples]
    return bool(samples) and all(sample.timestamp is not None for sample in samples)


def service_of(families: Iterable[Family]) -> str | None:
    """Which engine a page is of, by the first words of its metrics; None if none is known."""
    names = [family.name for family in families]
    for name in names:
        found = _SERVICES.get(metric_names.spelling(name).split("_", 1)[0])
        if found:
            return found
    prefixes = sorted(metric_names.own_prefixes(names))
    return (prefixes[0].strip("_") or "engine") if prefixes else None


def request(families: Iterable[Family], *, service: str, instance: str, time_ns: int) -> bytes:
    """One page as an ExportMetricsServiceRequest of `instance`, its samples at `time_ns`; cumulative ones counted from the start of the process on, if
    the page has it (0 if not: when the reading began shows nothing of when the counting did).

    Raises:
        BadPayload: a count or a time that no metric can have.
    """
    out, scope = _begun(service, instance)
    scope.scope.name = "overrun.scrape"
    families = list(families)
    starts = {whose: min(int(at * 1e9), time_ns) for whose, at in _starts(families).items()}
    times = _Times(time_ns, starts)
    try:
        for family in families:
            if family.type in ("histogram", "gaugehistogram"):
                _histogram(scope, family, times)
            elif family.type == "summary":
                _summary(scope, family, times)
            else:
                _numbers(scope, family, times)
    except (ValueError, OverflowError) as error:
        raise BadPayload(f"the page has an impossible count or time: {error}") from error
    return bytes(out.SerializeToString())


@dataclass(frozen=True, slots=True)
class _Times:
    """When the page was read, and since when each process on it counts (nanoseconds)."""

    read_ns: int
    starts: dict[str | None, int]

    def of(self, samples: Sequence[Any]) -> int:
        """The newest time of one series' samples, else that of the page."""
        said = [int(float(s.timestamp) * 1e9) for s in samples if s.timestamp is not None]
        return max(said, default=self.read_ns)

    def since(self, labels: dict[str, str]) -> int:
        """Since when a series counts; 0 if its process does not report it."""
        return self.starts.get(_federated(labels), 0)


def up(
    *,
    service: str,
    instance: str,
    time_ns: int,
    is_up: bool,
    state: str = "",
    reason: str = "",
    took_s: float | None = None,
    interval_s: float | None = None,
) -> bytes:
    """The `up` gauge of one target with its state (up, down, unreadable) and why, and how long reading it took, as a request of its own."""
    out, scope = _begun(service, instance)
    point = scope.metrics.add(name="up").gauge.data_points.add(
        time_unix_nano=time_ns, as_double=float(is_up)
    )
    point.attributes.extend(pairs({"state": state, "reason": reason}))
    if took_s is not None:
        point = scope.metrics.add(name="scrape_duration_seconds", unit="s").gauge.data_points.add(
            time_unix_nano=time_ns, as_double=took_s
        )
        every = "" if interval_s is None else f"{interval_s:g}"
        point.attributes.extend(pairs({"interval_s": every}))
    return bytes(out.SerializeToString())


def _begun(service: str, instance: str) -> tuple[ExportMetricsServiceRequest, ScopeMetrics]:
    """A request of one instance, and where its metrics go."""
    out = ExportMetricsServiceRequest()
    resource = out.resource_metrics.add()
    named = {"service.name": service, "service.instance.id": instance}
    resource.resource.attributes.extend(pairs(named))
    return out, resource.scope_metrics.add()


def pairs(labels: dict[str, str]) -> Iterator[KeyValue]:
    """Labels as attributes; empty ones are left out."""
    for key, value in labels.items():
        if value:
            yield KeyValue(key=key, value=AnyValue(string_value=value))


def _numbers(scope: ScopeMetrics, family: Family, times: _Times) -> None:
    metrics: dict[str, Metric] = {}
    for sample in family.samples:
        if sample.name.endswith("_created") or not math.isfinite(sample.value):
            continue
        metric = metrics.get(sample.name)
        if metric is None:
            metric = metrics[sample.name] = scope.metrics.add(name=sample.name)
            if family.type == "unknown":
                untyped_metrics.mark(metric)
        if family.type == "counter":
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            point = metric.sum.data_points.add()
        else:
            point = metric.gauge.data_points.add()
        if family.type != "gauge":
            point.start_time_unix_nano = times.since(sample.labels)
        point.time_unix_nano, point.as_double = times.of([sample]), sample.value
        point.attributes.extend(pairs(sample.labels))


def _series(family: Family, apart: str) -> dict[tuple[tuple[str, str], ...], list[Any]]:
    """The samples of one family by their labels without `apart`."""
    out: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != apart))
        out.setdefault(labels, []).append(sample)
    return out


def _histogram(scope: ScopeMetrics, family: Family, times: _Times) -> None:
    metric = scope.metrics.add(name=family.name)
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    for labels, samples in _series(family, "le").items():
        edges = sorted(
            (float(s.labels["le"]), s.value)
            for s in samples
            if s.name.endswith("_bucket") and "le" in s.labels
        )
        finite = all(math.isfinite(count) for _, count in edges)
        if not (edges and math.isinf(edges[-1][0]) and finite):
            continue
        totals = itertools.pairwise([0.0, *(count for _, count in edges)])
        counts = [max(int(count - before), 0) for before, count in totals]
        point = metric.histogram.data_points.add(
            time_unix_nano=times.of(samples),
            start_time_unix_nano=times.since(dict(labels)),
            count=sum(counts),
        )
        point.explicit_bounds.extend(bound for bound, _ in edges[:-1])
        point.bucket_counts.extend(counts)
        total = next((s.value for s in samples if s.name.endswith(("_sum", "_gsum"))), math.nan)
        if math.isfinite(total):
            point.sum = total
        point.attributes.extend(pairs(dict(labels)))


def _summary(scope: ScopeMetrics, family: Family, times: _Times) -> None:
    metric = scope.metrics.add(name=family.name)
    for labels, samples in _series(family, "quantile").items():
        found = {
            s.name.rsplit("_", 1)[-1]: s.value
            for s in samples
            if "quantile" not in s.labels and math.isfinite(s.value)
        }
        point = metric.summary.data_points.add(
            time_unix_nano=times.of(samples),
            start_time_unix_nano=times.since(dict(labels)),
            count=int(found.get("count", 0)),
            sum=found.get("sum", 0.0),
        )
        for sample in samples:
            if "quantile" in sample.labels and math.isfinite(sample.value):
                point.quantile_values.add(
                    quantile=float(sample.labels["quantile"]), value=sample.value
                )
        point.attributes.extend(pairs(dict(labels)))
