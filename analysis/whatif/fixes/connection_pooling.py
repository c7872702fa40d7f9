"""What if connections were kept open? Exact on recorded network time: requests lose what their spans of lookup, connect and TLS took.

Without such spans no request spends more on the network than given, or than the quickest quarter does: what that still spends is the way itself. Where
every call opens a connection no quarter shows that: then the figure only bounds the gain, and the way from before is to be given. Requests with a call of which
one span of two was lost are left out of the figures after: their network is not told apart, and the late ones would be the tail of what the fix has emptied.
Where engines tell their times, calls that come sooner meet other batches: by how much that moves a percentile is simulated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.evidence.network_gap import HANDSHAKE
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
        Meta(ge=0, lt=1e6, description="the network time left, in ms; 0: as the quickest quarter"),
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
        "the way itself takes no longer",
        {"network_ms": network_ms} if network_ms else {},
    )
    if not spent.any():
        return refuse(
            facts,
            fix,
            "exact",
            "no time is told apart as network: record client spans with connect, or spans of the engine beside the client's",
        )
    shaken = np.zeros(len(facts)) if network_ms else np.minimum(_handshake_ms(facts), spent)
    told = bool(shaken.any())
    if told:
        fix, saved, floor = (
            replace(fix, assumption="no call has to look up, connect or shake hands"),
            shaken,
            float((spent - shaken)[spent > 0.0].mean()),
        )
    else:
        fix = (
            fix
            if network_ms
            else replace(
                fix, assumption="requests of the quickest quarter already use an open connection"
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
        "unseen": f"{int(blind.sum())} of {len(facts)} requests have a model call that lacks one of two spans and are left out of the figures after"
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
