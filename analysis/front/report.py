"""The whole answer for one window as one typed object: the JSON contract `overrun.report/1`.

Built from a cursor on the collector's database; the same bytes go out on the command line and over HTTP, and are
decoded into the same types by the client.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import duckdb
import msgspec
import polars as pl

from overrun.analysis.diagnosis import certain_misses
from overrun.analysis.diagnosis.checklist import Step, checklist
from overrun.analysis.diagnosis.diagnose import Diagnosed, Known, diagnose
from overrun.analysis.diagnosis.engine_only import EngineOnly, engine_only
from overrun.analysis.diagnosis.mitigation import rolled_back
from overrun.analysis.diagnosis.sampled_causes import (
    LEAST_LATELY,
    MOST_AT_ONCE,
    NO_CAUSES,
    Background,
    Causes,
    Simulate,
    Sought,
    crossed,
    drawn,
    lookups,
    seek,
)
from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.evidence.engine_overview import indicators, rooms_of
from overrun.analysis.evidence.instances import InstanceRow, instance_rows
from overrun.analysis.evidence.leading_indicators import Indicator
from overrun.analysis.front.ledger import with_records
from overrun.analysis.front.window_numbers import Numbers, SampleFacts, numbers_of
from overrun.analysis.incident.baseline import choose
from overrun.analysis.incident.breach import Baseline
from overrun.analysis.incident.deployments import beside
from overrun.analysis.incident.limit_fit import Unfit, say_unfit, usual
from overrun.analysis.numbers.coverage.sampling import Sampling, assess, evened, whose_rate
from overrun.analysis.numbers.latency.client_vs_engine import Sides, sides
from overrun.analysis.numbers.latency.perceived_latency import Further, further
from overrun.analysis.numbers.latency.percentiles import Latency, min_n, no_latency
from overrun.analysis.numbers.outcomes.cost import Cost, Prices, cost, priced
from overrun.analysis.numbers.outcomes.failures import Errors, Retries, retries
from overrun.analysis.numbers.outcomes.goodput import FailedBy, Goodput, goodput, judge, own_limits
from overrun.analysis.numbers.outcomes.percentile_limits import (
    LimitRow,
    judged_rows,
    limit_rows,
    most_missed,
)
from overrun.analysis.numbers.quality.checks import (
    checks,
    evidence_checks,
    held_back,
    without_spoiled,
)
from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.quality.targets import Sent, Target, UnknownMetrics, sent
from overrun.analysis.numbers.quality.targets import checks as arrived_checks
from overrun.analysis.numbers.requests.stored_names import outside, read_instead, unstored
from overrun.analysis.numbers.stages.budget import Configured, StageRow, budgets_for
from overrun.analysis.numbers.stages.budget_rows import BudgetRow
from overrun.analysis.numbers.stages.headroom import Room
from overrun.analysis.numbers.stages.service_edges import Edges
from overrun.analysis.numbers.window import (
    FIRST_TOKEN_PATH,
    FOR_RULES,
    RequestFrame,
    Window,
    count,
    load,
)
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import FINDING_CAUSES, SIMULATING, Finding
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import to_us

SCHEMA: Final = "overrun.report/1"
# Why a report has no part that only some verdicts have.
_UNJUDGED: Final[dict[str, str]] = {
    "within_budget": "latency is within budget",
    "possibly_over_budget": "latency is over its limit, but not for certain",
    "failing": "requests fail",
    "traffic_lost": "requests stopped arriving",
    "no_data": "there is no data",
    "targets_down": "the metrics targets return nothing",
    "not_enough_data": "there is not enough data for a verdict",
    "over_budget": "no stage is judged",
}
_NO_VERDICT: Final = (
    *("metric", "stage", "cause", "onset", "trend", "affected"),
    *("owner", "mitigation", "rollback", "recheck_after_s"),
)
_SEEKING: Final = Causes(Known(None, None, None), [], FINDING_CAUSES, None)


class WindowFacts(msgspec.Struct, kw_only=True):
    """The window's bounds in UTC (null without requests) and what it holds.

    `incomplete` requests are not in `requests`.
    """

    start: datetime | None
    end: datetime | None
    requests: int
    llm_calls: int
    spans: int
    incomplete: int
    reasons: dict[str, str] = {}


class Report(msgspec.Struct, kw_only=True):
    """One window judged against one SLO. Times in milliseconds, ratios 0..1; null has its reason in the same object.

    `instances` has a row per engine instance, where their metrics came, and `targets` one per scraped page. `refused` names a filter
    that is stored nowhere: the command line ends with 2 then.
    `limits` has a row per percentile limit of the SLO; of limits at several percentiles `slo` is the part that is missed by most, and the verdict is about it.
    `unfit` has limits that too many requests missed before anything changed: `slo` then has the ones that would fit, and the verdict is judged
    by them; `goodput` keeps the limits that were asked for.
    Of more requests than `[answers] most_requests` a sample is read, and `sample` says of how many; parts that it does not list as exact are of the sample.
    `further` has the latencies that no limit is on, where requests carry any, `budgets` a row per budget where requests are held to those of their own route or
    model. The numbers are of now; the findings are `findings_age_s` old (0: made with the numbers; null: still being sought, or not asked for).
    """

    schema: Literal["overrun.report/1"] = SCHEMA
    window: WindowFacts
    baseline: Baseline | None
    slo: Slo
    latency: Latency
    goodput: Goodput
    stages: list[StageRow]
    errors: Errors
    retries: Retries
    checklist: list[Step]
    verdict: Verdict
    findings: list[Finding]
    findings_age_s: float | None = None
    indicators: list[Indicator]
    data_quality: list[Check]
    cost: Cost | None = None
    sides: list[Sides] = []
    further: list[Further] = []
    edges: Edges | None = None
    budgets: list[BudgetRow] = []
    headroom: list[Room] = []
    instances: list[InstanceRow] = []
    targets: list[Target] = []
    unknown_metrics: UnknownMetrics = msgspec.field(default_factory=UnknownMetrics)
    limits: list[LimitRow] = []
    unfit: list[Unfit] = []
    refused: str = ""
    sample: SampleFacts | None = None
    explanation: Explanation | None = None
    reasons: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Report {self.verdict.status}: {self.verdict.sentence}>"


def build(  # noqa: PLR0913
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None = None,
    *,
    prices: Prices | None = None,
    with_findings: bool = True,
    simulate: Simulate | None = None,
    sought: Sought = seek,
    recent: Background | None = None,
    ledger: Path | None = None,
) -> Report:
    """Report on the requests of a window.

    Args:
        con: a cursor on a database with the collector's views; only read from.
        window: which requests.
        slo: limits per request.
        budgets: configured budgets in milliseconds by stage or group name, of routes and models; scaled defaults where not given.
        prices: of tokens by model; without them the report has throughput and no cost.
        with_findings: False leaves out causes and fixes, which cost more than all the numbers.
        simulate: puts simulated figures into the causes' fixes (whatif.for_findings); without it they are bounds.
        sought: gives the causes of a window of more than `MOST_AT_ONCE` requests with their age; None while they are being sought.
        recent: remembers causes that came with a report; where the same is asked again within moments they are told again, with their age, if they are about
            this breach.
        ledger: where the answers of fixes that were applied are kept; findings and fixes get their hit rates from it.

    Raises:
        BudgetError: an unknown stage or group in `budgets`.
    """
    made = _of_part(
        con,
        window,
        most_missed(con, window, slo) if slo.also else slo,
        budgets,
        prices,
        simulate,
        sought,
        recent,
        with_findings=with_findings,
    )
    if slo.also and made.window.requests and made.limits:
        made.limits = limit_rows(judged_rows(con, window), slo)
    if ledger is not None:
        made.findings = with_records(made.findings, ledger)
    _name_deployments(con, made)
    if made.sample is None:
        made.reasons = made.reasons | {"sample": "every request of the window was read"}
    if made.explanation is None:
        made.reasons = made.reasons | {"explanation": "no open diagnosis was made of this window"}
    return made


def _name_deployments(con: duckdb.DuckDBPyConnection, made: Report) -> None:
    """Put the deployments around the onset before what else changed; where no cause is known, rolling back is the first thing to do."""
    verdict = made.verdict
    found = beside(con, verdict.onset)
    if not found:
        return
    verdict.changed = [*found, *verdict.changed]
    step, undo = verdict.mitigation, verdict.rollback
    if verdict.cause is None and step and undo and not step.startswith("Roll back"):
        verdict.mitigation, verdict.rollback = rolled_back(step, undo, found[-1])


def _of_part(  # noqa: PLR0913
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    prices: Prices | None,
    simulate: Simulate | None,
    sought: Sought,
    recent: Background | None,
    *,
    with_findings: bool,
) -> Report:
    """The report for limits at one percentile; parameters as of `build`."""
    asked, slo = slo, msgspec.structs.replace(slo, given=True)
    requests = count(con, window)
    # Of a sample that is read anyway the causes are no second question.
    sampling = sought is seek and requests > window.most
    at_once = with_findings and (requests <= MOST_AT_ONCE or sampling)
    began = time.monotonic()
    if at_once and recent is not None and requests >= LEAST_LATELY:
        lately = recent.lately(window, asked, budgets, requests)
        again = (
            None
            if lately is None
            else _again(con, window, asked, budgets, prices, simulate, requests, lately)
        )
        if again is not None:
            return again
    frame = load(con, window, without=_unread(sampling, at_once=at_once), expected=requests)
    if frame.rows.is_empty():
        refused = unstored(con, window)
        if refused:
            return _of_nothing(frame, refused, slo, budgets)
        arrived = sent(con, frame.start or window.start, frame.end or window.end)
        engine = engine_only(con, frame, slo, arrived)
        if engine is not None:
            budgets_for(slo, next(iter(slo.limits())), budgets)
            return _of_engine(frame, engine, slo, arrived)
    sampled = assess(con, frame, weigh=True)
    if sampled.refused or (sampled.partial and frame.rows.height < min_n(slo.percentile)):
        budgets_for(slo, next(iter(slo.limits())), budgets)
        return _refused(con, frame, sampled, slo)
    frame = sampled.applied(frame)
    slo = slo if asked.given or not with_findings else usual(evened(frame), slo)
    told = sought(con, window, slo, budgets, requests) if with_findings and not at_once else None
    apart = None if at_once or not with_findings else told[1] if told else _SEEKING
    made, found = _of_requests(
        con,
        frame,
        sampled,
        slo,
        budgets,
        prices,
        simulate,
        apart,
        with_findings=at_once,
    )
    if found.unfit:
        made.unfit = [
            msgspec.structs.replace(one, since=made.verdict.onset or one.since)
            if one.metric == made.verdict.metric
            else one
            for one in found.unfit
        ]
        made.verdict.sentence = f"{say_unfit(found.unfit, slo)} {made.verdict.sentence}"
    if made.verdict.status == "no_data" and (why := outside(con, window)):
        made.refused, made.verdict.sentence = why, f"No data: {why}."
    elif made.verdict.status == "no_data" and (read := read_instead(con, window)):
        made.verdict.sentence = f"No request to judge in the window. {read}"
    if at_once and recent is not None and requests >= LEAST_LATELY:
        causes = Causes(
            found.known or NO_CAUSES,
            made.indicators,
            made.reasons.get("indicators"),
            made.edges,
            made.headroom,
        )
        recent.remember(window, asked, budgets, causes, time.monotonic() - began)
    made.findings_age_s = 0.0 if at_once else told[0] if told else None
    if made.findings_age_s is None:
        made.reasons["findings_age_s"] = FINDING_CAUSES if with_findings else "not asked for"
    return made


def _unread(sampling: bool, *, at_once: bool) -> tuple[str, ...]:
    """The columns that are read later, where they turn out to be needed: of very many requests each costs as much as a count."""
    if sampling:
        return FIRST_TOKEN_PATH
    return () if at_once else (*FOR_RULES, *FIRST_TOKEN_PATH)


def _again(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    prices: Prices | None,
    simulate: Simulate | None,
    requests: int,
    lately: tuple[float, Causes],
) -> Report | None:
    """The numbers of now with the causes found lately; None where those are about another breach, or there is nothing to judge."""
    frame = load(con, window, without=(*FOR_RULES, *FIRST_TOKEN_PATH), expected=requests)
    sampled = assess(con, frame, weigh=True)
    if frame.rows.is_empty() or sampled.refused:
        return None
    frame = sampled.applied(frame)
    slo = slo if slo.given else usual(evened(frame), slo)
    made, found = _of_requests(
        con, frame, sampled, slo, budgets, prices, simulate, lately[1], with_findings=False
    )
    made.findings_age_s = lately[0]
    return made if found.why_no_causes is None else None


def leading(report: Report) -> Explanation | None:
    """Return the open diagnosis where it leads the answer: a cause that is known by a finding, and requests that meet a given limit, are answered by the verdict."""
    verdict, found = report.verdict, report.explanation
    if found is None or not found.places:
        return None
    rules = {finding.rule for finding in report.findings}
    known = verdict.cause_status == "known" and verdict.cause in rules
    fine = verdict.status == "within_budget" and verdict.scope == "requests" and report.slo.given
    return None if known or fine else found


def seeking(report: Report) -> bool:
    """Return whether the findings of a report are still being sought."""
    return report.reasons.get("findings_age_s") == FINDING_CAUSES


def unfinished(report: Report) -> bool:
    """Return whether causes are still being sought, or the effect of a fix is still being simulated."""
    return seeking(report) or any(
        finding.fix is not None and finding.fix.reasons.get("simulated") == SIMULATING
        for finding in report.findings
    )


def _of_requests(  # noqa: PLR0913
    con: duckdb.DuckDBPyConnection,
    whole: RequestFrame,
    sampled: Sampling,
    slo: Slo,
    budgets: Configured | None,
    prices: Prices | None,
    simulate: Simulate | None,
    apart: Causes | None,
    *,
    with_findings: bool,
) -> tuple[Report, Diagnosed]:
    """The report of requests that stand for all, or can be weighted so that they do; with causes that were sought `apart`, or with findings of its own."""
    chosen = choose(con, whole, slo)
    doubts = held_back(
        checks(con, whole, slo, sampled), whole, chosen.frame if chosen is not None else None
    )
    doubts += evidence_checks(whole) if with_findings or apart else []
    frame, spoiled = without_spoiled(whole, doubts)
    numbers = numbers_of(con, frame, sampled, slo, spoiled)
    even = replace(evened(frame), counted=numbers.counted)
    among = drawn(sampled, even, chosen.frame if chosen else None)
    looked = lookups(con, frame, slo, simulate, among)
    found = diagnose(
        even,
        slo,
        looked,
        baseline=chosen,
        budgets=budgets,
        with_findings=with_findings,
        coverage=sampled.coverage_of(even),
        known=apart.known if apart else None,
    )
    learned, why_none = (
        (apart.indicators, apart.why_no_indicators)
        if apart
        else indicators(con, frame, slo)
        if with_findings
        else ([], "not asked for")
    )
    between = (
        apart.edges
        if apart
        else crossed(con, frame, found.verdict.onset, frame.requests)
        if with_findings
        else None
    )
    judged = numbers.goodput
    judged.own_limits = own_limits(frame.rows)
    if sampled.kind == "part":
        judged.rps, judged.reasons = None, judged.reasons | {"rps": whose_rate(sampled)}
    arrived = sent(con, frame.start, frame.end)
    onset = found.verdict.onset
    made = Report(
        window=_window_facts(frame, numbers),
        baseline=found.baseline,
        slo=slo,
        latency=numbers.latency,
        goodput=judged,
        stages=found.stages,
        errors=numbers.errors,
        retries=retries(con, frame.window),
        checklist=found.checklist,
        verdict=found.verdict,
        findings=found.findings,
        indicators=learned,
        data_quality=[*doubts, *arrived_checks(arrived, with_requests=True)],
        instances=instance_rows(
            con,
            frame.start,
            frame.end,
            frame.window.model,
            arrived,
            from_us=None if onset is None else to_us(onset),
        )
        if arrived.indicators or arrived.targets
        else [],
        targets=arrived.targets,
        unknown_metrics=arrived.unknown,
        limits=numbers.limits,
        sample=numbers.sample,
        cost=cost(con, frame, prices),
        sides=sides(con, frame.window),
        further=further(con, frame.window, weighted=sampled.weights is not None, spoiled=spoiled),
        edges=between,
        budgets=found.budgets,
        headroom=apart.headroom
        if apart
        else rooms_of(even, slo, partial=sampled.partial)
        if with_findings
        else [],
        explanation=None if isinstance(found.explained, str) else found.explained,
        reasons=_reasons(frame, found, why_none, between, looked.older),
    )
    _price(made, prices)
    return made, found


def _price(made: Report, prices: Prices | None) -> None:
    """Say of the findings' fixes what the tokens that they save or add cost, where the models have prices."""
    if prices is None or made.cost is None or not made.window.requests:
        return
    schema = {"model": pl.String, "input_tokens": pl.Int64, "output_tokens": pl.Int64}
    calls = pl.DataFrame(
        [(one.model, one.input_tokens, one.output_tokens) for one in made.cost.models],
        schema=schema,
        orient="row",
    )
    for at, finding in enumerate(made.findings):
        if finding.fix is not None and finding.fix.predicted is not None:
            predicted = priced(finding.fix.predicted, calls, made.window.requests, prices)
            made.findings[at] = msgspec.structs.replace(
                finding, fix=msgspec.structs.replace(finding.fix, predicted=predicted)
            )


