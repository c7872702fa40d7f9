"""Is the budget broken, by which metric and stage, since when and against what? Everything that the verdict and the rules rest on, from loaded frames."""

import functools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.incident import impact
from overrun.analysis.incident.baseline import WORSE_PART, Chosen
from overrun.analysis.incident.limit_fit import Unfit, unfit
from overrun.analysis.incident.no_baseline import FIGURES
from overrun.analysis.incident.onset import departure
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.latency.percentiles import min_n, quantile
from overrun.analysis.numbers.outcomes.failures import overdue
from overrun.analysis.numbers.outcomes.goodput import Goodput, Judged, clearly_below, limits_of
from overrun.analysis.numbers.stages.budget import (
    GROUPS,
    OTHER,
    STAGES,
    Budgets,
    Configured,
    StageTimes,
    budgets_for,
    overrun_shares,
    path_of,
    stage_times,
)
from overrun.analysis.numbers.stages.tail import Tail, attribute, attribute_slow
from overrun.analysis.numbers.statistics import change_points
from overrun.analysis.numbers.statistics.change_points import in_time
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import MIN_BREACHING, say_count, say_ms
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us, to_us

# Above this share of the excess without a span, the answer is where to instrument; own default.
MOST_UNATTRIBUTED: Final = 0.3
# What is judged since an onset must be this part of the window at least: a shorter stretch is a bad moment; own default.
MIN_SINCE: Final = 0.1
# ...unless it lasted for so long: ten minutes of a broken service are no moment, however long the window is; own default.
LASTING_S: Final = 600.0
# ...and so long: below it a busy moment of a queue, in which all requests share one fate, is as likely; own default.
MIN_SINCE_S: Final = 60.0
# Fewest requests of a baseline with whose slowest part the slow ones are compared, where the percentile itself would need more of them; own default.
MIN_COMPARED: Final = 100
# Requests that overlap share their fate, and the onset was chosen where it looks worst: so many count as one there; own default.
DEPENDENT: Final = 4
# Metrics that all calls of a batch have in common; the others have waits and lengths of their own.
PACES: Final = ("tpot", "itl")
BEFORE_ONSET: Final = "auto: before the onset"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Baseline(msgspec.Struct, kw_only=True):
    """What the window is compared with, and how it was chosen."""

    choice: str
    start: datetime
    end: datetime
    requests: int


@dataclass(frozen=True)
class Miss:
    """A share of requests beyond a limit that is above what is allowed, by the figure itself. `metric` None: beyond any limit, or failed."""

    metric: str | None
    share: float
    n: int
    allowed: float


# Where a limit fits nothing, the metric dates the change: so many times the allowed part is over the limit that would fit (own default: bursts alone bring 3 times).
BEYOND: Final = 4.0


