"""A fix was applied: did it gain what was predicted? The prediction is made from the requests before it alone, and the observation is what remains of the change
once other traffic is accounted for. Each answer is a line of a ledger, and the ledger has the hit rate of each fix and each rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.client import decoded
from overrun.analysis.front.ledger import Applied, Outcome
from overrun.analysis.front.report import Report
from overrun.analysis.front.report_brief import cause_of, steps
from overrun.analysis.incident.deployments import named
from overrun.analysis.numbers.comparison.compare import QuantileChange
from overrun.analysis.whatif.prediction import Prediction
from overrun.analysis.words.encoding import decode
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import Finding, say_count, say_ms
from overrun.analysis.words.times import parse_duration, parse_time, rfc3339

_WINDOW: Final = ("since", "from", "to")
# What a fix itself changes of the traffic that a comparison evens out: its gain would be taken for other traffic's.
_TOKENS: Final = ("input tokens", "output tokens", "cached tokens")
_MOVES: Final[Mapping[str, tuple[str, ...]]] = {
    "cap": ("output tokens",),
    "reasoning_effort": ("output tokens",),
    "prompt_trim": ("input tokens", "cached tokens"),
    "context_limit": ("input tokens", "cached tokens"),
    "prefix_cache": ("cached tokens",),
    "kv_size": ("cached tokens",),
    "routing": ("cached tokens",),
    **dict.fromkeys(("step_cap", "tool_cap", "response_cache"), _TOKENS),
    **dict.fromkeys(("route_models", "side_model", "second_provider"), ("model", *_TOKENS)),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """When a fix was applied, how long before and after it is looked at, and how long it takes to settle."""

    at: datetime
    span: timedelta
    settle: timedelta

    def before(self) -> tuple[datetime, datetime]:
        """The window before the fix."""
        return self.at - self.span, self.at

    def after(self) -> tuple[datetime, datetime]:
        """The window after it has settled."""
        return self.at + self.settle, self.at + self.settle + self.span

    def sides(self) -> dict[str, str]:
        """The two windows as texts of a comparison."""
        windows = (("before", self.before()), ("after", self.after()))
        return {name: f"{a.isoformat()}..{b.isoformat()}" for name, (a, b) in windows}


def applied(
    source: Source,
    fix: str,
    parameters: Mapping[str, str],
    moment: Moment,
    texts: Mapping[str, str | None],
) -> Applied:
    """Hold the prediction of a fix against what came of it. `texts` are filters and limits.

    Raises:
        AnalysisError, CollectorError: an unknown fix or parameter, a window without requests, or no source to ask.
    """
    start, end = moment.before()
    own = {"from": start.isoformat(), "to": end.isoformat()}
    asked = {name: text for name, text in texts.items() if text and name not in _WINDOW}
    given = {**asked, **own, **parameters, "fix": fix}
    body = commands.whatif(Asked.read(table.WHATIF, given, source))
    prediction = decode(body.encode(), Prediction)
    made = Applied(fix=prediction.fix, parameters=dict(parameters), at=rfc3339(moment.at))
    report = commands.ask(Asked.read(table.REPORT, {**asked, **own}, source))
    advised = _advised(decoded(table.REPORT, report.encode()), prediction.fix)
    if advised is None:
        made.reasons["rule"] = "no finding of the window before advises this fix"
    else:
        made.rule, made.confidence = advised.rule, round(advised.confidence, 3)
    predicted = prediction.predicted
    if predicted is None:
        made.reasons["predicted_ms"] = prediction.reasons.get("predicted", "nothing is predicted")
        return made
    made.metric, made.quantile = predicted.metric, predicted.quantile
    made.before_ms, made.predicted_ms = predicted.before, predicted.after
    made.predicted_interval = predicted.interval
    _observe(made, source, asked, moment)
    made.outcome = outcome(made)
    return made


def advised(asked: Asked[Report], number: int, at: Moment | None) -> Applied:
    """What the step of a number in a report's DO predicts, as far as it is known; with the moment `at` of the past also what came of it.

    Raises:
        AnalysisError: the report advises no such step.
    """
    report = decoded(table.REPORT, commands.ask(asked).encode())
    known = steps(report)
    if not 1 <= number <= len(known):
        raise AnalysisError(
            f"the report advises {say_count(len(known), 'step')}, so there is no number {number}"
        )
    step = known[number - 1]
    given = {} if step.fix is None else step.fix.parameters
    moment = at.at if at is not None else datetime.now(UTC)
    made = Applied(
        fix=step.id, parameters={n: f"{v}" for n, v in given.items()}, at=rfc3339(moment)
    )
    cause = cause_of(report)
    if cause is None:
        made.reasons["rule"] = "the report names no cause"
    else:
        made.rule, made.confidence = cause.rule, round(cause.confidence, 3)
    if (gain := step.fix.predicted if step.fix else None) is None:
        why = step.fix.reasons.get("predicted") if step.fix else None
        made.reasons["predicted_ms"] = why or "no what-if computes this step"
        made.metric, made.quantile = report.verdict.metric, report.slo.percentile / 100.0
    else:
        made.metric, made.quantile = gain.metric, gain.quantile
        made.before_ms, made.predicted_ms = gain.before, gain.after
        made.predicted_interval, made.requests_before = gain.interval, report.window.requests
    if at is None:
        made.reasons["observed_ms"] = f"ask again with --at {made.at} once requests have come"
    else:
        filters = {name: text for name, text in asked.texts.items() if text and name not in _WINDOW}
        _observe(made, asked.source, filters, at)
    made.outcome = outcome(made)
    return made


def _advised(report: Report, fix: str) -> Finding | None:
    """The most certain finding that advises a fix."""
    found = [f for f in report.findings if f.fix is not None and f.fix.whatif == fix]
    return max(found, key=lambda f: f.confidence, default=None)


def _observe(made: Applied, source: Source, asked: Mapping[str, str], moment: Moment) -> None:
    """Put in what came of it, at the metric and quantile of the prediction."""
    try:
        answer = commands.ask(Asked.read(table.COMPARE, {**asked, **moment.sides()}, source))
    except AnalysisError as error:
        made.reasons["observed_ms"] = str(error)
        return
    found = decoded(table.COMPARE, answer.encode())
    made.requests_before, made.requests_after = found.before.requests, found.after.requests
    change = next(
        (
            quantile
            for metric in found.metrics
            if metric.metric == made.metric
            for quantile in metric.quantiles
            if made.quantile is not None and abs(quantile.quantile / 100.0 - made.quantile) < 1e-9
        ),
        None,
    )
    if change is None or change.after_ms is None or change.before_ms is None:
        reason = next(iter(change.reasons.values()), "") if change else ""
        made.reasons["observed_ms"] = reason or "too few requests in one of the two windows"
        return
    made.observed_ms = change.after_ms
    made.adjusted_for = found.adjusted_for
    moved = [name for name in _MOVES.get(made.fix, ()) if name in found.adjusted_for]
    _adjust(made, change, moved, found.reasons.get("mix", "traffic is not adjusted for"))


def _adjust(made: Applied, change: QuantileChange, moved: Sequence[str], why_not: str) -> None:
    """The observation for the same traffic; the plain one where the mix cannot be evened out, or is `moved` by the fix itself."""
    base = change.before_ms or 0.0
    if moved:
        why_not = f"the fix itself changes {', '.join(moved)}"
        change = msgspec.structs.replace(change, adjusted_ms=None)
        made.adjusted_for = []
    if change.adjusted_ms is not None and change.adjusted_interval is not None:
        made.adjusted_ms = base + change.adjusted_ms
        low, high = change.adjusted_interval
    elif change.difference_ms is not None and change.interval is not None:
        made.adjusted_ms = base + change.difference_ms
        low, high = change.interval
        made.reasons["adjustment"] = why_not
    else:
        made.reasons["adjusted_ms"] = "the change has no interval"
        return
    made.adjusted_interval = (base + low, base + high)


def outcome(made: Applied) -> Outcome:
    """As predicted where the observation's interval and the prediction's have something in common; less or more gained where they have not."""
    if made.adjusted_interval is None or made.predicted_ms is None:
        return "not_known"
    low, high = made.predicted_interval or (made.predicted_ms, made.predicted_ms)
    if made.adjusted_interval[0] > high:
        return "gained_less"
    return "gained_more" if made.adjusted_interval[1] < low else "as_predicted"


def render(made: Applied) -> str:
    """One answer as text."""
    lines = [f"APPLIED  {made.fix} at {made.at}: {made.outcome.replace('_', ' ')}"]
    if made.rule is not None:
        lines.append(f"  advised by {made.rule}, confidence {made.confidence:.0%}")
    if made.predicted_ms is not None and made.before_ms is not None and made.quantile is not None:
        lines.append(
            f"  {(made.metric or '').upper()} P{made.quantile * 100:g} before     {say_ms(made.before_ms)} ({say_count(made.requests_before, 'request')})"
        )
        lines.append(
            f"  predicted          {say_ms(made.predicted_ms)}{_interval(made.predicted_interval)}"
        )
    if made.observed_ms is not None:
        lines.append(
            f"  observed           {say_ms(made.observed_ms)} ({say_count(made.requests_after, 'request')})"
        )
    if made.adjusted_ms is not None:
        what = (
            f"with the same {', '.join(made.adjusted_for)}" if made.adjusted_for else "not adjusted"
        )
        lines.append(
            f"  for equal traffic  {say_ms(made.adjusted_ms)}{_interval(made.adjusted_interval)}, {what}"
        )
    lines += [
        f"  {name.removesuffix('_ms')} is not known: {why}" for name, why in made.reasons.items()
    ]
    return "\n".join(lines)


def _interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f" ({say_ms(bounds[0])} to {say_ms(bounds[1])})"


def deployed_at(source: Source, name: str) -> str:
    """When the last deployment with a name or version ended.

    Raises:
        AnalysisError: none was reported with it.
    """
    answer = commands.ask(Asked.read(table.DEPLOYMENTS, {}, source))
    found = decoded(table.DEPLOYMENTS, answer.encode())
    return named(found.deployments, name).at.isoformat()


def moment_of(at: str, span: str, settle: str) -> Moment:
    """Read a time and two durations, of which `settle` may be 0.

    Raises:
        AnalysisError: one of them cannot be read.
    """
    left_out = timedelta(0) if settle in ("0", "0s") else parse_duration(settle)
    return Moment(parse_time(at, datetime.now(UTC)), parse_duration(span), left_out)
