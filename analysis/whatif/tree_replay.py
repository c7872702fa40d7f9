"""What do changed span trees mean for the requests? Puts the replay of their trees on their TTFT and E2E."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.stages.span_replay import Tree, trees
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.whatif.shifted_calls import batches
from overrun.analysis.words.arrays import BoolArray

Choice = tuple[Sequence[int], Sequence[Sequence[int]]]


# Part of a route's requests with equally many spans of a stage from which one with fewer is taken to have lost some; own default.
_USUAL: Final = 0.8


def predict_replayed(
    facts: Facts,
    fix: Fix,
    choose: Callable[[pl.DataFrame, Tree], Choice],
    *,
    why_none: str,
    cost_name: str,
    torn: BoolArray | None = None,
) -> Prediction:
    """Return the answer where `choose` names, per trace, the spans that go and the groups that run side by side.

    `cost_name` counts the share of requests with such spans; without any the answer is a refusal with `why_none`. Requests that are `torn` are left out of the
    figures after.
    """
    place = {trace: at for at, trace in enumerate(facts.requests["trace_id"].to_list())}
    answering = facts.answering
    span_of = facts.calls["span_id"].to_list()
    old = recorded(facts)
    ttft, e2e, hit = old.ttft.copy(), old.e2e.copy(), np.zeros(len(facts), np.bool_)
    row_of, sooner = (
        {span: row for row, span in enumerate(span_of) if facts.request_of[row] >= 0},
        np.zeros(len(span_of)),
    )
    for trace, rows, tree in trees(facts.spans):
        at = place.get(trace)
        if at is None:
            continue
        gone, together = choose(rows, tree)
        if not gone and not together:
            continue
        start, end = tree.replay(gone, together)
        hit[at] = True
        e2e[at] = max(
            0.0,
            old.e2e[at]
            + (end[tree.root] - start[tree.root])
            - (tree.end[tree.root] - tree.start[tree.root]),
        )
        ids = rows["span_id"].to_list()
        for moved, span in enumerate(ids):
            if span in row_of and facts.request_of[row_of[span]] == at:
                sooner[row_of[span]] = tree.start[moved] - start[moved]
        call = span_of[answering[at]] if answering[at] >= 0 else None
        if call in ids:
            moved = ids.index(call)
            ttft[at] = max(0.0, old.ttft[at] + start[moved] - tree.start[moved])
    if not hit.any():
        return refuse(facts, fix, "exact", why_none)
    reasons = {}
    if torn is not None and torn.any():
        ttft[torn] = e2e[torn] = np.nan
        reasons["unseen"] = (
            f"{int(torn.sum())} of {len(facts)} requests lack a span that all others of their route have. The figures after the fix leave them out"
        )
    after = Times(ttft, e2e, old.tpot)
    return predict_times(
        facts,
        fix,
        after,
        method="exact",
        cost={cost_name: float(hit.mean())},
        reasons=reasons,
        batches=batches(facts, after, sooner),
    )


def torn(facts: Facts, stage: str) -> BoolArray:
    """Return which requests have fewer spans of a stage than nearly all of their route: some of theirs were lost, and what is left tells too little."""
    counts = facts.spans.filter(pl.col("stage") == stage).group_by("trace_id").agg(spans=pl.len())
    each = (
        facts.requests.select("trace_id", "route")
        .join(counts, on="trace_id", how="left", maintain_order="left")
        .with_columns(pl.col("spans").fill_null(0))
    )
    usual = pl.col("spans").mode().max().over("route")
    same = (pl.col("spans") == usual).mean().over("route")
    out: BoolArray = (
        each.select((pl.col("spans") < usual) & (same >= _USUAL))
        .to_series()
        .fill_null(False)
        .to_numpy()
    )
    return out