@dataclass(frozen=True)
class Breach:
    """A window judged by one metric: what the parts of the verdict share. `ok` are successful requests with that metric, and those that a time limit ended
    when the metric's limit had passed, with the time until then (`judgeable`).

    `tail` stands around the SLO percentile, `excess` among the requests over the limit since the onset. `left` are requests whose clients left by
    choice: they are no good ones, and show nothing against the service. From `until` on requests went well again."""

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
    unfit: list[Unfit] = field(default_factory=list)

    @property
    def during(self) -> BoolArray:
        """Which of `ok` are judged: from the onset to the moment from which requests went well again."""
        return during(self.ok["start_us"].to_numpy(), self.onset, self.until)

    @property
    def bad(self) -> BoolArray:
        """Requests that miss the SLO; where none carries every limited metric, those that miss the judged one."""
        return (
            self.judged.bad
            if self.goodput.ratio is not None
            else self.judged.error | self.judged.misses[self.metric]
        )

    @property
    def limit_ms(self) -> float:
        return self.slo.limits()[self.metric]

    @property
    def against(self) -> str:
        """The limit in words, with those that requests came with."""
        name = f"slo_{self.metric}_ms"
        given = (
            self.frame.rows[name].drop_nulls().to_numpy()
            if name in self.frame.rows.columns
            else np.empty(0)
        )
        own = given[np.isfinite(given)]
        if not len(own):
            which = "a limit of" if self.slo.given else "the usual"
            return f"{which} {say_ms(self.limit_ms)}"
        theirs = f"their own in {say_count(len(own), 'request')} ({say_ms(float(np.median(own)))} at the median)"
        return (
            f"limits of {theirs}"
            if len(own) < len(given)
            else f"a limit of {say_ms(self.limit_ms)}, or {theirs}"
        )

    @functools.cached_property
    def over(self) -> bool:
        """Whether the SLO is broken: jointly or in one metric, by more than chance."""
        target = self.slo.goodput_target
        judged, order = self.judged, self.frame.order
        sides = [
            ((judged.good | judged.bad) & ~self.left, judged.good),
            *((judged.known[m], ~judged.misses[m]) for m in judged.known),
        ]
        ordered = (
            met[known] if order is None else met[order][known[order]] for known, met in sides
        )
        return any(clearly_below(met, target) for met in ordered) or over_since(self)

    @functools.cached_property
    def misses(self) -> Miss | None:
        """What the window's own figures miss, whether or not chance explains it: the joint target first, then the metric that misses its limit by most."""
        judged, slo, allowed = self.judged, self.slo, 1.0 - self.slo.goodput_target
        joint = (judged.good | judged.bad) & ~self.left
        if self.goodput.ratio is not None and joint.any():
            kept = max(self.goodput.ratio, float(judged.good[joint].mean()))
            if kept < slo.goodput_target:
                return Miss(None, 1.0 - kept, int(joint.sum()), allowed)
        allowed = 1.0 - max(slo.goodput_target, slo.percentile / 100.0)
        shares = [
            Miss(name, float(judged.misses[name][known].mean()), int(known.sum()), allowed)
            for name, known in judged.known.items()
            if known.any()
        ]
        # Float subtraction may leave the allowed share a hair too small.
        over = [one for one in shares if one.share > allowed + 1e-9]
        return max(over, key=lambda one: one.share, default=None)

    @functools.cached_property
    def since_ms(self) -> float | None:
        """The SLO percentile of the requests answered since the onset, None without an onset or with too few of them."""
        values = self.values[self.answered & self.during]
        enough = self.onset is not None and len(values) >= min_n(self.slo.percentile)
        return quantile(values, self.slo.percentile / 100.0) if enough else None

    @functools.cached_property
    def observed_ms(self) -> float:
        """The SLO percentile of the successful requests; of all that a sample stands for, where it was counted."""
        counted = self.frame.counted
        if counted is not None and (self.metric, self.slo.percentile) in counted.at:
            return counted.at[self.metric, self.slo.percentile]
        return quantile(self.values[self.answered], self.slo.percentile / 100.0)

    @property
    def answered(self) -> BoolArray:
        """Which of `ok` are successful: the others' values are only the least that their latency was."""
        return ~self.ok["error"].to_numpy().astype(np.bool_)


def judged_metric(judged: Judged, rows: pl.DataFrame, slo: Slo) -> str | None:
    """Return the limit that fails most requests, those among them that a time limit ended later; on a tie the one whose percentile stands highest over it.

    None when no request carries any limited metric.
    """
    scores = {}
    for metric, limit_ms in slo.limits().items():
        values = rows[f"{metric}_ms"].filter(~rows["error"]).drop_nulls().to_numpy()
        if len(values):
            overrun = quantile(values, slo.percentile / 100.0) / limit_ms
            scores[metric] = (
                int(judged.misses[metric].sum() + overdue(rows, slo, metric).sum()),
                overrun,
            )
    return max(scores, key=lambda metric: scores[metric]) if scores else None


