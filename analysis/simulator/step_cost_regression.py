"""What do a step's parts cost at first sight? A least-squares split of each call's decode time over what else its replica did meanwhile.

It reads the batches off the recording instead of simulating them, so it is a robust place to begin a replay fit from, and biased as an answer:
a call's own span shows when it was in a batch but not how the batches were cut.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.simulator.engine import Costs
from overrun.analysis.simulator.pool import Pool
from overrun.analysis.words.arrays import FloatArray, IntArray

_LEAST: float = 1e-12
# Factors between one replica's steps and the others' that are tried, of how many replicas, the likeliest, and the part that is left of the error where one of
# them is believed; own defaults.
_PACES: Final = np.geomspace(0.1, 10.0, 21)
_LIKELY: Final = 3
_EVEN: Final = 0.9
# The part of all decoding that lies on either side of a knee at the least, by how much more the squared error may be for another size to be as good, and the
# least that a knee adds to a step, as a part of it; own defaults.
_LEAST_SIDE: Final = 0.005
_AS_GOOD: Final = 1.05
_LEAST_JUMP: Final = 0.25


@dataclass(frozen=True, slots=True)
class BatchKnee:
    """A batch `size` above which a decoding step takes `jump_s` seconds longer, the sizes from `least` to `most` that tell the recorded times nearly as well,
    and the other coefficients."""

    size: int
    least: int
    most: int
    jump_s: float
    costs: Costs


def regression(pool: Pool, among: IntArray) -> Costs | None:
    """Return the coefficients of a linear step from the calls `among` (rows), None when fewer than 30 of them decode.

    decode_i = step x s_i + prefill_token x (prompt tokens read meanwhile) + sequence x s_i x (mean batch) + kv_token x s_i x (mean KV), none below 0,
    weighted by 1 / decode_i; s_i = n_i - 1, with drafts over the tokens that a step yields.
    """
    seen = _decoding(pool, among)
    if seen is None:
        return None
    x, y = seen
    step, prefill, sequence, kv_token = _least_squares(x / y[:, None], np.ones(len(y)))
    return _costs(pool, step, prefill, sequence, kv_token)


def odd_one(pool: Pool, among: IntArray) -> tuple[int, float, Costs] | None:
    """Return the replica whose steps take longer, or shorter, than those of the others, about how many times as long, and the coefficients of the others; None
    where none stands out.

    The same least squares with that replica's decode times over each of some factors: a slow one whose batches grow is distinguished from one with large batches, as
    some of its calls met batches like the others'. The factor comes out low: what a step adds for a large batch is taken for more than it is.
    """
    seen = _decoding(pool, among)
    if seen is None or pool.replicas == 1:
        return None
    x, y = seen
    ran_on = np.concatenate([pool.calls.replica[rows] for _, rows in _by_replica(pool, among)])

    def fitted(replica: int, factor: float) -> tuple[float, FloatArray]:
        took = np.where(ran_on == replica, y / factor, y)
        found = _least_squares(x / took[:, None], np.ones(len(took)))
        return float(np.abs(x @ found / took - 1.0).mean()), found

    even, alike = fitted(-1, 1.0)
    off = np.log(y / np.maximum(x @ alike, _LEAST))
    likely = sorted(
        np.unique(ran_on[ran_on >= 0]).tolist(),
        key=lambda replica: -abs(float(np.median(off[ran_on == replica]))),
    )[:_LIKELY]
    tried = [
        (*fitted(replica, factor), replica, factor)
        for replica in likely
        for factor in _PACES.tolist()
    ]
    error, (step, prefill, sequence, kv_token), replica, factor = min(tried, key=lambda one: one[0])
    return (
        (replica, factor, _costs(pool, step, prefill, sequence, kv_token))
        if error < _EVEN * even
        else None
    )


def batch_knee(*seen: tuple[Pool, IntArray]) -> BatchKnee | None:
    """Return the batch size above which steps take longer, from some calls (rows) of pools of equal engines; None where no jump shows.

    Who decodes for D_b seconds in a batch of b gets r(b) D_b tokens, so s_i = sum of r(b) D_ib - c x (prompt tokens read meanwhile): least squares with r
    linear in b on either side of a size, for the size that leaves least error. The batches are those that were recorded; a replay that comes to large ones a
    moment late is wrong about all that follows, and takes another size for the knee.
    """
    decoded = [
        (*decoding, _beside(pool, among))
        for pool, among in seen
        if (decoding := _decoding(pool, among)) is not None
    ]
    if not decoded:
        return None
    x, y, beside_s = (
        np.concatenate([x for x, _, _ in decoded]),
        np.concatenate([y for _, y, _ in decoded]),
        _stacked([beside_s for _, _, beside_s in decoded]),
    )
    found = _broken(x[:, 0], x[:, 1], beside_s)
    if found is None:
        return None
    size, least, most, above = found
    step, prefill, sequence, kv_token, jump = _least_squares(
        np.column_stack([x, above]) / y[:, None], np.ones(len(y))
    )
    if jump < _LEAST_JUMP * max(step, 1e-3):
        return None
    return BatchKnee(
        size, least, most, float(jump), _costs(seen[0][0], step, prefill, sequence, kv_token)
    )


def _broken(
    steps: FloatArray, read: FloatArray, beside_s: FloatArray
) -> tuple[int, int, int, FloatArray] | None:
    """The size at which token rates break, the least and the most that do nearly as well, and each call's steps in batches above it."""
    batch = np.arange(beside_s.shape[1], dtype=np.float64)
    passed = np.cumsum(beside_s.sum(axis=0)) / beside_s.sum()
    time_s, batch_s = np.cumsum(beside_s, axis=1), np.cumsum(beside_s * batch, axis=1)
    weight = 1.0 / np.sqrt(steps)
    tried = []
    for size in np.flatnonzero((passed >= _LEAST_SIDE) & (passed <= 1.0 - _LEAST_SIDE)).tolist():
        below, above = (
            (time_s[:, size], batch_s[:, size]),
            (time_s[:, -1] - time_s[:, size], batch_s[:, -1] - batch_s[:, size]),
        )
        columns = np.column_stack([*below, *above, -read]) * weight[:, None]
        rates = np.linalg.lstsq(columns, steps * weight, rcond=None)[0]
        tried.append((float(((columns @ rates - steps * weight) ** 2).sum()), size, rates))
    if not tried:
        return None
    error, size, rates = min(tried, key=lambda one: one[0])
    near = [other for worth, other, _ in tried if worth <= _AS_GOOD * error]
    beyond = beside_s[:, size + 1 :] @ np.maximum(rates[2] + rates[3] * batch[size + 1 :], 0.0)
    return size, min(near), max(near), np.minimum(beyond, steps)


