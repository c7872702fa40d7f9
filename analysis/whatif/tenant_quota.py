"""What if one tenant had no more than a share of the engine's work? Simulated without the calls that a quota in tokens per second refuses.

The quota is a bucket that is filled with the share and holds a minute of it, as limits per minute do; a call passes when all that it takes is there. Which
calls that leaves is up to the gateway and the tenant, so the interval also covers a quota that counts afterwards (a call passes while anything is left) and a
tenant that gives up its largest calls. The figures are over the requests that are still served, the tenant's own among them; what is refused is the price.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

    def change(engine: Engine, refuses: Callable[[Engine, Bools, float], Bools] = refused) -> Change:
        theirs, work = mine[engine.pool.rows], _work(engine)
        cost = {"tenant_work_ratio": float(work[theirs].sum() / max(float(work.sum()), 1e-9))}
        return Change(without(engine.pool.calls, refuses(engine, theirs, share_ratio)), engine.setup, cost=cost)

    also = [partial(change, refuses=partial(refused, whole=False)), partial(change, refuses=_largest)]
    return predict_simulated(facts, fix, change, cost={"tenant_calls_ratio": float(mine.mean())}, also=also)


def refused(engine: Engine, mine: Bools, share_ratio: float, *, whole: bool = True) -> Bools:
    """Return which of the tenant's calls (`mine`) a quota refuses that gives it this share of all work beside the others' recorded work.

    With `whole` a call passes when the bucket holds all of its work (a full bucket lets any pass), else as soon as it holds some.
    """
    work, sent = _work(engine), engine.pool.arrived_s
    refill = _allowed(engine, mine, share_ratio) / _seconds(engine)
    out = np.zeros(len(work), dtype=np.bool_)
    if share_ratio >= 1.0:
        return out
    most, last = BUCKET_S * refill, -np.inf
    level = most
    for i in np.flatnonzero(mine)[np.argsort(sent[mine], kind="stable")]:
        level = min(most, level + refill * (sent[i] - last))
        last = sent[i]
        out[i] = level < min(work[i], most) if whole else level <= 0.0
        level -= 0.0 if out[i] else work[i]
    return out


def _largest(engine: Engine, mine: Bools, share_ratio: float) -> Bools:
    """The tenant's largest calls, as many as leave its share."""
    work = np.where(mine, _work(engine), 0.0)
    order = np.argsort(work, kind="stable")
    out: Bools = np.zeros(len(work), dtype=np.bool_)
    out[order] = np.cumsum(work[order]) > _allowed(engine, mine, share_ratio)
    return out & mine


def _allowed(engine: Engine, mine: Bools, share_ratio: float) -> float:
    """Work that is the share of all, beside the recorded work of the others."""
    return share_ratio / max(1.0 - share_ratio, 1e-6) * float(_work(engine)[~mine].sum())


def _seconds(engine: Engine) -> float:
    return max(float(np.ptp(engine.pool.arrived_s)), 1e-3) if len(engine.pool) else 1.0


def _work(engine: Engine) -> FloatArray:
    """Engine time of each call in seconds: its prompt, and its part of the steps that it shares with what runs beside it."""
    calls, costs, pool = engine.pool.calls, engine.costs, engine.pool
    beside = max(1.0, float(pool.e2e_s.sum()) / max(float(np.ptp(pool.arrived_s)), 1e-3) / engine.setup.replicas)
    found: FloatArray = costs.prefill_token * (calls.prompt_tokens - calls.cached_tokens) + calls.output_tokens * (costs.sequence + costs.step / beside)
    return found
