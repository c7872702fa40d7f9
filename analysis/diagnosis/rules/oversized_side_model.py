"""oversized_side_model: a large model does a small side task (guard, classifier, router).

Detects
    Model calls beside the main one with very short outputs (up to 20 tokens) named after a guard, a classifier or a router, or
    of a model that was not called before, and those inside a guardrail (up to 100 tokens: a verdict with its reason), that take
    more than a tenth of the request and more than before.

Why it hurts
    A yes or no costs the TTFT of a large model, before every answer.

Evidence
    The side call's model and operation, its output tokens, time in slow and reference requests, share of the request, and
    whether it was there before.

Fix
    A small local model or rules (1-3 ms on a CPU), or run the check beside the main call and stop the stream if it fails. The
    gain holds the side task to 5 ms: an estimate of what a small model needs, exact for the rest.

False alarms
    A planner's short outputs are the agent's work, no side task. A guardrail that runs beside the main call costs nothing on
    the critical path and is not counted.

Source
    More than 10 % of the request with fewer than 20 output tokens: published signature; 1-3 ms local against 300 ms remote:
    published case.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "oversized_side_model"
MOST_TOKENS: Final = 20
# What a check inside a guardrail writes at most: a verdict as JSON, with its reason; own default.
MOST_OF_CHECK: Final = 100
# Spans that may wrap a model call inside a guardrail (a framework's step, the AI SDK's `ai.generateText`); own default.
MOST_WRAPPERS: Final = 3
MIN_OF_REQUEST: Final = 0.1
# Part of the former requests from which a model was asked for a side task before; own default.
MOSTLY: Final = 0.5
# Times as many of the requests as before from which a model is asked for it now; own default.
MORE_ASK: Final = 2.0
# What a small classifier on a CPU takes, with room: published 1-3 ms.
SMALL_MS: Final = 5.0
_SIDE: Final = r"(?i)(?:^|[^a-z])(?:guard(?:rail)?|moderat\w*|classif\w*|rout(?:er|ing)|intent|safety|pii|toxicity|jailbreak)(?:$|[^a-z])"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the side task's model with the gain of a small one, None when side tasks are short or as before."""
    new = _new_models(case.slow_tree, case.usual_tree)
    gone = _gone(case.slow_tree, case.usual_tree)
    now, before = (
        _side_ms(case.slow_tree, case.slow, new, moved=bool(gone)),
        _side_ms(case.usual_tree, case.reference, gone),
    )
    if now is None:
        return None
    spent, operation, model, tokens = now
    of_slowest, before = before, _of_all_before(case, gone, model, before)
    asked = case.usual_tree if before == of_slowest else case.tree_before
    if (
        before is not None
        and case.tail.reference == "baseline"
        and asked is not None
        and _asked(asked, gone, model) >= MOSTLY
    ):
        return RuledOut(
            what=RULE,
            figure=f"{printable(model)} was called before as well and took {say_ms(before[0])} of a request",
        )
    usual = told = before[0] if before is not None else 0.0
    if (
        case.tail.reference != "baseline"
    ):  # what every request spends counts as usual as far as the budget of checks goes
        usual *= case.tail.kept_part("guardrail")
    whole = float((case.tail.tail_ms and sum(case.tail.tail_ms.values())) or 0.0)
    if whole <= 0.0 or spent < MIN_OF_REQUEST * whole or spent - usual <= 0.0:
        return None
    stage = (
        "guardrail"
        if case.excess_ms("guardrail") > 0.5 * (spent - usual)
        else case.worst("generation", "first_token", "decode", "queue")
    )
    claims = {stage: spent - usual}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    every = case.tree.per_request(
        _side_calls(case.tree, new, moved=bool(gone)),
        "duration_ms",
        case.rows["trace_key"],
        case.values,
    )
    name, what = printable(operation), printable(model)
    asks = name if what in name else f"{name} asks {what}"
    fix = bound_fix(
        case,
        "small_side_model",
        f"Use a small local model for {name}",
        f"Replace {what} by a distilled classifier or rules in the process (1-3 ms), or run it beside the main call and stop the stream on a hit.",
        f"a small model takes {say_ms(SMALL_MS)} and decides equally well",
        np.minimum(np.maximum(every - SMALL_MS, 0.0), sum(case.times.ms.values())),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Run {name} beside the main call, or only on routes that need it.",
            "Run it before the main call again.",
            fix,
        ),
        headline=f"{asks} for {tokens:.0f} tokens and takes {say_ms(spent)} of a slow request ({say_ratio(spent / whole)}), {say_ms(told)} of a "
        f"{case.tail.reference} one",
        because=f"{asks} takes {say_ms(spent)} for {tokens:.0f} tokens"
        if what in name
        else f"{asks} and takes {say_ms(spent)} for {tokens:.0f} tokens",
        evidence={
            "operation": name,
            "model": what,
            "output_tokens": tokens,
            "side_ms_slow": spent,
            "side_ms_reference": usual,
            "share_of_request": spent / whole,
        },
    )


def _of_all_before(
    case: Case, gone: Collection[str], model: str, of_slowest: tuple[float, str, str, float] | None
) -> tuple[float, str, str, float] | None:
    """Return what side calls took before: of the slowest former requests (as given), or of all of them where those are the first victims of what came.

    So it is where few of all former requests asked that model and most do now: whom a guard asks only now and then asked it before as well.
    """
    if case.tree_before is None:
        return of_slowest
    then, now = (_asked(tree, gone, model) for tree in (case.tree_before, case.tree))
    return (
        _side_ms(case.tree_before, case.reference, gone)
        if then < MOSTLY <= now and now >= MORE_ASK * then
        else of_slowest
    )


def _new_models(now: Tree, before: Tree) -> list[str]:
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


def _gone(now: Tree, before: Tree) -> list[str]:
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


def _side_calls(tree: Tree, new: Collection[str], *, moved: bool = False) -> pl.DataFrame:
    """Model calls with a short output inside a guardrail, named after a side task (themselves or their parent), or to a `new` model.

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


def _asked(tree: Tree, new: Collection[str], model: str) -> float:
    """Share of the requests that ask this model for a side task: the baseline's slowest may hold the first of what came."""
    calls = _side_calls(tree, new).filter(pl.col("model") == model)
    return calls["trace_key"].n_unique() / max(tree.requests, 1)


def _side_ms(
    tree: Tree, rows: pl.DataFrame, new: Collection[str], *, moved: bool = False
) -> tuple[float, str, str, float] | None:
    """Mean time of side calls per request, the operation and model that take most, and their mean output tokens; None without any."""
    calls = _side_calls(tree, new, moved=moved)
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
