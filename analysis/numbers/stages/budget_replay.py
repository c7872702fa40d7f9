"""How long would requests take with a group of stages held to its budget? Their span trees replayed, so that another branch may take over the path.

Taking the time over the budget out of a request's total is right where its stages follow each other. Where branches run side by side, what is shortened
stops mattering once the other branch ends later: the replay finds that, and never gains more than the subtraction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import quantile
from overrun.analysis.numbers.stages.budget import GROUPS, Budgets, StageTimes, group_time
from overrun.analysis.numbers.stages.span_replay import TOLERANCE_MS, Tree
from overrun.analysis.numbers.window import query
from overrun.collector.store.answers import fetch_frame

# Requests whose trees are replayed: 2,000 leave 100 above P95, and take about a second. Own default.
MOST_REPLAYED: Final = 2_000


def lost_ms(
    con: duckdb.DuckDBPyConnection,
    rows: pl.DataFrame,
    times: StageTimes,
    budgets: Budgets,
    percentile: float,
    start: datetime,
    end: datetime,
) -> tuple[int, dict[str, float]]:
    """Return (n, group -> ms): how much less holding each group alone takes off the percentile (0..100) of the total than its time over the budget would.

    `times` are the stage times of `rows` (with `trace_key`) on their path, shape (rows,): of the whole requests, or up to the first token. Looked at are
    the n requests among every k-th trace whose spans are there.
    """
    every = max(1, math.ceil(rows.height / MOST_REPLAYED))
    chosen = np.flatnonzero((rows["trace_key"] % every == 0).to_numpy())
    spans = fetch_frame(con, query("path_spans"), {"start": start, "end": end, "every": every})
    of_trace = {key[0]: part for key, part in spans.partition_by("trace_key", as_dict=True).items()}
    chosen = chosen[[key in of_trace for key in rows["trace_key"].gather(chosen).to_list()]]
    keys, some = rows["trace_key"].gather(chosen).to_list(), times.take(chosen)
    out = {}
    for group in budgets.group_ms:
        spent, limit_ms = (
            group_time(some, group),
            np.broadcast_to(np.asarray(budgets.limit_ms(group, some)), len(chosen)),
        )
        after, taken = some.total_ms.copy(), some.total_ms - np.maximum(spent - limit_ms, 0.0)
        for at in np.flatnonzero(spent > limit_ms):
            spans = of_trace[keys[at]]
            path = (
                spans if times.path == "e2e" else until_first_token(spans, float(some.total_ms[at]))
            )
            after[at] -= saved_ms(
                path, group, float(limit_ms[at] / spent[at]), float(spent[at] - limit_ms[at])
            )
        if bool((spent > 0.0).any()):
            out[group] = quantile(after, percentile / 100.0) - quantile(taken, percentile / 100.0)
    return len(chosen), out


def until_first_token(spans: pl.DataFrame, ttft_ms: float) -> pl.DataFrame:
    """Return the spans that a request's first token waited for, as if it ended with it; no span where no model call is running at that moment.

    `spans` as in `saved_ms`. What still runs then holds nothing up, but for the call that gave the token, all that it is part of, and its engine.
    """
    began = (spans["start_us"] - int(spans["start_us"].min() or 0)).to_numpy() / 1000.0  # type: ignore[arg-type]
    ended = began + spans["duration_ms"].to_numpy()
    roles, ids, parents = (spans[name].to_list() for name in ("role", "span_id", "parent_span_id"))
    running = [
        at
        for at in range(len(ids))
        if began[at] <= ttft_ms + TOLERANCE_MS and ended[at] >= ttft_ms - TOLERANCE_MS
    ]
    calls = [at for at in running if roles[at] in ("llm", "engine")]
    if not calls:
        return spans.clear()
    # The call whose own first token came then; of calls that do not tell, the one that began last.
    away = np.abs(
        began + spans["ttft_ms"].cast(pl.Float64).fill_null(math.inf).to_numpy() - ttft_ms
    )
    place, last = (
        {span: at for at, span in enumerate(ids)},
        min(calls, key=lambda at: (float(away[at]), -began[at])),
    )
    of = {last, *(at for at in calls if parents[at] == ids[last])}
    while parents[last] in place and place[parents[last]] not in of:
        last = place[parents[last]]
        of.add(last)
    kept = [at for at in range(len(ids)) if at in of or ended[at] <= ttft_ms]
    cut = np.minimum(ended, ttft_ms) - began
    return spans.with_columns(duration_ms=pl.Series(cut))[kept]


def saved_ms(spans: pl.DataFrame, group: str, factor: float, most_ms: float) -> float:
    """Return by how much a request ends earlier with the own time of a group's spans scaled by `factor` (0..1); at most `most_ms`, the time taken out.

    `spans` are one trace's rows of sql/path_spans.sql.
    """
    tree = Tree(
        spans["span_id"].to_list(),
        spans["parent_span_id"].to_list(),
        spans["start_us"].to_list(),
        spans["duration_ms"].to_list(),
    )
    if not tree.depth_fits():
        return 0.0
    _, end = tree.replay(scaled=_scaled(tree, spans, group, factor))
    return min(most_ms, max(0.0, tree.end[tree.root] - end[tree.root]))


def _scaled(tree: Tree, spans: pl.DataFrame, group: str, factor: float) -> Mapping[int, float]:
    """The rows whose own time belongs to the group. A model call's own time around its engine's is the way there and back."""
    roles = spans["role"].to_list()
    stages = [
        "network"
        if role == "llm" and any(roles[child] == "engine" for child in tree.children[at])
        else stage
        for at, (stage, role) in enumerate(zip(spans["stage"].to_list(), roles, strict=True))
    ]
    return {at: factor for at, stage in enumerate(stages) if stage in GROUPS[group]}