def breach_of(  # noqa: PLR0913
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
) -> Breach:
    """Return the window judged by `metric` (None: the first limit's): since when it is broken, compared with `baseline` or what came before the onset.

    `judged` has a row per request of `frame`, `left` marks clients that left by choice; `configured` are budgets in ms. Without findings only the
    columns that the verdict itself rests on are read.
    """
    metric = metric or next(iter(slo.limits()))
    before = None if baseline is None else baseline.frame.rows
    # A limit that was missed before anything changed dates nothing: the metric itself does.
    beyond = unfit(frame, slo, before) if slo.given and with_findings else []
    limit_ms = slo.limits()[metric]
    wanted = sorted({*_numbers(metric), *(frame.rows.columns if with_findings else FIGURES)})
    budgets = budgets_for(slo, metric, configured)
    if budgets.own:
        wanted = sorted({*wanted, "route", "model"})
    frame = frame.having(wanted)
    ok = judgeable(
        frame.rows.select(
            name for name in frame.rows.columns if name in {*wanted, f"slo_{metric}_ms"}
        ),
        slo,
        metric,
    )
    limits_ms = limits_of(ok, slo, metric)
    limits_ms = limit_ms if limits_ms is None else limits_ms
    values, times = ok[f"{metric}_ms"].to_numpy(), stage_times(ok, path_of(metric), budgets)
    bad, allowed = (judged.error | judged.misses[metric]) & ~left, 1.0 - slo.goodput_target
    # What stays within the target may have become worse all the same.
    onset = impact.onset(frame, bad, allowed)
    lesser = None if onset is not None else impact.onset(frame, bad, WORSE_PART * allowed)
    if lesser is not None:  # it ends where that little is reached again
        onset, allowed = lesser, WORSE_PART * allowed
    starts = ok["start_us"].to_numpy()
    departed = departure(
        starts,
        values,
        to_us(onset) if onset is not None else int(starts.max()) + 1,
        shared=metric in PACES,
    )
    if departed is not None and (
        onset is not None
        or any(
            _lasting(one, departed, starts, values, allowed)
            for one in beyond
            if one.metric == metric
        )
        or _within_until(departed, starts, values > limits_ms, 1.0 - slo.goodput_target)
    ):
        onset = from_us(departed)
    base, chosen = _baseline_rows(frame, ok, baseline, onset, metric, slo)
    until = (
        None if onset is None and base is None else impact.end(frame, bad, onset or EPOCH, allowed)
    )
    # What came before the onset, or after all was well again, is no part of what went wrong.
    tail, excess = tails(
        *(values, times, limits_ms, during(starts, onset, until), base, metric, slo, budgets),
        ~ok["error"].to_numpy(),
    )
    points = None if baseline is None else baseline.frame.points
    return Breach(
        *(frame, slo, judged, good, metric, ok, values, times, limits_ms, values > limits_ms),
        *(budgets, onset, base, chosen, points, tail, excess, left, until, beyond),
    )


def during(starts: IntArray, onset: datetime | None, until: datetime | None) -> BoolArray:
    """Which requests began from the onset on and before the end of it, where there are such moments."""
    since = starts >= (to_us(onset) if onset is not None else 0)
    return since if until is None else since & (starts < to_us(until))


def tails(  # noqa: PLR0913
    values: FloatArray,
    times: StageTimes,
    limits_ms: FloatArray | float,
    since: BoolArray,
    base: pl.DataFrame | None,
    metric: str,
    slo: Slo,
    budgets: Budgets,
    answered: BoolArray,
) -> tuple[Tail, Tail]:
    """Return what the requests around the SLO percentile (of those `answered`), and those over the limit since the onset, spent beyond the baseline's."""
    against = (
        None
        if base is None
        else (base[f"{metric}_ms"].to_numpy(), stage_times(base, path_of(metric)))
    )
    ordered = np.sort(values)
    carries = base is not None and base.height >= min_n(slo.percentile)
    tail = _around(
        values, times, limits_ms, slo.percentile, against if carries else None, ordered, answered
    )
    slow = np.flatnonzero((values > limits_ms) & since)
    if not len(slow):
        return tail, tail
    return tail, attribute_slow(
        values,
        times,
        slow,
        int(since.sum()),
        limit_ms=limits_ms,
        baseline=against,
        ordered=ordered,
        noise=tail.noise_z,
        budgets=budgets,
    )


