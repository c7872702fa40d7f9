"""cross_region: calls go to another region, and the distance is on the critical path.

Detects
    A gap between client and engine (or a network stage) that is nearly constant, tens of milliseconds or more,
    larger than before, and different regions of the two sides. If no regions are recorded, the constant gap
    alone is reported as distance, with less weight, unless it follows the load.

Why it hurts
    Light takes about 10 ms per 1,000 km there and back, and every call of a chain pays it again. Streaming
    hides it for the later tokens only.

Evidence
    Regions of caller and callee, the gap now and before with its spread, the network time of slow and reference requests.

Fix
    Place caller and model in one region, or route to the nearest deployment. The gain gives back the former network time:
    exact.

False alarms
    A gap that varies with load is a queue (`gateway_queue`). A gap that varies from call to call comes from
    handshakes (`connection_churn`). A new hop that adds a fixed time to every call looks like distance: record
    cloud.region on both sides to separate the two. If both regions are recorded and equal, it is no distance.

Source
    A gap close to constant, by region pair: published signature; spread below a quarter of the median and 20 ms: own defaults.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.client_view import outside
from overrun.analysis.evidence.network_gap import CONSTANT, engine_gaps, load_correlation
from overrun.analysis.evidence.regions import both_recorded, crossed, moved_region
from overrun.analysis.evidence.thresholds import FOLLOWS, LEAST_PART, MOST
from overrun.analysis.words.finding import (
    Diagnosis,
    Fix,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
)

RULE: Final = "cross_region"
MIN_GAP_MS: Final = 20.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the distance with its gain, None when network time did not grow or regions were crossed before."""
    claims = {"network": case.excess_ms("network")}
    if case.tail.share("network") < 0.25 or not enough(case, claims):
        return _from_outside(case)
    pair = crossed(case.slow_tree)
    before = crossed(case.tree_before) if case.tree_before is not None else None
    gaps = engine_gaps(case)
    constant = (
        gaps is not None
        and gaps.spread < CONSTANT
        and gaps.median_ms - gaps.before_ms >= MIN_GAP_MS
    )
    if pair is None:
        if gaps is None or not constant:
            return None
        if both_recorded(case.slow_tree):
            return RuledOut(
                what=RULE,
                figure=f"the gap is a constant {say_ms(gaps.median_ms)} ({say_ms(gaps.before_ms)} {case.when}), but both sides are in one region",
            )
        if load_correlation(case.calls, gaps.now_ms) >= FOLLOWS:
            return None
    elif before == pair or (gaps is not None and not constant):
        return None
    usual, now = case.tail.reference_ms.get("network", 0.0), case.tail.tail_ms.get("network", 0.0)
    here, there = (printable(name, 30) for name in pair) if pair is not None else (None, None)
    former = "before" if case.baseline is not None else "within the network's budget"
    always = (
        f"every call spends {say_ms(gaps.median_ms)} in the network, {say_ms(gaps.before_ms)} {former}, at any load"
        if gaps is not None
        else ""
    )
    said = (
        f"calls go from {here} to {there}"
        if pair is not None
        else f"{always}, as a longer distance would cause"
    )
    return named(
        case,
        RULE,
        "network",
        claims,
        Action(
            "platform",
            f"Route calls{f' from {here}' if here else ''} back to the former region.",
            f"Route {f'to {there}' if there else 'as now'} again.",
            _fix(case, here, usual, gaps.before_ms if gaps else None),
        ),
        headline=f"{said}, and the network takes {say_ms(now)} of a slow request, {say_ms(usual)} of a {case.tail.reference} one"
        + ("" if pair else "; cloud.region is not recorded on both sides"),
        because=said,
        evidence={
            "region": here,
            "peer_region": there,
            "network_ms_slow": now,
            "network_ms_reference": usual,
            "gap_ms_now": gaps.median_ms if gaps else None,
            "gap_ms_before": gaps.before_ms if gaps else None,
            "gap_spread": gaps.spread if gaps else None,
        },
    )


def _from_outside(case: Case) -> Diagnosis | NotEnoughData | None:
    """Without engine telemetry, the way is part of the first token: calls cross regions that they did not before, and the quickest take as much longer as most do.

    A queue spares some.
    """
    stage = case.worst("first_token", "generation")
    if case.tree_before is None or case.tail.share(stage) < 0.25:
        return None
    pair = crossed(case.slow_tree) or moved_region(case.slow_tree, case.tree_before)
    found = outside(case) if pair is not None and crossed(case.tree_before) != pair else None
    if pair is None or found is None:
        return None
    quick, most = (
        float(np.quantile(found.now_ms, q) - np.quantile(found.before_ms, q))
        for q in (LEAST_PART, MOST)
    )
    claims = {
        stage: min(
            case.excess_ms(stage), quick * case.slow["llm_calls"].fill_null(1).to_numpy().mean()
        )
    }
    if quick < max(MIN_GAP_MS, MOST * most) or not enough(case, claims):
        return None
    here, there = (printable(name, 30) for name in pair)
    said = f"calls go from {here} to {there}"
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Route calls from {here} back to the former region.",
            f"Route to {there} again.",
            bound_fix(
                case,
                "co_location",
                f"Call a deployment in {here}",
                f"Route {here} to a deployment of its own region; until then keep connections open, so that "
                "the distance is paid once per call.",
                "first tokens come as fast as they did from there",
                np.minimum(case.spent(stage), quick),
            ),
        ),
        headline=f"{said}, and {'first tokens' if found.first_token else 'whole calls'} take {say_ms(most)} longer, the quickest {say_ms(quick)}",
        because=said,
        evidence={
            "region": here,
            "peer_region": there,
            "added_ms_quick": quick,
            "added_ms_median": most,
        },
    )


def _fix(case: Case, here: str | None, usual_ms: float, way_ms: float | None) -> Fix:
    calls = np.maximum(case.reference["llm_calls"].fill_null(1).to_numpy().mean(), 1.0)
    return bound_fix(
        case,
        "co_location",
        f"Call a deployment in {here or 'the region of the callers'}",
        f"Route {here or 'the callers'} to a deployment of {'its' if here else 'their'} own region (a changed network route, DNS entry or "
        "VPN can cause the same); until then keep connections open, so that the distance is paid once per call.",
        "the network time is the former one",
        np.maximum(case.spent("network") - usual_ms, 0.0),
        whatif="co_location",
        parameters={
            "network_ms": round(float(usual_ms / calls if way_ms is None else max(way_ms, 0.0)), 3)
        },
    )