def _costs(pool: Pool, step: float, prefill: float, sequence: float, kv_token: float) -> Costs:
    return Costs(
        max(prefill, _LEAST),
        max(0.05 * prefill / max(1.0, float(pool.calls.prompt_tokens.mean())), _LEAST),
        max(step, _LEAST),
        max(kv_token, _LEAST),
        max(sequence, _LEAST),
        0.3 * max(step, 1e-3),
    )


def _by_replica(pool: Pool, among: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Each replica's calls (rows), and those of them among `among` that decode."""
    calls = pool.calls
    decoding = among[((calls.output_tokens > 1) & (pool.e2e_s > pool.ttft_s))[among]]
    for r in np.unique(calls.replica[decoding]):
        yield np.flatnonzero(calls.replica == r), decoding[calls.replica[decoding] == r]


def _decoding(pool: Pool, among: IntArray) -> tuple[FloatArray, FloatArray] | None:
    """Steps, prompt tokens read meanwhile, steps x mean batch and steps x mean KV of each call that decodes (rows), and its decode time in seconds."""
    calls, parts = pool.calls, list(_by_replica(pool, among))
    if (
        sum(len(rows) for _, rows in parts) < 30 or (calls.replica < 0).all()
    ):  # the calls of one batch are not known
        return None
    columns, target = [], []
    for mine, rows in parts:
        scheduled = pool.arrived_s + pool.queue_s
        first, end = pool.arrived_s + pool.ttft_s, pool.ended_s
        fresh = (calls.prompt_tokens - calls.cached_tokens).astype(np.float64)
        held = calls.prompt_tokens + calls.output_tokens / 2.0
        took = (end - first)[rows]
        read = ramp(scheduled[mine], first[mine], fresh[mine], end[rows]) - ramp(
            scheduled[mine], first[mine], fresh[mine], first[rows]
        )
        batch = _area(first[mine], end[mine], np.ones(len(mine)), first[rows], end[rows]) / took
        kv = _area(first[mine], end[mine], held[mine], first[rows], end[rows]) / took
        steps = (calls.output_tokens[rows] - 1.0) / pool.accepted
        columns.append(np.column_stack([steps, read, steps * batch, steps * kv]))
        target.append(took)
    return np.concatenate(columns), np.concatenate(target)


def _beside(pool: Pool, among: IntArray) -> FloatArray:
    """Seconds that each call (rows of `_decoding`) decoded in a batch of each size, shape (n, sizes)."""
    first, end = pool.arrived_s + pool.ttft_s, pool.ended_s
    parts = []
    for mine, rows in _by_replica(pool, among):
        begun, over = np.sort(first[mine]), np.sort(np.maximum(first, end)[mine])
        at = np.sort(np.concatenate([begun, over]))
        batch = np.searchsorted(begun, at, side="right") - np.searchsorted(over, at, side="right")
        upto = np.zeros((len(at), int(batch.max()) + 1))
        upto[np.arange(1, len(at)), batch[:-1]] = np.diff(at)
        upto = np.cumsum(upto, axis=0)
        parts.append(upto[np.searchsorted(at, end[rows])] - upto[np.searchsorted(at, first[rows])])
    return _stacked(parts)


def _stacked(parts: list[FloatArray]) -> FloatArray:
    """The rows of all parts, those of narrower ones with zeros behind them."""
    widest = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, widest - part.shape[1]))) for part in parts])


