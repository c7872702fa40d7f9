"""What do changed span trees mean for the requests? Puts the replay of their trees on their TTFT and E2E."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse
from analysis.whatif.retime import Tree, trees

Choice = tuple[Sequence[int], Sequence[Sequence[int]]]


def predict_replayed(facts: Facts, fix: Fix, choose: Callable[[pl.DataFrame, Tree], Choice], *, why_none: str, cost_name: str) -> Prediction:
    """Return the answer where `choose` names, per trace, the spans that go and the groups that run side by side.

    `cost_name` counts the share of requests with such spans; without any the answer is a refusal with `why_none`.
    """
    place = {trace: at for at, trace in enumerate(facts.requests["trace_id"].to_list())}
    answering = facts.answering
    span_of = facts.calls["span_id"].to_list()
    old = recorded(facts)
    ttft, e2e, hit = old.ttft.copy(), old.e2e.copy(), np.zeros(len(facts), np.bool_)
    for trace, rows, tree in trees(facts.spans):
        at = place.get(trace)
        if at is None:
            continue
        gone, together = choose(rows, tree)
        if not gone and not together:
            continue
        start, end = tree.replay(gone, together)
        hit[at] = True
        e2e[at] = max(0.0, old.e2e[at] + (end[tree.root] - start[tree.root]) - (tree.end[tree.root] - tree.start[tree.root]))
        ids = rows["span_id"].to_list()
        call = span_of[answering[at]] if answering[at] >= 0 else None
        if call in ids:
            moved = ids.index(call)
            ttft[at] = max(0.0, old.ttft[at] + start[moved] - tree.start[moved])
    if not hit.any():
        return refuse(facts, fix, "exact", why_none)
    return predict_times(facts, fix, Times(ttft, e2e, old.tpot), method="exact", cost={cost_name: float(hit.mean())})
