"""The gate: passes, fails, and refuses to judge what cannot be judged."""

import pytest

from overrun.analysis.front.check import NothingToJudge, check
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import insert, requests, store

SLO = Slo(e2e_ms=1_000.0)


def report(bad: int, n: int = 100, **columns: object) -> Report:
    con = store()
    insert(con, requests(n, prefill_ms=[5_000.0] * bad + [100.0] * (n - bad), **columns))
    return build(con, Window(), SLO, with_findings=False)


def test_gate_is_the_goodput_ratio_to_the_last_request() -> None:
    assert check(report(5)).passed
    failed = check(report(6))
    assert not failed.passed
    assert (
        failed.sentence
        == "Failed, not certain: goodput is 94 % of 100 requests, required: at least 95 %: "
        "E2E P95 5.00 s (100 ms to 5.00 s), limit 1.00 s, 6 of 100 requests missed it. "
        "With so many requests the share can be 87.5 % to 97.2 % by chance (95 % interval); the gate goes by the measured share."
    )
    assert failed.gates[0].certain is False
    assert check(report(30)).sentence.startswith("Failed: goodput is 70 % of 100")
    assert check(report(6), 0.94).passed


def test_the_interval_is_around_the_ratio_also_where_sampled_requests_weigh_differently() -> None:
    found = check(
        report(
            50,
            100,
            sampling=["th:0"] * 50 + ["th:e6666666666668"] * 50,
            sample_weight=[1.0] * 50 + [10.0] * 50,
        )
    )
    assert found.goodput_ratio == pytest.approx(500.0 / 550.0)
    assert found.interval[0] < found.goodput_ratio < found.interval[1]
    assert found.interval[0] > 0.8


def test_few_requests_are_judged_and_said() -> None:
    found = check(report(0, 20))
    assert (found.passed, found.enough) == (True, False)
    assert "Only 20 requests" in found.sentence


def test_errors_that_outrank_latency_fail_the_gate_whatever_goodput_is_wanted() -> None:
    found = check(report(0, 100, error=[True] * 40 + [False] * 60), 0.5)
    assert [gate.gate for gate in found.gates if not gate.passed] == ["status"]


def test_nothing_to_judge_and_an_impossible_wish_are_bad_input() -> None:
    con = store()
    with pytest.raises(NothingToJudge, match="no request"):
        check(build(con, Window(), SLO))
    with pytest.raises(AnalysisError, match="above 0"):
        check(report(0), 1.5)
