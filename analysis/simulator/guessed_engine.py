"""Which engine would answer as these clients saw it? Replicas and seats guessed from the clients' own first tokens and ends, without engine telemetry.

Whoever sends nearly all that an engine serves sees its load in his own calls: the number of equal replicas, each call on the emptiest one, whose replay gives
the recorded times back best is taken, then what lies beside it (seats, a cache that fills, the tokens of a step) as long as that is nearer. Where an engine
that never shares a step does nearly as well, the times do not follow the clients' own load (a provider's other customers, a network), and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.simulator.batching import LEAST_LOAD
from overrun.analysis.simulator.calibrate import BETTER, trial
from overrun.analysis.simulator.engine import Setup
from overrun.analysis.simulator.pool import (
    DEFAULT_SEQUENCES,
    MIN_CALLS,
    MIN_COVERAGE,
    UNLIMITED_KV,
    Pool,
    made,
)
from overrun.analysis.simulator.recording import Recording
from overrun.analysis.words.arrays import FloatArray, IntArray

# Numbers of equal replicas that are tried, and seats of each; own defaults.
REPLICAS: Final = (1, 2, 3, 4, 6, 8)
SEATS: Final = (DEFAULT_SEQUENCES, 8, 16, 32, 64)
# Evaluations of the replay for each of them; how many, the likeliest, are fitted once more, and with how many; the part of these that a hasty search keeps.
GLANCE, LIKELY, EVALUATIONS, LEAST_EFFORT = 30, 4, 150, 0.5
# Seats that are more than this many times the calls ever seen at once never bind; own default.
MOST_SPARE: Final = 1.5
# Rounds of looking beside the best for what the grid does not have, evaluations of each, and how much less the error must be; own defaults.
ROUNDS, NEAR, CLOSER = 4, 60, 0.97
# Steps from a limit to the next, and parts of the most tokens ever asked for at once that a cache may hold.
_STEPS, _FULL = (0.7, 0.85, 1.2, 1.4), (0.45, 0.65, 0.85)
# So many replicas that a call hardly ever meets another one.
ALONE: Final = 64


class Found(NamedTuple):
    """Settings with the error of their replay and the coefficients that it was found with."""

    error: float
    setup: Setup
    at: FloatArray


def pools(facts: Recording) -> list[Pool]:
    """Return the calls of each model as their clients timed them: those with at least `MIN_CALLS` calls of which 90 % carry a first token and token counts."""
    usable = (
        (pl.col("input_tokens") > 0)
        & (pl.col("output_tokens") > 0)
        & pl.col("ttft_ms").is_not_null()
        & ~pl.col("error").fill_null(False)
    )
    calls = facts.calls.with_row_index("row").with_columns(usable=usable.fill_null(False))
    found = []
    for (model,), group in calls.group_by("model", maintain_order=True):
        timed = group.filter("usable")
        if timed.height >= max(MIN_CALLS, MIN_COVERAGE * group.height):
            ttft = timed["ttft_ms"].cast(pl.Float64).to_numpy() / 1000.0
            e2e = np.maximum(timed["e2e_ms"].cast(pl.Float64).to_numpy() / 1000.0, ttft)
            found.append(made(facts, None if model is None else str(model), timed, ttft, e2e))
    return found


def guess(
    pool: Pool,
    rows: IntArray,
    effort: float = 1.0,
    progress: Callable[[float], None] = lambda share: None,
) -> Setup | None:
    """Return the settings that replay the calls `rows` best, None where those of engines that never share a step do nearly as well.

    `progress` gets the share done.
    """
    tried = trial(pool, rows)

    def setup(replicas: int, seats: int = DEFAULT_SEQUENCES) -> Setup:
        return Setup(
            replicas=replicas,
            kv_tokens=UNLIMITED_KV,
            max_sequences=seats,
            router=LEAST_LOAD,
            speed=(1.0,) * replicas,
        )

    def found(one: Setup, evaluations: int = EVALUATIONS, at: FloatArray | None = None) -> Found:
        point, error = tried(one, round(evaluations * max(effort, LEAST_EFFORT)), at)
        return Found(error, one, point)

    def may_bind(seats: int) -> bool:
        return seats <= MOST_SPARE * pool.most_running

    grid = [
        setup(k, seats)
        for k in REPLICAS
        for seats in SEATS
        if seats == DEFAULT_SEQUENCES or may_bind(k * seats)
    ]
    glanced = []
    for one in grid:
        glanced.append(found(one, GLANCE))
        progress(0.5 * len(glanced) / len(grid))
    best = min((found(one.setup) for one in sorted(glanced, key=_error)[:LIKELY]), key=_error)
    progress(0.6)
    if best.error >= BETTER * found(setup(ALONE)).error:
        return None
    # What the grid does not have: seats between its own, a cache that fills, steps of another size. Near as they are, each begins where the best one is.
    held = _most_held(pool)
    for nth in range(ROUNDS):
        near = min((found(one, NEAR, best.at) for one in _beside(best.setup, held)), key=_error)
        if near.error >= CLOSER * best.error:
            break
        best = near
        progress(0.6 + 0.4 * (nth + 1) / ROUNDS)
    return best.setup


def _beside(now: Setup, held: float) -> list[Setup]:
    """Settings that differ in one thing from those: seats, KV (the most tokens that were asked for at once are `held`), the tokens of a step."""
    seats = (
        {round(part * now.max_sequences) for part in _STEPS}
        if now.max_sequences < DEFAULT_SEQUENCES
        else set()
    )
    full = (
        {int(part * now.kv_tokens) for part in _STEPS}
        if now.kv_tokens < UNLIMITED_KV
        else {int(part * held / now.replicas) for part in _FULL}
    )
    budgets = {2 * now.token_budget, now.token_budget // 2}
    return [
        *(replace(now, max_sequences=most) for most in sorted(seats)),
        *(replace(now, kv_tokens=most) for most in sorted(full)),
        *(replace(now, token_budget=budget) for budget in sorted(budgets)),
        *(
            [
                replace(
                    now, max_sequences=DEFAULT_SEQUENCES, kv_tokens=int(part * held / now.replicas)
                )
                for part in _FULL
            ]
            if seats
            else []
        ),
    ]


def _most_held(pool: Pool) -> float:
    """The most KV tokens that the calls under way would hold at once, waiting or not: a cache that fills has less room."""
    calls = pool.calls
    tokens = (calls.prompt_tokens - calls.cached_tokens + calls.output_tokens / 2.0).astype(
        np.float64
    )
    change = np.concatenate([tokens, -tokens])[
        np.argsort(np.concatenate([pool.arrived_s, pool.ended_s]), kind="stable")
    ]
    return float(np.cumsum(change).max(initial=0.0))


def _error(one: Found) -> float:
    return one.error
