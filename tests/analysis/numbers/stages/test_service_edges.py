"""The gap between client and server: both sides of the same calls, and who of a table of callers and callees is to blame."""

import json

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.report import build, from_json, to_json
from overrun.analysis.front.report_document import render, to_html, to_markdown
from overrun.analysis.numbers.latency.client_vs_engine import sides
from overrun.analysis.numbers.stages.service_edges import culprit, edges, median_polish
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0_NS, at, calls_of, insert, insert_calls, requests, store
from tests.analysis.front.test_report import _nulls

EFFECTS = st.lists(st.integers(-50, 50), min_size=1, max_size=5)


@settings(max_examples=100)
@given(st.integers(-100, 100), EFFECTS, EFFECTS)
def test_an_additive_table_is_taken_apart_without_remainder(
    overall: int, rows: list[int], columns: list[int]
) -> None:
    table = {
        (f"r{i}", f"c{j}"): float(overall + row + column)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    }
    found, callers, callees = median_polish(table)
    assert all(
        value == pytest.approx(found + callers[r] + callees[c], abs=1e-6)
        for (r, c), value in table.items()
    )
    assert float(np.median(list(callers.values()))) == pytest.approx(0.0, abs=1e-6)
    assert float(np.median(list(callees.values()))) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("slow", "side", "name"),
    [
        (lambda i, j: i == 2, "caller", "a2"),
        (lambda i, j: j == 0, "callee", "b0"),
        (lambda i, j: (i, j) == (1, 0), "edge", "a1 -> b0"),
        (lambda i, j: False, None, None),
    ],
)
def test_one_bad_side_or_one_bad_edge_is_named(
    slow: object, side: str | None, name: str | None
) -> None:
    table = {
        (f"a{i}", f"b{j}"): (1.0 + 0.1 * (i * j % 3) + 100.0 * slow(i, j), 50)
        for i in range(4)
        for j in range(3)
    }  # type: ignore[operator]
    found = culprit(table)
    assert (found.side, found.name) == (side, name) if side else found is None
    assert found is None or found.effect_ms == pytest.approx(100.0, abs=1.0)


def test_with_one_caller_the_edge_is_named_because_the_sides_cannot_be_told_apart() -> None:
    found = culprit({("a", f"b{j}"): (100.0 * (j == 0) + 0.1 * j, 50) for j in range(3)})
    assert found is not None
    assert (found.side, found.name) == ("edge", "a -> b0")


def hops(late: str | None, *, shared: bool = False) -> duckdb.DuckDBPyConnection:
    """600 requests of two gateways to three services over HTTP, spans of both sides, under one id if `shared`; since the 300th one callee answers 80 ms late on
    the way."""
    con = store()
    frame = requests(600, e2e_ms=300.0, network_ms=300.0)
    insert(con, frame)
    places = [
        (1, "gate", "g0"),
        (2, "gate", "g1"),
        *((3 + j, "search", f"s{j}") for j in range(3)),
        (6, "vllm", "gpu-0"),
    ]
    con.executemany(
        """insert into sources by name select $1::ubigint as source_id, $2 as service, $3 as instance, '' as scope_name, '' as scope_version,
        map {} as resource_attributes, map {} as scope_attributes, '' as resource_schema_url, '' as scope_schema_url""",
        places,
    )
    # shape: source, kind (client 3, server 2), role (plain 0, engine 3)
    shapes = [(s, s, 3, 0) for s in (1, 2)] + [(s, s, 2, 0) for s in (3, 4, 5)] + [(6, 6, 2, 3)]
    con.executemany(
        """insert into shapes by name select $1::int as shape, $2::ubigint as source_id, $3::utinyint as kind, 0::utinyint as status,
        0::uinteger as flags, 0::utinyint as stage, $4::utinyint as role, []::varchar[] as keys""",
        shapes,
    )
    rows = []
    for i in range(600):
        begin, callee = T0_NS + i * 10**9, 3 + i % 3
        gap = 10 + 80 * (i >= 300 and f"s{i % 3}" == late)
        rows += [
            (i * 3, i + 1, 2, 1, begin, (100 + gap) * 10**6, "GET", 1 + i % 2),
            (
                i * 3 + 1,
                i + 1,
                3 - shared,
                2 - shared,
                begin + gap * 500_000,
                10**8,
                "serve",
                callee,
            ),
        ]
        rows.append((i * 3 + 2, i + 1, 4, 2, begin, 10**6, "llm_request", 6))
    hop_rows = pl.DataFrame(
        rows,
        schema=[
            "seq",
            "trace_lo",
            "span_id",
            "parent_id",
            "start_ns",
            "duration_ns",
            "name",
            "shape",
        ],
        orient="row",
    )
    con.execute("insert into spans by name select 1::ubigint as trace_hi, * from hop_rows")
    del hop_rows
    return con


