"""What did each route's predictions prove on requests newer than the training data?

Compares the model with the baselines on the test slice, route by route, once with live history and calibration and once
with both frozen in the artifact, and decides where the predictor may answer from the model.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.artifact import QUANTILES
from models.dataset import Dataset, Floats
from models.evaluate import MIN_SCORED_ROWS, Baselines, Scores, Verdict, judge, score
from models.features import FEATURE_NAMES

# The manifest lists this many routes, the busiest of the test slice; on the others the predictor abstains. A listed
# route costs about 3 kB of the artifact's 2 MB.
MAX_ROUTES: Final = 100
_P50: Final = list(QUANTILES).index("p50")


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Quantiles in tokens for the test rows, each of shape (rows, len(QUANTILES)).

    `model` is the calibrated model, `past` the answer without one (recent outputs of the route, else of all traffic);
    the `frozen` ones belong to a router that reports no finished requests.
    """

    model: Floats
    past: Floats
    frozen_model: Floats
    frozen_past: Floats


@dataclass(frozen=True, slots=True)
class RouteReport:
    """What was measured on the test requests of one route, or of all in `Scorecard.overall`.

    `route` is None for requests that name none. `model` scores the model; `answered` what the predictor answers: the
    model where it has skill, else the route's recent past; `without_history` what it answers while finished requests
    are not reported to it. Baselines are mean absolute errors in tokens: the median of all training rows (`constant`),
    of the route, of route and power of two of prompt tokens (`bucket`), and the previous output of the same prefix or
    session, else the route's median (`previous`).
    """

    route: str | None
    train_rows: int
    model: Scores
    answered: Scores
    without_history: Scores
    constant_mae: float
    route_median_mae: float
    bucket_median_mae: float
    previous_mae: float
    verdict: Verdict
    verdict_without_history: Verdict


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Scores of all test requests and of each route, busiest first; `unlisted_routes` were too many to list."""

    overall: RouteReport
    routes: tuple[RouteReport, ...]
    unlisted_routes: int


def bounded(quantiles: Floats, limits: Floats) -> Floats:
    """Return quantiles as the predictor answers them: ascending, at least 1 token, at most the limit (NaN: none)."""
    most = np.where(np.isnan(limits), np.inf, limits)
    return np.minimum(np.maximum(np.sort(quantiles, axis=1), 1.0), most[:, None])


def score_test(data: Dataset, previous: Floats, forecasts: Forecasts, seed: int) -> Scorecard:
    """Return the scores of `forecasts` on the test slice of `data`; `previous` as from `previous_outputs`, NaN if none."""
    test, train = slice(data.split.train, data.split.rows), slice(0, data.split.train)
    baselines = Baselines(data.routes[train].tolist(), data.inputs[train], data.outputs[train])
    routes = data.routes[test].tolist()
    route_median = baselines.route_median(routes)
    guesses = {
        "constant": np.full(len(routes), np.median(data.outputs[train])),
        "route_median": route_median,
        "bucket_median": baselines.bucket_median(routes, data.inputs[test]),
        "previous": np.where(np.isnan(previous), route_median, previous),
    }
    limits = data.limits[test]
    cut = _Slice(
        data.routes[test],
        data.outputs[test],
        Forecasts(
            *(bounded(own, limits) for own in (forecasts.model, forecasts.past, forecasts.frozen_model, forecasts.frozen_past))
        ),
        {name: np.fmin(guess, limits) for name, guess in guesses.items()},
    )
    return _report(cut, data.routes[train], seed)


def previous_outputs(features: NDArray[np.float32]) -> Floats:
    """Return the previous output of the same prompt prefix, else of the same session, in tokens; NaN without either."""
    last = [features[:, FEATURE_NAMES.index(name)].astype(np.float64) for name in ("prefix_log_last", "session_log_last")]
    return np.asarray(np.expm1(np.where(np.isnan(last[0]), last[1], last[0])))


@dataclass(frozen=True, slots=True)
class _Slice:
    """The test slice, row by row: generated lengths, bounded forecasts, and the baselines' guesses."""

    routes: NDArray[np.object_]
    generated: Floats
    forecasts: Forecasts
    guesses: dict[str, Floats]


def _report(cut: _Slice, train_routes: NDArray[np.object_], seed: int) -> Scorecard:
    counts: dict[str | None, int] = {}
    for route in cut.routes:
        counts[route] = counts.get(route, 0) + 1
    busiest = sorted(counts, key=lambda route: (-counts[route], route or ""))[:MAX_ROUTES]
    live, frozen = cut.forecasts.past.copy(), cut.forecasts.frozen_past.copy()
    reports = []
    for route in busiest:
        own = np.array(cut.routes == route)
        train_rows = int((train_routes == route).sum())
        verdicts = tuple(_judge(cut, forecast[:, _P50], own, train_rows, seed) for forecast in (cut.forecasts.model, cut.forecasts.frozen_model))
        if verdicts[0].skill != "none":
            live[own] = cut.forecasts.model[own]
        if verdicts[1].skill != "none":
            frozen[own] = cut.forecasts.frozen_model[own]
        reports.append(_route_report(cut, own, (route, train_rows), (live, frozen), (verdicts[0], verdicts[1])))
    every = np.ones(len(cut.routes), dtype=np.bool_)
    overall = (
        judge(cut.generated, live[:, _P50], cut.guesses["route_median"], seed),
        judge(cut.generated, frozen[:, _P50], cut.guesses["route_median"], seed),
    )
    return Scorecard(
        _route_report(cut, every, (None, len(train_routes)), (live, frozen), overall), tuple(reports), len(counts) - len(busiest)
    )


def _judge(cut: _Slice, median: Floats, own: NDArray[np.bool_], train_rows: int, seed: int) -> Verdict:
    if train_rows < MIN_SCORED_ROWS:
        return Verdict("none", None, None, f"{train_rows} training requests, {MIN_SCORED_ROWS} wanted")
    return judge(cut.generated[own], median[own], cut.guesses["route_median"][own], seed)


def _route_report(
    cut: _Slice,
    own: NDArray[np.bool_],
    named: tuple[str | None, int],
    answered: tuple[Floats, Floats],
    verdicts: tuple[Verdict, Verdict],
) -> RouteReport:
    """Return the scores of the `own` rows; `named` is (route, training rows), the pairs are (live, without history)."""
    generated = cut.generated[own]
    live, frozen = answered
    guesses = {name: float(np.abs(guess[own] - generated).mean()) for name, guess in cut.guesses.items()}
    return RouteReport(
        route=named[0],
        train_rows=named[1],
        model=score(generated, cut.forecasts.model[own]),
        answered=score(generated, live[own]),
        without_history=score(generated, frozen[own]),
        constant_mae=guesses["constant"],
        route_median_mae=guesses["route_median"],
        bucket_median_mae=guesses["bucket_median"],
        previous_mae=guesses["previous"],
        verdict=verdicts[0],
        verdict_without_history=verdicts[1],
    )
