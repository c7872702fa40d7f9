"""What if slow calls were not sent again? Simulated with one attempt each: the first arrival with the answer of the last attempt.

A second attempt of a call that has not failed doubles its load exactly when the engine is slow. With `on_error` attempts after an error stay, with `off`
none does (their requests then fail, which is `cost.failed_ratio`). Attempts that a client hides in one span cannot be taken away.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import polars as pl
from msgspec import Meta

from analysis.repeats import impatient
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Bools, Facts, Ints
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated, without


def predict(
    facts: Facts,
    *,
    policy: Annotated[Literal["on_error", "off"], Meta(description="on_error: only failed calls are sent again; off: none is")] = "on_error",
) -> Prediction:
    """Return the answer with `cost.attempts_saved_ratio` of calls."""
    fix = Fix(
        "retries",
        "Send calls again only after an error" if policy == "on_error" else "Send no call again",
        "who waits does not come back as a new request",
        {"policy": policy},
    )
    first, again = repeated(facts, keep_after_error=policy == "on_error")
    untold = _untold(facts, keep_after_error=policy == "on_error")
    if untold > again.sum():
        return refuse(facts, fix, "simulated", f"{untold} calls were given up before they told their tokens, so what they cost the engine is not known: "
                      "switch tracing on in the inference server")
    if not again.any():
        return refuse(facts, fix, "simulated", "no call was sent a second time within its request (attempts hidden inside a client's span cannot be told)")
    saved = float(again.sum() / max(1, facts.calls.height))

    def change(engine: Engine) -> Change:
        pool = engine.pool
        place = np.full(facts.calls.height, -1, dtype=np.int64)
        place[pool.rows] = np.arange(len(pool))
        calls, removed = pool.calls, np.zeros(len(pool), np.bool_)
        arrival, after = calls.arrival_s.copy(), calls.after.copy()
        spent = pool.e2e_s.copy()
        for row in np.flatnonzero(again):
            mine, origin = place[row], place[first[row]]
            if mine < 0 or origin < 0 or removed[mine]:
                continue
            # The last attempt's answer at the first one's arrival stands for both.
            arrival[mine], after[mine] = arrival[origin], after[origin]
            spent[mine] = pool.ended_s[mine] - pool.arrived_s[origin]
            spent[origin] = 0.0
            removed[origin] = True
            first[first == origin] = row
        calls = without(replace(calls, arrival_s=arrival, after=after), removed)
        return Change(calls, engine.setup, removed=removed, spent_s=spent)

    return predict_simulated(facts, fix, change, cost={"attempts_saved_ratio": saved})


def _untold(facts: Facts, *, keep_after_error: bool) -> int:
    """How many calls failed without a number of tokens and were followed by another one of their request to the same model; see `repeated`."""
    lost = pl.col("error").fill_null(False) & pl.col("input_tokens").is_null() & ~(_refused() & keep_after_error)
    frame = facts.calls.select("request", "model", lost=lost).filter(pl.col("request") >= 0)
    return frame.filter(pl.col("lost") & pl.col("request").shift(-1).over("request", "model").is_not_null()).height


def _refused() -> pl.Expr:
    """Say of each call whether it failed by more than its caller's impatience."""
    return (pl.col("error").fill_null(False) | (pl.col("http_status") >= 400).fill_null(False)) & ~impatient()


def repeated(facts: Facts, *, keep_after_error: bool) -> tuple[Ints, Bools]:
    """Return for each call the row of the attempt before it (itself without one), and whether it is such a second attempt.

    An attempt is a call of the same request, model and input tokens. One that follows an error is none of them where `keep_after_error`.
    """
    n = facts.calls.height
    first, again = np.arange(n), np.zeros(n, np.bool_)
    tokens, refused = np.nan_to_num(facts.call("input_tokens"), nan=-1.0), facts.calls.select(_refused()).to_series().to_numpy()
    model = facts.calls["model"].fill_null("").to_list()
    last: dict[tuple[int, str, float], int] = {}
    for row in range(n):
        request = int(facts.request_of[row])
        if request < 0 or tokens[row] < 0.0:
            continue
        key = (request, model[row], float(tokens[row]))
        before = last.get(key)
        last[key] = row
        if before is None or (keep_after_error and refused[before]):
            continue
        first[row], again[row] = before, True
    return first, again
