"""Which model calls are side tasks (checks, routing, classification), what do they take, and which models are new among them?"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import polars as pl

from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import BoolArray

_SIDE: Final = r"(?i)(?:^|[^a-z])(?:guard(?:rail)?|moderat\w*|classif\w*|rout(?:er|ing)|intent|safety|pii|toxicity|jailbreak)(?:$|[^a-z])"

MOST_TOKENS: Final = 20

# What a check inside a guardrail writes at most: a verdict as JSON, with its reason; own default.
MOST_OF_CHECK: Final = 100

# Spans that may wrap a model call inside a guardrail (a framework's step, the AI SDK's `ai.generateText`); own default.
MOST_WRAPPERS: Final = 3

# Part of the former requests from which a model was asked for a side task before; own default.
MOSTLY: Final = 0.5

# Times as many of the requests as before from which a model is asked for it now; own default.
MORE_ASK: Final = 2.0


def of_all_before(
    case: Case, gone: Collection[str], model: str, of_slowest: tuple[float, str, str, float] | None
) -> tuple[float, str, str, float] | None:
    """Return what side calls took before: of the slowest former requests (as given), or of all of them where those are the first victims of what came.

    So it is where few of all former requests asked that model and most do now: whom a guard asks only now and then asked it before as well.
    """
    if case.tree_before is None:
        return of_slowest
    then, now = (asked_ratio(tree, gone, model) for tree in (case.tree_before, case.tree))
    return (
        side_ms(case.tree_before, case.reference, gone)
        if then < MOSTLY <= now and now >= MORE_ASK * then
        else of_slowest
    )


def new_models(now: Tree, before: Tree) -> list[str]:
    """Return the models that slow requests ask and usual ones do not, but for the one that writes most: that is the main one."""
    told = [
        tree.frame.filter((pl.col("role") == "llm") & pl.col("model").is_not_null())
        for tree in (now, before)
    ]
    written = (
        told[0]
        .group_by("model")
        .agg(pl.col("output_tokens").sum())
        .sort("output_tokens", "model", descending=[True, False])["model"]
        .to_list()
    )
    former = set(told[1]["model"].to_list())
    return [model for model in written[1:] if model not in former]


def models_gone(now: Tree, before: Tree) -> list[str]:
    """Return the models that usual requests ask for short answers alone and slow ones ask no more: what they did is done by another."""
    told = [
        tree.frame.filter((pl.col("role") == "llm") & pl.col("model").is_not_null())
        for tree in (now, before)
    ]
    longest = (
        told[1]
        .group_by("model")
        .agg(pl.col("output_tokens").max())
        .filter(pl.col("output_tokens") <= MOST_TOKENS)
    )
    return sorted(set(longest["model"].to_list()) - set(told[0]["model"].to_list()))


def side_calls(tree: Tree, new: Collection[str], *, moved: bool = False) -> pl.DataFrame:
    """Return model calls with a short output inside a guardrail, named after a side task (themselves or their parent), or to a `new` model.

    Where such a task has `moved` to a model that writes answers as well, every short one is taken for it.
    """
    frame = tree.frame
    name = (
        pl.col("name").fill_null("")
        + " "
        + pl.col("parent_name").fill_null("")
        + " "
        + pl.col("model").fill_null("")
    )
    written = pl.col("output_tokens").fill_null(0)
    check = pl.Series(_guarded(frame)) & (written <= MOST_OF_CHECK)
    fresh = (pl.col("model").is_in(list(new)) | moved) & pl.col("output_tokens").is_not_null()
    side = check | ((written <= MOST_TOKENS) & (name.str.contains(_SIDE) | fresh))
    return frame.filter(
        (pl.col("role") == "llm") & pl.col("model").is_not_null() & side & ~pl.col("root")
    )


def _guarded(frame: pl.DataFrame) -> BoolArray:
    """Which spans are guardrails or lie inside one, whatever wraps them there."""
    family = ["trace_key", "span_key"]
    below = frame.filter(pl.col("stage") == "guardrail").select(family)
    found = below
    for _ in range(1 + MOST_WRAPPERS):
        below = frame.join(
            below.rename({"span_key": "parent_key"}), on=["trace_key", "parent_key"], how="semi"
        ).select(family)
        found = pl.concat([found, below])
    mask: BoolArray = (
        frame.join(
            found.unique().with_columns(inside=pl.lit(value=True)),
            on=family,
            how="left",
            maintain_order="left",
        )["inside"]
        .fill_null(value=False)
        .to_numpy()
    )
    return mask


def asked_ratio(tree: Tree, new: Collection[str], model: str) -> float:
    """Return the share of the requests that ask this model for a side task: the baseline's slowest may hold the first of what came."""
    calls = side_calls(tree, new).filter(pl.col("model") == model)
    return calls["trace_key"].n_unique() / max(tree.requests, 1)


def side_ms(
    tree: Tree, rows: pl.DataFrame, new: Collection[str], *, moved: bool = False
) -> tuple[float, str, str, float] | None:
    """Mean time of side calls per request, the operation and model that take most, and their mean output tokens; None without any."""
    calls = side_calls(tree, new, moved=moved)
    if calls.is_empty() or rows.is_empty():
        return None
    # A call beside the main one has the request for its parent, which is no name of what it does.
    top = (
        calls.with_columns(
            what=pl.when(pl.col("model").is_in(list(new)))
            .then("name")
            .otherwise(pl.coalesce("parent_name", "name"))
        )
        .group_by("what", "model")
        .agg(pl.col("duration_ms").sum(), pl.col("output_tokens").mean())
        .sort("duration_ms", descending=True)
    )
    requests = max(tree.requests, 1)
    return (
        float(calls["duration_ms"].sum()) / requests,
        str(top["what"][0]),
        str(top["model"][0]),
        float(top["output_tokens"][0] or 0.0),
    )
