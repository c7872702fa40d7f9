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
            age = (
                []
                if not self._made
                else [
                    "# TYPE overrun_report_age_seconds gauge",
                    f"overrun_report_age_seconds {time.monotonic() - self._made:.1f}",
                ]
            )
            return [*self._lines, *age]

    def _refresh(self) -> None:
        lines: list[str] | None = None
        try:
            lines = exposition(self._ask())
        except StoreUnavailable:  # the server ends
            log.info("the report behind /metrics was not finished")
        except (
            Exception
        ):  # the thread's edge: a failed question must not end the metrics of the collector
            log.exception("the report behind /metrics failed, trying again in %d s", EVERY_S)
        with self._lock:
            self._lines = lines if lines is not None else self._lines
            self._made, self._running = time.monotonic(), False


def exposition(snapshot: Snapshot) -> list[str]:
    """Return the lines of one snapshot. What is not known is left out: a missing series is not a 0."""
    report, lines = snapshot.report, []
    lines += _gauge(
        "overrun_requests",
        {(): float(report.window.requests)},
        "Complete requests of the last hour",
    )
    if report.goodput.ratio is not None:
        lines += _gauge(
            "overrun_goodput_ratio",
            {(): report.goodput.ratio},
            "Share of requests that meet every SLO",
        )
    if report.goodput.rps is not None:
        lines += _gauge(
            "overrun_goodput_rps",
            {(): report.goodput.rps},
            "Requests per second that meet every SLO",
        )
    if report.errors.ratio is not None:
        lines += _gauge(
            "overrun_error_ratio", {(): report.errors.ratio}, "Share of failed requests"
        )
    latency: Samples = {
        (("metric", metric), ("quantile", quantile)): value / 1000.0
        for metric in ("ttft", "itl", "tpot", "e2e")
        for quantile, field in (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"))
        if (value := getattr(getattr(report.latency, f"{metric}_ms"), field)) is not None
    }
    lines += _gauge("overrun_latency_seconds", latency, "Latency of successful requests")
    limits: Samples = {
        (("metric", metric), ("quantile", f"{part.percentile / 100.0:g}")): limit / 1000.0
        for part in report.slo.each()
        for metric, limit in part.limits().items()
    }
    lines += _gauge("overrun_limit_seconds", limits, "Limit of the SLO for a latency")
    stages: Samples = {
        (("stage", row.stage),): row.p95_ms / 1000.0
        for row in report.stages
        if row.stage is not None and row.p95_ms is not None
    }
    lines += _gauge(
        "overrun_stage_p95_seconds", stages, "P95 of exclusive time on the critical path"
    )
    burns: Samples = {
        (("window", f"{pair.long_s}s"),): pair.long_burn
        for pair in snapshot.burn.pairs
        if pair.long_burn is not None
    }
    lines += _gauge(
        "overrun_burn_rate", burns, "Error budget spent, in multiples of the allowed rate"
    )
    firing: Samples = {
        (("window", f"{pair.long_s}s"),): float(pair.firing) for pair in snapshot.burn.pairs
    }
    lines += _gauge(
        "overrun_burn_alert",
        firing,
        "1 when the long and the short window of the pair burn too fast",
    )
    findings: Samples = {
        (
            ("rule", finding.rule),
            ("severity", finding.severity),
            ("stage", finding.stage),
        ): finding.confidence
        for finding in report.findings
    }
    lines += _gauge("overrun_finding", findings, "Confidence of an active finding")
    return lines + _gauge(
        "overrun_verdict",
        {(("status", report.verdict.status),): 1.0},
        "1 for the status of the last hour",
    )


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
