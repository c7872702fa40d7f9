"""How many steps does an agent take in a request, and how many do others of its route? From calls of models and tools, without checks and repeats."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.timestamps import to_us

MIN_EQUAL: Final = 3


def steps_of(rows: pl.DataFrame, again: pl.DataFrame | None) -> FloatArray:
    """Return the model and tool calls per request, repeats of a model call not counted."""
    steps = (rows["llm_calls"].fill_null(0) + rows["tool_calls"].fill_null(0)).cast(pl.Float64)
    if again is not None:
        steps = steps - rows.select("trace_key").join(
            again, on="trace_key", how="left", maintain_order="left"
        )["again"].fill_null(0)
    values: FloatArray = steps.to_numpy()
    return values


def checks_of(tree: Tree, rows: pl.DataFrame) -> FloatArray:
    """Return the model calls per request that check a prompt or an answer (in a guardrail): no step that an agent takes."""
    return tree.per_request(_checked(tree).with_columns(one=pl.lit(1)), "one", rows["trace_key"])


def _checked(tree: Tree) -> pl.DataFrame:
    return tree.frame.filter(
        (pl.col("role") == "llm")
        & ((pl.col("stage") == "guardrail") | (pl.col("parent_stage") == "guardrail"))
    )


def of_its_route(
    case: Case, again: pl.DataFrame | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean, P95 and median of the steps that other requests of each slow request's route take; of the reference where a route has few others.

    The requests compared with are of another route than the slow ones more often than not: an agent takes more steps than a search at any time. With a
    baseline the others are those before the onset, or those of the reference.
    Where a tool is called again with equal arguments many of the route may loop, not the slow ones alone: then twice its median is beyond the usual.
    """
    repeats = case.baseline is None and equal_calls(case) >= MIN_EQUAL
    usual = steps_of(case.reference, again) - checks_of(case.usual_tree, case.reference)
    ordinary, caps, median = (
        np.full(len(case.slow), value)
        for value in (usual.mean(), np.percentile(usual, 95.0), np.median(usual))
    )
    rest = case.rows[np.setdiff1d(np.arange(case.rows.height), case.tail.tail_index)]
    if case.baseline is not None:
        earlier = rest.filter(pl.col("start_us") < to_us(case.period.start))
        rest = earlier if earlier.height else case.reference
    routes, others = (
        case.slow["route"].fill_null(""),
        rest.with_columns(pl.col("route").fill_null("")),
    )
    tree = case.tree if case.baseline is None else case.tree_before
    if (
        tree is not None and _checked(tree).height
    ):  # checks are distinguished from steps by spans, which are read of so many requests only
        others = others.filter(
            pl.col("trace_key").is_in(tree.frame["trace_key"].unique().implode())
        )
    steps = steps_of(others, again) - (checks_of(tree, others) if tree is not None else 0.0)
    for route in routes.unique().to_list():
        theirs = steps[(others["route"] == route).to_numpy()]
        if len(theirs) >= MIN_CALLS:
            mine = (routes == route).to_numpy()
            usually, most = (
                (np.median(theirs), 2.0 * np.median(theirs))
                if repeats
                else (theirs.mean(), np.percentile(theirs, 95.0))
            )
            ordinary[mine], caps[mine], median[mine] = (
                usually,
                min(most, float(np.percentile(theirs, 95.0))),
                np.median(theirs),
            )
    return ordinary, caps, median


def equal_calls(case: Case) -> int:
    """Return the largest number of tool calls with equal tool and arguments in one slow request; 0 where neither is recorded."""
    calls = case.slow_tree.frame.filter(
        (pl.col("stage") == "tool") & pl.col("arguments").is_not_null()
    )
    if calls.is_empty():
        return 0
    counted = (
        calls.with_columns(what=pl.coalesce("tool", "name"))
        .group_by("trace_key", "what", "arguments")
        .len()["len"]
        .to_numpy()
    )
    return int(counted.max())


def most_called(case: Case) -> str | None:
    """Return the tool that slow requests call most."""
    names = (
        case.slow_tree.frame.filter(pl.col("stage") == "tool")
        .select(pl.coalesce("tool", "name").alias("tool"))["tool"]
        .value_counts(sort=True)
    )
    return str(names["tool"][0])[:60] if names.height else None
