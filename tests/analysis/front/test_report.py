"""The report as a whole: figures of a known engine run, the JSON contract, and healthy and empty stores."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import duckdb
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.report import Report, build, from_json, to_json
from overrun.analysis.front.report_document import render
from overrun.analysis.front.serve import rehearse
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError, BudgetError
from overrun.analysis.words.finding import Finding
from overrun.analysis.words.slo import DEFAULT, parse_slo
from tests.analysis.builders import insert, requests, store, vllm_gauges, vllm_spans

# Names that an answer of this version keeps.
CONTRACT = {
    "window": "start end requests llm_calls spans",
    "slo": "ttft_ms itl_ms tpot_ms e2e_ms percentile goodput_target",
    "latency": "ttft_ms itl_ms tpot_ms e2e_ms",
    "goodput": "ratio rps good bad unmeasurable failed_by",
    "errors": "ratio abandoned_ratio truncated_ratio",
    "retries": "attempts wasted_ms wasted_tokens on_slow on_error",
    "verdict": (
        "status scope metric stage cause cause_status candidates sentence onset trend "
        "affected changed ruled_out owner mitigation rollback recheck_after_s"
    ),
}
PERCENTILES = "n p50 p75 p90 p95 p99 p99_9 p50_interval p95_interval p99_interval max"
STAGE = "stage group budget_ms p50_ms p90_ms p95_ms p99_ms typical_ms tail_ms breach_share over"
FINDING = "rule stage service severity confidence headline evidence exemplars fix"
FIX = "id title detail method predicted"
PREDICTED = "metric quantile before after interval touched_ratio cost backtest_error_ratio"
TOP = " ".join([*CONTRACT, "schema baseline stages checklist findings indicators data_quality"])


@pytest.fixture(scope="module")
def overloaded() -> Report:
    """150 s of a continuous-batching engine with 24,576 KV tokens: 8 requests/s, 26 from 40 s to 80 s, 8 again."""
    con = store()
    insert(con, vllm_spans())
    vllm_gauges(con)
    return build(con.cursor(), Window(), parse_slo("ttft:1000 e2el:5000"))


def test_latency_of_the_overloaded_engine(overloaded: Report) -> None:
    ttft, e2e = overloaded.latency.ttft_ms, overloaded.latency.e2e_ms
    assert [ttft.p50, ttft.p90, ttft.p99] == pytest.approx([19_000, 50_700, 54_400], rel=0.01)
    assert [e2e.p50, e2e.p90, e2e.p99] == pytest.approx([20_500, 52_300, 56_800], rel=0.01)
    assert (ttft.n, ttft.source) == (1499, "engine")
    assert overloaded.latency.itl_ms.p50 is None
    assert overloaded.latency.itl_ms.reasons["p50"]


def test_stages_of_the_overloaded_engine(overloaded: Report) -> None:
    rows = {row.stage: row for row in overloaded.stages if row.stage}
    assert rows["queue"].p99_ms == pytest.approx(54_200, rel=0.01)
    assert rows["prefill"].p99_ms == pytest.approx(377, rel=0.01)
    assert rows["decode"].p99_ms == pytest.approx(7_640, rel=0.01)
    group = next(row for row in overloaded.stages if row.group == "model" and row.stage is None)
    assert group.over
    assert group.breach_share == pytest.approx(1.0, abs=0.01)


def test_goodput_of_the_overloaded_engine(overloaded: Report) -> None:
    assert overloaded.goodput.ratio == pytest.approx(0.245, abs=0.005)
    assert overloaded.goodput.rps == pytest.approx(368 / 149.94, rel=0.001)


def test_verdict_of_the_overloaded_engine_names_stage_cause_and_fix(overloaded: Report) -> None:
    verdict, finding = overloaded.verdict, overloaded.findings[0]
    assert (verdict.status, verdict.metric, verdict.stage, verdict.cause) == (
        "over_budget",
        "ttft",
        "queue",
        "under_capacity",
    )
    assert verdict.onset is not None
    assert 38 <= (verdict.onset - overloaded.window.start).total_seconds() <= 48  # type: ignore[operator]
    assert (finding.rule, finding.stage, finding.severity) == (
        "under_capacity",
        "queue",
        "critical",
    )
    assert "KV-bound" in finding.headline
    assert finding.evidence["waiting_last"] == 394
    assert finding.evidence["offered_ratio"] > 2
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 1000 < finding.fix.predicted.before
    assert 1 <= len(finding.exemplars) <= 5
    assert {"prefill"} <= {out.what for out in verdict.ruled_out}


def test_waiting_requests_of_the_overloaded_engine_are_warned_of(overloaded: Report) -> None:
    warned = {check.check: check for check in overloaded.data_quality if check.status == "warn"}
    assert list(warned) == ["requests_waiting_at_end"]
    assert "394 requests were still waiting" in warned["requests_waiting_at_end"].detail


def test_spans_alone_give_the_same_cause_with_no_more_confidence(overloaded: Report) -> None:
    con = store()
    insert(con, vllm_spans())
    alone = build(con, Window(), parse_slo("ttft:1000 e2el:5000"))
    assert alone.verdict.cause == "under_capacity"
    assert alone.findings[0].confidence <= overloaded.findings[0].confidence
    assert {c.check for c in alone.data_quality if c.status == "warn"} == {
        "requests_waiting_at_end"
    }


def test_calm_part_of_the_run_has_no_finding() -> None:
    con = store()
    insert(con, vllm_spans().filter(np.arange(1499) < 80))
    report = build(con, Window(), parse_slo("ttft:1000 e2el:8000"))
    assert report.verdict.status == "within_budget"
    assert report.findings == []


def keys(document: dict[str, Any], wanted: str) -> None:
    assert set(wanted.split()) <= set(document)


def test_json_has_every_key_of_the_contract(overloaded: Report) -> None:
    document = json.loads(to_json(overloaded))
    keys(document, TOP)
    assert document["schema"] == "overrun.report/1"
    for name, wanted in CONTRACT.items():
        keys(document[name], wanted)
    keys(document["latency"]["ttft_ms"], f"{PERCENTILES} source reasons")
    keys(document["stages"][0], STAGE)
    keys(document["findings"][0], FINDING)
    keys(document["findings"][0]["fix"], FIX)
    keys(document["findings"][0]["fix"]["predicted"], PREDICTED)
    keys(document["goodput"]["failed_by"], "ttft itl tpot e2e error")
    keys(document["checklist"][0], "step status detail")
    keys(document["data_quality"][0], "check status detail")
    keys(document["verdict"]["ruled_out"][0], "what figure")
    assert document["window"]["start"] == "2026-11-20T10:00:00Z"


@pytest.mark.parametrize("rows", [0, 3, 80])
def test_every_null_has_its_reason_beside_it(rows: int) -> None:
    con = store()
    if rows:
        insert(con, requests(rows, prefill_ms=10.0, ttft_prefill_ms=10.0))
    document = json.loads(to_json(build(con, Window(), DEFAULT)))
    unexplained = [path for path in _nulls(document) if not path.startswith("slo.")]
    assert unexplained == []


def _nulls(value: Any, path: str = "") -> list[str]:
    """Return paths of nulls whose object has no reason for them (a stage of a group row is absent by definition)."""
    if isinstance(value, list):
        return [found for item in value for found in _nulls(item, path)]
    if not isinstance(value, dict):
        return []
    reasons = value.get("reasons", {})
    bare = [f"{path}{key}" for key, item in value.items() if item is None and key not in reasons]
    bare = [name for name in bare if name != "stages.stage"]
    return bare + [found for key, item in value.items() for found in _nulls(item, f"{path}{key}.")]


def test_json_comes_back_as_the_same_report(overloaded: Report) -> None:
    assert from_json(to_json(overloaded)) == overloaded
    assert b"NaN" not in to_json(overloaded)


def test_numpy_numbers_in_evidence_are_numbers() -> None:
    report = build(store(), Window(), DEFAULT)
    evidence = {"growth": np.float64(2.5), "n": np.int64(3)}
    finding = Finding(
        rule="r",
        stage="queue",
        service=None,
        severity="info",
        confidence=0.5,
        headline="h",
        evidence=evidence,
        exemplars=[],
        fix=None,
    )
    report.findings.append(finding)
    assert json.loads(to_json(report))["findings"][0]["evidence"] == {"growth": 2.5, "n": 3}


def test_other_json_is_refused() -> None:
    for data in (b"{}", b"[", msgspec.json.encode({"schema": "overrun.report/2"})):
        with pytest.raises(AnalysisError, match=r"overrun.report/1"):
            from_json(data)


def test_empty_store_gives_a_report() -> None:
    report = build(store(), Window(), DEFAULT)
    assert report.verdict.status == "no_data"
    assert (report.window.requests, report.stages, report.findings) == (0, [], [])
    assert report.reasons["findings"]


def test_numbers_come_without_findings_when_not_asked_for() -> None:
    con = store()
    insert(con, vllm_spans())
    report = build(con, Window(), parse_slo("ttft:1000"), with_findings=False)
    assert (report.verdict.stage, report.verdict.cause, report.findings) == ("queue", None, [])
    assert report.reasons["findings"] == "not asked for"


def test_wrong_budget_is_refused_even_without_requests() -> None:
    with pytest.raises(BudgetError, match="retrieval"):
        build(store(), Window(), DEFAULT, {"/chat": {"retreival": 100.0}})


def test_truncated_and_failed_requests_stand_beside_latency() -> None:
    con = store()
    insert(
        con,
        requests(
            100,
            prefill_ms=1.0,
            truncated=[True] * 20 + [False] * 20 + [None] * 60,
            error=[True] * 5 + [False] * 95,
        ),
    )
    errors = build(con, Window(), DEFAULT).errors
    assert (errors.ratio, errors.truncated_ratio, errors.abandoned_ratio) == (0.05, 0.5, None)


MS = st.one_of(st.just(0.0), st.floats(0.0, 1e5).map(lambda value: round(value, 3)))
MAYBE_MS = st.one_of(st.none(), MS)
REQUEST = st.fixed_dictionaries(
    {
        "start_s": st.floats(0.0, 100.0),
        "error": st.booleans(),
        "complete": st.booleans(),
        "queue_ms": MS,
        "prefill_ms": MS,
        "decode_ms": MS,
        "retrieval_ms": MS,
        "other_ms": MS,
        "ttft_ms": MAYBE_MS,
        "ttft_queue_ms": MAYBE_MS,
        "tpot_ms": MAYBE_MS,
        "itl_ms": MAYBE_MS,
        "output_tokens": st.one_of(st.none(), st.integers(0, 5000)),
        "truncated": st.one_of(st.none(), st.booleans()),
    }
)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(REQUEST, min_size=1, max_size=12),
    st.sampled_from([1, 30]),
    st.sampled_from(["chat", "itl:50", "tpot:50ms", "e2e:1"]),
)
def test_any_requests_give_a_report_a_text_and_the_same_report_back(
    rows, times: int, slo: str
) -> None:
    """Whatever arrives: no crash, no NaN, and every column of means adds up to the same request."""
    con = store()
    repeated = rows * times
    insert(
        con,
        requests(len(repeated), **{name: [row[name] for row in repeated] for name in repeated[0]}),
    )
    report = build(con, Window(), parse_slo(slo))
    assert from_json(to_json(report)) == report
    assert render(report).startswith("OVERRUN  ")
    groups = [row for row in report.stages if row.stage is None and row.tail_ms is not None]
    stages = [row for row in report.stages if row.stage is not None and row.tail_ms is not None]
    for column in ("typical_ms", "tail_ms"):
        sums = [sum(getattr(row, column) for row in part) for part in (groups, stages)]
        assert sums[0] == pytest.approx(sums[1], abs=1e-6)


def test_a_server_rehearses_on_the_newest_minute() -> None:
    def over(con: duckdb.DuckDBPyConnection) -> Any:
        return SimpleNamespace(
            store=SimpleNamespace(reading=lambda: contextlib.nullcontext(con.cursor()))
        )

    con = store()
    assert not rehearse(over(con))
    insert(con, vllm_spans())
    assert rehearse(over(con))
    con.close()
    assert not rehearse(
        SimpleNamespace(store=SimpleNamespace(reading=lambda: contextlib.nullcontext(con)))
    )  # type: ignore[arg-type]
