"""What did each route's predictions prove on requests newer than the training data?

Compares the model with the route median and the input-bucket median on the test slice, route by route, once with live
history and once with the history frozen in the artifact, and decides where the predictor may answer from the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.artifact import QUANTILES
from models.dataset import Dataset, Floats
from models.evaluate import MIN_SCORED_ROWS, Baselines, Scores, Verdict, judge, score
from models.features import FEATURE_NAMES

Matrix = NDArray[np.float32]

# The manifest lists this many routes, the busiest of the test slice; on the others the predictor abstains. A listed
# route costs about 1.5 kB of the artifact's 2 MB.
MAX_ROUTES: Final = 200


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted P50 and P90 of some requests, in tokens, each of shape (rows,)."""

    p50: Floats
    p90: Floats

    def where(self, chosen: NDArray[np.bool_], other: "Forecast") -> "Forecast":
        """Return this forecast on the `chosen` rows and `other` on the rest."""
        return Forecast(np.where(chosen, self.p50, other.p50), np.where(chosen, self.p90, other.p90))

    def bounded(self, max_tokens: Floats) -> "Forecast":
        """Return it as the predictor answers it: ascending, at least 1 token, at most `max_tokens` (NaN: no limit)."""
        most = np.where(np.isnan(max_tokens), np.inf, max_tokens)
        low, high = np.minimum(self.p50, self.p90), np.maximum(self.p50, self.p90)
        return Forecast(np.minimum(np.maximum(low, 1.0), most), np.minimum(np.maximum(high, 1.0), most))


@dataclass(frozen=True, slots=True)
class RouteReport:
    """What was measured on the test requests of one route, or of all in `Scorecard.overall`.

    `route` is None for requests that name none. `model` scores the model; `answered` what the predictor answers: the
    model where it has skill, else the route's recent past; `without_history` what it answers while finished requests
    are not reported to it. Baselines are mean absolute errors in tokens.
    """

    route: str | None
    train_rows: int
    model: Scores
    answered: Scores
    without_history: Scores
    route_median_mae: float
    bucket_median_mae: float
    verdict: Verdict
    verdict_without_history: Verdict


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Scores of all test requests and of each route, busiest first; `unlisted_routes` were too many to list."""

    overall: RouteReport
    routes: tuple[RouteReport, ...]
    unlisted_routes: int


@dataclass(frozen=True, slots=True)
class _Slice:
    """The test slice: generated lengths, and every forecast of them, as arrays of shape (test rows,)."""

    routes: NDArray[np.object_]
    generated: Floats
    live: Forecast
    live_past: Forecast
    frozen: Forecast
    frozen_past: Forecast
    route_median: Floats
    bucket_median: Floats


def score_test(
    data: Dataset, features: Matrix, frozen: Matrix, model: Callable[[Matrix, NDArray[np.object_]], Forecast], seed: int
) -> Scorecard:
    """Return the scores on the test slice of `data`.

    `features` is (rows, features) for all of `data`, with live history; `frozen` is (test rows, features) with the
    artifact's history. `model` maps features and routes to the model's calibrated forecast.
    """
    test = slice(data.split.train, data.split.rows)
    train = slice(0, data.split.train)
    baselines = Baselines(data.routes[train].tolist(), data.inputs[train], data.outputs[train])
    routes, most = data.routes[test], data.max_tokens[test]
    cut = _Slice(
        routes=routes,
        generated=data.outputs[test],
        live=model(features[test], routes).bounded(most),
        live_past=_past(features[test], data.outputs[train]).bounded(most),
        frozen=model(frozen, routes).bounded(most),
        frozen_past=_past(frozen, data.outputs[train]).bounded(most),
        route_median=baselines.route_median(routes.tolist()),
        bucket_median=baselines.bucket_median(routes.tolist(), data.inputs[test]),
    )
    return _report(cut, data.routes[train], seed)


def _past(features: Matrix, outputs: Floats) -> Forecast:
    """Return the answer without a model: the recent outputs of the route, else those of the training slice."""
    quantiles = []
    for name, feature in (("p50", "route_log_median"), ("p90", "route_log_p90")):
        own = np.expm1(features[:, FEATURE_NAMES.index(feature)].astype(np.float64))
        quantiles.append(np.where(np.isnan(own), np.quantile(outputs, QUANTILES[name]), own))
    return Forecast(*quantiles)


def _report(cut: _Slice, train_routes: NDArray[np.object_], seed: int) -> Scorecard:
    counts: dict[str | None, int] = {}
    for route in cut.routes:
        counts[route] = counts.get(route, 0) + 1
    busiest = sorted(counts, key=lambda route: (-counts[route], route or ""))[:MAX_ROUTES]
    live, frozen = cut.live_past, cut.frozen_past
    reports = []
    for route in busiest:
        own = cut.routes == route
        train_rows = int((train_routes == route).sum())
        verdict = _judge(cut, cut.live, own, train_rows, seed)
        verdict_frozen = _judge(cut, cut.frozen, own, train_rows, seed)
        live = cut.live.where(own & (verdict.skill != "none"), live)
        frozen = cut.frozen.where(own & (verdict_frozen.skill != "none"), frozen)
        reports.append(_route_report(cut, own, (route, train_rows), (live, frozen), (verdict, verdict_frozen)))
    every = np.ones(len(cut.routes), dtype=np.bool_)
    verdicts = (
        judge(cut.generated, live.p50, cut.route_median, seed),
        judge(cut.generated, frozen.p50, cut.route_median, seed),
    )
    overall = _route_report(cut, every, (None, len(train_routes)), (live, frozen), verdicts)
    return Scorecard(overall, tuple(reports), len(counts) - len(busiest))


def _judge(cut: _Slice, forecast: Forecast, own: NDArray[np.bool_], train_rows: int, seed: int) -> Verdict:
    if train_rows < MIN_SCORED_ROWS:
        return Verdict("none", None, None, f"{train_rows} training requests, {MIN_SCORED_ROWS} wanted")
    return judge(cut.generated[own], forecast.p50[own], cut.route_median[own], seed)


def _route_report(
    cut: _Slice,
    own: NDArray[np.bool_],
    named: tuple[str | None, int],
    answered: tuple[Forecast, Forecast],
    verdicts: tuple[Verdict, Verdict],
) -> RouteReport:
    """Return the scores of the `own` rows; `named` is (route, training rows), the pairs are (live, without history)."""
    generated = cut.generated[own]
    live, frozen = answered
    return RouteReport(
        route=named[0],
        train_rows=named[1],
        model=score(generated, cut.live.p50[own], cut.live.p90[own]),
        answered=score(generated, live.p50[own], live.p90[own]),
        without_history=score(generated, frozen.p50[own], frozen.p90[own]),
        route_median_mae=score(generated, cut.route_median[own]).mae,
        bucket_median_mae=score(generated, cut.bucket_median[own]).mae,
        verdict=verdicts[0],
        verdict_without_history=verdicts[1],
    )
