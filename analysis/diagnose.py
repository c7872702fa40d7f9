"""Was the budget broken, by which stage and why? Takes loaded frames, runs the rules, and states one verdict.

Everything here is computed from the frames that are passed in; ids and span names of the few exemplar traces are
looked up through the two callables.
"""

import functools
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from analysis import incident
from analysis.accounts import abandoned
from analysis.baseline import WORSE_PART, Chosen
from analysis.budget import (
    GROUPS,
    OTHER,
    STAGES,
    BoolArray,
    Budgets,
    Configured,
    FloatArray,
    StageRow,
    StageTimes,
    budgets_for,
    overrun_shares,
    path_of,
    stage_rows,
    stage_times,
)
from analysis.budget_rows import BudgetRow, budget_rows
from analysis.calls import come_together
from analysis.case import Case, Lookups, Period
from analysis.checklist import Step, checklist
from analysis.departure import departure
from analysis.finding import FINDING_CAUSES, MIN_BREACHING, Diagnosis, Finding, Owner, RuledOut, printable, say_count, say_limits, say_ms, say_ratio
from analysis.goodput import Z_ONE_SIDED, Goodput, Judged, clearly_below, goodput, judge, limits_of, weights_of, wilson, with_own
from analysis.incident import Affected, Changed, IntArray, Trend, from_us, in_time, to_us
from analysis.latency import min_n, quantile
from analysis.leaving import by_choice
from analysis.ranking import Ranked, run_rules, without
from analysis.rules import rules
from analysis.slo import Slo
from analysis.tail import Tail, attribute, attribute_slow
from analysis.unknown import FIGURES, unseen, without_before
from analysis.window import RequestFrame

Status = Literal["within_budget", "over_budget", "failing", "traffic_lost", "not_enough_data", "no_data"]
Metric = Literal["ttft", "itl", "tpot", "e2e", "errors"]

# Above this share of the excess without a span, the answer is where to instrument; own default.
MOST_UNATTRIBUTED: Final = 0.3
# A stage that explains less of the excess than this is listed as ruled out; own default.
RULED_OUT_BELOW: Final = 0.1
RECHECK_DEFAULT_S: Final = 300
# What is judged since an onset must be this part of the window at least: a shorter stretch is a bad moment; own default.
MIN_SINCE: Final = 0.1
# ...unless it lasted for so long: ten minutes of a broken service are no moment, however long the window is; own default.
LASTING_S: Final = 600.0
# ...and so long: below it a busy moment of a queue, in which all requests share one fate, is as likely; own default.
MIN_SINCE_S: Final = 60.0
# Fewest requests of the first part of a baseline that stands for all of it: rules compare replicas and tenants, of which some have few; own default.
MIN_EARLIER: Final = 300
# Fewest requests of a baseline with whose slowest part the slow ones are compared, where the percentile itself would need more of them; own default.
MIN_COMPARED: Final = 100
# Requests that overlap share their fate, and the onset was chosen where it looks worst: so many count as one there; own default.
DEPENDENT: Final = 4
# A breach whose onset was found this far away is the same one: a sample or some minutes more of data move the change point; own default.
SAME_ONSET: Final = timedelta(minutes=5)
_MOST_RULED_OUT: Final = 12
# Limits and waste that harm nobody until the load rises: they may be there in all that is recorded.
LIES_IN_WAIT: Final = frozenset({
    "missing_cancellation", "under_capacity", "kv_pressure", "speculation_not_paying", "batch_past_knee", "client_throttled", "gateway_queue",
    "serial_orchestrator"})
BEFORE_ONSET: Final = "auto: before the onset"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Verdict(msgspec.Struct, kw_only=True):
    """The answer: what is wrong, where, since when, for whom, and what to do.

    Null fields have their reason in `reasons`.
    """

    status: Status
    scope: Literal["requests", "engine_only"] = "requests"
    metric: Metric | None = None
    stage: str | None = None
    cause: str | None = None
    sentence: str
    onset: datetime | None = None
    trend: Trend | None = None
    affected: Affected | None = None
    changed: list[Changed] = []
    ruled_out: list[RuledOut] = []
    owner: Owner | None = None
    mitigation: str | None = None
    rollback: str | None = None
    recheck_after_s: int | None = None
    reasons: dict[str, str] = {}

    def __post_init__(self) -> None:
        # Reasons are given for a whole group of fields at once; only those of null fields mean anything.
        self.reasons = {name: why for name, why in self.reasons.items() if getattr(self, name) is None}


class Baseline(msgspec.Struct, kw_only=True):
    """What the window is compared with, and how it was chosen."""

    choice: str
    start: datetime
    end: datetime
    requests: int


@dataclass(frozen=True)
class Known:
    """Causes that were sought apart for the same question (None: still being sought), of a breach of which metric (None: of none) since when."""

    ranked: Ranked | None
    metric: str | None
    onset: datetime | None


@dataclass(frozen=True)
class Diagnosed:
    """All that `diagnose` found; `skipped` has, per rule that could not answer, what it lacked. `known` is what the causes rest on, None without any;
    `why_no_causes` why none were sought or known. `budgets` has a row per budget where routes or models have their own."""

    verdict: Verdict
    goodput: Goodput
    baseline: Baseline | None
    stages: list[StageRow]
    findings: list[Finding]
    checklist: list[Step]
    skipped: dict[str, str]
    known: Known | None = None
    why_no_causes: str | None = None
    budgets: list[BudgetRow] = field(default_factory=list)


