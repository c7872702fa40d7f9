"""Does a load test pass? One gate a run, or one on the load up to which the SLO holds."""

from __future__ import annotations

from overrun.analysis.front.check import CheckResult, Gate, NothingToJudge, say_failed
from overrun.analysis.front.load_test import LoadTestReport
from overrun.analysis.numbers.load_tests.runs import RunRow
from overrun.analysis.numbers.outcomes.percentile_limits import LimitRow, say_limit
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import say_count, say_rate, say_ratio


def check_load_test(report: LoadTestReport, min_rate: float | None) -> CheckResult:
    """Judge a load test: with `min_rate` (requests/s) every series must hold the SLO up to it, without it every run must.

    Raises:
        NothingToJudge: no run could be judged.
        AnalysisError: `min_rate` is not above 0.
    """
    if min_rate is not None and min_rate <= 0.0:
        raise AnalysisError(f"--min-rate {min_rate:g} must be above 0 requests/s")
    gates = (
        [_run_gate(run) for run in report.runs if run.held is not None]
        if min_rate is None
        else _rate_gates(report, min_rate)
    )
    if not gates:
        why = "; ".join(verdict.sentence for verdict in report.verdicts)
        raise NothingToJudge(f"nothing to judge: {why}")
    passed = all(gate.passed for gate in gates)
    said = " ".join(verdict.sentence for verdict in report.verdicts)
    sentence = f"Passed: {said}" if passed else f"Failed: {say_failed(gates)}. {said}"
    judged = [run for run in report.runs if run.good_ratio is not None]
    n = sum(run.requests for run in judged)
    ratio = sum((run.good_ratio or 0.0) * run.requests for run in judged) / n if n else None
    return CheckResult(
        passed=passed,
        sentence=sentence,
        goodput_ratio=ratio,
        interval=None,
        requests=sum(run.requests for run in report.runs),
        enough=all(run.holds in ("yes", "no") for run in report.runs),
        gates=gates,
        doubts=report.notes,
        reasons={
            "interval": "each run is judged alone",
            **({} if n else {"goodput_ratio": "summaries do not count good requests"}),
        },
    )


def _run_gate(run: RunRow) -> Gate:
    seen = (
        f"{say_ratio(run.good_ratio)} of {say_count(run.requests, 'request')} within the SLO"
        if run.good_ratio is not None
        else "missed"
        if run.held is False
        else "held, by the generator's summary"
    )
    return Gate(
        gate=run.name,
        passed=run.held is True,
        wanted="the SLO held",
        seen=seen,
        numbers=[
            _number(limit) for limit in sorted(run.limits, key=lambda row: row.met is not False)
        ],
    )


def _rate_gates(report: LoadTestReport, min_rate: float) -> list[Gate]:
    gates = []
    for verdict in report.verdicts:
        capacity = verdict.capacity
        held = capacity.holds_up_to_rps
        if held is None:
            continue
        of = f" of {capacity.model}" if len(report.verdicts) > 1 and capacity.model else ""
        broken = [
            _number(limit)
            for run in report.runs
            if run.name in capacity.runs and run.held is False
            for limit in run.limits
            if limit.met is False
        ]
        gates.append(
            Gate(
                gate=f"capacity{of}",
                passed=held >= min_rate,
                wanted=f"the SLO held up to {say_rate(min_rate, 'requests')}",
                seen=f"held up to {say_rate(held, 'requests')}" if held else "missed at every load",
                numbers=broken[:4],
            )
        )
    return gates


def _number(limit: LimitRow) -> str:
    if limit.metric == "errors":
        return (
            f"errors {(limit.value_ms or 0.0):.3g} % of {say_count(limit.n, 'request')}, "
            f"at most {limit.limit_ms:.3g} % allowed"
        )
    return say_limit(limit)
