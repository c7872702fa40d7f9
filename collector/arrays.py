"""Which arrays do functions take? The types of numpy columns, named once."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
# What numpy itself returns as rows (`flatnonzero`, `argsort`).
IndexArray: TypeAlias = npt.NDArray[np.intp]
# Halves of trace ids, span ids and hashes.
WordArray: TypeAlias = npt.NDArray[np.uint64]
ByteArray: TypeAlias = npt.NDArray[np.uint8]