@dataclass(frozen=True)
class _Facts:
    """Intermediate results that the parts of the verdict share; `ok` are successful requests with the judged metric.

    `tail` stands around the SLO percentile, `excess` among the requests over the limit since the onset. `left` are requests whose clients left by
    choice: they are no good ones, and say nothing against the service. From `until` on requests went well again."""

    frame: RequestFrame
    slo: Slo
    judged: Judged
    goodput: Goodput
    metric: str
    ok: pl.DataFrame
    values: FloatArray
    times: StageTimes
    limits_ms: float | FloatArray
    breaching: BoolArray
    budgets: Budgets
    onset: datetime | None
    base: pl.DataFrame | None
    baseline: Baseline | None
    base_points: pl.DataFrame | None
    tail: Tail
    excess: Tail
    left: BoolArray
    until: datetime | None = None

    @property
    def during(self) -> BoolArray:
        """Which of `ok` are judged: from the onset to the moment from which requests went well again."""
        return _during(self.ok["start_us"].to_numpy(), self.onset, self.until)

    @property
    def bad(self) -> BoolArray:
        """Requests that miss the SLO; where none carries every limited metric, those that miss the judged one."""
        return (
            self.judged.bad if self.goodput.ratio is not None else self.judged.error | self.judged.misses[self.metric]
        )

    @property
    def limit_ms(self) -> float:
        return self.slo.limits()[self.metric]

    @property
    def against(self) -> str:
        """The limit in words, with those that requests came with."""
        name = f"slo_{self.metric}_ms"
        given = self.frame.rows[name].drop_nulls().to_numpy() if name in self.frame.rows.columns else np.empty(0)
        own = given[np.isfinite(given)]
        if not len(own):
            return f"a limit of {say_ms(self.limit_ms)}"
        theirs = f"their own in {say_count(len(own), 'request')} ({say_ms(float(np.median(own)))} at the median)"
        return f"limits of {theirs}" if len(own) < len(given) else f"a limit of {say_ms(self.limit_ms)}, or {theirs}"

    @functools.cached_property
    def over(self) -> bool:
        """Whether the SLO is broken: jointly or in one metric, by more than chance."""
        target = self.slo.goodput_target
        judged, order = self.judged, self.frame.order
        sides = [((judged.good | judged.bad) & ~self.left, judged.good), *((judged.known[m], ~judged.misses[m]) for m in judged.known)]
        ordered = (met[known] if order is None else met[order][known[order]] for known, met in sides)
        return any(clearly_below(met, target) for met in ordered) or _over_since(self)

    @functools.cached_property
    def observed_ms(self) -> float:
        return quantile(self.values, self.slo.percentile / 100.0)


def diagnose(
    frame: RequestFrame,
    slo: Slo,
    lookups: Lookups,
    *,
    baseline: Chosen | None = None,
    budgets: Configured | None = None,
    with_findings: bool = True,
    coverage: float | None = None,
    known: Known | None = None,
) -> Diagnosed:
    """Judge a window of requests and name stage and cause.

    `baseline` is the window chosen by `baseline.choose`; where that is None, `auto` uses the part before the detected
    onset. `budgets` are configured stage or group budgets in ms. Without findings the verdict has no cause and costs
    less; `known` then has causes that were sought elsewhere, which are named where they are about this breach. `coverage` is the share of the
    requests counted by the engines that have spans.
    """
    budgets_for(slo, next(iter(slo.limits())), budgets)  # a wrong budget is refused even where nothing is judged
    limited, slo = with_own(frame.rows, slo)
    frame = replace(frame, rows=limited)
    judged = judge(frame.rows, slo)
    good = goodput(judged, frame.seconds, weights_of(frame.rows))
    left = by_choice(frame.rows, slo, None if baseline is None else baseline.frame.rows)
    metric = judged_metric(judged, frame.rows, slo)
    stop = _without_latency(frame, slo, judged, good, baseline, left, metric, lookups)
    if stop is not None:
        return Diagnosed(stop, good, _named_baseline(baseline), [], [], checklist(frame, slo, None), {})
    facts = _facts(frame, slo, judged, good, metric, baseline, budgets, left, with_findings=with_findings)
    healthy = _until_onset(facts, baseline)
    if healthy is not None:
        baseline = healthy
        facts = _facts(frame, slo, judged, good, metric, baseline, budgets, left, with_findings=with_findings)
    rows = stage_rows(
        facts.times,
        facts.budgets,
        facts.breaching,
        facts.tail.typical_ms,
        facts.tail.tail_ms,
        _after_first_token(facts),
        facts.tail.tail_index,
    )
    held = budget_rows(facts.times, facts.budgets, facts.breaching, slo.percentile) if facts.budgets.own else []
    over = facts.over
    about, why_none = (None, None) if with_findings else _fitting(facts, known)
    if not over:
        rows = [msgspec.structs.replace(row, amber=row.over) for row in rows]
    if not over and not ((with_findings or about) and _worse(facts)):
        # Requests that have become slower since causes were sought, where nothing was wrong, are a matter for another search.
        unsought = why_none if known is not None and known.ranked is not None and _worse(facts) else None
        return Diagnosed(_within(facts), good, facts.baseline, rows, [], _checklist(facts), {}, why_no_causes=unsought, budgets=held)
    case = _case(facts, lookups, coverage) if with_findings else None
    ranked = run_rules(case, rules()) if case is not None else about or Ranked([], [], [], {})
    earlier = _against_earlier(facts) if over and with_findings and not ranked.causes else None
    if earlier is not None:
        asked = _case(earlier, lookups, coverage)
        again = run_rules(asked, rules())
        facts, ranked, case = (earlier, again, asked) if again.causes else (facts, ranked, case)
    alone = _by_itself(facts) if over and with_findings and not ranked.causes else None
    if alone is not None:
        asked = _case(alone, lookups, coverage)
        # Who lacks what it would need even beside a baseline knows no more without.
        again = run_rules(asked, {name: module for name, module in rules().items() if name in LIES_IN_WAIT and name not in ranked.lacking})
        if again.causes:
            facts, ranked, case = alone, replace(again, ruled_out=[*again.ruled_out, *(out for out in ranked.ruled_out if out.what not in LIES_IN_WAIT)]), asked
    if over and case is not None:
        ranked = replace(ranked, causes=[*ranked.causes, *_beside(facts, ranked, lookups, baseline, budgets, coverage)])
        ranked = replace(ranked, causes=_with_remaining(facts, ranked, case))
    told = Known(ranked, facts.metric, facts.onset)
    if lookups.simulated is not None and ranked.causes:
        ranked = replace(ranked, causes=lookups.simulated(facts.metric, ranked.causes, _period(facts)))
    findings = [diagnosis.finding for diagnosis in ranked.findings]
    if not over:
        calm = [msgspec.structs.replace(finding, severity="info") for finding in findings]
        return Diagnosed(_getting_worse(facts, ranked), good, facts.baseline, rows, calm, _checklist(facts), ranked.lacking, told, budgets=held)
    began = facts.onset or _began(facts, baseline)
    verdict = _over_budget(facts, ranked, began, why_none)
    return Diagnosed(verdict, good, facts.baseline, rows, findings, _checklist(facts), ranked.lacking, told, why_none, held)


