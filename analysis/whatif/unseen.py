"""Which engine would answer as these clients saw it? Replicas and seats guessed from the clients' own first tokens and ends, where no engine tells.

Whoever sends nearly all that an engine serves sees its load in his own calls: the number of equal replicas, each call on the emptiest one, whose replay gives
the recorded times back best is taken. Where an engine that never shares a step does nearly as well, the times do not follow the clients' own load (a
provider's other customers, a network), and nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from analysis.whatif.batching import LEAST_LOAD
from analysis.whatif.engine import Ints, Setup
from analysis.whatif.pool import DEFAULT_SEQUENCES, MIN_CALLS, MIN_COVERAGE, UNLIMITED_KV, Pool, made

if TYPE_CHECKING:
    from analysis.whatif.facts import Facts

# Numbers of equal replicas that are tried, and seats of each; own defaults.
REPLICAS: Final = (1, 2, 3, 4, 6, 8)
SEATS: Final = (DEFAULT_SEQUENCES, 8, 16, 32)
# Evaluations of the replay for each of them; how many, the likeliest, are fitted once more, and with how many; the part of these that a hasty search keeps.
GLANCE, LIKELY, EVALUATIONS, LEAST_EFFORT = 30, 4, 150, 0.5
# Seats that are more than this many times the calls ever seen at once never bind; own default.
MOST_SPARE: Final = 1.5
# So many replicas that a call hardly ever meets another one.
ALONE: Final = 64


def pools(facts: Facts) -> list[Pool]:
    """Return the calls of each model as their clients timed them: those with at least `MIN_CALLS` calls of which 90 % carry a first token and token counts."""
    usable = (pl.col("input_tokens") > 0) & (pl.col("output_tokens") > 0) & pl.col("ttft_ms").is_not_null() & ~pl.col("error").fill_null(False)
    calls = facts.calls.with_row_index("row").with_columns(usable=usable.fill_null(False))
    found = []
    for (model,), group in calls.group_by("model", maintain_order=True):
        timed = group.filter("usable")
        if timed.height >= max(MIN_CALLS, MIN_COVERAGE * group.height):
            ttft = timed["ttft_ms"].cast(pl.Float64).to_numpy() / 1000.0
            e2e = np.maximum(timed["e2e_ms"].cast(pl.Float64).to_numpy() / 1000.0, ttft)
            found.append(made(facts, None if model is None else str(model), timed, ttft, e2e))
    return found


def guess(pool: Pool, rows: Ints, effort: float = 1.0) -> Setup | None:
    """Return replicas and seats that replay the calls `rows` best, None where those of engines that never share a step do nearly as well."""
    from analysis.whatif.calibrate import BETTER, worth

    def setup(replicas: int, seats: int = DEFAULT_SEQUENCES) -> Setup:
        return Setup(replicas=replicas, kv_tokens=UNLIMITED_KV, max_sequences=seats, router=LEAST_LOAD, speed=(1.0,) * replicas)

    def error(one: Setup, evaluations: int = EVALUATIONS) -> float:
        return worth(pool, rows, one, round(evaluations * max(effort, LEAST_EFFORT)))

    def may_bind(seats: int) -> bool:
        return pool.most_running <= 2 * seats and seats <= MOST_SPARE * pool.most_running

    grid = [setup(k, seats) for k in REPLICAS for seats in SEATS if seats == DEFAULT_SEQUENCES or may_bind(k * seats)]
    likely = sorted(grid, key=lambda one: error(one, GLANCE))[:LIKELY]
    errors = {one: error(one) for one in likely}
    best = min(likely, key=errors.__getitem__)
    return best if errors[best] < BETTER * error(setup(ALONE)) else None
