"""What is the right answer, and what would each fix have done? The truth of a run, from the simulator's own books.

A fix is judged by simulating the same window again with it: same seed, same arrivals, same dice (common random numbers).
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from overrun.sample_traces.simulator.app import Outcome

_LIMIT: Final = re.compile(r"(ttft|e2el):(\d+)")
_QUANTILES: Final = (50, 95, 99)


def limits_s(slo: str) -> dict[str, float]:
    """The limits of an SLO text, in seconds."""
    return {key: float(value) / 1000.0 for key, value in _LIMIT.findall(slo)}


def breach_ratio(outcomes: list[Outcome], slo: str) -> float | None:
    """Share of requests over a limit or failed; None without requests."""
    limits = limits_s(slo)
    bad = sum(
        not o.ok
        or o.e2e > limits.get("e2el", np.inf)
        or (o.ttft or 0.0) > limits.get("ttft", np.inf)
        for o in outcomes
    )
    return bad / len(outcomes) if outcomes else None


def latency(outcomes: list[Outcome]) -> dict[str, Any]:
    """Percentiles of the successful requests in milliseconds, and how many there were."""
    good = [o for o in outcomes if o.ok]
    out: dict[str, Any] = {"requests": len(outcomes), "ok": len(good)}
    for name, values in (
        ("ttft_ms", [o.ttft for o in good if o.ttft is not None]),
        ("e2e_ms", [o.e2e for o in good]),
    ):
        out[name] = (
            {f"p{q}": round(1000.0 * float(np.percentile(values, q)), 3) for q in _QUANTILES}
            if values
            else None
        )
    return out


def users(outcomes: list[Outcome], since_s: float, until_s: float) -> list[Outcome]:
    """Requests that people waited for and that began in [since, until)."""
    return [o for o in outcomes if not o.batch and since_s <= o.request.at < until_s]
