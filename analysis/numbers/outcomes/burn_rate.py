"""How fast is the error budget being spent? Burn rates over pairs of a long and a short window, as alerts in the multi-window form.

burn = bad share / (1 - goodput target). Bad is "not goodput": over any limit, or failed. Source: Google SRE Workbook, ch. 5, for a 30-day budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import duckdb
import msgspec

from overrun.analysis.numbers.coverage.sampling import by_what_happened
from overrun.analysis.numbers.outcomes.goodput import judge
from overrun.analysis.numbers.window import Window, load_judged, query
from overrun.analysis.words.slo import Slo
from overrun.collector.arrays import BoolArray, FloatArray

# (long, short, burn that fires, part of a 30-day budget that the long window spends at that burn): 14.4 x 1 h / 720 h = 2 %, and so on.
PAIRS: Final = ((3_600, 300, 14.4, 0.02), (21_600, 1_800, 6.0, 0.05), (259_200, 21_600, 1.0, 0.10))
# Low traffic: a handful of bad requests is no incident. At least ten, and enough requests that the burn could have been seen (72 / burn). Own defaults
# after the least n of a P95 interval.
LEAST_BAD: Final = 10
_LEAST_N: Final = 72


class BurnPair(msgspec.Struct, kw_only=True):
    """One pair of windows. It fires when both burn at least `threshold` times as fast as the budget allows; null burns have their reason.

    `requests` and `bad` are stored ones; burns weigh sampled requests by those that they stand for.
    """

    long_s: int
    short_s: int
    threshold: float
    budget_ratio: float
    long_burn: float | None
    short_burn: float | None
    requests: int
    bad: int
    firing: bool
    reasons: dict[str, str] = {}


class Burn(msgspec.Struct, kw_only=True):
    """All pairs, judged at `at` (the end of the question's window)."""

    at: datetime
    target: float
    pairs: list[BurnPair]
    firing: bool


def burn(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, now: datetime) -> Burn:
    """Return the burn rates that end at the window's end (`now` without one), over the requests that pass its filter."""
    at = window.end or now
    rows = load_judged(
        con, replace(window, start=at - timedelta(seconds=PAIRS[-1][0]), end=at), query("series")
    )
    judged = judge(rows, slo)
    requests = Aged(
        age_s=at.timestamp() - rows["start_us"].to_numpy() / 1e6,
        bad=judged.bad,
        known=judged.bad | judged.good,
        weight=rows["sample_weight"].to_numpy(),
    )
    pairs = burning(requests, slo.goodput_target, by_what_happened(rows))
    return Burn(
        at=at, target=slo.goodput_target, pairs=pairs, firing=any(pair.firing for pair in pairs)
    )


@dataclass(frozen=True, slots=True)
class Aged:
    """Requests by how long ago they began (seconds): whether each was bad, whether it could be judged, and how many it stands for."""

    age_s: FloatArray
    bad: BoolArray
    known: BoolArray
    weight: FloatArray


def burning(requests: Aged, target: float, biased: str | None = None) -> list[BurnPair]:
    """Return every pair of windows, which end now. `biased` is why shares of these requests mean nothing."""
    allowed = max(1.0 - target, 1e-6)

    def share(seconds: int) -> tuple[int, int, float | None]:
        inside = requests.age_s <= seconds
        bad, known = requests.bad & inside, requests.known & inside
        ratio = (
            float(requests.weight[bad].sum() / requests.weight[known].sum())
            if known.any() and biased is None
            else None
        )
        return int(bad.sum()), int(known.sum()), ratio

    pairs = []
    for long_s, short_s, threshold, budget in PAIRS:
        (bad, n, ratio), (_, _, short_ratio) = share(long_s), share(short_s)
        pair = BurnPair(
            long_s=long_s,
            short_s=short_s,
            threshold=threshold,
            budget_ratio=budget,
            long_burn=None if ratio is None else ratio / allowed,
            short_burn=None if short_ratio is None else short_ratio / allowed,
            requests=n,
            bad=bad,
            firing=False,
        )
        nulls = [
            name
            for name, value in (("long_burn", pair.long_burn), ("short_burn", pair.short_burn))
            if value is None
        ]
        pair.reasons = dict.fromkeys(nulls, biased or "no request could be judged")
        enough = bad >= LEAST_BAD and n >= _LEAST_N / threshold
        pair.firing = (
            enough
            and (pair.long_burn or 0.0) >= threshold
            and (pair.short_burn or 0.0) >= threshold
        )
        pairs.append(pair)
    return pairs
