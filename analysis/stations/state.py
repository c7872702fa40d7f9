"""In which state is the part that holds the time? Held back, at a ceiling, more work for each request, slower for the same, as ever but more, stopped, or not known.

Each state is a test. Nothing here names a cause, and where no test holds the state is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.ceilings import (
    ROOM,
    Ceiling,
    ceilings,
    idle,
    merged,
    short_of_computing,
    waits,
)
from overrun.analysis.stations.parts import Part
from overrun.analysis.stations.peers import full_and_free, slower_peer, token_seconds, work_each
from overrun.analysis.stations.sides import each, mean
from overrun.analysis.stations.station import Group, Station
from overrun.analysis.stations.stretch import ranks
from overrun.analysis.stations.work import MORE, WORK, Factor, factors
from overrun.analysis.words.explanation import State

# What the state turns on, for the table of mechanisms: a resource that was cut, idle peers, one of the peers, more arrivals, and so on.
Key = Literal[
    "routing", "peer", "demand", "seats_cut", "kv_cut", "resource", "held", "work", "time", "batch",
    "front", "scheduler", "transfer", "stopped", "delay", "none",
]  # fmt: skip
_PLAIN: Final = ("seats", "KV cache", "instances", "CPU", "number running")
# Peers that are as fast take as much; who is given 15 % more, or has less than a third of what runs elsewhere, is routed to or not. Own defaults.
_UNEVEN: Final = 1.15
_IDLE: Final = 0.3
_SLOWER: Final = 1.5
# A ceiling of throughput: of 1.3 times as many inside, less than a third shows in the rate; own defaults.
_MANY: Final = 1.3
_SHOWS: Final = 0.35
# A wait that is caused by load follows it; from so many bins on a correlation below this is none. Own defaults.
_LEAST: Final = 12
_UNRELATED: Final = 0.2


class Judged(NamedTuple):
    """A state, what it turns on, which resource, station or work that is, what was seen as sentences without a stop, and the stations it is about."""

    state: State
    key: Key
    which: str
    seen: list[str]
    stations: list[Station]


def judge(case: Case, part: Part) -> Judged:
    """Return the state of a part."""
    return _TESTS.get(part.phase, _working)(case, part)


def _queued(case: Case, part: Part) -> Judged:
    routed = _among_peers(case, part)
    if routed is not None:
        return routed
    group, sides = part.group, case.sides
    full = [one for one in group.stations if waits(one, sides.now)]
    running = group.quantity("running")
    queues = [one for one in group.stations if "waiting" in one.sums]
    apart = len(group.stations) > 1 and all("running" not in one.sums for one in queues)
    asked = [merged(group)] if apart else full or group.stations
    ends = sorted((one for station in asked for one in ceilings(case, station)), key=_rank)
    if part.known_by == "waiting" and running is not None and not full and not (apart and ends):
        grew = case.demand.first or sides.grew(group.work())
        few = f"{sides.mean(part.inside) or 0.0:.2f} wait on average, now and then"
        return Judged("normal" if grew else "unknown", "none", "few wait", [few], group.stations)
    full = full or group.stations
    other = [one for one in ends if one.which not in _PLAIN]
    known = [
        one for one in ends if one.which in _PLAIN and (one.which != "number running" or not other)
    ]
    short = short_of_computing(case, group)
    if not known and (delayed := _delayed(case, part)) is not None:
        return delayed
    if known or short:
        return _at_ceiling(case, part, known, short, full)
    return _held_or_unknown(case, part, other, full)


def _rank(one: Ceiling) -> int:
    return _PLAIN.index(one.which) if one.which in _PLAIN else len(_PLAIN)


def _at_ceiling(
    case: Case, part: Part, known: list[Ceiling], short: str, full: list[Station]
) -> Judged:
    """Why a resource is at its end: it became smaller, each request brings more, each takes longer, or more arrive; else it is at its end and no more is known."""
    sides, group = case.sides, part.group
    which = known[0].which if known else "computing"
    seen = [*dict.fromkeys(one.words for one in known), *([short] if short else [])]
    grown = factors(case, group)
    if which == "KV cache" and (cut := _smaller_cache(case, group, grown)):
        return Judged("at_ceiling", "kv_cut", "KV cache, smaller than before", [*seen, cut], full)
    if which in ("seats", "number running") and (cut := _fewer_seats(case, group)):
        return Judged("at_ceiling", "seats_cut", "seats, fewer than before", [*seen, cut], full)
    running = group.quantity("running")
    filled = running is None or (sides.ratio(running) or 1.0) >= 1.05
    for one in sorted(grown, key=lambda one: one.of not in WORK):
        if one.ratio < MORE or one.of == "arrivals":
            continue
        if one.of in WORK:
            return Judged("more_work", "work", one.of, [*seen, one.words], full)
        beyond = not case.demand.first or one.ratio > (case.demand.growth or 0.0)
        if one.of == "time per token" and filled and beyond:
            return Judged("slower", "time", one.of, [*seen, one.words], full)
    if case.demand.first:
        words = [one.words for one in grown if one.of == "arrivals"]
        return Judged("at_ceiling", "demand", which, seen + words, full)
    return Judged("at_ceiling", "resource", which, seen, full)


def _smaller_cache(case: Case, group: Group, grown: list[Factor]) -> str:
    """That a running request takes more of the cache than its length explains, as words; empty if not."""
    sides, usage, running = case.sides, group.quantity("kv"), group.quantity("running")
    if usage is None or running is None or sides.then is None or not sides.former(running):
        return ""
    if any(group.quantity(key) is None for key in ("prompt_tokens", "output_tokens")):
        return ""  # how long requests are is not known
    now = (sides.mean(usage) or 0.0) / max(sides.mean(running) or 0.0, 1e-9)
    then = (sides.former(usage) or 0.0) / (sides.former(running) or 1.0)
    longer = max([one.ratio for one in grown if one.of in WORK] + [1.0])
    if now < _SLOWER * then * longer:
        return ""
    return f"a running request takes {now:.2%} of it instead of {then:.2%}, at equal lengths"


def _fewer_seats(case: Case, group: Group) -> str:
    running, sides = group.quantity("running"), case.sides
    if running is None or sides.then is None:
        return ""
    now, then = (float(np.nanpercentile(running[side], 95.0)) for side in (sides.now, sides.then))
    return f"up to {then:,.0f} ran before" if then > MORE * now else ""


def _held_or_unknown(case: Case, part: Part, other: list[Ceiling], full: list[Station]) -> Judged:
    """Held back where requests wait and a resource is seen free; unknown where nothing tells."""
    sides, group = case.sides, part.group
    running, usage = group.quantity("running"), sides.mean(group.quantity("kv"))
    fewer = running is not None and sides.fell(running)
    free = bool(other) or (usage is not None and usage < ROOM) or fewer
    wait = f"{sides.former(part.inside) or 0.0:,.2f} -> {sides.mean(part.inside) or 0.0:,.2f} wait"
    cache = "" if usage is None else f", KV cache {usage:.0%}"
    if sides.then is not None and not free and case.demand.first:
        words = [one.words for one in factors(case, group) if one.of == "arrivals"]
        return Judged(
            "at_ceiling", "demand", "something that is not reported", [*words, wait], full
        )
    if not free or (sides.then is None and not other):
        now = sides.mean(part.inside) or 0.0
        words = [f"{now:,.1f} wait, and no resource is seen at its end{cache}"]
        return Judged("unknown", "none", "waits", words, full)
    seen = [one.words for one in other]
    if running is not None and sides.then is not None:
        written = group.quantity("output_tokens")
        tokens = "" if written is None else f", {_arrow(case, written)} tokens/s"
        seen.append(f"{_arrow(case, running)} run, {wait}{cache}{tokens}")
    if case.demand.growth:
        seen.append(f"{case.demand.what} changed by a factor of {case.demand.growth:.2f}")
    which = other[0].which if other else "not seen by what"
    return Judged("held_back", "held", which, seen, full)


def _delayed(case: Case, part: Part) -> Judged | None:
    """Requests wait for a time that does not grow with what arrives, in front of hardware that is idle: a delay that is set, not one that is caused."""
    group, sides = part.group, case.sides
    work, unused = group.work(), idle(case, group)
    wait = each(part.inside, work)
    if not unused or wait is None or work is None or sides.then is None or sides.grew(work):
        return None
    known = sides.now & np.isfinite(wait) & np.isfinite(work)
    if known.sum() < _LEAST or not sides.grew(wait):
        return None
    with_load = float(np.corrcoef(ranks(wait[known]), ranks(work[known]))[0, 1])
    if with_load > _UNRELATED:
        return None
    seen = [
        f"a request waits {1e3 * (sides.mean(wait) or 0.0):,.3g} ms instead of {1e3 * (sides.former(wait) or 0.0):,.3g} ms while {unused}",
        f"and no longer where more arrives (rank correlation {with_load:.2f})",
    ]
    batch = each(work, group.quantity("executions"))
    if sides.grew(batch):
        seen.append(
            f"{sides.mean(batch) or 0.0:.2g} requests are executed together instead of {sides.former(batch) or 0.0:.2g}"
        )
    return Judged("held_back", "delay", "a delay that does not follow load", seen, group.stations)


def _arrow(case: Case, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    return f"{case.sides.former(values) or 0.0:,.0f} -> {case.sides.mean(values) or 0.0:,.0f}"


def _among_peers(case: Case, part: Part) -> Judged | None:
    """Requests wait at some stations of a role while others of it are free: they are slower, or are given more."""
    group, sides = part.group, case.sides
    if len(group.stations) < 2:
        return None
    full, free = full_and_free(sides, group)
    if not full or not free:
        return None
    pace = token_seconds(sides, group, full), token_seconds(sides, group, free)
    work = work_each(sides, group, full), work_each(sides, group, free)
    here, there = (", ".join(one.name for one in some[:4]) for some in (full, free))
    idle = Group(group.role, group.model, free)
    inside = sides.mean(idle.seen() if idle.seen() is not None else idle.inside()) or 0.0
    busy = Group(group.role, group.model, full)
    waiting = sides.mean(busy.quantity("waiting")) or 0.0
    seen = [f"{waiting:,.1f} wait at {here}; {there} of the same role has {inside:.1f} inside"]
    if pace[0] and pace[1] and pace[0] >= _SLOWER * pace[1] and work[0] <= _UNEVEN * work[1]:
        seen.append(f"{1e3 * pace[0]:.3g} ms a token, {1e3 * pace[1]:.3g} ms at its peers")
        return Judged("slower", "peer", here, seen, full)
    running = (sides.mean(busy.quantity("running")) or 0.0) / len(full)
    if work[0] >= _UNEVEN * work[1] or inside <= _IDLE * running * len(free):
        return Judged("held_back", "routing", "idle peers", seen, full)
    seen.append("it gets no more work than they do")
    return Judged("held_back", "peer", here, seen, full)


def _in_front(case: Case, part: Part) -> Judged:
    """Time in front of all stations: a ceiling where more inside gives no more a second."""
    group, sides = part.group, case.sides
    cpu = [one for station in group.stations for one in ceilings(case, station)]
    rate, inside = group.done(), group.inside()
    seen = [one.words for one in cpu]
    if rate is not None and inside is not None and sides.then is not None:
        more = sides.ratio(inside) or 1.0
        flat = more >= _MANY and (sides.ratio(rate) or 1.0) < 1.0 + _SHOWS * (more - 1.0)
        rates = f"{sides.former(rate) or 0.0:,.3g} -> {sides.mean(rate) or 0.0:,.3g} requests/s"
        if flat and case.demand.loop == "closed" and case.demand.first:
            words = f"{rates} while {_arrow(case, inside)} are inside: a ceiling of its throughput"
            which = cpu[0].which if cpu else "not seen which"
            return Judged("at_ceiling", "front", which, [words, *seen], group.stations)
        seen.insert(0, rates)
    if cpu:
        return Judged("at_ceiling", "front", cpu[0].which, seen, group.stations)
    return Judged("slower", "front", "time in front", seen, group.stations)


def _unseen(case: Case, part: Part) -> Judged:
    """Requests that no gauge sees: the process around the scheduler is behind."""
    group, sides = part.group, case.sides
    written, inside, gauges = group.quantity("output_tokens"), group.inside(), group.seen()
    seen = []
    if inside is not None and gauges is not None:
        seen.append(
            f"{sides.mean(inside) or 0.0:,.0f} are inside by rate times time, gauges see {sides.mean(gauges) or 0.0:,.0f}"
        )
    if written is not None and sides.then is not None:
        seen.append(f"{_arrow(case, written)} tokens/s")
    return Judged(
        "at_ceiling", "scheduler", "the process around the scheduler", seen, group.stations
    )


def _transferred(case: Case, part: Part) -> Judged:
    routed = _among_peers(case, part)
    if routed is not None:
        return routed
    before = case.sides.former(part.inside)
    seen = f"{case.sides.mean(part.inside) or 0.0:,.1f} requests wait for the transfer of their KV cache"
    more = "" if before is None else f", {before:,.1f} before"
    return Judged("held_back", "transfer", "KV transfer", [seen + more], part.group.stations)


def _working(case: Case, part: Part) -> Judged:
    """Reading, writing, or both together: behind its peers, more work, slower, or a larger batch."""
    group, sides = part.group, case.sides
    if part.phase == "work" and (routed := _among_peers(case, part)) is not None:
        return routed
    behind = slower_peer(case, group) if len(group.stations) > 1 else None
    if behind is not None:
        words = f"{behind.what} takes {behind.seconds:.3g} s at {behind.station.name}, {behind.usual:.3g} s at its peers"
        return Judged("slower", "peer", behind.station.name, [words], [behind.station])
    grown = factors(case, group)
    mine = sorted(
        (one for one in grown if one.of in _OF_PHASE.get(part.phase, _ALL)),
        key=lambda one: one.of not in WORK,
    )
    if mine and mine[0].of in WORK:
        return Judged("more_work", "work", mine[0].of, [mine[0].words], group.stations)
    token = group.token_time()
    slower = token is not None and sides.grew(token)
    milliseconds = "" if token is None else _milliseconds(case, token)
    longer = [one for one in grown if one.of == "new prompt tokens" and one.ratio >= _MANY]
    if longer and part.phase == "decode" and slower:
        return Judged(
            "more_work",
            "work",
            "prompts of others between the tokens",
            [longer[0].words, milliseconds],
            group.stations,
        )
    if mine and mine[0].ratio >= 1.1:
        seen = [
            one.words for one in grown if one.of == "time per prompt token" and one is not mine[0]
        ]
        return Judged("slower", "time", mine[0].of, [mine[0].words, *seen], group.stations)
    return _larger_batch(case, part, slower, milliseconds, grown)


def _larger_batch(
    case: Case, part: Part, slower: bool, milliseconds: str, grown: list[Factor]
) -> Judged:
    group, sides = part.group, case.sides
    running, done = group.quantity("running"), group.done()
    more = group.quantity("output_tokens") if done is None else done
    if running is not None and sides.grew(running) and more is not None and sides.grew(more):
        words = [one.words for one in grown if one.of == "arrivals"]
        state: State = "more_arrivals" if case.demand.first else "normal"
        return Judged(
            state,
            "batch",
            "a larger batch",
            [f"{_arrow(case, running)} run at once", *words],
            group.stations,
        )
    if slower and part.phase in ("decode", "work"):
        return Judged("slower", "time", "time per token", [milliseconds], group.stations)
    if sides.then is None:
        return Judged("unknown", "none", part.phase, [], group.stations)
    seen = f"{part.known_by}: {sides.former(part.inside) or 0.0:,.3g} -> {sides.mean(part.inside) or 0.0:,.3g} requests inside"
    return Judged("slower", "time", part.phase, [seen], group.stations)


def _milliseconds(case: Case, token: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    now, then = case.sides.mean(token) or 0.0, case.sides.former(token) or 0.0
    return f"a token takes {1e3 * now:.3g} ms instead of {1e3 * then:.3g} ms"


def stopped(case: Case) -> Judged | None:
    """Return the station with work inside and nothing out, beside peers of its role that write; None where there is none."""
    for group in case.plant.groups:
        dead = [
            one
            for one in group.stations
            if (mean(one.sums.get("running"), case.sides.now) or 0.0) >= 1.0
            and mean(one.sums.get("output_tokens"), case.sides.now) == 0.0
        ]
        if dead and len(dead) < len(group.stations):
            running = mean(dead[0].sums["running"], case.sides.now) or 0.0
            seen = f"{running:,.1f} run at {dead[0].name} and no token is written; its peers write"
            return Judged("stopped", "stopped", dead[0].name, [seen], dead)
    return None


_ALL: Final = ("new prompt tokens", "output tokens", "time per token", "time per prompt token")
_OF_PHASE: Final[dict[str, tuple[str, ...]]] = {
    "prefill": ("new prompt tokens", "time per prompt token"),
    "decode": ("output tokens", "time per token"),
    "rest": (),
}
_TESTS: Final[dict[str, Callable[[Case, Part], Judged]]] = {
    "queue": _queued,
    "transfer": _transferred,
    "front": _in_front,
    "unseen": _unseen,
}
