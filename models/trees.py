"""Which trees predict each quantile?

Gradient-boosted trees of log(1 + tokens), one XGBoost model per quantile: the median by absolute error, the others by
pinball loss (Koenker and Bassett, 1978). Early stopping counts the trees on the newest training rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import xgboost
from numpy.typing import NDArray

from overrun.collector.arrays import Float32Array, FloatArray
from overrun.models.artifact import QUANTILES
from overrun.models.dataset import Split


class Growth(NamedTuple):
    """How trees grow: their depth, how many rounds at most, and how many trees the median has a round."""

    depth: int
    most: int
    together: int = 1

    def rounds_of(self, name: str, max_rounds: int) -> int:
        """Return the most rounds of a quantile, `max_rounds` of the settings considered."""
        most = min(self.most, max_rounds)
        return math.ceil(most / _STEP_TOGETHER) if name == "p50" and self.together > 1 else most


# About as many nodes each, so that four quantiles in three formats stay below 1.5 MB. 100 trees of depth 4 were within 1 % of the error of all larger forests
# tried on the Azure and Mooncake traces. Depth 3 was as good with live history and a quarter worse without. Three trees a round, each of another part of the
# rows (Friedman, 2002; Breiman, 1996), are moved less by what one past happened to hold, and their leaves may be smaller: on windows inside the training slices
# the error was 0.7 % less on Mooncake, 0.5 % more to 0.2 % less on Azure. Fewer rounds of larger steps keep the artifact small.
GRID: Final = tuple(
    Growth(depth, most, together) for together in (1, 3) for depth, most in ((4, 100), (5, 60))
)
_LEAF_ROWS: Final = 20
_STEP_TOGETHER: Final = 1.5
_PART_OF_ROWS: Final = 0.7
_LEAF_ROWS_TOGETHER: Final = 5
_STOP_AFTER: Final = 40


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the search decided: how the trees grow, and how many rounds of them each quantile has.

    `rising` says of each column whether splits may only let the answer grow with it (1) or not (0). Leaves are set to quantiles after the splits,
    so that small falls remain.
    """

    growth: Growth
    rounds: Mapping[str, int]
    rising: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Boosters:
    """One booster per quantile; they answer log(1 + tokens)."""

    by_quantile: Mapping[str, xgboost.Booster]

    def log_tokens(self, inputs: Float32Array) -> FloatArray:
        """Return the raw quantiles, shape (rows, len(QUANTILES))."""
        return np.column_stack(
            [self.by_quantile[name].inplace_predict(inputs) for name in QUANTILES]
        ).astype(np.float64)


def search(
    choices: Sequence[tuple[Float32Array, tuple[int, ...]]],
    targets: FloatArray,
    clusters: NDArray[np.int64],
    split: Split,
    *,
    max_rounds: int,
    eta: float,
    seed: int,
    tell: Callable[[float], None],
) -> tuple[int, Recipe, Boosters]:
    """Return which of several inputs did best on the rows [fit, train) of the split, and how to grow trees of them, at most `max_rounds` rounds.

    A choice is a matrix, shape (rows, columns), and `Recipe.rising` of its columns; the last is the plainest, and stands unless another is better by more
    than a standard error (Breiman and others, 1984), rows of one of the `clusters`, shape (rows,), erring together. With the best come the boosters that
    have not learned from these rows. The median is judged by its error in tokens, as it is afterwards, and the recipe has as many more rounds of it as
    there are more rows to learn from. `tell` gets the finished share, 0..1.
    """
    both = slice(split.fit), slice(split.fit, split.train)
    data = [
        [xgboost.DMatrix(inputs[rows], targets[rows], nthread=1) for rows in both]
        for inputs, _ in choices
    ]
    tries = [(choice, growth) for choice in range(len(choices)) for growth in GRID]
    steps, done = len(tries) + len(QUANTILES) - 1, 0

    def stopped(name: str, choice: int, growth: Growth) -> xgboost.Booster:
        nonlocal done
        fit, newest = data[choice]
        tokens = name == "p50"
        found = xgboost.train(
            _parameters(name, growth, choices[choice][1], eta, seed)
            | {"disable_default_eval_metric": tokens},
            fit,
            growth.rounds_of(name, max_rounds),
            evals=[(newest, "newest")],
            custom_metric=_error_tokens if tokens else None,
            early_stopping_rounds=_STOP_AFTER,
            verbose_eval=False,
        )
        done += 1
        tell(done / steps)
        return found

    medians = [stopped("p50", *one) for one in tries]
    best = _plainest(
        medians,
        [choice for choice, _ in tries],
        [newest for _, newest in data],
        clusters[split.fit : split.train],
    )
    choice, growth = tries[best]
    boosters = {}
    for name in QUANTILES:
        found = medians[best] if name == "p50" else stopped(name, choice, growth)
        boosters[name] = found[: found.best_iteration + 1]
    counts = {name: booster.num_boosted_rounds() for name, booster in boosters.items()}
    counts["p50"] = min(
        math.ceil(counts["p50"] * split.train / split.fit), growth.rounds_of("p50", max_rounds)
    )
    return choice, Recipe(growth, counts, choices[choice][1]), Boosters(boosters)


