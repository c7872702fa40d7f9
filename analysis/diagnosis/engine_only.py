"""What can be said of an engine that sends metrics and no spans? A verdict from histograms and gauges alone, labelled engine-only.

Where no histogram came, the gauges speak: which requests wait, how many run, how full the cache is. Targets that are all down are a verdict of their own.

Each latency is known on its own and only between bucket edges; who was slow, and whether one request missed two limits, is not known. At 2 a.m.
nobody restarts an engine to switch tracing on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import duckdb
import msgspec
import numpy as np

from overrun.analysis.diagnosis.engine_answer import follow
from overrun.analysis.diagnosis.engine_gauges import by_gauges
from overrun.analysis.diagnosis.verdict import RULED_OUT_BELOW, Metric, Status, Verdict
from overrun.analysis.evidence.instances import (
    InstanceRow,
    instance_rows,
    say_sick,
    sick_rows,
)
from overrun.analysis.incident.breach import MIN_SINCE_S
from overrun.analysis.numbers.latency.histograms import (
    Increments,
    load,
    load_by_instance,
    merged,
    since,
    until,
    unusable,
)
from overrun.analysis.numbers.latency.percentiles import (
    MIN_N,
    Latency,
    Percentiles,
    min_n,
    no_latency,
)
from overrun.analysis.numbers.quality.metric_checks import histogram_edges
from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.quality.targets import (
    Sent,
    checks,
    is_part,
    say_target,
    say_unknown,
    silent,
)
from overrun.analysis.numbers.statistics.change_points import LEAST_SCRAPES, find_onset
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.stations.explain import explain
from overrun.analysis.stations.series import read
from overrun.analysis.stations.station import Plant, plant_of
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import Owner, RuledOut, printable, say_count, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS, Slo
from overrun.analysis.words.timestamps import from_us, to_us

PHASES: Final = ("queue", "prefill", "decode")
# What a gateway's request is made of beside its own queue: its own work, its checks, and the model behind it.
_GATEWAY: Final = {
    "gateway_overhead": "gateway",
    "guardrail": "guardrail",
    "gateway_call_e2e": "generation",
}
_RECHECK_S: Final = 300
_MOST_PSEUDO: Final = 1_000_000
# Whose metrics are judged where no engine that generates counts its latencies, in this order, and for which latencies theirs stand.
_ENGINE: Final = "engine's"
CLIENTS: Final = "clients'"
_STAND_INS: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    (_ENGINE, {"embedding_e2e": "e2e", "embedding_queue": "queue"}),
    (
        "gateway's",
        {
            "gateway_call_ttft": "ttft",
            "gateway_call_tpot": "tpot",
            "gateway_e2e": "e2e",
            "gateway_queue": "queue",
        },
    ),
    (CLIENTS, {"client_ttft": "ttft", "client_e2e": "e2e"}),
)
# From this part of the values over the limit on a sick instance is why; own default.
_MOST_OF_IT: Final = 0.5
# The part of scrapes that may lie on the wrong side of an onset that their means date; as in `engine_means`.
_MEAN_MARGIN: Final = 0.05


@dataclass(frozen=True)
class EngineOnly:
    """What an engine's metrics alone say: latency with bucket intervals, the verdict, a row per instance, and the time that the samples cover."""

    latency: Latency
    verdict: Verdict
    start: datetime | None
    end: datetime | None
    finished: int
    checks: list[Check]
    instances: list[InstanceRow]
    explanation: Explanation | None = None


def engine_only(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo, made: Sent
) -> EngineOnly | None:
    """Judge the window by the engines' metrics; None when it holds none, or none of what the filters ask for. `made` is what arrived in it."""
    asked = frame.window.instance
    if asked is not None:
        meant = [target for target in made.targets if is_part(target.instance, asked)]
        made = msgspec.structs.replace(made, targets=meant)
    only = _meant(frame, made)
    if only is not None and not only:
        return None
    window = frame.window
    plant = plant_of(read(con, window.start, window.end, window.model, only))
    judged = _by_metrics(con, frame, slo, made, only, plant)
    if judged is None:
        return None
    if made.targets and len(silent(made.targets)) == len(made.targets):
        _say_down(judged.verdict, made)
    judged.checks.extend(checks(made, with_requests=False))
    return judged