def _around(
    values: FloatArray,
    times: StageTimes,
    limits_ms: FloatArray | float,
    percentile: float,
    against: tuple[FloatArray, StageTimes] | None,
    ordered: FloatArray,
    answered: BoolArray,
) -> Tail:
    """What the answered requests around a percentile spent; its indices are of all `values`."""
    some = np.flatnonzero(answered)
    if len(some) == len(values):
        tail = attribute(
            values, times, percentile, limit_ms=limits_ms, baseline=against, ordered=ordered
        )
    else:
        limits_ms = np.broadcast_to(limits_ms, len(values))[some]
        tail = attribute(
            values[some], times.take(some), percentile, limit_ms=limits_ms, baseline=against
        )
    if tail is None:
        raise AssertionError("a metric is judged only where requests carry it")
    if len(some) == len(values):
        return tail
    of_base = tail.reference == "baseline"
    return replace(
        tail,
        tail_index=some[tail.tail_index],
        reference_index=tail.reference_index if of_base else some[tail.reference_index],
    )


def _lasting(fit: Unfit, moment_us: int, starts: IntArray, ms: FloatArray, allowed: float) -> bool:
    """Return whether what has come since a moment is no mere moment, and clearly over the limit that would have fitted before it."""
    whole, since = (int(starts.max()) - at for at in (int(starts.min()), moment_us))
    over = float((ms[starts >= moment_us] > fit.fits_ms).mean())
    return since >= min(LASTING_S * 1e6, MIN_SINCE * whole) and over > BEYOND * allowed


def _within_until(moment_us: int, starts: IntArray, slow: BoolArray, allowed: float) -> bool:
    """Return whether the requests before a moment were not clearly over what is allowed: what broke the limit before did not begin then."""
    before = starts < moment_us
    return wilson(int((slow & before).sum()), int(before.sum()))[0] <= allowed


def judgeable(rows: pl.DataFrame, slo: Slo, metric: str) -> pl.DataFrame:
    """Return the successful requests with a metric, and those that a time limit ended when its limit had passed.

    The time until then, all of it before the first token where none came, is the least that their latency was (right-censored).
    """
    known = ~rows["error"] & rows[f"{metric}_ms"].is_not_null()
    if known.all():
        return rows
    late = pl.Series(overdue(rows, slo, metric))
    rows = rows.filter(known | late)
    if metric != "ttft" or not late.any():
        return rows
    endless = pl.col("ttft_ms").is_null()
    whole = {
        "ttft_ms": pl.col("e2e_ms"),
        **{f"ttft_{stage}_ms": pl.col(f"{stage}_ms") for stage in STAGES},
    }
    # A call that gave no token was waited for as for its first.
    whole |= {
        "ttft_first_token_ms": pl.sum_horizontal("first_token_ms", "generation_ms"),
        "ttft_generation_ms": pl.lit(0.0),
    }
    return rows.with_columns(
        **{
            name: pl.when(endless).then(value).otherwise(pl.col(name))
            for name, value in whole.items()
        }
    )


def _numbers(metric: str) -> list[str]:
    """The columns of requests that the verdict without findings rests on: a report of a million requests copies no others."""
    paths = {path_of(metric), "e2e"}
    columns = {
        *("start_us", "error", "error_type", "service", "output_tokens"),
        f"{metric}_ms",
        *(f"{path}_ms" for path in paths),
    }
    return sorted(
        columns
        | {
            f"ttft_{stage}_ms" if path == "ttft" else f"{stage}_ms"
            for path in paths
            for stage in STAGES
        }
    )


