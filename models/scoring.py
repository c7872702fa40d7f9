"""What did each route's predictions prove on requests newer than the training data?

Compares the model with the baselines on the test slice, route by route, once with live history and calibration and once
with both frozen in the artifact, and decides where the predictor may answer from the model. Routes of which each has too
few requests to say are judged together, and what is said of them holds for routes that come later.
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from overrun.collector.arrays import FloatArray
from overrun.models.artifact import QUANTILES
from overrun.models.dataset import Dataset
from overrun.models.evaluate import MIN_SCORED_ROWS, Baselines, Scores, SkillProof, judge, score
from overrun.models.features import FEATURE_NAMES

# The manifest lists this many routes, the busiest of the test slice; the others are judged with the small ones. A listed
# route costs about 3 kB of the artifact's 2 MB.
MAX_ROUTES: Final = 100
# Fewer small routes than this show nothing of another one.
MIN_SMALL_ROUTES: Final = 10
_P50: Final = list(QUANTILES).index("p50")


@dataclass(frozen=True, slots=True)
class Forecasts:
    """Quantiles in tokens for the test rows, each of shape (rows, len(QUANTILES)).

    `model` is the calibrated model, `past` the answer without one (recent outputs of the route, else of all traffic);
    the `frozen` ones belong to a router that reports no finished requests.
    """

    model: FloatArray
    past: FloatArray
    frozen_model: FloatArray
    frozen_past: FloatArray


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
    verdict: SkillProof
    verdict_without_history: SkillProof


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Scores of all test requests and of each route, busiest first; `unlisted_routes` were too many to list.

    `others` are the verdicts, with live history and without, for routes that are not listed or come later.
    """

    overall: RouteReport
    routes: tuple[RouteReport, ...]
    unlisted_routes: int
    others: tuple[SkillProof, SkillProof]


def bounded(quantiles: FloatArray, limits: FloatArray) -> FloatArray:
    """Return quantiles as the predictor answers them: ascending, at least 1 token, at most the limit (NaN: none)."""
    most = np.where(np.isnan(limits), np.inf, limits)
    return np.minimum(np.maximum(np.sort(quantiles, axis=1), 1.0), most[:, None])


def score_test(data: Dataset, previous: FloatArray, forecasts: Forecasts, seed: int) -> Scorecard:
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
            *(
                bounded(own, limits)
                for own in (
                    forecasts.model,
                    forecasts.past,
                    forecasts.frozen_model,
                    forecasts.frozen_past,
                )
            )
        ),
        {name: np.fmin(guess, limits) for name, guess in guesses.items()},
    )
    return _report(cut, data.routes[train], seed)


def previous_outputs(features: NDArray[np.float32]) -> FloatArray:
    """Return the previous output of the same prompt prefix, else of the same session, in tokens; NaN without either."""
    last = [
        features[:, FEATURE_NAMES.index(name)].astype(np.float64)
        for name in ("prefix_log_last", "session_log_last")
    ]
    return np.asarray(np.expm1(np.where(np.isnan(last[0]), last[1], last[0])))


@dataclass(frozen=True, slots=True)
class _Slice:
    """The test slice, row by row: generated lengths, bounded forecasts, and the baselines' guesses."""

    routes: NDArray[np.object_]
    generated: FloatArray
    forecasts: Forecasts
    guesses: dict[str, FloatArray]


def _report(cut: _Slice, train_routes: NDArray[np.object_], seed: int) -> Scorecard:
    counts, trained = Counter(cut.routes), Counter(train_routes)
    busiest = sorted(counts, key=lambda route: (-counts[route], route or ""))[:MAX_ROUTES]
    alone = {route for route in busiest if min(counts[route], trained[route]) >= MIN_SCORED_ROWS}
    small = counts.keys() - alone
    among = np.array([route in small for route in cut.routes])
    others = _together(cut, among, small, sum(trained[route] for route in small), seed)
    live = np.where(_answers(among, others[0]), cut.forecasts.model, cut.forecasts.past)
    frozen = np.where(
        _answers(among, others[1]), cut.forecasts.frozen_model, cut.forecasts.frozen_past
    )
    reports = []
    for route in busiest:
        own = np.array(cut.routes == route)
        verdicts = (
            others
            if route in small and len(small) >= MIN_SMALL_ROUTES
            else _both(cut, own, trained[route], seed)
        )
        live[own] = (cut.forecasts.model if verdicts[0].skill != "none" else cut.forecasts.past)[
            own
        ]
        frozen[own] = (
            cut.forecasts.frozen_model if verdicts[1].skill != "none" else cut.forecasts.frozen_past
        )[own]
        reports.append(_route_report(cut, own, (route, trained[route]), (live, frozen), verdicts))
    every = np.ones(len(cut.routes), dtype=np.bool_)
    overall = (
        judge(cut.generated, live[:, _P50], cut.guesses["route_median"], seed),
        judge(cut.generated, frozen[:, _P50], cut.guesses["route_median"], seed),
    )
    return Scorecard(
        _route_report(cut, every, (None, len(train_routes)), (live, frozen), overall),
        tuple(reports),
        len(counts) - len(busiest),
        others,
    )


def _answers(among: NDArray[np.bool_], verdict: SkillProof) -> NDArray[np.bool_]:
    return (among & (verdict.skill != "none"))[:, None]


def _together(
    cut: _Slice, among: NDArray[np.bool_], small: Set[str | None], train_rows: int, seed: int
) -> tuple[SkillProof, SkillProof]:
    """Return the verdicts on all small routes at once."""
    if len(small) < MIN_SMALL_ROUTES:
        none = SkillProof(
            "none",
            None,
            None,
            f"{len(small)} small routes in the test requests, {MIN_SMALL_ROUTES} are needed to judge the others",
        )
        return none, none
    live, frozen = (
        replace(
            verdict,
            reason=f"judged together with {len(small) - 1:,} other small routes: {verdict.reason}",
        )
        for verdict in _both(cut, among, train_rows, seed)
    )
    return live, frozen


def _both(
    cut: _Slice, own: NDArray[np.bool_], train_rows: int, seed: int
) -> tuple[SkillProof, SkillProof]:
    live, frozen = (
        _judge(cut, forecast[:, _P50], own, train_rows, seed)
        for forecast in (cut.forecasts.model, cut.forecasts.frozen_model)
    )
    return live, frozen


def _judge(
    cut: _Slice, median: FloatArray, own: NDArray[np.bool_], train_rows: int, seed: int
) -> SkillProof:
    if train_rows < MIN_SCORED_ROWS:
        return SkillProof(
            "none", None, None, f"{train_rows} training requests, {MIN_SCORED_ROWS} are needed"
        )
    return judge(cut.generated[own], median[own], cut.guesses["route_median"][own], seed)


def _route_report(
    cut: _Slice,
    own: NDArray[np.bool_],
    named: tuple[str | None, int],
    answered: tuple[FloatArray, FloatArray],
    verdicts: tuple[SkillProof, SkillProof],
) -> RouteReport:
    """Return the scores of the `own` rows; `named` is (route, training rows), the pairs are (live, without history)."""
    generated = cut.generated[own]
    live, frozen = answered
    guesses = {
        name: float(np.abs(guess[own] - generated).mean()) for name, guess in cut.guesses.items()
    }
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
