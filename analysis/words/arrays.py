"""Which arrays do functions take? The types of numpy columns, named once for all of analysis."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
# What numpy itself returns as rows (`flatnonzero`, `argsort`).
IndexArray: TypeAlias = npt.NDArray[np.intp]
