"""How long an answer does this prompt ask for? One number, the verbosity score, from a table of weights (`overrun.models.verbosity` learns it).

A weight for each hashed word and group of letters, and a smooth function of the shape numbers: waves of fixed frequencies, weighed (random Fourier
features: Rahimi and Recht, 2007; orthogonal ones: Yu and others, 2016). The collector scores prompts at ingest, training and
routers those they are handed: one function, so that it is the same number. Only numpy.
"""

from __future__ import annotations

import functools
import hashlib
import math
import zlib
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from overrun.collector.arrays import Float32Array
from overrun.collector.normalise.prompt_shape import SHAPE

# Bins of words and pairs, of words at their place, and of letters; empty where only the shape of a prompt is known.
Hashed = tuple[tuple[int, ...], ...]
# Where the bins of each kind begin, and where the last ends: 2**15, 2**14 and 2**14 of them.
KINDS = (0, 1 << 15, 3 << 14, 1 << 16)
BINS = KINDS[-1]
_WORD_BITS, _PLACE_BITS = (1 << 15) - 1, (1 << 14) - 1
# Letters are looked at up to here, by fours; the first of what is asked tells most of it, and a prompt's cost stays bounded.
_START = 120
# Places double in width (the first word, the next two, the next four ...), for the first words matter most and a little shift shall not.
_PLACES = tuple(zlib.crc32(bytes([number.bit_length()])) for number in range(1, 1 << 9))
_VERB = SHAPE.index("shape_first_verb")
_SHAPES = len(SHAPE)
# Shapes this many spreads apart, over all numbers together, show little of each other.
_REACH = 1.4
# On AlpacaEval, prompts never seen: 368 waves explain 41.1 % of a prompt's effect, 736 explain 41.5 %, 1,104 the same, endlessly many 42.2 %.
_WAVES = 16 * _SHAPES
# The waves, each as cosine and sine.
DENSE = 2 * _WAVES
# A weight for each bin and for each of the numbers above, the intercept, and each shape number's mean and scale.
TABLE_SIZE = BINS + DENSE + 1 + 2 * _SHAPES


def read_table(data: bytes) -> Float32Array | None:
    """The weights in the bytes of an artifact's `ngram_ridge.f16`; None if they are not such a table."""
    return (
        np.frombuffer(data, dtype="<f2").astype(np.float32) if len(data) == 2 * TABLE_SIZE else None
    )


def table_id(data: bytes) -> str:
    """Eight hex digits that name a table: scores of different tables must not be mixed."""
    return hashlib.sha256(data).hexdigest()[:8]


def logs(shape: Sequence[float]) -> NDArray[np.float32]:
    """The logarithms of a prompt's counts, shape (len(SHAPE),); 0 for the first verb, which is no count."""
    counts = np.array(shape, dtype=np.float32)
    counts[_VERB] = 0.0
    return np.log1p(counts)


def dense(
    shape: Sequence[float], mean: NDArray[np.float32], scale: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The numbers that a table weighs beside the bins, shape (DENSE,); `mean` and `scale`, shape (len(SHAPE),), bring counts to one measure."""
    out = np.empty(DENSE, dtype=np.float32)
    phases = ((logs(shape) - mean) * scale) @ _frequencies()
    np.cos(phases, out=out[:_WAVES])
    np.sin(phases, out=out[_WAVES:])
    return out


def hashed(words: Sequence[str]) -> Hashed:
    """The bins (below BINS) of a prompt's words, `prompt_shape.words_of`: input of the score, never stored.

    Each kind for itself: the distinct words and neighbouring pairs; the distinct words at their place; every four neighbouring bytes of the
    beginning, spaces included.
    """
    text = " ".join(words).encode("utf-8", "surrogatepass")
    parts, crc = text.split(), zlib.crc32
    each = list(map(crc, parts))
    single = {value & _WORD_BITS for value in chain(each, map(crc, parts[1:], each))}
    placed = {value & _PLACE_BITS | KINDS[1] for value in map(crc, parts, _PLACES)}
    start = np.frombuffer(b" " + text[: _START - 1], dtype=np.uint8).astype(np.uint32)
    fours = start[:-3] | start[1:-2] << 8 | start[2:-1] << 16 | start[3:] << 24
    # Multiplicative hashing (Knuth): the upper 14 bits of the product with 2**32 over the golden ratio.
    letters = (fours * 2_654_435_761 >> 18) + KINDS[2]
    return tuple(sorted(single)), tuple(sorted(placed)), tuple(letters.tolist())


def score(table: Float32Array, bins: Hashed, shape: Sequence[float]) -> float:
    """Log tokens above what is usual for the prompt's route and model, of a prompt's bins and shape."""
    words = sum(float(table.take(kind).sum()) / math.sqrt(len(kind)) for kind in bins if kind)
    mean, scale = table[-2 * _SHAPES : -_SHAPES], table[-_SHAPES:]
    return (
        words
        + float(table[BINS : BINS + DENSE] @ dense(shape, mean, scale))
        + float(table[BINS + DENSE])
    )


@functools.cache
def _frequencies() -> NDArray[np.float32]:
    """Frequencies of a Gaussian kernel, shape (len(SHAPE), _WAVES): the same ones everywhere, for numpy never changes what a RandomState draws."""
    dice = np.random.RandomState(0)
    blocks = []
    for _ in range(_WAVES // _SHAPES):
        directions, corner = np.linalg.qr(dice.standard_normal((_SHAPES, _SHAPES)))
        lengths = np.sqrt(dice.chisquare(_SHAPES, _SHAPES))
        # A decomposition is unique up to signs.
        blocks.append(directions * (np.sign(np.diag(corner)) * lengths))
    frequencies: NDArray[np.float32] = (np.hstack(blocks) / (_REACH * _SHAPES**0.5)).astype(
        np.float32
    )
    return frequencies
