"""What does the verdict say? One sentence, the stage, what is ruled out, whose it is and what to do, from a breach and the causes that rules found."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.diagnosis import agreement
from overrun.analysis.diagnosis.causal_graph import PathStep, steps
from overrun.analysis.diagnosis.mitigation import owner_of_errors, owner_of_stage, stopgap
from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.evidence.calls import come_together
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.evidence.operations import Operation
from overrun.analysis.incident import impact
from overrun.analysis.incident.baseline import Chosen
from overrun.analysis.incident.breach import Breach, over_before, overrun_stage
from overrun.analysis.incident.impact import Affected, Trend
from overrun.analysis.incident.no_baseline import MOST_UNSEEN, unseen, without_before
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.comparison import traffic_changes
from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.latency.percentiles import min_n, quantile
from overrun.analysis.numbers.outcomes.failures import abandoned, timed_out
from overrun.analysis.numbers.outcomes.goodput import Goodput, Judged, clearly_below
from overrun.analysis.numbers.stages.budget import OTHER
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import (
    MIN_BREACHING,
    Diagnosis,
    Finding,
    Owner,
    RuledOut,
    begun,
    printable,
    say_after,
    say_count,
    say_limits,
    say_ms,
    say_ratio,
)
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import to_us

Status = Literal[
    "within_budget",
    "possibly_over_budget",
    "over_budget",
    "failing",
    "traffic_lost",
    "targets_down",
    "not_enough_data",
    "no_data",
]
Metric = Literal["ttft", "itl", "tpot", "e2e", "errors"]
# A stage that explains less of the excess than this is listed as ruled out; own default.
RULED_OUT_BELOW: Final = 0.1
RECHECK_DEFAULT_S: Final = 300
# A cause below this confidence is rather not than it is: it is named as likely, and nothing is advised on it.
LEAST_SURE: Final = 0.5
# Part of the excess of `other` that makes it an engine's (own default), and the sentence for it.
ENGINES: Final = 0.5
IN_ENGINE: Final = (
    "The engine itself measured most of it, beside its queue, prefill and decode: calls wait before its scheduler sees them. "
    "Look at its front end (tokenising, CPU) and at pauses of its process."
)
# Part of the time without a span that makes the service it passes in the one to instrument; as for any cause named alone.
MOST_INSIDE: Final = 0.5
# Where more than half of the requests fail, this part of the errors must be time limits that slow requests ran into; own default.
NEARLY_ALL: Final = 0.9
_MOST_RULED_OUT: Final = 12


class Candidate(msgspec.Struct, kw_only=True):
    """A rule whose cause may explain the breach, how sure it is (0..1), and what it says, as the end of "because ..."."""

    rule: str
    confidence: float
    because: str


class Verdict(msgspec.Struct, kw_only=True):
    """The answer: what is wrong, where, since when, for whom, and what to do.

    `possibly_over_budget` is over the limit by the window's own figures, but not for certain: chance may explain as many slow requests.
    `since_ms` is the judged percentile of the requests since the onset.
    `cause_status` is `known` where a cause is named with at least 50 % confidence. Below that `cause` is the most likely of the `candidates`, and nothing is
    advised on it.
    `path` is the way from the cause to the stage in the graph of causes (causal_graph.py), empty without a cause.
    `why` is the part of `sentence` that explains slow requests, as sentences of its own; empty where the sentence explains none.
    Null fields have their reason in `reasons`.
    """

    status: Status
    scope: Literal["requests", "engine_only"] = "requests"
    metric: Metric | None = None
    stage: str | None = None
    cause: str | None = None
    cause_status: Literal["known", "not_known"] = "not_known"
    candidates: list[Candidate] = []
    path: list[PathStep] = []
    sentence: str
    why: str = ""
    onset: datetime | None = None
    since_ms: float | None = None
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
        self.reasons.setdefault("since_ms", "no latency is judged since an onset")
        # Reasons are given for a whole group of fields at once; only those of null fields mean anything.
        self.reasons = {
            name: why for name, why in self.reasons.items() if getattr(self, name) is None
        }


def without_latency(
    frame: RequestFrame,
    slo: Slo,
    judged: Judged,
    good: Goodput,
    baseline: Chosen | None,
    left: BoolArray,
    metric: str | None,
    lookups: Lookups,
) -> Verdict | None:
    """Return the verdict where latency is not the question: no traffic, failing, or too little to judge `metric`; `left` as in `Breach`."""
    n = frame.rows.height
    if n == 0:
        waiting = (
            f"; {frame.incomplete:,} incomplete requests were left out" if frame.incomplete else ""
        )
        asked = {
            name: getattr(frame.window, name)
            for name in ("service", "model", "route", "tenant", "workload")
        }
        of = ", ".join(
            f"{name} {printable(value)}" for name, value in asked.items() if value is not None
        )
        advice = (
            "Check the spelling of the filter, or widen the window."
            if of
            else "Send OTLP traces here, or widen the window."
        )
        return Verdict(
            status="no_data",
            sentence=f"No complete request{f' of {of}' if of else ''} in the window{waiting}. {advice}",
            reasons=_why_null("there is no request in the window"),
        )
    allowed = 1.0 - slo.goodput_target
    errors = (
        judged.error & ~abandoned(frame.rows).to_numpy()
    )  # who gave up waiting is a matter of latency, and so is a time limit that was waited for
    answered, waited = (judged.good | judged.bad) & ~judged.error, timed_out(frame.rows, slo)
    if 2 * int(errors.sum()) > n and not _behind(judged, answered, errors, waited, slo):
        waited = np.zeros(n, np.bool_)
    at_once = int((errors & ~waited).sum())
    if at_once >= MIN_BREACHING and wilson(at_once, n, Z_ONE_SIDED)[0] > allowed:
        return _failing(frame, slo, judged, good, errors, lookups)
    # Nor is it a matter of latency where those that got an answer are within the target: who gave up waited for something else.
    lasting = ~left
    failed = judged.error & lasting & ~waited
    if (
        failed.sum() >= MIN_BREACHING
        and wilson(int(failed.sum()), int(lasting.sum()), Z_ONE_SIDED)[0] > allowed
        and not clearly_below(judged.good[answered | waited], slo.goodput_target)
    ):
        return _failing(frame, slo, judged, good, failed, lookups)
    known = int(judged.known[metric].sum()) if metric else 0
    needed = min_n(slo.percentile)
    if metric is None or known < needed:
        what = (
            f", {known:,} of them with {'an' if metric == 'e2e' else 'a'} {metric.upper()}"
            if metric
            else f", none with {_limited(slo)}"
        )
        what = ", none of them successful" if judged.error.all() else what
        sentence = (
            f"Not enough data: {say_count(n, 'request')} in the window{'' if known == n else what}, and P{slo.percentile:g} needs at least {needed}. "
            f"{'Widen the window or wait for more traffic.' if metric or judged.error.all() else _never(slo)}"
        )
        return Verdict(
            status="not_enough_data",
            sentence=sentence,
            reasons=_why_null("too few requests to judge"),
        )
    return None


def _never(slo: Slo) -> str:
    """What is said where no answered request carries what is limited: more of them would not either."""
    return (
        f"More traffic will not change that: limit what requests carry, or record {_limited(slo)}."
    )


def _behind(
    judged: Judged, answered: BoolArray, errors: BoolArray, waited: BoolArray, slo: Slo
) -> bool:
    """Return whether most requests fail because they are slow: nearly all of the errors are time limits waited for, and what is answered is late, too."""
    late = int((judged.bad & answered).sum()) >= MIN_BREACHING and clearly_below(
        judged.good[answered], slo.goodput_target
    )
    return late and float(waited[errors].mean()) >= NEARLY_ALL


def with_lost_traffic(
    verdict: Verdict, frame: RequestFrame, slo: Slo, baseline: Chosen | None, lookups: Lookups
) -> Verdict:
    """Return a verdict below the traffic that is missing, where some is: latency does not show requests that were never answered. What was found stays."""
    rhythm = baseline is not None and baseline.other_day
    usual = None if baseline is None else baseline.frame
    lost = impact.traffic_lost(frame, usual, rhythm=rhythm)
    if lost is not None and baseline is not None:
        # Calls are looked up only where requests that come one by one could not be so few by chance.
        together = max(_together(side, lookups) for side in (baseline.frame, frame))
        lost = impact.traffic_lost(frame, usual, together, rhythm=rhythm)
    if lost is None:
        quiet = impact.silence(frame)
        if quiet is None:
            return verdict
        said = f"{verdict.sentence} {impact.say_silence(quiet)}"
        return msgspec.structs.replace(verdict, sentence=said)
    above = _lost(lost, frame, slo)
    if verdict.status not in ("over_budget", "possibly_over_budget", "failing"):
        return above
    advice = ("mitigation", "rollback", "owner", "recheck_after_s")
    return msgspec.structs.replace(
        verdict,
        status=above.status,
        sentence=f"{above.sentence} Of the requests that were answered: {verdict.sentence}",
        onset=verdict.onset or above.onset,
        **({name: getattr(above, name) for name in advice} if lost.unanswered else {}),
    )


def _lost(lost: impact.Lost, frame: RequestFrame, slo: Slo) -> Verdict:
    hangs = lost.unanswered > 0
    return Verdict(
        status="traffic_lost",
        sentence=impact.say_lost(lost),
        onset=lost.since,
        ruled_out=[*_completed(frame, slo), *_answered(frame, slo)],
        owner="platform",
        recheck_after_s=RECHECK_DEFAULT_S,
        mitigation="Restart or drain the instances that answer no health check; send traffic to the others."
        if hangs
        else "Send a request by hand: where it is answered, look at clients, DNS and the load balancer; where it hangs, restart what does not answer.",
        rollback="Return traffic when the instances answer again.",
        reasons=_why_null("latency does not show requests that were never answered"),
    )


def _together(frame: RequestFrame, lookups: Lookups) -> float:
    if frame.start is None or frame.end is None:
        return 1.0
    return come_together(lookups.calls(Period(frame.start, frame.end), frame.start))


def _failing(
    frame: RequestFrame,
    slo: Slo,
    judged: Judged,
    good: Goodput,
    counted: BoolArray,
    lookups: Lookups,
) -> Verdict:
    allowed = 1.0 - slo.goodput_target
    failed, n = frame.rows.filter(pl.Series(counted)), frame.rows.height
    kinds = failed.group_by("error_type").len().sort("len", "error_type", descending=[True, False])
    name, count = kinds.row(0)
    named = printable(name) if name else "without a named error"
    what = (
        f"all of them {named}"
        if count == failed.height
        else f"most often {named}, in {count:,} of them"
    )
    gone = failed.filter(abandoned(failed))
    how, why = (
        "end in an error,",
        "Percentiles cover the other requests only, so latency is not judged until the errors stop.",
    )
    if failed.height == n:
        why = "No request succeeds, so there is no latency to judge."
    if gone.height:
        waited = say_ms(float(np.median(gone["e2e_ms"].to_numpy())))
        many = "all" if gone.height == failed.height else f"{gone.height:,} of them"
        how = f"end without an answer, {many} abandoned by their clients after {waited} at the median,"
        why = "Requests that get an answer are within the target."
    onset = impact.onset(frame, counted, allowed)  # a stray error in a healthy hour is no beginning
    changes = traffic_changes.changed(frame.rows, onset)
    owner = owner_of_errors(name, own_engines=_traced(frame, lookups))
    sentence = (
        f"Failing: {failed.height:,} of {n:,} requests ({say_ratio(failed.height / n)}) {how} "
        f"{what}. {why}"
    )
    return Verdict(
        status="failing",
        metric="errors",
        sentence=sentence,
        onset=onset,
        affected=impact.affected(frame, judged.bad, good.ratio, onset),
        changed=changes,
        ruled_out=_answered(frame, slo),
        owner=owner,
        recheck_after_s=RECHECK_DEFAULT_S,
        mitigation="Roll back what changed at the onset, or fail over to another provider or model."
        if changes
        else "Fail over to another provider or model, or admit fewer requests, until the errors stop.",
        rollback="Return to the first provider or model when its errors stop.",
        reasons=_why_null("errors are judged before latency", "stage", "cause", "trend")
        | {"owner": "the name of the errors does not show which service causes them"}
        | ({} if onset else {"onset": "errors do not rise from a single moment in the window"}),
    )


def _traced(frame: RequestFrame, lookups: Lookups) -> bool:
    """Return whether an engine tells of the window's calls: it is run by people of one's own then."""
    if frame.start is None or frame.end is None:
        return False
    return bool(
        lookups.calls(Period(frame.start, frame.end), frame.start)["engine_instance"].count()
    )


def _answered(frame: RequestFrame, slo: Slo) -> list[RuledOut]:
    """Which latencies are no part of what is wrong: the requests that got an answer are within the limit."""
    out = []
    for metric, limit_ms in slo.limits().items():
        values = frame.rows[f"{metric}_ms"].filter(~frame.rows["error"]).drop_nulls().to_numpy()
        if (
            len(values) >= min_n(slo.percentile)
            and (observed := quantile(values, slo.percentile / 100.0)) <= limit_ms
        ):
            figure = f"P{slo.percentile:g} of {len(values):,} answered requests is {say_ms(observed)} of {say_ms(limit_ms)} allowed"
            out.append(RuledOut(what=metric, figure=figure))
    return out


def _completed(frame: RequestFrame, slo: Slo) -> list[RuledOut]:
    """Errors, where what still completes hardly shows any."""
    errors, n = frame.stand_for(int(frame.rows["error"].sum())), frame.stand_for(frame.rows.height)
    few = n > 0 and wilson(errors, n)[1] < 1.0 - slo.goodput_target
    return (
        [
            RuledOut(
                what="errors",
                figure=f"{errors:,} of {n:,} requests that completed failed ({say_ratio(errors / n)})",
            )
        ]
        if few
        else []
    )


def getting_worse(
    breach: Breach,
    ranked: Ranked,
    opened: Explanation | None = None,
    doubts: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict on a window that meets its target with clearly more slow requests than before: what makes them, as information."""
    verdict = over_budget(breach, ranked, breach.onset, None, opened=opened, doubts=doubts)
    since = breach.during
    before = over_before(breach, breach.ok if breach.base is None else breach.base)
    when = "" if breach.onset is None else f" since {breach.onset:%H:%M:%S} UTC"
    told = f"{say_ratio(float(breach.breaching[since].mean()))} of the requests{when} are over {say_limits(breach.limits_ms)}, "
    lead = _uncertain(breach) or "Within budget"
    verdict.sentence = (
        f"{lead}, but worse than before: {told}{say_ratio(float(before.mean()))} in the baseline "
        f"(target {say_ratio(breach.slo.goodput_target)}). " + verdict.sentence
    )
    return _calm(verdict, _calm_status(breach))