def _fitting(facts: _Facts, known: Known | None) -> tuple[Ranked | None, str | None]:
    """Return the known causes where they are about this breach (the same metric since the same onset), else why there are none."""
    if known is None:
        return None, "not asked for"
    if known.ranked is None:
        return None, FINDING_CAUSES
    if known.metric is None:
        return None, "the requests among which causes are sought are within budget"
    if known.metric != facts.metric:
        return None, f"the last search for causes judged {known.metric.upper()}: it is made anew within minutes"
    moved = known.onset != facts.onset if known.onset is None or facts.onset is None else abs(known.onset - facts.onset) > SAME_ONSET
    return (None, "the breach began at another time when causes were sought last: they are sought anew within minutes") if moved else (known.ranked, None)


def judged_metric(judged: Judged, rows: pl.DataFrame, slo: Slo) -> str | None:
    """Return the limit that fails most requests; on a tie the one whose percentile stands highest over its limit.

    None when no request carries any limited metric.
    """
    scores = {}
    for metric, limit_ms in slo.limits().items():
        values = rows[f"{metric}_ms"].filter(~rows["error"]).drop_nulls().to_numpy()
        if len(values):
            overrun = quantile(values, slo.percentile / 100.0) / limit_ms
            scores[metric] = (int(judged.misses[metric].sum()), overrun)
    return max(scores, key=lambda metric: scores[metric]) if scores else None


def _without_latency(
    frame: RequestFrame, slo: Slo, judged: Judged, good: Goodput, baseline: Chosen | None, left: BoolArray, metric: str | None, lookups: Lookups
) -> Verdict | None:
    """Return the verdict where latency is not the question: no or lost traffic, failing, or too little to judge `metric`; `left` as in `_Facts`."""
    lost = _traffic_lost(frame, baseline, lookups)
    if lost is not None:
        return lost
    n = frame.rows.height
    if n == 0:
        waiting = f"; {frame.incomplete:,} incomplete ones were left out" if frame.incomplete else ""
        asked = {name: getattr(frame.window, name) for name in ("service", "model", "route", "tenant", "workload")}
        of = ", ".join(f"{name} {printable(value)}" for name, value in asked.items() if value is not None)
        advice = "Look for another spelling, or widen the window." if of else "Send OTLP traces here, or widen the window."
        return Verdict(
            status="no_data",
            sentence=f"No complete request{f' of {of}' if of else ''} in the window{waiting}. {advice}",
            reasons=_why_null("there is no request in the window"),
        )
    allowed = 1.0 - slo.goodput_target
    errors = judged.error & ~abandoned(frame.rows).to_numpy()  # who gave up waiting is a matter of latency
    if errors.sum() >= MIN_BREACHING and wilson(int(errors.sum()), n, Z_ONE_SIDED)[0] > allowed:
        return _failing(frame, judged, good, errors, allowed)
    # Nor is it a matter of latency where those that got an answer are within the target: who gave up waited for something else.
    lasting, answered = ~left, (judged.good | judged.bad) & ~judged.error
    failed = judged.error & lasting
    if failed.sum() >= MIN_BREACHING and wilson(int(failed.sum()), int(lasting.sum()), Z_ONE_SIDED)[0] > allowed and not clearly_below(
            judged.good[answered], slo.goodput_target):
        return _failing(frame, judged, good, failed, allowed)
    known = int(judged.known[metric].sum()) if metric else 0
    needed = min_n(slo.percentile)
    if metric is None or known < needed:
        what = f", {known:,} of them with {'an' if metric == 'e2e' else 'a'} {metric.upper()}" if metric else f", none with {_limited(slo)}"
        what = ", none of them successful" if judged.error.all() else what
        sentence = (
            f"Not enough data: {say_count(n, 'request')} in the window{'' if known == n else what}, and P{slo.percentile:g} needs at least {needed}. "
            "Widen the window or wait for more traffic."
        )
        return Verdict(status="not_enough_data", sentence=sentence, reasons=_why_null("too few requests to judge"))
    return None


def _traffic_lost(frame: RequestFrame, baseline: Chosen | None, lookups: Lookups) -> Verdict | None:
    """The verdict when completions are missing; latency says nothing about requests that never completed."""
    lost = incident.traffic_lost(frame, None if baseline is None else baseline.frame)
    if lost is not None and baseline is not None:
        # Calls are looked up only where requests that come one by one could not be so few by chance.
        lost = incident.traffic_lost(frame, baseline.frame, max(_together(side, lookups) for side in (baseline.frame, frame)))
    if lost is None:
        return None
    return Verdict(
        status="traffic_lost",
        sentence=incident.say_lost(lost),
        onset=lost.since,
        owner="platform",
        recheck_after_s=RECHECK_DEFAULT_S,
        mitigation="Restart or drain the instances that answer no health check; send traffic to the others.",
        rollback="Return traffic when the instances answer again.",
        reasons=_why_null("latency says nothing about requests that never completed"),
    )


def _together(frame: RequestFrame, lookups: Lookups) -> float:
    if frame.start is None or frame.end is None:
        return 1.0
    return come_together(lookups.calls(Period(frame.start, frame.end), frame.start))


def _failing(frame: RequestFrame, judged: Judged, good: Goodput, counted: BoolArray, allowed: float) -> Verdict:
    failed, n = frame.rows.filter(pl.Series(counted)), frame.rows.height
    kinds = failed.group_by("error_type").len().sort("len", "error_type", descending=[True, False])
    name, count = kinds.row(0)
    named = printable(name) if name else "without a named error"
    what = f"all of them {named}" if count == failed.height else f"most often {named}, in {count:,} of them"
    gone = failed.filter(abandoned(failed))
    how, why = "end in an error,", "Percentiles are of the others, so latency is not judged until they stop."
    if failed.height == n:
        why = "No request succeeds, so there is no latency to judge."
    if gone.height:
        waited = say_ms(float(np.median(gone["e2e_ms"].to_numpy())))
        many = "all" if gone.height == failed.height else f"{gone.height:,} of them"
        how = f"end without an answer, {many} given up by their clients after {waited} at the median,"
        why = "Requests that get an answer are within the target."
    onset = incident.onset(frame, counted, allowed)  # a stray error in a healthy hour is no beginning
    changes = incident.changed(frame.rows, onset)
    sentence = (
        f"Failing: {failed.height:,} of {n:,} requests ({say_ratio(failed.height / n)}) {how} "
        f"{what}. {why}"
    )
    return Verdict(
        status="failing",
        metric="errors",
        sentence=sentence,
        onset=onset,
        affected=incident.affected(frame, judged.bad, good.ratio, onset),
        changed=changes,
        recheck_after_s=RECHECK_DEFAULT_S,
        mitigation="Roll back what changed at the onset, or fail over to another provider or model." if changes
        else "Fail over to another provider or model, or shed load, until the errors stop.",
        rollback="Return to the first route when its errors stop.",
        reasons=_why_null("errors outrank latency", "stage", "cause", "trend", "owner")
        | ({} if onset else {"onset": "no single point in the window after which errors rise"}),
    )