def _meant(frame: RequestFrame, made: Sent) -> set[str] | None:
    """The instances that the filters ask for, None for all. Metrics belong to no route, tenant or workload: under such a filter they are another subject."""
    window = frame.window
    if (
        window.route is not None
        or window.tenant is not None
        or window.workload not in (None, "all")
    ):
        return set()
    if window.service is None and window.model is None and window.instance is None:
        return None
    # A target that is down all the time sends nothing but that.
    named = [*made.indicators, *(one.instance for one in made.targets if window.service is None)]
    return {
        name
        for name in named
        if (window.service is None or made.services.get(name) == window.service)
        and (window.instance is None or is_part(name, window.instance))
        and (window.model is None or window.model in made.models.get(name, []))
    }


def _by_metrics(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    slo: Slo,
    made: Sent,
    only: set[str] | None,
    plant: Plant,
) -> EngineOnly | None:
    window = frame.window
    whose, found = _histograms(con, frame, only, plant)
    if not any(name in found for name in METRICS):
        counted = only is None or any(
            name in METRICS for instance in only for name in made.indicators.get(instance, [])
        )
        return (_came_once(con, frame) if counted else None) or _without_histograms(
            con, frame, slo, made, only, plant
        )
    start = from_us(min(int(one.from_us.min()) for one in found.values()))
    end = from_us(max(int(one.to_us.max()) for one in found.values()))
    latency = Latency(**{f"{name}_ms": _percentiles(name, found.get(name)) for name in METRICS})
    finished = max((found[name].n for name in ("e2e", "ttft") if name in found), default=0)
    verdict = _verdict(found, slo, whose)
    over = verdict.metric if verdict.status == "over_budget" else None
    explanation = explain(plant, over)
    owner: Owner = "provider" if whose == CLIENTS else "platform"
    follow(verdict, explanation, owner)
    onset = None if verdict.onset is None else to_us(verdict.onset)
    rows = instance_rows(
        con, start, end, window.model, made, from_us=onset, only=only, roles=plant.roles
    )
    _say_sick(verdict, rows)
    known = _checks(found, slo, finished)
    return EngineOnly(latency, verdict, start, end, finished, known, rows, explanation)


def _histograms(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, only: set[str] | None, plant: Plant
) -> tuple[str, dict[str, Increments]]:
    """What the latency histograms counted, and whose they are: those of gateways or clients stand in where no engine counts any.

    Of stations in front of one another only the outermost ones' latencies are those of requests; the phases are of all.
    """
    window = frame.window
    wanted = (*METRICS, *PHASES, *_GATEWAY, *(name for _, names in _STAND_INS for name in names))
    if only is None:
        found = load(con, window.start, window.end, wanted, window.model, since_start=True)
    else:
        found = _of_instances(con, frame, wanted, only)
    counted = {name for name in METRICS if name in found}
    further_in = {one for name in counted for one in found[name].instances} - plant.observers
    if further_in and plant.observers:
        outer = _of_instances(con, frame, METRICS, plant.observers)
        if outer:
            found = {name: one for name, one in found.items() if name not in counted}
            found.update(outer)
    found = {name: one for name, one in found.items() if one.n > 0}
    own = {name: one for name, one in found.items() if name in (*METRICS, *PHASES)}
    if any(name in own for name in METRICS):
        whole = found.get("gateway_e2e")
        if whole is None or not set(whole.instances) & plant.observers:
            return _ENGINE, own
        return "gateway's", own | {"e2e": whole}
    for whose, names in _STAND_INS:
        others = {names[name]: found[name] for name in names if name in found}
        if any(name in others for name in METRICS):
            inside = {_GATEWAY[name]: found[name] for name in _GATEWAY if name in found}
            return whose, own | others | (inside if "gateway_e2e" in names else {})
    return _ENGINE, own


def _of_instances(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, wanted: Sequence[str], only: set[str]
) -> dict[str, Increments]:
    window = frame.window
    apart = load_by_instance(con, window.start, window.end, wanted, window.model)
    parts = {
        name: [one for (instance, key), one in apart.items() if key == name and instance in only]
        for name in wanted
    }
    return {name: merged(some) for name, some in parts.items() if some}