def held_up(breach: Breach, ranked: Ranked, opened: Explanation | None = None) -> Verdict:
    """The verdict on a window at its limit: what makes its slow requests, as information where that is known."""
    calm = within(breach)
    if not ranked.causes or not (sure(ranked.causes[0]) or opened is None):
        if opened is not None:
            calm.sentence = f"{calm.sentence} {agreement.words(opened, {}, None)}"
        return calm
    verdict = over_budget(breach, ranked, breach.onset, None)
    main = next(
        (one for one in ranked.causes if one.finding.rule == verdict.cause), ranked.causes[0]
    )
    where, gain = (
        _where(breach, main.finding.stage, main),
        _gain(main.finding, f"P{breach.slo.percentile:g}", breach.slo),
    )
    if opened is not None and not agreement.allowed(gain, opened, agreement.COUNTED):
        gain = ""
    because = f"{where[0].upper()}{where[1:]}, because {main.because}."
    if opened is not None:
        because = agreement.told(because, opened, main)
    verdict.sentence = (
        f"{calm.sentence} {because} {gain}".rstrip()
        if sure(main)
        else f"{calm.sentence} {where[0].upper()}{where[1:]}. {_likely(ranked, main)}"
    )
    return _calm(verdict, calm.status)


def _calm(verdict: Verdict, status: Status) -> Verdict:
    """Return a verdict as information: within the target nothing has to be done at once, and what is advised costs something. In place."""
    verdict.status = status
    verdict.mitigation = verdict.rollback = None
    verdict.reasons |= dict.fromkeys(
        ("mitigation", "rollback"), "the requests are not clearly over their limits"
    )
    return verdict


