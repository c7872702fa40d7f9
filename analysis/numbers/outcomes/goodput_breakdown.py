"""Where is goodput lost: on which route, model and tenant? The report's goodput, taken apart by one attribute at a time."""

from __future__ import annotations

from typing import Final

import duckdb
import msgspec
import polars as pl

from overrun.analysis.numbers.coverage.sampling import assess, weights_of
from overrun.analysis.numbers.outcomes.goodput import Goodput, goodput, judge
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.finding import printable
from overrun.analysis.words.slo import Slo

ATTRIBUTES: Final = ("route", "model", "tenant")
MOST_VALUES: Final = 20


class GoodputOf(msgspec.Struct, kw_only=True):
    """Goodput of the requests that carry one value; `value` null: those without any. `lost_ratio` is its part in all bad requests of the window."""

    attribute: str
    value: str | None
    requests: int
    goodput: Goodput
    lost_ratio: float | None
    reasons: dict[str, str] = {}


class GoodputBy(msgspec.Struct, kw_only=True):
    """Goodput of the window, and of each value of route, model and tenant, most bad requests first."""

    whole: Goodput
    parts: list[GoodputOf]
    reasons: dict[str, str] = {}


def goodput_by(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> GoodputBy:
    """Return goodput by route, model and tenant; the values with most bad requests, at most 20 of each."""
    frame = load(con, window, points=False)
    sampled = assess(con, frame, weigh=True)
    frame = sampled.applied(frame)
    rows, seconds = frame.rows, frame.seconds
    whole = goodput(judge(rows, slo), seconds, weights_of(rows))
    if sampled.refused:
        whole.ratio = whole.rps = None
        whole.reasons = dict.fromkeys(("ratio", "rps"), sampled.why)
        return GoodputBy(whole=whole, parts=[], reasons={"parts": whole.reasons["ratio"]})
    parts = []
    marked = rows.with_columns(bad=pl.Series(judge(rows, slo).bad))
    for attribute in ATTRIBUTES:
        found = []
        # Of thousands of tenants most are never told: only those that are get a goodput of their own.
        counted = (
            marked.group_by(attribute, maintain_order=True)
            .agg(pl.col("bad").sum(), n=pl.len())
            .sort("bad", "n", descending=True, maintain_order=True)
        )
        told = marked.join(counted.head(MOST_VALUES), on=attribute, how="semi", nulls_equal=True)
        for (value,), mine in told.partition_by(
            attribute, as_dict=True, maintain_order=True
        ).items():
            good = goodput(judge(mine, slo), seconds, weights_of(mine))
            part = GoodputOf(
                attribute=attribute,
                value=None if value is None else printable(str(value), 120),
                requests=mine.height,
                goodput=good,
                lost_ratio=good.bad / whole.bad if whole.bad else None,
            )
            if part.lost_ratio is None:
                part.reasons["lost_ratio"] = "no request is bad"
            if value is None:
                part.reasons["value"] = f"these requests carry no {attribute}"
            found.append(part)
        known = [part for part in found if part.value is not None]
        parts += (
            sorted(found, key=lambda part: (-part.goodput.bad, -part.requests)) if known else []
        )
    return GoodputBy(
        whole=whole,
        parts=parts,
        reasons={} if parts else {"parts": "no request carries a route, a model or a tenant"},
    )
