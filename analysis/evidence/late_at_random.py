"""Are late calls late at random? Whom they strike, what they follow, and whether their tokens are slow as well."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.client_view import (
    Outside,
)
from overrun.analysis.evidence.prefill_stalls import Odds, odds_ratio
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
)

# Tenants differ where the calls of one are late so many times as often as all, or as rarely, and chi-square is as rare as so many standard deviations,
# among those of whose calls as many would be late by chance; own defaults.
PREFERRED: Final = 2.0

CLEAR_FACTOR: Final = 4.0

LEAST_EXPECTED: Final = 5.0


def behind_prompts(case: Case, found: Outside, late: BoolArray) -> Odds | None:
    """Return the odds of a late call behind many tokens that the caller had just sent to be read, against behind few; None below ten late ones.

    Just: within what a late call takes. Many: as rare as late calls are, so that where those alone are to blame all of them are late.
    """
    if int(late.sum()) < MIN_BREACHING:
        return None
    asked = case.calls.asked_before(float(np.median(found.now_ms[late])) / 1e3)
    keys = pl.Series(found.keys[late].view(np.uint64)).cast(case.calls.frame["trace_key"].dtype)
    theirs = case.calls.frame["trace_key"].is_in(keys.implode()).to_numpy() & ~case.calls.has_engine
    much = asked > np.quantile(asked, 1.0 - late.mean())
    return odds_ratio(theirs[much].astype(np.float64), theirs[~much].astype(np.float64))


class Whose(NamedTuple):
    """The tenants whose calls are late most and least often, and these shares (0..1)."""

    most: str
    most_late: float
    least: str
    least_late: float


def whose_are_late(case: Case, found: Outside, late: BoolArray) -> Whose | None:
    """Return whom late calls strike and whom they spare, None where they strike all tenants alike within chance, or nobody says who asks."""
    mine = dict(zip(case.rows["trace_key"].to_list(), case.rows["tenant"].to_list(), strict=True))
    told = pl.DataFrame(
        {"tenant": [mine.get(key) for key in found.keys.view(np.uint64).tolist()], "late": late},
        schema_overrides={"tenant": pl.String},
    )
    usual = float(late.mean())
    sides = (
        told.drop_nulls("tenant")
        .group_by("tenant")
        .agg(pl.len().alias("n"), pl.col("late").mean().alias("share"))
        .filter(pl.col("n") * usual >= LEAST_EXPECTED)
        .sort("share", "tenant")
    )
    free = sides.height - 1
    if free < 1:
        return None
    n, shares = sides["n"].to_numpy().astype(np.float64), sides["share"].to_numpy()
    squares = float((n * (shares - usual) ** 2).sum()) / (usual * (1.0 - usual))
    if deviations(squares, free) < CLEAR_FACTOR or (
        shares[-1] < PREFERRED * usual and shares[0] * PREFERRED > usual
    ):
        return None
    return Whose(
        str(sides["tenant"][-1]), float(shares[-1]), str(sides["tenant"][0]), float(shares[0])
    )


def deviations(squares: float, free: int) -> float:
    """Return how many standard deviations of a normal are as rare as a chi-square of so many degrees of freedom, which is far from normal where these are few.

    Wilson and Hilferty, PNAS 17 (1931): its cube root is nearly normal.
    """
    spread = 2.0 / (9.0 * free)
    return (math.cbrt(squares / free) - (1.0 - spread)) / math.sqrt(spread)


def pace_ratio(case: Case, found: Outside, late: BoolArray) -> float | None:
    """Return the median time per token of the late calls over that of the others of the same time, whatever slows all; None where fewer than ten of either show it."""
    keys = pl.Series(found.keys[late].view(np.uint64)).cast(case.calls.frame["trace_key"].dtype)
    theirs = case.calls.frame["trace_key"].is_in(keys.implode()).to_numpy()
    pace = case.calls.of("tpot_ms")
    sides = [
        pace[side & known(pace) & ~case.calls.has_engine & case.calls.writers]
        for side in (theirs, ~theirs)
    ]
    if min(len(side) for side in sides) < MIN_BREACHING:
        return None
    return float(np.median(sides[0]) / max(float(np.median(sides[1])), 1e-3))