def _facts(
    frame: RequestFrame,
    slo: Slo,
    judged: Judged,
    good: Goodput,
    metric: str | None,
    baseline: Chosen | None,
    configured: Configured | None,
    left: BoolArray,
    *,
    with_findings: bool,
) -> _Facts:
    metric = metric or next(iter(slo.limits()))
    limit_ms = slo.limits()[metric]
    wanted = frame.rows.columns if with_findings else sorted({*_numbers(metric), *FIGURES})
    budgets = budgets_for(slo, metric, configured)
    if budgets.own:
        wanted = sorted({*wanted, "route", "model"})
    frame = frame.having(wanted)
    ok = _with_metric(frame.rows.select(name for name in frame.rows.columns if name in {*wanted, f"slo_{metric}_ms"}), metric)
    limits_ms = limits_of(ok, slo, metric)
    limits_ms = limit_ms if limits_ms is None else limits_ms
    values, times = ok[f"{metric}_ms"].to_numpy(), stage_times(ok, path_of(metric), budgets)
    bad, allowed = (judged.error | judged.misses[metric]) & ~left, 1.0 - slo.goodput_target
    # What stays within the target may have become worse all the same.
    onset = incident.onset(frame, bad, allowed)
    lesser = None if onset is not None else incident.onset(frame, bad, WORSE_PART * allowed)
    if lesser is not None:  # it ends where that little is reached again
        onset, allowed = lesser, WORSE_PART * allowed
    starts = ok["start_us"].to_numpy()
    departed = departure(starts, values, to_us(onset) if onset is not None else int(starts.max()) + 1)
    if departed is not None and (onset is not None or _within_until(departed, starts, values > limits_ms, 1.0 - slo.goodput_target)):
        onset = from_us(departed)
    base, chosen = _baseline_rows(frame, ok, baseline, onset, metric, slo)
    until = None if onset is None and base is None else incident.end(frame, bad, onset or _EPOCH, allowed)
    # What came before the onset, or after all was well again, is no part of what went wrong.
    tail, excess = _tails(values, times, limits_ms, _during(starts, onset, until), base, metric, slo, budgets)
    return _Facts(
        frame,
        slo,
        judged,
        good,
        metric,
        ok,
        values,
        times,
        limits_ms,
        values > limits_ms,
        budgets,
        onset,
        base,
        chosen,
        None if baseline is None else baseline.frame.points,
        tail,
        excess,
        left,
        until,
    )


def _during(starts: IntArray, onset: datetime | None, until: datetime | None) -> BoolArray:
    """Which requests began from the onset on and before the end of it, where there are such moments."""
    since = starts >= (to_us(onset) if onset is not None else 0)
    return since if until is None else since & (starts < to_us(until))


def _tails(
    values: FloatArray, times: StageTimes, limits_ms: FloatArray | float, since: BoolArray, base: pl.DataFrame | None, metric: str, slo: Slo, budgets: Budgets
) -> tuple[Tail, Tail]:
    """Return what the requests around the SLO percentile, and those over the limit since the onset, spent beyond the baseline's."""
    against = None if base is None else (base[f"{metric}_ms"].to_numpy(), stage_times(base, path_of(metric)))
    ordered = np.sort(values)
    carries = base is not None and base.height >= min_n(slo.percentile)
    tail = attribute(values, times, slo.percentile, limit_ms=limits_ms, baseline=against if carries else None, ordered=ordered)
    if tail is None:
        raise AssertionError("a metric is judged only where requests carry it")
    slow = np.flatnonzero((values > limits_ms) & since)
    if not len(slow):
        return tail, tail
    return tail, attribute_slow(values, times, slow, int(since.sum()), limit_ms=limits_ms, baseline=against, ordered=ordered, noise=tail.noise_z,
                                budgets=budgets)


