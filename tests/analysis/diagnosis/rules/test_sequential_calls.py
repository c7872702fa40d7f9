"""sequential_calls: fires on calls in a row with what running them together would save, silent where they overlap or always ran in a row."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200
EACH_MS = 1_200.0


def searches(in_row: np.ndarray, **columns: object) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Requests with three searches of 1.2 s each, in a row or at the same time."""
    frame = requests(
        N, retrieval_ms=np.where(in_row, 3 * EACH_MS, EACH_MS), prefill_ms=200.0, decode_ms=400.0
    )
    spans = [
        spans_of(
            frame,
            "qdrant.query",
            "retrieval",
            np.where(in_row, k * (EACH_MS + 1.0), float(k)),
            EACH_MS,
            span_id=10 + k,
            **columns,
        )
        for k in range(3)
    ]
    return frame, spans


def test_fires_with_sum_less_longest() -> None:
    frame, spans = searches(LATE)
    found = run(frame, spans=spans, slo=E2E)
    finding = the(found, "sequential_calls")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "retrieval",
        "sequential_calls",
        ["sequential_calls"],
    )
    # 3 x 1,200 in a row are 1,200 side by side.
    assert (finding.evidence["calls"], finding.evidence["gain_ms"]) == (
        3.0,
        pytest.approx(2 * EACH_MS),
    )
    assert (finding.evidence["in_row_now"], finding.evidence["in_row_before"]) == (1.0, 0.0)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(EACH_MS + 600.0)
    assert finding.fix.parameters == {"stage": "retrieval"}


def test_silent_when_they_ran_in_a_row_before() -> None:
    frame, spans = searches(np.ones(N, dtype=bool))
    slower = frame.with_columns(
        retrieval_ns=pl.when(pl.Series(LATE)).then(3_600_000_000).otherwise(300_000_000)
    )
    slower = slower.with_columns(e2e_ns=pl.col("retrieval_ns") + 600_000_000)
    assert of(run(slower, spans=spans, slo=E2E), "sequential_calls") is None


def test_silent_when_one_waits_for_the_other_by_its_own_word() -> None:
    frame, spans = searches(LATE, depends_on="10")
    assert causes(run(frame, spans=spans, slo=E2E)) == ["slow_dependency"]


def test_without_spans_the_stage_is_named_and_not_the_structure() -> None:
    assert causes(run(searches(LATE)[0], slo=E2E)) == ["slow_dependency"]


def test_silent_where_they_have_no_parent_that_could_run_them_together() -> None:
    frame, spans = searches(LATE, parent_id=0)
    assert causes(run(frame, spans=spans, slo=E2E)) == ["slow_dependency"]


@pytest.mark.parametrize("before", [True, False])
def test_searches_inside_of_a_chain_that_is_retrieval_itself_count_where_they_ran_side_by_side_before(
    before: bool,
) -> None:
    frame, spans = searches(LATE if before else np.ones(N, dtype=bool), parent_id=9)
    chain = spans_of(
        frame, "RetrievalChain", "retrieval", 0.0, np.where(LATE, 3 * EACH_MS, EACH_MS), span_id=9
    )
    found = run(frame, spans=[chain, *spans], slo=E2E)
    assert (of(found, "sequential_calls") is not None) is before


@pytest.mark.parametrize("before", [True, False])
def test_several_stores_asked_one_question_count_where_they_were_asked_side_by_side_before(
    before: bool,
) -> None:
    """An embedding of 300 ms, then three stores of 1.2 s each, of three names: since the change in a row. The embedding never ran beside them."""
    in_row = LATE if before else np.ones(N, dtype=bool)
    frame = requests(
        N,
        retrieval_ms=np.where(in_row & LATE, 300 + 3 * EACH_MS, 300 + EACH_MS),
        prefill_ms=200.0,
        decode_ms=400.0,
    )
    spans = [spans_of(frame, "embed", "retrieval", 0.0, 300.0, span_id=9)] + [
        spans_of(
            frame,
            name,
            "retrieval",
            300.0 + np.where(in_row, k * (EACH_MS + 1.0), float(k)),
            EACH_MS,
            span_id=10 + k,
        )
        for k, name in enumerate(("vectors", "keywords", "graph"))
    ]
    found = run(frame, spans=spans, slo=E2E)
    assert causes(found) == (["sequential_calls"] if before else ["slow_dependency"])
    if before:
        finding = the(found, "sequential_calls")
        assert (finding.evidence["in_row_now"], finding.evidence["in_row_before"]) == (1.0, 0.0)
        assert finding.evidence["gain_ms"] == pytest.approx(2 * EACH_MS, rel=0.15)


@pytest.mark.parametrize("before", [True, False])
def test_tools_of_two_steps_are_two_rows_with_the_model_between(before: bool) -> None:
    """Two steps of an agent, each a plan and two tools of 600 ms, all under one parent: since the change the two of each step run in a row."""
    in_row = LATE if before else np.ones(N, dtype=bool)
    each_ms = 600.0
    took = np.where(in_row & LATE, 2 * each_ms, each_ms)
    frame = requests(N, tool_ms=2 * took, prefill_ms=200.0, decode_ms=400.0)
    spans = []
    for step, begin in enumerate((0.0, took + 300.0)):
        spans.append(spans_of(frame, "chat", "generation", begin, 300.0, span_id=10 + 10 * step))
        spans += [
            spans_of(
                frame,
                "execute_tool",
                "tool",
                begin + 300.0 + np.where(in_row, k * each_ms, 0.0),
                each_ms,
                span_id=11 + k + 10 * step,
            )
            for k in range(2)
        ]
    found = run(frame, spans=spans, slo=E2E)
    assert (of(found, "sequential_calls") is not None) is before
    if before:
        finding = the(found, "sequential_calls")
        assert (
            found.verdict.cause,
            finding.evidence["in_row_now"],
            finding.evidence["in_row_before"],
        ) == ("sequential_calls", 1.0, 0.0)
        assert finding.evidence["gain_ms"] == pytest.approx(2 * each_ms)


@pytest.mark.parametrize(("side_by_side", "named"), [(True, True), (False, False)])
def test_without_a_baseline_requests_of_the_same_time_tell_that_they_can_run_side_by_side(
    side_by_side: bool, named: bool
) -> None:
    """One request in ten has its searches in a row, and another in twenty is slow for its answer: so two slow ones in three have them in a row. Others ask
    at once, or one search alone."""
    n = np.arange(N)
    in_row, long = n % 10 == 0, n % 20 == 5
    frame = requests(
        N,
        retrieval_ms=np.where(in_row, 3 * EACH_MS, EACH_MS),
        prefill_ms=200.0,
        decode_ms=np.where(long, 2_900.0, 400.0),
    )
    spans = [
        spans_of(
            frame,
            "qdrant.query",
            "retrieval",
            np.where(in_row, k * (EACH_MS + 1.0), float(k)),
            EACH_MS,
            span_id=10 + k,
        )
        for k in range(3)
    ]
    if not side_by_side:
        spans = [spans[0], *(part.filter(pl.Series(in_row | long)) for part in spans[1:])]
    found = run(frame, spans=spans, slo=E2E)
    assert found.baseline is None
    finding = of(found, "sequential_calls")
    assert (finding is not None) is named
    if finding is not None:
        assert finding.evidence["in_row_before"] is None
        assert "in typical requests" in finding.headline