def _without_histograms(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    slo: Slo,
    made: Sent,
    only: set[str] | None,
    plant: Plant,
) -> EngineOnly | None:
    """The answer by gauges and rates, or by what is known of targets and names; None where no metric came."""
    window = frame.window
    start, end = frame.start or window.start, frame.end or window.end
    names = sorted(
        {
            name
            for instance, known in made.indicators.items()
            if only is None or instance in only
            for name in known
        }
    )
    verdict, explanation = by_gauges(plant, names, slo)
    if verdict is None and (made.unknown.metrics or made.targets):
        what = (
            say_unknown(made.unknown)
            if made.unknown.metrics
            else "the targets answer, but send no metric of an engine"
        )
        verdict = _plain(
            "not_enough_data", f"By metrics alone (no spans): {what}.", "no known metric"
        )
    if verdict is None:
        return None
    follow(verdict, explanation, verdict.owner or "platform")
    grid = plant.recording.grid
    if grid.bins:
        start = start or from_us(round(1e6 * grid.start_s))
        end = end or from_us(round(1e6 * grid.time_s(grid.bins - 1)))
    elif made.targets:
        start, end = (
            start or min(target.since for target in made.targets),
            end or max(target.last for target in made.targets),
        )
    onset = None if verdict.onset is None else to_us(verdict.onset)
    rows = instance_rows(
        con, start, end, window.model, made, from_us=onset, only=only, roles=plant.roles
    )
    _say_sick(verdict, rows)
    why = "no latency histogram arrived"
    alone = Check(
        check="engine_only",
        status="ok",
        detail="engine metrics only, no latency histogram: queue, running requests, cache and rates are known",
    )
    return EngineOnly(no_latency(why), verdict, start, end, 0, [alone], rows, explanation)


def _say_sick(verdict: Verdict, rows: list[InstanceRow]) -> None:
    """Add the sick instances to the sentence. In place."""
    sick = sick_rows(rows)
    if sick and len(sick) < len(rows):
        which = "Of" if len(sick) == 1 else "Sick of"
        verdict.sentence += f" {which} {len(rows)} instances {say_sick(rows)}."


def _say_down(verdict: Verdict, made: Sent) -> None:
    """Make targets that all give nothing the verdict; what was known before stays in the sentence. In place."""
    gone = silent(made.targets)
    said = "; ".join(say_target(target) for target in gone[:3]) + (
        f"; and {len(gone) - 3} more" if len(gone) > 3 else ""
    )
    before = (
        f" Before: {verdict.sentence}" if verdict.scope == "engine_only" and verdict.metric else ""
    )
    all_of = (
        "The only metrics target returns"
        if len(gone) == 1
        else f"All {len(gone)} metrics targets return"
    )
    verdict.sentence = f"{all_of} nothing: {said}.{before}"
    verdict.status, verdict.owner, verdict.recheck_after_s = "targets_down", "platform", _RECHECK_S
    verdict.mitigation = "Check that the engines run and that their metrics pages answer: curl each address from this machine."
    verdict.onset = max(target.since for target in gone)
    for name in ("owner", "recheck_after_s", "mitigation", "onset"):
        verdict.reasons.pop(name, None)
    verdict.stage = verdict.cause = verdict.rollback = None
    verdict.cause_status, verdict.candidates = "not_known", []
    verdict.reasons |= dict.fromkeys(
        ("stage", "cause", "rollback"), "no stage is known for engines that do not answer"
    )


def _came_once(con: duckdb.DuckDBPyConnection, frame: RequestFrame) -> EngineOnly | None:
    """The answer where latency histograms came and none can be read; None where none came."""
    window = frame.window
    names = unusable(con, window.start, window.end, METRICS, window.model)
    start, end = frame.start or window.start, frame.end or window.end
    if not names:
        return None
    why = f"{printable(', '.join(names))} arrived once, without a start time inside the window: scrape a second time, or send start times"
    check = Check(check="histogram_came_once", status="fail", detail=why)
    verdict = _plain(
        "not_enough_data", f"By the engine's metrics alone (no spans): not enough data, {why}.", why
    )
    return EngineOnly(no_latency(why), verdict, start, end, 0, [check], [])


def _checks(found: dict[str, Increments], slo: Slo, finished: int) -> list[Check]:
    detail = f"engine metrics only, {say_count(finished, 'request')} counted: no spans, so single requests are not known"
    alone = Check(check="engine_only", status="ok", detail=detail)
    return [
        *(
            check
            for metric, limit in slo.limits().items()
            if metric in found
            for check in [histogram_edges(metric, found[metric], limit)]
        ),
        alone,
    ]


