"""What do other monitoring systems read? Goodput, burn rates, stage percentiles and active findings in the Prometheus text format.

Computed in the background at most every 30 s over the last hour, so that a scrape costs nothing and never stalls ingest; the age is a metric too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from overrun.analysis.front.report import Report
from overrun.analysis.numbers.outcomes.burn_rate import Burn
from overrun.analysis.words.finding import printable
from overrun.collector.errors import StoreUnavailable

log = logging.getLogger("overrun.metrics")
# Two usual scrape intervals of 15 s.
EVERY_S: Final = 30.0
# Labels (name, value) -> value.
Samples: TypeAlias = dict[tuple[tuple[str, str], ...], float]


@dataclass(frozen=True)
class Snapshot:
    """A report and the burn rates at its end."""

    report: Report
    burn: Burn


class Background:
    """Keeps the text of the last snapshot; asks for a new one in a thread of its own when the text is old. `text` never waits."""

    def __init__(self, ask: Callable[[], Snapshot]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._made = 0.0
        self._running = False

    def text(self) -> list[str]:
        """The lines of the last snapshot, none before the first one is ready."""
        with self._lock:
            if not self._running and (not self._made or time.monotonic() - self._made > EVERY_S):
                self._running = True
                threading.Thread(target=self._refresh, name="overrun-metrics", daemon=True).start()
            if not self._made:
                return list(self._lines)
            age = f"overrun_report_age_seconds {time.monotonic() - self._made:.1f}"
            return [*self._lines, "# TYPE overrun_report_age_seconds gauge", age]

    def _refresh(self) -> None:
        lines: list[str] | None = None
        try:
            lines = exposition(self._ask())
        except StoreUnavailable:  # the server ends
            log.info("the report behind /metrics was not finished")
        except Exception:  # the thread's edge: the collector's metrics go on
            log.exception("the report behind /metrics failed, trying again in %d s", EVERY_S)
        with self._lock:
            self._lines = lines if lines is not None else self._lines
            self._made, self._running = time.monotonic(), False


def exposition(snapshot: Snapshot) -> list[str]:
    """Return the lines of one snapshot. What is not known is left out: a missing series is not a 0."""
    report, pairs = snapshot.report, snapshot.burn.pairs
    quantiles = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"))
    latency: Samples = {
        (("metric", metric), ("quantile", quantile)): value / 1000.0
        for metric in ("ttft", "itl", "tpot", "e2e")
        for quantile, field in quantiles
        if (value := getattr(getattr(report.latency, f"{metric}_ms"), field)) is not None
    }
    limits: Samples = {
        (("metric", metric), ("quantile", f"{part.percentile / 100.0:g}")): limit / 1000.0
        for part in report.slo.each()
        for metric, limit in part.limits().items()
    }
    stages: Samples = {
        (("stage", row.stage),): row.p95_ms / 1000.0
        for row in report.stages
        if row.stage is not None and row.p95_ms is not None
    }
    windows = [((("window", f"{pair.long_s}s"),), pair) for pair in pairs]
    burns: Samples = {key: pair.long_burn for key, pair in windows if pair.long_burn is not None}
    firing: Samples = {key: float(pair.firing) for key, pair in windows}
    found: Samples = {
        (("rule", one.rule), ("severity", one.severity), ("stage", one.stage)): one.confidence
        for one in report.findings
    }
    status: Samples = {(("status", report.verdict.status),): 1.0}
    gauges: tuple[tuple[str, str, Samples], ...] = (
        ("requests", "Complete requests of the last hour", _one(report.window.requests)),
        ("goodput_ratio", "Share of requests that meet every SLO", _one(report.goodput.ratio)),
        ("goodput_rps", "Requests per second that meet every SLO", _one(report.goodput.rps)),
        ("error_ratio", "Share of failed requests", _one(report.errors.ratio)),
        ("latency_seconds", "Latency of successful requests", latency),
        ("limit_seconds", "Limit of the SLO for a latency", limits),
        ("stage_p95_seconds", "P95 of exclusive time on the critical path", stages),
        ("burn_rate", "Error budget spent, in multiples of the allowed rate", burns),
        ("burn_alert", "1 when the long and the short window of the pair burn too fast", firing),
        ("finding", "Confidence of an active finding", found),
        ("verdict", "1 for the status of the last hour", status),
    )
    return [
        line for name, said, samples in gauges for line in _gauge(f"overrun_{name}", samples, said)
    ]


def _one(value: float | None) -> Samples:
    return {} if value is None else {(): float(value)}


def _gauge(name: str, samples: Samples, help_: str) -> list[str]:
    if not samples:
        return []
    return [
        f"# HELP {name} {help_}",
        f"# TYPE {name} gauge",
        *(f"{name}{_labels(labels)} {value!r}" for labels, value in samples.items()),
    ]


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    escaped = (
        f'{name}="{printable(value, 120)}"'.replace("\\", "\\\\")
        for name, value in ((n, v.replace('"', "'")) for n, v in labels)
    )
    return "{" + ",".join(escaped) + "}"
