"""What if late calls went to a second provider? Late: without a first token after some time. Resampled from that provider's calls of the same minute.

The first token comes after the wait plus a wait drawn from the second provider, the rest at its drawn time per token. With `after_ms=0` all calls to
models that the second provider serves too move; if there are none, all calls to models that give answers move. Checks by another model stay.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes.side_model import SHORT
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.whatif.substitute_calls import POOL, Neighbours
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import SEED, printable, say_ms

DRAWS: Final = 8


def predict(
    facts: Facts,
    *,
    provider: Annotated[
        str, Meta(description="the provider (or model) to fail over to; its calls must be recorded")
    ],
    after_ms: Annotated[
        float,
        Meta(
            ge=0,
            lt=1e9,
            description="wait for the first token before failover, in ms; 0 moves all calls",
        ),
    ] = 0.0,
) -> Prediction:
    """Return the answer with `cost.moved_ratio`, the part of the calls that go there."""
    fix = Fix(
        "second_provider",
        f"Send calls{' without a token' if after_ms else ''} {f'after {say_ms(after_ms)} ' if after_ms else ''}to {printable(provider)}",
        "its latency does not change with the added load, and its answers are equally good",
        {"provider": provider, "after_ms": after_ms},
    )
    wait, e2e, tokens = facts.call("ttft_ms"), facts.call("e2e_ms"), facts.call("output_tokens")
    named = (
        ((facts.calls["provider"] == provider) | (facts.calls["model"] == provider))
        .fill_null(False)
        .to_numpy()
    )
    answered = ~facts.calls["error"].fill_null(False).to_numpy() & ~np.isnan(wait) & ~np.isnan(e2e)
    there = named & answered
    if int(there.sum()) < POOL:
        why = f"{int(there.sum())} calls of {printable(provider)} are recorded, at least {POOL} are needed: send it a small share first"
        return refuse(
            facts,
            fix,
            "resampled",
            why if named.any() else f"{why} (providers: {facts.known('provider', provider)})",
        )
    # A small model that checks prompts stays where it is unless it was seen there: what another model takes there shows nothing of it.
    models = facts.calls["model"].filter(pl.Series(there)).drop_nulls().unique()
    theirs = facts.calls["model"].is_in(models.implode()).fill_null(value=False).to_numpy()
    alike = bool((theirs & ~named).any())
    may = theirs & ~named if alike else ~named & ~_beside(facts)
    late = may & (facts.request_of >= 0) & (np.where(np.isnan(wait), e2e, wait) > after_ms)
    rows = np.flatnonzero(late)
    rng, others = np.random.default_rng(SEED), Neighbours(facts, there, same_model=alike)
    with np.errstate(divide="ignore", invalid="ignore"):
        token_ms = np.where(tokens > 1, (e2e - wait) / (tokens - 1), 0.0)
    old = recorded(facts)

    def outcome() -> Times:
        drawn = others.draw(rows, rng)
        first, whole = np.where(np.isnan(wait), e2e, wait).copy(), e2e.copy()
        first[rows] = after_ms + wait[drawn]
        whole[rows] = first[rows] + token_ms[drawn] * np.maximum(
            np.nan_to_num(tokens[rows], nan=1.0) - 1.0, 0.0
        )
        ttft_delta, e2e_delta = facts.per_request(
            whole - e2e, first - np.where(np.isnan(wait), e2e, wait)
        )
        tpot = old.tpot.copy()
        moved = np.full(len(wait), -1, dtype=np.int64)
        moved[rows] = drawn
        mine = np.flatnonzero((facts.answering >= 0) & ~np.isnan(tpot))
        mine = mine[moved[facts.answering[mine]] >= 0]
        tpot[mine] = token_ms[moved[facts.answering[mine]]]
        return Times(old.ttft + ttft_delta, old.e2e + e2e_delta, tpot)

    outcomes = [outcome() for _ in range(DRAWS)]
    return predict_times(
        facts,
        fix,
        outcomes[0],
        method="resampled",
        draws=outcomes[1:],
        cost={"moved_ratio": float(late.sum() / max(1, int((facts.request_of >= 0).sum())))},
    )


def _beside(facts: Facts) -> BoolArray:
    """Calls to models that only ever work beside the answer: short answers, none of them the request's (guardrails, routers)."""
    answers = np.zeros(len(facts.calls), np.bool_)
    answers[facts.answering[facts.answering >= 0]] = True
    long = np.nan_to_num(facts.call("output_tokens"), nan=np.inf) >= SHORT
    answering = facts.calls["model"].filter(pl.Series(answers | long)).drop_nulls().unique()
    return facts.calls["model"].is_in(answering.implode()).not_().fill_null(value=False).to_numpy()