def _percentiles(name: str, made: Increments | None) -> Percentiles:
    fields = ("p50", "p75", "p90", "p95", "p99", "p99_9")
    if made is None:
        nulls = (*fields, "p50_interval", "p95_interval", "p99_interval", "max", "source")
        return Percentiles(
            n=0,
            reasons=dict.fromkeys(nulls, f"no span, and no {name} histogram of whole requests"),
        )
    stats = Percentiles(
        n=made.n,
        source=f"engine histogram {', '.join(made.names)[:200]}",
        reasons={"max": "a histogram has no maximum"},
    )
    for field, percentile in zip(fields, (50.0, 75.0, 90.0, 95.0, 99.0, 99.9), strict=True):
        value = made.quantile(percentile / 100.0) if made.n >= MIN_N[percentile] else None
        if value is None:
            why = (
                f"P{percentile:g} needs at least {MIN_N[percentile]} values, there are {made.n}"
                if made.n < MIN_N[percentile]
                else (
                    f"above the last bucket edge of {say_ms(1000.0 * float(made.edges[-1]))}: configure wider buckets in the engine"
                )
            )
            stats.reasons[field] = why
            if f"{field}_interval" in ("p50_interval", "p95_interval", "p99_interval"):
                stats.reasons[f"{field}_interval"] = why
            continue
        setattr(stats, field, 1000.0 * value[0])
        if f"{field}_interval" in ("p50_interval", "p95_interval", "p99_interval"):
            setattr(stats, f"{field}_interval", (1000.0 * value[1], 1000.0 * value[2]))
    return stats


@dataclass(frozen=True)
class _Judged:
    metric: str
    made: Increments
    limit_ms: float
    sure: int
    maybe: int
    n: int


def _verdict(found: dict[str, Increments], slo: Slo, whose: str = _ENGINE) -> Verdict:
    judged = []
    for metric, limit_ms in slo.limits().items():
        if metric in found:
            sure, maybe, n = (int(part.sum()) for part in found[metric].over(limit_ms / 1000.0))
            judged.append(_Judged(metric, found[metric], limit_ms, sure, maybe, n))
    allowed = 1.0 - slo.goodput_target
    note = _note(whose)
    if not judged or max(j.n for j in judged) < min_n(slo.percentile):
        what = (
            f"{max(j.n for j in judged)} values"
            if judged
            else f"no histogram of {' or '.join(m.upper() for m in slo.limits())}"
        )
        sentence = (
            f"{note}not enough data, {what}; P{slo.percentile:g} needs {min_n(slo.percentile)}."
        )
        return _plain("not_enough_data", sentence, "too few values in the engine's histograms")
    over = [j for j in judged if _surely_over(j, allowed)]
    if over:
        return _over(max(over, key=lambda j: j.sure / j.n), found, slo, whose)
    open_ = [j for j in judged if wilson(j.maybe, j.n, Z_ONE_SIDED)[0] > allowed]
    by_mean = [j for j in open_ if _onset_of_mean(j) is not None]
    if by_mean:
        return _over(by_mean[0], found, slo, whose)
    if open_:
        j = open_[0]
        sentence = (
            f"{note}between {say_ratio(j.sure / j.n)} and {say_ratio(j.maybe / j.n)} of {j.n:,} values of {j.metric.upper()} are over "
            f"{say_ms(j.limit_ms)}, and {say_ratio(allowed)} are allowed: the bucket edges are too coarse. Set the limit on a bucket edge, or switch tracing on."
        )
        return _plain("not_enough_data", sentence, "the histogram's bucket edges are too coarse")
    p = slo.percentile / 100.0
    j = max(judged, key=lambda one: (one.made.quantile(p) or (0.0,))[0] * 1000.0 / one.limit_ms)
    quantile = j.made.quantile(p)
    seen = (
        f"{j.metric.upper()} P{slo.percentile:g} is {_between(quantile)}"
        if quantile
        else f"{j.metric.upper()} is counted"
    )
    if j.sure / j.n > allowed or (quantile is not None and 1000.0 * quantile[0] > j.limit_ms):
        sentence = (
            f"{note}over the limit, not certain: {seen} against {say_ms(j.limit_ms)}; {say_ratio(j.sure / j.n)} to {say_ratio(j.maybe / j.n)} "
            f"of {j.n:,} are over it, {say_ratio(allowed)} may, and chance may explain that."
        )
        why = "chance may explain that values are over the limit"
        return _plain("possibly_over_budget", sentence, why, j.metric)
    sentence = f"{note}within budget, {seen} of {say_ms(j.limit_ms)} allowed; at most {say_ratio(j.maybe / j.n)} of {j.n:,} are over."
    return _plain("within_budget", sentence, "the engine is within budget", j.metric)


