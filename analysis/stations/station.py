"""Which stations are there, and what did each say? A station is one instance in one role for one model; a group holds stations of one role and model.

Numbers are added or compared only inside a group: a request that a router and an engine both count is one request, and prefill workers are no peers of decode
workers. A view, another observer's copy of somebody's gauge, is no station.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from overrun.analysis.stations.series import Recording, Series
from overrun.analysis.stations.sides import each
from overrun.analysis.stations.unnamed import as_steps, known
from overrun.analysis.stations.vocabulary import SURROUNDING, VIEW, adds, vocabulary
from overrun.analysis.words.arrays import FloatArray

# A group that writes no more than a first token a request reads prompts for another one.
_ONE_TOKEN: Final = 1.05
# An ensemble holds this part of its steps' time or more, and waits for less than this part of its own; own defaults.
_HOLDS: Final = 0.8
_WAITS: Final = 0.05
_COMPUTES: Final = ("engine", "decode", "prefill", "step", "embedder", "deployment")


@dataclass
class Station:
    """One instance in one role for one model, its series on the grid.

    `sums` has a quantity's level, rate, or sum a second, `counts` how many observations a second a time or size has. `resources` are levels between 0 and 1
    and others by name, of itself and of what stands around it. `names` are texts by which surroundings may call it.
    """

    instance: str
    role: str
    model: str
    part: str = ""
    sums: dict[str, FloatArray] = field(default_factory=dict)
    counts: dict[str, FloatArray] = field(default_factory=dict)
    resources: dict[str, FloatArray] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its instance, with its part, or with the model where a page has several steps."""
        parts = [self.instance or self.role]
        if self.part and self.part not in self.instance:
            parts.append(self.part)
        if self.role == "step" and self.model:
            parts.append(self.model)
        return "/".join(parts)

    def done(self) -> FloatArray | None:
        """Requests that ended a second: the counter, else what a histogram counted."""
        counted = (self.counts.get(key) for key in ("e2e", "inference", "ttft"))
        for values in (self.sums.get("done"), *counted, self.sums.get("calls")):
            if values is not None and np.nansum(values) > 0.0:
                return values
        return None

    def seen(self) -> FloatArray | None:
        """Requests that gauges see inside: running, waiting, thrown out, in transfer."""
        if "running" not in self.sums:
            return None
        return _summed(
            self.sums[key]
            for key in ("running", "waiting", "transferring", "out")
            if key in self.sums
        )

    def inside(self) -> FloatArray | None:
        """Requests inside: the rate of their durations' sum where these are counted (Little), else what gauges see."""
        for key in ("e2e", "behind"):
            counted = self.sums.get(key)
            if counted is not None and np.nansum(counted) > 0.0:
                return counted
        return self.seen()


