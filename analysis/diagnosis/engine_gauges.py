"""What do gauges, rates and sums of times say where no latency histogram arrived? Who waits, how many run, how full the cache is, and what that must cost.

How long a request waits follows from Little's law where finished requests are counted: the mean number that waits over those that finish per second. A mean that is
over a limit is over it whatever the percentile, unless a few requests take many times the limit; below it, a mean judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.diagnosis.verdict import Metric, Verdict
from overrun.analysis.numbers.statistics.change_points import LEAST_SCRAPES, find_onset
from overrun.analysis.stations.explain import explain
from overrun.analysis.stations.sides import each
from overrun.analysis.stations.station import Group, Plant
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import say_ms, say_ratio
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us

# A request waiting in more than half of the samples is a standing queue; own default.
_MOSTLY: Final = 0.5
# Fewer samples than these are a glance, not a course.
_LEAST: Final = LEAST_SCRAPES
# The part of samples that may lie on the wrong side of an onset.
_MARGIN: Final = 0.05
_NULLS: Final = (
    *("metric", "stage", "cause", "onset", "trend", "affected", "owner", "mitigation"),
    *("rollback", "recheck_after_s"),
)


class _Mean(NamedTuple):
    """A mean request: `metric` takes `ms` since the onset, of which it waits `queue_ms`, against a limit."""

    metric: Metric
    ms: float
    before_ms: float | None
    queue_ms: float | None
    onset_us: int | None
    limit_ms: float

    def said(self) -> str:
        """The mean as a clause."""
        before = "" if self.before_ms is None else f" ({say_ms(self.before_ms)} before)"
        of = "a first token" if self.metric == "ttft" else "a request"
        queue = "" if self.queue_ms is None else f", {say_ms(self.queue_ms)} of it in the queue"
        return f"{of} takes {say_ms(self.ms)} on average{before}{queue}"


def by_gauges(
    plant: Plant, names: list[str], slo: Slo
) -> tuple[Verdict | None, Explanation | None]:
    """Return the verdict of gauges, rates and means, and what explains it; `names` are all indicators that came. None without any."""
    if not names and not plant.groups:
        return None, None
    note = "By the engine's gauges alone (no spans, no latency histogram): "
    means = [mean for name in ("e2e", "ttft") if (mean := _mean(plant, name, slo)) is not None]
    worst = max(means, key=lambda one: one.ms / one.limit_ms, default=None)
    if worst is not None and worst.ms > worst.limit_ms:
        return _over_by_mean(plant, worst)
    seen = [*_seen(plant), worst.said() if worst else ""]
    if not any(seen):
        sentence = f"{note}no queue, no running requests and no tokens are counted, only {', '.join(names[:6])}. No limit can be judged."
        why = "no gauge of waiting or running requests"
        return _judged("not_enough_data", sentence, why), None
    limits = slo.limits()
    metric: Metric | None = "ttft" if "ttft" in limits else "e2e" if "e2e" in limits else None
    since = _waiting_since(plant)
    wait_ms = _wait_ms(plant, since)
    over = metric is not None and wait_ms is not None and wait_ms > limits[metric]
    if over and metric is not None and wait_ms is not None:
        said = f"by Little's law a request waits {say_ms(wait_ms)} on average, which alone is over the {metric.upper()} limit of {say_ms(limits[metric])}"
    else:
        wanted = " and ".join(f"{name.upper()} (limit {say_ms(ms)})" for name, ms in limits.items())
        said = f"{wanted} {'is' if len(limits) == 1 else 'are'} not measured, so no limit is judged: latency histograms or spans are needed"
    sentence = f"{note}{', '.join(part for part in seen if part)}; {said}."
    verdict = _judged("over_budget" if over else "not_enough_data", sentence, _NO_HISTOGRAM)
    if over:
        verdict.metric = metric
    if since is not None:
        verdict.onset = from_us(since)
    waits = _stands(_waiting(plant), plant, since)
    return verdict, explain(plant, "ttft" if over or waits else None)


_NO_HISTOGRAM: Final = "metrics without histograms do not show it"


def _judged(status: str, sentence: str, why: str) -> Verdict:
    return Verdict(
        status="over_budget" if status == "over_budget" else "not_enough_data",
        scope="engine_only",
        sentence=sentence,
        reasons=dict.fromkeys(_NULLS, why),
    )


def _over_by_mean(plant: Plant, mean: _Mean) -> tuple[Verdict, Explanation | None]:
    """The verdict of a mean that is over its limit by itself."""
    gateway = plant.front is not None
    sentence = (
        f"By the {'gateway' if gateway else 'engine'}'s counters alone (no spans, no latency histogram): {mean.said()}, which alone is over the "
        f"{mean.metric.upper()} limit of {say_ms(mean.limit_ms)}."
    )
    verdict = _judged("over_budget", sentence, "sums and counts do not show it")
    verdict.metric = mean.metric
    verdict.owner = "provider" if gateway and not plant.groups else "platform"
    verdict.onset = None if mean.onset_us is None else from_us(mean.onset_us)
    return verdict, explain(plant, mean.metric)


def _mean(plant: Plant, name: Metric, slo: Slo) -> _Mean | None:
    """The mean of a latency of the outermost observer; None where none is counted or limited."""
    outer, limit = plant.outer, slo.limits().get(name)
    if outer is None or limit is None:
        return None
    values = outer.time_of(name)
    if values is None and name == "e2e":
        calls = outer.quantity("calls")
        values = each(outer.quantity("behind"), outer.done() if calls is None else calls)
    if values is None or int(np.isfinite(values).sum()) < _LEAST:
        return None
    times, some = _times_us(plant), np.isfinite(values)
    onset = find_onset(times[some], 1e3 * values[some] > limit, _MARGIN, least=LEAST_SCRAPES)
    later = some & (times >= (onset or 0))
    queue = outer.time_of("queue") if plant.front is None else None
    waited = queue[later & np.isfinite(queue)] if queue is not None else np.zeros(0)
    earlier = values[some & ~later]
    return _Mean(
        metric=name,
        ms=1e3 * float(values[later].mean()),
        before_ms=1e3 * float(earlier.mean()) if len(earlier) else None,
        queue_ms=1e3 * float(waited.mean()) if len(waited) else None,
        onset_us=onset,
        limit_ms=limit,
    )


def _times_us(plant: Plant) -> IntArray:
    grid = plant.recording.grid
    times: IntArray = np.rint(1e6 * (grid.start_s + grid.step_s * np.arange(grid.bins))).astype(
        np.int64
    )
    return times


def _sum(plant: Plant, of: Callable[[Group], FloatArray | None]) -> FloatArray | None:
    """The sum over all groups but the front, which counts the same requests; the front's where nobody else has any."""
    known = [values for group in plant.groups if (values := of(group)) is not None]
    if not known:
        return None if plant.front is None else of(plant.front)
    total: FloatArray = np.nansum(known, axis=0)
    return np.where(np.isnan(known).all(axis=0), np.nan, total)


