"""Where does a router send a call, and which of those that wait does an engine serve first? Policies, as what the simulator runs.

A router knows what it sees when a call comes: how many calls are where, their prompts, and how many output tokens are expected of them. `least_load` counts
calls, `by_input` their input tokens, `by_predicted_length` predicted output, `least_work` both in seconds of a step, `lanes` keeps long answers on replicas of
their own. `shortest_first` leaves each call where it goes and admits the shortest that waits; the aged form takes a part of the wait off its length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, get_args

import numpy as np

from overrun.analysis.simulator.batching import LEAST_LOAD, ROUND_ROBIN
from overrun.analysis.simulator.engine import Calls, Costs, Setup
from overrun.analysis.words.arrays import BoolArray, FloatArray

Policy = Literal[
    "round_robin",
    "least_load",
    "by_input",
    "by_predicted_length",
    "least_work",
    "lanes",
    "shortest_first",
    "aged_shortest_first",
]
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
# Those that change the order of service at a replica and not the replica.
ORDERS: Final = ("shortest_first", "aged_shortest_first")
# A second of waiting takes so many seconds off the expected work: without it a long call can wait for ever; own default.
AGING: Final = 0.3
# Times its share of the tokens that a lane may have: own default, the load over capacity that a quarter of spare room bears.
MOST_OVER: Final = 1.25
# Next longer length over a length from which the two are of different kinds; own default.
APART: Final = 2.0


def placed(
    policy: Policy,
    calls: Calls,
    setup: Setup,
    costs: Costs,
    expected: FloatArray,
    arrived_s: FloatArray,
    running: int,
) -> tuple[Calls, Setup]:
    """Return the calls and the setup under a policy; arrays of shape (n,).

    `expected` are the output tokens that the router expects, `arrived_s` is when each call comes, `running` how many calls share a step of a busy replica.
    """
    fresh = (calls.prompt_tokens - calls.cached_tokens).astype(np.float64)
    if policy in ORDERS:
        alone = fresh * costs.prefill_token + expected * (costs.step + costs.sequence)
        # A wait that takes AGING off the work per second is the same as an arrival that adds it, so that calls never change places.
        rank = alone + (AGING * arrived_s if policy == "aged_shortest_first" else 0.0)
        return replace(calls, rank=rank), setup
    if policy == "by_input":
        calls = replace(calls, weight=fresh)
    elif policy == "by_predicted_length":
        calls = replace(calls, weight=expected)
    elif policy == "least_work":
        # A prompt token costs its compute, an output token its part of a step.
        share = costs.sequence + costs.step / max(1.0, running)
        calls = replace(calls, weight=fresh * costs.prefill_token + expected * share)
    elif policy == "lanes" and setup.replicas > 1:
        calls = _lanes(calls, expected, setup.replicas)
    router = ROUND_ROBIN if policy == "round_robin" else LEAST_LOAD
    return calls, replace(setup, router=router)


def _lanes(calls: Calls, length: FloatArray, replicas: int) -> Calls:
    """Replicas are split in proportion to the predicted tokens of short and long calls (see `longest_short`)."""
    short = length <= longest_short(length, replicas)
    split = _replicas_for(_part(length, short), replicas)
    low, high = np.where(short, 0, split), np.where(short, split, replicas)
    return replace(calls, pool_from=low.astype(np.int64), pool_to=high.astype(np.int64))


def longest_short(length: FloatArray, replicas: int) -> float:
    """Return up to which predicted length (tokens) calls are short: below the widest gap (`APART`) that leaves neither lane more than `MOST_OVER` times its
    share of the tokens; where there is none, so that half of the tokens are theirs."""
    ordered = np.sort(length)
    tokens = np.cumsum(ordered)
    below = np.flatnonzero(ordered[1:] >= APART * ordered[:-1])
    for k in below[
        np.argsort(-ordered[below + 1] / np.maximum(ordered[below], 1.0), kind="stable")
    ]:
        if _over(float(tokens[k] / max(1.0, tokens[-1])), replicas) <= MOST_OVER:
            return float(ordered[k])
    return float(ordered[min(int(np.searchsorted(tokens, 0.5 * tokens[-1])), len(ordered) - 1)])


def _part(length: FloatArray, short: BoolArray) -> float:
    """The part (0..1) of the predicted tokens that short calls have."""
    return float(length[short].sum() / max(1.0, length.sum()))


def _replicas_for(part: float, replicas: int) -> int:
    """How many replicas short calls get for their part of the tokens."""
    return min(replicas - 1, max(1, round(replicas * part)))


def _over(part: float, replicas: int) -> float:
    """How many times its share of the predicted tokens the fuller lane has, where short calls have this part of them."""
    split = _replicas_for(part, replicas)
    return max(part * replicas / split, (1.0 - part) * replicas / (replicas - split))


def fullest(length: FloatArray, replicas: int) -> float:
    """How many times its share of the predicted tokens the fuller lane has."""
    return _over(_part(length, length <= longest_short(length, replicas)), replicas)
