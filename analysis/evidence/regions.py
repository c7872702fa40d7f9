"""Which regions do calls cross? From the regions that both sides of a call record."""

from __future__ import annotations

import polars as pl

from overrun.analysis.evidence.span_tree import Tree


def moved_region(now: Tree, before: Tree) -> tuple[str, str] | None:
    """Return the former and today's region of most model calls where their own spans tell it and it is another; None where it is the same or untold."""
    told = [
        tree.frame.filter((pl.col("role") == "llm") & pl.col("region").is_not_null())["region"]
        .mode()
        .sort()
        for tree in (before, now)
    ]
    if not all(map(len, told)) or told[0][0] == told[1][0]:
        return None
    return str(told[0][0]), str(told[1][0])


def both_recorded(tree: Tree) -> bool:
    """Return whether regions of two sides are known for most requests, so that a crossing would show."""
    told = tree.frame.filter(pl.col("region").is_not_null() | pl.col("peer_region").is_not_null())
    sides = told.group_by("trace_key").agg(
        n=pl.col("region").count() + pl.col("peer_region").count()
    )
    return sides.filter(pl.col("n") >= 2).height > 0.5 * max(tree.requests, 1)


def crossed(tree: Tree) -> tuple[str, str] | None:
    """Return the pair of regions that most calls cross: by the peer's attribute, else by the region of parent and child; None where they do not differ."""
    frame = tree.frame
    if frame["region"].null_count() == frame.height == frame["peer_region"].null_count():
        return None
    both = frame.with_columns(parent_region=tree.of_parent(frame["region"])).with_columns(
        here=pl.when(pl.col("peer_region").is_not_null())
        .then(pl.col("region"))
        .otherwise(pl.col("parent_region")),
        there=pl.coalesce("peer_region", "region"),
    )
    crossing = both.filter(
        pl.col("here").is_not_null()
        & pl.col("there").is_not_null()
        & (pl.col("here") != pl.col("there"))
    )
    if crossing.height < 0.2 * max(tree.requests, 1):
        return None
    top = (
        crossing.group_by("here", "there")
        .len()
        .sort("len", "here", "there", descending=[True, False, False])
    )
    return str(top["here"][0]), str(top["there"][0])
