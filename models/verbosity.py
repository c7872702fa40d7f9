"""Which weights tell how long an answer a prompt asks for? Learns the table of the verbosity score (`overrun.collector.normalise.verbosity`).

Ridge regression on hashed words, pairs of words and groups of letters, and on smooth functions of the numbers of the prompt's shape, of how much longer
than usual for their route and model the answers were. Learned from the user's own opted-in prompts; a single float comes out, and no text goes in anywhere
else. Where the store kept shapes but no text, the shapes alone teach it. On AlpacaEval, prompts never seen, it explains 46 % of a prompt's effect.
"""

import zlib
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from overrun.collector.arrays import FloatArray
from overrun.collector.normalise.verbosity import BINS, DENSE, KINDS, Hashed, dense, logs, score

# The bins and the shape of one prompt; no bins where only its shape was kept.
Prompt = tuple[Hashed, tuple[float, ...]]
# Fewer different prompts teach the trees nothing but the prompts themselves.
MIN_PROMPTS: Final = 200
# Of 20 as of ten; scores by four fifths of the prompts spread less than those that a router gets by all of them.
_FOLDS: Final = 10
# More would take memory and teach little: on Alpaca 10,000 prompts rank answers at a tau of .49, 5,000 at .48.
_MOST_PROMPTS: Final = 20_000
# Chosen by cross-validation on AlpacaEval's prompts: half or twice of any are within 2 %.
_PENALTY: Final = 0.4
_KIND_WEIGHT: Final = 1.0
_SHAPE_WEIGHT: Final = 2.0
# A bin counts by this power of its inverse document frequency (Sparck Jones, 1972); between 0 and 1 all are within half a point of a prompt's effect.
_RARITY: Final = 0.5
_TOLERANCE: Final = 1e-5
_MOST_STEPS: Final = 500
# Numbers that nearly never vary are held to this spread.
_LEAST_SPREAD: Final = 0.1


def learn(
    prompts: Sequence[Prompt | None], log_tokens: FloatArray, groups: Sequence[Any]
) -> NDArray[np.float16] | None:
    """Return the table of weights, shape (overrun.collector.normalise.verbosity.TABLE_SIZE,); None with fewer than MIN_PROMPTS different prompts.

    One entry a request: its prompt (None: not known), what it generated, and the group whose mean is usual.
    """
    different, targets = _distinct(prompts, log_tokens, groups)
    return _fit(different, targets) if len(different) >= MIN_PROMPTS else None


def scored(table: NDArray[np.float16], prompts: Sequence[Prompt | None]) -> FloatArray:
    """Return the score of each prompt by `table`, NaN without one."""
    wide = table.astype(np.float32)
    known = {
        prompt: score(wide, *prompt) for prompt in dict.fromkeys(prompts) if prompt is not None
    }
    return np.array([np.nan if prompt is None else known[prompt] for prompt in prompts])


def out_of_fold(
    prompts: Sequence[Prompt | None], log_tokens: FloatArray, groups: Sequence[Any]
) -> FloatArray:
    """Return the score of each request by a table that has not seen its prompt, NaN without a prompt.

    Scores of prompts that a table was made from would be trusted too much by the trees.
    """
    different, targets = _distinct(prompts, log_tokens, groups)
    if len(different) < MIN_PROMPTS:
        return np.full(len(prompts), np.nan)
    fold = np.array([_fold(prompt) for prompt in different])
    known: dict[Prompt, float] = {}
    for number in range(_FOLDS):
        held = [prompt for prompt, at in zip(different, fold, strict=True) if at == number]
        table = _fit(
            [prompt for prompt, at in zip(different, fold, strict=True) if at != number],
            targets[fold != number],
        )
        known |= zip(held, scored(table, held).tolist(), strict=True)
    return np.array([np.nan if prompt is None else known[prompt] for prompt in prompts])


def _fold(prompt: Prompt) -> int:
    bins = np.fromiter(chain.from_iterable(prompt[0]), dtype="<i4")
    return zlib.crc32(bins.tobytes() + np.array(prompt[1], dtype="<f4").tobytes()) % _FOLDS


def _distinct(
    prompts: Sequence[Prompt | None], log_tokens: FloatArray, groups: Sequence[Any]
) -> tuple[list[Prompt], FloatArray]:
    """Return the different prompts, and the mean over its answers of how far each one is above what is usual."""
    above: dict[Prompt, list[float]] = {}
    for prompt, value in zip(prompts, _above(log_tokens, groups).tolist(), strict=True):
        if prompt is not None:
            above.setdefault(prompt, []).append(value)
    return list(above), np.array([sum(values) / len(values) for values in above.values()])