def _of_engine(frame: RequestFrame, engine: EngineOnly, slo: Slo, arrived: Sent) -> Report:
    """The report of a window that holds engine metrics and no request."""
    none = "the engine's histograms give each latency alone: it is not known whether one request met every limit"
    facts = _window_facts(frame)
    if facts.start is None or facts.end is None:
        facts.start, facts.end = engine.start, engine.end
        facts.reasons = {} if engine.start and engine.end else facts.reasons
    return Report(
        window=facts,
        baseline=None,
        slo=slo,
        latency=engine.latency,
        goodput=Goodput(
            ratio=None,
            rps=None,
            good=0,
            bad=0,
            unmeasurable=0,
            failed_by=FailedBy(),
            reasons=dict.fromkeys(("ratio", "rps"), none),
        ),
        stages=[],
        errors=_no_errors("no spans"),
        retries=_no_retries("no spans"),
        checklist=checklist(frame, slo, None, engine.latency),
        verdict=engine.verdict,
        findings=[],
        indicators=[],
        data_quality=engine.checks,
        instances=engine.instances,
        explanation=engine.explanation,
        targets=arrived.targets,
        unknown_metrics=arrived.unknown,
        reasons=dict.fromkeys(
            ("baseline", "findings", "findings_age_s", "stages", "cost", "edges"),
            "metrics alone: no request has spans",
        ),
    )