def _waiting(plant: Plant) -> FloatArray | None:
    def waiting(group: Group) -> FloatArray | None:
        known = [group.quantity(key) for key in ("waiting", "transferring")]
        some = [values for values in known if values is not None]
        return sum(some[1:], start=some[0]) if some else None

    return _sum(plant, waiting)


def _since(values: FloatArray, plant: Plant, onset_us: int | None) -> FloatArray:
    return values[np.isfinite(values) & (_times_us(plant) >= (onset_us or 0))]


def _stands(values: FloatArray | None, plant: Plant, onset_us: int | None) -> bool:
    """Whether requests wait in most samples since the onset."""
    if values is None:
        return False
    some = _since(values, plant, onset_us)
    return len(some) >= _LEAST and float((some > 0.0).mean()) >= _MOSTLY


def _waiting_since(plant: Plant) -> int | None:
    """Since when requests wait, None where no single moment parts the samples."""
    values = _waiting(plant)
    if values is None or int(np.isfinite(values).sum()) < _LEAST:
        return None
    some: BoolArray = np.isfinite(values)
    return find_onset(_times_us(plant)[some], values[some] > 0.0, _MARGIN, least=LEAST_SCRAPES)


def _wait_ms(plant: Plant, onset_us: int | None) -> float | None:
    """How long a request waits on average by Little's law; None where finished requests are not counted."""
    waiting, finished = _waiting(plant), _sum(plant, Group.done)
    if waiting is None or finished is None or not _stands(waiting, plant, onset_us):
        return None
    done = float(_since(finished, plant, onset_us).mean())
    return 1000.0 * float(_since(waiting, plant, onset_us).mean()) / done if done > 0.0 else None


def _seen(plant: Plant) -> list[str]:
    """What is counted, as clauses: who waits, who runs, the cache, tokens and their time."""
    onset = _waiting_since(plant)
    parts = [_say_waiting(plant, onset)]
    running = _sum(plant, lambda group: group.quantity("running"))
    seats = _sum(plant, lambda group: group.quantity("seats"))
    if running is not None:
        of = "" if seats is None else f" of at most {np.nanmax(seats):,.0f}"
        mean = _since(running, plant, onset).mean()
        parts.append(f"{mean:,.1f} run".replace(".0 run", " run") + of)
    usage = [values for group in plant.all if (values := group.quantity("kv")) is not None]
    if usage:
        worst = max(float(np.nanpercentile(values, 95.0)) for values in usage)
        parts.append(f"the KV cache is {say_ratio(worst)} full (P95)")
    tokens = {
        name: _sum(plant, lambda group, key=f"{name}_tokens": group.quantity(key))  # type: ignore[misc]
        for name in ("prompt", "output")
    }
    rates = [
        f"{_since(values, plant, onset).mean():,.0f} {name}"
        for name, values in tokens.items()
        if values is not None
    ]
    if rates:
        parts.append(f"{' and '.join(rates)} tokens/s")
    counted = [g.time_of("tpot") for g in plant.groups] + [
        each(g.quantity("decode"), g.quantity("output_tokens")) for g in plant.groups
    ]
    each_token = next((one for one in counted if one is not None), None)
    if each_token is not None:
        parts.append(f"a token takes {say_ms(1000.0 * float(np.nanmean(each_token)))} on average")
    return parts


def _say_waiting(plant: Plant, onset_us: int | None) -> str:
    values = _waiting(plant)
    if values is None:
        return ""
    if not _stands(values, plant, onset_us):
        some = values[np.isfinite(values)]
        share = say_ratio(float((some > 0.0).mean())) if len(some) and some.max() > 0.0 else ""
        return f"requests wait in {share} of the samples" if share else "no request waits"
    some = _since(values, plant, onset_us)
    began = "" if onset_us is None else f" since {from_us(onset_us):%H:%M:%S} UTC"
    return f"requests wait in {say_ratio(float((some > 0.0).mean()))} of the samples ({some.mean():,.0f} on average, at most {some.max():,.0f}){began}"
