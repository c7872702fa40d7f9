"""How is the collector itself? Its metrics in Prometheus text, and whether it can take telemetry now."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import duckdb

from overrun.collector.ingest.rounds import Assembling
from overrun.collector.lifecycle.retention import used_bytes

_STARTED_S = time.time()
_HELP = {
    "bodies": "Request bodies stored.",
    "duplicates": "Request bodies that were already stored and were acknowledged again.",
    "spans": "Spans stored.",
    "points": "Metric data points stored.",
    "rejected_items": "Spans and data points refused permanently (partial success).",
    "quarantined_spans": "Spans quarantined because of impossible times.",
    "refused_bodies": "Request bodies refused because the queue was full.",
    "bad_bodies": "Request bodies that were not OTLP.",
    "commits": "Transactions that stored telemetry.",
    "failed_commits": "Transactions that the store refused; their senders were asked to retry.",
    "taken_back_commits": "Transactions that were undone because they could not be read back; their senders were asked to retry.",
}


def metric_lines(pipeline: Assembling) -> list[str]:
    """Prometheus text of the collector's counters and gauges."""
    writer = pipeline.writer
    out: list[str] = []
    for name in writer.counters.__slots__:
        out += [
            f"# HELP overrun_{name}_total {_HELP[name]}",
            f"# TYPE overrun_{name}_total counter",
            f"overrun_{name}_total {getattr(writer.counters, name)}",
        ]
    gauges: dict[str, tuple[str, float]] = {
        "waiting_bytes": ("Bytes of bodies that wait for a commit.", writer.waiting_bytes),
        "queue_limit_bytes": (
            "Limit of waiting bytes; above it senders are asked to retry.",
            writer.queue_bytes,
        ),
        "admitted_items": (
            "Items of bodies that are being read or stored.",
            writer.admission.items,
        ),
        "admitted_bytes": (
            "Bytes of bodies that are arriving or being decoded.",
            writer.admission.bytes,
        ),
        "queue_limit_items": (
            "Limit of items; above it senders are asked to retry.",
            writer.admission.max_items,
        ),
        "pending_traces": (
            "Traces that wait to be assembled.",
            pipeline.pending(),
        ),
        "store_writable": ("Whether the last commit succeeded.", float(writer.refusal is None)),
        "clock_leap_seconds": (
            "How far the wall clock is ahead of the elapsed time; meanwhile nothing expires by age.",
            0.0 if pipeline.clock.leap is None else pipeline.clock.leap.ahead_ns / 1e9,
        ),
        "start_time_seconds": ("When the process started, Unix time.", _STARTED_S),
    }
    with contextlib.suppress(duckdb.Error):  # it is being reopened
        gauges["db_bytes"] = ("Blocks in use and the write-ahead log.", used_bytes(pipeline.store))
    for name, (help_, value) in gauges.items():
        out += [
            f"# HELP overrun_{name} {help_}",
            f"# TYPE overrun_{name} gauge",
            f"overrun_{name} {value:.17g}",
        ]
    return out + writer.tally.lines()


def readiness(pipeline: Assembling) -> tuple[bool, dict[str, Any]]:
    """Whether telemetry would be taken now, and what stands in the way."""
    writer = pipeline.writer
    status, refusal = "ready", ""
    if not writer.alive:
        status = "nothing is stored any more: see the log and restart the server"
    elif refusal := writer.no_room():
        status = "queue full"
    elif writer.refusal is not None:
        status = f"store refuses: {writer.refusal}"
    else:
        try:
            with pipeline.store.asking() as cursor:
                cursor.execute("select 1").fetchall()
        except duckdb.Error as error:
            status = f"store closed: {str(error).splitlines()[0]}"
    return status == "ready", {
        "status": status,
        "reason": refusal,
        "waiting_bytes": writer.waiting_bytes,
        "pending_traces": pipeline.pending(),
        "assembled_until": pipeline.assembled_until(),
    }
