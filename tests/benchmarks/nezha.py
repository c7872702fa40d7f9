"""Which service does a report name first, on traces of real microservices into which somebody put faults? None of them asks a model.

Reads a folder with `spans.parquet` (day, window HH_MM, phase fault or normal, trace, span, parent, service, operation, start_ns, duration_ns) and `faults.json`
(inject_time, inject_pod, inject_type, day), as made of the TrainTicket half of Nezha (IntelligentDDS/Nezha, FSE 2023, MIT). A fault owns the windows of its minute
and of the three after it. The fault-free traces are put before each fault, and the report is asked about the fault's windows against them. The kinds of spans are
not in the source: a span whose parent is of another service serves, its parent is the client, and a root serves.

    python -m tests.benchmarks.nezha FOLDER            # a line per fault, and the figures
    python -m tests.benchmarks.nezha FOLDER --write    # records them in docs/results/microservices.json
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import load as load_settings
from overrun.collector.store.database import open_store
from tests.benchmarks.results import add_write_flag, measured, record

LATENCY: Final = ("cpu_contention", "network_delay")
INTERNAL, SERVER, CLIENT = 1, 2, 3
_WINDOWS: Final = 4  # minutes that a fault owns
_PAUSE_NS: Final = 1_000_000_000  # between the fault-free traces and the fault's


@dataclass(frozen=True)
class Fault:
    """An injected fault: the service that it was put into, its kind and its windows (day, HH_MM)."""

    service: str
    kind: str
    windows: tuple[tuple[str, str], ...]
    at: str

    @property
    def slow(self) -> bool:
        return self.kind in LATENCY


def faults(folder: Path) -> list[Fault]:
    """The faults of a folder, in its order."""
    found = json.loads((folder / "faults.json").read_text("utf-8"))
    return [_fault(one) for one in found]


def _fault(one: dict[str, Any]) -> Fault:
    at = datetime.fromisoformat(one["inject_time"])
    minutes = [at + timedelta(minutes=k) for k in range(_WINDOWS)]
    return Fault(
        # A pod's name ends with the hashes of its replica set and of itself.
        service=re.sub(r"-[0-9a-f]{8,10}-[0-9a-z]{5}$", "", one["inject_pod"]),
        kind=one["inject_type"],
        windows=tuple((one["day"], f"{minute:%H_%M}") for minute in minutes),
        at=one["inject_time"],
    )


def with_kinds(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with their OTLP kind, as the edges between services give it."""
    keys = ["day", "window", "phase", "trace"]
    above = spans.select(*keys, parent="span", above="service")
    spans = spans.join(above, on=[*keys, "parent"], how="left", maintain_order="left")
    serves = pl.col("parent").is_null() | (
        pl.col("above").is_not_null() & (pl.col("above") != pl.col("service"))
    )
    spans = spans.with_columns(serves=serves)
    calling = (
        spans.filter(pl.col("serves") & pl.col("parent").is_not_null())
        .select(*keys, span="parent", calls=pl.lit(value=True))
        .unique()
    )
    return (
        spans.join(calling, on=[*keys, "span"], how="left", maintain_order="left")
        .with_columns(
            kind=pl.when("serves")
            .then(SERVER)
            .when(pl.col("calls"))
            .then(CLIENT)
            .otherwise(INTERNAL)
        )
        .drop("above", "serves", "calls")
    )


def moved_before(normal: pl.DataFrame, until_ns: int) -> pl.DataFrame:
    """The fault-free windows, one after the other, moved so that the last one ends at a time; in them nothing moves."""
    parts, at = [], until_ns
    for part in normal.sort("day", "window", descending=True).partition_by(
        "day", "window", maintain_order=True
    ):
        ends = part.select((pl.col("start_ns") + pl.col("duration_ns")).max()).item()
        by = at - _PAUSE_NS - ends
        parts.append(part.with_columns(pl.col("start_ns") + by))
        at = int(parts[-1]["start_ns"].to_numpy().min())
    return pl.concat(parts)


def body(spans: pl.DataFrame) -> bytes:
    """An export request with these spans; a trace's id follows from its place in the source."""
    request = ExportTraceServiceRequest()
    for service, part in spans.group_by("service", maintain_order=True):
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = str(service[0])
        made = resource.scope_spans.add().spans
        for row in part.iter_rows(named=True):
            _put(made.add(), row)
    out: bytes = request.SerializeToString()
    return out


