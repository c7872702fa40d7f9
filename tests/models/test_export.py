"""An exported model answers like the trained one, or is not exported."""

import json

import numpy as np
import onnxruntime
import pytest
import xgboost
from numpy.typing import NDArray

from overrun.models.errors import ArtifactError
from overrun.models.export import to_flat_json, to_onnx, to_ubj
from overrun.models.flat import walk


def inputs(rows: int = 600) -> NDArray[np.float32]:
    """Four columns, a tenth of the values missing."""
    dice = np.random.default_rng(3)
    values = dice.normal(size=(rows, 4)).astype(np.float32)
    values[dice.random(values.shape) < 0.1] = np.nan
    return values


def booster(
    sample: NDArray[np.float32], objective: dict[str, object], rounds: int = 20
) -> xgboost.Booster:
    labels = 5 + np.nan_to_num(sample[:, 0]) * 2
    return xgboost.train(
        objective | {"nthread": 1}, xgboost.DMatrix(sample, labels, nthread=1), rounds
    )


@pytest.mark.parametrize(
    "objective",
    [{"objective": "reg:absoluteerror"}, {"objective": "reg:quantileerror", "quantile_alpha": 0.9}],
)
def test_onnx_and_ubj_agree_with_the_trained_model_also_on_missing_values(
    objective: dict[str, object],
) -> None:
    sample = inputs()
    model = booster(sample, objective)
    unseen = np.vstack([inputs(200) * 3, np.full((1, 4), np.nan, dtype=np.float32)])
    session = onnxruntime.InferenceSession(
        to_onnx(model, sample), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(
        session.run(None, {"features": unseen})[0][:, 0], model.inplace_predict(unseen), atol=1e-4
    )
    restored = xgboost.Booster({"nthread": 1})
    restored.load_model(bytearray(to_ubj(model)))
    np.testing.assert_array_equal(restored.inplace_predict(unseen), model.inplace_predict(unseen))


def test_the_three_formats_agree_on_ten_thousand_rows() -> None:
    sample = inputs()
    model = booster(sample, {"objective": "reg:quantileerror", "quantile_alpha": 0.9}, rounds=60)
    unseen = (inputs(10_000) * 2).astype(np.float32)
    expected = model.inplace_predict(unseen)
    session = onnxruntime.InferenceSession(
        to_onnx(model, sample), providers=["CPUExecutionProvider"]
    )
    flat = json.loads(to_flat_json(model, ("a", "b", "c", "d"), sample))
    assert flat["features"] == ["a", "b", "c", "d"]
    np.testing.assert_allclose(
        session.run(None, {"features": unseen})[0][:, 0], expected, atol=1e-4
    )
    np.testing.assert_allclose([walk(flat, row) for row in unseen], expected, atol=1e-4)
    # Thresholds are compared, so they keep all digits of a float32; what a leaf adds has as few as tell it from its neighbours.
    leaves = [
        value for feature, value in zip(flat["feature"], flat["value"], strict=True) if feature < 0
    ]
    assert max(len(repr(value)) for value in leaves) < len("-0.0123456789012")
    assert all(
        np.float64(np.float32(value)) == value
        for feature, value in zip(flat["feature"], flat["value"], strict=True)
        if feature >= 0
    )


def test_a_value_on_a_threshold_goes_the_same_way_in_all_formats() -> None:
    sample = inputs()
    model = booster(sample, {"objective": "reg:absoluteerror"})
    flat = json.loads(to_flat_json(model, ("a", "b", "c", "d"), sample))
    edges = np.array(
        [
            value
            for feature, value in zip(flat["feature"], flat["value"], strict=True)
            if feature == 0
        ],
        dtype=np.float32,
    )
    rows = np.tile(sample[0], (len(edges), 1))
    rows[:, 0] = edges
    np.testing.assert_allclose(
        [walk(flat, row) for row in rows], model.inplace_predict(rows), atol=1e-4
    )


def test_flat_trees_that_answer_differently_are_not_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = inputs()
    monkeypatch.setattr("overrun.models.export.walk", lambda flat, row: walk(flat, row) + 2e-4)
    with pytest.raises(ArtifactError, match=r"the flat trees are 0\.0002 away from XGBoost"):
        to_flat_json(
            booster(sample, {"objective": "reg:absoluteerror"}), ("a", "b", "c", "d"), sample
        )


def test_the_bytes_are_the_same_every_time() -> None:
    sample = inputs()
    first, second = (booster(sample, {"objective": "reg:absoluteerror"}) for _ in range(2))
    assert to_onnx(first, sample) == to_onnx(second, sample)
    assert to_ubj(first) == to_ubj(second)


MULTI: dict[str, object] = {
    "objective": "reg:quantileerror",
    "quantile_alpha": np.array([0.5, 0.9]),
}


def test_a_model_of_several_quantiles_is_refused() -> None:
    sample = inputs()
    with pytest.raises(ArtifactError, match="train one model per quantile"):
        to_onnx(booster(sample, MULTI), sample)