def _calm_status(breach: Breach) -> Status:
    return "within_budget" if breach.misses is None else "possibly_over_budget"


def _uncertain(breach: Breach) -> str:
    """What the figures themselves miss although chance may explain it; empty where they miss nothing."""
    miss = breach.misses
    if miss is None:
        return ""
    whole = f"{say_ratio(miss.share)} of {miss.n:,} requests"
    if miss.metric is not None:
        return (
            f"Over the limit of {miss.metric.upper()} P{breach.slo.percentile:g}, though not over the target of "
            f"{say_ratio(breach.slo.goodput_target)}: {whole} miss it, {say_ratio(miss.allowed)} may"
        )
    return f"Over the limit, not certain: {whole} miss it, {say_ratio(miss.allowed)} may"


def within(breach: Breach) -> Verdict:
    """The verdict on a window that meets its target, or misses it by no more than chance explains."""
    target = breach.slo.goodput_target
    ratio, target_said = breach.goodput.ratio, f" (target {say_ratio(target)})"
    if ratio is None:
        lacking = [
            metric.upper() for metric, known in breach.judged.known.items() if not known.any()
        ]
        lead, met = (
            "Within budget as far as is known",
            f"no {' and no '.join(lacking) or 'request against every limit'} can be judged",
        )
        target_said = ""
    else:
        judged = breach.goodput.good + breach.goodput.bad
        left = int((breach.judged.bad & breach.left).sum())
        stayed = judged - breach.frame.stand_for(left)
        kept = breach.goodput.good / max(stayed, 1)
        by_chance = wilson(breach.goodput.good, stayed, Z_ONE_SIDED)[1] >= target
        lead = (
            _uncertain(breach) or "Within budget"
            if max(ratio, kept) >= target
            else f"{_uncertain(breach)}, which is no more than chance explains"
            if by_chance
            else f"{_uncertain(breach)}, but they occur in a few stretches, which chance may explain"
        )
        if ratio >= target or stayed == judged:
            met = f"{say_ratio(ratio)} of {judged:,} requests meet every limit"
        else:
            met = f"{say_ratio(kept)} of the {stayed:,} requests whose clients stayed meet every limit"
            target_said += _left(breach, ratio)
    allowed = (
        f"of {say_ms(breach.limit_ms)} allowed"
        if isinstance(breach.limits_ms, float)
        else f"against {breach.against}"
    )
    if not breach.slo.given:
        lead, met, target_said, allowed = "No limit was given", "nothing changed", "", "throughout"
    sentence = (
        f"{lead}: {met}{target_said}. {breach.metric.upper()} P{breach.slo.percentile:g} is "
        f"{say_ms(breach.observed_ms)} {allowed}."
    )
    return Verdict(
        status=_calm_status(breach),
        metric=_metric(breach.metric),
        sentence=sentence,
        reasons=_why_null(
            "the requests are within budget"
            if breach.misses is None
            else "chance may explain that requests are over the limit"
        ),
    )