def _surely_over(j: _Judged, allowed: float) -> bool:
    """Whether more values are over the limit than may be, of all or of those since a dated onset."""
    if wilson(j.sure, j.n, Z_ONE_SIDED)[0] > allowed:
        return True
    onset_us = _onset(j, allowed) if j.sure > allowed * j.n else None
    if onset_us is None:
        return False
    sure, _, n = (int(part.sum()) for part in since(j.made, onset_us).over(j.limit_ms / 1000.0))
    return wilson(sure, n, Z_ONE_SIDED)[0] > allowed


def _note(whose: str) -> str:
    return f"By the {whose} metrics alone (no spans): "


def _plain(status: Status, sentence: str, why: str, metric: str | None = None) -> Verdict:
    nulls = (
        *("metric", "stage", "cause", "onset", "trend", "affected", "owner", "mitigation"),
        *("rollback", "recheck_after_s"),
    )
    return Verdict(
        status=status,
        scope="engine_only",
        metric=_named(metric) if metric else None,
        sentence=sentence,
        reasons=dict.fromkeys(nulls, why),
    )


def _over(j: _Judged, found: dict[str, Increments], slo: Slo, whose: str) -> Verdict:
    """The verdict of a latency over its limit, with what its phases take; the open diagnosis says why."""
    at_mean = None if _surely_over(j, 1.0 - slo.goodput_target) else _onset_of_mean(j)
    onset_us = _onset(j, 1.0 - slo.goodput_target) if at_mean is None else at_mean
    means, stage = _spent(j.metric, found, onset_us)
    quantile = j.made.quantile(slo.percentile / 100.0)
    seen = _between(quantile) if quantile else f"beyond {say_ms(1000.0 * float(j.made.edges[-1]))}"
    others = ", ".join(f"{name} {say_ms(value)}" for name, value in means.items() if name != stage)
    spent = (
        f" {stage} takes {say_ms(means[stage])} of a mean request ({others or 'nothing else is counted'})."
        if stage in means
        else ""
    )
    sentence = (
        f"{_note(whose)}{j.metric.upper()} P{slo.percentile:g} is {seen} against a limit of {say_ms(j.limit_ms)}, "
        f"{_how_many(j, at_mean)}.{spent}"
    )
    unknown = "no station reports what it holds or finishes"
    reasons = dict.fromkeys(
        ("cause", "owner", "mitigation", "rollback", "recheck_after_s"), unknown
    ) | {
        "affected": "metrics do not show which requests were slow",
        "trend": "metrics alone: see the indicators over time",
        "stage": f"the {whose} metrics have no histogram of a part of it",
        "onset": "no single point after a healthy stretch",
    }
    return Verdict(
        status="over_budget",
        scope="engine_only",
        metric=_named(j.metric),
        stage=stage,
        sentence=sentence,
        onset=None if onset_us is None else from_us(onset_us),
        ruled_out=[
            RuledOut(what=name, figure=f"{say_ms(value)} of a mean request")
            for name, value in means.items()
            if name != stage and value < RULED_OUT_BELOW * sum(means.values())
        ],
        reasons=reasons,
    )


def _how_many(j: _Judged, at_mean: int | None) -> str:
    """How much of a metric is over its limit, as a clause: a part of its values, or the mean since an onset where the limit lies between bucket edges."""
    mean = None if at_mean is None else since(j.made, at_mean).mean
    if mean is None:
        return f"at least {say_ratio(j.sure / j.n)} of {j.n:,} values are over"
    before = until(j.made, at_mean or 0).mean
    was = "" if before is None else f", {say_ms(1e3 * before)} before"
    return f"and the mean is {say_ms(1e3 * mean)}{was}"


