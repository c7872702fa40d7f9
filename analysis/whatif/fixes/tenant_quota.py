"""What if one tenant had no more than a share of the tokens? Simulated without the calls that a quota in tokens per second refuses.

The quota is a bucket that fills with the share and holds a minute of it, like limits per minute. A call passes if all of its tokens are in the bucket:
those of its prompt (cached or not, because a gateway does not know) and of its answer. Which calls pass depends on the gateway and the tenant. So the
interval also covers a quota that counts afterwards (a call passes while anything is left) and a tenant that drops its largest calls. The figures cover the
served requests, including the tenant's; the refused ones are the cost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated, without
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import printable, say_ratio

# Seconds of its refill that a quota's bucket holds: providers and gateways limit by the minute.
BUCKET_S: Final = 60.0


def predict(
    facts: Facts,
    *,
    tenant: Annotated[
        str, Meta(description="the tenant; by default the one with the most tokens")
    ] = "",
    share_ratio: Annotated[
        float,
        Meta(gt=0, le=1, description="part of the served tokens that the tenant may use, 0..1"),
    ] = 0.25,
) -> Prediction:
    """Return the answer with `cost.tenant_calls_ratio` and `cost.tenant_tokens_ratio`, the tenant's part of all calls and of their tokens, and
    `cost.rejected_ratio` of the requests."""
    names = facts.calls["tenant"]
    tokens = facts.call("input_tokens") + facts.call("output_tokens")
    if not tenant and names.null_count() < len(names):
        known = names.drop_nulls().unique().sort().to_list()
        tenant = max(
            known,
            key=lambda name: float(np.nansum(tokens[(names == name).fill_null(False).to_numpy()])),
        )
    fix = Fix(
        "tenant_quota",
        f"Limit {f'tenant {printable(tenant)}' if tenant else 'the largest tenant'} to {say_ratio(share_ratio)} of the tokens",
        "the tenant does not retry refused calls at once",
        {"tenant": tenant, "share_ratio": share_ratio},
    )
    mine = (names == tenant).fill_null(False).to_numpy()
    if not mine.any():
        why = (
            f"no call of that tenant is recorded: {facts.known('tenant', tenant)}"
            if tenant
            else "no call names a tenant: send a tenant attribute"
        )
        return refuse(facts, fix, "simulated", why)

    def change(
        engine: Engine, refuses: Callable[[Engine, BoolArray, float], BoolArray] = refused
    ) -> Change:
        theirs, spent = mine[engine.pool.rows], tokens_of(engine)
        cost = {"tenant_tokens_ratio": float(spent[theirs].sum() / max(float(spent.sum()), 1.0))}
        return Change(
            without(engine.pool.calls, refuses(engine, theirs, share_ratio)),
            engine.setup,
            cost=cost,
        )

    also = [
        partial(change, refuses=partial(refused, whole=False)),
        partial(change, refuses=_largest),
    ]
    return predict_simulated(
        facts, fix, change, cost={"tenant_calls_ratio": float(mine.mean())}, also=also
    )


def refused(
    engine: Engine, mine: BoolArray, share_ratio: float, *, whole: bool = True
) -> BoolArray:
    """Return which of the tenant's calls (`mine`) a quota refuses that gives it this share of all tokens beside those that the others took.

    With `whole` a call passes when the bucket holds all of its tokens (a full bucket lets any pass), else as soon as it holds some.
    """
    spent, sent = tokens_of(engine), engine.pool.arrived_s
    refill = _allowed(engine, mine, share_ratio) / _seconds(engine)
    out = np.zeros(len(spent), dtype=np.bool_)
    if share_ratio >= 1.0:
        return out
    most, last = BUCKET_S * refill, -np.inf
    level = most
    for i in np.flatnonzero(mine)[np.argsort(sent[mine], kind="stable")]:
        level = min(most, level + refill * (sent[i] - last))
        last = sent[i]
        out[i] = level < min(spent[i], most) if whole else level <= 0.0
        level -= 0.0 if out[i] else spent[i]
    return out


def _largest(engine: Engine, mine: BoolArray, share_ratio: float) -> BoolArray:
    """The tenant's largest calls, as many as leave its share."""
    spent = np.where(mine, tokens_of(engine), 0.0)
    order = np.argsort(spent, kind="stable")
    out: BoolArray = np.zeros(len(spent), dtype=np.bool_)
    out[order] = np.cumsum(spent[order]) > _allowed(engine, mine, share_ratio)
    return out & mine


def _allowed(engine: Engine, mine: BoolArray, share_ratio: float) -> float:
    """Tokens that are the share of all, beside those of the others."""
    return share_ratio / max(1.0 - share_ratio, 1e-6) * float(tokens_of(engine)[~mine].sum())


def _seconds(engine: Engine) -> float:
    return max(float(np.ptp(engine.pool.arrived_s)), 1e-3) if len(engine.pool) else 1.0


def tokens_of(engine: Engine) -> FloatArray:
    """Return what each call counts against a quota: the tokens of its prompt and of its answer."""
    return (engine.pool.calls.prompt_tokens + engine.pool.calls.output_tokens).astype(np.float64)
