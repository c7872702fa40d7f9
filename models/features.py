"""Which numbers describe a request to the length model?

One function for training and serving. The names in `FEATURES`, in this order, are the only things a model may see:
request metadata and causal history (`models.history`). Server load is left out on purpose: how long an answer gets does
not depend on it. Prompt text is never read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.history import Window
from models.request import MISSING, Request

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Feature:
    """One model input; a model may use it only when its training data covers at least `needs_span_s` seconds."""

    name: str
    meaning: str
    needs_span_s: float = 0.0


# Times of day need two whole days: learned from one hour they tell the training slice from the test slice and nothing
# else.
FEATURES: Final = (
    Feature("log_input_tokens", "log(1 + prompt tokens)"),
    Feature("log_max_tokens", "log(1 + max_tokens asked for)"),
    Feature("temperature", "sampling temperature"),
    Feature("stream", "1 when the answer is streamed"),
    Feature("turn", "turn of the conversation"),
    Feature("hour_sin", "time of day on the circle, UTC", 2 * _DAY_S),
    Feature("hour_cos", "time of day on the circle, UTC", 2 * _DAY_S),
    Feature("weekday", "0 = Monday, UTC", 14 * _DAY_S),
    Feature("route_log_median", "log(1 + median output) of the route's recent requests"),
    Feature("route_log_p90", "log(1 + P90 output) of the route's recent requests"),
    Feature("model_log_median", "log(1 + median output) of the model's recent requests"),
    Feature(
        "same_size_log_median", "log(1 + median output) of the route's requests with exactly as many prompt tokens"
    ),
    Feature("session_log_last", "log(1 + output) of the session's previous request"),
    Feature("session_log_median", "log(1 + median output) of the session's requests"),
    Feature("prefix_log_last", "log(1 + output) of the previous request with the same prompt prefix"),
    Feature("prefix_log_median", "log(1 + median output) of requests with the same prompt prefix"),
)
FEATURE_NAMES: Final = tuple(feature.name for feature in FEATURES)


def feature_values(request: Request, windows: Mapping[str, Window]) -> list[float]:
    """Return one number per name in `FEATURE_NAMES`, in that order; NaN where nothing is known.

    `windows` is `History.windows_of(request)`, asked at the moment the request arrived.
    """
    hour_sin, hour_cos, weekday = _time_values(request.time_s)
    return [
        math.log1p(request.input_tokens),
        math.log1p(request.max_tokens),
        request.temperature,
        request.stream,
        request.turn,
        hour_sin,
        hour_cos,
        weekday,
        _log_quantile(windows.get("route"), 0.5),
        _log_quantile(windows.get("route"), 0.9),
        _log_quantile(windows.get("model"), 0.5),
        _log_quantile(windows.get("same_size"), 0.5),
        _log_last(windows.get("session")),
        _log_quantile(windows.get("session"), 0.5),
        _log_last(windows.get("prefix")),
        _log_quantile(windows.get("prefix"), 0.5),
    ]


def usable_names(span_s: float, values: NDArray[np.float32]) -> tuple[str, ...]:
    """Return the names a model trained on `span_s` seconds of data may use: covered long enough, and varying.

    `values` is (rows, len(FEATURES)), the training rows.
    """
    missing = np.isnan(values)
    varies = (missing != missing[:1]).any(axis=0) | (~missing & (values != values[:1])).any(axis=0)
    return tuple(
        feature.name for feature, used in zip(FEATURES, varies, strict=True) if used and span_s >= feature.needs_span_s
    )


def _time_values(time_s: float) -> tuple[float, float, float]:
    if math.isnan(time_s):
        return MISSING, MISSING, MISSING
    angle = 2 * math.pi * (time_s % _DAY_S) / _DAY_S
    # 1970-01-01 was a Thursday, weekday 3.
    return math.sin(angle), math.cos(angle), float((int(time_s // _DAY_S) + 3) % 7)


def _log_quantile(window: Window | None, level: float) -> float:
    return MISSING if window is None else math.log1p(window.quantile(level))


def _log_last(window: Window | None) -> float:
    return MISSING if window is None else math.log1p(window.last)
