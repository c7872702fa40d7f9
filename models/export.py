"""Does the exported model still say what the trained one says?

XGBoost boosters to the bytes that an artifact carries, compared before they leave. One model per quantile.
"""

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import xgboost
from numpy.typing import NDArray
from onnx import helper

from overrun.models.artifact import canonical_json
from overrun.models.errors import ArtifactError
from overrun.models.flat import LEAF, to_flat, walk

_INPUT: Final = "features"
# Fixed versions of the format keep artifacts readable for older runtimes and equal in bytes.
_OPSET: Final = 15
_ML_OPSET: Final = 1
_IR: Final = 8
_TOLERANCE: Final = 1e-4


def to_ubj(booster: xgboost.Booster) -> bytes:
    """Return `booster` in XGBoost's own binary JSON."""
    return bytes(booster.save_raw("ubj"))


def to_flat_json(
    booster: xgboost.Booster, names: tuple[str, ...], sample: NDArray[np.float32]
) -> bytes:
    """Return `booster` over the inputs `names` as flat-tree JSON (`overrun.models.flat`).

    Raises:
        ArtifactError: on some row of `sample` the trees answer more than 1e-4 away from the booster.
    """
    flat = to_flat(bytes(booster.save_raw("json")), names)
    walked = np.array([walk(flat, row) for row in sample])
    difference = float(np.max(np.abs(walked - booster.inplace_predict(sample))))
    if not difference <= _TOLERANCE:
        raise ArtifactError(
            f"the flat trees are {difference:.2g} away from XGBoost {xgboost.__version__}, expected at most {_TOLERANCE:g}"
        )
    return canonical_json(flat)


def to_onnx(booster: xgboost.Booster, sample: NDArray[np.float32]) -> bytes:
    """Return `booster` as ONNX bytes.

    Its input is `features`, (rows, features) float32, its output (rows, 1) in the booster's own unit. `sample`, of
    shape (rows, features), holds inputs on which both must agree.

    Raises:
        ArtifactError: `booster` has several outputs, or the conversion changed the answers by more than 1e-4.
    """
    expected = booster.inplace_predict(sample)
    if expected.ndim != 1:
        raise ArtifactError(
            f"the model answers {expected.shape[1]} numbers a row, expected 1: train one model per quantile"
        )
    data = _onnx_trees(
        to_flat(bytes(booster.save_raw("json")), tuple(map(str, range(sample.shape[1]))))
    )
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    converted = session.run(None, {_INPUT: sample})[0].reshape(-1)
    difference = float(np.max(np.abs(converted - expected)))
    if not difference <= _TOLERANCE:
        raise ArtifactError(
            f"the ONNX conversion is {difference:.2g} away from XGBoost {xgboost.__version__}, "
            f"expected at most {_TOLERANCE:g}: install the locked versions of onnx and xgboost-cpu"
        )
    return data


def _onnx_trees(flat: Mapping[str, Any]) -> bytes:
    """The trees as one TreeEnsembleRegressor of ONNX; nodes are numbered within their tree there."""
    feature, roots = flat["feature"], [*flat["roots"], len(flat["feature"])]
    tree = [
        t for t, (first, end) in enumerate(itertools.pairwise(roots)) for _ in range(first, end)
    ]
    number = [node - roots[t] for node, t in enumerate(tree)]
    leaves = [node for node, asked in enumerate(feature) if asked == LEAF]
    inner = [asked != LEAF for asked in feature]
    trees = helper.make_node(
        "TreeEnsembleRegressor",
        [_INPUT],
        ["variable"],
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        post_transform="NONE",
        base_values=[flat["base"]],
        nodes_treeids=tree,
        nodes_nodeids=number,
        nodes_modes=["BRANCH_LT" if inside else "LEAF" for inside in inner],
        nodes_featureids=[
            asked if inside else 0 for asked, inside in zip(feature, inner, strict=True)
        ],
        nodes_values=[
            value if inside else 0.0 for value, inside in zip(flat["value"], inner, strict=True)
        ],
        nodes_truenodeids=[
            child - roots[t] if inside else 0
            for child, t, inside in zip(flat["left"], tree, inner, strict=True)
        ],
        nodes_falsenodeids=[
            child - roots[t] if inside else 0
            for child, t, inside in zip(flat["right"], tree, inner, strict=True)
        ],
        nodes_missing_value_tracks_true=flat["missing_left"],
        target_treeids=[tree[node] for node in leaves],
        target_nodeids=[number[node] for node in leaves],
        target_ids=[0] * len(leaves),
        target_weights=[flat["value"][node] for node in leaves],
    )
    graph = helper.make_graph(
        [trees],
        "output_length",
        [
            helper.make_tensor_value_info(
                _INPUT, onnx.TensorProto.FLOAT, [None, len(flat["features"])]
            )
        ],
        [helper.make_tensor_value_info("variable", onnx.TensorProto.FLOAT, [None, 1])],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return bytes(
        helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR, producer_name="overrun"
        ).SerializeToString()
    )
