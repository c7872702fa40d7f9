"""What did the spans of each request look like? Columns of the sampled spans, with parents looked up, for rules that read structure."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.numbers.window import without_copies
from overrun.analysis.words.arrays import BoolArray, FloatArray, IndexArray

# Spans of one shape of request in this share of them at least make a pattern: published 80 %.
MOST_TRACES: Final = 0.8
# A pause between one call's end and the next one's start up to this is no work of its own: published 5 ms.
GAP_MS: Final = 5.0
# Clocks and rounding: a span counts as over when it ends at most this long after the next one starts; as in `whatif.retime`.
_TOLERANCE_S: Final = 0.0005


class Tree:
    """Spans of some requests: `frame` has one row per span with `end_s`, and its parent's name, stage, start, end, role and service.

    `parent` says in which row the parent stands, -1 where it is not among the spans. Of how many requests the spans are read: one trace in `every`, and those
    of `traces` (keys) alone where these are given.
    """

    def __init__(
        self, spans: pl.DataFrame, every: int = 1, traces: pl.Series | None = None
    ) -> None:
        frame = without_copies(spans).with_columns(
            end_s=pl.col("start_s") + pl.col("duration_ms") / 1e3
        )
        self.parent = _parents(frame)
        self.every, self.traces = every, traces
        self.frame = frame.with_columns(
            self.of_parent(frame[name]).alias(f"parent_{name}")
            for name in ("name", "stage", "start_s", "end_s", "role", "service")
        )

    def __len__(self) -> int:
        return self.frame.height

    def of_parent(self, column: pl.Series) -> pl.Series:
        """Return what a column of `frame` has in the row of each span's parent, null where it has none."""
        return column.gather(pl.Series(self.parent).replace(-1, None))

    def some(self, traces: pl.Series) -> Tree:
        """Return the spans of some of the requests (keys)."""
        return self._where(self.frame["trace_key"].is_in(traces.implode()), 1, traces)

    def one_in(self, every: int) -> Tree:
        """Return the spans of one trace in so many."""
        return self._where(self.frame["trace_key"] % every == 0, every, None)

    def _where(self, kept: pl.Series, every: int, traces: pl.Series | None) -> Tree:
        if kept.all():
            kept_rows, parent = self.frame, self.parent
        else:
            # Spans of a trace are kept together, and so is each with its parent.
            mask = kept.to_numpy()
            row = np.append(np.cumsum(mask) - 1, -1)
            kept_rows, parent = self.frame.filter(kept), row[self.parent[mask]]
        found = object.__new__(Tree)
        found.frame, found.parent, found.every, found.traces = kept_rows, parent, every, traces
        return found

    @functools.cached_property
    def requests(self) -> int:
        """How many requests the spans are of."""
        return self.frame["trace_key"].n_unique()

    def seen(self, keys: pl.Series) -> BoolArray:
        """Return of which requests the spans were read, shape of `keys`."""
        seen = (
            np.ones(len(keys), np.bool_)
            if self.every == 1
            else (keys % self.every == 0).to_numpy().astype(np.bool_)
        )
        if self.traces is not None:
            seen &= keys.is_in(self.traces.implode()).to_numpy()
        return seen

    def per_request(
        self, rows: pl.DataFrame, name: str, keys: pl.Series, like: FloatArray | None = None
    ) -> FloatArray:
        """Return the sum of a column of `rows` (with `trace_key`) per request of `keys`, 0 where there is none.

        A request of which no spans were read has what the one has that is nearest to it in `like` (a figure per request of `keys`; hot-deck imputation), the
        mean of the others without it.
        """
        values, seen = sum_per_request(rows, name, keys), self.seen(keys)
        if seen.all() or not seen.any():
            return values
        if like is None:
            values[~seen] = values[seen].mean()
            return values
        order = np.argsort(like[seen], kind="stable")
        known, held = like[seen][order], values[seen][order]
        above = np.minimum(np.searchsorted(known, like[~seen]), len(known) - 1)
        below = np.maximum(above - 1, 0)
        nearer = np.abs(known[above] - like[~seen]) <= np.abs(known[below] - like[~seen])
        values[~seen] = held[np.where(nearer, above, below)]
        return values


def _parents(frame: pl.DataFrame) -> IndexArray:
    """In which row the parent of each span stands, -1 where it is not there."""
    places = frame.select("trace_key", parent_key="span_key").with_row_index("at")
    found = frame.select("trace_key", "parent_key").join(
        places, on=["trace_key", "parent_key"], how="left", maintain_order="left"
    )
    rows: IndexArray = found["at"].cast(pl.Int64).fill_null(-1).to_numpy()
    return rows


def sum_per_request(rows: pl.DataFrame, name: str, keys: pl.Series) -> FloatArray:
    """Return the sum of a column of `rows` (with `trace_key`) per request of `keys`, 0 where there is none."""
    total = rows.group_by("trace_key").agg(pl.col(name).sum().alias("total"))
    found = pl.DataFrame({"trace_key": keys}).join(
        total, on="trace_key", how="left", maintain_order="left"
    )
    # A copy that may be written to.
    values: FloatArray = found["total"].cast(pl.Float64).fill_null(0.0).to_numpy(writable=True)
    return values


