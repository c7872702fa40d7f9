"""One request, loaded from a real store: its pieces fill its time, and its spans stand in the order of a waterfall."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pytest

from overrun.analysis.numbers.requests.request_trace import (
    Trace,
    UnknownTrace,
    load_trace,
)
from overrun.analysis.words.trace_ids import BadTraceId
from tests.collector.oracle_build import CLIENT, ERROR, SERVER, Made, body, chat
from tests.collector.oracle_otlp import bodies
from tests.collector.oracle_store import pipeline, recording, send


@contextmanager
def stored(*sent: bytes) -> Iterator[duckdb.DuckDBPyConnection]:
    """A store that holds these bodies, assembled."""
    with pipeline() as one:
        send(one, sent)
        with one.store.reading() as con:
            yield con


def traced(*made: Made, id: int = 1) -> Trace:
    """The request of a handful of spans."""
    with stored(body(*made)) as con:
        return load_trace(con, f"{id:032x}")


@pytest.mark.parametrize(
    "name", ["semconv-genai-openai", "semconv-openai-v2", "vllm-joined", "sglang-spans"]
)
def test_the_path_of_every_recorded_request_fills_its_time(name: str) -> None:
    found = recording(name)
    with stored(*bodies(name)) as con:
        for request in found.requests:
            trace = load_trace(con, request["trace_id"])
            assert trace.e2e_ms == pytest.approx(request["e2e_ms"], abs=1e-6)
            assert sum(p.to_ms - p.from_ms for p in trace.path) == pytest.approx(
                trace.e2e_ms + trace.wait_user_ms, abs=1e-6
            )
            assert sum(s.path_ms for s in trace.spans) == pytest.approx(
                trace.e2e_ms + trace.wait_user_ms, abs=1e-6
            )
            assert sum(trace.stages.values()) == pytest.approx(trace.e2e_ms, abs=1e-6)
            for stage, ms in trace.stages.items():
                assert request[f"{stage}_ms"] == pytest.approx(ms, abs=1e-6)
            assert trace.ttft_ms == (
                None if request["ttft_ms"] is None else pytest.approx(request["ttft_ms"], abs=1e-6)
            )
            # No gap and no overlap between one piece and the next.
            assert trace.path[0].from_ms == 0
            assert [p.to_ms for p in trace.path[:-1]] == [p.from_ms for p in trace.path[1:]]
            assert len(trace.spans) == request["spans"]


def test_an_engine_in_a_trace_of_its_own_stands_under_its_clients_call() -> None:
    found = recording("vllm-joined")
    apart = {
        s["trace_id"]: s
        for s in found.spans
        if s["role"] == "engine" and s["parent_span_id"] is None
    }
    with stored(*bodies("vllm-joined")) as con:
        for request in found.requests:
            trace = load_trace(con, request["trace_id"])
            assert [(s.depth, s.role) for s in trace.spans] == [
                (0, "container"),
                (1, "llm"),
                (2, "engine"),
            ]
            assert {p.stage for p in trace.path} == {
                "network",
                "queue",
                "prefill",
                "decode",
                "other",
            }
        # Asked for by the engine's own trace id, it is the same request.
        for trace_id, engine in apart.items():
            trace = load_trace(con, trace_id)
            assert trace.service == "chat-gateway"
            assert trace.spans[2].span_id == engine["span_id"]


def test_spans_stand_depth_first_and_siblings_by_start() -> None:
    trace = traced(
        Made(1, "POST /chat", 0, 100, kind=SERVER),
        Made(5, "late", 60, 80, 1),
        Made(2, "early", 10, 50, 1),
        Made(4, "inner b", 30, 40, 2),
        Made(3, "inner a", 20, 30, 2),
    )
    assert [(s.depth, s.name) for s in trace.spans] == [
        (0, "POST /chat"),
        (1, "early"),
        (2, "inner a"),
        (2, "inner b"),
        (1, "late"),
    ]
    assert [s.parent_span_id for s in trace.spans] == [
        None,
        f"{1:016x}",
        f"{2:016x}",
        f"{2:016x}",
        f"{1:016x}",
    ]
    assert [s.start_ms for s in trace.spans] == [0, 10, 20, 30, 60]
    assert [s.path_ms for s in trace.spans] == [40, 20, 10, 10, 20]


def test_a_span_says_what_is_odd_about_it() -> None:
    trace = traced(
        Made(1, "POST /chat", 0, 100, kind=SERVER),
        chat(2, 10, 60, ttft=20, status=ERROR),
        Made(3, "orphan", 20, 30, 99),
        Made(4, "other clock", 5070, 5090, 1, SERVER, service="far"),
        Made(5, "GET http://x", 12, 50, 2, CLIENT, {"http.method": "GET"}),
    )
    spans = {s.name: s for s in trace.spans}
    assert [n for n, s in spans.items() if s.error] == ["chat m"]
    assert [n for n, s in spans.items() if s.inferred_parent] == ["orphan"]
    assert [n for n, s in spans.items() if s.clock_shifted] == ["other clock"]
    assert (spans["other clock"].start_ms, spans["other clock"].duration_ms) == (80, 20)
    assert (spans["GET http://x"].role, spans["GET http://x"].path_ms) == ("folded", 0)
    assert spans["GET http://x"].attributes["http.method"] == "GET"
    assert (spans["chat m"].stage, spans["chat m"].ttft_ms, spans["chat m"].output_tokens) == (
        "model",
        20,
        10,
    )


def test_a_trace_that_is_no_request_can_be_looked_at_too() -> None:
    trace = traced(Made(1, "Load model", 0, 100), Made(2, "Warmup", 10, 50, 1))
    assert (trace.route, trace.e2e_ms, trace.stages) == ("Load model", 100, {"other": 100})


@pytest.mark.parametrize("wrong", ["", "abc", "z" * 32, "0" * 33, "-" + "0" * 31, " " * 32])
def test_what_is_no_trace_id_is_refused(wrong: str) -> None:
    with (
        stored(body(Made(1, "x", 0, 1))) as con,
        pytest.raises(BadTraceId, match="32 hexadecimal digits"),
    ):
        load_trace(con, wrong)


def test_a_trace_id_that_is_not_there_says_so() -> None:
    with stored(body(Made(1, "x", 0, 1))) as con:
        with pytest.raises(UnknownTrace):
            load_trace(con, "f" * 32)
        assert load_trace(con, f" {1:032X}\n").trace_id == f"{1:032x}"


def test_a_deep_trace_is_loaded() -> None:
    n = 3_000
    trace = traced(*(Made(i, f"step {i}", 0, 10 * n - i, i - 1) for i in range(1, n + 1)))
    assert [s.depth for s in trace.spans] == list(range(n))
    assert sum(p.to_ms - p.from_ms for p in trace.path) == pytest.approx(trace.e2e_ms)
