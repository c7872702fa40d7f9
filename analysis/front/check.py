"""Does this window pass? One gate for CI and load tests over the same numbers as the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from overrun.analysis.front.report import Report
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.outcomes.percentile_limits import LimitRow, say_limit
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import say_count, say_ms, say_ratio

SCHEMA: Final = "overrun.check/1"
# What the sentence says itself.
_SAID: Final = ("too_few_samples",)


class NothingToJudge(AnalysisError):
    """A window in which no request could be judged: bad input for a gate, not a failed one."""


class Gate(msgspec.Struct, kw_only=True):
    """One condition: what was wanted and what was seen, in words with units; `numbers` are the limits that it failed by.

    `certain` is whether chance leaves no doubt of the outcome, and `doubt` in words why it does: the measured figure decides all the same.
    """

    gate: str
    passed: bool
    wanted: str
    seen: str
    certain: bool = True
    doubt: str = ""
    numbers: list[str] = []


def say_failed(gates: Sequence[Gate]) -> str:
    """Return the gates that failed, each with the numbers that it failed by."""
    return "; ".join(
        f"{gate.gate} is {gate.seen.rstrip('.')}, required: {gate.wanted}"
        + (f": {'; '.join(gate.numbers)}" if gate.numbers else "")
        for gate in gates
        if not gate.passed
    )


class CheckResult(msgspec.Struct, kw_only=True):
    """The outcome of all gates. `interval` is the 95 % Wilson interval of the goodput ratio, `enough` whether n carries the SLO percentile.

    Of sampled requests the ratio is of those that they stand for, and the interval is of the n that are stored. `doubts` bend or spoil the figures, such as a
    closed loop, whose waiting is in no latency. Of engines' metrics alone the ratio is not known (null, with its interval): each limit is a gate of its own.
    """

    schema: Literal["overrun.check/1"] = SCHEMA
    passed: bool
    sentence: str
    goodput_ratio: float | None
    interval: tuple[float, float] | None
    requests: int
    enough: bool
    gates: list[Gate]
    doubts: list[str] = []
    reasons: dict[str, str] = {}


def check(
    report: Report, min_goodput: float | None = None, notes: Sequence[str] = ()
) -> CheckResult:
    """Judge a report: goodput at least `min_goodput` (0..1; default the SLO's target), and no status that outranks latency.

    `notes` are what the files' format says of the load (`Imported.notes`); with the data checks that did not pass they are the result's `doubts`.

    Raises:
        NothingToJudge: no request could be judged, and no engine's metrics either, with the reason.
    """
    wanted = report.slo.goodput_target if min_goodput is None else min_goodput
    if not 0.0 < wanted <= 1.0:
        raise AnalysisError(f"--min-goodput {wanted:g} must be above 0 and at most 1, such as 0.95")
    good = report.goodput
    if report.refused:
        raise NothingToJudge(f"nothing to judge: {report.refused}")
    if report.verdict.scope == "engine_only":
        return _by_metrics(report, notes)
    if good.ratio is None:
        raise NothingToJudge(
            f"nothing to judge: {good.reasons.get('ratio', report.verdict.sentence)}"
        )
    n = good.good + good.bad
    seen = f"{say_ratio(good.ratio)} of {say_count(n, 'request')}"
    interval = wilson(good.ratio * n, n)
    unsure = _doubt(report, interval, wanted, passed=good.ratio >= wanted)
    gates = [
        Gate(
            gate="goodput",
            passed=good.ratio >= wanted,
            wanted=f"at least {say_ratio(wanted)}",
            seen=seen,
            certain=not unsure,
            doubt=unsure,
            numbers=_numbers(report),
        ),
        *_other_percentiles(report),
    ]
    if report.verdict.status in ("failing", "traffic_lost"):
        gates.append(
            Gate(
                gate="status",
                passed=False,
                wanted="no failure",
                seen=report.verdict.status.replace("_", " "),
            )
        )
    passed = all(gate.passed for gate in gates)
    limits = ", ".join(
        f"{name.upper()} {say_ms(limit)}" for name, limit in report.slo.limits().items()
    )
    failed = say_failed(gates)
    enough = n >= min_n(report.slo.percentile)
    few = (
        ""
        if enough
        else f" Only {say_count(n, 'request')}: P{report.slo.percentile:g} needs {min_n(report.slo.percentile)}."
    )
    deciding = [gate for gate in gates if passed or not gate.passed]
    # One certain failure fails for certain, all passes must be certain.
    sure = (all if passed else any)(gate.certain for gate in deciding)
    outcome = ("Passed" if passed else "Failed") + ("" if sure else ", not certain")
    doubts = "" if sure else "".join(f" {gate.doubt}" for gate in deciding if gate.doubt)
    sentence = (
        f"{outcome}: {gates[0].seen} meet every limit ({limits}), required: {gates[0].wanted}."
        if passed
        else f"{outcome}: {failed}."
    ) + f"{doubts}{few}"
    return CheckResult(
        passed=passed,
        sentence=sentence,
        goodput_ratio=good.ratio,
        interval=interval,
        requests=n,
        enough=enough,
        gates=gates,
        doubts=_doubts(report, notes),
    )


def _doubts(report: Report, notes: Sequence[str]) -> list[str]:
    doubted = (one for one in report.data_quality if one.status != "ok" and one.check not in _SAID)
    return [*notes, *(f"{one.check}: {one.detail}" for one in doubted)]


def _doubt(report: Report, interval: tuple[float, float], wanted: float, *, passed: bool) -> str:
    """Why the outcome of the goodput gate is not certain; empty where it is."""
    low, high = interval
    over = report.verdict.status == "over_budget" and wanted == report.slo.goodput_target
    if low >= wanted if passed else (high < wanted or over):
        return ""
    return (
        f"With so many requests the share can be {say_ratio(low)} to {say_ratio(high)} by chance (95 % interval); "
        "the gate goes by the measured share."
    )


def _numbers(report: Report) -> list[str]:
    """The limits of the judged percentile with their numbers, those that are missed first, and how many requests failed."""
    judged = [row for row in report.limits if row.percentile == report.slo.percentile]
    said = [say_limit(row) for row in sorted(judged, key=lambda row: row.met is not False)]
    failed = report.goodput.failed_by.error
    return said + ([f"{say_count(failed, 'request')} failed"] if failed else [])


def _other_percentiles(report: Report) -> list[Gate]:
    """A gate for each limit at another percentile than the judged one."""
    return [
        Gate(
            gate=f"{row.metric} P{row.percentile:g}",
            passed=row.met,
            wanted=f"at most {say_ms(row.limit_ms)}",
            seen="not known" if row.value_ms is None else say_ms(row.value_ms),
            certain=row.clear,
            doubt="" if row.clear else _within_chance(row),
            numbers=[say_limit(row)],
        )
        for row in report.limits
        if row.percentile != report.slo.percentile and row.met is not None
    ]


def _within_chance(row: LimitRow) -> str:
    return (
        f"{row.missed:,} of {say_count(row.n, 'request')} are over the limit of {row.metric.upper()} P{row.percentile:g}, "
        "too few to leave no doubt; the gate goes by the measured share."
    )


def _by_metrics(report: Report, notes: Sequence[str]) -> CheckResult:
    """Judge the engines' metrics alone: every limit that their histograms tell of is a gate, and so are targets that give nothing."""
    verdict, needed = report.verdict, min_n(report.slo.percentile)
    field = f"p{report.slo.percentile:g}".replace(".", "_")
    gates, n = [], 0
    for metric, limit in report.slo.limits().items():
        stats = getattr(report.latency, f"{metric}_ms")
        value, edges = getattr(stats, field, None), getattr(stats, f"{field}_interval", None)
        if value is None:
            continue
        n = max(n, stats.n)
        seen = f"{say_ms(value)}" + (
            f", between {say_ms(edges[0])} and {say_ms(edges[1])}" if edges else ""
        )
        over = (verdict.status == "over_budget" and verdict.metric == metric) or bool(
            edges and edges[0] >= limit
        )
        gates.append(
            Gate(
                gate=metric,
                passed=not over,
                wanted=f"P{report.slo.percentile:g} at most {say_ms(limit)}",
                seen=seen,
                certain=bool(edges and (edges[1] <= limit or edges[0] >= limit)),
            )
        )
    if verdict.status == "targets_down":
        gates.append(
            Gate(gate="status", passed=False, wanted="targets that answer", seen=verdict.sentence)
        )
    elif verdict.status == "over_budget" and all(gate.passed for gate in gates):
        gates.append(
            Gate(gate="status", passed=False, wanted="within budget", seen=verdict.sentence)
        )
    elif verdict.status == "not_enough_data" or not gates:
        raise NothingToJudge(f"nothing to judge: {verdict.sentence}")
    passed = all(gate.passed for gate in gates)
    failed = say_failed(gates)
    held = "; ".join(f"{gate.gate} is {gate.seen}, required: {gate.wanted}" for gate in gates)
    unsure = "" if not passed or all(gate.certain for gate in gates) else ", not certain"
    sentence = (
        f"Passed by the engines' metrics alone{unsure}: {held}."
        if passed
        else f"Failed by the engines' metrics alone: {failed}."
    )
    why = "the engines' metrics show each latency alone, not whether one request met every limit"
    return CheckResult(
        passed=passed,
        sentence=sentence,
        goodput_ratio=None,
        interval=None,
        requests=n,
        enough=n >= needed,
        gates=gates,
        doubts=_doubts(report, notes),
        reasons=dict.fromkeys(("goodput_ratio", "interval"), why),
    )
