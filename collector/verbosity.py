"""How long an answer does this prompt ask for? One number, the verbosity score, from a table of weights (`models.verbosity` learns it).

The collector scores prompts at ingest, training and routers those they are handed: one function, so that it is the same number. Only numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collector.prompt_shape import BINS_BITS, SHAPE, VERBS

Table = NDArray[np.float32]
BINS = 1 << BINS_BITS
_VERB = SHAPE.index("shape_first_verb")
# Of each count its logarithm and whether it is there at all; which verb comes first, or none of them.
DENSE = 2 * len(SHAPE) + VERBS + 1
# A weight for each hashed word, for each of the numbers above, and the intercept.
TABLE_SIZE = BINS + DENSE + 1


def read_table(data: bytes) -> Table | None:
    """The weights in the bytes of an artifact's `ngram_ridge.f16`; None if they are not such a table."""
    return np.frombuffer(data, dtype="<f2").astype(np.float32) if len(data) == 2 * TABLE_SIZE else None


def table_id(data: bytes) -> str:
    """Eight hex digits that name a table: scores of different tables must not be mixed."""
    return hashlib.sha256(data).hexdigest()[:8]


def dense(shape: Sequence[float]) -> NDArray[np.float32]:
    """The numbers of a prompt's shape as the table weighs them, shape (DENSE,)."""
    out = np.zeros(DENSE, dtype=np.float32)
    counts = np.array(shape, dtype=np.float32)
    counts[_VERB] = 0.0
    np.log1p(counts, out=out[: len(SHAPE)])
    out[len(SHAPE) : 2 * len(SHAPE)] = counts > 0
    out[2 * len(SHAPE) + int(shape[_VERB]) + 1] = 1.0
    return out


def score(table: Table, bins: Sequence[int], shape: Sequence[float]) -> float:
    """Log tokens above what is usual for the prompt's route and model, of a prompt's hashed words and shape."""
    words = float(table.take(bins).sum()) / len(bins) ** 0.5 if bins else 0.0
    return words + float(table[BINS : BINS + DENSE] @ dense(shape)) + float(table[-1])
