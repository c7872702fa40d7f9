"""What if connections were kept open? Exact on recorded network time: no request spends more on it than given, or than the quickest quarter does.

Pools, keep-alive and TLS resumption take away DNS, connect and handshake; what the quickest quarter still spends is the way itself. Where every call
opens a connection no quarter shows that: then the figure only bounds the gain, and the way from before is to be given. Requests with a call of which one span
of two was lost are left out of the figures after: their network is not told apart, and the late ones would be the tail of what the fix has emptied.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse


def predict(
    facts: Facts, *, network_ms: Annotated[float, Meta(ge=0, lt=1e6, description="the network time left, in ms; 0: as the quickest quarter")] = 0.0
) -> Prediction:
    """Return the answer with `cost.network_floor_ms`, what a request still spends."""
    assumption = "the way itself takes no longer" if network_ms else "requests of the quickest quarter already use an open connection"
    fix = Fix("connection_pooling", "Keep connections open", assumption, {"network_ms": network_ms} if network_ms else {})
    spent, before, blind = np.nan_to_num(facts.ms("network_ms")), np.nan_to_num(facts.ms("ttft_network_ms")), facts.half_seen
    if not spent.any():
        return refuse(
            facts, fix, "exact", "no time is told apart as network: record client spans with connect, or spans of the engine beside the client's"
        )
    floor = network_ms or float(np.quantile(spent[spent > 0.0], 0.25))
    old = recorded(facts)
    saved = np.where(blind, np.nan, np.maximum(spent - floor, 0.0))
    none_left = np.where(blind, np.nan, spent)
    # Where the quickest quarter opens connections too, as much as all of the network's time may go.
    most = [] if network_ms else [Times(old.ttft - np.minimum(none_left, before), old.e2e - none_left, old.tpot)]
    left_out = {"unseen": f"{int(blind.sum())} of {len(facts)} requests have a model call that lacks one of two spans and are left out of the figures after"}
    return predict_times(
        facts, fix, Times(old.ttft - np.minimum(saved, before), old.e2e - saved, old.tpot), method="exact", cost={"network_floor_ms": floor},
        bound=not network_ms, draws=most, reasons=left_out if blind.any() else {},
    )
