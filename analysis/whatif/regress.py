"""What do a step's parts cost at first sight? A least-squares split of each call's decode time over what else its replica did meanwhile.

It reads the batches off the recording instead of simulating them, so it is a robust place to begin a replay fit from, and biased as an answer:
a call's own span says when it was in a batch but not how the batches were cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from analysis.latency import FloatArray
from analysis.whatif.engine import Costs, Ints
from analysis.whatif.pool import Pool

_LEAST: float = 1e-12
# Batch sizes that are tried as a knee, the calls that must lie on either side of one, and the least that it adds to a step, as a part of it; own defaults.
_KNEES: Final = np.linspace(0.05, 0.95, 19)
_LEAST_SIDE: Final = 30
_LEAST_JUMP: Final = 0.25


def regression(pool: Pool, among: Ints) -> Costs | None:
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


def knee(pool: Pool, among: Ints) -> tuple[float, float, float, float, Costs] | None:
    """Return above which batch size (mean over a call's decoding) steps take longer, between which sizes that was sought, by how many seconds, and the other
    coefficients; None where no jump shows.

    The same least squares with one more column, (n_i - 1) x [mean batch > k], for the k that leaves least error.
    """
    seen = _decoding(pool, among)
    if seen is None:
        return None
    x, y = seen
    batch = x[:, 2] / x[:, 0]
    tried = []
    for k in np.unique(np.quantile(batch, _KNEES)):
        above = batch > k
        if min(int(above.sum()), int((~above).sum())) < _LEAST_SIDE:
            continue
        columns = np.column_stack([x, x[:, 0] * above])
        found = _least_squares(columns / y[:, None], np.ones(len(y)))
        tried.append((float(((columns @ found / y - 1.0) ** 2).sum()), float(k), found))
    if not tried:
        return None
    _, size, (step, prefill, sequence, kv_token, jump) = min(tried, key=lambda one: one[0])
    if jump < _LEAST_JUMP * max(step, 1e-3):
        return None
    low, high = np.quantile(batch, _KNEES[[0, -1]])
    return max(1.0, size), max(1.0, float(low)), max(1.0, float(high)), float(jump), _costs(pool, step, prefill, sequence, kv_token)


def _costs(pool: Pool, step: float, prefill: float, sequence: float, kv_token: float) -> Costs:
    return Costs(max(prefill, _LEAST), max(0.05 * prefill / max(1.0, float(pool.calls.prompt_tokens.mean())), _LEAST), max(step, _LEAST),
                 max(kv_token, _LEAST), max(sequence, _LEAST), 0.3 * max(step, 1e-3))


def _decoding(pool: Pool, among: Ints) -> tuple[FloatArray, FloatArray] | None:
    """Steps, prompt tokens read meanwhile, steps x mean batch and steps x mean KV of each call that decodes (rows), and its decode time in seconds."""
    calls = pool.calls
    decoding = among[((calls.output_tokens > 1) & (pool.e2e_s > pool.ttft_s))[among]]
    if len(decoding) < 30 or (calls.replica < 0).all():  # who shared a batch with whom is not known
        return None
    columns, target = [], []
    for r in np.unique(calls.replica[decoding]):
        mine = np.flatnonzero(calls.replica == r)
        rows = decoding[calls.replica[decoding] == r]
        scheduled = pool.arrived_s + pool.queue_s
        first, end = pool.arrived_s + pool.ttft_s, pool.ended_s
        fresh = (calls.prompt_tokens - calls.cached_tokens).astype(np.float64)
        held = calls.prompt_tokens + calls.output_tokens / 2.0
        took = (end - first)[rows]
        read = ramp(scheduled[mine], first[mine], fresh[mine], end[rows]) - ramp(scheduled[mine], first[mine], fresh[mine], first[rows])
        batch = _area(first[mine], end[mine], np.ones(len(mine)), first[rows], end[rows]) / took
        kv = _area(first[mine], end[mine], held[mine], first[rows], end[rows]) / took
        steps = (calls.output_tokens[rows] - 1.0) / pool.accepted
        columns.append(np.column_stack([steps, read, steps * batch, steps * kv]))
        target.append(took)
    return np.concatenate(columns), np.concatenate(target)


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


def _area(begin: FloatArray, end: FloatArray, height: FloatArray, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Area under the sum of boxes (height over [begin, end]) between start and stop."""
    def upto(at: FloatArray) -> FloatArray:
        return _ramps(begin, height, at) - _ramps(end, height, at)

    return upto(stop) - upto(start)


def _least_squares(x: FloatArray, y: FloatArray) -> FloatArray:
    """Non-negative least squares by cyclic coordinate descent (four columns: a few hundred rounds settle it)."""
    scale = np.sqrt((x**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    a = x / scale
    gram, wanted = a.T @ a, a.T @ y
    beta = np.zeros(x.shape[1])
    for _ in range(2000):
        for j in range(len(beta)):
            if gram[j, j] > 0.0:
                beta[j] = max(0.0, beta[j] + (wanted[j] - gram[j] @ beta) / gram[j, j])
    found: FloatArray = beta / scale
    return found
