"""What is certain where a sampler kept the slow and failed requests alone? How many were counted says which share the slow ones are, and how slow they are.

Of N requests of which the n slowest are stored, the quantile p is known from p = 1 - n/N on. Quick requests to compare them with are missing: no cause is named.
"""

from __future__ import annotations

import numpy as np

from overrun.analysis.diagnosis.verdict import RECHECK_DEFAULT_S, Verdict
from overrun.analysis.numbers.latency.percentiles import Latency, no_latency
from overrun.analysis.numbers.outcomes.goodput import judge
from overrun.analysis.numbers.stages.budget import path_of, stage_times
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.finding import MIN_BREACHING, say_ms, say_ratio
from overrun.analysis.words.slo import Slo

_WHY = "the requests that were quick are not stored, so the slow ones cannot be compared with them"
_AT = {0.5: "p50", 0.75: "p75", 0.9: "p90", 0.95: "p95", 0.99: "p99", 0.999: "p99_9"}


def verdict(frame: RequestFrame, slo: Slo, counted: float, detail: str) -> Verdict | None:
    """Return the verdict on requests of which `counted` were made and all slow or failed ones are stored; None where these are within the target."""
    judged = judge(frame.rows, slo)
    missed = {name: judged.misses[name] & ~judged.error for name in slo.limits()}
    metric = max(missed, key=lambda name: int(missed[name].sum()))
    bad, n = int(judged.bad.sum()), max(round(counted), frame.rows.height)
    slow = int(missed[metric].sum())
    allowed = 1.0 - slo.goodput_target
    if slow < MIN_BREACHING or wilson(bad, n, Z_ONE_SIDED)[0] <= allowed:
        return None
    times = stage_times(frame.rows.filter(missed[metric]), path_of(metric))
    stage = max(times.ms, key=lambda name: float(times.ms[name].mean()))
    took, whole = float(times.ms[stage].mean()), float(times.total_ms.mean())
    return Verdict(
        status="over_budget",
        metric=metric,  # type: ignore[arg-type]
        stage=stage,
        sentence=(
            f"At least {say_ratio(bad / n)} of {n:,} requests miss the SLO (target {say_ratio(slo.goodput_target)} good): {detail}. "
            f"{stage} takes {say_ms(took)} of the {say_ms(whole)} of a request over the {metric.upper()} limit; {_WHY}."
        ),
        recheck_after_s=RECHECK_DEFAULT_S,
        reasons=dict.fromkeys(
            ("cause", "onset", "trend", "affected", "owner", "mitigation", "rollback"), _WHY
        ),
    )


def latency(frame: RequestFrame, counted: float, why: str) -> Latency:
    """Return the E2E percentiles that are certain, the others null with the reason."""
    out = no_latency(why, frame.rows.height)
    slow = np.sort(frame.rows.filter(~frame.rows["error"])["e2e_ms"].to_numpy())
    told = out.e2e_ms
    for p, name in _AT.items():
        back = (1.0 - p) * counted
        if 1.0 <= back <= len(slow):
            setattr(told, name, float(slow[len(slow) - round(back)]))
            told.reasons.pop(name, None)
    if len(slow):
        told.max, told.source = float(slow[-1]), "request spans"
        for name in ("max", "source"):
            told.reasons.pop(name, None)
    return out
