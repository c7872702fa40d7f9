"""What do the client and the engine each say of the same calls, and what lies between them? TTFT, ITL and E2E of both sides, and the gap as its own row."""

from __future__ import annotations

from typing import Final

import duckdb
import msgspec

from overrun.analysis.numbers.latency.percentiles import Percentiles, percentiles
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.collector.store.answers import fetch_frame

_METRICS: Final = ("ttft", "itl", "e2e")
_CLIENT: Final = "model calls, measured by the client"
_ENGINE: Final = "the same model calls, measured by the engine"
_GAP: Final = "client minus engine, call by call"


class Sides(msgspec.Struct, kw_only=True):
    """One latency of the calls that both sides measured, in ms. `gap_ms` are percentiles of each call's difference: network, gateway and client time.

    The gap's percentiles are not the differences of the others: the call with the P95 gap is another one.
    """

    metric: str
    n: int
    client_ms: Percentiles
    engine_ms: Percentiles
    gap_ms: Percentiles


def sides(con: duckdb.DuckDBPyConnection, window: Window) -> list[Sides]:
    """Return the latencies that client and engine both measured; empty where no call has both."""
    calls = fetch_frame(con, query("call_sides"), filter_of(window))
    out = []
    for metric in _METRICS:
        both = calls.select(client=f"{metric}_client_ms", engine=f"{metric}_engine_ms").drop_nulls()
        if both.is_empty():
            continue
        client, engine = both["client"].to_numpy(), both["engine"].to_numpy()
        out.append(
            Sides(
                metric=metric,
                n=both.height,
                client_ms=percentiles(client, source=_CLIENT),
                engine_ms=percentiles(engine, source=_ENGINE),
                gap_ms=percentiles(client - engine, source=_GAP),
            )
        )
    return out
