"""What if slow calls were not sent again? Simulated with one attempt each: the first arrival with the answer of the last attempt.

A second attempt of a call that has not failed doubles its load exactly when the engine is slow. With `on_error` attempts after an error stay. With `off`
none stays: their requests then fail, which is `cost.rejected_ratio`. Attempts that a client hides in one span cannot be removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.evidence.repeated_calls import BESIDE_S, impatient
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated, without
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.arrays import BoolArray, IntArray


def predict(
    facts: Facts,
    *,
    policy: Annotated[
        Literal["on_error", "off"],
        Meta(description="on_error: retry failed calls only; off: retry none"),
    ] = "on_error",
) -> Prediction:
    """Return the answer with `cost.attempts_saved_ratio` of calls."""
    fix = Fix(
        "retries",
        "Retry calls only after an error" if policy == "on_error" else "Retry no call",
        "users who wait do not send a new request instead",
        {"policy": policy},
    )
    first, again = repeated(facts, keep_after_error=policy == "on_error")
    refused = facts.calls.select(_refused()).to_series().to_numpy()
    unknown = np.isnan(facts.call("input_tokens"))[first] & ~refused[first]
    untold = int((again & unknown).sum())
    if untold > int((again & ~unknown).sum()):
        return refuse(
            facts,
            fix,
            "simulated",
            f"{untold} calls were abandoned before they reported tokens, so their cost for the engine is not known: switch tracing on in the "
            "inference server (an engine that stops abandoned calls may not record them)",
        )
    if not again.any():
        return refuse(
            facts,
            fix,
            "simulated",
            "no call was sent twice within its request (attempts inside a client's span are not visible)",
        )
    saved = float(again.sum() / max(1, facts.calls.height))
    tried = list(chains(first, again))
    start_s = facts.calls["start_us"].to_numpy() / 1e6

    def change(engine: Engine) -> Change:
        pool = engine.pool
        place = np.full(facts.calls.height, -1, dtype=np.int64)
        place[pool.rows] = np.arange(len(pool))
        calls, removed, failed = (
            pool.calls,
            np.zeros(len(pool), np.bool_),
            np.zeros(len(pool), np.bool_),
        )
        arrival, after = calls.arrival_s.copy(), calls.after.copy()
        spent = pool.e2e_s.copy()
        for chain in tried:
            # Whose call was refused has no answer without another one.
            answered = next(
                (nth + 1 for nth, row in enumerate(chain[:-1]) if refused[row]), len(chain)
            )
            told, never = (
                [int(place[row]) for row in part if place[row] >= 0]
                for part in (chain[:answered], chain[answered:])
            )
            failed[never] = True
            if not told:
                continue
            # The last attempt's answer at the first one's arrival stands for all, be it that no engine tells of the first one.
            origin, last, earlier_s = (
                told[0],
                told[-1],
                start_s[pool.rows[told[0]]] - start_s[chain[0]],
            )
            arrival[last], after[last] = calls.arrival_s[origin] - earlier_s, calls.after[origin]
            spent[told] = 0.0
            spent[last] = pool.ended_s[last] - pool.arrived_s[origin] + earlier_s
            removed[told[:-1]] = True
        calls = without(
            replace(
                calls,
                arrival_s=np.where(failed, np.inf, arrival),
                after=np.where(failed, -1, after),
            ),
            removed,
        )
        return Change(calls, engine.setup, removed=removed, spent_s=spent)

    return predict_simulated(facts, fix, change, cost={"attempts_saved_ratio": saved})


def chains(first: IntArray, again: BoolArray) -> Iterator[list[int]]:
    """Give the rows of all attempts at each call that was sent more than once, oldest first; the arguments are those of `repeated`."""
    followed = set(first[again].tolist())
    for row in np.flatnonzero(again):
        if int(row) in followed:
            continue
        chain = [int(row)]
        while again[chain[-1]]:
            chain.append(int(first[chain[-1]]))
        yield chain[::-1]


def _refused() -> pl.Expr:
    """Say of each call whether it failed by more than its caller's impatience."""
    return (
        pl.col("error").fill_null(False) | (pl.col("http_status") >= 400).fill_null(False)
    ) & ~impatient()


def repeated(facts: Facts, *, keep_after_error: bool) -> tuple[IntArray, BoolArray]:
    """Return for each call the row of the attempt before it (itself without one), and whether it is such a second attempt.

    An attempt is a call of the same request, model and input tokens that did not begin beside the one before it. Who gives up is not told the tokens: the next
    call of the request to that model after it is another attempt, unless an engine tells of the call that was given up. What follows an error is none where
    `keep_after_error`.
    """
    n = facts.calls.height
    first, again = np.arange(n), np.zeros(n, np.bool_)
    tokens, refused = (
        np.nan_to_num(facts.call("input_tokens"), nan=-1.0),
        facts.calls.select(_refused()).to_series().to_numpy(),
    )
    failed = facts.calls["error"].fill_null(False).to_numpy()
    model = facts.calls.select(_model()).to_series().to_list()
    start_us = facts.calls["start_us"].to_numpy()
    end_us = start_us + 1000.0 * np.nan_to_num(facts.call("e2e_ms"))
    last: dict[tuple[int, str, float], int] = {}
    untold: dict[tuple[int, str], int] = {}
    for row in range(n):
        request, asked = int(facts.request_of[row]), (int(facts.request_of[row]), model[row])
        if request < 0 or (tokens[row] < 0.0 and not failed[row]):
            continue
        found = [
            untold.pop(asked, -1),
            -1 if tokens[row] < 0.0 else last.get((*asked, float(tokens[row])), -1),
        ]
        earlier = [
            one
            for one in found
            if one >= 0 and start_us[row] >= min(end_us[one], start_us[one] + 1e6 * BESIDE_S)
        ]
        if tokens[row] < 0.0:
            untold[asked] = row
        else:
            last[*asked, float(tokens[row])] = row
            if found[0] >= 0 and found[0] not in earlier:
                untold[asked] = found[0]  # this is its other half
        if earlier and not (keep_after_error and refused[max(earlier)]):
            first[row], again[row] = max(earlier), True
    return first, again


def _model() -> pl.Expr:
    """The model of each call: an engine's half of one may not say it, but the same engine's other calls do."""
    return pl.coalesce(
        "model",
        pl.col("model")
        .drop_nulls()
        .mode()
        .first()
        .over(pl.coalesce("engine_instance", "instance")),
    ).fill_null("")
