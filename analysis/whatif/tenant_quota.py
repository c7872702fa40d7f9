"""What if one tenant had no more than a share of the engine? Simulated with a limit on its calls in flight; the rest of them wait at the gateway.

The figures are over all requests of the window, the tenant's own too: its wait is the price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.finding import printable, say_ratio
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated


def predict(
    facts: Facts,
    *,
    tenant: Annotated[str, Meta(description="the tenant; by default the one with most tokens")] = "",
    share_ratio: Annotated[float, Meta(gt=0, le=1, description="part of the calls served at once that it may have, 0..1")] = 0.25,
) -> Prediction:
    """Return the answer with `cost.tenant_calls_ratio`, the tenant's part of all calls, and `cost.in_flight_limit`."""
    names = facts.calls["tenant"]
    tokens = facts.call("input_tokens") + facts.call("output_tokens")
    if not tenant and names.null_count() < len(names):
        known = names.drop_nulls().unique().sort().to_list()
        tenant = max(known, key=lambda name: float(np.nansum(tokens[(names == name).fill_null(False).to_numpy()])))
    fix = Fix(
        "tenant_quota",
        f"Limit tenant {printable(tenant)} to {say_ratio(share_ratio)} of the engine",
        "the tenant does not send more because it waits",
        {"tenant": tenant, "share_ratio": share_ratio},
    )
    mine = (names == tenant).fill_null(False).to_numpy()
    if not mine.any():
        return refuse(facts, fix, "simulated", "no call of that tenant is recorded: send a tenant attribute (or check its name)")

    def change(engine: Engine) -> Change:
        limit = max(1, int(share_ratio * engine.pool.most_running * engine.setup.replicas))
        calls = replace(engine.pool.calls, gated=mine[engine.pool.rows])
        return Change(calls, replace(engine.setup, gate_limit=limit), cost={"in_flight_limit": float(limit)})

    return predict_simulated(facts, fix, change, cost={"tenant_calls_ratio": float(mine.mean())})