def _baseline_rows(
    frame: RequestFrame,
    ok: pl.DataFrame,
    baseline: Chosen | None,
    onset: datetime | None,
    metric: str,
    slo: Slo,
) -> tuple[pl.DataFrame | None, Baseline | None]:
    """Return the baseline's requests (see `judgeable`) and how it was chosen; `ok` are those of the window.

    None where too few of them were answered to compare with.
    """
    needed = min(min_n(slo.percentile), MIN_COMPARED)

    def enough(rows: pl.DataFrame) -> bool:
        return int((~rows["error"]).sum()) >= needed

    if baseline is not None:
        named = named_baseline(baseline)
        rows = judgeable(baseline.frame.having(_numbers(metric)).rows, slo, metric)
        return (rows, named) if enough(rows) else (None, named)
    if frame.window.baseline != "auto" or onset is None or frame.start is None:
        return None, None
    rows, _ = change_points.parted(ok, to_us(onset))
    if not enough(rows):
        return None, None
    return rows, Baseline(choice=BEFORE_ONSET, start=frame.start, end=onset, requests=rows.height)


def named_baseline(chosen: Chosen | None) -> Baseline | None:
    """Return a chosen window as the report names it, None where there is none or nothing in it."""
    if chosen is None or chosen.frame.start is None or chosen.frame.end is None:
        return None
    return Baseline(
        choice=chosen.choice,
        start=chosen.frame.start,
        end=chosen.frame.end,
        requests=chosen.frame.rows.height,
    )


def over_since(breach: Breach) -> bool:
    """Return whether the SLO is broken since the onset, although a healthy stretch before it dilutes the window's own share."""
    if breach.onset is None:
        return False
    lasted = period(breach).seconds >= LASTING_S
    # An incident that has ended counts only where it left the whole window below the target.
    below = breach.goodput.ratio is None or breach.goodput.ratio < breach.slo.goodput_target
    since = during(
        breach.frame.rows["start_us"].to_numpy(),
        breach.onset,
        breach.until if lasted and below else None,
    )
    joint = (breach.judged.good | breach.judged.bad) & ~breach.left
    known = since & (
        joint
        if breach.goodput.ratio is not None
        else breach.judged.known[breach.metric] | breach.judged.error
    )
    n, bad = int(known.sum()), int((known & breach.bad).sum())
    # What brought all of the window below its target is no moment either, however few of its requests came since then.
    missed = breach.goodput.ratio is not None and below
    least = (
        0.0
        if missed
        else max(min_n(breach.slo.percentile), 0.0 if lasted else MIN_SINCE * len(since))
    )
    if bad < MIN_BREACHING or n < least or since_onset(breach).seconds < MIN_SINCE_S:
        return False
    met = in_time(breach.frame.rows["start_us"].to_numpy()[known], ~breach.bad[known])[1]
    return clearly_below(met, breach.slo.goodput_target, DEPENDENT)


