"""Recordings taken through a real store: what the views say of them, and the truth that the server wrote down."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, TRACES
from overrun.collector.normalise import log_records
from overrun.sample_traces import replay
from tests.collector.oracle_otlp import bodies
from tests.conftest import new_store

DATA = Path(__file__).parents[1] / "data"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """The rows of the three views, by time."""

    calls: list[Row]
    requests: list[Row]
    spans: list[Row]


@contextmanager
def pipeline(*, quiet_s: float = 3_600.0) -> Iterator[Pipeline]:
    """An empty store that assembles only when it is drained."""
    with tempfile.TemporaryDirectory() as folder:
        store = new_store(Path(folder) / "overrun.db")
        store.connection.execute(
            "pragma disable_checkpoint_on_shutdown"
        )  # the file goes with its folder
        made = Pipeline(store, CollectorSettings(quiet_s=quiet_s), PrivacySettings(), assemble)
        try:
            yield made
        finally:
            made.close()


def send(to: Pipeline, sent: Sequence[bytes]) -> None:
    """Store bodies and assemble what they tell of."""
    for future in [to.writer.submit(TRACES, body) for body in sent]:
        future.result()
    to.drain()


def rows(con: duckdb.DuckDBPyConnection, view: str) -> list[Row]:
    """A view by time; times as integer microseconds, without where a row is stored."""
    times = ", ".join(
        f'epoch_us("{c}") as "{c}"' for c in (("start",) if view == "v_spans" else ("start", "end"))
    )
    without = "exclude (row_key) " if view == "v_requests" else ""
    return list(
        con.sql(f'select * {without}replace ({times}) from {view} order by "start", trace_id')
        .to_arrow_table()
        .to_pylist()
    )


def held(of: Pipeline) -> Held:
    """What the views say now."""
    with of.store.reading() as con:
        return Held(rows(con, "v_llm_calls"), rows(con, "v_requests"), rows(con, "v_spans"))


@functools.cache
def recording(name: str) -> Held:
    """A recording, taken in as it was sent."""
    with pipeline() as one:
        send(one, bodies(name))
        for payload in replay.load(name).payloads:
            if payload.signal == "logs":
                one.writer.submit(
                    LOGS, log_records.pack(log_records.told(payload.request.SerializeToString())[1])
                ).result()
        one.drain()
        return held(one)


@functools.cache
def truth_counts() -> dict[str, dict[str, int]]:
    """Per recording the number of model calls, spans and requests."""
    return dict(json.loads((DATA / "truth_calls.json").read_text()))


@functools.cache
def truth(name: str) -> list[Row]:
    """What the server saw of each generation call that it answered, in order (embeddings and refusals left out)."""
    lines = [
        json.loads(line) for line in (DATA / "truth" / f"{name}.jsonl").read_text().splitlines()
    ]
    return [line for line in lines if line["ep"] == "chat" and "id" in line]
