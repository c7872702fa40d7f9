"""What of a report is worth waking a person, and how long must it hold first? A report and burn rates in, conditions out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from overrun.analysis.evidence.leading_indicators import Indicator, said, worded
from overrun.analysis.front.alerts.incidents import Condition, Seen
from overrun.analysis.front.predictor_watch import State as Predictor
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.outcomes.burn_rate import Burn, BurnPair
from overrun.analysis.words.finding import Severity, printable

# Own defaults: a deploy restarts a replica within two minutes, so five pass before a target counts as down. A verdict holds while the last five minutes are
# too slow as well, and must do so for ten: a spike of three minutes is in these five for eight. Quality and predictors change by the day.
LASTING_S, DOWN_S, SLOW_S = 600.0, 300.0, 1_800.0
BURN_S: Final = 120.0
# Burns above this are spent within days: someone has to act now.
_URGENT: Final = 3.0
_JUDGED: Final = ("within_budget", "possibly_over_budget", "over_budget", "failing")
_DOWN: Final = ("down", "unreadable")
_LONGEST: Final = 240


def seen(at: float, report: Report, burn: Burn, predictor: Predictor | None) -> Seen:
    """What holds at a moment (Unix seconds)."""
    conditions = [*_requests(report, burn), *_targets(report), *_data(report), *_lengths(predictor)]
    judged = report.verdict.status in (*_JUDGED, "traffic_lost")
    return Seen(
        at=at,
        conditions=conditions,
        unknown=frozenset() if judged else frozenset({"requests"}),
    )


def warning(learned: Indicator, now: float | None, every_s: float) -> Condition | None:
    """The condition of a learned warning whose indicator is `now` beyond its threshold. One that comes later than the next evaluation warns nobody."""
    if now is None or not learned.recommended or (learned.lead_s_median or 0.0) < every_s:
        return None
    if not (now < learned.threshold if learned.falling else now > learned.threshold):
        return None
    words, value = worded(learned, now)
    return Condition(
        group="early",
        key=learned.indicator,
        severity="info",
        summary=printable(
            f"{words[0].upper()}{words[1:]} {'fell' if learned.falling else 'rose'} to {value}. Learned warning: {said([learned])}",
            _LONGEST,
        ),
        for_s=0.0,
    )


def _requests(report: Report, burn: Burn) -> Iterator[Condition]:
    verdict = report.verdict
    for pair in firing(burn.pairs):
        if pair.long_burn is not None:
            severity: Severity = "critical" if pair.threshold >= _URGENT else "warning"
            yield Condition(
                group="requests",
                key=f"burn_{pair.long_s}s",
                severity=severity,
                summary=f"The error budget burns {pair.long_burn:.1f} times as fast as allowed over {pair.long_s // 60} min "
                f"(target {burn.target:.1%}, {pair.bad:,} of {pair.requests:,} requests bad)",
                for_s=BURN_S,
            )
    if verdict.status != "traffic_lost" and not lasts(burn.pairs):
        return
    if verdict.status in ("failing", "traffic_lost"):
        yield _verdict(report, verdict.status, "critical")
    elif verdict.status == "over_budget":
        stage = verdict.stage or "latency"
        yield _verdict(report, f"budget_{stage}", "warning")


def firing(pairs: Sequence[BurnPair]) -> list[BurnPair]:
    """The pairs that fire while the last hour still spends too much: a window of six hours alone keeps an incident open for as long after its end."""
    hour = min(pairs, key=lambda pair: pair.long_s).long_burn
    return [pair for pair in pairs if pair.firing and (hour is None or hour > 1.0)]


def lasts(pairs: Sequence[BurnPair]) -> bool:
    """Whether the shortest window still spends more of the budget than is allowed; true where that is not known."""
    shortest = min(pairs, key=lambda pair: pair.short_s)
    return shortest.short_burn is None or shortest.short_burn > 1.0


def _verdict(report: Report, key: str, severity: Severity) -> Condition:
    return Condition(
        group="requests",
        key=key,
        severity=severity,
        summary=printable(report.verdict.sentence, _LONGEST),
        for_s=LASTING_S,
    )


def _targets(report: Report) -> Iterator[Condition]:
    down = [target for target in report.targets if target.state in _DOWN]
    every = len(down) == len(report.targets)
    for target in down:
        yield Condition(
            group="targets",
            key=target.instance,
            severity="critical" if every else "warning",
            summary=printable(
                f"{len(down)} of {len(report.targets)} metrics targets return nothing: {target.instance} {target.state} ({target.reason})",
                _LONGEST,
            ),
            for_s=DOWN_S,
        )


def _data(report: Report) -> Iterator[Condition]:
    if report.verdict.status not in _JUDGED:
        return  # without requests most checks have nothing to look at
    for check in report.data_quality:
        if check.status == "fail":
            yield Condition(
                group="data",
                key=check.check,
                severity="warning",
                summary=printable(
                    f"The telemetry fails the check {check.check}: {check.detail}", _LONGEST
                ),
                for_s=SLOW_S,
            )


def _lengths(predictor: Predictor | None) -> Iterator[Condition]:
    if predictor is not None and predictor["retrain"]:
        yield Condition(
            group="predictor",
            key="retrain",
            severity="warning",
            summary=printable(
                f"The output-length predictor has drifted: {predictor['retrain']}", _LONGEST
            ),
            for_s=SLOW_S,
        )
