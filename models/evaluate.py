"""Is the predictor better than guessing, and how sure is that?

Scores of predicted output lengths against what was generated, and against the baselines that need no model. All lengths
are in tokens.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import numpy as np
from scipy.stats import kendalltau

from overrun.analysis.words.finding import say_ratio
from overrun.collector.arrays import FloatArray
from overrun.models.artifact import QUANTILES

Skill = Literal["none", "low", "good"]
_Key = TypeVar("_Key")

# A gain below 2 % of the error is not worth a model in the path of every request; at 20 % the predictions order
# requests usefully.
SKILL_LOW: Final = 0.02
SKILL_GOOD: Final = 0.20
# Fewer scored requests than this give intervals wider than any gain worth having.
MIN_SCORED_ROWS: Final = 100
# Errors of neighbouring requests are alike (bursts, templates), so whole stretches of time are drawn together: 50 of
# them.
_BLOCKS: Final = 50
_RESAMPLES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Scores:
    """How well some predictions did on `rows` requests; None where it cannot be said.

    `mae` mean absolute error (tokens), `median_ape` median of |error| / generated, `kendall_tau` rank agreement (None
    for constant predictions), `tertile_accuracy` share of requests predicted into the right third of the generated
    lengths, `p10_coverage` (`p90_`, `p99_`) share of requests that generated at most the predicted quantile.
    """

    rows: int
    mae: float
    median_ape: float
    kendall_tau: float | None
    tertile_accuracy: float
    p10_coverage: float
    p90_coverage: float
    p99_coverage: float


@dataclass(frozen=True, slots=True)
class SkillProof:
    """The gain over the route median, 1 - MAE / MAE of the median, its 95 % interval, and the skill this proves."""

    skill: Skill
    reduction: float | None
    interval: tuple[float, float] | None
    reason: str


def score(generated: FloatArray, quantiles: FloatArray) -> Scores:
    """Return the scores of predicted `quantiles`, shape (rows, len(QUANTILES)), with at least one row."""
    predicted = dict(zip(QUANTILES, quantiles.T, strict=True))
    errors = np.abs(predicted["p50"] - generated)
    edges = np.quantile(generated, (1 / 3, 2 / 3))
    coverage = {name: float((generated <= own).mean()) for name, own in predicted.items()}
    return Scores(
        rows=len(generated),
        mae=float(errors.mean()),
        median_ape=float(np.median(errors / np.maximum(generated, 1.0))),
        kendall_tau=_tau(generated, predicted["p50"]),
        tertile_accuracy=float(
            (np.searchsorted(edges, generated) == np.searchsorted(edges, predicted["p50"])).mean()
        ),
        p10_coverage=coverage["p10"],
        p90_coverage=coverage["p90"],
        p99_coverage=coverage["p99"],
    )


def _tau(generated: FloatArray, predicted: FloatArray) -> float | None:
    if np.ptp(predicted) == 0 or np.ptp(generated) == 0:
        return None
    return float(kendalltau(generated, predicted).statistic)


class Baselines:
    """The predictions that need no model, learned from training requests alone.

    The median of the route, and the median of the route's requests whose prompt has the same power of two of tokens
    (as AIBrix buckets them).
    """

    def __init__(
        self, routes: Sequence[str | None], inputs: FloatArray, outputs: FloatArray
    ) -> None:
        self._overall = float(np.median(outputs))
        self._route = _medians(list(routes), outputs)
        self._bucket = _medians(_bucket_keys(routes, inputs), outputs)

    def route_median(self, routes: Sequence[str | None]) -> FloatArray:
        """Return the training median of each request's route; of everything where the route is new."""
        return np.array([self._route.get(route, self._overall) for route in routes])

    def bucket_median(self, routes: Sequence[str | None], inputs: FloatArray) -> FloatArray:
        """Return the training median of each request's route and log2 input bucket; of the route if that is new."""
        fallback = self.route_median(routes)
        keys = _bucket_keys(routes, inputs)
        return np.array(
            [self._bucket.get(key, other) for key, other in zip(keys, fallback, strict=True)]
        )


def _bucket_keys(routes: Sequence[str | None], inputs: FloatArray) -> list[tuple[str | None, int]]:
    buckets = [-1 if math.isnan(tokens) else int(tokens).bit_length() for tokens in inputs]
    return list(zip(routes, buckets, strict=True))


def _medians(keys: Sequence[_Key], outputs: FloatArray) -> Mapping[_Key, float]:
    groups: dict[_Key, list[float]] = {}
    for key, output in zip(keys, outputs, strict=True):
        groups.setdefault(key, []).append(float(output))
    return {key: float(np.median(values)) for key, values in groups.items()}


def judge(
    generated: FloatArray, predicted: FloatArray, route_median: FloatArray, seed: int
) -> SkillProof:
    """Return the skill of `predicted` over `route_median` on one route's requests, in order of time.

    Method: block bootstrap of the ratio of summed absolute errors, 50 contiguous blocks, 2,000 resamples, 95 %
    percentile interval. Skill is granted on the lower end of the interval, so that a lucky test slice earns none.
    """
    rows = len(generated)
    if rows < MIN_SCORED_ROWS:
        return SkillProof("none", None, None, f"{rows} test requests, {MIN_SCORED_ROWS} are needed")
    model = _block_sums(np.abs(predicted - generated))
    median = _block_sums(np.abs(route_median - generated))
    if median.sum() == 0:
        return SkillProof("none", None, None, "the route median is never wrong")
    draws = np.random.default_rng(seed).integers(0, len(median), size=(_RESAMPLES, len(median)))
    below = np.maximum(median[draws].sum(axis=1), np.finfo(np.float64).tiny)
    low, high = np.quantile(1.0 - model[draws].sum(axis=1) / below, (0.025, 0.975))
    reduction = 1.0 - float(model.sum() / median.sum())
    skill: Skill = "good" if low >= SKILL_GOOD else "low" if low >= SKILL_LOW else "none"
    sign = "below" if reduction >= 0 else "above"
    gain = f"error {say_ratio(abs(reduction))} {sign} the route median, 95 % interval of the gain {100.0 * low:+.1f} % to {100.0 * high:+.1f} %"
    return SkillProof(
        skill, reduction, (float(low), float(high)), f"{gain}, {say_ratio(SKILL_LOW)} wanted"
    )


def _block_sums(errors: FloatArray) -> FloatArray:
    blocks = np.array_split(errors, min(_BLOCKS, len(errors)))
    return np.array([block.sum() for block in blocks])
