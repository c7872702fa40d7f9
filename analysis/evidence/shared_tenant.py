"""Are slow requests of one tenant, and other requests not? A dependency that is slow for one customer's data is quick for the others'."""

from __future__ import annotations

from typing import Final, NamedTuple

import polars as pl

from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.finding import MIN_BREACHING, printable

# Most of the slow requests, and so many times their part of the others, both at the unfavourable ends of their 95 % intervals.
MOSTLY: Final = 0.5
CLEARLY: Final = 2.0


class Tenant(NamedTuple):
    """`late` of `slow` slow requests are of `name`, and `of_others` of the `others`."""

    name: str
    late: int
    slow: int
    of_others: int
    others: int

    @property
    def said(self) -> str:
        """It as a clause."""
        return (
            f"{self.late:,} of {self.slow:,} slow requests are of tenant {printable(self.name, 60)}, "
            f"{self.of_others:,} of {self.others:,} others"
        )


def shared_tenant(case: Observed) -> Tenant | None:
    """Return the tenant that most slow requests are of and few others, None without one or where tenants are not recorded."""
    slow = case.slow["tenant"].drop_nulls()
    rest = case.rows.filter(~pl.col("trace_key").is_in(case.slow["trace_key"].implode()))["tenant"]
    if len(slow) < MIN_BREACHING or rest.len() < MIN_BREACHING:
        return None
    name = slow.value_counts(sort=True)[slow.name][0]
    late, of_others = int((slow == name).sum()), int((rest == name).sum())
    least = wilson(late, case.slow.height)[0]
    if least < MOSTLY or least < CLEARLY * wilson(of_others, rest.len())[1]:
        return None
    return Tenant(str(name), late, case.slow.height, of_others, rest.len())