def fit(
    inputs: Float32Array, targets: FloatArray, recipe: Recipe, *, eta: float, seed: int
) -> Boosters:
    """Return boosters of all rows, made by the recipe."""
    data = xgboost.DMatrix(inputs, targets, nthread=1)
    return Boosters(
        {
            name: xgboost.train(
                _parameters(name, recipe.growth, recipe.rising, eta, seed), data, rounds
            )
            for name, rounds in recipe.rounds.items()
        }
    )


def fit_median(
    inputs: Float32Array, targets: FloatArray, recipe: Recipe, *, eta: float, seed: int
) -> xgboost.Booster:
    """Return the booster of the median alone."""
    return xgboost.train(
        _parameters("p50", recipe.growth, recipe.rising, eta, seed),
        xgboost.DMatrix(inputs, targets, nthread=1),
        recipe.rounds["p50"],
    )


def _plainest(
    medians: Sequence[xgboost.Booster],
    choice_of: Sequence[int],
    newest: Sequence[xgboost.DMatrix],
    clusters: NDArray[np.int64],
) -> int:
    """Return which booster to take: the best of the last choice, or of another one that is better by more than a standard error."""
    best = {
        choice: min(
            (booster.best_score, number)
            for number, booster in enumerate(medians)
            if choice_of[number] == choice
        )[1]
        for choice in choice_of
    }
    errors = {choice: _errors(medians[number], newest[choice]) for choice, number in best.items()}
    *others, taken = best
    _, cluster = np.unique(clusters, return_inverse=True)
    for other in others:
        less = errors[taken] - errors[other]
        spread = np.bincount(cluster, less - less.mean())
        if less.mean() > math.sqrt(float(np.square(spread).sum())) / len(less):
            taken = other
    return best[taken]


def _errors(booster: xgboost.Booster, data: xgboost.DMatrix) -> FloatArray:
    found = booster.predict(data, iteration_range=(0, booster.best_iteration + 1))
    return np.asarray(np.abs(np.expm1(found) - np.expm1(data.get_label())), dtype=np.float64)


def _error_tokens(log_tokens: NDArray[np.float32], data: xgboost.DMatrix) -> tuple[str, float]:
    """Return the mean absolute error in tokens, under its name. In log tokens, short answers decide when to stop."""
    return "tokens", float(np.abs(np.expm1(log_tokens) - np.expm1(data.get_label())).mean())


def _parameters(
    name: str, growth: Growth, rising: tuple[int, ...], eta: float, seed: int
) -> dict[str, Any]:
    own: dict[str, Any] = {
        "objective": "reg:absoluteerror",
        "min_child_weight": _LEAF_ROWS,
        "eta": eta,
    }
    if name != "p50":
        own |= {"objective": "reg:quantileerror", "quantile_alpha": QUANTILES[name]}
    elif growth.together > 1:
        own |= {
            "min_child_weight": _LEAF_ROWS_TOGETHER,
            "eta": _STEP_TOGETHER * eta,
            "num_parallel_tree": growth.together,
            "subsample": _PART_OF_ROWS,
        }
    return own | {
        "max_depth": growth.depth,
        "monotone_constraints": rising,
        # 64 bins cost 7 % of the error on the Azure traces: templates there differ by few tokens.
        "max_bin": 256,
        "tree_method": "hist",
        # More threads spin on small data: 150 s instead of 0.9 s was measured with two on a busy machine.
        "nthread": 1,
        "seed": seed,
    }