def _onset_of_mean(j: _Judged) -> int | None:
    """Since when the mean of each scrape is over the limit, while most values may be: what the edges of buckets leave open. None where it is not."""
    n = j.made.counts.sum(axis=1)
    some = (n > 0.0) & np.isfinite(j.made.sums)
    order = np.argsort(j.made.to_us[some], kind="stable")
    times = j.made.to_us[some][order]
    if len(times) < LEAST_SCRAPES:
        return None
    over = (1e3 * j.made.sums[some] / n[some])[order] > j.limit_ms
    onset = find_onset(times, over, _MEAN_MARGIN, least=LEAST_SCRAPES)
    if onset is None:
        return None
    later = since(j.made, onset)
    _, maybe, total = (int(part.sum()) for part in later.over(j.limit_ms / 1e3))
    clear = later.mean is not None and 1e3 * later.mean > j.limit_ms
    return onset if clear and maybe > _MOST_OF_IT * total else None


def _spent(
    metric: str, found: dict[str, Increments], onset_us: int | None
) -> tuple[dict[str, float], str | None]:
    """What each phase of a metric takes on average, in ms since the onset, and which one is why: the one that grew most, else the longest."""
    phases: tuple[str, ...] = (*PHASES, *_GATEWAY.values())
    if metric in ("tpot", "itl"):
        phases = ("decode",)
    elif metric == "ttft":
        phases = ("queue", "prefill")
    parted = {name: _sides(found[name], onset_us) for name in phases if name in found}
    if metric in ("ttft", "e2e"):
        parted |= _rest(metric, found, onset_us, parted)
    means = {name: 1000.0 * after for name, (_, after) in parted.items() if after is not None}
    if metric in ("tpot", "itl"):
        return means, "decode"
    grew = {
        name: means[name] - 1000.0 * before
        for name, (before, _) in parted.items()
        if before is not None and name in means
    }
    most = max(grew, key=lambda name: grew[name], default=None)
    if most is not None and grew[most] > 0.0:
        return means, most
    return means, max(means, key=lambda name: means[name], default=None)


def _rest(
    metric: str,
    found: dict[str, Increments],
    onset_us: int | None,
    parted: Mapping[str, tuple[float | None, float | None]],
) -> dict[str, tuple[float | None, float | None]]:
    """Phases that an engine does not count, from what it counts around them: prefill is the first token less the queue, decode what comes after it."""
    sides = {name: parted[name] for name in PHASES if name in parted}
    sides |= {name: _sides(found[name], onset_us) for name in ("ttft", "e2e") if name in found}
    wanted = {"prefill": ("ttft", "queue"), "decode": ("e2e", "ttft")}
    return {
        phase: (_less(sides[whole][0], sides[part][0]), _less(sides[whole][1], sides[part][1]))
        for phase, (whole, part) in wanted.items()
        if phase not in parted
        and whole in sides
        and part in sides
        and not (phase == "decode" and metric == "ttft")
    }


def _less(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else max(whole - part, 0.0)


def _sides(made: Increments, onset_us: int | None) -> tuple[float | None, float | None]:
    """The mean before the onset and since it, in s; all is since it where there is none."""
    if onset_us is None:
        return None, made.mean
    return until(made, onset_us).mean, since(made, onset_us).mean


def _between(quantile: tuple[float, float, float]) -> str:
    return f"between {say_ms(1000.0 * quantile[1])} and {say_ms(1000.0 * quantile[2])}"


def _onset(j: _Judged, allowed: float) -> int | None:
    """Date the onset from the counts per scrape interval, each value dated at the end of its interval."""
    # Samples that were all read at once are of one moment: a file without times.
    if j.n > _MOST_PSEUDO or int(j.made.to_us.max() - j.made.to_us.min()) < 1e6 * MIN_SINCE_S:
        return None
    sure, _, n = j.made.over(j.limit_ms / 1000.0)
    order = np.argsort(j.made.to_us, kind="stable")
    bad = (
        np.concatenate([np.arange(k) < s for s, k in zip(sure[order], n[order], strict=True)])
        if len(order)
        else np.zeros(0, np.bool_)
    )
    return find_onset(np.repeat(j.made.to_us[order], n[order]), bad, allowed)


def _named(name: str) -> Metric:
    names: dict[str, Metric] = {"ttft": "ttft", "itl": "itl", "tpot": "tpot", "e2e": "e2e"}
    return names[name]
