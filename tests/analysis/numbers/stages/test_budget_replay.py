"""Stages held to their budget with the critical path worked out anew: against a slow reference, and never more than the time taken out."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.budget_answer import budget_view
from overrun.analysis.front.budget_text import document
from overrun.analysis.front.text_layout import render
from overrun.analysis.numbers.stages.budget import Budgets, StageTimes
from overrun.analysis.numbers.stages.budget_replay import lost_ms, saved_ms, until_first_token
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0_NS, at, insert, requests, store

Block = list[tuple[str, int]]


def spans_of(blocks: list[Block]) -> pl.DataFrame:
    """A root that works through blocks one after the other; the leaves of a block (stage, ms) run side by side."""
    rows: list[dict[str, Any]] = []
    begin = 0
    for block in blocks:
        rows += [
            {
                "span_id": f"s{len(rows)}.{i}",
                "parent_span_id": "root",
                "start_us": begin * 1000,
                "duration_ms": float(ms),
                "stage": stage,
                "role": "plain",
            }
            for i, (stage, ms) in enumerate(block)
        ]
        begin += max(ms for _, ms in block)
    root = {
        "span_id": "root",
        "parent_span_id": None,
        "start_us": 0,
        "duration_ms": float(begin),
        "stage": "other",
        "role": "plain",
    }
    return pl.DataFrame([root, *rows])


def reference(blocks: list[Block], group: str, factor: float) -> float:
    """How much shorter the sequence of blocks is when every leaf of the group takes `factor` of its time."""
    return sum(
        max(ms for _, ms in block)
        - max(ms * (factor if stage == group else 1.0) for stage, ms in block)
        for block in blocks
    )


LEAF = st.tuples(st.sampled_from(["retrieval", "guardrail", "tool"]), st.integers(5, 400))


@settings(max_examples=150)
@given(
    st.lists(st.lists(LEAF, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),
)
def test_replay_agrees_with_a_slow_reference(blocks: list[Block], factor: float) -> None:
    assert saved_ms(spans_of(blocks), "retrieval", factor, 1e9) == pytest.approx(
        reference(blocks, "retrieval", factor), abs=1e-6
    )


def test_another_branch_takes_over_where_it_ends_later() -> None:
    spans = spans_of([[("retrieval", 800), ("guardrail", 600)], [("tool", 200)]])
    # 400 ms are taken out of retrieval, but the guardrail holds the request up until 600.
    assert saved_ms(spans, "retrieval", 0.5, 400.0) == pytest.approx(200.0)
    assert saved_ms(
        spans_of([[("retrieval", 800)], [("tool", 200)]]), "retrieval", 0.5, 400.0
    ) == pytest.approx(400.0)


def test_own_time_of_a_call_around_its_engine_is_the_way_there_and_back() -> None:
    spans = pl.DataFrame(
        [
            {
                "span_id": "a",
                "parent_span_id": None,
                "start_us": 0,
                "duration_ms": 1000.0,
                "stage": "generation",
                "role": "llm",
            },
            {
                "span_id": "b",
                "parent_span_id": "a",
                "start_us": 100_000,
                "duration_ms": 800.0,
                "stage": "decode",
                "role": "engine",
            },
        ]
    )
    assert saved_ms(spans, "model", 0.5, 1e9) == pytest.approx(400.0)
    assert saved_ms(spans, "network+gateway", 0.5, 1e9) == pytest.approx(100.0)


def test_up_to_the_first_token_what_still_runs_holds_nothing_up() -> None:
    def span(
        name: str,
        parent: str | None,
        start: int,
        ms: float,
        stage: str,
        role: str = "plain",
        ttft: float | None = None,
    ) -> dict[str, Any]:
        return {
            "span_id": name,
            "parent_span_id": parent,
            "start_us": start * 1000,
            "duration_ms": ms,
            "ttft_ms": ttft,
            "stage": stage,
            "role": role,
        }

    spans = pl.DataFrame(
        [
            span("root", None, 0, 3000.0, "other", "container"),
            span("docs", "root", 0, 800.0, "retrieval"),
            span("guard", "root", 0, 600.0, "guardrail"),
            span("audit", "root", 0, 2500.0, "guardrail"),
            span("call", "root", 800, 2000.0, "generation", "llm", 300.0),
            span("judge", "root", 900, 1500.0, "generation", "llm", 900.0),
            span("later", "root", 2800, 200.0, "post"),
        ],
        infer_schema_length=None,
    )
    path = until_first_token(spans, 1100.0)
    assert dict(path.select("span_id", "duration_ms").iter_rows()) == {
        "root": 1100.0,
        "docs": 800.0,
        "guard": 600.0,
        "call": 300.0,
    }
    # 400 ms are taken out of retrieval, but the guardrail holds the call up until 600; all of the call's time to its token counts.
    assert saved_ms(path, "retrieval", 0.5, 400.0) == pytest.approx(200.0)
    assert saved_ms(path, "model", 0.5, 150.0) == pytest.approx(150.0)
    assert until_first_token(spans, 2900.0).is_empty()
    joined = pl.concat(
        [spans, pl.DataFrame([span("engine", "call", 850, 1900.0, "decode", "engine", 240.0)])],
        how="vertical_relaxed",
    )
    path = until_first_token(joined, 1100.0)
    assert dict(path.select("span_id", "duration_ms").iter_rows())["engine"] == 250.0
    assert saved_ms(path, "model", 0.5, 125.0) == pytest.approx(125.0)


def test_the_view_shows_what_is_left_of_the_gain_when_branches_run_side_by_side() -> None:
    con = store()
    frame = requests(
        300, retrieval_ms=[800.0 if i % 10 == 0 else 100.0 for i in range(300)], tool_ms=200.0
    )
    insert(con, frame)
    con.execute(
        "insert into sources by name select 1::ubigint as source_id, 'chat' as service, '' as scope_name, '' as scope_version, "
        "map {} as resource_attributes, map {} as scope_attributes, '' as resource_schema_url, '' as scope_schema_url"
    )
    codes = {"other": 12, "retrieval": 2, "guardrail": 4, "tool": 9}
    for shape, code in enumerate(codes.values()):
        con.execute(
            "insert into shapes by name select $shape::int as shape, 1::ubigint as source_id, 1::utinyint as kind, 0::utinyint as status, "
            "0::uinteger as flags, $stage::utinyint as stage, 0::utinyint as role, []::varchar[] as keys",
            {"shape": shape, "stage": code},
        )
    rows = []
    for i in range(300):
        slow = 800 if i % 10 == 0 else 100
        parts = [
            (1, 0, "other", 0, slow + 200),
            (2, 1, "retrieval", 0, slow),
            (3, 1, "guardrail", 0, slow * 3 // 4),
            (4, 1, "tool", slow, 200),
        ]
        rows += [
            (
                i * 4 + span,
                i + 1,
                span,
                parent,
                T0_NS + (i * 1000 + begin) * 10**6,
                ms * 10**6,
                name,
                list(codes).index(name),
            )
            for span, parent, name, begin, ms in parts
        ]
    tree_rows = pl.DataFrame(
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
    con.execute("insert into spans by name select 1::ubigint as trace_hi, * from tree_rows")
    del tree_rows
    view = budget_view(con, Window(), Slo(e2e_ms=600.0), {"*": {"retrieval": 400.0}})
    assert view.responsibility is not None
    row = next(row for row in view.responsibility.groups if row.group == "retrieval")
    assert view.responsibility.recomputed_n == 300
    assert (row.alone_ms, row.recomputed_ms) == (pytest.approx(400.0), pytest.approx(200.0))
    assert "(200 ms with a new critical path)" in render(document(view))


def test_requests_without_spans_tell_nothing_of_the_path() -> None:
    con = store()
    insert(con, requests(50, retrieval_ms=500.0))
    rows = con.sql("select trace_key, e2e_ms from v_requests").pl()
    total = rows["e2e_ms"].to_numpy()
    assert lost_ms(
        con,
        rows,
        StageTimes("e2e", total, {"retrieval": total}),
        Budgets("e2e", {"retrieval": 100.0}),
        95.0,
        at(0),
        at(100),
    ) == (0, {})
