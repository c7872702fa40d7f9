"""connection_churn: every call opens a new connection, and the handshakes are on the critical path.

Detects
    Network time that grew: spans for name lookup, connect and TLS, or connections that are no longer reused.
    Without such spans: a gap before the endpoint starts that spares no call and does not depend on load or size, while the engine's own front end takes no
    longer than before.

Why it hurts
    Name lookup, TCP and TLS take two to four round trips before the first byte; a request with five calls pays five times.

Evidence
    Time in lookup, connect and TLS spans per slow and reference request, share of reused connections, the gap between client
    and engine before and now and how many kinds of calls show one.

Fix
    One client per process with a connection pool and keep-alive, HTTP/2, TLS session resumption, a local DNS cache. The gain
    gives back the former network time: exact.

False alarms
    Name lookups that stall, as many of them as before, are `stalled_connection`.
    A constant gap between regions is `cross_region`; a gap that grows with load is `gateway_queue`. Python and JavaScript
    instrumentations have no spans for handshakes: the gap is all that shows.

Source
    Gap above 5 % of the request, and two round trips: published signature; a total network budget of 150 ms: published.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.name_lookups import handshake_ms, lookup_stalls
from overrun.analysis.evidence.network_gap import engine_gaps, load_correlation
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "connection_churn"
STAGES: Final = ("network", "other")
# Correlation of the gap with the load from which it is a queue; own default.
MOST_CORRELATION: Final = 0.5
# Spread over the median of a gap below which it is a distance rather than handshakes; own default.
CONSTANT: Final = 0.25
# Times the former gap from which one is longer, and the part of the calls that are its quickest; own defaults.
MIN_RATIO: Final = 2.0
QUICK: Final = 0.1


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the handshakes with their gain, None when network time did not grow or grew for another reason."""
    grown = sum(case.excess_ms(stage) for stage in STAGES)
    if grown <= 0.0 or case.excess_ms("network") < 0.2 * grown:
        return None
    shakes = [
        handshake_ms(tree, rows)
        for tree, rows in ((case.slow_tree, case.slow), (case.usual_tree, case.reference))
    ]
    # Without a baseline nobody needs a handshake in every call: what typical requests spend on it counts as far as the network's budget goes.
    if case.tail.reference != "baseline":
        shakes[1] *= case.tail.kept_part("network")
    told = shakes[0] > shakes[1] and shakes[0] > 0.0
    if told and lookup_stalls(case) is not None:
        return RuledOut(
            what=RULE, figure="name lookups stall, and there are no more of them than usual"
        )
    gaps = engine_gaps(case)
    if told:
        claims = {
            "network": min(case.excess_ms("network"), max(shakes[0] - shakes[1], 0.0)),
            "other": 0.0,
        }
        if shakes[0] - shakes[1] > 0.5 * case.excess_ms("network"):
            claims["network"] = case.excess_ms("network")
    else:
        if gaps is None:
            return None
        correlation = max(
            load_correlation(case.calls, gaps.now_ms),
            0.0 if case.front_end is None else case.front_end.correlation,
        )
        if gaps.spread < CONSTANT or correlation > MOST_CORRELATION or gaps.ratio < MIN_RATIO:
            return RuledOut(
                what=RULE,
                figure=f"the gap in front of the engine follows the load (rank correlation {correlation:.2f}) and varies by {gaps.spread:.2f}",
            )
        inside = case.front_inside
        if inside is not None and inside.grew:
            return RuledOut(
                what=RULE,
                figure=f"the engine itself spends {say_ms(inside.slow_ms)} of a slow call beside its stages, {say_ms(inside.usual_ms)} {case.when}",
            )
        # Calls that find no queue do not wait, nor those that find the process idle; a handshake delays every call.
        longer = gaps.before_ms * (MIN_RATIO if case.calls_before is not None else 1.0)
        if float(np.nanquantile(gaps.now_ms, QUICK)) < longer:
            return RuledOut(
                what=RULE,
                figure=f"the quickest tenth of the calls have no gap above {say_ms(longer)}, and no span shows a handshake",
            )
        claims = {stage: case.excess_ms(stage) for stage in STAGES}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    reused = [_reused(tree) for tree in (case.slow_tree, case.usual_tree)]
    usual = case.tail.reference_ms.get("network", 0.0)
    fix = bound_fix(
        case,
        "connection_pooling",
        "Reuse connections",
        "Create the HTTP client once per process (httpx.AsyncClient, requests.Session) with keep-alive longer than the pauses between calls, HTTP/2 and TLS "
        "session resumption; cache name lookups.",
        "calls reuse open connections, as before",
        np.maximum(case.spent("network") - usual, 0.0),
        whatif="connection_pooling",
        parameters={"network_ms": round(usual, 3)},
    )
    former = "before" if case.baseline is not None else "within the network's budget"
    detail = (
        f"lookup, connect and TLS take {say_ms(shakes[0])} of a slow request, {say_ms(shakes[1])} {case.when}"
        if told
        else (
            f"the gap in front of the engine is {say_ms(gaps.median_ms)}, {say_ms(gaps.before_ms)} {former}, at any load"
            if gaps
            else ""
        )
    )
    return named(
        case,
        RULE,
        "network",
        claims,
        Action(
            "app",
            "Roll back the client change, or raise keep-alive and the pool size.",
            "Restore the former client settings.",
            fix,
        ),
        headline=detail,
        because=f"calls open a new connection each time: {detail}",
        evidence={
            "handshake_ms_slow": shakes[0],
            "handshake_ms_reference": shakes[1],
            "reused_ratio_slow": reused[0],
            "reused_ratio_reference": reused[1],
            "gap_ms_now": gaps.median_ms if gaps else None,
            "gap_ms_before": gaps.before_ms if gaps else None,
            "network_share": say_ratio(case.tail.share("network")),
        },
    )


def _reused(tree: Tree) -> float | None:
    """Share of calls that say that their connection was reused, None where none says."""
    told = tree.frame["reused"].drop_nulls().str.to_lowercase()
    return float((told == "true").to_numpy().mean()) if len(told) else None