@dataclass(frozen=True)
class Group:
    """Stations of one role and model: parallel servers of the same work."""

    role: str
    model: str
    stations: list[Station]

    @property
    def name(self) -> str:
        """The only station's name, else how many of which role."""
        names = [station.name for station in self.stations]
        if len(names) == 1:
            return names[0]
        more = ", ..." if len(names) > 4 else ""
        return f"{len(names)} x {self.role} ({', '.join(names[:4])}{more})"

    def sum(self, of: Callable[[Station], FloatArray | None]) -> FloatArray | None:
        """The sum over its stations; None where none has it."""
        return _summed(values for one in self.stations if (values := of(one)) is not None)

    def quantity(self, key: str) -> FloatArray | None:
        """A quantity's sum over its stations, of a share their mean; None where none has it."""
        if key in vocabulary().quantities.shares:
            return _mean(one.sums[key] for one in self.stations if key in one.sums)
        return self.sum(lambda one: one.sums.get(key))

    def counted(self, key: str) -> FloatArray | None:
        """How many observations a second a time or size has."""
        return self.sum(lambda one: one.counts.get(key))

    def done(self) -> FloatArray | None:
        """Requests that ended a second."""
        return self.sum(Station.done)

    def seen(self) -> FloatArray | None:
        """Requests that gauges see inside."""
        return self._with_queues(Station.seen)

    def inside(self) -> FloatArray | None:
        """Requests inside."""
        return self._with_queues(Station.inside)

    def _with_queues(self, of: Callable[[Station], FloatArray | None]) -> FloatArray | None:
        """The sum, with those who wait at a station that shows no more than its queue: a proxy that waits for replicas on other pages."""
        found = self.sum(of)
        queues = [s.sums["waiting"] for s in self.stations if of(s) is None and "waiting" in s.sums]
        return found if found is None else _summed([found, *queues])

    def work(self) -> FloatArray | None:
        """What is counted as finished work a second: requests, else output tokens, else prompt tokens."""
        for values in (self.done(), self.quantity("output_tokens"), self.quantity("prompt_tokens")):
            if values is not None and np.nansum(values) > 0.0:
                return values
        return None

    def time_of(self, key: str) -> FloatArray | None:
        """Mean seconds (or size) of what ended in each bin."""
        below = self.counted(key)
        if below is None:
            below = self.quantity("streams") if key == "ttft" else None
        return each(self.quantity(key), self.done() if below is None else below)

    def new_tokens(self) -> FloatArray | None:
        """Prompt tokens a second that had to be computed: what the cache gave is taken off where it is counted."""
        if (new := self.quantity("new_length")) is not None:
            return new
        total, cached = self.quantity("prompt_tokens"), self.quantity("cached")
        loaded = self.quantity("external_hits")
        if total is not None and loaded is not None:  # what another engine or store sent
            total = np.maximum(total - np.nan_to_num(loaded), 0.0)
        hits, asked = self.quantity("hits"), self.quantity("queries")
        if total is None:
            return None
        share = each(hits, asked)
        if share is not None and _total(asked) > 0.0:
            return total * (1.0 - np.nan_to_num(share))
        return total if cached is None else total - cached

    def hit_rate(self) -> FloatArray | None:
        """Which part of the prompt tokens came from the prefix cache."""
        asked = self.quantity("queries")
        if asked is not None and np.nansum(asked) > 0.0:
            return each(self.quantity("hits"), asked)
        total, reused = self.quantity("prompt_tokens"), self.quantity("reused")
        if (cached := self.quantity("cached")) is not None:
            return each(cached, total)
        if reused is not None and total is not None:
            return each(reused, reused + total)
        return self.quantity("hit_rate")

    def token_time(self) -> FloatArray | None:
        """Seconds for an output token of a stream: what its clients see, else what the batch says."""
        written = self.quantity("output_tokens")
        for key in ("itl", "decode"):
            counted = self.quantity(key)
            if counted is not None and written is not None and np.nansum(counted) > 0.0:
                return each(counted, written)
        for key in ("itl", "tpot"):
            if (found := each(self.quantity(key), self.counted(key))) is not None:
                return found
        return each(self.quantity("running"), written)

    def step_time(self) -> FloatArray | None:
        """Seconds for an output token by who runs: what the batch takes for a step."""
        running = self.quantity("running")
        found = each(running, self.quantity("output_tokens"))
        return self.token_time() if found is None else found


@dataclass(frozen=True)
class Plant:
    """All groups of a recording: `front` is who stands in front of all others, None where nobody does; `groups` are the others."""

    recording: Recording
    front: Group | None
    groups: list[Group]

    @property
    def all(self) -> list[Group]:
        """The front and the others."""
        return ([self.front] if self.front else []) + self.groups

    @property
    def outer(self) -> Group | None:
        """The outermost observer of requests: the front, else the group that has most of them inside."""
        return self.front or max(
            self.groups, key=lambda group: _total(group.inside()), default=None
        )

    @property
    def roles(self) -> dict[str, str]:
        """The role of each instance; of one in several the one that stands furthest behind."""
        return {one.instance: group.role for group in self.all for one in group.stations}

    @property
    def observers(self) -> set[str]:
        """The instances that together count each request once: those in front; else all but who reads prompts for others, of an ensemble the whole."""
        if self.outer is None or self.front is not None or self.outer.role == "step":
            groups = [] if self.outer is None else [self.outer]
        else:
            others = [one for one in self.groups if one.role != "prefill"]
            groups = others or self.groups
        return {one.instance for group in groups for one in group.stations}


