"""Does the exported model still say what the trained one says?

XGBoost boosters to the bytes that an artifact carries, compared before they leave. One model per quantile: onnxmltools
converts a multi-quantile booster without an error and with wrong values (seen with onnxmltools 1.16.0 and xgboost
3.2.0, off by 6.2 log tokens).
"""

from typing import Final

import numpy as np
import onnxruntime
import xgboost
from numpy.typing import NDArray
from onnxmltools.convert import convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

from overrun.models.artifact import canonical_json
from overrun.models.errors import ArtifactError
from overrun.models.flat import to_flat, walk

_INPUT: Final = "features"
# The default of onnxmltools follows the newest installed onnx; a fixed one keeps artifacts readable for older runtimes
# and equal in bytes.
_OPSET: Final = 15
_TOLERANCE: Final = 1e-4


def to_ubj(booster: xgboost.Booster) -> bytes:
    """Return `booster` in XGBoost's own binary JSON."""
    return bytes(booster.save_raw("ubj"))


def to_flat_json(booster: xgboost.Booster, names: tuple[str, ...], sample: NDArray[np.float32]) -> bytes:
    """Return `booster` over the inputs `names` as flat-tree JSON (`overrun.models.flat`).

    Raises:
        ArtifactError: on some row of `sample` the trees answer more than 1e-4 away from the booster.
    """
    flat = to_flat(bytes(booster.save_raw("json")), names)
    walked = np.array([walk(flat, row) for row in sample])
    difference = float(np.max(np.abs(walked - booster.inplace_predict(sample))))
    if not difference <= _TOLERANCE:
        raise ArtifactError(f"the flat trees are {difference:.2g} away from XGBoost {xgboost.__version__}, wanted at most {_TOLERANCE:g}")
    return canonical_json(flat)


def to_onnx(booster: xgboost.Booster, sample: NDArray[np.float32]) -> bytes:
    """Return `booster` as ONNX bytes.

    Its input is `features`, (rows, features) float32, its output (rows, 1) in the booster's own unit. `sample`, of
    shape (rows, features), holds inputs on which both must agree.

    Raises:
        ArtifactError: `booster` has several outputs, or the conversion changed the answers by more than 1e-4.
    """
    shape = [(_INPUT, FloatTensorType([None, sample.shape[1]]))]
    expected = booster.inplace_predict(sample)
    if expected.ndim != 1:
        raise ArtifactError(
            f"the model answers {expected.shape[1]} numbers a row, wanted 1: train one model per quantile"
        )
    model = convert_xgboost(booster, name="output_length", initial_types=shape, target_opset=_OPSET)
    data: bytes = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    converted = session.run(None, {_INPUT: sample})[0].reshape(-1)
    difference = float(np.max(np.abs(converted - expected)))
    if not difference <= _TOLERANCE:
        raise ArtifactError(
            f"the ONNX conversion is {difference:.2g} away from XGBoost {xgboost.__version__}, "
            f"wanted at most {_TOLERANCE:g}: install the locked versions of onnxmltools and xgboost-cpu"
        )
    return data
