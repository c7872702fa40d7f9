"""Was the budget broken, by which stage and why? Takes loaded frames, runs the rules, and states one verdict.

Everything here is computed from the frames that are passed in; ids and span names of the few exemplar traces are
looked up through the two callables.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.diagnosis.agreement import agreed, without_harm
from overrun.analysis.diagnosis.agreement import judged as judged_requests
from overrun.analysis.diagnosis.causal_graph import NODES
from overrun.analysis.diagnosis.checklist import Step, checklist
from overrun.analysis.diagnosis.open_cause import with_mechanism
from overrun.analysis.diagnosis.ranking import Ranked, run_rules
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.diagnosis.verdict import (
    Verdict,
    getting_worse,
    held_up,
    over_budget,
    with_lost_traffic,
    within,
    without_latency,
)
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.engine_lives import engine_changes
from overrun.analysis.evidence.fact_table import TABLE
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.evidence.operations import Operation
from overrun.analysis.incident.abandonment import by_choice
from overrun.analysis.incident.baseline import Chosen
from overrun.analysis.incident.breach import (
    MIN_COMPARED,
    Baseline,
    Breach,
    after_first_token,
    at_limit,
    breach_of,
    healthy_part,
    judged_metric,
    missed_by_some,
    named_baseline,
    period,
    recorded,
    worse,
)
from overrun.analysis.incident.limit_fit import Unfit
from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.coverage.sampling import weights_of
from overrun.analysis.numbers.latency.percentiles import quantile
from overrun.analysis.numbers.outcomes.goodput import Goodput, goodput, judge, with_own
from overrun.analysis.numbers.stages.budget import Configured, StageRow, budgets_for, stage_rows
from overrun.analysis.numbers.stages.budget_rows import BudgetRow, budget_rows
from overrun.analysis.numbers.statistics import change_points
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import FINDING_CAUSES, Finding
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us, to_us

# Why there is no open diagnosis where nobody asked for findings.
NOT_ASKED: Final = "not asked for"
# A breach whose onset was found this far away is the same one: a sample or some minutes more of data move the change point; own default.
SAME_ONSET: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Known:
    """Causes that were sought apart for the same question (None: still being sought), of a breach of which metric (None: of none) since when.

    `changed` are the facts of the causal graph that changed clearly, of those that the way from the cause to the stage may name; `operations` what a stage without
    a cause spends its time on; `engines` those that came or went before the onset."""

    ranked: Ranked | None
    metric: str | None
    onset: datetime | None
    changed: frozenset[str] = frozenset()
    operations: Mapping[str, Operation] = field(default_factory=dict)
    engines: tuple[Changed, ...] = ()
    explained: Explanation | str = NOT_ASKED


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
    explained: Explanation | str = NOT_ASKED
    unfit: list[Unfit] = field(default_factory=list)


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
    made = _diagnosed(
        frame, slo, lookups, baseline, budgets, coverage, known, with_findings=with_findings
    )
    whole = with_lost_traffic(made.verdict, frame, slo, baseline, lookups)
    return made if whole is made.verdict else replace(made, verdict=whole)


def _diagnosed(
    frame: RequestFrame,
    slo: Slo,
    lookups: Lookups,
    baseline: Chosen | None,
    budgets: Configured | None,
    coverage: float | None,
    known: Known | None,
    *,
    with_findings: bool,
) -> Diagnosed:
    """What `diagnose` finds in the requests that were answered."""
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
    explained: Explanation | str = NOT_ASKED if known is None or about is None else known.explained
    if with_findings and lookups.explain is not None:
        explained = lookups.explain(judged_requests(breach))
    opened = None if isinstance(explained, str) else explained
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
            explained=explained,
            unfit=breach.unfit,
        )
    ranked = about or Ranked([], [], {})
    case = _case(breach, lookups, coverage) if with_findings else None
    if case is not None:
        ranked = run_rules(case, rules())
    agreement = agreed(ranked, opened)
    ranked = agreement.ranked
    if case is not None:
        ranked = with_mechanism(case, ranked, opened)
    told = Known(ranked, breach.metric, breach.onset, explained=explained)
    if lookups.simulated is not None and ranked.causes:
        ranked = replace(
            ranked, causes=lookups.simulated(breach.metric, ranked.causes, period(breach))
        )
    findings = without_harm([diagnosis.finding for diagnosis in ranked.causes], opened, agreement)
    if not over:
        calm = [msgspec.structs.replace(finding, severity="info") for finding in findings]
        calmly = (
            getting_worse(breach, ranked, opened, agreement.doubts)
            if worse(breach)
            else held_up(breach, ranked, opened)
        )
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
            explained=explained,
            unfit=breach.unfit,
        )
    beside = known if case is None and known is not None else told
    verdict = over_budget(
        breach,
        ranked,
        breach.onset or _began(breach, baseline),
        why_none,
        beside.operations.get if case is None else case.operations.most,
        lookups.older,
        beside.changed.__contains__ if case is None else case.facts.worse,
        0.0 if case is None else case.front_excess_ms,
        opened,
        agreement.doubts,
    )
    if case is not None:
        told = beside = _with_facts(told, case, verdict)
    if verdict.onset is not None:
        verdict.changed = [*beside.engines, *verdict.changed]
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
        explained,
        breach.unfit,
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
    """Return what rules look at in a window, without asking them; the verdict where requests fail, or too few are stored to judge latency.

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
        health=healthy_part(breach),
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


def _with_facts(told: Known, case: Case, verdict: Verdict) -> Known:
    """Return the causes with what else a verdict takes from a case: another answer about this breach has none, and may name another stage."""
    way = [step.node for step in verdict.path if step.kind != "stage"]
    nodes = {*way, *(name for name, node in NODES.items() if node.kind == "state")}
    facts = {fact for name in nodes for fact in NODES[name].facts}
    most = None if told.ranked and told.ranked.causes else case.operations.most(verdict.stage or "")
    return replace(
        told,
        changed=frozenset(fact for fact in facts if case.facts.worse(fact)),
        operations={} if most is None else {most.stage: most},
        engines=() if verdict.onset is None else tuple(engine_changes(case)),
    )


def _checklist(breach: Breach) -> list[Step]:
    tokens = breach.ok["output_tokens"].filter(pl.Series(breach.answered)).drop_nulls().to_numpy()
    share = breach.excess.share("decode") + breach.excess.share("generation")
    return checklist(breach.frame, breach.slo, (tokens, share if breach.over else None))
