"""Does this window pass? One gate for CI and load tests over the same numbers as the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from overrun.analysis.front.report import Report
from overrun.analysis.numbers.goodput import wilson
from overrun.analysis.numbers.latency import min_n
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import say_count, say_ms, say_ratio

SCHEMA: Final = "overrun.check/1"
# What the sentence says itself.
_SAID: Final = ("too_few_samples",)


class NothingToJudge(AnalysisError):
    """A window in which no request could be judged: bad input for a gate, not a failed one."""


class Gate(msgspec.Struct, kw_only=True):
    """One condition: what was wanted and what was seen, in words with units."""

    gate: str
    passed: bool
    wanted: str
    seen: str


class CheckResult(msgspec.Struct, kw_only=True):
    """The outcome of all gates. `interval` is the 95 % Wilson interval of the goodput ratio, `enough` whether n carries the SLO percentile.

    Of sampled requests the ratio is of those that they stand for, and the interval is of the n that are stored. `doubts` bend or spoil the figures, such as a
    closed loop, whose waiting is in no latency.
    """

    schema: Literal["overrun.check/1"] = SCHEMA
    passed: bool
    sentence: str
    goodput_ratio: float
    interval: tuple[float, float]
    requests: int
    enough: bool
    gates: list[Gate]
    doubts: list[str] = []


def check(report: Report, min_goodput: float | None = None, notes: Sequence[str] = ()) -> CheckResult:
    """Judge a report: goodput at least `min_goodput` (0..1; default the SLO's target), and no status that outranks latency.

    `notes` are what the files' format says of the load (`Imported.notes`); with the data checks that did not pass they are the result's `doubts`.

    Raises:
        NothingToJudge: no request could be judged, with the reason.
    """
    wanted = report.slo.goodput_target if min_goodput is None else min_goodput
    if not 0.0 < wanted <= 1.0:
        raise AnalysisError(f"--min-goodput {wanted:g} must be above 0 and at most 1, such as 0.95")
    good = report.goodput
    if good.ratio is None:
        raise NothingToJudge(f"nothing to judge: {good.reasons.get('ratio', report.verdict.sentence)}")
    n = good.good + good.bad
    seen = f"{say_ratio(good.ratio)} of {say_count(n, 'request')}"
    gates = [Gate(gate="goodput", passed=good.ratio >= wanted, wanted=f"at least {say_ratio(wanted)}", seen=seen)]
    if report.verdict.status in ("failing", "traffic_lost"):
        gates.append(Gate(gate="status", passed=False, wanted="no failure", seen=report.verdict.status.replace("_", " ")))
    passed = all(gate.passed for gate in gates)
    limits = ", ".join(f"{name.upper()} {say_ms(limit)}" for name, limit in report.slo.limits().items())
    failed = "; ".join(f"{gate.gate} is {gate.seen}, wanted {gate.wanted}" for gate in gates if not gate.passed)
    enough = n >= min_n(report.slo.percentile)
    few = "" if enough else f" Only {say_count(n, 'request')}: P{report.slo.percentile:g} needs {min_n(report.slo.percentile)}."
    sentence = (f"Passed: {gates[0].seen} meet {limits} at once, wanted {gates[0].wanted}." if passed else f"Failed: {failed} ({limits}).") + few
    return CheckResult(
        passed=passed, sentence=sentence, goodput_ratio=good.ratio, interval=wilson(good.ratio * n, n), requests=n, enough=enough, gates=gates,
        doubts=[*notes, *(f"{found.check}: {found.detail}" for found in report.data_quality if found.status != "ok" and found.check not in _SAID)])
