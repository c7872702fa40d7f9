"""What if calls made one after the other ran in parallel? Exact replay of each span tree, if the calls do not depend on each other.

Candidates are siblings of one stage, or requests to another service for work of that stage, that follow each other within 5 ms. A span that names its
dependency (`overrun.depends_on`), an embedding and a rerank are never moved: embedding, retrieval and prompt of one turn each need the one before. If
engines report their times, calls that arrive earlier run in other batches: the effect on the percentile is simulated.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import polars as pl
from msgspec import Meta

from overrun.analysis.numbers.stages.span_replay import Tree
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction
from overrun.analysis.whatif.tree_replay import predict_replayed, torn

NEEDS_SPANS: Final = True
# A gap that is only the application turning to the next call; published signature.
GAP_MS: Final = 5.0
_DEPENDENT: Final = re.compile(r"embed|re-?rank", re.IGNORECASE)


def predict(
    facts: Facts,
    *,
    stage: Annotated[
        Literal["retrieval", "tool", "guardrail"],
        Meta(description="the stage of the calls: retrieval, tool or guardrail"),
    ],
) -> Prediction:
    """Return the answer with `cost.requests_fanned_out_ratio`; more calls at once need more connections."""
    fix = Fix(
        "fan_out",
        f"Run the {stage} calls of a request in parallel",
        "they are independent of each other and their service can take the parallel calls",
        {"stage": stage},
    )

    def choose(rows: pl.DataFrame, tree: Tree) -> tuple[list[int], list[list[int]]]:
        names, attributes = rows["name"].to_list(), rows["attributes"].to_list()
        works = _works(stage, tree, rows["stage"].to_list(), rows["service"].to_list())
        groups: list[list[int]] = []
        for children in tree.children:
            group: list[int] = []
            for at in children:
                work = works.get(at, -1)
                free = work >= 0 and not any(
                    _DEPENDENT.search(names[one] or "")
                    or "overrun.depends_on" in _keys(attributes[one])
                    for one in (at, work)
                )
                if (
                    group
                    and free
                    and 0.0 <= tree.start[at] - tree.end[group[-1]] + 0.5 < GAP_MS + 0.5
                ):
                    group.append(at)
                    continue
                groups.append(group)
                group = [at] if free else []
            groups.append(group)
        return [], [group for group in groups if len(group) > 1]

    return predict_replayed(
        facts,
        fix,
        choose,
        why_none=f"no two {stage} calls of a request follow each other within {GAP_MS:g} ms",
        cost_name="requests_fanned_out_ratio",
        torn=torn(facts, stage),
    )


def _works(
    stage: str, tree: Tree, stages: list[str | None], services: list[str | None]
) -> dict[int, int]:
    """The spans that are calls of the stage, with the span that does the work: their own, or the one right below another service's, which they ask for it."""
    found = {at: at for at, said in enumerate(stages) if said == stage}
    for at, said in enumerate(stages):
        entries = (
            [child for child in tree.children[at] if services[child] != services[at]]
            if said == "network"
            else []
        )
        inner = next(
            (one for entry in entries for one in tree.children[entry] if stages[one] == stage), None
        )
        if inner is not None:
            found[at] = inner
    return found


def _keys(attributes: object) -> set[str]:
    """Names of a span's attributes, however the map comes out of the store."""
    if isinstance(attributes, dict):
        return set(attributes)
    if isinstance(attributes, list):
        return {str(entry.get("key")) for entry in attributes if isinstance(entry, dict)}
    return set()