def test_spans_of_both_sides_of_a_hop_make_an_edge_and_an_engine_s_spans_do_not() -> None:
    found = edges(hops("s1"), at(0), at(600), at(300), 600)
    assert {(edge.caller, edge.callee) for edge in found.edges} == {
        (f"gate g{i}", f"search s{j}") for i in range(2) for j in range(3)
    }
    assert [round(edge.delta_ms) for edge in found.edges] == [80, 80, 0, 0, 0, 0]
    assert {
        (round(edge.gap_ms), round(edge.before_ms or 0.0), edge.n)
        for edge in found.edges
        if edge.callee == "search s1"
    } == {(90, 10, 50)}
    assert found.culprit is not None
    assert (found.culprit.side, found.culprit.name, round(found.culprit.effect_ms)) == (
        "callee",
        "search s1",
        80,
    )
    assert edges(hops(None), at(0), at(600), at(300), 600).culprit is None


def test_both_sides_of_a_hop_may_share_an_id() -> None:
    assert edges(hops("s1", shared=True), at(0), at(600), at(300), 600) == edges(
        hops("s1"), at(0), at(600), at(300), 600
    )


def joined(late_replica: str | None) -> duckdb.DuckDBPyConnection:
    """600 calls of two pods to three replicas that client and engine both measured; since the 300th one replica answers 80 ms late."""
    con = store()
    n = np.arange(600)
    replica = np.array(["gpu-0", "gpu-1", "gpu-2"])[n % 3]
    late = (n >= 300) & (replica == (late_replica or "none"))
    frame = requests(
        600,
        prefill_ms=100.0,
        decode_ms=99.0 * 5.0,
        network_ms=10.0 + 80.0 * late,
        instance=[f"pod-{i % 2}" for i in n],
    )
    insert(con, frame)
    client = 110.0 + 80.0 * late
    insert_calls(
        con,
        calls_of(
            frame,
            engine_instance=replica.tolist(),
            engine_e2e_ms=595.0,
            ttft_client_ms=client,
            ttft_engine_ms=100.0,
            itl_ms=6.0,
            ttft_ms=client,
            ttft_source=1,
        ),
    )
    return con


def test_client_and_engine_are_laid_side_by_side_with_the_gap_of_each_call() -> None:
    ttft, itl, e2e = sides(joined(None), Window())
    assert [(s.metric, s.n) for s in (ttft, itl, e2e)] == [
        ("ttft", 600),
        ("itl", 600),
        ("e2e", 600),
    ]
    assert (ttft.client_ms.p95, ttft.engine_ms.p95, ttft.gap_ms.p95) == (110.0, 100.0, 10.0)
    assert (itl.client_ms.p50, itl.engine_ms.p50, itl.gap_ms.p50) == (6.0, 5.0, 1.0)
    assert e2e.gap_ms.p50 == pytest.approx(10.0)
    assert sides(store(), Window()) == []


def test_the_replica_that_answers_late_is_named_as_a_callee() -> None:
    found = edges(joined("gpu-1"), at(0), at(600), at(300), 600)
    assert found.culprit is not None
    assert (found.culprit.side, found.culprit.name) == ("callee", "gpu-1")
    assert found.culprit.effect_ms == pytest.approx(80.0, abs=1.0)
    assert found.edges[0].before_ms == pytest.approx(10.0)
    calm = edges(joined(None), at(0), at(600), at(300), 600)
    assert calm.culprit is None
    assert "differs from the others" in calm.reasons["culprit"]


def test_no_edge_says_why() -> None:
    found = edges(store(), at(0), at(600), None, 1)
    assert (found.edges, found.culprit) == ([], None)
    assert "20 calls" in found.reasons["culprit"]


def test_the_report_shows_the_gap_in_every_form() -> None:
    report = build(joined("gpu-1"), Window(), Slo(e2e_ms=650.0))
    assert [
        path
        for path in _nulls(json.loads(to_json(report)))
        if path.startswith(("cost", "edges", "sides"))
    ] == []
    assert from_json(to_json(report)) == report
    assert "TTFT gap" in render(report)
    for form in (to_html(report), to_markdown(report)):
        assert "TTFT client" in form
        assert "gap: client minus engine of the same model calls" in form
    if report.verdict.onset is not None:
        assert "callee gpu-1 adds 80 ms" in " ".join(render(report).split())
