"""What if connections were kept open? Exact on recorded network time: requests lose the time of their lookup, connect and TLS spans.

Without such spans no request spends more on the network than the given time, or than the fastest quarter of the requests: the rest is the network itself.
If every call opens a connection, no quarter shows that. Then the figure only bounds the gain, and you have to give the former network time. Requests with
a call that lacks one of two spans are left out of the figures after the fix: their network time is not known, and the late ones would form the tail that
the fix has emptied. If engines report their times, calls that arrive earlier run in other batches: the effect on a percentile is simulated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.evidence.call_inside import HANDSHAKE
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.whatif.shifted_calls import batches, sooner_ms
from overrun.analysis.words.arrays import FloatArray

NEEDS_SPANS: Final = True


def predict(
    facts: Facts,
    *,
    network_ms: Annotated[
        float,
        Meta(
            ge=0,
            lt=1e6,
            description="the remaining network time, in ms; 0: that of the fastest quarter",
        ),
    ] = 0.0,
) -> Prediction:
    """Return the answer with `cost.network_floor_ms`, what a request still spends."""
    spent, before, blind = (
        np.nan_to_num(facts.ms("network_ms")),
        _before_first_token(facts),
        facts.half_seen,
    )
    fix = Fix(
        "connection_pooling",
        "Keep connections open",
        "the network itself takes no longer",
        {"network_ms": network_ms} if network_ms else {},
    )
    if not spent.any():
        return refuse(
            facts,
            fix,
            "exact",
            "no network time is recorded: record client spans with connect times, or engine spans beside the client's",
        )
    shaken = np.zeros(len(facts)) if network_ms else np.minimum(_handshake_ms(facts), spent)
    told = bool(shaken.any())
    if told:
        fix, saved, floor = (
            replace(fix, assumption="no call needs a name lookup, a connection or a TLS handshake"),
            shaken,
            float((spent - shaken)[spent > 0.0].mean()),
        )
    else:
        fix = (
            fix
            if network_ms
            else replace(
                fix, assumption="the fastest quarter of the requests already uses open connections"
            )
        )
        floor = network_ms or float(np.quantile(spent[spent > 0.0], 0.25))
        saved = np.maximum(spent - floor, 0.0)
    old, saved, none_left = (
        recorded(facts),
        np.where(blind, np.nan, saved),
        np.where(blind, np.nan, spent),
    )
    # Where the quickest quarter opens connections too, as much as all of the network's time may go.
    guessed = not told and not network_ms
    most = (
        [Times(old.ttft - np.minimum(none_left, before), old.e2e - none_left, old.tpot)]
        if guessed
        else []
    )
    left_out = {
        "unseen": f"{int(blind.sum())} of {len(facts)} requests have a model call that lacks one of two spans. The figures after the fix leave them out"
    }
    first = np.minimum(saved, before)
    after = Times(old.ttft - first, old.e2e - saved, old.tpot)
    met = batches(facts, after, sooner_ms(facts, np.nan_to_num(first), np.nan_to_num(saved)))
    return predict_times(
        facts,
        fix,
        after,
        method="exact",
        cost={"network_floor_ms": floor},
        bound=guessed,
        draws=most,
        reasons=left_out if blind.any() else {},
        batches=met,
    )


def _before_first_token(facts: Facts) -> FloatArray:
    """Return how much of each request's network time came before its first token.

    Where an engine's clock is off, its part of a call lies too early or too late within it; what client and engine each took until the first token needs
    no common clock.
    """
    way = facts.call("e2e_ms") - facts.call("engine_e2e_ms")
    first = np.clip(
        facts.call("ttft_client_ms") - facts.call("ttft_engine_ms"), 0.0, np.maximum(way, 0.0)
    )
    told: FloatArray = np.maximum(
        np.nan_to_num(facts.ms("ttft_network_ms")), facts.per_request(way, first)[0]
    )
    return told


def _handshake_ms(facts: Facts) -> FloatArray:
    """Return how long each request looked up names, connected or shook hands: what such spans cover, the one around the others once."""
    if facts.spans.is_empty():
        return np.zeros(len(facts))
    shakes = facts.spans.filter(
        pl.col("name").str.contains(HANDSHAKE) & (pl.col("stage") == "network")
    ).sort("trace_id", "start_us")
    end = pl.col("start_us") + pl.col("duration_ms") * 1000.0
    fresh = end - pl.max_horizontal(
        "start_us", end.cum_max().shift(1).over("trace_id").fill_null(0.0)
    )
    covered = (
        shakes.select("trace_id", ms=fresh.clip(0.0) / 1000.0)
        .group_by("trace_id")
        .agg(pl.col("ms").sum())
    )
    found: FloatArray = (
        facts.requests.select("trace_id")
        .join(covered, on="trace_id", how="left", maintain_order="left")["ms"]
        .fill_null(0.0)
        .to_numpy()
    )
    return found
