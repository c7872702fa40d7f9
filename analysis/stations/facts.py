"""What is known of the part that holds the time, as named facts for the tables of mechanisms and advice? Numbers, booleans and texts; None is unknown.

Each quantity gives `<name>_now`, `<name>_before`, `<name>_ratio`, `<name>_grew` and `<name>_fell`: means of the incident and of what it is compared with, and whether they
differ clearly (`sides.CLEAR`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.ceilings import FULL, ROOM, ceilings
from overrun.analysis.stations.parts import Part
from overrun.analysis.stations.peers import full_and_free, room_without, work_each
from overrun.analysis.stations.sides import each, mean, quotient
from overrun.analysis.stations.state import Judged
from overrun.analysis.stations.station import Group
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.conditions import Fact, Facts
from overrun.analysis.words.finding import printable

# Bins beside an onset in which a full cache may have begun it; own default.
_BESIDE: Final = 5
# Quantities with before, now, ratio, grew and fell.
QUANTITIES: Final = (
    *("hit_rate", "prompt_tokens_each", "new_tokens_each", "output_tokens_each", "prompts_for_a_token"),
    *("external_hit_rate", "batch", "queue_s", "cached_tokens_each", "token_s", "prompt_token_s", "clock_hz", "gpu_util", "drafts_accepted", "kv", "running", "waiting"),
    *("preemptions_each", "output_tokens", "done", "cpu", "throttled", "replicas"),
)  # fmt: skip
# The other facts; the table is checked against both lists.
OTHERS: Final = (
    *("phase", "role", "state", "key", "which", "loop", "compared", "arrivals_first", "arrivals_ratio"),
    *("restarted", "restart", "new_speculation", "new_connector", "connector", "external_cache", "counts_cache"),
    *("counts_requests", "stations", "peers_free", "free", "room_without", "peer_work_ratio", "began_full", "kv_room", "kv_high", "kv_full", "running_high"),
    *("cpu_full", "adapter_slots", "changed", "cache_row_ratio"),
)  # fmt: skip
# Those that are quotients: unknown where what stands below the line is.
_QUOTIENTS: Final = (
    *("prompt_tokens_each", "new_tokens_each", "output_tokens_each", "prompts_for_a_token"),
    *(
        "prompt_token_s",
        "preemptions_each",
        "cached_tokens_each",
        "external_hit_rate",
        "batch",
        "queue_s",
    ),
)
ENDINGS: Final = ("now", "before", "ratio", "grew", "fell")
NAMES: Final = frozenset(
    {*OTHERS, *(f"{name}_{ending}" for name in QUANTITIES for ending in ENDINGS)}
)
_CONNECTORS: Final = ("offload", "external_prefix", "lmcache", "kv_connector", "nixl")
_SPECULATION: Final = ("spec_decode", "spec_accept", "draft")


def facts_of(case: Case, part: Part, judged: Judged) -> Facts:
    """Return all facts of a part in a state."""
    facts: dict[str, Fact] = {}
    for name, (above, below) in _quantities(part.group).items():
        facts |= _compared(case, name, above, below)
    return (
        facts
        | _about_state(case, part, judged)
        | _about_changes(case)
        | _about_peers(case, judged, part.group)
    )


def _quantities(group: Group) -> dict[str, tuple[FloatArray | None, FloatArray | None]]:
    """Each quantity as what stands above and below a line, the latter None where there is no line."""
    done, written = group.done(), group.quantity("output_tokens")
    prompts = group.quantity("prompt_tokens")
    drafts = group.quantity("drafted")
    accepted = group.quantity("accept_rate")
    accepted = group.quantity("accept_length") if accepted is None else accepted
    found = {
        "hit_rate": (group.hit_rate(), None),
        "external_hit_rate": (group.quantity("external_hits"), group.quantity("external_queries")),
        "batch": (done, group.quantity("executions")),
        "queue_s": (group.quantity("queue"), done),
        "prompt_tokens_each": (prompts, done),
        "new_tokens_each": (group.new_tokens(), done),
        "output_tokens_each": (written, done),
        "prompts_for_a_token": (prompts, written),
        "cached_tokens_each": (_product(group.hit_rate(), prompts), done),
        "token_s": (group.token_time(), None),
        "prompt_token_s": (group.quantity("prefill"), group.new_tokens()),
        "drafts_accepted": (group.quantity("accepted"), drafts) if drafts is not None else (accepted, None),
        "preemptions_each": (group.quantity("preemptions"), done),
        "clock_hz": (group.quantity("gpu_clock"), None),
        "done": (done, None),
    }  # fmt: skip
    for key in (
        *("gpu_util", "kv", "running", "waiting", "output_tokens", "cpu"),
        *("throttled", "replicas"),
    ):
        found[key] = (group.quantity(key), None)
    none: tuple[FloatArray | None, FloatArray | None] = (None, None)
    return {
        name: none if values[0] is None or (name in _QUOTIENTS and values[1] is None) else values
        for name, values in found.items()
    }


def _compared(
    case: Case, name: str, above: FloatArray | None, below: FloatArray | None
) -> dict[str, Fact]:
    sides = case.sides
    if above is None:
        return dict.fromkeys(f"{name}_{ending}" for ending in ENDINGS)
    series = above if below is None else each(above, below)
    now, before = (
        mean(above, side) if below is None else quotient(above, below, side)
        for side in (sides.now, sides.then)
    )
    known = before is not None and now is not None
    return {
        f"{name}_now": now,
        f"{name}_before": before,
        f"{name}_ratio": now / before if now is not None and before else None,
        f"{name}_grew": sides.grew(series) if known else None,
        f"{name}_fell": sides.fell(series) if known else None,
    }


def _about_state(case: Case, part: Part, judged: Judged) -> dict[str, Fact]:
    usage = case.sides.mean(part.group.quantity("kv"))
    first = case.demand.first if case.sides.then is not None else None
    return {
        "phase": part.phase,
        "role": part.group.role,
        "state": judged.state,
        "key": judged.key,
        "which": printable(judged.which, 200),
        "loop": case.demand.loop,
        "compared": case.sides.then is not None,
        "arrivals_first": first,
        "arrivals_ratio": case.demand.growth,
        "stations": float(len(part.group.stations)),
        "counts_requests": part.group.done() is not None,
        "counts_cache": part.group.hit_rate() is not None,
        "kv_room": None if usage is None else usage < ROOM,
        "kv_high": _kv_high(case, part.group),
        "running_high": _running_high(case, part.group),
        "began_full": _began_full(case, part.group),
        "kv_full": any(
            one.which == "KV cache"
            for station in part.group.stations
            for one in ceilings(case, station)
        ),
        "cpu_full": any(
            one.which == "CPU" for station in part.group.stations for one in ceilings(case, station)
        ),
        "adapter_slots": _adapters(case, part.group),
        "external_cache": (case.sides.mean(part.group.quantity("external_queries")) or 0.0) > 0.0,
        "cache_row_ratio": _cache_per_running(case, part.group),
    }


def _product(one: FloatArray | None, other: FloatArray | None) -> FloatArray | None:
    return None if one is None or other is None else one * other


def _kv_high(case: Case, group: Group) -> float | None:
    """The 95th percentile of the fullest station's KV cache."""
    known = [
        values[case.sides.now & np.isfinite(values)]
        for one in group.stations
        if (values := one.sums.get("kv")) is not None
    ]
    return max((float(np.percentile(some, 95.0)) for some in known if len(some)), default=None)


