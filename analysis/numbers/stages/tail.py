"""What makes a slow request slower than a typical one? Stage differences that sum exactly to the gap shown."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from overrun.analysis.numbers.stages.budget import GROUPS, Budgets, StageTimes
from overrun.analysis.words.arrays import FloatArray, IndexArray

TYPICAL: Final = (40.0, 60.0)
TAIL_POINTS: Final = 2.0
WIDE_POINTS: Final = 5.0
# Fewest requests that stand for "healthy" when the typical one is over the limit itself; 30 is the usual least group
# for means.
MIN_HEALTHY: Final = 30
RESAMPLES: Final = 400
# Without a baseline, the percentile of the waits in an engine's queue that stands for not waiting; own default.
QUEUE: Final = "queue"
UNWAITED: Final = 10.0
MODEL: Final = "model"
# A mean over more requests than this gains nothing that a person would see, and the bootstrap stays fast at a million
# rows.
_MOST_RESAMPLED: Final = 2000


@dataclass(frozen=True)
class Tail:
    """Mean stage times (ms) of typical, slow and reference requests; all mappings have the same stages.

    `gap_ms` = mean of the tail - mean of the typical requests = sum over stages of `tail_ms - typical_ms`, exactly.
    `excess_ms` is per stage `tail_ms - reference_ms` and sums to `excess_total_ms`; `reference` says against what:
    `baseline` (the same band of the baseline window), `typical`, or `healthy` (requests within the limit, used when
    the typical request breaks it too). Without a baseline what these spend beside the model counts as
    usual only as far as its budget goes. `noise_z` is the change of a stage's mean in baseline standard deviations, with a baseline only.
    """

    percentile: float
    tail_index: IndexArray
    reference: str
    typical_ms: dict[str, float]
    tail_ms: dict[str, float]
    reference_ms: dict[str, float]
    gap_ms: float
    excess_ms: dict[str, float]
    excess_total_ms: float
    noise_z: dict[str, float] | None
    reference_index: IndexArray

    @property
    def reference_n(self) -> int:
        """Number of requests behind the reference means."""
        return len(self.reference_index)

    def usual_ms(self, stage: str) -> float:
        """Return what counts as usual of a stage's time in a slow request: the reference's mean, or its budget where that is over it (see `attribute_slow`)."""
        return self.tail_ms.get(stage, 0.0) - self.excess_ms.get(stage, 0.0)

    def kept_part(self, stage: str) -> float:
        """Return which part (0..1) of the reference's time in a stage counts as usual; 1 where it takes none."""
        spent = self.reference_ms.get(stage, 0.0)
        return min(1.0, max(0.0, self.usual_ms(stage) / spent)) if spent > 0.0 else 1.0

    def share(self, stage: str) -> float:
        """Return the part of the excess (0..1) that one stage explains; 0 when there is no excess."""
        if self.excess_total_ms <= 0.0:
            return 0.0
        return min(1.0, max(0.0, self.excess_ms.get(stage, 0.0) / self.excess_total_ms))


def band(values: FloatArray, low: float, high: float) -> IndexArray:
    """Return the indices of the values between two percentiles (0..100) by rank; at least one for a non-empty array."""
    return _ranks(values, np.sort(values), low, high)