def _against_earlier(facts: _Facts) -> _Facts | None:
    """Return the same question asked against the first third of the baseline, None where that is too small or the baseline was asked for.

    A cause may lie in wait (a limit raised, calls no longer cancelled) until the load rises: then the baseline before the harm holds it already.
    """
    if facts.base is None or facts.baseline is None or facts.frame.window.baseline != "auto":
        return None
    rows = facts.base.sort("start_us").head(max(min_n(facts.slo.percentile), MIN_EARLIER, facts.base.height // 3))
    if rows.height == facts.base.height:
        return None
    end = from_us(int(rows["start_us"][-1]) + 1)
    baseline = msgspec.structs.replace(facts.baseline, choice=f"{facts.baseline.choice}, its first part", end=end, requests=rows.height)
    tail, excess = _tails(facts.values, facts.times, facts.limits_ms, facts.during, rows, facts.metric, facts.slo, facts.budgets)
    return replace(facts, base=rows, baseline=baseline, tail=tail, excess=excess)


def _by_itself(facts: _Facts) -> _Facts | None:
    """Return the same question asked without a baseline, None where there is a true one.

    A cause may lie in wait in all that is recorded until the load rises (calls that nobody cancels): then it is not new since the onset, and its structure
    tells all the same.
    """
    if facts.base is None or facts.baseline is None or facts.baseline.choice.split(",")[0] != BEFORE_ONSET:
        return None
    tail, excess = _tails(facts.values, facts.times, facts.limits_ms, facts.during, None, facts.metric, facts.slo, facts.budgets)
    return replace(facts, base=None, baseline=None, tail=tail, excess=excess)


def _within_until(moment_us: int, starts: IntArray, slow: BoolArray, allowed: float) -> bool:
    """Say whether the requests before a moment were not clearly over what is allowed: what broke the limit before did not begin then."""
    before = starts < moment_us
    return wilson(int((slow & before).sum()), int(before.sum()))[0] <= allowed


def _with_metric(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    known = ~rows["error"] & rows[f"{metric}_ms"].is_not_null()
    return rows if known.all() else rows.filter(known)


def _numbers(metric: str) -> list[str]:
    """The columns of requests that the verdict without findings rests on: a report of a million requests copies no others."""
    paths = {path_of(metric), "e2e"}
    columns = {"start_us", "error", "service", "output_tokens", f"{metric}_ms", *(f"{path}_ms" for path in paths)}
    return sorted(columns | {f"ttft_{stage}_ms" if path == "ttft" else f"{stage}_ms" for path in paths for stage in STAGES})


def _baseline_rows(
    frame: RequestFrame, ok: pl.DataFrame, baseline: Chosen | None, onset: datetime | None, metric: str, slo: Slo
) -> tuple[pl.DataFrame | None, Baseline | None]:
    """Return the baseline's successful requests and how it was chosen; `ok` are those of the window.

    None where it is too few to compare with.
    """
    needed = min(min_n(slo.percentile), MIN_COMPARED)
    if baseline is not None:
        named = _named_baseline(baseline)
        rows = _with_metric(baseline.frame.having(_numbers(metric)).rows, metric)
        return (rows, named) if rows.height >= needed else (None, named)
    if frame.window.baseline != "auto" or onset is None or frame.start is None:
        return None, None
    rows, _ = incident.parted(ok, to_us(onset))
    if rows.height < needed:
        return None, None
    return rows, Baseline(choice=BEFORE_ONSET, start=frame.start, end=onset, requests=rows.height)


def _named_baseline(chosen: Chosen | None) -> Baseline | None:
    if chosen is None or chosen.frame.start is None or chosen.frame.end is None:
        return None
    return Baseline(choice=chosen.choice, start=chosen.frame.start, end=chosen.frame.end, requests=chosen.frame.rows.height)


def _over_since(facts: _Facts) -> bool:
    """Say whether the SLO is broken since the onset, whatever healthy stretch before it dilutes the window's own share."""
    if facts.onset is None:
        return False
    lasted = _period(facts).seconds >= LASTING_S
    # An incident that has ended counts only where it left the whole window below the target.
    below = facts.goodput.ratio is None or facts.goodput.ratio < facts.slo.goodput_target
    since = _during(facts.frame.rows["start_us"].to_numpy(), facts.onset, facts.until if lasted and below else None)
    joint = (facts.judged.good | facts.judged.bad) & ~facts.left
    known = since & (joint if facts.goodput.ratio is not None else facts.judged.known[facts.metric] | facts.judged.error)
    n, bad = int(known.sum()), int((known & facts.bad).sum())
    # What brought all of the window below its target is no moment either, however few of its requests came since then.
    missed = facts.goodput.ratio is not None and below
    least = 0.0 if missed else max(min_n(facts.slo.percentile), 0.0 if lasted else MIN_SINCE * len(since))
    if bad < MIN_BREACHING or n < least or _since_onset(facts).seconds < MIN_SINCE_S:
        return False
    met = in_time(facts.frame.rows["start_us"].to_numpy()[known], ~facts.bad[known])[1]
    return clearly_below(met, facts.slo.goodput_target, DEPENDENT)


def _beside(
    facts: _Facts, ranked: Ranked, lookups: Lookups, baseline: Chosen | None, budgets: Configured | None, coverage: float | None
) -> list[Diagnosis]:
    """Return further causes: what makes requests miss another limit that meet the judged one.

    Two faults at once may each break a limit of their own; the judged metric's excess shows only one of them.
    """
    judged, found = facts.judged, list(ranked.causes)
    kept = ~(judged.error | judged.misses[facts.metric])
    since = _during(facts.frame.rows["start_us"].to_numpy(), facts.onset, facts.until)
    for metric in facts.slo.limits().keys() - {facts.metric}:
        slow, n = int((judged.misses[metric] & kept & since).sum()), int((judged.known[metric] & since).sum())
        if slow < MIN_BREACHING or wilson(slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0] <= 1.0 - facts.slo.goodput_target:
            continue
        frame = replace(facts.frame, rows=facts.frame.rows.filter(pl.Series(kept)))
        rest = judge(frame.rows, facts.slo)
        good = goodput(rest, frame.seconds, weights_of(frame.rows))
        judged_now = judged_metric(rest, frame.rows, facts.slo)
        other = _facts(frame, facts.slo, rest, good, judged_now, baseline, budgets, facts.left[kept], with_findings=True)
        if other.metric == metric:
            named = {one.finding.rule for one in found}.union(*(one.brings for one in found))
            found += [one for one in run_rules(_case(other, lookups, coverage), rules()).causes if one.finding.rule not in named]
    return found[len(ranked.causes) :]


def _with_remaining(facts: _Facts, ranked: Ranked, case: Case) -> list[Diagnosis]:
    """Return the causes with a further one: what makes those requests slow that would still be over the limit without the causes found.

    These lose of each stage the part of its excess that they claim; and what they still explain among the rest is theirs.
    """
    found = _remaining(facts, ranked, case)
    if found is None:
        return ranked.causes
    return [*ranked.causes[:1], *(one for one in ranked.causes[1:] if one.finding.rule not in found.brings), found]


def _remaining(facts: _Facts, ranked: Ranked, case: Case) -> Diagnosis | None:
    if facts.excess.reference != "baseline" or facts.base is None or not ranked.causes:
        return None
    times = without(facts.times, facts.excess, ranked.causes)
    since = facts.during
    slow = (times.total_ms > facts.limits_ms) & since
    n, n_slow = int(since.sum()), int(slow.sum())
    if n_slow < MIN_BREACHING or wilson(n_slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0] <= 1.0 - facts.slo.goodput_target:
        return None
    _, excess = _tails(times.total_ms, times, facts.limits_ms, since, facts.base, facts.metric, facts.slo, facts.budgets)
    source = facts.base if excess.reference == "baseline" else facts.ok
    rest = case.about(values=times.total_ms, times=times, breaching=slow, tail=excess, reference=source[excess.reference_index])
    told = {one.finding.rule for one in ranked.causes} | ranked.consequences
    return next((one for one in run_rules(rest, rules(), told).causes if one.finding.rule not in told), None)


def _worse(facts: _Facts) -> bool:
    """Say whether clearly more requests are over the limit since the onset than in the baseline, though the target is still met.

    Without an onset, all of the window: who asks about the minutes behind a change finds none in them."""
    if facts.base is None:
        return False
    since = facts.ok["start_us"].to_numpy() >= to_us(facts.onset or _EPOCH)
    before = _over_before(facts, facts.base)
    usual = max(wilson(int(before.sum()), len(before), Z_ONE_SIDED)[1], WORSE_PART * (1.0 - facts.slo.goodput_target))
    if _since_onset(facts).seconds < MIN_SINCE_S:
        return False
    for some in (since, facts.during):  # while it lasted, where it is over
        slow, n = int((facts.breaching & some).sum()), int(some.sum())
        enough = slow >= MIN_BREACHING and n >= max(min_n(facts.slo.percentile), MIN_SINCE * len(some))
        if enough and wilson(slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0] > usual:
            return True
    return False


def _over_before(facts: _Facts, base: pl.DataFrame) -> BoolArray:
    """Which requests of the baseline were over the judged limit, each over its own."""
    limits = limits_of(base, facts.slo, facts.metric)
    over: BoolArray = base[f"{facts.metric}_ms"].to_numpy() > (facts.limit_ms if limits is None else limits)
    return over


def _getting_worse(facts: _Facts, ranked: Ranked) -> Verdict:
    """The verdict on a window that meets its target with clearly more slow requests than before: what makes them, as information."""
    verdict = _over_budget(facts, ranked, facts.onset, None)
    since = facts.during
    before = _over_before(facts, facts.ok if facts.base is None else facts.base)
    when = "" if facts.onset is None else f" since {facts.onset:%H:%M:%S} UTC"
    told = f"{say_ratio(float(facts.breaching[since].mean()))} of the requests{when} are over {say_limits(facts.limits_ms)}, "
    lead = "Within budget" if (facts.bad & ~facts.left).mean() <= 1.0 - facts.slo.goodput_target else "At the limit"
    verdict.sentence = (
        f"{lead}, but worse than before: {told}{say_ratio(float(before.mean()))} in the baseline "
        f"(target {say_ratio(facts.slo.goodput_target)}). " + verdict.sentence)
    verdict.status = "within_budget"
    return verdict


def _within(facts: _Facts) -> Verdict:
    target = facts.slo.goodput_target
    ratio, target_said = facts.goodput.ratio, f" (target {say_ratio(target)})"
    if ratio is None:
        lacking = [metric.upper() for metric, known in facts.judged.known.items() if not known.any()]
        lead, met = "Within budget as far as is known", f"no {' and no '.join(lacking) or 'request against every limit'} can be judged"
        target_said = ""
    else:
        judged = facts.goodput.good + facts.goodput.bad
        stayed = judged - int((facts.judged.bad & facts.left).sum())
        kept = facts.goodput.good / max(stayed, 1)
        by_chance = wilson(facts.goodput.good, stayed, Z_ONE_SIDED)[1] >= target
        lead = "Within budget" if max(ratio, kept) >= target else "At the limit, but not beyond what chance explains" if by_chance else (
            "At the limit: bad requests come in a few stretches, which chance may explain")
        if ratio >= target or stayed == judged:
            met = f"{say_ratio(ratio)} of {judged:,} requests meet every limit"
        else:
            met = f"{say_ratio(kept)} of the {stayed:,} requests whose clients stayed meet every limit"
            target_said += _left(facts, ratio)
    allowed = f"of {say_ms(facts.limit_ms)} allowed" if isinstance(facts.limits_ms, float) else f"against {facts.against}"
    sentence = (
        f"{lead}: {met}{target_said}. {facts.metric.upper()} P{facts.slo.percentile:g} is "
        f"{say_ms(facts.observed_ms)} {allowed}."
    )
    return Verdict(
        status="within_budget",
        metric=_metric(facts.metric),
        sentence=sentence,
        reasons=_why_null("the requests are within budget"),
    )


def _left(facts: _Facts, ratio: float) -> str:
    """Those that nothing holds against the service: how many, after what time they left, and where they are counted."""
    gone = facts.frame.rows.filter(pl.Series(facts.left))
    waited = say_ms(float(np.median(gone["e2e_ms"].to_numpy())))
    unknown = "; what they had got is not recorded, and the others of the same moments were answered in time" if gone["ttft_ms"].null_count() else ""
    return (f"; {say_count(gone.height, 'client')} more ({say_ratio(gone.height / facts.frame.rows.height)}) left after {waited} at the median, no more than "
            f"usual{unknown} (goodput counts them as bad: {say_ratio(ratio)})")


def _began(facts: _Facts, baseline: Chosen | None) -> datetime | None:
    """Return since when a window is broken that has no healthy stretch of its own: as the healthy span just before it tells."""
    if baseline is None or baseline.onset is not None or baseline.frame.end != facts.frame.start:
        return None if baseline is None else baseline.onset
    before = judge(baseline.frame.rows, facts.slo)
    starts = np.concatenate([part.rows["start_us"].to_numpy() for part in (baseline.frame, facts.frame)])
    bad = np.concatenate([side.error | side.misses[facts.metric] for side in (before, facts.judged)])
    known = np.concatenate([~by_choice(baseline.frame.rows, facts.slo), ~facts.left])
    found = incident.find_onset(starts, bad & known, 1.0 - facts.slo.goodput_target)
    return None if found is None else from_us(found)


def _until_onset(facts: _Facts, baseline: Chosen | None) -> Chosen | None:
    """Return the healthy span just before a window that is broken throughout without its last moments, where those are the first broken ones; else None.

    They are too few to make the span unhealthy, but what has just begun would be most of its slowest requests, with which the slow ones are compared.
    """
    began = _began(facts, baseline) if facts.over and facts.onset is None and baseline is not None and baseline.onset is None else None
    if began is None or baseline is None:
        return None
    frame, before = baseline.frame, baseline.frame.rows["start_us"] < to_us(began)
    if before.all() or int(before.sum()) < MIN_COMPARED:
        return None
    more = frame.read_more

    def read_more(columns: Collection[str]) -> pl.DataFrame:
        return more(columns).filter(before) if more is not None else frame.rows.filter(before).select(columns)

    cut = replace(frame, rows=frame.rows.filter(before), end=began, read_more=None if more is None else read_more)
    return Chosen(cut, f"{baseline.choice} until {began:%H:%M:%S} UTC", began)


def _over_budget(facts: _Facts, ranked: Ranked, began: datetime | None, why_none: str | None) -> Verdict:
    stage = overrun_stage(facts.metric, facts.times.take(facts.excess.tail_index), facts.budgets, facts.excess, facts.limit_ms)
    main = _main(ranked.causes, stage)
    stage = main.finding.stage if main else stage
    cause = main.finding.rule if main else "unattributed_time" if stage == OTHER else None
    reasons = {} if cause else {"cause": why_none or _why_no_cause(ranked.lacking)}
    if began is None:
        reasons["onset"] = "no single point after a healthy stretch from which requests go bad"
        reasons["trend"] = "no onset to follow it from"
    if main is None:
        why = why_none or ("no rule names a cause" if stage != OTHER else "the time has no span yet")
        reasons |= dict.fromkeys(("mitigation", "rollback"), why)
    return Verdict(
        status="over_budget",
        metric=_metric(facts.metric),
        stage=stage,
        cause=cause,
        sentence=_sentence(facts, stage, main, why_none, ranked.lacking),
        onset=began,
        trend=incident.trend(facts.ok, facts.metric, began),
        affected=incident.affected(facts.frame, facts.bad, facts.goodput.ratio, began, facts.until),
        changed=incident.changed(facts.frame.rows, began, facts.base),
        ruled_out=_ruled_out(facts, stage, ranked.ruled_out),
        owner=main.owner if main else _owner(facts.ok, stage),
        mitigation=main.mitigation if main else None,
        rollback=main.rollback if main else None,
        recheck_after_s=main.recheck_after_s if main else RECHECK_DEFAULT_S,
        reasons=reasons,
    )


def _main(causes: list[Diagnosis], stage: str) -> Diagnosis | None:
    """Return the cause that the verdict names: the first one; where time without a span overran, one that speaks of that time."""
    if stage == OTHER:
        speaking = [one for one in causes if one.claims_ms.get(OTHER, 0.0) > 0.0]
        # A cause with a name of its own that explains more comes first still.
        return speaking[0] if speaking and (speaking[0] is causes[0] or _part(causes[0]) <= _part(speaking[0])) else None if not speaking else causes[0]
    return causes[0] if causes else None


def _part(one: Diagnosis) -> float:
    return float(one.finding.evidence.get("share_of_excess", 0.0))


def overrun_stage(metric: str, breaching: StageTimes, budgets: Budgets, tail: Tail, limit_ms: float) -> str:
    """Return the stage that broke the budget: of the most overrun group, the member that grew most over the reference.

    With a baseline the group is the one that grew most over it: what was over its share of the budget before is no news.
    `other` when more than 30 % of the excess has no span. TPOT and ITL are decode speed, whatever else took time.
    """
    if tail.share(OTHER) > MOST_UNATTRIBUTED:
        return OTHER
    if metric in ("tpot", "itl"):
        return max(("decode", "generation"), key=lambda stage: tail.tail_ms.get(stage, 0.0))
    shares = overrun_shares(breaching, budgets) or {}
    if tail.reference == "baseline":
        grown = {group: sum(tail.excess_ms.get(stage, 0.0) for stage in stages) for group, stages in GROUPS.items()}
        shares = {group: max(0.0, ms) for group, ms in grown.items()}
    named = {group: share for group, share in shares.items() if group != OTHER and share > 0.0}
    # Where the usual request breaks the limit itself, and none is healthy, what takes the time overran and not what varies.
    always = tail.reference == "typical" and sum(tail.typical_ms.values()) > limit_ms
    if named:
        group = max(named, key=lambda name: named[name])
        members = [stage for stage in GROUPS[group] if stage in tail.tail_ms]
    else:
        members = [stage for stage in tail.tail_ms if stage != OTHER]
    grew = tail.tail_ms if always else tail.excess_ms
    return max(members, key=lambda stage: grew[stage], default=OTHER)


def _sentence(facts: _Facts, stage: str, main: Diagnosis | None, why_none: str | None, skipped: dict[str, str]) -> str:
    good = facts.goodput
    since = _since(facts)
    name, percentile = facts.metric.upper(), f"P{facts.slo.percentile:g}"
    n, failed = facts.frame.rows.height, good.failed_by.error
    missed = f"{int(facts.bad.sum()):,} of {good.good + good.bad or n:,} requests miss the SLO"
    missed += f", {failed:,} of them by an error" if failed else ""
    missed += since
    lead = (
        f"{name} {percentile} is {say_ms(facts.observed_ms)} against {facts.against}, and {missed}"
        + (
            f" (goodput {say_ratio(good.ratio)}, target {say_ratio(facts.slo.goodput_target)})"
            if good.ratio is not None
            else ""
        )
        + _ended(facts)
    )
    if facts.metric in ("tpot", "itl"):
        where = f"tokens come too slowly in {stage}"
    else:
        spent, total = facts.excess.tail_ms.get(stage, 0.0), sum(facts.excess.tail_ms.values())
        where = f"{stage} takes {say_ms(spent)} of the {say_ms(total)} of {_whose(facts)}"
        held = max(main.claims_ms, key=lambda name: main.claims_ms[name]) if main is not None else stage
        where += f" and holds up {held} ({say_ms(facts.excess.tail_ms.get(held, 0.0))})" if held != stage else ""
    if stage == OTHER and (main is None or main.finding.rule == "unattributed_time"):
        services = facts.ok[facts.excess.tail_index]["service"].value_counts(sort=True)
        return (
            f"{lead}: {say_ratio(facts.excess.share(OTHER))} of the excess has no span. Instrument "
            f"{printable(services['service'][0])} first: add spans around what it does between its recorded calls."
        )
    if main is None and why_none is not None:
        return f"{lead}: {where}."
    if main is None:
        unknown = " " + without_before(facts.ok[facts.excess.tail_index], facts.excess, stage) if facts.baseline is None else ""
        lacking = unseen(skipped)
        return f"{lead}: {where}; no cause that is known explains enough of it, so look at the slow requests of that stage.{unknown or lacking}"
    return f"{lead}: {where}, because {main.because}. {_gain(main.finding, percentile)}"


def _whose(facts: _Facts) -> str:
    """Of which requests the sentence's means are: the stage rows, which sum to the SLO percentile, are of others."""
    if not facts.breaching[facts.excess.tail_index].all():
        return f"a request around P{facts.slo.percentile:g}"
    return "a request over the limit" + (" since the onset" if facts.onset is not None else "")


def _since(facts: _Facts) -> str:
    """Where the window as a whole is within its target: what the share is since the onset."""
    if facts.onset is None or facts.goodput.ratio is None or facts.goodput.ratio < facts.slo.goodput_target:
        return ""
    after = facts.ok["start_us"].to_numpy() >= to_us(facts.onset)
    return f", {say_ratio(float(facts.breaching[after].mean()))} of those since {facts.onset:%H:%M:%S} UTC"


def _ended(facts: _Facts) -> str:
    return "" if facts.until is None else f"; from {facts.until:%H:%M:%S} UTC on they are well again"


def _gain(finding: Finding, percentile: str) -> str:
    fix = finding.fix
    if fix is None or fix.predicted is None:
        return ""
    predicted = fix.predicted
    if predicted.after >= predicted.before and fix.method == "simulated" and predicted.interval and predicted.interval[0] < predicted.before:
        low, high = map(say_ms, predicted.interval)
        return f"{fix.title}: whether that lowers {predicted.metric.upper()} {percentile} is open ({low} to {high})."
    if predicted.after >= predicted.before:
        return f"{fix.title}: by itself it would not lower {predicted.metric.upper()} {percentile} ({say_ms(predicted.after)})."
    interval = f" ({say_ms(predicted.interval[0])} to {say_ms(predicted.interval[1])})" if predicted.interval else ""
    # A simulated fix is asked for over the requests since the onset, whose percentile is another than the window's.
    whose = f", of the requests since the onset, falls from {say_ms(predicted.before)} to" if fix.method == "simulated" else " falls to"
    return f"{fix.title}: {predicted.metric.upper()} {percentile}{whose} {say_ms(predicted.after)}{interval} if {fix.assumption}."


def _why_no_cause(skipped: dict[str, str]) -> str:
    lacking = "; ".join(f"{rule}: {reason}" for rule, reason in skipped.items())
    return lacking or "no rule explains enough of the excess"


def _period(facts: _Facts) -> Period:
    """What is judged: from the onset to the window's end, or to the moment from which requests went well again."""
    since = _since_onset(facts)
    return since if facts.until is None else Period(since.start, facts.until)


def _since_onset(facts: _Facts) -> Period:
    return _recorded(facts.onset or facts.frame.start or _EPOCH, facts.frame.end or _EPOCH, facts.frame.rows)


def _recorded(start: datetime, end: datetime, rows: pl.DataFrame) -> Period:
    """The part of a stretch from its first request on: it may begin long before anything was recorded, and its rates would be too low."""
    return Period(max(start, from_us(int(rows["start_us"].to_numpy().min()))), end)


def _case(facts: _Facts, lookups: Lookups, coverage: float | None) -> Case:
    source = facts.base if facts.excess.reference == "baseline" and facts.base is not None else facts.ok
    points = pl.concat([facts.base_points, facts.frame.points]) if facts.base_points is not None else facts.frame.points
    bad_share = 1.0 - facts.goodput.ratio if facts.goodput.ratio is not None else float(facts.bad.mean())
    allowed = max(1.0 - facts.slo.goodput_target, 1e-6)
    return Case(
        rows=facts.ok,
        values=facts.values,
        times=facts.times,
        tail=facts.excess,
        reference=source[facts.excess.reference_index],
        budgets=facts.budgets,
        limits_ms=facts.limits_ms,
        breaching=facts.breaching,
        slo=facts.slo,
        metric=facts.metric,
        points=points,
        burn=bad_share / allowed,
        period=_period(facts),
        baseline=_recorded(facts.baseline.start, facts.baseline.end, facts.base) if facts.baseline is not None and facts.base is not None else None,
        lookups=lookups,
        coverage=coverage,
        every=facts.frame.every,
    )


def _after_first_token(facts: _Facts) -> StageTimes | None:
    """Return the time behind the first token per stage, None when another metric than TTFT is judged."""
    if facts.metric != "ttft":
        return None
    whole = stage_times(facts.ok, "e2e")
    none = np.zeros(len(facts.values))
    rest = {stage: np.maximum(value - facts.times.ms.get(stage, none), 0.0) for stage, value in whole.ms.items()}
    kept = {stage: np.where(value > 1e-6, value, 0.0) for stage, value in rest.items()}
    return StageTimes("e2e", whole.total_ms, {stage: value for stage, value in kept.items() if value.any()})


def _ruled_out(facts: _Facts, stage: str, by_rules: list[RuledOut]) -> list[RuledOut]:
    tail = facts.excess
    small = [s for s in tail.tail_ms if s != stage and tail.share(s) < RULED_OUT_BELOW]
    small.sort(key=lambda s: -tail.tail_ms[s])
    out = [
        RuledOut(
            what=s,
            figure=f"{say_ratio(tail.share(s))} of the excess: {say_ms(tail.tail_ms[s])} slow, {say_ms(tail.reference_ms[s])} {tail.reference}",
        )
        for s in small[:4]
    ]
    errors, n = facts.goodput.failed_by.error, facts.frame.rows.height
    if wilson(errors, n)[1] < 1.0 - facts.slo.goodput_target:
        out.append(RuledOut(what="errors", figure=f"{errors:,} of {n:,} requests failed ({say_ratio(errors / n)})"))
    return [*out, *by_rules][:_MOST_RULED_OUT]


def _owner(ok: pl.DataFrame, stage: str) -> Owner:
    if stage in ("first_token", "generation"):
        return "provider"
    return "platform" if stage in (*GROUPS["model"], *GROUPS["network+gateway"]) else "app"


def _checklist(facts: _Facts) -> list[Step]:
    tokens = facts.ok["output_tokens"].drop_nulls().to_numpy()
    share = facts.excess.share("decode") + facts.excess.share("generation")
    return checklist(facts.frame, facts.slo, (tokens, share if facts.over else None))


def _limited(slo: Slo) -> str:
    return " or ".join(metric.upper() for metric in slo.limits())


def _metric(name: str) -> Metric:
    names: dict[str, Metric] = {"ttft": "ttft", "itl": "itl", "tpot": "tpot", "e2e": "e2e"}
    return names[name]


def _why_null(why: str, *names: str) -> dict[str, str]:
    advice = ("owner", "mitigation", "rollback", "recheck_after_s")
    return dict.fromkeys(names or ("metric", "stage", "cause", "onset", "trend", "affected", *advice), why)