def plant_of(recording: Recording) -> Plant:
    """Return the stations of a recording in their groups."""
    own = recording.series if known(recording.series) else as_steps(recording.series)
    stations = _stations(own)
    _add_surroundings(stations, recording.series)
    _find_ensembles(stations)
    by: dict[tuple[str, str], list[Station]] = {}
    for one in stations:
        if any(key in one.sums for key in ("waiting", "output_tokens", "prompt_tokens")) or (
            one.inside() is not None or one.done() is not None
        ):
            by.setdefault((one.role, one.model.lower()), []).append(one)
    groups = [Group(role, model, some) for (role, model), some in by.items()]
    behind = [one for one in groups if one.role not in vocabulary().stations.front]
    fronts = [one for one in groups if one not in behind and one.inside() is not None]
    front = max(fronts, key=lambda group: _total(group.inside()), default=None)
    writes = any(not _reads(one) for group in behind for one in group.stations)
    return Plant(recording, front, _parted(behind) if writes else behind)


def _parted(groups: list[Group]) -> list[Group]:
    """The groups, those stations as prefill that write one token a request beside others that write more, whatever their page calls them."""
    parted: dict[tuple[str, str], list[Station]] = {}
    for group in groups:
        for one in group.stations:
            role = "prefill" if _reads(one) else group.role
            parted.setdefault((role, group.model), []).append(one)
    return [Group(role, model, some) for (role, model), some in parted.items()]


def _reads(station: Station) -> bool:
    """Whether an engine writes no more than a first token a request: it reads prompts for another one."""
    written = _total(station.sums.get("output_tokens"))
    done = _total(station.done())
    return station.role in ("engine", "decode") and 0.0 < written <= _ONE_TOKEN * done


def _stations(series: list[Series]) -> list[Station]:
    """Stations with what their own series say."""
    own = [one for one in series if one.quantity and one.role not in (SURROUNDING, VIEW)]
    models: dict[tuple[str, str], set[str]] = {}
    for one in own:
        models.setdefault((one.instance, one.role), set()).add(one.model)
    said: dict[tuple[str, str, str, str], list[Series]] = {}
    for one in own:
        front = one.role in vocabulary().stations.front
        named = models[one.instance, one.role] - {""}
        model = "" if front else one.model or (next(iter(named)) if len(named) == 1 else "")
        labels = () if front else vocabulary().stations.parts
        part = "/".join(one.labels[key] for key in labels if key in one.labels)
        said.setdefault((one.instance, one.role, model, part), []).append(one)
    return [_station(*key, some) for key, some in sorted(said.items())]


def _station(instance: str, role: str, model: str, part: str, series: list[Series]) -> Station:
    made = Station(instance, role, model, part, names=_calling(instance, series))
    by: dict[str, list[Series]] = {}
    for one in series:
        by.setdefault(str(one.quantity), []).append(one)
    for key, some in by.items():
        main = [one for one in some if not adds(one.name)]
        first = min((one.name for one in main), key=len, default="")
        several = key == "errors"
        kept = _without_copies(
            one for one in some if several or adds(one.name) or one.name == first
        )
        join = _mean if key in vocabulary().quantities.shares or key == "seats" else _summed
        values = join(one.values for one in kept)
        if values is None:
            continue
        made.sums[key] = values
        counts = [one.counts for one in kept if one.counts is not None]
        if len(counts) == len(kept) and (total := _summed(counts)) is not None:
            made.counts[key] = total
    if "kv" not in made.sums and "kv_used" in made.sums:
        blocks = each(made.sums["kv_used"], made.sums.get("kv_blocks"))
        made.sums |= {} if blocks is None else {"kv": blocks}
    return made


