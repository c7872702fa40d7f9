"""How old are the conversations of two times, and what would the calls of the former one be, had its conversations been as old?

A conversation sends its history again with every turn. Where all of them begin with the recording (a launch, a load test, a new week), prompts grow from
minute to minute though nothing changes: at the same turn they are what they were. Conversations that were met midway have an age that nobody knows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.words.arrays import FloatArray

# Part of the pauses between a conversation's requests that are shorter than what counts as the recording's first stretch; own default.
PAUSES: Final = 0.95
# Part of the first prompts of that stretch that may be longer than the median of those of conversations that begin later: a half where both are first turns,
# two thirds at a medium effect (Cliff's delta of 0.33).
MOST_LONGER: Final = 2.0 / 3.0
# Turns behind the last one with a mean of its own are as much longer as each of the last so many before it; own default.
LAST_TURNS: Final = 3
# Standard errors from which on that slope is one.
CLEAR_SLOPE_SE: Final = 2.0


def turns(before: Calls, now: Calls) -> tuple[FloatArray, FloatArray] | None:
    """Return the turn (from 1) that each call belongs to, NaN without a conversation; None where conversations are not recorded or were met midway.

    Both sides count their seconds after the same moment. A turn is a request of the conversation, whatever calls it makes.
    """
    told = (before.of("turn"), now.of("turn"))
    if all(len(side) and known(side).mean() > 0.5 for side in told):
        return told
    calls = pl.concat(
        [
            side.frame.select(
                "session", "trace_key", "start_s", "input_tokens", now=pl.lit(side is now)
            )
            for side in (before, now)
        ],
        how="vertical_relaxed",
    )
    asked = (
        calls.drop_nulls("session")
        .sort("start_s")
        .group_by("session", "trace_key", maintain_order=True)
        .first()
        .with_columns(
            turn=pl.int_range(1, pl.len() + 1).over("session"),
            pause=pl.col("start_s").diff().over("session", "now"),
        )
    )
    pauses = asked["pause"].drop_nulls().to_numpy()
    if len(pauses) < MIN_CALLS:
        return None
    pause = float(np.quantile(pauses, PAUSES))
    # What lies between two times that do not meet is not counted.
    if float(now.of("start_s").min()) - float(before.of("start_s").max()) > pause or not _begin(
        asked.filter(pl.col("turn") == 1), pause, before
    ):
        return None
    keyed = calls.join(
        asked.select("session", "trace_key", "turn"),
        on=["session", "trace_key"],
        how="left",
        maintain_order="left",
    )
    turn = keyed["turn"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    return turn[: len(before)], turn[len(before) :]


def _begin(first: pl.DataFrame, pause: float, before: Calls) -> bool:
    """Return whether the conversations of the first stretch begin in it: their first prompts are no longer than those of conversations that begin later."""
    at = first["start_s"].to_numpy()
    later = at >= before.of("start_s").min() + pause
    former = later & (at <= before.of("start_s").max())
    tokens = first["input_tokens"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    met, begun = (
        tokens[side & known(tokens)]
        for side in (~later, former if former.sum() >= MIN_CALLS else later)
    )
    return (
        min(len(met), len(begun)) >= MIN_CALLS
        and float((met > np.median(begun)).mean()) <= MOST_LONGER
    )


def added_by_age(values: FloatArray, turn: FloatArray, turn_now: FloatArray) -> float:
    """Return by how much the mean of former values would be another one, had their calls been of the turns of now.

    Each turn has its former mean; later ones, of which there were too few, follow the line of the last three, where it clearly rises or falls.
    """
    both = known(values, turn)
    now = turn_now[known(turn_now)]
    counts = np.bincount(turn[both].astype(np.int64)) if both.any() else np.zeros(1, np.int64)
    last = (
        int(np.argmax(counts[1:] < MIN_CALLS))
        if (counts[1:] < MIN_CALLS).any()
        else len(counts) - 1
    )
    if last < 1 or not len(now):
        return 0.0
    at, value = turn[both], values[both]
    means = np.array([value[at == k].mean() for k in range(1, last + 1)])
    then = means[np.clip(now.astype(np.int64), 1, last) - 1] + _line(at, value, last) * np.maximum(
        now - last, 0.0
    )
    return float(then.mean() - value.mean())


def _line(turn: FloatArray, value: FloatArray, last: int) -> float:
    """Return the slope over the last turns that have a mean, 0 where it is lost in noise."""
    chosen = (turn <= last) & (turn > last - LAST_TURNS)
    x, y = turn[chosen] - turn[chosen].mean(), value[chosen] - value[chosen].mean()
    spread = float((x**2).sum())
    if spread <= 0.0 or len(x) < MIN_CALLS:
        return 0.0
    slope = float((x * y).sum()) / spread
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / spread))
    return slope if abs(slope) > CLEAR_SLOPE_SE * error else 0.0