def _running_high(case: Case, group: Group) -> float | None:
    """The largest number that ran at once."""
    running = group.quantity("running")
    some = None if running is None else running[case.sides.now & np.isfinite(running)]
    return None if some is None or not len(some) else float(some.max())


def _cache_per_running(case: Case, group: Group) -> float | None:
    """How many times its former part of the KV cache a running request takes."""
    usage, running = group.quantity("kv"), group.quantity("running")
    now, then = (quotient(usage, running, side) for side in (case.sides.now, case.sides.then))
    return now / then if now is not None and then else None


def _about_changes(case: Case) -> dict[str, Fact]:
    changes = case.changes
    restarts, connectors = changes.restarts(), changes.new(*_CONNECTORS)
    return {
        "restarted": bool(restarts),
        "restart": restarts[0].what if restarts else "",
        "new_speculation": bool(changes.new(*_SPECULATION)),
        "new_connector": bool(connectors),
        "connector": printable(connectors[0].name) if connectors else "",
        "changed": bool(changes.found),
    }


def _about_peers(case: Case, judged: Judged, group: Group) -> dict[str, Fact]:
    """Whether peers are free (none is where there are none), and what one station of the state has beside them."""
    if len(group.stations) < 2:
        return {"peers_free": False, "free": "", "room_without": None, "peer_work_ratio": None}
    _, free = full_and_free(case.sides, group)
    alone = judged.stations if judged.key in ("peer", "stopped") else []
    others = [one for one in group.stations if one not in alone]
    work = work_each(case.sides, group, others) if others else 0.0
    return {
        "peers_free": bool(free),
        "free": ", ".join(printable(one.name) for one in free[:4]),
        "room_without": room_without(case.sides, group, alone[0]) if len(alone) == 1 else None,
        "peer_work_ratio": work_each(case.sides, group, alone) / work
        if alone and work > 0.0
        else None,
    }


def _began_full(case: Case, group: Group) -> bool | None:
    """Whether it began when the KV cache was full and requests were thrown out, and stayed after that."""
    usage, thrown = group.quantity("kv"), group.quantity("preemptions")
    if usage is None or thrown is None or case.sides.then is None:
        return None
    at = int(np.argmax(case.sides.now))
    beside = np.abs(np.arange(len(usage)) - at) <= _BESIDE
    far = case.sides.now & ~beside
    if not far.any():
        return None
    began = (
        float(np.nanmax(usage[beside], initial=0.0)) >= FULL
        and float(np.nansum(thrown[beside])) > 0.0
    )
    over = float(np.nansum(thrown[far])) == 0.0 and (mean(usage, far) or 0.0) < ROOM
    return began and over


def _adapters(case: Case, group: Group) -> bool | None:
    """Whether all slots of adapters are taken; None where nobody reports them."""
    known = [
        mean(values, case.sides.now) or 0.0
        for station in group.stations
        for name, values in station.resources.items()
        if "lora" in name.lower() and "util" in name.lower()
    ]
    return max(known) >= 0.98 if known else None
