"""Was the budget broken, by which stage and why? Takes loaded frames, runs the rules, and states one verdict.

Everything here is computed from the frames that are passed in; ids and span names of the few exemplar traces are
looked up through the two callables.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.diagnosis.causal_graph import brings, is_hidden
from overrun.analysis.diagnosis.checklist import Step, checklist
from overrun.analysis.diagnosis.ranking import Ranked, run_rules, without
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.diagnosis.verdict import (
    Verdict,
    getting_worse,
    held_up,
    over_budget,
    within,
    without_latency,
)
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.engine_lives import engine_changes
from overrun.analysis.evidence.fact_table import TABLE
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.incident.abandonment import by_choice
from overrun.analysis.incident.baseline import Chosen
from overrun.analysis.incident.breach import (
    BEFORE_ONSET,
    DEPENDENT,
    MIN_COMPARED,
    Baseline,
    Breach,
    after_first_token,
    at_limit,
    breach_of,
    during,
    healthy_part,
    judged_metric,
    missed_by_some,
    named_baseline,
    period,
    recorded,
    tails,
    worse,
)
from overrun.analysis.numbers.coverage.sampling import weights_of
from overrun.analysis.numbers.latency.percentiles import min_n, quantile
from overrun.analysis.numbers.outcomes.goodput import Goodput, goodput, judge, with_own
from overrun.analysis.numbers.stages.budget import Configured, StageRow, budgets_for, stage_rows
from overrun.analysis.numbers.stages.budget_rows import BudgetRow, budget_rows
from overrun.analysis.numbers.statistics import change_points
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.finding import FINDING_CAUSES, MIN_BREACHING, Diagnosis, Finding
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us, to_us

# Fewest requests of the first part of a baseline that stands for all of it: rules compare replicas and tenants, of which some have few; own default.
MIN_EARLIER: Final = 300
# A breach whose onset was found this far away is the same one: a sample or some minutes more of data move the change point; own default.
SAME_ONSET: Final = timedelta(minutes=5)


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
    asked = _asked(frame, slo, lookups, baseline, budgets, with_findings=with_findings)
    if isinstance(asked, Diagnosed):
        return asked
    breach, baseline = asked
    frame, slo, good = breach.frame, breach.slo, breach.goodput
    over = breach.over
    rows = _stage_rows(breach, over=over)
    held = (
        budget_rows(
            breach.times.take(breach.answered),
            breach.budgets,
            breach.breaching[breach.answered],
            slo.percentile,
        )
        if breach.budgets.own
        else []
    )
    about, why_none = (None, None) if with_findings else _fitting(breach, known)
    telling = not over and (worse(breach) or at_limit(breach) or missed_by_some(breach))
    if not over and not ((with_findings or about) and telling):
        # Requests that have become slower since causes were sought, where nothing was wrong, are a matter for another search.
        unsought = why_none if known is not None and known.ranked is not None and telling else None
        return Diagnosed(
            within(breach),
            good,
            breach.baseline,
            rows,
            [],
            _checklist(breach),
            {},
            why_no_causes=unsought,
            budgets=held,
        )
    ranked = about or Ranked([], [], [], {})
    case = None
    if with_findings:
        breach, ranked, case = _sought(breach, lookups, coverage, over=over)
        if over:
            ranked = replace(
                ranked,
                causes=[
                    *ranked.causes,
                    *_beside(breach, ranked, lookups, baseline, budgets, coverage),
                ],
            )
            ranked = replace(ranked, causes=_with_remaining(breach, ranked, case))
        ranked = _less_sure(breach, ranked)
    told = Known(ranked, breach.metric, breach.onset)
    if lookups.simulated is not None and ranked.causes:
        ranked = replace(
            ranked, causes=lookups.simulated(breach.metric, ranked.causes, period(breach))
        )
    findings = [diagnosis.finding for diagnosis in ranked.findings]
    if not over:
        calm = [msgspec.structs.replace(finding, severity="info") for finding in findings]
        calmly = getting_worse(breach, ranked) if worse(breach) else held_up(breach, ranked)
        return Diagnosed(
            calmly,
            good,
            breach.baseline,
            rows,
            calm,
            _checklist(breach),
            ranked.lacking,
            told,
            budgets=held,
        )
    verdict = over_budget(
        breach,
        ranked,
        breach.onset or _began(breach, baseline),
        why_none,
        None if case is None else case.operations.most,
        lookups.older,
        _shown(case),
    )
    if case is not None and verdict.onset is not None:
        verdict.changed = [*engine_changes(case), *verdict.changed]
    return Diagnosed(
        verdict,
        good,
        breach.baseline,
        rows,
        findings,
        _checklist(breach),
        ranked.lacking,
        told,
        why_none,
        held,
    )


def case_of(
    frame: RequestFrame,
    slo: Slo,
    lookups: Lookups,
    *,
    baseline: Chosen | None = None,
    budgets: Configured | None = None,
    coverage: float | None = None,
) -> Case | Verdict:
    """Return what rules look at in a window, without asking them; the verdict where requests fail or are lost, or too few are stored to judge latency.

    Parameters as of `diagnose`.
    """
    asked = _asked(frame, slo, lookups, baseline, budgets, with_findings=True)
    return asked.verdict if isinstance(asked, Diagnosed) else _case(asked[0], lookups, coverage)


def _asked(
    frame: RequestFrame,
    slo: Slo,
    lookups: Lookups,
    baseline: Chosen | None,
    budgets: Configured | None,
    *,
    with_findings: bool,
) -> tuple[Breach, Chosen | None] | Diagnosed:
    """Return the window as it is judged, with what it is compared with; what is said where latency cannot be judged."""
    budgets_for(
        slo, next(iter(slo.limits())), budgets
    )  # a wrong budget is refused even where nothing is judged
    limited, slo = with_own(frame.rows, slo)
    frame = replace(frame, rows=limited)
    judged = judge(frame.rows, slo)
    good = goodput(judged, frame.seconds, weights_of(frame.rows))
    if frame.counted is not None and frame.counted.goodput is not None:
        good = frame.counted.goodput
    left = by_choice(frame.rows, slo, None if baseline is None else baseline.frame.rows)
    metric = judged_metric(judged, frame.rows, slo)
    stop = without_latency(frame, slo, judged, good, baseline, left, metric, lookups)
    if stop is not None:
        return Diagnosed(
            stop, good, named_baseline(baseline), [], [], checklist(frame, slo, None), {}
        )
    breach = breach_of(
        frame, slo, judged, good, metric, baseline, budgets, left, with_findings=with_findings
    )
    healthy = _until_onset(breach, baseline)
    if healthy is not None:
        baseline = healthy
        breach = breach_of(
            frame, slo, judged, good, metric, baseline, budgets, left, with_findings=with_findings
        )
    return breach, baseline


def _sought(
    breach: Breach, lookups: Lookups, coverage: float | None, *, over: bool
) -> tuple[Breach, Ranked, Case]:
    """Return the causes with the question that found them: where none is found and the budget is broken, the same breach is asked about against
    the first part of its baseline, and then by itself about what may have lain in wait in all of it."""
    case = _case(breach, lookups, coverage)
    ranked = run_rules(case, rules())
    if not over:
        return breach, ranked, case
    earlier = None if ranked.causes else _against_earlier(breach)
    if earlier is not None:
        asked = _case(earlier, lookups, coverage)
        again = run_rules(asked, rules())
        if again.causes:
            return earlier, again, asked
    alone = None if ranked.causes else _by_itself(breach)
    if alone is not None:
        asked = _case(alone, lookups, coverage)
        # Who lacks what it would need even beside a baseline knows no more without.
        again = run_rules(
            asked,
            {
                name: module
                for name, module in rules().items()
                if is_hidden(name) and name not in ranked.lacking
            },
        )
        if again.causes:
            others = [out for out in ranked.ruled_out if not is_hidden(out.what)]
            return alone, replace(again, ruled_out=[*again.ruled_out, *others]), asked
    return breach, ranked, case


def _stage_rows(breach: Breach, *, over: bool) -> list[StageRow]:
    """The stages with their budgets; where the target is met, one that is over its own is amber."""
    tail, some = breach.tail, breach.answered
    around = np.searchsorted(np.flatnonzero(some), tail.tail_index)
    slow = breach.times.take(breach.breaching)
    rows = stage_rows(
        breach.times.take(some),
        breach.budgets,
        slow,
        tail.typical_ms,
        tail.tail_ms,
        after_first_token(breach),
        around,
    )
    return rows if over else [msgspec.structs.replace(row, amber=row.over) for row in rows]


def _fitting(breach: Breach, known: Known | None) -> tuple[Ranked | None, str | None]:
    """Return the known causes where they are about this breach (the same metric since the same onset), else why there are none."""
    if known is None:
        return None, "not asked for"
    if known.ranked is None:
        return None, FINDING_CAUSES
    if known.metric is None:
        return None, "the sampled requests, in which causes are searched, are within budget"
    if known.metric != breach.metric:
        return (
            None,
            f"the last search for causes judged {known.metric.upper()}. The next one follows within minutes",
        )
    moved = (
        known.onset != breach.onset
        if known.onset is None or breach.onset is None
        else abs(known.onset - breach.onset) > SAME_ONSET
    )
    return (
        (
            None,
            "the last search for causes saw another onset. The next one follows within minutes",
        )
        if moved
        else (known.ranked, None)
    )


def _against_earlier(breach: Breach) -> Breach | None:
    """Return the same question asked against the first third of the baseline, None where that is too small or the baseline was asked for.

    A cause may lie in wait (a limit raised, calls no longer cancelled) until the load rises: then the baseline before the harm holds it already.
    """
    if breach.base is None or breach.baseline is None or breach.frame.window.baseline != "auto":
        return None
    rows = breach.base.sort("start_us").head(
        max(min_n(breach.slo.percentile), MIN_EARLIER, breach.base.height // 3)
    )
    if rows.height == breach.base.height:
        return None
    end = from_us(int(rows["start_us"][-1]) + 1)
    baseline = msgspec.structs.replace(
        breach.baseline,
        choice=f"{breach.baseline.choice}, its first part",
        end=end,
        requests=rows.height,
    )
    tail, excess = tails(
        breach.values,
        breach.times,
        breach.limits_ms,
        breach.during,
        rows,
        breach.metric,
        breach.slo,
        breach.budgets,
        breach.answered,
    )
    return replace(breach, base=rows, baseline=baseline, tail=tail, excess=excess)


def _less_sure(breach: Breach, ranked: Ranked) -> Ranked:
    """Return the causes with as much of their confidence as the baseline is healthy: what it misses beyond the target is in the comparison as well."""
    health = healthy_part(breach)
    if health >= 1.0:
        return ranked
    return replace(ranked, causes=[_with_confidence_times(one, health) for one in ranked.causes])


def _with_confidence_times(one: Diagnosis, health: float) -> Diagnosis:
    finding = msgspec.structs.replace(
        one.finding,
        confidence=one.finding.confidence * health,
        evidence=one.finding.evidence | {"baseline_healthy_part": health},
    )
    return replace(one, finding=finding)


def _by_itself(breach: Breach) -> Breach | None:
    """Return the same question asked without a baseline, None where there is a true one.

    A cause may lie in wait in all that is recorded until the load rises (calls that nobody cancels): then it is not new since the onset, and its structure
    tells all the same.
    """
    if breach.base is None or breach.baseline is None:
        return None
    if breach.baseline.choice.split(",")[0] != BEFORE_ONSET and healthy_part(breach) >= 1.0:
        return None
    tail, excess = tails(
        breach.values,
        breach.times,
        breach.limits_ms,
        breach.during,
        None,
        breach.metric,
        breach.slo,
        breach.budgets,
        breach.answered,
    )
    return replace(breach, base=None, baseline=None, tail=tail, excess=excess)


def _beside(
    breach: Breach,
    ranked: Ranked,
    lookups: Lookups,
    baseline: Chosen | None,
    budgets: Configured | None,
    coverage: float | None,
) -> list[Diagnosis]:
    """Return further causes: what makes requests miss another limit that meet the judged one.

    Two faults at once may each break a limit of their own; the judged metric's excess shows only one of them.
    """
    judged, found = breach.judged, list(ranked.causes)
    kept = ~(judged.error | judged.misses[breach.metric])
    since = during(breach.frame.rows["start_us"].to_numpy(), breach.onset, breach.until)
    for metric in breach.slo.limits().keys() - {breach.metric}:
        slow, n = (
            int((judged.misses[metric] & kept & since).sum()),
            int((judged.known[metric] & since).sum()),
        )
        if (
            slow < MIN_BREACHING
            or wilson(slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0]
            <= 1.0 - breach.slo.goodput_target
        ):
            continue
        frame = replace(breach.frame, rows=breach.frame.rows.filter(pl.Series(kept)))
        rest = judge(frame.rows, breach.slo)
        good = goodput(rest, frame.seconds, weights_of(frame.rows))
        judged_now = judged_metric(rest, frame.rows, breach.slo)
        other = breach_of(
            frame,
            breach.slo,
            rest,
            good,
            judged_now,
            baseline,
            budgets,
            breach.left[kept],
            with_findings=True,
        )
        if other.metric == metric:
            named = {one.finding.rule for one in found}
            causes = run_rules(_case(other, lookups, coverage), rules()).causes
            found += [
                replace(one, of_another=True)
                for one in causes
                if one.finding.rule not in named
                and not any(brings(rule, one.finding.rule) for rule in named)
            ]
    return found[len(ranked.causes) :]


def _with_remaining(breach: Breach, ranked: Ranked, case: Case) -> list[Diagnosis]:
    """Return the causes with a further one: what makes those requests slow that would still be over the limit without the causes found.

    These lose of each stage the part of its excess that they claim; and what they still explain among the rest is theirs.
    """
    found = _remaining(breach, ranked, case)
    if found is None:
        return ranked.causes
    return [
        *ranked.causes[:1],
        *(one for one in ranked.causes[1:] if not brings(found.finding.rule, one.finding.rule)),
        found,
    ]


def _remaining(breach: Breach, ranked: Ranked, case: Case) -> Diagnosis | None:
    if breach.excess.reference != "baseline" or breach.base is None or not ranked.causes:
        return None
    times = without(breach.times, breach.excess, ranked.causes)
    since = breach.during
    slow = (times.total_ms > breach.limits_ms) & since
    n, n_slow = int(since.sum()), int(slow.sum())
    if (
        n_slow < MIN_BREACHING
        or wilson(n_slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0]
        <= 1.0 - breach.slo.goodput_target
    ):
        return None
    _, excess = tails(
        times.total_ms,
        times,
        breach.limits_ms,
        since,
        breach.base,
        breach.metric,
        breach.slo,
        breach.budgets,
        breach.answered,
    )
    source = breach.base if excess.reference == "baseline" else breach.ok
    rest = case.about(
        values=times.total_ms,
        times=times,
        breaching=slow,
        tail=excess,
        reference=source[excess.reference_index],
    )
    told = {one.finding.rule for one in ranked.causes} | ranked.consequences
    return next(
        (one for one in run_rules(rest, rules(), told).causes if one.finding.rule not in told), None
    )


def _began(breach: Breach, baseline: Chosen | None) -> datetime | None:
    """Return since when a window is broken that has no healthy stretch of its own: as the healthy span just before it tells."""
    if baseline is None or baseline.onset is not None or baseline.frame.end != breach.frame.start:
        return None if baseline is None else baseline.onset
    before = judge(baseline.frame.rows, breach.slo)
    starts = np.concatenate(
        [part.rows["start_us"].to_numpy() for part in (baseline.frame, breach.frame)]
    )
    bad = np.concatenate(
        [side.error | side.misses[breach.metric] for side in (before, breach.judged)]
    )
    known = np.concatenate([~by_choice(baseline.frame.rows, breach.slo), ~breach.left])
    found = change_points.find_onset(starts, bad & known, 1.0 - breach.slo.goodput_target)
    return None if found is None else from_us(found)


def _until_onset(breach: Breach, baseline: Chosen | None) -> Chosen | None:
    """Return the healthy span just before a window that is broken throughout without its last moments, where those are the first broken ones; else None.

    They are too few to make the span unhealthy, but what has just begun would be most of its slowest requests, with which the slow ones are compared.
    """
    began = (
        _began(breach, baseline)
        if breach.over and breach.onset is None and baseline is not None and baseline.onset is None
        else None
    )
    if began is None or baseline is None:
        return None
    frame, before = baseline.frame, baseline.frame.rows["start_us"] < to_us(began)
    if before.all() or int(before.sum()) < MIN_COMPARED:
        return None
    more = frame.read_more

    def read_more(columns: Collection[str]) -> pl.DataFrame:
        return (
            more(columns).filter(before)
            if more is not None
            else frame.rows.filter(before).select(columns)
        )

    cut = replace(
        frame,
        rows=frame.rows.filter(before),
        end=began,
        read_more=None if more is None else read_more,
    )
    return Chosen(cut, f"{baseline.choice} until {began:%H:%M:%S} UTC", began)


def _case(breach: Breach, lookups: Lookups, coverage: float | None) -> Case:
    source = (
        breach.base
        if breach.excess.reference == "baseline" and breach.base is not None
        else breach.ok
    )
    points = (
        pl.concat([breach.base_points, breach.frame.points])
        if breach.base_points is not None
        else breach.frame.points
    )
    bad_share = (
        1.0 - breach.goodput.ratio if breach.goodput.ratio is not None else float(breach.bad.mean())
    )
    allowed = max(1.0 - breach.slo.goodput_target, 1e-6)
    return Case(
        rows=breach.ok,
        values=breach.values,
        times=breach.times,
        tail=breach.excess,
        reference=source[breach.excess.reference_index],
        budgets=breach.budgets,
        limits_ms=breach.limits_ms,
        breaching=breach.breaching,
        slo=breach.slo,
        metric=breach.metric,
        points=points,
        burn=bad_share / allowed,
        period=period(breach),
        baseline=recorded(breach.baseline.start, breach.baseline.end, breach.base)
        if breach.baseline is not None and breach.base is not None
        else None,
        lookups=lookups,
        coverage=coverage,
        every=breach.frame.every,
        usual_ms=_usual_ms(breach),
        table=TABLE,
    )


def _usual_ms(breach: Breach) -> float | None:
    """The judged percentile of the baseline's answered requests, None without any."""
    answered = None if breach.base is None else breach.base.filter(~pl.col("error"))
    return (
        None
        if answered is None or answered.is_empty()
        else quantile(answered[f"{breach.metric}_ms"].to_numpy(), breach.slo.percentile / 100.0)
    )


def _shown(case: Case | None) -> Callable[[str], bool]:
    """Return what says whether a fact changed clearly: of causes that were sought elsewhere no fact is at hand."""
    return lambda fact: case is not None and bool(case.facts[fact].clear)


def _checklist(breach: Breach) -> list[Step]:
    tokens = breach.ok["output_tokens"].filter(pl.Series(breach.answered)).drop_nulls().to_numpy()
    share = breach.excess.share("decode") + breach.excess.share("generation")
    return checklist(breach.frame, breach.slo, (tokens, share if breach.over else None))
