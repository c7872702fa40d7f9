"""What if connections were kept open? Exact on recorded network time: no request spends more on it than the quickest quarter does.

Pools, keep-alive and TLS resumption take away DNS, connect and handshake; what the quickest quarter still spends is the way itself.
"""

from __future__ import annotations

import numpy as np

from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse


def predict(facts: Facts) -> Prediction:
    """Return the answer with `cost.network_floor_ms`, what a request still spends."""
    fix = Fix("connection_pooling", "Keep connections open", "requests of the quickest quarter already use an open connection", {})
    spent, before = np.nan_to_num(facts.ms("network_ms")), np.nan_to_num(facts.ms("ttft_network_ms"))
    if not spent.any():
        return refuse(
            facts, fix, "exact", "no time is told apart as network: record client spans with connect, or spans of the engine beside the client's"
        )
    floor = float(np.quantile(spent[spent > 0.0], 0.25))
    old = recorded(facts)
    saved = np.maximum(spent - floor, 0.0)
    return predict_times(
        facts, fix, Times(old.ttft - np.minimum(saved, before), old.e2e - saved, old.tpot), method="exact", cost={"network_floor_ms": floor}
    )
