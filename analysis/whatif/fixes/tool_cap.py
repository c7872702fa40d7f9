"""What if a request made no more than so many tool calls? Exact replay of each span tree without the later ones.

The model calls between them stay; `step_cap` takes those away too.
"""

from __future__ import annotations

from typing import Annotated, Final

import polars as pl
from msgspec import Meta

from overrun.analysis.numbers.stages.span_replay import Tree
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction
from overrun.analysis.whatif.tree_replay import predict_replayed

NEEDS_SPANS: Final = True


def predict(
    facts: Facts,
    *,
    calls: Annotated[int, Meta(ge=0, le=10_000, description="most tool calls per request")],
) -> Prediction:
    """Return the answer with `cost.truncated_ratio`, the share of requests that lose tool calls."""
    fix = Fix(
        "tool_cap",
        f"Make at most {calls} tool calls per request",
        "the answer is equally good without the later calls",
        {"calls": calls},
    )

    def choose(rows: pl.DataFrame, tree: Tree) -> tuple[list[int], list[list[int]]]:
        tools = [at for at, stage in enumerate(rows["stage"].to_list()) if stage == "tool"]
        outer = [at for at in tools if tree.parent[at] not in tools]
        return sorted(outer, key=lambda at: tree.start[at])[calls:], []

    return predict_replayed(
        facts,
        fix,
        choose,
        why_none=f"no request makes more than {calls} tool calls",
        cost_name="truncated_ratio",
    )
