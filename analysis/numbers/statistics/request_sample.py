"""Which requests stand for all where a window holds too many to be read? Some whole requests, chosen by the hash of their trace id, each with a weight.

One trace in `every` is read (the even part), and more of those that such a sample would show too few of: failed requests, the slowest of each latency, and
those of tenants, replicas, routes, models and versions that have few. Whoever asks again reads the same requests. Weights are how many requests a row stands for:
the inverse of the probability that it was read, made to sum to the exact numbers of failed and other requests (Horvitz and Thompson, JASA 47, 1952).

The parts are powers of two, so that whatever is in a smaller part is in each larger one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray

# More complete requests than this are read as a sample. All are read below it: to read some and to count all would take as long.
MOST_READ: Final = 100_000
# Requests of the even part are between these and twice as many: shares of 40,000 are right within 0.5 points in 95 of 100 samples.
LEAST_EVEN: Final = 40_000
# Failed requests, slow ones, and those of rare names are read until there are so many of each kind, as far as there are; own default, a tenth of the rest.
LEAST_OF_KIND: Final = 5_000
# Names are rare that fewer rows than these of the even part would carry; own default, the fewest that show a P99.
RARE_ROWS: Final = 300
# The part of the requests that is slow: beyond this percentile of E2E or TTFT.
SLOW: Final = 0.99
# Names that are looked up while requests are read; own default.
MOST_RARE_NAMES: Final = 10_000
NAMES: Final = ("tenant", "instance", "route", "model", "version")


@dataclass(frozen=True)
class Sample:
    """How a window was read: `read` of its `requests`, one trace in `every` of the even part, of which there are `even`.

    `error` is by how much a share of requests is wrong at most in 95 of 100 samples (0..1).
    """

    requests: int
    read: int
    every: int
    even: int

    @property
    def error(self) -> float:
        """Half of the 95 % interval of a share of a half in the even part, the one that is largest."""
        unread = 1.0 - self.even / max(self.requests, 1)
        return 0.5 * Z_95 * math.sqrt(max(unread, 0.0) / max(self.even, 1))

    def say(self) -> str:
        """The sample in words, with its error."""
        return (
            f"from a sample of {self.read:,} of {self.requests:,} requests: shares are right within "
            f"{100.0 * self.error:.1f} points in 95 of 100 samples"
        )


@dataclass(frozen=True)
class Counted:
    """What was counted of all requests of which a frame has the even part: percentiles (ms) by metric and percentile (0..100), goodput as judged
    (`outcomes.goodput.Goodput`; None where it was not counted), and how many requests each row stands for."""

    at: Mapping[tuple[str, float], float]
    goodput: Any
    each: float


@dataclass(frozen=True)
class Plan:
    """Of one trace in how many the requests of each kind are read, and what the kinds are; `parameters` of the query `sampled_requests`."""

    requests: int
    incomplete: int
    failed: int
    every: int
    parameters: Mapping[str, object]
    start_us: int
    end_us: int


def part(requests: float, wanted: int) -> int:
    """Return the largest power of two of which one in so many leaves at least `wanted` requests; 1 where there are no more."""
    return 1 << max(0, math.floor(math.log2(max(requests, 1.0) / wanted)))


def plan(
    con: duckdb.DuckDBPyConnection,
    counts_sql: str,
    extent_sql: str,
    filters: Mapping[str, object],
    requests: int,
) -> Plan:
    """Say how a window of about so many requests is read. `counts_sql` counts requests by rare names, `extent_sql` has the edges of what is slow
    (analysis/numbers/sql)."""
    every = part(requests, LEAST_EVEN)
    asked = {**filters, "rare_below": RARE_ROWS * every, "most": MOST_RARE_NAMES}
    (_, _, stored, complete, failed), *few = con.execute(counts_sql, asked).fetchall()
    extent = con.execute(extent_sql, {**filters, "every": every, "slow": SLOW}).fetchall()
    [(start_us, end_us, slow_ms, slow_ttft_ms)] = extent

    def of(kind: float) -> int:
        return min(every, part(kind, LEAST_OF_KIND))

    parameters: dict[str, object] = {
        "every": every,
        "failed_every": of(failed),
        "slow_every": of(2.0 * (1.0 - SLOW) * complete),
        "rare_every": of(sum(int(row[3]) for row in few)),
        "slow_ms": slow_ms,
        "slow_ttft_ms": slow_ttft_ms,
        **{f"rare_{name}": [row[1] for row in few if row[0] == name] for name in NAMES},
    }
    return Plan(
        requests=int(complete),
        incomplete=int(stored) - int(complete),
        failed=int(failed),
        every=every,
        parameters=parameters,
        start_us=int(start_us or 0),
        end_us=int(end_us or 0),
    )


def weights(one_in: FloatArray, error: FloatArray, made: Plan) -> FloatArray:
    """Return for how many requests each row stands that was read with a probability of 1/`one_in`; `error` says which failed."""
    out = one_in.astype(np.float64)
    for failed, total in ((True, made.failed), (False, made.requests - made.failed)):
        mine = error == failed
        standing = float(out[mine].sum())
        if standing > 0.0:
            out[mine] *= total / standing
    return out


@functools.cache
def condition() -> str:
    """Of one trace in how many a request is read, as SQL over the columns of the query `requests`."""
    rare = " or ".join(f"{name} in (select unnest($rare_{name}::varchar[]))" for name in NAMES)
    return (
        "least($every, if(error, $failed_every, $every), "
        "if(e2e_ms > $slow_ms or coalesce(ttft_ms > $slow_ttft_ms, false), $slow_every, $every), "
        f"if(coalesce({rare}, false), $rare_every, $every))::ubigint"
    )


def even_part(rows: pl.DataFrame, sample: Sample) -> pl.DataFrame:
    """Return the rows of the even part, each of which stands for as many requests (times what its sampler says), without the columns of the sample."""
    each = sample.requests / max(sample.even, 1)
    return (
        rows.filter("is_even")
        .with_columns(sample_weight=pl.col("sample_weight") / pl.col("drawn_weight") * each)
        .drop("is_even", "drawn_weight")
    )
