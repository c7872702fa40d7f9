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

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.name_lookups import handshake_ms, lookup_stalls
from overrun.analysis.evidence.network_gap import (
    CONSTANT,
    LONGER_GAP,
    engine_gaps,
    load_correlation,
)
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.evidence.thresholds import FOLLOWS, LEAST_PART
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms

RULE: Final = "connection_churn"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the handshakes with their gain, None when network time did not grow or grew for another reason."""
    network = case.excess_ms("network")
    if network <= 0.0 or network < LEAST_PART * (network + case.excess_ms("other")):
        return None
    found = _handshakes(case) or _longer_gap(case)
    if not isinstance(found, _Longer) or not enough(case, found.claims):
        return None if isinstance(found, _Longer) else found
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
    return named(
        case,
        RULE,
        "network",
        found.claims,
        Action(
            "app",
            "Roll back the client change, or raise keep-alive and the pool size.",
            "Restore the former client settings.",
            fix,
        ),
        headline=found.said,
        because=f"calls open a new connection each time: {found.said}",
        evidence={
            **found.evidence,
            "reused_ratio_slow": _reused(case.slow_tree),
            "reused_ratio_reference": _reused(case.usual_tree),
        },
    )


class _Longer(NamedTuple):
    """What takes longer in front of the endpoint: its time per stage, in words, and its figures."""

    claims: dict[str, float]
    said: str
    evidence: dict[str, float]


def _handshakes(case: Case) -> _Longer | RuledOut | None:
    """Spans of lookup, connect and TLS that take more of a slow request."""
    slow = handshake_ms(case.slow_tree, case.slow)
    usual = handshake_ms(case.usual_tree, case.reference)
    # Without a baseline nobody needs a handshake in every call: what typical requests spend on it counts as far as the network's budget goes.
    if case.tail.reference != "baseline":
        usual *= case.tail.kept_part("network")
    if slow <= max(usual, 0.0):
        return None
    if lookup_stalls(case) is not None:
        figure = "name lookups stall, and there are no more of them than usual"
        return RuledOut(what=RULE, figure=figure)
    network = case.excess_ms("network")
    claims = {"network": network if slow - usual > 0.5 * network else slow - usual}
    said = f"lookup, connect and TLS take {say_ms(slow)} of a slow request, {say_ms(usual)} {case.when}"
    return _Longer(claims, said, {"handshake_ms_slow": slow, "handshake_ms_reference": usual})


def _longer_gap(case: Case) -> _Longer | NotEnoughData | RuledOut | None:
    """Without such spans: a gap in front of the engine that spares no call, and follows neither load nor what the front end does."""
    gaps, front, inside = engine_gaps(case), case.front_end, case.front_inside
    if gaps is None:
        return None
    follows = max(
        load_correlation(case.calls, gaps.now_ms), 0.0 if front is None else front.correlation
    )
    # Calls that find no queue do not wait, nor those that find the process idle; a handshake delays every call.
    longer = gaps.before_ms * (LONGER_GAP if case.calls_before is not None else 1.0)
    figure = None
    if gaps.spread < CONSTANT or follows > FOLLOWS or gaps.ratio < LONGER_GAP:
        figure = f"the gap in front of the engine follows the load (rank correlation {follows:.2f}) and varies by {gaps.spread:.2f}"
    elif inside is not None and inside.grew:
        figure = f"the engine itself spends {say_ms(inside.slow_ms)} of a slow call beside its stages, {say_ms(inside.usual_ms)} {case.when}"
    elif float(np.nanquantile(gaps.now_ms, LEAST_PART)) < longer:
        figure = f"the quickest tenth of the calls have no gap above {say_ms(longer)}, and no span shows a handshake"
    if figure is not None:
        return RuledOut(what=RULE, figure=figure)
    if not known(case.calls.of("input_tokens")).any():
        return NotEnoughData(
            f"the gap in front of the engine is {say_ms(gaps.median_ms)}, {say_ms(gaps.before_ms)} before. Without input tokens it is not known whether it "
            "follows what the engine's front end tokenises: record gen_ai.usage.input_tokens, or spans of connect and TLS"
        )
    former = "before" if case.baseline is not None else "within the network's budget"
    said = f"the gap in front of the engine is {say_ms(gaps.median_ms)}, {say_ms(gaps.before_ms)} {former}, at any load"
    claims = {stage: case.excess_ms(stage) for stage in ("network", "other")}
    return _Longer(claims, said, {"gap_ms_now": gaps.median_ms, "gap_ms_before": gaps.before_ms})


def _reused(tree: Tree) -> float | None:
    """Share of calls that say that their connection was reused, None where none says."""
    told = tree.frame["reused"].drop_nulls().str.to_lowercase()
    return float((told == "true").to_numpy().mean()) if len(told) else None
