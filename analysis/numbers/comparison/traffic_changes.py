"""What else changed at a moment? Versions, settings, mix, lengths and rate of the requests before and after it."""

from datetime import datetime
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.statistics.change_points import parted
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.finding import printable, say_ratio
from overrun.analysis.words.timestamps import from_us, to_us

# A share of traffic must move by this many points, a length or rate by this factor, to be a change of mix; own defaults.
MIX_POINTS: Final = 0.10
MIX_RATIO: Final = 1.25
# Fewest requests on both sides to compare a mix: a mean of fewer shows little.
MIN_MIX: Final = 30
# A fault builds up behind the deploy that brought it, and an onset is a date to within some requests; own defaults.
_LEAD_PART: Final = 0.2
_LEAD_S: Final = 600.0
_MOST_LISTED: Final = 3
_MAY_CHANGE: Final = (
    *("start_us", "version", "model", "max_tokens", "route", "tenant", "input_tokens"),
    *("output_tokens", "sample_weight"),
)


class Changed(msgspec.Struct, kw_only=True):
    """What differs since the onset: a value that appears only since then or shortly before (version, model), a setting, or the mix of traffic.

    `before` and `after` are said with their figures; `at` is the first request that differs (for the mix, the onset).
    """

    what: str
    before: list[str]
    after: str
    at: datetime


def changed(
    rows: pl.DataFrame, since: datetime | None, base: pl.DataFrame | None = None
) -> list[Changed]:
    """Return what differs since the onset: new versions and models first, then settings, then the mix of traffic.

    What came before are the window's rows before the onset, or the baseline's where there are too few of those. A version or model may have come a
    little earlier than what it did: it counts from a fifth of the time before the onset on, at most 10 minutes, and says when it came.
    """
    if since is None:
        return []
    rows = rows.select(_MAY_CHANGE)
    onset_us = to_us(since)
    lead_us = int(
        min(
            _LEAD_S * 1e6,
            _LEAD_PART * max(0, onset_us - int(rows["start_us"].to_numpy().min(initial=onset_us))),
        )
    )
    settled, recent = parted(rows, onset_us - lead_us)
    before, after = parted(rows, onset_us)
    if before.height < MIN_MIX and base is not None:
        before = base
    usual = settled if settled.height >= MIN_MIX else before
    found = [
        change for column in ("version", "model") for change in _new_values(usual, recent, column)
    ]
    if before.height >= MIN_MIX and after.height >= MIN_MIX:
        found += [c for column in ("max_tokens",) for c in _setting(before, after, column, since)]
        found += [
            c
            for column in ("route", "tenant", "model")
            for c in _shift(before, after, column, since)
        ]
        found += [
            c
            for column in ("input_tokens", "output_tokens")
            for c in _length(before, after, column, since)
        ]
        found += _rate(before, after, since)
    return found


def _new_values(before: pl.DataFrame, after: pl.DataFrame, column: str) -> list[Changed]:
    """Return values first seen in `after` while others served before it."""
    known = before[column].drop_nulls().unique(maintain_order=True).to_list()
    if not known:
        return []
    first = (
        after.drop_nulls(column)
        .filter(~pl.col(column).is_in(known))
        .group_by(column)
        .agg(pl.col("start_us").min().alias("first"))
        .sort("first", column)
    )
    names = [printable(name) for name in known[:_MOST_LISTED]]
    return [
        Changed(what=column, before=names, after=printable(value), at=from_us(at))
        for value, at in first.head(_MOST_LISTED).iter_rows()
    ]


def _setting(
    before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime
) -> list[Changed]:
    """Return a request setting whose usual value (of more than half the requests) became another."""
    usual = [_usual(part, column) for part in (before, after)]
    if usual[0] is None or usual[1] is None or usual[0] == usual[1]:
        return []
    at = after.filter(pl.col(column) == usual[1])["start_us"].min()
    return [
        Changed(
            what=f"config {column}",
            before=[f"{usual[0]:,}"],
            after=f"{usual[1]:,}",
            at=from_us(int(str(at))) if at is not None else since,
        )
    ]


def _usual(rows: pl.DataFrame, column: str) -> int | None:
    counts = rows[column].drop_nulls().value_counts(sort=True)
    return (
        int(counts[column][0]) if counts.height and counts["count"][0] * 2 > rows.height else None
    )


def _shift(
    before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime
) -> list[Changed]:
    """Return the value whose share of traffic grew most, if it grew by more than chance and by 10 points."""
    old, new = (
        dict(part[column].drop_nulls().value_counts().iter_rows()) for part in (before, after)
    )
    grown = {
        value: n / after.height - old.get(value, 0) / before.height
        for value, n in new.items()
        if value in old
    }
    value = max(grown, key=lambda name: grown[name], default=None)
    if (
        value is None
        or grown[value] < MIX_POINTS
        or wilson(new[value], after.height)[0] <= wilson(old[value], before.height)[1]
    ):
        return []
    shares = [
        f"{say_ratio(part / whole)} of requests"
        for part, whole in ((old[value], before.height), (new[value], after.height))
    ]
    return [
        Changed(
            what=f"mix of {column}",
            before=[f"{printable(value)} {shares[0]}"],
            after=f"{printable(value)} {shares[1]}",
            at=since,
        )
    ]


def _length(
    before: pl.DataFrame, after: pl.DataFrame, column: str, since: datetime
) -> list[Changed]:
    old, new = before[column].drop_nulls(), after[column].drop_nulls()
    if min(len(old), len(new)) < MIN_MIX:
        return []
    usual, now = float(np.median(old.to_numpy())), float(np.median(new.to_numpy()))
    if min(usual, now) <= 0.0 or max(usual, now) / min(usual, now) < MIX_RATIO:
        return []
    return [
        Changed(
            what=f"{column.replace('_', ' ')} P50",
            before=[f"{usual:,.0f}"],
            after=f"{now:,.0f}",
            at=since,
        )
    ]


def _rate(before: pl.DataFrame, after: pl.DataFrame, since: datetime) -> list[Changed]:
    """Return the arrival rate if it moved by a quarter: both sides are measured between their own first and last start."""
    rates = []
    for part in (before, after):
        starts = part["start_us"].to_numpy()
        length_s = float(starts.max() - starts.min()) / 1e6
        if length_s <= 0.0:
            return []
        rates.append((part.height - 1) / length_s * float(part["sample_weight"].to_numpy().mean()))
    if min(rates) <= 0.0 or max(rates) / min(rates) < MIX_RATIO:
        return []
    return [
        Changed(
            what="request rate", before=[f"{rates[0]:.3g}/s"], after=f"{rates[1]:.3g}/s", at=since
        )
    ]
