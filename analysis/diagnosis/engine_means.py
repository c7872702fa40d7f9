"""What do sums of times over counts of requests say, where no latency histogram arrived? A mean, and how much of it was waiting.

A mean over a limit is over it whatever the percentile, unless a few requests take many times the limit; below it, a mean judges nothing. Triton counts
microseconds by phase, Higress milliseconds of the model behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.verdict import Metric
from overrun.analysis.numbers.statistics.change_points import LEAST_SCRAPES, find_onset
from overrun.analysis.words.finding import say_ms
from overrun.analysis.words.slo import Slo

# The mean that stands for a metric, and whose it is.
_OF: Final[tuple[tuple[str, Metric, str], ...]] = (
    ("e2e_mean", "e2e", "engine's"),
    ("gateway_call_e2e_mean", "e2e", "gateway's"),
    ("gateway_call_ttft_mean", "ttft", "gateway's"),
)
_QUEUE: Final = "queue_mean"
MEANS: Final = (*(name for name, _, _ in _OF), _QUEUE)
_LEAST_SAMPLES: Final = LEAST_SCRAPES
# From this part of the mean on the queue is where the time goes; own default.
_MOST_OF_IT: Final = 0.5
_MARGIN: Final = 0.05  # of the samples that may lie on the wrong side of an onset


@dataclass(frozen=True)
class Mean:
    """A mean request: `metric` takes `ms`, of which it waits `queue_ms`, since the onset; the limit that it is over, None if under each."""

    metric: Metric
    whose: str
    ms: float
    before_ms: float | None
    queue_ms: float | None
    onset_us: int | None
    limit_ms: float | None

    @property
    def waits(self) -> bool:
        """Whether most of the time is waiting."""
        return self.queue_ms is not None and self.queue_ms >= _MOST_OF_IT * self.ms

    def said(self) -> str:
        """The mean as a clause."""
        before = "" if self.before_ms is None else f" ({say_ms(self.before_ms)} before)"
        of = {"ttft": "a first token"}.get(self.metric, "a request")
        queue = "" if self.queue_ms is None else f", {say_ms(self.queue_ms)} of it in the queue"
        return f"{of} takes {say_ms(self.ms)} on average{before}{queue}"


def mean_of(points: pl.DataFrame, slo: Slo) -> Mean | None:
    """The mean that is over its limit by most, else any that was counted; None where none was. `points` as in engine_gauges."""
    found = [
        mean
        for name, metric, whose in _OF
        if (mean := _mean(points, name, metric, whose, slo.limits().get(metric))) is not None
    ]
    return max(found, key=lambda one: one.ms / one.limit_ms if one.limit_ms else 0.0, default=None)


def _mean(
    points: pl.DataFrame, name: str, metric: Metric, whose: str, limit_ms: float | None
) -> Mean | None:
    course = _course(points, name)
    if course.height < _LEAST_SAMPLES:
        return None
    times, values = course["time_us"].to_numpy(), 1e3 * course["value"].to_numpy()
    over = limit_ms is not None
    onset = (
        find_onset(times, values > limit_ms, _MARGIN, least=LEAST_SCRAPES)
        if limit_ms is not None
        else None
    )
    later = times >= (onset or 0)
    level = float(np.mean(values[later]))
    waited = _course(points, _QUEUE).filter(pl.col("time_us") >= (onset or 0))["value"]
    own = whose == "engine's" and len(waited) > 0
    return Mean(
        metric=metric,
        whose=whose,
        ms=level,
        before_ms=float(np.mean(values[~later])) if (~later).any() else None,
        queue_ms=1e3 * float(np.mean(waited.to_numpy())) if own else None,
        onset_us=onset,
        limit_ms=limit_ms if over and level > (limit_ms or 0.0) else None,
    )


def _course(points: pl.DataFrame, name: str) -> pl.DataFrame:
    """The mean over instances at each moment."""
    return (
        points.filter(pl.col("indicator") == name)
        .group_by("time_us")
        .agg(pl.col("value").mean())
        .sort("time_us")
    )
