"""How long was each call on its way to the engine? The two spans of a call tell the way there and back together: where it arrived, only their clocks.

Handshakes, gateways and buffers lie on one side of a call, so half of the way is no guess to place a call in its batch by. The clocks of a client and an engine
differ by what the calls with the shortest way show, half of which is taken for the way there, as NTP does it. With that known each engine span's start tells
when its call came.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.words.arrays import FloatArray

# The calls of a client at an engine that took the shortest way tell what their clocks differ by; own default.
_SHORTEST: Final = 0.05
_SIDES: Final = ("instance", "engine_instance")


def way_there_ms(calls: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
    """Return how long each call (columns of sql/whatif_calls.sql) was on its way to the engine, in ms by its client's clock, shape (n,).

    Half of its way where its engine's span is not there; NaN if nothing is recorded of its way. The engine's half of a call by itself began by the engine's
    clock: its way is how much earlier than its start it arrived by its clients' (negative where the engine's clock is late). `earlier` calls tell of the
    clocks as well.
    """
    told = _ways(calls)
    known = told if earlier is None else pl.concat([told, _ways(earlier)])
    both = known.filter(
        ~pl.col("alone") & ~pl.col("error") & (pl.col("way") >= 0.0) & pl.col("ahead").is_not_null()
    )
    shortest = both.filter(pl.col("way") <= pl.col("way").quantile(_SHORTEST).over(_SIDES))
    off = shortest.group_by(_SIDES).agg(off=(pl.col("ahead") - 0.5 * pl.col("way")).median())
    of_engine = shortest.group_by("engine_instance").agg(
        usual=(pl.col("ahead") - 0.5 * pl.col("way")).median()
    )
    found = told.join(off, on=list(_SIDES), how="left", maintain_order="left", nulls_equal=True)
    found = found.join(
        of_engine,
        left_on="engine",
        right_on="engine_instance",
        how="left",
        maintain_order="left",
        nulls_equal=True,
    )
    way = pl.col("way").clip(0.0)
    there = (
        pl.when("alone")
        .then(-pl.col("usual").fill_null(0.0))
        .otherwise((pl.col("ahead") - pl.col("off")).clip(0.0, way).fill_null(0.5 * way))
    )
    ms: FloatArray = found.select(there.fill_null(np.nan)).to_series().to_numpy()
    return ms


def _ways(calls: pl.DataFrame) -> pl.DataFrame:
    """Both sides of each call, its whole way, and by how much its engine's span begins later than its client's, each by its own clock; ms."""
    return calls.select(
        *_SIDES,
        engine=pl.coalesce("engine_instance", "instance"),
        alone=pl.col("engine_alone").fill_null(False),
        error=pl.col("error").fill_null(False),
        way=pl.col("e2e_ms").cast(pl.Float64) - pl.col("engine_e2e_ms"),
        ahead=(pl.col("engine_start_us") - pl.col("start_us")) / 1000.0,
    )
