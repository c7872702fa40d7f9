"""What may a rule look at? What was observed, and the facts that are derived from it, each once and only if asked for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from overrun.analysis.evidence.call_kind import Kind, call_kind
from overrun.analysis.evidence.call_slots import Slots, call_slots
from overrun.analysis.evidence.constant_added import Constant, constant_added
from overrun.analysis.evidence.demand import Demand, demand
from overrun.analysis.evidence.engine_stops import Stops, engine_stops
from overrun.analysis.evidence.fact import Facts, Table
from overrun.analysis.evidence.front_end import (
    FrontEnd,
    Inside,
    front_end,
    front_excess_ms,
    front_inside,
)
from overrun.analysis.evidence.gpu_clocks import Clocks, clocks
from overrun.analysis.evidence.held_stream import HeldStream, held_stream
from overrun.analysis.evidence.load_response import OwnLoad, own_load
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.overtaken import overtaken
from overrun.analysis.evidence.read_pace import ReadPace, read_pace
from overrun.analysis.evidence.reuse import Reuse, reuse
from overrun.analysis.evidence.seats import Seats, seats
from overrun.analysis.evidence.stream_pauses import StreamPauses, stream_pauses
from overrun.analysis.evidence.token_speed import slower_engine
from overrun.analysis.words.finding import MIN_BREACHING, NotEnoughData, say_count, say_ms


@dataclass(frozen=True)
class Case(Observed):
    """All that a rule may look at: `Observed`, and facts that each take several of its parts together. `table` says which facts `facts` has."""

    table: Table = field(default_factory=Table)

    @functools.cached_property
    def facts(self) -> Facts:
        """Each factor before and now with its interval and the excess that it accounts for, by name; see `overrun.analysis.evidence.fact_table`."""
        return Facts(self, self.table)

    @functools.cached_property
    def demand(self) -> Demand | None:
        """Why the engine has more to do than in the baseline, None where that is unknown; see `overrun.analysis.evidence.demand`."""
        return demand(self)

    @functools.cached_property
    def clocks(self) -> Clocks:
        """Whether the GPUs run slower than in the baseline; see `overrun.analysis.evidence.gpu_clocks`."""
        return clocks(self, lambda: self.demand)

    @functools.cached_property
    def slower_engine(self) -> float:
        """How many times as long a token takes as before at the same load, 1 where that is not clear; see `overrun.analysis.evidence.token_speed`."""
        return slower_engine(self)

    @functools.cached_property
    def read_pace(self) -> ReadPace | None:
        """How long prompts of the same size take to read, now over before; see `overrun.analysis.evidence.read_pace`."""
        before = self.calls_before
        return None if before is None else read_pace(before, self.calls_inside)

    @functools.cached_property
    def own_load(self) -> OwnLoad | None:
        """Whether the endpoint is slower than in the baseline at equal load, None with engine telemetry; see `overrun.analysis.evidence.load_response`."""
        return own_load(self)

    @functools.cached_property
    def reuse(self) -> Reuse | None:
        """What late calls follow, a silence or a swap, None where neither is clear; see `overrun.analysis.evidence.reuse`."""
        return reuse(self)

    @functools.cached_property
    def held_stream(self) -> HeldStream | None:
        """First tokens that come later while answers end as before; see `overrun.analysis.evidence.held_stream`."""
        return held_stream(self)

    @functools.cached_property
    def stream_pauses(self) -> StreamPauses | None:
        """Pauses that all running answers share; see `overrun.analysis.evidence.stream_pauses`."""
        return stream_pauses(self)

    @functools.cached_property
    def engine_stops(self) -> Stops | None:
        """Stops of an engine that show without the times of tokens; see `overrun.analysis.evidence.engine_stops`."""
        return engine_stops(self)

    @functools.cached_property
    def front_end(self) -> FrontEnd | None:
        """Work in front of the engine that gaps follow; see `overrun.analysis.evidence.front_end`."""
        return front_end(self)

    @functools.cached_property
    def call_slots(self) -> Slots | None:
        """The limit that holds calls back in front of the engine; see `overrun.analysis.evidence.call_slots`."""
        return call_slots(self.calls)

    @functools.cached_property
    def front_inside(self) -> Inside | None:
        """The front end's time that the engine itself measured; see `overrun.analysis.evidence.front_end`."""
        return front_inside(self)

    @functools.cached_property
    def front_excess_ms(self) -> float:
        """What of the excess of `other` is the engine's own front end; see `overrun.analysis.evidence.front_end`."""
        return front_excess_ms(self)

    @functools.cached_property
    def seats(self) -> Seats | None:
        """The limit of seats that calls wait for; see `overrun.analysis.evidence.seats`."""
        return seats(self)

    @functools.cached_property
    def constant_added(self) -> Constant | None:
        """A known constant that late calls take longer; see `overrun.analysis.evidence.constant_added`."""
        return constant_added(self)

    @functools.cached_property
    def overtaken(self) -> float | None:
        """The part of later requests that were served before slow ones that wait; see `overrun.analysis.evidence.overtaken`."""
        return overtaken(self)

    @functools.cached_property
    def call_kind(self) -> Kind | None:
        """What late calls ask for and others do not; see `overrun.analysis.evidence.call_kind`."""
        return call_kind(self)

    @functools.cached_property
    def not_at_random(self) -> str | None:
        """What distinguishes most late calls from others, so that chance, the endpoint or the load is not the cause; None if nothing known does."""
        again, held = self.reuse, self.held_stream
        if again is not None:
            what = "a silence" if again.swaps is None else "a swap"
            return (
                f"{again.after_late:,} of {again.after:,} calls after {what} are late, "
                f"{again.other_late:,} of {again.other:,} others"
            )
        if self.constant_added is not None:
            added = self.constant_added
            return f"{added.hits:,} of {added.late:,} late calls take {added.label} longer"
        kind = self.call_kind
        if kind is not None:
            return (
                f"{kind.late:,} of {kind.n:,} calls with {kind.label} are late, "
                f"{kind.other_late:,} of {kind.other:,} others"
            )
        if held is not None and held.interval[0] > 0.5 * self.tail.excess_total_ms:
            return f"first tokens come {say_ms(held.first_ms)} later, ends {say_ms(held.end_ms)}"
        return None


def too_few_breaches(case: Case) -> NotEnoughData | None:
    """Return why no cause may be named yet, None when there are enough breaching requests."""
    n = int(case.breaching.sum())
    if n >= MIN_BREACHING:
        return None
    are = "is" if n == 1 else "are"
    return NotEnoughData(
        f"{say_count(n, 'request')} {are} over the limit, a cause needs at least {MIN_BREACHING}: widen the window"
    )
