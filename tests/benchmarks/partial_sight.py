"""What is said of an engine of whose requests a part is stored? Thins simulated windows as samplers and neighbours do, and compares with the whole.

`python -m tests.benchmarks.partial_sight` prints one row per scenario and thinning: the E2E P50 and P95 of the whole (or of the application that is left), what
was said with its interval, verdict and cause. `--write` records the shares in docs/results/partial_sight.json. Traces are chosen by a checksum of their id, which
no sampler by id looks like; nothing on the spans says that others are missing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import load
from overrun.collector.store import database as stores
from overrun.sample_traces.simulate import Job, make, write
from tests.benchmarks.results import add_write_flag, measured
from tests.benchmarks.results import record as write_results

SCENARIOS: Final = ("under_capacity", "noisy_tenant", "long_outputs", "slow_dependency")
NEIGHBOUR: Final = "hooli"


@dataclass(frozen=True)
class Trace:
    """What a sampler may know of a trace: a number 0..1 of its own, how long its request took, whether it failed, and whose it is."""

    number: float
    ms: float
    failed: bool
    tenant: str


Keep = Callable[[Trace, float], bool]
THINNED: Final[dict[str, Keep]] = {
    "one in three": lambda trace, limit: trace.number < 1.0 / 3.0,
    "one in ten": lambda trace, limit: trace.number < 0.1,
    "tail": lambda trace, limit: trace.ms > limit or trace.failed or trace.number < 0.1,
    "slow alone": lambda trace, limit: trace.ms > limit or trace.failed,
    "some tenants": lambda trace, limit: zlib.crc32(trace.tenant.encode()) % 3 == 0,
    "beside another": lambda trace, limit: trace.tenant != NEIGHBOUR,
}
# What is kept of an application whole, and is judged by itself; the rest stands for all.
OWN: Final = ("some tenants", "beside another")


def thin(folder: Path, keep: Keep, limit_ms: float) -> dict[bytes, Trace]:
    """Leave of a recording (`*.traces.pb`) what is kept; metrics stay whole. Returns all traces that there were."""
    paths = sorted(folder.glob("*.traces.pb"))
    bodies = [ExportTraceServiceRequest.FromString(path.read_bytes()) for path in paths]
    traces = _traces(bodies)
    for path, body in zip(paths, bodies, strict=True):
        for scope in [scope for one in body.resource_spans for scope in one.scope_spans]:
            kept = [span for span in scope.spans if keep(traces[span.trace_id], limit_ms)]
            del scope.spans[:]
            scope.spans.extend(kept)
        path.write_bytes(body.SerializeToString())
    return traces


def _traces(bodies: list[ExportTraceServiceRequest]) -> dict[bytes, Trace]:
    known: dict[bytes, dict[str, Any]] = {}
    for span in (
        span
        for body in bodies
        for resource in body.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ):
        one = known.setdefault(span.trace_id, {"ms": 0.0, "failed": False, "tenant": ""})
        if not span.parent_span_id:
            one["ms"] = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        one["failed"] |= span.status.code == 2
        for attribute in span.attributes:
            if attribute.key == "tenant.id":
                one["tenant"] = attribute.value.string_value
    return {key: Trace(zlib.crc32(b"x" + key) / 2.0**32, **one) for key, one in known.items()}


def record(
    folder: Path, scenario: str, keep: Keep, limit_ms: float = 3_000.0, **job: Any
) -> tuple[dict[bytes, Trace], dict[str, Any]]:
    """Simulate a window into a folder and thin it; returns all its traces and its truth."""
    made = make(Job(scenario=scenario, severity="easy", seed=7, fixes=False, **job))
    write(made, folder)
    return thin(folder, keep, limit_ms), made.truth


def ask(folder: Path, slo: str) -> Report:
    """Take a folder in and report on it."""
    with tempfile.TemporaryDirectory() as work:
        db = Path(work) / "thin.db"
        settings = load(flags={"collector.db": str(db)})
        import_files([folder], settings, url=None, progress=lambda done, of: None)
        with closing(stores.open_store(db, create=False)) as store:
            return build(store.cursor(), Window(), parse_slo(slo))


def main() -> None:
    """Print the table; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_write_flag(parser)
    parser.add_argument("--scenarios", default=",".join(SCENARIOS))
    asked = parser.parse_args()
    rows = []
    for scenario in asked.scenarios.split(","):
        for name, keep in THINNED.items():
            with tempfile.TemporaryDirectory() as work:
                traces, truth = record(Path(work), scenario, keep)
                said = ask(Path(work), truth["slo"])
            rows.append(_row(scenario, name, keep, traces, truth, said))
            print(json.dumps(rows[-1]))
    told = [row for row in rows if row["p95"] is not None]
    inside = [row["inside"] for row in told if row["inside"] is not None]
    print(json.dumps({"told": len(told), "of": len(rows), "inside": sum(inside), "n": len(inside)}))
    if asked.write:
        _write(rows)


def _row(
    scenario: str,
    name: str,
    keep: Keep,
    traces: dict[bytes, Trace],
    truth: dict[str, Any],
    said: Report,
) -> dict[str, Any]:
    whole = [one for one in traces.values() if name not in OWN or keep(one, 3_000.0)]
    right = np.percentile([one.ms for one in whole if not one.failed], [50, 95])
    e2e, interval = said.latency.e2e_ms, said.latency.e2e_ms.p95_interval
    return {
        "scenario": scenario,
        "thinned": name,
        "stored": said.window.requests,
        "of": len(traces),
        "p50_right": round(right[0]),
        "p50": None if e2e.p50 is None else round(e2e.p50),
        "p95_right": round(right[1]),
        "p95": None if e2e.p95 is None else round(e2e.p95),
        "inside": None if interval is None else bool(interval[0] <= right[1] <= interval[1]),
        "status": said.verdict.status,
        "stage": said.verdict.stage,
        "cause": said.verdict.cause,
        "causes_right": truth["causes"],
    }


def _write(rows: list[dict[str, Any]]) -> None:
    told = [row for row in rows if row["p95"] is not None]
    off = [abs(row["p95"] / row["p95_right"] - 1.0) for row in told]
    inside = [row["inside"] for row in told if row["inside"] is not None]
    figure = partial(
        measured,
        script="tests/benchmarks/partial_sight.py",
        conditions=f"{len(rows)} windows: {len(SCENARIOS)} faults, seed 7, easy, thinned in {len(THINNED)} ways without a mark",
    )
    write_results(
        "partial_sight",
        [
            figure("thinned windows with an E2E P95", len(told), of=len(rows)),
            figure(
                "E2E P95 against that of all requests, median error",
                round(float(np.median(off)), 4),
                "ratio",
                more={"worst": round(float(max(off)), 4)},
            ),
            figure(
                "95 % intervals of P95 that hold that of all requests",
                sum(inside),
                of=len(inside),
            ),
        ],
    )


if __name__ == "__main__":
    main()
