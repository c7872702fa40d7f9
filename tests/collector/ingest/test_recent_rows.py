"""Traces are assembled from memory as they would be from the store, and only those of which everything is in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS, Key, Seen
from overrun.collector.ingest.reading import Known, doubled_sources, quiet_spans
from overrun.collector.ingest.recent_rows import Recent, arranged
from overrun.collector.ingest.rounds import _as_table
from overrun.collector.ingest.writer import TRACES
from tests.collector import oracle_otlp as otlp
from tests.collector.conftest import body, chat, one, opened, rows, span
from tests.waiting import LIMIT_S

REQUESTS = "select * exclude (batch) from requests order by all"
CALLS = "select * exclude (batch) from llm_calls order by all"


def send(pipeline: Pipeline, *bodies: bytes) -> None:
    for data in bodies:
        pipeline.writer.submit(TRACES, data).result(LIMIT_S)


def waiting(pipeline: Pipeline) -> dict[Key, Seen]:
    return dict(pipeline.quiet._waiting)


def in_order(spans: pa.Table) -> list[dict[str, object]]:
    return sorted(
        spans.to_pylist(), key=lambda row: (row["trace_hi"], row["trace_lo"])
    )  # what is equal keeps its order


@pytest.mark.parametrize("name", otlp.RECORDINGS)
def test_rows_in_memory_are_the_rows_of_the_store(pipeline: Pipeline, name: str) -> None:
    send(pipeline, *otlp.bodies(name), body([span(1, 1), span(1, 1)]))
    taken = waiting(pipeline)
    traces = _as_table(taken)
    held = pipeline._held(list(taken.values()), traces)
    assert held is not None
    with pipeline.store.reading() as cursor:
        stored = quiet_spans(cursor, traces)
        assert in_order(held.select(stored.column_names)) == in_order(stored)
        assert held.select(stored.column_names).schema.types == stored.schema.types
        again = quiet_spans(
            cursor, traces, Known(held, [], doubled_sources(cursor), pipeline._response_ids)
        )
        assert again.select(stored.column_names).equals(held.select(stored.column_names))


@pytest.mark.parametrize("name", ["vllm-joined", *otlp.RECORDINGS[:2]])
def test_memory_and_store_lead_to_the_same_requests(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for kept in (0, 64 << 20):
        monkeypatch.setattr(
            "overrun.collector.ingest.pipeline.Recent", lambda kept=kept: Recent(kept)
        )
        with opened(tmp_path / f"{kept}.db") as pipeline:
            for data in otlp.bodies(name):
                send(pipeline, data)
                pipeline.drain()  # as if every body came late
            found.append((rows(pipeline, REQUESTS), rows(pipeline, CALLS)))
    assert found[0] == found[1]


def test_a_trace_with_an_earlier_span_in_the_store_is_not_taken_for_new(tmp_path: Path) -> None:
    root, call = chat(1)
    with opened(tmp_path / "t.db") as pipeline:
        send(pipeline, body([call]))
        assert [seen.new for seen in waiting(pipeline).values()] == [True]
        pipeline.drain()
        send(pipeline, body([root]))
        assert [seen.new for seen in waiting(pipeline).values()] == [False]
        pipeline.drain()
        assert (
            one(pipeline, "select count(*) from requests"),
            one(pipeline, "select spans from requests"),
        ) == (1, 2)
    with opened(tmp_path / "t.db") as pipeline:  # a restart forgets who was there
        send(pipeline, body([span(1, 7, 1)]))
        assert [seen.new for seen in waiting(pipeline).values()] == [False]
        pipeline.drain()
        assert (
            one(pipeline, "select count(*) from requests"),
            one(pipeline, "select spans from requests"),
        ) == (1, 3)


def test_what_is_assembled_is_let_go_and_what_waits_is_not(pipeline: Pipeline) -> None:
    for i in range(1, 4):
        send(pipeline, body(chat(i)))
    assert len(pipeline._recent._commits) == 3
    pipeline.drain()
    assert (len(pipeline._recent._commits), pipeline._recent._size) == (0, 0)
    send(pipeline, body(chat(9)))
    assert pipeline._recent.first_batch() == pipeline.writer.last_batch


def test_memory_is_bounded_and_older_traces_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.ingest.pipeline.Recent", lambda: Recent(2_000))
    with opened(tmp_path / "t.db") as pipeline:
        for i in range(1, 30):
            send(pipeline, body(chat(i)))
        assert pipeline._recent._size <= 2_000
        assert 1 < pipeline._recent.first_batch() <= pipeline.writer.last_batch
        pipeline.drain()
        assert one(pipeline, "select count(*) from requests where spans = 2") == 29


def test_rows_are_arranged_by_trace_and_span_and_repeats_stay_in_their_order() -> None:
    rng = np.random.default_rng(7)
    n = 3_000
    table = pa.table(
        {
            "trace_hi": rng.integers(0, 3, n).astype(np.uint64),
            "trace_lo": rng.integers(0, 5, n).astype(np.uint64),
            "span_id": rng.integers(0, 40, n).astype(np.uint64),
            "seq": np.arange(n),
        }
    )
    hi, lo = np.array([2, 0, 9], np.uint64), np.array([4, 1, 9], np.uint64)
    got = arranged(table, hi, lo).to_pylist()
    wanted = [
        row
        for key in ((2, 4), (0, 1))
        for row in sorted(table.to_pylist(), key=lambda r: (r["span_id"], r["seq"]))
        if (row["trace_hi"], row["trace_lo"]) == key
    ]
    assert got == wanted


def test_a_trace_that_starts_before_what_is_known_is_not_new(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        send(pipeline, body([span(1, 1)]))
        pipeline.drain()
    with opened(tmp_path / "t.db") as pipeline:
        late_ms = LOOK_BACK_NS // 10**6
        send(
            pipeline,
            body([span(2, 1, start_ms=late_ms - 1)]),
            body([span(3, 1, start_ms=late_ms + 1)]),
        )
        assert [seen.new for seen in waiting(pipeline).values()] == [False, True]


def test_a_stop_leaves_what_takes_too_long_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.ingest.pipeline._CLOSING_S", -1.0)
    with opened(tmp_path / "t.db") as pipeline:
        send(pipeline, body(chat(1)))
    monkeypatch.undo()
    with opened(tmp_path / "t.db") as pipeline:
        assert one(pipeline, "select count(*) from requests") == 0
        pipeline.drain()
        assert one(pipeline, "select count(*) from requests where spans = 2") == 1