def _of_nothing(frame: RequestFrame, refused: str, slo: Slo, budgets: Configured | None) -> Report:
    """The report of a filter that names nothing that is stored: no other data stands in."""
    budgets_for(slo, next(iter(slo.limits())), budgets)
    why = "a filter names nothing that is stored"
    return Report(
        window=_window_facts(frame),
        baseline=None,
        slo=slo,
        latency=no_latency(why),
        goodput=Goodput(
            ratio=None,
            rps=None,
            good=0,
            bad=0,
            unmeasurable=0,
            failed_by=FailedBy(),
            reasons=dict.fromkeys(("ratio", "rps"), why),
        ),
        stages=[],
        errors=_no_errors(why),
        retries=_no_retries(why),
        checklist=checklist(frame, slo, None),
        verdict=Verdict(
            status="no_data",
            sentence=f"No data: {refused}.",
            reasons=dict.fromkeys(_NO_VERDICT, why),
        ),
        findings=[],
        indicators=[],
        data_quality=[],
        refused=refused,
        reasons=dict.fromkeys(
            ("baseline", "findings", "findings_age_s", "stages", "cost", "edges", "explanation"),
            why,
        ),
    )


def _refused(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, sampled: Sampling, slo: Slo
) -> Report:
    """The report of requests that do not stand for all: what is in the store, and no percentile, share or rate."""
    why = sampled.why
    certain = (
        None
        if sampled.cut_from is None
        else certain_misses.verdict(frame, slo, sampled.cut_from, sampled.detail)
    )
    arrived = sent(con, frame.start, frame.end)
    engine = None if certain is not None else engine_only(con, frame, slo, arrived)
    if engine is not None and engine.latency.e2e_ms.n + engine.latency.ttft_ms.n:
        made = _of_engine(frame, engine, slo, arrived)
        made.verdict.sentence = f"The stored requests are a selection ({sampled.detail}), so the engine's own metrics are judged. {made.verdict.sentence}"
        made.data_quality = [*checks(con, frame, slo, sampled), *made.data_quality]
        made.reasons |= dict.fromkeys(made.reasons, why)
        return made
    judged = goodput(judge(frame.rows, slo), frame.seconds)
    judged.ratio = judged.rps = None
    judged.reasons = dict.fromkeys(("ratio", "rps"), why)
    sentence = f"Not enough data to judge: {sampled.detail}. Percentiles, goodput and rates of such a selection would be wrong: keep every trace, or sample by probability."
    return Report(
        window=_window_facts(frame),
        baseline=None,
        slo=slo,
        latency=no_latency(why, frame.rows.height)
        if certain is None or sampled.cut_from is None
        else certain_misses.latency(frame, sampled.cut_from, why),
        goodput=judged,
        stages=[],
        errors=_no_errors(why),
        retries=_no_retries(why),
        checklist=checklist(frame, slo, None),
        verdict=certain
        or Verdict(
            status="not_enough_data", sentence=sentence, reasons=dict.fromkeys(_NO_VERDICT, why)
        ),
        findings=[],
        indicators=[],
        data_quality=checks(con, frame, slo, sampled),
        reasons=dict.fromkeys(
            ("baseline", "findings", "findings_age_s", "stages", "cost", "edges", "explanation"),
            why,
        ),
    )


