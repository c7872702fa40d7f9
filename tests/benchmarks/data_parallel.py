"""How well is a server of several data-parallel ranks calibrated? Simulated servers whose ranks share one name in spans, beside single engines of the same load a rank.

`python -m tests.benchmarks.data_parallel` prints the errors of replay and hold-out at E2E and TTFT P95 per server; `--write` records them in
docs/results/data_parallel.json. The simulator's cost law is its own; metrics come rank by rank, with vLLM's label `engine`.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.front.file_import import import_files
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif.facts import load_facts
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import load
from overrun.collector.store import database as stores
from overrun.sample_traces.simulate import Job, make, write
from overrun.sample_traces.simulator.scenarios import HEALTHY, RAG
from tests.benchmarks.results import add_write_flag, measured, record

SERVER: Final = "gpu-0:8000"
RATE_RPS: Final = 3.0
DURATION_S: Final = 150.0
EFFORT: Final = 0.3
# Ranks, seats a rank, and how the server's front end shares calls out.
SERVERS: Final = (
    (1, 16, "least"),
    (1, 6, "least"),
    (2, 16, "least"),
    (2, 16, "round_robin"),
    (2, 6, "least"),
    (4, 16, "least"),
)


def merge(folder: Path) -> None:
    """Give all engines of a recording one name, and their metrics the label of a rank each."""
    names: list[str] = []
    for path in sorted(folder.glob("*.traces.pb")):
        body = ExportTraceServiceRequest.FromString(path.read_bytes())
        for resource in body.resource_spans:
            _rename(resource.resource.attributes)
        path.write_bytes(body.SerializeToString())
    for path in sorted(folder.glob("*.metrics.pb")):
        told = ExportMetricsServiceRequest.FromString(path.read_bytes())
        for one in told.resource_metrics:
            was = _rename(one.resource.attributes)
            if was is None:
                continue
            names += [was] if was not in names else []
            for metric in (metric for scope in one.scope_metrics for metric in scope.metrics):
                for point in getattr(metric, str(metric.WhichOneof("data"))).data_points:
                    for attribute in point.attributes:
                        if attribute.key == "engine":
                            attribute.value.string_value = str(names.index(was))
        path.write_bytes(told.SerializeToString())


def _rename(attributes: Any) -> str | None:
    """Name an engine's resource after the server; returns its former name, None where it is no engine's."""
    known = {attribute.key: attribute.value for attribute in attributes}
    if known["service.name"].string_value != "vllm":
        return None
    was = str(known["service.instance.id"].string_value)
    known["service.instance.id"].string_value = SERVER
    if "server.address" in known:
        known["server.address"].string_value = SERVER.partition(":")[0]
    return was


def calibrate(ranks: int, seats: int, router: str) -> dict[str, float]:
    """Errors of the engine that is calibrated on one simulated server, by name; raises ValueError where none can be used."""
    world = replace(
        RAG, replicas=ranks, rate_rps=RATE_RPS * ranks, max_num_seqs=seats, router=router
    )
    HEALTHY["data_parallel"] = replace(HEALTHY["healthy"], world=world)
    job = Job(
        scenario="data_parallel", seed=5, fixes=False, confounders=False, duration_s=DURATION_S
    )
    with tempfile.TemporaryDirectory() as work:
        out, db = Path(work) / "window", Path(work) / "ranks.db"
        out.mkdir()
        write(make(job), out)
        merge(out)
        settings = load(flags={"collector.db": str(db)})
        import_files([out], settings, url=None, progress=lambda done, of: None)
        with closing(stores.open_store(db, create=False)) as store:
            facts = load_facts(store.cursor(), Window(), parse_slo("e2el:3000"), "e2e")
            facts.effort = EFFORT
            engines, why = facts.engines
    if not engines or why is not None:
        raise ValueError(f"{ranks} ranks: {why}")
    return {
        "e2e": engines[0].identity_error["e2e_p95"],
        "e2e_holdout": engines[0].holdout_error["e2e_p95"],
        "ttft": engines[0].identity_error["ttft_p95"],
        "ttft_holdout": engines[0].holdout_error["ttft_p95"],
    }


def main() -> None:
    """Print one row per server; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_write_flag(parser)
    asked = parser.parse_args()
    rows = []
    for server in SERVERS:
        rows.append((server, calibrate(*server)))
        print(*rows[-1], flush=True)
    if asked.write:
        figure = partial(
            measured,
            unit="ratio",
            script="tests/benchmarks/data_parallel.py",
            conditions=f"{DURATION_S:g} s at {RATE_RPS:g} requests/s a rank, seed 5, {EFFORT:g} of the usual search",
        )
        record(
            "data_parallel",
            [
                figure(
                    f"Error of the calibrated engine at P95, {of}, {what}",
                    (
                        round(min(row[name] for row in some), 4),
                        round(max(row[name] for row in some), 4),
                    ),
                )
                for of, some in (
                    ("single engines", [row for server, row in rows if server[0] == 1]),
                    ("2 and 4 ranks", [row for server, row in rows if server[0] > 1]),
                )
                for name, what in (
                    ("e2e", "E2E replayed"),
                    ("e2e_holdout", "E2E held out"),
                    ("ttft", "TTFT replayed"),
                    ("ttft_holdout", "TTFT held out"),
                )
            ],
        )


if __name__ == "__main__":
    main()