def _put(span: Any, row: dict[str, Any]) -> None:
    place = int(re.sub(r"\D", "", f"{row['day']}{row['window']}")) * 2 + (row["phase"] == "normal")
    span.trace_id = place.to_bytes(8, "big") + int(row["trace"] + 1).to_bytes(8, "big")
    span.span_id = int(row["span"] + 1).to_bytes(8, "big")
    if row["parent"] is not None:
        span.parent_span_id = int(row["parent"] + 1).to_bytes(8, "big")
    span.name, span.kind = row["operation"], row["kind"]
    span.start_time_unix_nano = row["start_ns"]
    span.end_time_unix_nano = row["start_ns"] + row["duration_ns"]


def reported(spans: pl.DataFrame, fault: Fault, work: Path) -> Report | None:
    """The report on a fault's windows after the fault-free traces; None where the data has none of its windows."""
    mine = pl.DataFrame(fault.windows, schema=["day", "window"], orient="row")
    now = spans.filter(pl.col("phase") == "fault").join(mine, on=["day", "window"], how="semi")
    if now.is_empty():
        return None
    began = int(now["start_ns"].to_numpy().min())
    before = moved_before(spans.filter(pl.col("phase") == "normal"), began)
    file, db = work / "nezha.traces.pb", work / "nezha.db"
    file.write_bytes(body(pl.concat([before, now])))
    db.unlink(missing_ok=True)
    settings = load_settings(flags={"collector.db": str(db)})
    import_files([file], settings, url=None, progress=lambda done, of: None)
    start, first = (_time(int(part["start_ns"].to_numpy().min())) for part in (now, before))
    with closing(open_store(db, create=False)) as store:
        window = Window(start=start, baseline=(first, start))
        return build(store.cursor(), window, parse_slo("chat"))


def _time(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)


def named(report: Report, services: set[str]) -> str | None:
    """The service that a report names first: of its first place (of an edge the end that it names), else the first one in the verdict's words."""
    explanation = getattr(report, "explanation", None)
    if explanation is not None and explanation.places:
        first = explanation.places[0]
        place = first.service or first.callee
        return None if place is None else str(place)
    verdict = report.verdict
    if verdict.status in ("within_budget", "no_data", "not_enough_data"):
        return None
    said = (word for word in re.findall(r"[\w-]+", verdict.why) if word in services)
    return next(said, None)


def asked(folder: Path) -> Iterator[tuple[Fault, Report | None, str | None]]:
    """Each fault with its report and the service that it names first."""
    spans = with_kinds(pl.read_parquet(folder / "spans.parquet"))
    services = set(spans["service"].unique())
    with tempfile.TemporaryDirectory() as work:
        for fault in faults(folder):
            report = reported(spans, fault, Path(work))
            yield fault, report, None if report is None else named(report, services)


def main() -> None:
    """Print a line per fault and the figures; record them if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    add_write_flag(parser)
    told = parser.parse_args()
    right = {True: 0, False: 0}
    of = {True: 0, False: 0}
    judged = 0
    for fault, report, service in asked(told.folder):
        of[fault.slow] += 1
        right[fault.slow] += service == fault.service
        status = "none" if report is None else report.verdict.status
        judged += status not in ("none", "no_data")
        print(
            f"{fault.at}  {fault.kind:15}{fault.service:28}{status:22}{service or '-'}", flush=True
        )
    script = "python -m tests.benchmarks.nezha FOLDER"
    conditions = "TrainTicket half of Nezha (IntelligentDDS/Nezha d8140101), fault-free traces before each fault's windows, preset chat"
    figures = [
        measured("faulty service named first, injected latency faults", right[True], of=of[True], script=script, conditions=conditions),
        measured("faulty service named first, injected code faults (return, exception)", right[False], of=of[False], script=script, conditions=conditions),
        measured("faults whose traces without model calls are judged", judged, of=of[True] + of[False], script=script, conditions=conditions),
    ]  # fmt: skip
    for figure in figures:
        print(f"{figure.what}: {figure.value} of {figure.of}")
    if told.write:
        record("microservices", figures)


if __name__ == "__main__":
    main()
