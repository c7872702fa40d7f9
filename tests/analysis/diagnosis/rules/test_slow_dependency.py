"""slow_dependency: fires with exact numbers, is silent on the twin, and says when data are few."""

import re

import numpy as np
import polars as pl
import pytest

from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N = 500
SLOW = (
    np.arange(N) % 10 == 9
)  # every tenth request, so no onset and no baseline: the reference is the typical request


def retrieval(slow_ms: float, n: int = N) -> pl.DataFrame:
    slow = np.arange(n) % 10 == 9
    return requests(
        n,
        prefill_ms=300.0,
        decode_ms=1000.0,
        retrieval_ms=np.where(slow, slow_ms, 100.0),
        ttft_ms=500.0,
    )


def root_of(frame: pl.DataFrame, **columns: object) -> pl.DataFrame:
    """The server's span of each request."""
    return spans_of(
        frame,
        "POST /ask",
        "other",
        0.0,
        frame["e2e_ns"].to_numpy() / 1e6,
        span_id=1,
        parent_id=0,
        kind=2,
        role=ROLE["container"],
        **columns,
    )


def search_of(frame: pl.DataFrame, name: str = "search", **columns: object) -> pl.DataFrame:
    """A span that takes all of the request's retrieval time."""
    spent = frame["retrieval_ns"].to_numpy() / 1e6
    return spans_of(frame, name, "retrieval", 0.0, spent, kind=3, **columns)


def test_fires_on_slow_retrieval_with_exact_numbers() -> None:
    frame = retrieval(2100.0)
    found = run(frame, spans=[root_of(frame), search_of(frame)])
    finding = of(found, "slow_dependency")
    assert finding is not None
    # Slow: 2,100 + 300 + 1,000 = 3,400 ms over 2,500; typical 1,400. All of the 2,000 ms is retrieval.
    assert finding.evidence["share_of_excess"] == 1.0
    assert (finding.evidence["tail_ms"], finding.evidence["reference_ms"]) == (2100.0, 100.0)
    assert (finding.evidence["n"], finding.evidence["n_breaching"], finding.evidence["n_tail"]) == (
        500,
        50,
        50,
    )
    assert (finding.stage, finding.service, finding.severity) == (
        "retrieval",
        "chat",
        "warning",
    )
    assert len(finding.exemplars) == 5
    assert "(search in chat)" in finding.headline
    # One call a request, 2,100 ms in slow and 100 ms in usual ones; nine requests in ten are healthy.
    [operation] = finding.evidence["operations"]
    assert (operation["own_ms"], operation["reference_own_ms"], operation["calls"]) == (
        2100.0,
        100.0,
        1.0,
    )
    assert "timeout of 300 ms on search in chat" in str(found.verdict.mitigation)
    gain = finding.fix.predicted if finding.fix else None
    # Clipped to its 300 ms budget, a slow request takes 300 + 300 + 1,000.
    assert gain is not None
    assert (gain.before, gain.after, gain.touched_ratio) == (3400.0, 1600.0, 0.1)
    assert gain.interval == (1600.0, 1600.0)
    verdict = found.verdict
    assert (verdict.status, verdict.stage, verdict.cause, verdict.owner) == (
        "over_budget",
        "retrieval",
        "slow_dependency",
        "app",
    )


@pytest.mark.parametrize(
    ("stage", "owner"),
    [("tool", "app"), ("guardrail", "app"), ("post", "app"), ("network", "platform")],
)
def test_names_every_stage_beside_the_model(stage: str, owner: str) -> None:
    spent = np.where(SLOW, 2500.0, 20.0)
    found = run(
        requests(N, prefill_ms=300.0, decode_ms=1000.0, ttft_ms=500.0, **{f"{stage}_ms": spent})
    )
    assert (found.verdict.stage, found.verdict.cause, found.verdict.owner) == (
        stage,
        "slow_dependency",
        owner,
    )


def test_silent_when_the_same_time_is_spent_decoding() -> None:
    found = run(
        requests(
            N,
            prefill_ms=300.0,
            retrieval_ms=100.0,
            decode_ms=np.where(SLOW, 3000.0, 1000.0),
            ttft_ms=500.0,
        )
    )
    assert found.verdict.status == "over_budget"
    assert of(found, "slow_dependency") is None


def test_silent_within_budget() -> None:
    found = run(retrieval(280.0))
    assert found.verdict.status == "within_budget"
    assert found.findings == []


def test_too_few_breaches_are_said() -> None:
    found = run(retrieval(2100.0, n=60))
    assert found.verdict.cause is None
    assert "at least 10" in found.skipped["slow_dependency"]
    assert "at least 10" in found.verdict.reasons["cause"]


def test_slow_in_every_request_is_charged_by_the_budget() -> None:
    found = run(requests(N, prefill_ms=300.0, decode_ms=1000.0, retrieval_ms=2100.0, ttft_ms=500.0))
    assert found.verdict.stage == "retrieval"


def test_a_second_cause_is_listed_for_the_requests_that_it_alone_makes_slow() -> None:
    # One slow request in six waits 2 s for retrieval, the others decode 12 s: retrieval is 3 % of the mean excess, and all of it for those.
    late = np.arange(1200) >= 600
    waits, writes = late & (np.arange(1200) % 30 == 0), late & (np.arange(1200) % 6 == 1)
    found = run(
        requests(
            1200,
            retrieval_ms=np.where(waits, 8_000.0, 100.0),
            decode_ms=np.where(writes, 12_000.0, 500.0),
            output_tokens=np.where(writes, 2_400, 100),
        )
    )
    assert [one.rule for one in found.findings if one.severity != "info"] == [
        "long_outputs",
        "slow_dependency",
    ]


