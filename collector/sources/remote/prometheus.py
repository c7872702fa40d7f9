"""What did a Prometheus store of the engines? The raw samples of every metric that a vocabulary knows, page by page as they were scraped.

Asked by instant queries over a range (`{...}[600s]`), which return the stored samples with their own times; `query_range` would resample them.
Thanos, Mimir, Cortex and VictoriaMetrics answer the same. Source: Prometheus HTTP API, "Expression queries" and "Range vectors".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from prometheus_client import Metric as Family

from overrun.collector.errors import ConfigError, ImportFailed
from overrun.collector.normalise import metric_names
from overrun.collector.sources import prometheus as pages
from overrun.collector.sources.remote.documents import Notes
from overrun.collector.sources.remote.fetching import Fetcher, Refused

WIDTH_S: Final = 600
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_MATCH: Final = re.compile(r'\s*[a-zA-Z_]\w*\s*(=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*')
_PARTS: Final = ("_bucket", "_sum", "_count")
_BESIDE: Final = ("up", pages.PROCESS_START)
_NAMES_AT_ONCE: Final = 30  # of one query, so that its address stays below 4 kB
_MOST_NAMES: Final = 2_000
_BODY: Final = 1 << 20
_TYPES: Final = {"counter", "gauge", "histogram", "summary"}
# The scale of a native histogram's buckets: edges grow by 2 ** (2 ** -scale). Prometheus allows -4 to 8.
_SCALES: Final = range(-4, 9)
_EMPTY: Final = 1e-300  # edges below are of the bucket around zero

Page = dict[str, Family]


class Prometheus:
    """The stored samples of one server. `match` narrows them by label matchers (`job="vllm", cluster="a"`)."""

    width_s = WIDTH_S

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._match = fetch, _matchers(match)
        self._place = urlsplit(fetch.url).netloc
        self._names: list[str] | None = None
        self._types: dict[str, str] = {}
        self._services: dict[str, str] = {}
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look which metrics of engines there are, and of which type.

        Raises:
            ImportFailed: none.
        """
        asked = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        listed = [("match[]", f"{{{self._match}}}")] if self._match else []
        found = _data(
            self._fetch.get("/api/v1/label/__name__/values", [*asked.items(), *listed]), list
        )
        names = [name for name in found if isinstance(name, str) and _NAME.fullmatch(name)]
        self._names = sorted(_of_engines(names))[:_MOST_NAMES]
        if not self._names:
            raise ImportFailed(
                f"{self._fetch.url} has no metric of an engine in this window, of {len(names):,} names: "
                "is it the Prometheus that scrapes vLLM, SGLang, TGI, llama.cpp, Triton or the gateway?"
            )
        self._names += [name for name in _BESIDE if name in names]
        try:
            told = _data(self._fetch.get("/api/v1/metadata", {"limit_per_metric": 1}), dict)
        except (Refused, ImportFailed) as error:
            self.notes.append(f"types of metrics are guessed from their names ({error})")
            told = {}
        for name, entries in told.items():
            kind = entries[0].get("type") if isinstance(entries, list) and entries else None
            if kind in _TYPES:
                self._types[name] = str(kind)

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Metrics requests of the samples from `start_s` (excluded) to `end_s`.

        Raises:
            TooMuch: ask for less time. ImportFailed: no usable answer.
        """
        names = self._names or []
        found: dict[tuple[str, str, int], Page] = {}
        native: list[bytes] = []
        jobs: set[str] = set()
        for at in range(0, len(names), _NAMES_AT_ONCE):
            part = names[at : at + _NAMES_AT_ONCE]
            for series in self._series(part, start_s, end_s):
                labels = {str(k): str(v) for k, v in series["metric"].items()}
                name = labels.pop("__name__", "")
                if name not in _BESIDE:
                    jobs.add(labels.get("job", ""))
                elif labels.get("job", "") not in jobs:
                    continue  # a target that is no engine's
                self._add(found, name, labels, series.get("values"), start_s)
                native += self._native(name, labels, series.get("histograms"), start_s)
        yield from _joined([*self._requests(found), *native])

    def _series(self, names: Iterable[str], start_s: float, end_s: float) -> list[dict[str, Any]]:
        chosen = f'__name__=~"{"|".join(names)}"'
        selector = f"{{{chosen}, {self._match}}}" if self._match else f"{{{chosen}}}"
        query = f"{selector}[{max(math.ceil(end_s - start_s), 1)}s]"
        data = _data(
            self._fetch.get("/api/v1/query", {"query": query, "time": f"{end_s:.3f}"}), dict
        )
        result = data.get("result")
        if not isinstance(result, list):
            raise ImportFailed("a query's answer has no result: is it the API of Prometheus?")
        return [s for s in result if isinstance(s, dict) and isinstance(s.get("metric"), dict)]

    def _add(
        self,
        found: dict[tuple[str, str, int], Page],
        name: str,
        labels: dict[str, str],
        values: Any,
        start_s: float,
    ) -> None:
        """Put the samples of one series on the pages of their target and time."""
        family, kind = self._family(name)
        for time_s, value in _samples(values):
            if time_s <= start_s:
                continue
            key = (labels.get("job", ""), labels.get("instance", ""), round(time_s * 1e3))
            page = found.setdefault(key, {})
            if family not in page:
                page[family] = Family(family, "", kind)
            page[family].add_sample(name, labels, value)

    def _family(self, name: str) -> tuple[str, str]:
        """The family of a sample's name, and its type."""
        if name in self._types:
            return name, self._types[name]
        for suffix in _PARTS:
            base = name.removesuffix(suffix)
            kind = self._types.get(base)
            if base != name and kind in ("histogram", "summary"):
                return base, kind
            if base != name and f"{base}_bucket" in (self._names or ()):
                return base, "histogram"
        # OpenMetrics lists a counter without the suffix of its samples.
        if self._types.get(name.removesuffix("_total")) == "counter" or name.endswith("_total"):
            return name, "counter"
        return name, "unknown"

    def _requests(self, found: dict[tuple[str, str, int], Page]) -> Iterator[bytes]:
        for (job, instance, time_ms), page in sorted(found.items()):
            families = list(page.values())
            service = pages.service_of(families)
            if service is not None:
                self._services[job] = service
            yield pages.request(
                families,
                service=service or self._services.get(job, "scrape"),
                instance=instance or self._place,
                time_ns=time_ms * 1_000_000,
            )

    def _native(
        self, name: str, labels: dict[str, str], histograms: Any, start_s: float
    ) -> list[bytes]:
        """Native histograms as exponential ones of OTLP."""
        out = ExportMetricsServiceRequest()
        resource = out.resource_metrics.add()
        metric = None
        for moment in histograms if isinstance(histograms, list) else ():
            point = _exponential(moment)
            if point is None or point[0] <= start_s:
                continue
            if metric is None:
                service = pages.service_of([Family(name, "", "histogram")]) or "scrape"
                resource.resource.attributes.extend(
                    pages.pairs(
                        {
                            "service.name": service,
                            "service.instance.id": labels.get("instance") or self._place,
                        }
                    )
                )
                metric = resource.scope_metrics.add().metrics.add(name=name)
                metric.exponential_histogram.aggregation_temporality = (
                    AGGREGATION_TEMPORALITY_CUMULATIVE
                )
            _, scale, offset, counts, zero, total, count = point
            made = metric.exponential_histogram.data_points.add(
                time_unix_nano=round(point[0] * 1e3) * 1_000_000,
                scale=scale,
                zero_count=zero,
                sum=total,
                count=count,
            )
            made.positive.offset = offset
            made.positive.bucket_counts.extend(counts)
            made.attributes.extend(pages.pairs(labels))
        return [] if metric is None else [bytes(out.SerializeToString())]