def siblings(
    tree: Tree, stages: tuple[str, ...], *, inside: bool = False, mixed: bool = False
) -> pl.DataFrame:
    """Return groups of two and more siblings of one stage and operation under one parent: per group its sum, longest and span of time, in ms.

    Where something else under that parent runs from the end of one to the start of the next (an agent's next model call between its tools), they are two
    groups: what asks for the later ones is not known before.

    `mixed`: groups of one stage and service, named after all their operations where those are several (a vector store, a search index and a database).

    One row per group: trace_key, stage, operation (service and name), n, sum_ms, longest_ms, whole_ms (first start to last end), overlap_ms, and
    `waits` (a declared dependency of one on another). What lies `inside` a span of the same stage (a chain of retrievers) counts only if asked for: it may be
    how one call is made. What asks another service for work of the stage is a call of it.
    """
    frame = _with_remote(tree.frame, stages)
    chosen = frame.filter(
        pl.col("stage").is_in(stages)
        & pl.col("parent_key").is_not_null()
        & ((pl.col("parent_stage") != pl.col("stage")).fill_null(True) | inside)
    )
    family = ["trace_key", "parent_key"]
    # Most spans of a stage stand alone under their parent.
    several = chosen.group_by(family).len().filter(pl.col("len") >= 2)
    chosen, frame = (
        side.join(several, on=family, how="semi", maintain_order="left")
        for side in (
            chosen,
            frame.select(*family, "span_key", "start_s", "end_s", "stage", "duration_ms"),
        )
    )
    named = pl.col("name").str.replace(r"[ :/].*$", "")
    told = chosen.with_columns(
        kind=named, operation=pl.col("service") + ("" if mixed else "/" + named)
    )
    told = told.join(
        _rounds(frame, stages), on=["trace_key", "span_key"], how="left", maintain_order="left"
    )
    grouped = told.group_by(
        "trace_key", "parent_key", "stage", "operation", "round", maintain_order=True
    ).agg(
        n=pl.len(),
        kinds=pl.col("kind").unique().sort(),
        sum_ms=pl.col("duration_ms").sum(),
        longest_ms=pl.col("duration_ms").max(),
        whole_ms=(pl.col("end_s").max() - pl.col("start_s").min()) * 1e3,
        waits=pl.col("depends_on").is_not_null().any(),
        distinct=pl.col("arguments").drop_nulls().n_unique(),
        mean_input=pl.col("input_tokens").mean(),
    )
    if mixed:
        grouped = grouped.filter(pl.col("kinds").list.len() >= 2).with_columns(
            operation=pl.col("operation") + "/" + pl.col("kinds").list.join(", ")
        )
    return (
        grouped.filter(pl.col("n") >= 2)
        .drop("kinds", "round")
        .with_columns(overlap_ms=(pl.col("sum_ms") - pl.col("whole_ms")).clip(0.0))
    )


def _with_remote(frame: pl.DataFrame, stages: tuple[str, ...]) -> pl.DataFrame:
    """The spans, in which one that asks another service for work of these stages, which takes half of its time or more, is such work: its siblings are the
    other requests to that service. Its stage, name and service are those of the longest such span right below the service's own."""
    entries = frame.filter(
        (pl.col("parent_service") != pl.col("service")) & (pl.col("parent_stage") == "network")
    ).select(
        "trace_key",
        parent_key="span_key",
        caller_key="parent_key",
        caller_ms=(pl.col("parent_end_s") - pl.col("parent_start_s")) * 1e3,
    )
    if entries.is_empty():
        return frame
    works = frame.filter(pl.col("stage").is_in(stages)).join(
        entries, on=["trace_key", "parent_key"], how="inner", maintain_order="left"
    )
    works = works.filter(pl.col("duration_ms") >= 0.5 * pl.col("caller_ms")).sort(
        "duration_ms", descending=True, maintain_order=True
    )
    asked = works.unique(["trace_key", "caller_key"], keep="first", maintain_order=True).select(
        "trace_key",
        span_key="caller_key",
        work_stage="stage",
        work_name="name",
        work_service="service",
    )
    told = frame.join(asked, on=["trace_key", "span_key"], how="left", maintain_order="left")
    return told.with_columns(
        pl.coalesce(f"work_{name}", name).alias(name) for name in ("stage", "name", "service")
    ).select(frame.columns)


def _rounds(frame: pl.DataFrame, stages: tuple[str, ...]) -> pl.DataFrame:
    """The number of the round of its parent's children that each span of these stages belongs to: a span of another stage that begins when all before it are
    over, and is over when the next one begins, stands between two rounds. Columns trace_key, span_key, round."""
    family = ["trace_key", "parent_key"]
    ordered = frame.filter(pl.col("parent_key").is_not_null()).sort(
        *family, "start_s", "end_s", maintain_order=True
    )
    over = pl.col("end_s").cum_max().shift(1).over(family)
    ordered = ordered.with_columns(
        alone=(pl.col("start_s") >= over - _TOLERANCE_S).fill_null(value=True)
    )
    # It stands by itself where the child after it waits for it, too.
    other = ~pl.col("stage").is_in(stages).fill_null(value=False) & (pl.col("duration_ms") > GAP_MS)
    between = other & pl.col("alone") & pl.col("alone").shift(-1).over(family).fill_null(value=True)
    return ordered.with_columns(round=between.cast(pl.Int32).cum_sum().over(family)).select(
        "trace_key", "span_key", "round"
    )
