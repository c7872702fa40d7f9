"""Which numbers describe a request to the length model?

One function for training and serving. The names in `FEATURES`, in this order, are the only things a model may see:
request metadata, causal history (`overrun.models.history`), and numbers about an opted-in prompt. Server load is left out on
purpose: how long an answer gets does not depend on it. Prompt text never comes here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from overrun.collector.normalise.prompt_shape import SHAPE
from overrun.models.history import Window
from overrun.models.request import MISSING, Request

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Feature:
    """One model input.

    A model may use it only when its training data covers at least `needs_span_s` seconds, and names at least two keys
    of the history level `needs_two`: the median of the only route there is would merely tell what time it is. With `needs_most` it
    must be known of at least half of the training requests.
    """

    name: str
    meaning: str
    needs_span_s: float = 0.0
    needs_two: str | None = None
    needs_most: bool = False


def _of_caller(level: str, whose: str) -> tuple[Feature, ...]:
    return (
        Feature(f"{level}_log_last", f"log(1 + output) of {whose} previous request"),
        Feature(f"{level}_log_before", f"log(1 + output) of {whose} request before that"),
        Feature(f"{level}_log_median", f"log(1 + median output) of {whose} requests"),
        Feature(f"{level}_log_spread", f"log of P90 over P10 of {whose} outputs"),
        Feature(
            f"{level}_log_since",
            f"log(1 + seconds since {whose} previous request arrived, finished or not)",
        ),
        Feature(
            f"{level}_new_tokens", f"prompt tokens beyond {whose} previous prompt and its answer"
        ),
    )


# Times of day need two whole days: learned from one hour they tell the training slice from the test slice and nothing
# else. The same holds for the past of the only route: without it the error on Mooncake fell from 146.4 to 144.9. Prompts of one size
# are one template where most sizes come again (72 to 86 % of Azure's requests); where few do (23 % of Mooncake's), they meet by chance.
FEATURES: Final = (
    Feature("log_input_tokens", "log(1 + prompt tokens)"),
    Feature("log_max_tokens", "log(1 + max_tokens asked for)"),
    Feature("temperature", "sampling temperature"),
    Feature("stream", "1 when the answer is streamed"),
    Feature("turn", "turn of the conversation"),
    Feature("hour_sin", "time of day on the circle, UTC", needs_span_s=2 * _DAY_S),
    Feature("hour_cos", "time of day on the circle, UTC", needs_span_s=2 * _DAY_S),
    Feature("weekday", "0 = Monday, UTC", needs_span_s=14 * _DAY_S),
    Feature(
        "route_log_median",
        "log(1 + median output) of the route's recent requests",
        needs_two="route",
    ),
    Feature(
        "route_log_p90", "log(1 + P90 output) of the route's recent requests", needs_two="route"
    ),
    Feature(
        "model_log_median",
        "log(1 + median output) of the model's recent requests",
        needs_two="model",
    ),
    Feature(
        "model_log_p10", "log(1 + P10 output) of the model's recent requests", needs_two="model"
    ),
    Feature(
        "model_log_p90", "log(1 + P90 output) of the model's recent requests", needs_two="model"
    ),
    Feature(
        "route_model_log_median",
        "log(1 + median output) of the model on this route",
        needs_two="route_model",
    ),
    Feature(
        "tenant_log_median",
        "log(1 + median output) of the tenant's recent requests",
        needs_two="tenant",
    ),
    Feature(
        "tenant_log_p90", "log(1 + P90 output) of the tenant's recent requests", needs_two="tenant"
    ),
    Feature(
        "same_size_log_median",
        "log(1 + median output) of the route's requests with exactly as many prompt tokens",
        needs_most=True,
    ),
    *_of_caller("session", "the session's"),
    *_of_caller("prefix", "the same prompt prefix's"),
    *(Feature(name, "a count or share in the prompt (opt-in)") for name in SHAPE),
    Feature("verbosity", "log tokens above the usual that the prompt asks for (opt-in)"),
    Feature(
        "scored_log_tokens",
        "log(1 + output) that the model on the route (or else of less) usually gives a prompt of this verbosity and size",
    ),
)
FEATURE_NAMES: Final = tuple(feature.name for feature in FEATURES)


def feature_values(
    request: Request, windows: Mapping[str, Window], arrivals: Mapping[str, float]
) -> list[float]:
    """Return one number per name in `FEATURE_NAMES`, in that order; NaN where nothing is known.

    `windows` is `History.windows_of(request)` and `arrivals` `History.arrivals_of(request)`, asked when the request arrived.
    """
    hour_sin, hour_cos, weekday = _time_values(request.time_s)
    route, model, tenant = windows.get("route"), windows.get("model"), windows.get("tenant")
    route_median, model_median = _coarse(_log_quantile(route, 0.5)), _log_quantile(model, 0.5)
    route_model_median = _log_quantile(windows.get("route_model"), 0.5)
    return [
        math.log1p(request.input_tokens),
        math.log1p(request.max_tokens),
        request.temperature,
        request.stream,
        request.turn,
        hour_sin,
        hour_cos,
        weekday,
        route_median,
        _coarse(_log_quantile(route, 0.9)),
        model_median,
        _log_quantile(model, 0.1),
        _log_quantile(model, 0.9),
        route_model_median,
        _log_quantile(tenant, 0.5),
        _log_quantile(tenant, 0.9),
        _log_quantile(windows.get("same_size"), 0.5),
        *_caller_values(windows.get("session"), request, arrivals.get("session")),
        *_caller_values(windows.get("prefix"), request, arrivals.get("prefix")),
        *(request.shape or _NO_SHAPE),
        request.verbosity,
        _scored(request, windows),
    ]


def _scored(request: Request, windows: Mapping[str, Window]) -> float:
    """Return the answer that a prompt of this score and size usually gets; the score alone where nothing is known yet.

    On AlpacaEval, prompts never seen, a line of each model's own took 0.9 % off the error where its median and the score had been added up.
    """
    lines = (
        window.line
        for name in ("route_model", "model", "route", "global")
        if (window := windows.get(name)) is not None
    )
    own = next((line for line in lines if line is not None), None)
    return (
        request.verbosity
        if own is None or math.isnan(request.verbosity)
        else own.at(request.verbosity, request.input_tokens)
    )


def usable_names(
    span_s: float, values: NDArray[np.float32], keys: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the names a model may use: covered for long enough by `span_s` seconds of data, known often enough, and varying.

    `values` is (rows, len(FEATURES)), the training rows; `keys` counts the different keys of each history level.
    """
    missing = np.isnan(values)
    varies = (missing != missing[:1]).any(axis=0) | (~missing & (values != values[:1])).any(axis=0)
    return tuple(
        feature.name
        for feature, used, unknown in zip(FEATURES, varies, missing.mean(axis=0), strict=True)
        if used
        and span_s >= feature.needs_span_s
        and (feature.needs_two is None or keys.get(feature.needs_two, 0) > 1)
        and not (feature.needs_most and unknown > 0.5)
    )