def _no_errors(why: str) -> Errors:
    nulls = ("ratio", "abandoned_ratio", "truncated_ratio", "abandoned_after_ms")
    return Errors(
        ratio=None, abandoned_ratio=None, truncated_ratio=None, reasons=dict.fromkeys(nulls, why)
    )


def _no_retries(why: str) -> Retries:
    nulls = ("attempts", "wasted_ms", "wasted_tokens", "on_slow", "on_error")
    return Retries(
        attempts=None,
        wasted_ms=None,
        wasted_tokens=None,
        on_slow=None,
        on_error=None,
        reasons=dict.fromkeys(nulls, why),
    )


def to_json(report: Report) -> bytes:
    """Encode a report as UTF-8 JSON; times as RFC 3339 in UTC, no NaN."""
    return encode(report)


def from_json(data: bytes) -> Report:
    """Decode a report that `to_json` wrote.

    Raises:
        AnalysisError: other JSON, or a report of another schema version.
    """
    try:
        return decode(data, Report)
    except msgspec.MsgspecError as error:
        raise AnalysisError(
            f"not a report of schema {SCHEMA}: {error}; use the same version on both sides"
        ) from error


def _window_facts(frame: RequestFrame, numbers: Numbers | None = None) -> WindowFacts:
    rows = frame.rows
    return WindowFacts(
        start=frame.start,
        end=frame.end,
        requests=rows.height if numbers is None else numbers.requests,
        llm_calls=int(rows["llm_calls"].sum()) if numbers is None else numbers.llm_calls,
        spans=int(rows["spans"].sum()) if numbers is None else numbers.spans,
        incomplete=frame.incomplete,
        reasons={}
        if frame.start and frame.end
        else dict.fromkeys(("start", "end"), "no request and no bound given"),
    )