def _above(log_tokens: FloatArray, groups: Sequence[Any]) -> FloatArray:
    """Return how far each answer is above what is usual in its group, in log tokens, shape (rows,).

    By its rank in the group, as the deviation that a normal distribution has there (normal scores: van der Waerden, 1952), times the spread that
    all groups share: a few answers of one word or without end shall not decide. On AlpacaEval, prompts never seen, tau was .005 higher than with means.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    rows_of: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    normal, deviation = np.zeros(len(groups)), np.zeros(len(groups))
    for rows in rows_of.values():
        own = log_tokens[rows]
        normal[rows] = ndtri((rankdata(own) - 0.5) / len(rows))
        deviation[rows] = own - own.mean()
    return normal * (
        float((normal * deviation).sum()) / max(_square(normal), np.finfo(np.float64).tiny)
    )


def _fit(prompts: Sequence[Prompt], targets: FloatArray) -> NDArray[np.float16]:
    """Return the table that ridge regression finds for the last `_MOST_PROMPTS` prompts."""
    from scipy.sparse import csr_matrix

    prompts, targets = prompts[-_MOST_PROMPTS:], targets[-_MOST_PROMPTS:]
    kinds = [(row, kind) for row, (bins, _) in enumerate(prompts) for kind in bins if kind]
    sizes = [len(kind) for _, kind in kinds]
    rows = np.repeat(np.array([row for row, _ in kinds], dtype=np.int64), sizes)
    columns = np.fromiter(
        chain.from_iterable(kind for _, kind in kinds), dtype=np.int64, count=sum(sizes)
    )
    values = np.repeat([size**-0.5 for size in sizes], sizes)
    words = csr_matrix((values, (rows, columns)), shape=(len(prompts), BINS))
    rarity = _rarity(words)
    words = words.multiply(rarity).tocsr()
    mean, scale = _measure(prompts)
    numbers = np.array([dense(shape, mean, scale) for _, shape in prompts])
    weight = np.float32((2 * _SHAPE_WEIGHT / DENSE) ** 0.5)
    numbers *= weight
    intercept = targets.mean()

    def forward(own: FloatArray) -> FloatArray:
        return np.asarray(
            words @ own[:BINS] + np.einsum("pn,n->p", numbers, own[BINS:].astype(np.float32))
        )

    def backward(error: FloatArray) -> FloatArray:
        return np.concatenate(
            (words.T @ error, np.einsum("pn,p->n", numbers, error.astype(np.float32)))
        )

    found = _solve(forward, backward, targets - intercept)
    return np.concatenate(
        (found[:BINS] * rarity, found[BINS:] * weight, [intercept], mean, scale)
    ).astype(np.float16)


def _solve(
    forward: Callable[[FloatArray], FloatArray],
    backward: Callable[[FloatArray], FloatArray],
    wanted: FloatArray,
) -> FloatArray:
    """Return the weights of the ridge regression of `wanted`, by conjugate gradients on its normal equations (Hestenes and Stiefel, 1952).

    Sums are numpy's own: a BLAS adds in another order with another number of threads, and the same data shall give the same bytes.
    """
    gradient = backward(wanted)
    found, step, rest = np.zeros_like(gradient), gradient, wanted
    size = start = _square(gradient)
    for _ in range(_MOST_STEPS):
        if size <= _TOLERANCE**2 * start:
            break
        moved = forward(step)
        length = size / (_square(moved) + _PENALTY * _square(step))
        found, rest = found + length * step, rest - length * moved
        gradient = backward(rest) - _PENALTY * found
        before, size = size, _square(gradient)
        step = gradient + size / before * step
    return found


def _square(values: FloatArray) -> float:
    return float(np.square(values).sum())


def _rarity(words: Any) -> FloatArray:
    """Return how much each bin counts, shape (BINS,): rare ones more, and all of a kind in a prompt together `_KIND_WEIGHT`, on average."""
    holding = np.bincount(words.indices, minlength=BINS)
    rarity: FloatArray = np.log((words.shape[0] + 1) / (holding + 1)) ** _RARITY
    squares = (
        np.bincount(words.indices, np.square(words.data), BINS) * np.square(rarity) / words.shape[0]
    )
    for kind in map(slice, *zip(*pairwise(KINDS), strict=True)):
        rarity[kind] *= (
            _KIND_WEIGHT / max(float(squares[kind].sum()), np.finfo(np.float64).tiny)
        ) ** 0.5
    return rarity


def _measure(prompts: Sequence[Prompt]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the scale of each logarithm, as a table holds them; what never varied has told nothing: its scale is zero."""
    every = np.array([logs(shape) for _, shape in prompts])
    scale = np.where(
        np.ptp(every, axis=0) > 0, 1.0 / np.maximum(every.std(axis=0), _LEAST_SPREAD), 0.0
    )
    return every.mean(axis=0).astype(np.float16).astype(np.float32), scale.astype(
        np.float16
    ).astype(np.float32)