def attribute(
    values: FloatArray,
    times: StageTimes,
    percentile: float,
    *,
    limit_ms: float | FloatArray | None = None,
    baseline: tuple[FloatArray, StageTimes] | None = None,
    ordered: FloatArray | None = None,
) -> Tail | None:
    """Compare slow with typical (and with baseline or healthy) requests, stage by stage.

    Args:
        values: the judged metric per request, shape (n,); it orders the requests.
        times: their stage times, same order.
        percentile: the SLO percentile (0..100) around which the tail is taken.
        limit_ms: the metric's limit, or one per request; where the typical request breaks it, the reference is the requests within it.
        baseline: values and stage times of the baseline window.
        ordered: the values in order, where the caller has sorted them.

    Returns None for no request.
    """
    if len(values) == 0:
        return None
    ordered = np.sort(values) if ordered is None else ordered
    tail_index, middle = (
        _ranks(values, ordered, percentile - TAIL_POINTS, percentile + TAIL_POINTS),
        _ranks(values, ordered, *TYPICAL),
    )
    typical, tail = _means(times, middle), _means(times, tail_index)
    reference, index, means, noise = "typical", middle, typical, None
    if baseline is not None and len(baseline[0]):
        index = _baseline_band(baseline[0], percentile)
        reference, means, noise = "baseline", _means(baseline[1], index), _noise(times, baseline[1])
    elif limit_ms is not None and _mostly(values > limit_ms):
        healthy = np.flatnonzero(values <= limit_ms)
        if len(healthy) >= MIN_HEALTHY:
            reference, index, means = "healthy", healthy, _means(times, healthy)
    stages = list(dict.fromkeys([*tail, *means]))
    filled = [{stage: part.get(stage, 0.0) for stage in stages} for part in (typical, tail, means)]
    excess = {stage: filled[1][stage] - filled[2][stage] for stage in stages}
    return Tail(
        percentile=percentile,
        tail_index=tail_index,
        reference=reference,
        typical_ms=filled[0],
        tail_ms=filled[1],
        reference_ms=filled[2],
        gap_ms=math.fsum(filled[1].values()) - math.fsum(filled[0].values()),
        excess_ms=excess,
        excess_total_ms=math.fsum(excess.values()),
        noise_z=noise,
        reference_index=index,
    )


def attribute_slow(  # noqa: PLR0913
    values: FloatArray,
    times: StageTimes,
    slow: IndexArray,
    judged: int,
    *,
    limit_ms: float | FloatArray,
    baseline: tuple[FloatArray, StageTimes] | None = None,
    ordered: FloatArray | None = None,
    noise: dict[str, float] | None = None,
    budgets: Budgets | None = None,
) -> Tail:
    """Compare all slow requests (`slow`, indices, at least one) with as slow a part of the baseline: the excess that causes compete for.

    `judged` is how many requests the slow ones are among. With a baseline the reference is its slowest len(slow)/judged, so that what is
    always slow does not count as a change, whatever share of requests is slow. Without one it is the typical requests, or those within the
    limit where the typical one breaks it; but in a queue nobody needs to wait, so there it is what the least waiting ones had. And if nothing shows it what
    was before, a step beside the model that takes more than its part of the limit (`budgets`) in every request is as much in excess as one that does in
    the slow ones alone. `ordered` are the values in order, where the caller has sorted them; `noise` is `noise_z` against
    this baseline, where the caller knows it.
    """
    share = 100.0 * len(slow) / max(judged, 1)
    ordered = np.sort(values) if ordered is None else ordered
    middle = _ranks(values, ordered, *TYPICAL)
    typical, tail = _means(times, middle), _means(times, slow)
    reference, index, means = "typical", middle, typical
    if baseline is not None and len(baseline[0]):
        least = min(100.0, 100.0 * MIN_HEALTHY / len(baseline[0]))
        index = band(baseline[0], 100.0 - max(share, least), 100.0)
        reference, means, noise = (
            "baseline",
            _means(baseline[1], index),
            _noise(times, baseline[1]) if noise is None else noise,
        )
    elif _mostly(values > limit_ms) and int((values <= limit_ms).sum()) >= MIN_HEALTHY:
        index = np.flatnonzero(values <= limit_ms)
        reference, means = "healthy", _means(times, index)
    if reference != "baseline" and QUEUE in times.ms:
        means = means | {QUEUE: min(means[QUEUE], float(np.percentile(times.ms[QUEUE], UNWAITED)))}
    stages = list(dict.fromkeys([*tail, *means]))
    filled = [{stage: part.get(stage, 0.0) for stage in stages} for part in (typical, tail, means)]
    usual = (
        filled[2]
        if reference == "baseline" or budgets is None
        else _as_budgeted(filled[2], budgets, times.take(slow))
    )
    excess = {stage: filled[1][stage] - usual[stage] for stage in stages}
    gap_ms = math.fsum(filled[1].values()) - math.fsum(filled[0].values())
    return Tail(
        100.0 - share / 2.0,
        slow,
        reference,
        filled[0],
        filled[1],
        filled[2],
        gap_ms,
        excess,
        math.fsum(excess.values()),
        noise,
        index,
    )


