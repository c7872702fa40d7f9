"""What if one tenant had no more than a share of the engine's work? Simulated without the calls that a quota in tokens per second refuses.

The quota is a bucket that is filled with the share and holds a minute of it, as limits per minute do; a call passes while something is left. The
figures are over the requests that are still served, the tenant's own among them; what is refused is the price.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from analysis.finding import printable, say_ratio
from analysis.latency import FloatArray
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Bools, Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated, without

# Seconds of its refill that a quota's bucket holds: providers and gateways limit by the minute.
BUCKET_S: Final = 60.0


def predict(
    facts: Facts,
    *,
    tenant: Annotated[str, Meta(description="the tenant; by default the one with most tokens")] = "",
    share_ratio: Annotated[float, Meta(gt=0, le=1, description="part of the engine's work that it may have, 0..1")] = 0.25,
) -> Prediction:
    """Return the answer with `cost.tenant_calls_ratio` and `cost.tenant_work_ratio`, the tenant's part of all calls and of their work, and
    `cost.rejected_ratio` of the requests."""
    names = facts.calls["tenant"]
    tokens = facts.call("input_tokens") + facts.call("output_tokens")
    if not tenant and names.null_count() < len(names):
        known = names.drop_nulls().unique().sort().to_list()
        tenant = max(known, key=lambda name: float(np.nansum(tokens[(names == name).fill_null(False).to_numpy()])))
    fix = Fix(
        "tenant_quota",
        f"Limit {f'tenant {printable(tenant)}' if tenant else 'the largest tenant'} to {say_ratio(share_ratio)} of the work",
        "the tenant does not send refused calls again at once",
        {"tenant": tenant, "share_ratio": share_ratio},
    )
    mine = (names == tenant).fill_null(False).to_numpy()
    if not mine.any():
        why = f"no call of that tenant is recorded: {facts.known('tenant', tenant)}" if tenant else "no call names a tenant: send a tenant attribute"
        return refuse(facts, fix, "simulated", why)

    def change(engine: Engine) -> Change:
        theirs, work = mine[engine.pool.rows], _work(engine)
        cost = {"tenant_work_ratio": float(work[theirs].sum() / max(float(work.sum()), 1e-9))}
        return Change(without(engine.pool.calls, refused(engine, theirs, share_ratio)), engine.setup, cost=cost)

    return predict_simulated(facts, fix, change, cost={"tenant_calls_ratio": float(mine.mean())})


def refused(engine: Engine, mine: Bools, share_ratio: float) -> Bools:
    """Return which of the tenant's calls (`mine`) a quota refuses that gives it this share of all work beside the others' recorded work."""
    work, sent = _work(engine), engine.pool.arrived_s
    seconds = max(float(np.ptp(sent)), 1e-3) if len(sent) else 1.0
    refill = share_ratio / max(1.0 - share_ratio, 1e-6) * float(work[~mine].sum()) / seconds
    out = np.zeros(len(work), dtype=np.bool_)
    if share_ratio >= 1.0:
        return out
    level, last = BUCKET_S * refill, -np.inf
    for i in np.flatnonzero(mine)[np.argsort(sent[mine], kind="stable")]:
        level = min(BUCKET_S * refill, level + refill * (sent[i] - last))
        last = sent[i]
        out[i] = level <= 0.0
        level -= 0.0 if out[i] else work[i]
    return out


def _work(engine: Engine) -> FloatArray:
    """Engine time of each call in seconds: its prompt, and its part of the steps that it shares with what runs beside it."""
    calls, costs, pool = engine.pool.calls, engine.costs, engine.pool
    beside = max(1.0, float(pool.e2e_s.sum()) / max(float(np.ptp(pool.arrived_s)), 1e-3) / engine.setup.replicas)
    found: FloatArray = costs.prefill_token * (calls.prompt_tokens - calls.cached_tokens) + calls.output_tokens * (costs.sequence + costs.step / beside)
    return found
