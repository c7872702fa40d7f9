"""What if an agent made at most so many model calls? The calls between the last allowed one and the answer are removed, with everything between them.

It is simulated, because the engine is freed of these calls. The answer's own call stays, with the prompt of the first removed call. The bound leaves the
load unchanged. Fewer steps may mean a worse answer, which is not in the figure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated, without
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.words.arrays import IntArray


class Cut(NamedTuple):
    """One request's calls as rows of `facts.calls`: those left out, the answer behind them, the last one before them (-1: none), and the time when that
    one ended or the first one left out began, in microseconds."""

    left_out: IntArray
    answer: int
    kept: int
    resumed_us: int


def predict(
    facts: Facts,
    *,
    steps: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="most model calls per request, including the one that answers",
        ),
    ],
) -> Prediction:
    """Return the answer with `cost.truncated_ratio`, the share of requests that lose steps."""
    fix = Fix(
        "step_cap",
        f"Make at most {steps} model calls per request",
        "the answer is equally good without the later steps",
        {"steps": steps},
    )
    if not ((facts.request_of >= 0) & facts.on_path).any():
        return refuse(facts, fix, "exact", "no request has a model call on its path")
    found = cuts(facts, steps)
    cost = {"truncated_ratio": len(found) / max(len(facts), 1)}
    start = facts.calls["start_us"].to_numpy()

    def change(engine: Engine) -> Change:
        pool = engine.pool
        place = np.full(facts.calls.height, -1, dtype=np.int64)
        place[pool.rows] = np.arange(len(pool))
        removed, spent = np.zeros(len(pool), np.bool_), pool.e2e_s.copy()
        prompt, cached = pool.calls.prompt_tokens.copy(), pool.calls.cached_tokens.copy()
        after, arrival = pool.calls.after.copy(), pool.calls.arrival_s.copy()
        for cut in found:
            answer, kept, first = (
                place[cut.answer],
                place[cut.kept] if cut.kept >= 0 else -1,
                place[cut.left_out[0]],
            )
            gone = place[cut.left_out][place[cut.left_out] >= 0]
            removed[gone], spent[gone] = True, 0.0
            # The time of what goes is taken off the answer, or off the last call before it where the answer's own engine times are not known.
            if max(answer, kept) >= 0:
                spent[answer if answer >= 0 else kept] += (start[cut.answer] - cut.resumed_us) / 1e6
            if answer >= 0 and first >= 0:
                prompt[answer], cached[answer] = prompt[first], cached[first]
            if answer >= 0 and kept >= 0:
                after[answer], arrival[answer] = kept, 0.0
        calls = replace(
            pool.calls, prompt_tokens=prompt, cached_tokens=cached, after=after, arrival_s=arrival
        )
        return Change(without(calls, removed), engine.setup, removed=removed, spent_s=spent)

    def bound() -> Prediction:
        saved = np.zeros(len(facts))
        for cut in found:
            saved[facts.request_of[cut.answer]] = max(
                0.0, (start[cut.answer] - cut.resumed_us) / 1000.0
            )
        old = recorded(facts)
        # A first token before the cut steps stays where it was.
        ahead = np.where(facts.answering >= 0, saved, 0.0)
        after = Times(np.maximum(old.ttft - ahead, 0.0), np.maximum(old.e2e - saved, 0.0), old.tpot)
        return predict_times(facts, fix, after, method="exact")

    return predict_simulated(facts, fix, change, bound=bound, cost=cost)


def cuts(facts: Facts, steps: int) -> list[Cut]:
    """Return what each request with more than `steps` calls on its path loses: all but the first steps - 1 and the last."""
    start, end, request = (
        facts.calls["start_us"].to_numpy(),
        facts.calls["end_us"].to_numpy(),
        facts.request_of,
    )
    rows = np.flatnonzero((request >= 0) & facts.on_path)
    rows = rows[np.lexsort((start[rows], request[rows]))]
    found = []
    for mine in np.split(rows, np.flatnonzero(np.diff(request[rows])) + 1):
        if len(mine) > steps:
            # With one step the answer starts where the first call did.
            kept = int(mine[steps - 2]) if steps > 1 else -1
            found.append(
                Cut(
                    mine[steps - 1 : -1],
                    int(mine[-1]),
                    kept,
                    int(end[kept] if kept >= 0 else start[mine[0]]),
                )
            )
    return found