def worse(breach: Breach) -> bool:
    """Return whether clearly more requests are over the limit since the onset than in the baseline, though the target is still met.

    Without an onset, all of the window: minutes after a change contain none."""
    if breach.base is None:
        return False
    since = breach.ok["start_us"].to_numpy() >= to_us(breach.onset or EPOCH)
    before = over_before(breach, breach.base)
    usual = max(
        wilson(int(before.sum()), len(before), Z_ONE_SIDED)[1],
        WORSE_PART * (1.0 - breach.slo.goodput_target),
    )
    if since_onset(breach).seconds < MIN_SINCE_S:
        return False
    for some in (since, breach.during):  # while it lasted, where it is over
        slow, n = int((breach.breaching & some).sum()), int(some.sum())
        enough = slow >= MIN_BREACHING and n >= max(
            min_n(breach.slo.percentile), MIN_SINCE * len(some)
        )
        if enough and wilson(slow // DEPENDENT, n // DEPENDENT, Z_ONE_SIDED)[0] > usual:
            return True
    return False


def at_limit(breach: Breach) -> bool:
    """Return whether more requests miss the limits than chance explains if each came for itself, though they may share their fate in a few stretches."""
    judged = (breach.judged.good | breach.judged.bad) & ~breach.left
    enough = int((breach.breaching & breach.during).sum()) >= MIN_BREACHING
    return (
        enough
        and wilson(int(breach.judged.good[judged].sum()), int(judged.sum()), Z_ONE_SIDED)[1]
        < breach.slo.goodput_target
    )


def missed_by_some(breach: Breach) -> bool:
    """Return whether the window's own figures miss a limit, with enough slow requests to look for what makes them slow."""
    slow = int((breach.breaching & breach.during).sum())
    return breach.misses is not None and slow >= MIN_BREACHING


def healthy_part(breach: Breach) -> float:
    """Return how far the baseline stands for health, 0 to 1: 1 where it meets the target, 0 where it misses as much beyond the target as the window."""
    if breach.base is None or not breach.base.height:
        return 1.0
    allowed = 1.0 - breach.slo.goodput_target
    beyond = float(over_before(breach, breach.base).mean()) - allowed
    now = float(breach.breaching[breach.during].mean()) if breach.during.any() else 0.0
    return 1.0 if beyond <= 0.0 else max(0.0, 1.0 - beyond / max(now - allowed, beyond))


def over_before(breach: Breach, base: pl.DataFrame) -> BoolArray:
    """Which requests of the baseline were over the judged limit, each over its own."""
    limits = limits_of(base, breach.slo, breach.metric)
    over: BoolArray = base[f"{breach.metric}_ms"].to_numpy() > (
        breach.limit_ms if limits is None else limits
    )
    return over


def overrun_stage(
    metric: str, breaching: StageTimes, budgets: Budgets, tail: Tail, limit_ms: float
) -> str:
    """Return the stage that broke the budget: of the most overrun group, the member that grew most over the reference.

    With a baseline the group is the one that grew most over it: what was over its share of the budget before is no news.
    `other` when more than 30 % of the excess has no span. TPOT and ITL are decode speed, independent of other time.
    """
    if tail.share(OTHER) > MOST_UNATTRIBUTED:
        return OTHER
    if metric in ("tpot", "itl"):
        return max(("decode", "generation"), key=lambda stage: tail.tail_ms.get(stage, 0.0))
    shares = overrun_shares(breaching, budgets) or {}
    if tail.reference == "baseline":
        grown = {
            group: sum(tail.excess_ms.get(stage, 0.0) for stage in stages)
            for group, stages in GROUPS.items()
        }
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


def period(breach: Breach) -> Period:
    """What is judged: from the onset to the window's end, or to the moment from which requests went well again."""
    since = since_onset(breach)
    return since if breach.until is None else Period(since.start, breach.until)


def since_onset(breach: Breach) -> Period:
    """The recorded part of the window from the onset to its end; all of it where there is no onset."""
    return recorded(
        breach.onset or breach.frame.start or EPOCH, breach.frame.end or EPOCH, breach.frame.rows
    )


def recorded(start: datetime, end: datetime, rows: pl.DataFrame) -> Period:
    """The part of a stretch from its first request on: it may begin long before anything was recorded, and its rates would be too low."""
    return Period(max(start, from_us(int(rows["start_us"].to_numpy().min()))), end)


def after_first_token(breach: Breach) -> StageTimes | None:
    """Return the time behind the first token per stage and answered request, None when another metric than TTFT is judged."""
    if breach.metric != "ttft":
        return None
    whole, first = (
        times.take(breach.answered) for times in (stage_times(breach.ok, "e2e"), breach.times)
    )
    none = np.zeros(len(first.total_ms))
    rest = {
        stage: np.maximum(value - first.ms.get(stage, none), 0.0)
        for stage, value in whole.ms.items()
    }
    kept = {stage: np.where(value > 1e-6, value, 0.0) for stage, value in rest.items()}
    return StageTimes(
        "e2e", whole.total_ms, {stage: value for stage, value in kept.items() if value.any()}
    )
