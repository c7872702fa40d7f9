"""stalled_connection: calls stall before they are connected, in a name lookup or in a connection attempt that is repeated.

Detects
    Name lookups by their spans: some take a resolver's time-out (5 s), the others a few milliseconds, and there are no more of them than before. Without such
    spans, late calls that take one of the known constants longer than usual: 5, 10 or 15 s of a resolver, or 1, 3, 7 s after which TCP asks again. Then any
    other wait that is the same each time (it scatters no more than usual calls do), of calls that read and write no more than usual.

Why it hurts
    A lost packet costs a call whole seconds, however fast the endpoint is; it looks like spikes of the provider at random.

Evidence
    The part of lookups that stall and their time; or how many late calls take which constant longer, with the interval of that part and what chance would give.

Fix
    Names: one question at a time (resolv.conf single-request-reopen, use-vc), a cache on the node, fewer search domains. Connections: keep them open, look for
    dropped SYN packets (full accept queues, connection tracking, a firewall). Another fixed wait: a sign-in that is tried elsewhere first, a proxy or a
    metadata server that does not answer; after silences, connections that were closed while no call used them. The gain gives these calls the usual time.

False alarms
    More lookups and handshakes than before are `connection_churn`. A time-out of the application's own with a second attempt takes a constant as
    well: recorded attempts are left out.

Source
    resolv.conf(5): 5 s; RFC 6298: 1 s, doubled each time. Four of five late calls at a constant, at the low end of the interval, and twice what chance gives.
    kubernetes/kubernetes#56903, projectcalico/calico#4680; langchain-ai/langchain-google#1485 (10.6 s), defilantech/LLMKube#459 (30 s after pauses).
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.constant_added import CONNECT, FIXED, LOOKUP
from overrun.analysis.evidence.name_lookups import lookup_stalls
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ms, say_ratio

RULE: Final = "stalled_connection"
# A fixed wait of a common time-out that follows silences.
STALE: Final = "stale connection"
_FIX: Final = {
    LOOKUP: (
        "Mend name resolution",
        "A lookup that takes a resolver's time-out (5 s by default) lost its first question: look for lost UDP packets and for A and AAAA asked at once over "
        "one port (resolv.conf: single-request-reopen, use-vc; a node-local DNS cache; fewer search domains with ndots:1), and cache lookups in the process.",
        "Ask another resolver, or put the address of the endpoint into the hosts file of the process.",
    ),
    CONNECT: (
        "Mend what drops connection attempts",
        "A connection that is asked for again after 1, 3 and 7 s lost its SYN: look at full accept queues (somaxconn), connection tracking tables, NAT ports and "
        "firewalls, and keep connections open so that few are asked for.",
        "Keep connections open longer than the pauses between calls, so that few are asked for.",
    ),
    FIXED: (
        "Find what the client waits for",
        "What works or queues takes another time each time; this is a pause or a time-out before the endpoint has the call. Compare one call's log of the HTTP "
        "client at debug level with its start: sign-in (a metadata server or token endpoint that is tried first), a proxy or an IPv6 address that does not answer, "
        "a sleep, a retry after a read time-out.",
        "Call the endpoint with the former client settings (sign-in, proxy, version of the SDK).",
    ),
    STALE: (
        "Do not use connections that were idle for long",
        "A balancer, NAT or server drops a connection that no call uses for some minutes, and the next call on it waits for the client's time-out. Let the client's pool "
        "close idle connections earlier than that (keepalive_expiry, idle time-out), switch TCP keep-alive on, and set a shorter time-out until the answer begins.",
        "Set the pool's idle time-out below that of the balancer in between, or close idle connections before each call after a pause.",
    ),
}
_SAID: Final = {
    LOOKUP: "name lookups stall",
    CONNECT: "connection attempts are repeated",
    FIXED: "calls stand still for the same time each",
    STALE: "calls after a silence wait for a connection that was closed meanwhile",
}


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return what stalls with its gain, None where neither spans nor a constant tell of it."""
    by_span = _by_spans(case)
    return by_span or _by_constant(case)


def _by_spans(case: Case) -> Diagnosis | NotEnoughData | None:
    claims = {"network": case.excess_ms("network")}
    stalls = lookup_stalls(case) if enough(case, claims) else None
    if stalls is None:
        return None
    detail = (
        f"{say_ratio(stalls.ratio)} of the name lookups take {say_ms(stalls.stalled_ms)} ({say_ms(stalls.quick_ms)} at the median {case.when}), and there are no "
        f"more of them than {'before' if case.baseline is not None else 'usual'} ({stalls.each_now:.2g} a request)"
    )
    evidence = {
        "stalled_ratio": stalls.ratio,
        "stalled_ms": stalls.stalled_ms,
        "lookup_ms_usual": stalls.quick_ms,
        "lookups_per_request": stalls.each_now,
        "lookups_per_request_before": stalls.each_before,
    }
    every = np.ones(len(case.values), np.bool_)
    return _named(case, LOOKUP, claims, f"name lookups stall: {detail}", evidence, every)


def _by_constant(case: Case) -> Diagnosis | NotEnoughData | None:
    found = case.constant_added
    if found is None:
        return None
    hit, part = case.share_of_slow(found.traces)
    claims = case.facts["constant"].excess_ms
    if not enough(case, claims):
        return None
    what = STALE if found.is_timeout and case.reuse is not None else found.what
    said = f"{_SAID[what]}, by the time that they add: {found.hits:,} of {found.late:,} late calls take {found.label} longer than the usual {say_ms(found.usual_ms)}"
    if what == STALE and case.reuse is not None:
        said += f"; {case.reuse.after_late:,} of {case.reuse.after:,} calls after {case.reuse.from_s:,.0f} s of silence do"
    told = {name: value for name, value in found._asdict().items() if name != "traces"}
    return _named(case, what, claims, said, told | {"share_of_slow": part}, hit)


def _named(
    case: Case,
    what: str,
    claims: dict[str, float],
    said: str,
    evidence: Mapping[str, object],
    hit: np.ndarray,
) -> Diagnosis | NotEnoughData:
    title, detail, at_once = _FIX[what]
    stage = max(claims, key=lambda name: claims[name])
    usual = case.tail.usual_ms(stage)
    saved = np.where(hit, np.maximum(case.spent(stage) - usual, 0.0), 0.0)
    network = stage == "network"
    fix = bound_fix(
        case,
        "connect_at_once",
        title,
        detail,
        "these calls take the usual time",
        saved,
        whatif="connection_pooling" if network else None,
        parameters={"network_ms": round(usual, 3)} if network else None,
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action("platform", at_once, "Restore the former settings.", fix),
        headline=said,
        because=said,
        evidence=evidence,
        among=np.flatnonzero(case.breaching & hit),
    )