def ramp(begin: FloatArray, end: FloatArray, amount: FloatArray, at: FloatArray) -> FloatArray:
    """Sum over intervals of `amount` x the part of the interval that has passed at each time `at`."""
    length = np.maximum(end - begin, 1e-9)
    return _ramps(begin, amount / length, at) - _ramps(begin + length, amount / length, at)


def _ramps(begin: FloatArray, slope: FloatArray, at: FloatArray) -> FloatArray:
    """Sum of slope x max(0, at - begin), by sorting once."""
    order = np.argsort(begin, kind="stable")
    slopes = np.concatenate([[0.0], np.cumsum(slope[order])])
    offsets = np.concatenate([[0.0], np.cumsum((slope * begin)[order])])
    upto = np.searchsorted(begin[order], at, side="right")
    total: FloatArray = slopes[upto] * at - offsets[upto]
    return total


def _area(
    begin: FloatArray, end: FloatArray, height: FloatArray, start: FloatArray, stop: FloatArray
) -> FloatArray:
    """Area under the sum of boxes (height over [begin, end]) between start and stop."""

    def upto(at: FloatArray) -> FloatArray:
        return _ramps(begin, height, at) - _ramps(end, height, at)

    return upto(stop) - upto(start)


def _least_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """Non-negative least squares of few columns: of the sets of columns whose own least squares have no coefficient below 0, the one that explains most."""
    scale: FloatArray = np.sqrt((x**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    a = x / scale
    gram, wanted = a.T @ a, a.T @ y
    best, found = 0.0, np.zeros(x.shape[1])
    for some in _sets(x.shape[1]):
        try:
            part = np.linalg.solve(gram[np.ix_(some, some)], wanted[some])
        except np.linalg.LinAlgError:
            continue  # one of these columns is made of the others, and a smaller set does as well
        explained = float(wanted[some] @ part)
        if explained > best and part.min() >= 0.0:
            best, found = explained, np.zeros(x.shape[1])
            found[some] = part
    return found / scale


@functools.cache
def _sets(columns: int) -> list[IntArray]:
    """Every set of columns but the empty one."""
    return [
        np.array(some)
        for size in range(1, columns + 1)
        for some in itertools.combinations(range(columns), size)
    ]
