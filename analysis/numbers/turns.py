"""Which spans are of which turn of a session? Spans have the key of their trace; a turn and its calls have one of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from overrun.analysis.assembly.nesting import tops
from overrun.analysis.words.arrays import IntArray


@dataclass(frozen=True, slots=True)
class Turns:
    """Turns, a row each: keys of the trace and of the span at the top (`of_trace`, `span_key`), and of the turn (`trace_key`), and `begin_s`."""

    frame: pl.DataFrame

    def traces(self, keys: pl.Series) -> pl.Series:
        """The keys of requests with those of the traces that turns among them are in."""
        mine = self.frame.filter(pl.col("trace_key").is_in(keys.implode()))
        return pl.concat([keys, mine["of_trace"].cast(keys.dtype)])

    def parted(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Return spans (columns trace_key, span_key, parent_key, root, start_s) with the key of the turn that each is in, the span at its top as a root."""
        if self.frame.is_empty() or spans.is_empty():
            return spans
        held = spans["trace_key"].is_in(self.frame["of_trace"].implode())
        own = self.frame.rename({"trace_key": "turn", "of_trace": "trace_key"})
        mine = spans.filter(held).join(
            own, on=["trace_key", "span_key"], how="left", maintain_order="left"
        )
        top = mine["turn"].is_not_null()
        parent = _parents(mine)
        parent[top.to_numpy()] = -1
        mine = mine.with_columns(
            turn=mine["turn"].gather(tops(parent)),
            parent_key=pl.when(top).then(None).otherwise("parent_key"),
            root=pl.col("root") | top,
        )
        parted = _with_waits(mine, mine.filter(top))
        parted = parted.with_columns(trace_key=pl.coalesce("turn", "trace_key"))
        return pl.concat([spans.filter(~held), parted.select(spans.columns)]).sort(
            "trace_key", "start_s", "span_key"
        )


def _parents(spans: pl.DataFrame) -> IntArray:
    """The row of each span's parent, -1 for none."""
    keys = ["trace_key", "parent_key"]
    rows = spans.select("trace_key", parent_key="span_key").with_row_index("above")
    found = spans.select(keys).join(rows, on=keys, how="left", maintain_order="left")
    return found["above"].cast(pl.Int64).fill_null(-1).to_numpy().copy()


def _with_waits(spans: pl.DataFrame, tops_: pl.DataFrame) -> pl.DataFrame:
    """Return spans of which those that are in no turn, and begin after a turn has begun and before the span at its top, are of that turn: that span lasts from
    when the turn began."""
    begun = (
        tops_.filter(pl.col("begin_s") < pl.col("start_s"))
        .select("trace_key", "begin_s", until="start_s", next="turn", top="span_key")
        .sort("begin_s")
    )
    begins = pl.coalesce("begin_s", "start_s")
    spans = spans.with_columns(
        start_s=begins, duration_ms=pl.col("duration_ms") + 1e3 * (pl.col("start_s") - begins)
    )
    found = (
        spans.with_row_index("row")
        .sort("start_s")
        .join_asof(
            begun.rename({"begin_s": "begun_s"}),
            left_on="start_s",
            right_on="begun_s",
            by="trace_key",
            check_sortedness=False,
        )
        .sort("row")
    )
    waits = found["turn"].is_null() & (found["start_s"] < found["until"]).fill_null(False)
    above = np.append(waits.to_numpy(), False)[_parents(spans)]
    return found.with_columns(
        turn=pl.when(waits).then("next").otherwise("turn"),
        parent_key=pl.when(waits & ~pl.Series(above)).then("top").otherwise("parent_key"),
    )