def _matchers(text: str) -> str:
    """Label matchers without their braces.

    Raises:
        ConfigError: it is no list of matchers.
    """
    inner = text.strip().removeprefix("{").removesuffix("}").strip().rstrip(",")
    rest = inner
    while rest:
        found = _MATCH.match(rest)
        if found is None or (rest[found.end() :] and rest[found.end()] != ","):
            raise ConfigError(
                f"--match {text[:80]!r} is not a list of label matchers such as 'job=\"vllm\"'"
            )
        rest = rest[found.end() + 1 :]
    return inner


def _of_engines(names: list[str]) -> Iterator[str]:
    """The names for which a vocabulary has an indicator; of a histogram all its parts."""
    prefixes = metric_names.own_prefixes(names)
    for name in names:
        if name in _BESIDE:
            continue
        bases = (name, *(name.removesuffix(suffix) for suffix in _PARTS))
        if any(metric_names.has_indicator(base, prefixes) for base in bases):
            yield name


def _data(answer: Any, kind: type) -> Any:
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, kind):
        raise ImportFailed("an answer has no data: is it the API of Prometheus?")
    return data


def _samples(values: Any) -> Iterator[tuple[float, float]]:
    for pair in values if isinstance(values, list) else ():
        try:
            time_s, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, IndexError):
            continue
        if math.isfinite(time_s):
            yield time_s, value


def _exponential(moment: Any) -> tuple[float, int, int, list[int], int, float, int] | None:
    """(time, scale, offset, counts, zero count, sum, count) of one native histogram; None where it has buckets below zero, or is damaged.

    Buckets are [rule, left, right, count]; the populated ones alone are listed. Source: Prometheus HTTP API, "Native histograms".
    """
    try:
        time_s, told = float(moment[0]), moment[1]
        listed = [(float(b[1]), float(b[2]), float(b[3])) for b in told.get("buckets", [])]
        total, count = float(told["sum"]), round(float(told["count"]))
        zero = sum(round(n) for left, _, n in listed if left < _EMPTY)
        above = [(left, right, n) for left, right, n in listed if left >= _EMPTY]
        if any(right < -_EMPTY for _, right, _ in listed) or not math.isfinite(time_s):
            return None
        if not above:
            return time_s, 0, 0, [], zero, total, count
        growth = math.log2(above[0][1] / above[0][0])
        scale = round(-math.log2(growth))
        if scale not in _SCALES:
            return None
        places = {round(math.log2(left) * 2.0**scale): round(n) for left, _, n in above}
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, ZeroDivisionError):
        return None
    first, last = min(places), max(places)
    if last - first > 2_000:
        return None
    counts = [places.get(at, 0) for at in range(first, last + 1)]
    return time_s, scale, first, counts, zero, total, count


def _joined(requests: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Requests put together up to 1 MiB: messages of protobuf that follow one another are one message."""
    body = b""
    for request in requests:
        if body and len(body) + len(request) > _BODY:
            yield "metrics", body
            body = b""
        body += request
    if body:
        yield "metrics", body
