"""The recipe of the trees: judged in tokens, as the predictor is."""

import math

import numpy as np
import pytest
import xgboost

from overrun.collector.arrays import Float32Array, FloatArray
from overrun.models import trees
from overrun.models.dataset import Split

PLAIN = trees.GRID[0]


def _stops(inputs: Float32Array, targets: FloatArray, split: Split, most: int) -> dict[str, int]:
    """Return the rounds with the least error of the newest rows, by log tokens and by tokens."""
    errors: dict[str, dict[int, float]] = {"log": {}, "tokens": {}}
    truth = targets[split.fit : split.train]
    whole = xgboost.train(
        trees._parameters("p50", PLAIN, (0,) * 4, 0.1, 0),
        xgboost.DMatrix(inputs[: split.fit], targets[: split.fit], nthread=1),
        most,
    )
    for count in range(1, most + 1):
        found = whole[:count].inplace_predict(inputs[split.fit : split.train])
        errors["log"][count] = float(np.abs(found - truth).mean())
        errors["tokens"][count] = float(np.abs(np.expm1(found) - np.expm1(truth)).mean())
    return {name: min(own, key=own.__getitem__) for name, own in errors.items()}


def test_the_median_stops_where_the_error_in_tokens_is_least_and_grows_with_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trees, "GRID", (PLAIN,))
    dice = np.random.default_rng(0)
    split = Split.of(2_000, 0.3)
    inputs = dice.random((2_000, 4), dtype=np.float32)
    # Long answers are noise; short ones can be told, but hardly matter in tokens.
    long = inputs[:, 0] < 0.7
    targets = np.where(long, np.log1p(dice.uniform(1_000, 9_000, 2_000)), 1.0 + inputs[:, 0])
    most = 39  # fewer than the rounds that early stopping waits
    stops = _stops(inputs, targets, split, most)
    choice, recipe, early = trees.search(
        [(inputs, (0,) * 4)],
        targets,
        np.arange(2_000),
        split,
        max_rounds=most,
        eta=0.1,
        seed=0,
        tell=lambda _: None,
    )
    count = stops["tokens"]
    assert choice == 0
    assert early.by_quantile["p50"].num_boosted_rounds() == count
    assert recipe.rounds["p50"] == min(math.ceil(count * split.train / split.fit), most)
    assert stops["log"] != stops["tokens"]


def test_a_round_of_the_median_has_several_trees_and_varies_less() -> None:
    """The same law, learned from ten samples: what the medians say of one request spreads less than what single trees a round say."""
    dice = np.random.default_rng(1)
    asked = dice.random((200, 3), dtype=np.float32)
    growth = trees.Growth(4, 30, together=3)
    alone = trees._parameters("p50", growth, (0,) * 3, 0.1, 0) | {"num_parallel_tree": 1}
    recipe = trees.Recipe(growth, dict.fromkeys(trees.QUANTILES, 30), (0,) * 3)
    several, single = [], []
    for _ in range(10):
        inputs = dice.random((1_000, 3), dtype=np.float32)
        targets = 5.0 + inputs[:, 0] + dice.normal(0.0, 1.0, 1_000)
        booster = trees.fit(inputs, targets, recipe, eta=0.1, seed=0).by_quantile["p50"]
        assert len(booster.get_dump()) == growth.together * booster.num_boosted_rounds() == 90
        several.append(booster.inplace_predict(asked))
        single.append(
            xgboost.train(alone, xgboost.DMatrix(inputs, targets, nthread=1), 30).inplace_predict(
                asked
            )
        )
    assert np.var(several, axis=0).mean() < 0.9 * np.var(single, axis=0).mean()


def test_columns_that_tell_something_of_every_request_are_taken() -> None:
    dice = np.random.default_rng(3)
    inputs = dice.random((3_000, 2), dtype=np.float32)
    targets = 5.0 + inputs[:, 1] + 0.3 * inputs[:, 0] + dice.normal(0.0, 0.3, 3_000)
    choices = [(inputs, (0, 0)), (np.ascontiguousarray(inputs[:, 1:]), (0,))]
    found, _, _ = trees.search(
        choices,
        targets,
        np.arange(3_000),
        Split.of(3_000, 0.1),
        max_rounds=30,
        eta=0.1,
        seed=0,
        tell=lambda _: None,
    )
    assert found == 0


def test_rows_of_one_prompt_err_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other choice is better by 2 tokens in the mean, but only with one prompt: the plainest stands. Were they single requests, it would not."""
    errors = {
        "other": np.repeat([10.0, 41.0, 41.0, 41.0], 25),
        "plain": np.repeat([22.0, 40.0, 40.0, 40.0], 25),
    }
    monkeypatch.setattr(trees, "_errors", lambda _, name: errors[name])

    class Judged:
        def __init__(self, best_score: float) -> None:
            self.best_score = best_score

    medians = [Judged(33.4), Judged(33.3), Judged(35.5), Judged(36.0)]
    for clusters, taken in ((np.repeat(np.arange(4), 25), 2), (np.arange(100), 1)):
        assert trees._plainest(medians, [0, 0, 1, 1], ["other", "plain"], clusters) == taken  # type: ignore[arg-type, list-item]


def test_the_newest_rows_say_how_trees_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(5)
    inputs = dice.random((2_000, 2), dtype=np.float32)
    targets = 5.0 + np.sin(6.0 * inputs[:, 0]) * inputs[:, 1] + dice.normal(0.0, 0.1, 2_000)
    poor, rich = trees.Growth(1, 100), trees.Growth(4, 90, together=3)
    for grid in ((poor, rich), (rich, poor)):
        monkeypatch.setattr(trees, "GRID", grid)
        _, recipe, early = trees.search([(inputs, (0, 0))], targets, np.arange(2_000), Split.of(2_000, 0.1), max_rounds=100, eta=0.1, seed=0,
                                        tell=lambda _: None)  # fmt: skip
        assert recipe.growth == rich
        assert early.by_quantile["p50"].num_boosted_rounds() <= recipe.rounds["p50"] <= 60
        assert recipe.rounds["p10"] <= 90