def _left(breach: Breach, ratio: float) -> str:
    """Those that nothing holds against the service: how many, after what time they left, and where they are counted."""
    gone = breach.frame.rows.filter(pl.Series(breach.left))
    waited = say_ms(float(np.median(gone["e2e_ms"].to_numpy())))
    unknown = (
        "; it is not recorded what these clients had received, and other requests of the same moments were answered in time"
        if gone["ttft_ms"].null_count()
        else ""
    )
    return (
        f"; {say_count(gone.height, 'client')} more ({say_ratio(gone.height / breach.frame.rows.height)}) left after {waited} at the median, no more than "
        f"usual{unknown} (goodput counts them as bad: {say_ratio(ratio)})"
    )


def over_budget(  # noqa: PLR0913
    breach: Breach,
    ranked: Ranked,
    began: datetime | None,
    why_none: str | None,
    spends: Callable[[str], Operation | None] | None = None,
    older: Callable[[], str] | None = None,
    shown: Callable[[str], bool] = lambda _: False,
    front_ms: float = 0.0,
    opened: Explanation | None = None,
    doubts: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict on a broken budget: the first cause that speaks of the stage that overran; `why_none` says why no causes were sought, `spends` which
    operation takes most of a stage's time, `shown` whether a fact changed clearly, `front_ms` how much of the excess of `other` is inside an engine's span.
    `opened` is the open diagnosis, which leads where no cause is sure, and `doubts` says by rule what of it contradicts a cause."""
    stage = overrun_stage(
        breach.metric,
        breach.times.take(breach.excess.tail_index),
        breach.budgets,
        breach.excess,
        breach.limit_ms,
    )
    main = _main(ranked.causes, stage)
    stage = main.finding.stage if main else stage
    of_engine = front_ms > ENGINES * breach.excess.excess_ms.get(OTHER, 0.0)
    without_span = _without_span(stage, main) and not of_engine
    by_rule = main is not None and not agreement.opens(main, opened)
    cause = main.finding.rule if main else "unattributed_time" if without_span else None
    reasons = {} if cause else {"cause": why_none or _why_no_cause(ranked.lacking)}
    if breach.since_ms is None and breach.onset is not None:
        reasons["since_ms"] = "too few requests were answered since the onset"
    if began is None:
        reasons["onset"] = "requests do not turn bad from a single moment after a healthy stretch"
        reasons["trend"] = "no onset is known"
    changes = traffic_changes.changed(breach.frame.rows, began, breach.base)
    owner = main.owner if main else owner_of_stage(breach.times, stage)
    step: str | None
    undo: str | None
    step, undo = stopgap(stage, owner, changes)
    if main is not None and by_rule:
        step, undo = main.mitigation, main.rollback
    if main is not None and not sure(main):
        step, undo = None, None
        reasons |= dict.fromkeys(
            ("mitigation", "rollback"), f"no cause is {say_ratio(LEAST_SURE)} sure"
        )
    lead, why, gain = _sentence(
        breach,
        stage,
        main,
        why_none,
        ranked.lacking,
        spends(stage) if spends is not None and main is None else None,
        older,
        without_span=without_span,
    )
    if main is not None and not sure(main) and not without_span:
        why, gain = f"{begun(_where(breach, stage, main))}. {_likely(ranked, main)}", ""
    if opened is not None and (main is None or not by_rule or not sure(main)):
        said = agreement.words(opened, doubts or {}, main)
        why, gain = f"{why} {said}" if without_span else said, ""
        step, undo = agreement.step_of(opened, step), None
    elif opened is not None and main is not None:
        why = agreement.told(why, opened, main)
        if not agreement.allowed(step, opened, agreement.COUNTED):
            step, undo = agreement.step_of(opened, None), None
        gain = gain if agreement.allowed(gain, opened, agreement.COUNTED) else ""
    if opened is not None and undo is None:
        undo, reasons = agreement.undone(step, reasons, opened)
    return Verdict(
        status="over_budget",
        metric=_metric(breach.metric),
        stage=stage,
        cause=cause,
        cause_status="known" if cause and (main is None or sure(main)) else "not_known",
        candidates=[
            Candidate(rule=one.finding.rule, confidence=one.finding.confidence, because=one.because)
            for one in _candidates(ranked, main)
        ],
        path=steps(cause, stage, {cause, *ranked.found}, shown) if cause else [],
        sentence=f"{lead}: {why} {gain}".rstrip(),
        why=_explained(breach, stage, main)
        if main and by_rule and sure(main) and not without_span
        else begun(why),
        onset=began,
        since_ms=breach.since_ms,
        trend=impact.trend(breach.ok.filter(pl.Series(breach.answered)), breach.metric, began),
        affected=impact.affected(
            breach.frame, breach.bad, breach.goodput.ratio, began, breach.until
        ),
        changed=changes,
        ruled_out=_ruled_out(breach, stage, ranked.ruled_out),
        owner=owner,
        mitigation=step,
        rollback=undo,
        recheck_after_s=main.recheck_after_s if main else RECHECK_DEFAULT_S,
        reasons=reasons,
    )


def _main(causes: list[Diagnosis], stage: str) -> Diagnosis | None:
    """Return the cause that the verdict names: the first one; where time without a span overran, one that speaks of that time."""
    if stage == OTHER:
        speaking = [one for one in causes if one.claims_ms.get(OTHER, 0.0) > 0.0]
        # A cause with a name of its own that explains more comes first still.
        return (
            speaking[0]
            if speaking and (speaking[0] is causes[0] or _part(causes[0]) <= _part(speaking[0]))
            else None
            if not speaking
            else causes[0]
        )
    return causes[0] if causes else None


def sure(one: Diagnosis) -> bool:
    """Say whether a cause is sure enough to be named as the cause, with what to do about it."""
    return one.finding.confidence >= LEAST_SURE


def _candidates(ranked: Ranked, main: Diagnosis | None) -> list[Diagnosis]:
    """Return the causes that may explain the breach: the named one, then the others, the surest first."""
    if main is None:
        return []
    others = [one for one in ranked.causes if one is not main]
    return [main, *sorted(others, key=lambda one: -one.finding.confidence)]


def _likely(ranked: Ranked, main: Diagnosis) -> str:
    """Return what the causes may be where none is sure, and what would distinguish them."""
    likely = _candidates(ranked, main)[:2]
    named = [
        f"{one.because} ({one.finding.rule}, {say_ratio(one.finding.confidence)})" for one in likely
    ]
    named[1:1] = [main.rather] if main.rather else []
    said = " or ".join(named)
    lacking = [why.rstrip(".") for why in ranked.lacking.values()]
    apart = (
        f" {_to_distinguish(named)}: {lacking[0]}."
        if lacking
        else f" {_to_distinguish(named)}, compare their traces, or keep recording until more requests are slow."
    )
    return f"The cause is not known; most likely {said}.{apart}"


def _to_distinguish(named: list[str]) -> str:
    return "To distinguish them" if len(named) > 1 else "To be sure"


def _part(one: Diagnosis) -> float:
    return float(one.finding.evidence.get("share_of_excess", 0.0))


def _sentence(
    breach: Breach,
    stage: str,
    main: Diagnosis | None,
    why_none: str | None,
    skipped: dict[str, str],
    spender: Operation | None,
    older: Callable[[], str] | None,
    *,
    without_span: bool,
) -> tuple[str, str, str]:
    """Return the measured breach, the sentences that explain it, and what the fix gains."""
    good = breach.goodput
    since = _since(breach)
    name, percentile = breach.metric.upper(), f"P{breach.slo.percentile:g}"
    n, failed = breach.frame.stand_for(breach.frame.rows.height), good.failed_by.error
    bad = breach.frame.stand_for(int(breach.bad.sum()))
    missed = f"{bad:,} of {good.good + good.bad or n:,} requests {'miss the SLO' if breach.slo.given else 'are slower than usual'}"
    missed += f", {failed:,} of them by an error{_ran_out(breach)}" if failed else ""
    missed += since
    lead = (
        f"{name} {percentile} is {say_ms(breach.observed_ms)} against {breach.against}, and {missed}"
        + (
            f" (goodput {say_ratio(good.ratio)}, target {say_ratio(breach.slo.goodput_target)})"
            if good.ratio is not None
            else ""
        )
        + _ended(breach)
    )
    where = _where(breach, stage, main)
    if spender is not None and stage != OTHER:
        where += f", most of it {spender.label} ({spender.shape})"
    if without_span:
        services = breach.ok[breach.excess.tail_index]["service"].value_counts(sort=True)
        most = MOST_INSIDE * breach.excess.excess_ms.get(OTHER, 0.0)
        inside = spender is not None and spender.excess_ms > most
        service = spender.service if spender is not None and inside else services["service"][0]
        why = (
            f"{say_ratio(breach.excess.share(OTHER))} of the excess has no span. Instrument "
            f"{printable(service)} first: add spans around what it does between its recorded calls."
        )
        return lead, why, ""
    if main is None and why_none is not None:
        return lead, f"{where}.", ""
    if main is None and stage == OTHER:
        return lead, f"{where}. {IN_ENGINE}", ""
    if main is None:
        unknown = (
            " " + without_before(breach.ok[breach.excess.tail_index], breach.excess, stage, older())
            if breach.baseline is None and older is not None
            else ""
        )
        lacking = unseen(skipped)
        return (
            lead,
            f"{where}. No known cause explains enough of it. Look at the slow requests of that stage.{unknown or lacking}",
            "",
        )
    return lead, f"{where}, because {main.because}.", _gain(main.finding, percentile, breach.slo)


def _without_span(stage: str, main: Diagnosis | None) -> bool:
    """Return whether the time that overran has no span and no cause of its own name."""
    return stage == OTHER and main is None


def _explained(breach: Breach, stage: str, main: Diagnosis) -> str:
    """Return the cause first, then where the time goes: two sentences."""
    return f"{begun(main.because)}. {begun(_where(breach, stage, main))}."


def _ran_out(breach: Breach) -> str:
    """How many of the errors were slow first."""
    late = int((~breach.answered).sum())
    return (
        f" (percentiles cover the others), {late:,} of these by a timeout after the SLO's limit had passed"
        if late
        else ""
    )


def _where(breach: Breach, stage: str, main: Diagnosis | None) -> str:
    """Where a slow request's time goes, as a clause."""
    if breach.metric in ("tpot", "itl"):
        return f"tokens come too slowly in {stage}"
    total = sum(breach.excess.tail_ms.values())
    held = max(main.claims_ms, key=lambda name: main.claims_ms[name]) if main is not None else stage
    # What is lost where nothing records it counts as the stage that was recorded meanwhile.
    recorded = held if main is not None and not main.claims_ms.get(stage) else stage
    spent = breach.excess.tail_ms.get(recorded, 0.0)
    where = f"{_work(stage, main)} takes {say_ms(spent)} of the {say_ms(total)} of {_whose(breach)}"
    if recorded != stage:
        return f"{where} (recorded as {recorded})"
    if held == stage:
        return where
    delayed = breach.excess.tail_ms.get(held, 0.0)
    # What takes the time comes first: a place that holds things up may take next to none itself.
    if delayed > spent:
        return f"{held} takes {say_ms(delayed)} of the {say_ms(total)} of {_whose(breach)}, delayed in {_work(stage, main)} ({say_ms(spent)})"
    return f"{where} and delays {held} ({say_ms(delayed)})"


def _work(stage: str, main: Diagnosis | None) -> str:
    """Return what takes the time: the stage, or database writing where that is what the cause names, whichever stage it stands in."""
    named = [] if main is None else main.finding.evidence.get("operations") or []
    return "database writing" if named and named[0].get("purpose") == "write" else stage


def _whose(breach: Breach) -> str:
    """Of which requests the sentence's means are: the stage rows, which sum to the SLO percentile, are of others."""
    if not breach.breaching[breach.excess.tail_index].all():
        return f"a request around P{breach.slo.percentile:g}"
    return "a request over the limit" + (" since the onset" if breach.onset is not None else "")


def _since(breach: Breach) -> str:
    """Where the window as a whole is within its target: what the share is since the onset."""
    if (
        breach.onset is None
        or breach.goodput.ratio is None
        or breach.goodput.ratio < breach.slo.goodput_target
    ):
        return ""
    after = breach.ok["start_us"].to_numpy() >= to_us(breach.onset)
    return f", {say_ratio(float(breach.breaching[after].mean()))} of those since {breach.onset:%H:%M:%S} UTC"


def _ended(breach: Breach) -> str:
    return (
        ""
        if breach.until is None
        else f"; from {breach.until:%H:%M:%S} UTC on they are within the limit again"
    )


def _gain(finding: Finding, percentile: str, slo: Slo) -> str:
    fix = finding.fix
    if fix is None:
        return ""
    if fix.predicted is None:
        return f"{fix.title}: the gain is not known ({fix.reasons.get('predicted', 'it is not computed')})."
    predicted = fix.predicted
    if (
        predicted.after >= predicted.before
        and fix.reasons.keys() & {"window", "interval"}
        and predicted.interval
        and predicted.interval[0] < predicted.before
    ):
        low, high = map(say_ms, predicted.interval)
        return f"{fix.title}: whether that lowers {predicted.metric.upper()} {percentile} is not certain ({low} to {high})."
    if predicted.after >= predicted.before:
        return f"{fix.title}: alone it would not lower {predicted.metric.upper()} {percentile} ({say_ms(predicted.after)})."
    interval = (
        f" ({say_ms(predicted.interval[0])} to {say_ms(predicted.interval[1])})"
        if predicted.interval
        else ""
    )
    # A simulated fix is asked for over the requests since the onset, whose percentile is another than the window's.
    whose = (
        f", of the requests since the onset, falls from {say_ms(predicted.before)} to"
        if "window" in fix.reasons
        else " falls to"
    )
    left, may = predicted.over_after_ratio, 1.0 - slo.goodput_target
    missed = (
        f" That alone leaves {say_ratio(left)} over the limit, and {say_ratio(may)} may be."
        if left is not None and left > may
        else ""
    )
    return f"{fix.title}: {predicted.metric.upper()} {percentile}{whose} {say_after(predicted)}{interval} if {fix.assumption}.{missed}"


def _why_no_cause(skipped: dict[str, str]) -> str:
    of: dict[str, list[str]] = {}
    for rule, reason in skipped.items():
        of.setdefault(reason, []).append(rule)
    told = [
        f"{', '.join(named)}: {reason}" if len(named) <= MOST_UNSEEN else reason
        for reason, named in of.items()
    ]
    return "; ".join(told) or "no rule explains enough of the excess"


def _ruled_out(breach: Breach, stage: str, by_rules: list[RuledOut]) -> list[RuledOut]:
    tail = breach.excess
    small = [s for s in tail.tail_ms if s != stage and tail.share(s) < RULED_OUT_BELOW]
    small.sort(key=lambda s: -tail.tail_ms[s])
    out = [
        RuledOut(
            what=s,
            figure=f"{say_ratio(tail.share(s))} of the excess: {say_ms(tail.tail_ms[s])} slow, {say_ms(tail.reference_ms[s])} {tail.reference}",
        )
        for s in small[:4]
    ]
    errors, n = breach.goodput.failed_by.error, breach.frame.rows.height
    if wilson(errors, n)[1] < 1.0 - breach.slo.goodput_target:
        out.append(
            RuledOut(
                what="errors",
                figure=f"{errors:,} of {n:,} requests failed ({say_ratio(errors / n)})",
            )
        )
    return [*out, *by_rules][:_MOST_RULED_OUT]


def _limited(slo: Slo) -> str:
    return " or ".join(metric.upper() for metric in slo.limits())


def _metric(name: str) -> Metric:
    names: dict[str, Metric] = {"ttft": "ttft", "itl": "itl", "tpot": "tpot", "e2e": "e2e"}
    return names[name]


def _why_null(why: str, *names: str) -> dict[str, str]:
    advice = ("owner", "mitigation", "rollback", "recheck_after_s")
    return dict.fromkeys(
        names or ("metric", "stage", "cause", "onset", "trend", "affected", *advice), why
    )
