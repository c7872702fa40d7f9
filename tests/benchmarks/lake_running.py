"""What the parts of `make bench-lake` share: a lake that this process reads, bodies without end, and the rows of a file that got the same bodies."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.lake_pipeline import LakePipeline, open_pipeline
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.rounds import Assembling
from overrun.collector.ingest.writer import TRACES
from overrun.collector.store.database import open_store
from tests.benchmarks import payload
from tests.lake.processes import Lake

BODY_SPANS = 64
SPANS = "select count(*), count(distinct (trace_hi, trace_lo, span_id)) from spans"


def asked(of: Assembling, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with of.store.reading() as con:
        return con.execute(query).fetchall()


@contextmanager
def reading(lake: Lake) -> Iterator[LakePipeline]:
    """The lake, read by this process."""
    made = open_pipeline(
        lake.address,
        CollectorSettings(quiet_s=0.5),
        PrivacySettings(),
        assemble,
        None,
        assembles=False,
    )
    try:
        yield made
    finally:
        made.close()


def bodies() -> Iterator[payload.Body]:
    """Bodies without end, none like another."""
    for seed in itertools.count(1):
        yield from payload.make(
            6_400, end_ns=time.time_ns(), seed=seed, spans_per_body=BODY_SPANS
        ).bodies


def compared(reader: LakePipeline, acked: Sequence[bytes]) -> dict[str, float]:
    """Rows of requests and calls that only the lake, or only a file with the same bodies, has."""
    store = open_store(Path(":memory:"), create=True)  # this DuckDB writes no file of ours
    salt = {"salt": reader.store.salt().hex()}
    store.connection.execute("update meta set value = $salt where key = 'salt'", salt)
    file = Pipeline(store, CollectorSettings(quiet_s=3600.0), PrivacySettings(), assemble)
    for waiting in [file.writer.submit(TRACES, body) for body in _paced(file, acked)]:
        waiting.result()
    file.drain()
    found: dict[str, float] = {}
    wanted = asked(file, "select count(*) from v_requests")
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s and (
        asked(reader, "select count(*) from v_requests") != wanted
        or reader.assembled_until() < time.time() - 5
    ):
        time.sleep(0.5)
    time.sleep(2.0)
    for view in ("v_requests", "v_llm_calls"):
        columns = "* exclude (row_key)" if view == "v_requests" else "*"
        query = f"select {columns} from {view} order by all"
        one, other = (set(map(str, asked(of, query))) for of in (reader, file))
        found[f"{view} in lake"] = len(one)
        found[f"{view} that differ"] = len(one ^ other)
    file.close()
    return found


def _paced(file: Pipeline, sent: Sequence[bytes]) -> Iterator[bytes]:
    """As fast as the queue takes them."""
    for body in sent:
        while file.writer.no_room(TRACES, len(body)):
            time.sleep(0.01)
        yield body