def test_the_fix_holds_each_request_to_the_budget_of_its_own_route() -> None:
    routes = ["/chat", "/report"] * (N // 2)
    rows = requests(
        N,
        route=routes,
        prefill_ms=300.0,
        decode_ms=1000.0,
        retrieval_ms=np.where(np.arange(N) % 10 < 2, 2100.0, 100.0),
        ttft_ms=500.0,
    )
    fix = the(run(rows, budgets={"/report": {"retrieval": 900.0}}), "slow_dependency").fix
    assert fix is not None
    assert fix.predicted is not None
    # 3,400 ms become 300 + 1,000 and 300 or 900 ms of retrieval: all slow ones are within the limit of 2,500, and P95 lies among those of /report.
    assert (fix.predicted.before, fix.predicted.after) == (3400.0, 2200.0)
    assert (fix.predicted.over_before_ratio, fix.predicted.over_after_ratio) == (0.2, 0.0)
    assert fix.title == "Limit retrieval to 300 ms to 900 ms, by request"


def test_a_span_around_the_slow_one_is_not_blamed() -> None:
    frame = retrieval(2100.0)
    around = spans_of(
        frame,
        "answer",
        "retrieval",
        0.0,
        frame["retrieval_ns"].to_numpy() / 1e6 + 5.0,
        span_id=9,
    )
    found = the(
        run(frame, spans=[root_of(frame), around, search_of(frame, parent_id=9)]), "slow_dependency"
    )
    assert found.evidence["operation"] == "search"


def test_a_write_gets_no_advice_for_a_search_index() -> None:
    spent = np.where(SLOW, 2100.0, 100.0)
    frame = requests(N, prefill_ms=300.0, decode_ms=1000.0, post_ms=spent, ttft_ms=500.0)
    writes = spans_of(
        frame,
        "INSERT",
        "post",
        0.0,
        spent,
        kind=3,
        role=ROLE["write"],
        attributes={"db.system": "postgresql", "db.sql.table": "checkpoints"},
    )
    call = spans_of(
        frame, "chat m", "generation", 2150.0, 1000.0, span_id=3, role=ROLE["llm"], kind=3
    )
    found = run(frame, spans=[root_of(frame), writes, call])
    finding = the(found, "slow_dependency")
    assert finding.evidence["operation"] == "INSERT checkpoints"
    assert finding.fix is not None
    assert "HNSW" not in finding.fix.detail
    assert "one batch" in finding.fix.detail
    assert "timeout" not in str(found.verdict.mitigation)


def test_a_timeout_lies_above_what_healthy_calls_take() -> None:
    # Healthy searches take up to 400 ms, over their budget of 300 ms, and 2,100 ms in every tenth request.
    slow = np.arange(N) % 10 == 9
    spent = np.where(slow, 2100.0, 200.0 + (np.arange(N) % 9) * 25.0)
    frame = requests(N, prefill_ms=300.0, decode_ms=1000.0, retrieval_ms=spent, ttft_ms=500.0)
    found = run(frame, spans=[root_of(frame), search_of(frame)])
    finding = the(found, "slow_dependency")
    [operation] = finding.evidence["operations"]
    assert operation["reference_call_p95_ms"] >= 300.0
    [timeout] = re.findall(r"timeout of (\d+) ms", str(found.verdict.mitigation))
    assert 1.2 * operation["reference_call_p95_ms"] == pytest.approx(float(timeout), rel=0.01)


def test_telemetry_that_requests_wait_for_is_called_so() -> None:
    frame = requests(
        N,
        prefill_ms=300.0,
        decode_ms=1000.0,
        network_ms=np.where(SLOW, 2500.0, 20.0),
        ttft_ms=500.0,
    )
    post = spans_of(
        frame,
        "POST",
        "network",
        1320.0,
        np.where(SLOW, 2490.0, 10.0),
        kind=3,
        attributes={
            "http.request.method": "POST",
            "url.full": "https://cloud.langfuse.com/api/public/ingestion",
        },
    )
    call = spans_of(frame, "chat m", "generation", 0.0, 1300.0, span_id=3, role=ROLE["llm"], kind=3)
    found = run(frame, spans=[root_of(frame), call, post])
    finding = the(found, "slow_dependency")
    assert finding.evidence["operation"] == "POST to cloud.langfuse.com/api/public/ingestion"
    assert finding.evidence["operations"][0]["purpose"] == "vendor"
    assert found.verdict.owner == "app"
    assert "in the background" in (finding.fix.detail if finding.fix else "")
    assert "region" not in (finding.fix.detail if finding.fix else "")


@pytest.mark.parametrize("alone", [True, False])
def test_names_the_tenant_that_slow_requests_alone_are_of(alone: bool) -> None:
    others = np.array(["a", "b", "c", "d", "e"])[np.arange(N) // 10 % 5]
    frame = retrieval(3_000.0).with_columns(
        tenant=pl.Series(np.where(SLOW, "large", others) if alone else others)
    )
    finding = the(run(frame, slo=E2E), "slow_dependency")
    assert finding.evidence["tenant"] == ("large" if alone else None)
