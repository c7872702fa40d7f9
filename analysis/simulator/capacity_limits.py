"""What did calls wait for? Reads off the recording whether seats or KV blocks were full while calls queued, and how many there are.

A call that waits longer than a few steps waits for KV where the engine tells its capacity and what is held leaves no room for the call's prompt; else for a
seat when its replica runs as many sequences as ever whenever someone waits, for KV when the tokens held then are always about the same; otherwise only for its
turn in the token budget. Where KV is full, calls of like size make the sequences about as many at any time: they are no limit then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from overrun.analysis.simulator.engine import Setup
from overrun.analysis.simulator.pool import Pool
from overrun.analysis.simulator.step_cost_regression import ramp
from overrun.analysis.words.arrays import BoolArray, FloatArray

# A wait counts from this many usual steps on: shorter ones are a turn in the token budget.
_STEPS: Final = 5.0
_LEAST_WAITS: Final = 20
# Part of the time waited during which a limit must have been met, and how near to it; own defaults.
_PART: Final = 0.75
_NEAR_KV: Final = 0.85
_NEAR_SEATS: Final = 0.9
# As a part of a capacity that is told: what calls hold is known from their tokens, but for blocks that are not full.
_NEAR_TOLD: Final = 0.95


def with_limits(pool: Pool, setup: Setup) -> Setup:
    """Return the setup with the limit that the waits show, or as it is."""
    return next(iter(suggested(pool, setup)), setup)


def suggested(pool: Pool, setup: Setup) -> list[Setup]:
    """Return the setup with each limit that the waits suggest by itself, the likelier one first; none where they suggest none.

    Only a replay tells which of them it is, and whether there is one: in a queue that grows everything is about as full whenever somebody waits.
    """
    decoding = pool.calls.output_tokens > 1
    token_s = (pool.e2e_s - pool.ttft_s)[decoding] / (pool.calls.output_tokens[decoding] - 1)
    waits = pool.told & (
        pool.queue_s > _STEPS * max(1e-3, float(np.median(token_s)) if len(token_s) else 0.0)
    )
    if int(waits.sum()) < _LEAST_WAITS:
        return []
    running, held = np.zeros(len(pool)), np.zeros(len(pool))
    wanted = (pool.calls.prompt_tokens - pool.calls.cached_tokens).astype(np.float64)
    for r in np.unique(pool.calls.replica[pool.told]):
        mine = pool.told & (pool.calls.replica == r)
        at = (pool.arrived_s + 0.5 * pool.queue_s)[mine]
        counted, share = _counted(pool, mine)
        begin, end = (pool.arrived_s + pool.queue_s)[counted], pool.ended_s[counted]
        output = share * pool.calls.output_tokens[counted]
        running[mine] = _inside(begin, end, share, at)
        grown = ramp((pool.arrived_s + pool.ttft_s)[counted], end, output, at) - _since(
            end, output, at
        )
        held[mine] = (
            _inside(begin, end, share * wanted[counted], at)
            + grown
            + 0.5 * setup.block * running[mine]
        )
    # The longest quarter, weighted by the time waited: many short turns in the budget must not hide a few long waits for a limit.
    waits &= pool.queue_s >= np.quantile(pool.queue_s[waits], 0.75)
    weight = pool.queue_s[waits] / pool.queue_s[waits].sum()
    if (
        pool.kv_tokens is not None
        and float(weight[(held + wanted)[waits] >= _NEAR_TOLD * pool.kv_tokens].sum()) >= _PART
    ):
        return []
    found = []
    seats = _weighted(running[waits], weight, 0.5)
    most = _most_running(pool)
    if (
        seats >= min(_NEAR_SEATS * most, most - 1.0)
        and float(weight[np.abs(running[waits] - seats) <= max(1.0, 0.03 * seats)].sum()) >= _PART
    ):
        found.append(replace(setup, max_sequences=round(seats)))
    capacity = _weighted(held[waits], weight, 0.95)
    if pool.kv_tokens is None and float(weight[held[waits] >= _NEAR_KV * capacity].sum()) >= _PART:
        found.append(replace(setup, kv_tokens=int(capacity)))
    return found


def _counted(pool: Pool, mine: BoolArray) -> tuple[BoolArray, FloatArray]:
    """Which calls count on a replica that served `mine`, and for how much: those whose engine's span was lost ran on any of the replicas."""
    counted: BoolArray = mine | ~pool.told
    return counted, np.where(mine, 1.0, 1.0 / pool.replicas)[counted]


def _most_running(pool: Pool) -> float:
    """How many run at a time on a replica at most, but for a twentieth of the time in which any do.

    A span ends after its call has left its seat, and clocks differ: for moments more seem to run than there are seats. Where many calls end at once, many
    others begin in such a moment.
    """
    running, lasts = [], []
    for r in np.unique(pool.calls.replica[pool.told]):
        mine = pool.told & (pool.calls.replica == r)
        counted, share = _counted(pool, mine)
        begin, end = (pool.arrived_s + pool.queue_s)[counted], pool.ended_s[counted]
        at = np.sort(np.r_[begin, end])
        running.append(_inside(begin, end, share, at)[:-1])
        lasts.append(np.diff(at))
    many, long = np.concatenate(running), np.concatenate(lasts)
    busy = many > 0.0
    if not long[busy].sum() > 0.0:
        return 0.0
    return _weighted(many[busy], long[busy] / long[busy].sum(), 0.95)


def _weighted(values: FloatArray, weight: FloatArray, q: float) -> float:
    """The q-quantile of values with weights that sum to 1."""
    order = np.argsort(values, kind="stable")
    return float(
        values[order][min(len(order) - 1, int(np.searchsorted(np.cumsum(weight[order]), q)))]
    )


def _inside(begin: FloatArray, end: FloatArray, amount: FloatArray, at: FloatArray) -> FloatArray:
    """Sum of `amount` over the intervals that contain each time."""
    return _since(begin, amount, at) - _since(end, amount, at)


def _since(begin: FloatArray, amount: FloatArray, at: FloatArray) -> FloatArray:
    """Sum of `amount` over what began by each time."""
    order = np.argsort(begin, kind="stable")
    total: FloatArray = np.concatenate([[0.0], np.cumsum(amount[order])])[
        np.searchsorted(begin[order], at, side="right")
    ]
    return total