def _as_budgeted(means: dict[str, float], budgets: Budgets, slow: StageTimes) -> dict[str, float]:
    """Return mean stage times with those beside the model cut to their budgets: a stage's own, and its group's in proportion."""
    cut = dict(means)
    for group, members in GROUPS.items():
        stages = [stage for stage in members if stage in means]
        if group == MODEL or not stages:
            continue
        for stage in stages:
            own = budgets.mean_ms(stage, slow)
            cut[stage] = means[stage] if own is None else min(means[stage], own)
        limit, spent = budgets.mean_ms(group, slow), sum(cut[stage] for stage in stages)
        if limit is not None and spent > limit:
            cut.update({stage: cut[stage] * limit / spent for stage in stages})
    return cut


def share_interval(
    tail: Tail, times: StageTimes, stage: str, rng: np.random.Generator
) -> tuple[float, float] | None:
    """Return a 95 % percentile-bootstrap interval of `tail.share(stage)` over the slow requests, None below 2 of them.

    The reference is kept fixed: it rests on far more requests than the tail.
    """
    index = tail.tail_index[:: max(1, len(tail.tail_index) // _MOST_RESAMPLED)]
    if len(index) < 2 or stage not in times.ms:
        return None
    drawn = rng.integers(0, len(index), (RESAMPLES, len(index)))
    part = times.ms[stage][index][drawn].mean(axis=1) - tail.usual_ms(stage)
    whole = times.total_ms[index][drawn].mean(axis=1) - math.fsum(map(tail.usual_ms, tail.tail_ms))
    shares = np.clip(np.divide(part, whole, out=np.zeros(RESAMPLES), where=whole > 0.0), 0.0, 1.0)
    low, high = np.percentile(shares, [2.5, 97.5])
    return float(low), float(high)


def _baseline_band(values: FloatArray, percentile: float) -> IndexArray:
    """Return the baseline's requests around the percentile.

    2 points either side, 5 where that holds too few for a mean.
    """
    index = band(values, percentile - TAIL_POINTS, percentile + TAIL_POINTS)
    return (
        index
        if len(index) >= MIN_HEALTHY
        else band(values, percentile - WIDE_POINTS, percentile + WIDE_POINTS)
    )


def ranks_of(n: int, low: float, high: float) -> tuple[int, int]:
    """Return the ranks [first, last) of n values, at least one, that are between two percentiles (0..100)."""
    first = min(max(0, math.floor(low / 100.0 * n)), n - 1)
    return first, min(n, max(first + 1, math.ceil(high / 100.0 * n)))


def _ranks(values: FloatArray, ordered: FloatArray, low: float, high: float) -> IndexArray:
    """Return where the values between two percentiles by rank stand, of equal ones the first: what a stable argsort has there, at a tenth of its time."""
    if len(ordered) == 0:
        return np.empty(0, np.intp)
    first, last = ranks_of(len(ordered), low, high)
    least, most = ordered[first], ordered[last - 1]
    index = np.flatnonzero((values >= least) & (values <= most))
    earlier, later = (
        first - int(np.searchsorted(ordered, least, "left")),
        int(np.searchsorted(ordered, most, "right")) - last,
    )
    if earlier or later:
        found = values[index]
        ends = np.flatnonzero(found == most)
        index = np.delete(
            index,
            np.concatenate([np.flatnonzero(found == least)[:earlier], ends[len(ends) - later :]]),
        )
    return index


def _mostly(over: npt.NDArray[np.bool_]) -> bool:
    return 2 * int(over.sum()) > len(over)


def _means(times: StageTimes, index: IndexArray) -> dict[str, float]:
    return {stage: float(value[index].mean()) for stage, value in times.ms.items()}


def _noise(times: StageTimes, baseline: StageTimes) -> dict[str, float]:
    """Return per stage (mean now - mean in the baseline) / standard deviation in the baseline.

    Stages that do not vary are left out.
    """
    scores = {}
    for stage in times.ms.keys() & baseline.ms.keys():
        deviation = float(baseline.ms[stage].std())
        if deviation > 0.0:
            scores[stage] = (
                float(times.ms[stage].mean()) - float(baseline.ms[stage].mean())
            ) / deviation
    return scores
