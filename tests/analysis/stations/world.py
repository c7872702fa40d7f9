"""Recordings made of arrays: what tests import that ask what stations say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from overrun.analysis.stations.explain import explain
from overrun.analysis.stations.series import Recording, recording
from overrun.analysis.stations.station import Plant, plant_of
from overrun.analysis.words.explanation import Explanation

STEP_S, T0_S = 15, 1_795_640_000
Values = Sequence[float] | np.ndarray[Any, Any]


def level(indicator: str | None, values: Values, **more: Any) -> dict[str, Any]:
    """A gauge's row of `metric_series`: one sample a scrape."""
    return _row(indicator, 1, value=[float(v) for v in values], **more)


def rate(indicator: str | None, values: Values, **more: Any) -> dict[str, Any]:
    """A cumulative counter's row whose increase a second is `values`, the first of which is before the second sample."""
    total = np.r_[0.0, np.cumsum(np.asarray(values, float)[1:] * STEP_S)]
    return _row(indicator, 2, value=total.tolist(), monotonic=True, temporality=2, **more)


def times(indicator: str, many: Values, seconds: Values, **more: Any) -> dict[str, Any]:
    """A histogram's row: `many` observations a second of `seconds` each."""
    count = np.r_[0.0, np.cumsum(np.asarray(many, float)[1:] * STEP_S)]
    spent = np.asarray(many, float) * np.asarray(seconds, float)
    total = np.r_[0.0, np.cumsum(spent[1:] * STEP_S)]
    return _row(indicator, 3, sum=total.tolist(), count=count.tolist(), temporality=2, **more)


def _row(indicator: str | None, kind: int, **more: Any) -> dict[str, Any]:
    n = next(len(more[key]) for key in ("value", "sum") if key in more)
    first: int = more.pop("first", 0)
    labels: Mapping[str, str] = more.pop("labels", {})
    made = {
        "instance": "gpu-0",
        "name": more.pop("name", f"vllm:{indicator}"),
        "kind": kind,
        "temporality": 0,
        "monotonic": False,
        "indicator": indicator,
        "scale": 1.0,
        "model": "m",
        "service": "vllm",
        "version": "",
        "attributes": dict(labels),
        "resource_attributes": {},
        "time_ns": [(T0_S + STEP_S * (first + k)) * 1_000_000_000 for k in range(n)],
        "start_ns": [0] * n,
        "value": [None] * n,
        "sum": [None] * n,
        "count": [None] * n,
    }
    return made | more


def recorded(*rows: dict[str, Any]) -> Recording:
    """The rows on a grid."""
    return recording(list(rows))


def plant(*rows: dict[str, Any]) -> Plant:
    """The stations of rows."""
    return plant_of(recording(list(rows)))


def told(*rows: dict[str, Any], over: str | None = None) -> Explanation:
    """What is said of rows."""
    made = explain(plant(*rows), over)
    assert made is not None
    return made


def steps(
    before: float, now: float, n: int = 80, at: int = 40, noise: float = 0.0
) -> np.ndarray[Any, Any]:
    """A level that changes at a bin, with a noise that repeats (no random numbers)."""
    wave = np.sin(np.arange(n) * 2.399963)  # the golden angle: no two neighbours alike
    values: np.ndarray[Any, Any] = np.where(np.arange(n) < at, before, now) * (1.0 + noise * wave)
    return values
