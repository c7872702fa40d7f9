"""What if an agent took no more than so many model calls? Exact: the calls between the last one allowed and the answer, and all that lies between, go.

The answer's own call stays. Fewer steps may mean a worse answer, which is not in the figure.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse


def predict(
    facts: Facts, *, steps: Annotated[int, Meta(ge=1, le=10_000, description="the most model calls of a request, the answer's own included")]
) -> Prediction:
    """Return the answer with `cost.truncated_ratio`, the share of requests that lose steps."""
    fix = Fix("step_cap", f"Take at most {steps} model calls a request", "the answer is as good without the later steps", {"steps": steps})
    request, start, end = facts.request_of, facts.calls["start_us"].to_numpy(), facts.calls["end_us"].to_numpy()
    rows = np.flatnonzero((request >= 0) & facts.on_path)
    if not len(rows):
        return refuse(facts, fix, "exact", "no request has a model call on its path")
    rows = rows[np.lexsort((start[rows], request[rows]))]
    bounds = np.flatnonzero(np.diff(request[rows], prepend=-1))
    saved = np.zeros(len(facts))
    for a, b in zip(bounds, [*bounds[1:], len(rows)], strict=True):
        if b - a > steps:
            # What remains: the first steps - 1 calls, then the last one; with one step the answer starts where the first call did.
            resumed = end[rows[a + steps - 2]] if steps > 1 else start[rows[a]]
            saved[request[rows[a]]] = max(0.0, (start[rows[b - 1]] - resumed) / 1000.0)
    old = recorded(facts)
    # A first token before the cut steps stays where it was.
    ahead = np.where(facts.answering >= 0, saved, 0.0)
    return predict_times(
        facts,
        fix,
        Times(np.maximum(old.ttft - ahead, 0.0), np.maximum(old.e2e - saved, 0.0), old.tpot),
        method="exact",
        cost={"truncated_ratio": float((saved > 0.0).mean())},
    )
