"""How does a program without XGBoost or ONNX walk the trees?

`to_flat` writes a booster as plain arrays (JSON), `walk` is the whole reader in a dozen lines, to be copied into Go, Rust
or C++ (docs/PREDICTOR.md). Nothing here needs more than numpy.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SCHEMA: Final = "overrun.trees/1"
# In `feature`, the mark of a leaf.
LEAF: Final = -1


def to_flat(model: bytes, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an XGBoost model (its JSON bytes) as one table of nodes.

    `roots` are the first nodes of the trees. Node i asks whether input `feature[i]` is below `value[i]`: if so the walk
    goes to `left[i]`, else to `right[i]`, and where the input is missing to `left[i]` if `missing_left[i]` is 1. A
    node with feature -1 is a leaf worth `value[i]`. The prediction is `base` plus one leaf of each tree.
    """
    learner = json.loads(model)["learner"]
    flat: dict[str, Any] = {
        "schema": SCHEMA,
        "features": list(names),
        "base": float(json.loads(learner["learner_model_param"]["base_score"])[0]),
        "roots": [],
        "feature": [],
        "value": [],
        "left": [],
        "right": [],
        "missing_left": [],
    }
    for tree in learner["gradient_booster"]["model"]["trees"]:
        first = len(flat["feature"])
        leaf = [child < 0 for child in tree["left_children"]]
        flat["roots"].append(first)
        flat["feature"] += [
            LEAF if end else at for end, at in zip(leaf, tree["split_indices"], strict=True)
        ]
        # As float32: that is what XGBoost compares and adds. What is only added needs no more digits than tell it from its neighbours.
        flat["value"] += [
            float(str(np.float32(value))) if end else float(np.float32(value))
            for end, value in zip(leaf, tree["split_conditions"], strict=True)
        ]
        for side, children in (("left", "left_children"), ("right", "right_children")):
            flat[side] += [
                0 if end else first + at for end, at in zip(leaf, tree[children], strict=True)
            ]
        flat["missing_left"] += [int(value) for value in tree["default_left"]]
    return flat


def walk(flat: Mapping[str, Any], inputs: NDArray[np.float32]) -> float:
    """Return log(1 + tokens) for one row of `inputs`, in the order of `flat["features"]`; NaN is missing.

    Inputs must be rounded to float32 before they are compared: thresholds are float32 numbers of the training data.
    """
    row = inputs.tolist()
    feature, value, left, right, missing_left = (
        flat[key] for key in ("feature", "value", "left", "right", "missing_left")
    )
    total = flat["base"]
    for root in flat["roots"]:
        node = root
        while feature[node] != LEAF:
            seen = row[feature[node]]
            goes_left = missing_left[node] if seen != seen else seen < value[node]
            node = left[node] if goes_left else right[node]
        total += value[node]
    return float(total)
