"""What if late calls were sent twice, and the first answer counted? Late: without a first token after some delay. Resampled from recorded calls.

The second call's wait is drawn from calls of the same model in the same minute (at least 20 of them, else the nearest in time). Another replica or
provider would have answered like that if their slowness is independent. The band runs from independent draws to a second call that is exactly as slow as
the first. Then hedging gains nothing: the cause is in the request (a long prompt or answer), not in the server. Decode time stays the call's own.
Duplicates add load, which is not modelled: above saturation hedging makes latency worse.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.whatif.substitute_calls import POOL, Neighbours
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import SEED, say_ms

DRAWS: Final = 8


def predict(
    facts: Facts,
    *,
    delay_ms: Annotated[
        float,
        Meta(
            gt=0,
            lt=1e9,
            description="how long to wait for the first token before the second call, in ms (P95 of TTFT is usual)",
        ),
    ],
) -> Prediction:
    """Return the answer with `cost.duplicate_ratio`, the share of calls that are sent twice."""
    fix = Fix(
        "hedging",
        f"Hedge calls without a token after {say_ms(delay_ms)}",
        "the second call is independent of the first, the slower one is cancelled, and there is capacity for the extra load",
        {"delay_ms": delay_ms},
    )
    wait, e2e, error = (
        facts.call("ttft_ms"),
        facts.call("e2e_ms"),
        facts.calls["error"].fill_null(False).to_numpy(),
    )
    wait = np.where(np.isnan(wait), e2e, wait)
    usable = ~error & ~np.isnan(wait)
    if int(usable.sum()) < 2 * POOL:
        why = f"{int(usable.sum())} answered calls to draw the second call's time from, at least {2 * POOL} are needed: widen the window"
        return refuse(facts, fix, "resampled", why)
    late = usable & (wait > delay_ms)
    rng = np.random.default_rng(SEED)
    others = Neighbours(facts, usable)
    outcomes = [
        _after(facts, wait, late, wait[others.draw(np.flatnonzero(late), rng)], delay_ms)
        for _ in range(DRAWS)
    ]
    calls = int((usable & (facts.request_of >= 0)).sum())
    cost = {"duplicate_ratio": float((late & (facts.request_of >= 0)).sum()) / max(1, calls)}
    return predict_times(
        facts,
        fix,
        outcomes[0],
        method="resampled",
        cost=cost,
        draws=[*outcomes[1:], _half_way(recorded(facts), outcomes[0])],
        reasons={"load": "the load of the second calls is not modelled"},
    )


def _after(
    facts: Facts, wait: FloatArray, late: BoolArray, second: FloatArray, delay_ms: float
) -> Times:
    new = wait.copy()
    new[late] = np.minimum(wait[late], delay_ms + second)
    ttft_delta, e2e_delta = facts.per_request(new - wait)
    old = recorded(facts)
    return Times(old.ttft + ttft_delta, old.e2e + e2e_delta, old.tpot)


def _half_way(old: Times, new: Times) -> Times:
    """Half of the slow calls are slow again: the middle of the band between independent and alike."""
    return Times(*((old.of(metric) + new.of(metric)) / 2.0 for metric in ("ttft", "e2e", "tpot")))