def without_prompt(names: Sequence[str]) -> tuple[str, ...]:
    """Return `names` less what tells one prompt from another; the score is left of it.

    Where many requests share few prompts, trees learn the prompts by these numbers instead of what they have in common: on AlpacaEval's
    unseen prompts the error was 2 % larger with them.
    """
    return tuple(name for name in names if name not in _OF_PROMPT)


def rising(names: Sequence[str]) -> tuple[int, ...]:
    """Return 1 for each name with which the answer grows, else 0: a score of length is one, and few prompts shall not bend the curve."""
    return tuple(int(name in ("verbosity", "scored_log_tokens")) for name in names)


def _time_values(time_s: float) -> tuple[float, float, float]:
    if math.isnan(time_s):
        return MISSING, MISSING, MISSING
    angle = 2 * math.pi * (time_s % _DAY_S) / _DAY_S
    # 1970-01-01 was a Thursday, weekday 3.
    return math.sin(angle), math.cos(angle), float((int(time_s // _DAY_S) + 3) % 7)


def _coarse(log_tokens: float) -> float:
    """Return `log_tokens` in steps of 28 %: enough to tell routes apart and follow their drift, too little to tell time.

    On the Azure 2023 mix the error was 38.4 instead of 38.9 tokens with live and 39.9 instead of 44.6 with frozen history.
    """
    return log_tokens if log_tokens != log_tokens else round(4.0 * log_tokens) / 4.0


def _log_quantile(window: Window | None, level: float) -> float:
    return MISSING if window is None else math.log1p(window.quantile(level))


def _caller_values(
    window: Window | None, request: Request, arrived_s: float | None
) -> tuple[float, ...]:
    """Return the values of `_of_caller`: what the same session, or prompts of the same prefix, generated before, and when it came last.

    That one may be unfinished. On Mooncake the time since took 1.5 % off the error, counted from finished requests alone nothing.
    """
    since = MISSING if arrived_s is None else math.log1p(request.time_s - arrived_s)
    if window is None:
        return (*_NO_OUTPUTS, since, MISSING)
    return (
        math.log1p(window.last),
        math.log1p(window.before_last),
        math.log1p(window.quantile(0.5)),
        math.log1p(window.quantile(0.9)) - math.log1p(window.quantile(0.1)),
        since,
        request.input_tokens - window.last_input_tokens - window.last,
    )


_OF_PROMPT: Final = frozenset((*SHAPE, "log_input_tokens", "same_size_log_median"))
_NO_SHAPE: Final = (MISSING,) * len(SHAPE)
_NO_OUTPUTS: Final = (MISSING,) * (len(_of_caller("", "")) - 2)