def _without_copies(series: Iterable[Series]) -> list[Series]:
    """Ranks of one engine say one number several times: the first of each is kept."""
    copies = vocabulary().stations.copies
    kept: dict[tuple[object, ...], Series] = {}
    for one in series:
        key = sorted((name, text) for name, text in one.labels.items() if name not in copies)
        kept.setdefault((one.name, *key), one)
    return list(kept.values())


def _calling(instance: str, series: list[Series]) -> set[str]:
    """How others may call a station: by its instance, with or without port and rank, or by its pod."""
    names = {instance, instance.partition("/")[0], instance.partition(":")[0]}
    for one in series:
        names |= _whose(one)
    return names - {""}


def _whose(series: Series) -> set[str]:
    """Whom a series names in its labels and its resource."""
    keys = vocabulary().stations.whose
    return {
        text
        for source in (series.labels, series.resource)
        for key in keys
        if (text := source.get(key))
    }


def _add_surroundings(stations: list[Station], series: list[Series]) -> None:
    """Give each station the process, container, host and GPUs that name it or stand on its page. In place.

    Where all stations but those in front are one group, what names nobody is theirs.
    """
    inner = [one for one in stations if one.role in _COMPUTES]
    alone = len({(one.role, one.model) for one in inner}) == 1
    seats = next(
        (one.values for one in series if one.role == VIEW and one.quantity == "seats"), None
    )
    gathered: dict[tuple[int, str], list[FloatArray]] = {}
    for one in series:
        if one.role not in (SURROUNDING, VIEW) and one.quantity is not None:
            continue
        for station in _around(one, stations, inner if alone else []):
            if one.quantity is not None and one.role == SURROUNDING:
                gathered.setdefault((id(station), one.quantity), []).append(one.values)
            elif one.kind == "level" and one.role != VIEW:
                station.resources.setdefault(one.name, one.values)
    for station in stations:
        for (of, key), some in gathered.items():
            join = _mean if key in vocabulary().quantities.shares or key == "started" else _summed
            if of == id(station) and (values := join(some)) is not None:
                station.sums.setdefault(key, values)
        if seats is not None and station.role in ("decode", "engine"):
            station.sums.setdefault("seats", seats)


def _around(series: Series, stations: list[Station], otherwise: list[Station]) -> list[Station]:
    """Whose a surrounding series is: those on its page, else those that it names, else `otherwise` if it is no page's of its own."""
    page = [one for one in stations if one.instance == series.instance]
    if page:
        named = [one for one in page if not series.model or one.model == series.model]
        return named or page
    whose = _whose(series)
    return [one for one in stations if whose & one.names] or otherwise


def _find_ensembles(stations: list[Station]) -> None:
    """A model of a Triton page that computes nothing itself and holds the others' time stands in front of them. In place."""
    for page in {one.instance for one in stations if one.role == "step"}:
        steps = [
            one
            for one in stations
            if one.role == "step" and one.instance == page and "e2e" in one.sums
        ]
        if len(steps) < 2:
            continue
        whole = max(steps, key=lambda one: _total(one.sums["e2e"]))
        total = _total(whole.sums["e2e"])
        rest = sum(_total(one.sums["e2e"]) for one in steps if one is not whole)
        if total >= _HOLDS * rest and _total(whole.sums.get("queue")) < _WAITS * total:
            whole.role = "frontend"


def _total(values: FloatArray | None) -> float:
    return 0.0 if values is None else float(np.nansum(values))


def _summed(values: Iterable[FloatArray]) -> FloatArray | None:
    """The sum in each bin, NaN where none is known; None of none."""
    stacked = list(values)
    if not stacked:
        return None
    table = np.array(stacked)
    out: FloatArray = np.where(np.isnan(table).all(axis=0), np.nan, np.nansum(table, axis=0))
    return out


def _mean(values: Iterable[FloatArray]) -> FloatArray | None:
    """The mean in each bin of those that are known; None of none."""
    stacked = list(values)
    if not stacked:
        return None
    table = np.array(stacked)
    known = np.isfinite(table).sum(axis=0)
    out: FloatArray = np.divide(
        np.nansum(table, axis=0), known, out=np.full(table.shape[1], np.nan), where=known > 0
    )
    return out
