"""Which replica is slowest beside its peers, and how much do slow requests lose on it?"""

from __future__ import annotations

import numpy as np

from overrun.analysis.evidence.call_pace import log_pace
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.fleet import (
    Replica,
)


def lost_on(case: Case, name: str) -> float:
    """Return the share of the time of slow requests' calls beyond what their tokens usually take that went by on one replica.

    An agent that makes several calls meets a slow replica in one of them: the others, quick as ever, show nothing of it.
    """
    slow = case.calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    beyond = np.where(
        slow,
        np.nan_to_num(
            case.calls.of("e2e_ms") * np.maximum(0.0, 1.0 - np.exp(-log_pace(case.calls)))
        ),
        0.0,
    )
    mine = (case.calls.frame["engine_instance"] == name).fill_null(value=False).to_numpy()
    return float(beyond[mine].sum() / beyond.sum()) if beyond.sum() > 0.0 else 0.0


def slowest(now: list[Replica], before: dict[str, Replica]) -> tuple[Replica, float, float]:
    """Return the replica that lags most, how many times slower than the median of its peers, and the standard score of that.

    A lag that was there before is taken off: it is not what changed.
    """
    best: tuple[Replica, float, float] | None = None
    for one in now:
        peers = [other for other in now if other is not one]
        lag = one.pace - float(np.median([peer.pace for peer in peers]))
        error = float(np.hypot(one.error, np.median([peer.error for peer in peers])))
        old = before.get(one.name)
        old_peers = [before[peer.name].pace for peer in peers if peer.name in before]
        if old is not None and old_peers:
            lag -= max(0.0, old.pace - float(np.median(old_peers)))
        if best is None or lag > np.log(best[1]):
            best = (one, float(np.exp(lag)), lag / error)
    if best is None:
        raise AssertionError("there are replicas to compare")
    return best