def _reasons(
    frame: RequestFrame,
    found: Diagnosed,
    why_none: str | None,
    between: Edges | None,
    older: Callable[[], str],
) -> dict[str, str]:
    reasons = {} if why_none is None else {"indicators": why_none}
    if isinstance(found.explained, str):
        reasons["explanation"] = found.explained
    if found.baseline is None:
        asked = frame.window.baseline
        reasons["baseline"] = (
            "none was asked for"
            if asked == "none"
            else f"no healthy window of the same hours, and no healthy stretch before an onset: {older()}"
            if asked == "auto" and found.verdict.status != "within_budget"
            else "no healthy window of the same hours, and no healthy stretch before an onset"
            if asked == "auto"
            else "the baseline holds no request, or requests that are not representative"
        )
    if found.verdict.status != "over_budget" and not found.findings:
        reasons["findings"] = (
            f"{_UNJUDGED[found.verdict.status]}: causes are searched only for latency over budget"
        )
    elif found.why_no_causes is not None:
        reasons["findings"] = found.why_no_causes
    if between is None:
        reasons["edges"] = "no request and no bound given" if why_none is None else why_none
    if not found.stages:
        reasons["stages"] = _UNJUDGED[found.verdict.status]
    return reasons | {f"findings.{rule}": why for rule, why in found.skipped.items()}
