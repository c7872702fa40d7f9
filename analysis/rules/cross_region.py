"""cross_region: calls cross to another region, and the distance is on the path.

Detects
    A gap between client and engine (or a network stage) that is nearly constant, tens of milliseconds or more, larger than
    before, and regions of the two sides that differ.

Why it hurts
    Light takes about 10 ms per 1,000 km there and back, and every call of a chain pays it again; streaming hides it only for
    the later tokens.

Evidence
    Regions of caller and callee, the gap now and before with its spread, the network time of slow and reference requests.

Fix
    Place caller and model in one region, or route to the nearest deployment. The gain gives back the former network time:
    exact.

False alarms
    A gap that varies with load is a queue (`gateway_queue`), one that varies from call to call handshakes
    (`connection_churn`). Without region attributes the rule says nothing: record cloud.region on both sides.

Source
    A gap close to constant, by region pair: published signature; spread below a quarter of the median and 20 ms: own defaults.
"""

from typing import Final

import numpy as np
import polars as pl

from analysis.case import Case, too_few_breaches
from analysis.cause import Action, bound_fix, enough, named
from analysis.finding import Diagnosis, NotEnoughData, printable, say_ms
from analysis.gaps import engine_gaps
from analysis.tree import Tree

RULE: Final = "cross_region"
MIN_GAP_MS: Final = 20.0
CONSTANT: Final = 0.25


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the distance with its gain, None when network time did not grow or no regions differ."""
    if case.tail.share("network") < 0.25:
        return None
    pair = _regions(case.slow_tree)
    gaps = engine_gaps(case)
    constant = gaps is not None and gaps.spread < CONSTANT and gaps.median_ms - gaps.before_ms >= MIN_GAP_MS
    if pair is None:
        if constant:
            return NotEnoughData("network time rose by a constant, as by distance: record cloud.region on both sides")
        return None
    before = _regions(case.tree_before) if case.tree_before is not None else None
    claims = {"network": case.excess_ms("network")}
    if before == pair or (gaps is not None and not constant) or not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    usual, now = case.tail.reference_ms.get("network", 0.0), case.tail.tail_ms.get("network", 0.0)
    here, there = (printable(name, 30) for name in pair)
    fix = bound_fix(
        case, "co_location", f"Call a deployment in {here}",
        f"Route {here} to a deployment of its own region; until then keep connections open, so that the distance is paid once per call.",
        "the network takes what it took before", np.maximum(case.spent("network") - usual, 0.0))
    return named(
        case, RULE, "network", claims,
        Action("platform", f"Route calls from {here} back to the former region.", f"Route to {there} again.", fix),
        headline=f"calls go from {here} to {there}, and the network takes {say_ms(now)} of a slow request, {say_ms(usual)} of a {case.tail.reference} one",
        because=f"calls go from {here} to {there}",
        evidence={
            "region": here, "peer_region": there, "network_ms_slow": now, "network_ms_reference": usual, "gap_ms_now": gaps.median_ms if gaps else None,
            "gap_ms_before": gaps.before_ms if gaps else None, "gap_spread": gaps.spread if gaps else None},
        weight=0.97)


def _regions(tree: Tree) -> tuple[str, str] | None:
    """The pair of regions that most calls cross: by the peer's attribute, else by the region of parent and child; None where they do not differ."""
    frame = tree.frame
    own = frame.select("trace_key", parent_key="span_key", parent_region="region")
    both = frame.join(own, on=["trace_key", "parent_key"], how="left").with_columns(
        here=pl.when(pl.col("peer_region").is_not_null()).then(pl.col("region")).otherwise(pl.col("parent_region")),
        there=pl.coalesce("peer_region", "region"))
    crossing = both.filter(pl.col("here").is_not_null() & pl.col("there").is_not_null() & (pl.col("here") != pl.col("there")))
    if crossing.height < 0.2 * max(tree.requests, 1):
        return None
    top = crossing.group_by("here", "there").len().sort("len", "here", "there", descending=[True, False, False])
    return str(top["here"][0]), str(top["there"][0])
