"""Why was the window slow, where it holds too many requests to answer that at once? Causes are sought apart from the numbers, among a sample of the requests.

For a file the caller waits for the answer. A server answers with the causes that it found last and their age, and searches in the background.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

import duckdb
import polars as pl

from overrun.analysis.contrast.explain import explain
from overrun.analysis.diagnosis.background import Later
from overrun.analysis.diagnosis.diagnose import Known, diagnose
from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.evidence.engine_overview import indicators, rooms_of
from overrun.analysis.evidence.leading_indicators import Indicator
from overrun.analysis.evidence.observed import Lookups
from overrun.analysis.incident.baseline import Chosen, choose, why_none
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.coverage.sampling import Sampling, assess, evened
from overrun.analysis.numbers.quality.checks import checks, held_back, without_spoiled
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.stages.headroom import Room
from overrun.analysis.numbers.stages.service_edges import Edges, edges
from overrun.analysis.numbers.window import (
    FIRST_TOKEN_PATH,
    MOST_CAUSE_REQUESTS,
    RequestFrame,
    Window,
    load,
    load_evidence_call_traits,
    load_evidence_calls,
    load_evidence_spans,
    load_trace_ids,
)
from overrun.analysis.words.finding import Diagnosis
from overrun.analysis.words.slo import Slo

Simulate: TypeAlias = Callable[
    [duckdb.DuckDBPyConnection, Window, Slo, str, list[Diagnosis], Period], list[Diagnosis]
]
# Up to so many requests the causes come with the numbers: their calls and spans are all read (MOST_SPAN_REQUESTS), which takes about a second of one core.
# Above it a report says the numbers at once, and a server the causes once they are found.
MOST_AT_ONCE: Final = 20_000
# Causes are sought again after this long, as long as clients ask.
FRESH_S: Final = 60.0
# From so many requests on, a server that is asked the same again within moments (a page that follows the clock, a poll) tells the causes that it found then,
# where they are about the same breach: they are two thirds of a report of 20,000 requests, half a second, and change no faster.
LEAST_LATELY: Final = 2_000
# Such causes are at most so old, and sought again in the background after so long, as long as clients ask.
MOST_LATELY_S: Final = 30.0
FRESH_LATELY_S: Final = 5.0
# The numbers of 1 M requests take 1.3 s, and twice as long while causes are sought beside them.
AFTER_S: Final = 1.5


# What is known of the causes where nothing is over a limit.
NO_CAUSES: Final = Known(Ranked([], [], {}), None, None)


@dataclass(frozen=True)
class Causes:
    """What a search for causes found, and what else takes as long: indicators that warned (or why none), the edges between
    services, and the room left."""

    known: Known
    indicators: list[Indicator]
    why_no_indicators: str | None
    edges: Edges | None
    headroom: list[Room] = field(default_factory=list)


Sought: TypeAlias = Callable[
    [duckdb.DuckDBPyConnection, Window, Slo, Configured | None, int], "tuple[float, Causes] | None"
]


class Stored(NamedTuple):
    """The requests in which causes are sought: as they are stored, and `even`, each of which stands for as many; how they were sampled, and the baseline."""

    frame: RequestFrame
    even: RequestFrame
    sampled: Sampling
    baseline: Chosen | None

    def lookups(
        self, con: duckdb.DuckDBPyConnection, slo: Slo, simulate: Simulate | None = None
    ) -> Lookups:
        """What rules may look up of them."""
        others = self.baseline.frame if self.baseline else None
        return lookups(con, self.frame, slo, simulate, drawn(self.sampled, self.even, others))


def sampled_requests(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, requests: int
) -> Stored:
    """Return the so many requests of a window, or a sample where they are more than `MOST_CAUSE_REQUESTS`, without those whose telemetry spoils the judged
    numbers."""
    few = replace(window, most=min(window.most, MOST_CAUSE_REQUESTS))
    unread = FIRST_TOKEN_PATH if requests > few.most else ()
    whole = load(con, few, without=unread, expected=requests)
    sampled = assess(con, whole, weigh=True)
    whole = sampled.applied(whole)
    chosen = choose(con, whole, slo)
    frame, _ = without_spoiled(
        whole,
        held_back(
            checks(con, whole, slo, sampled), whole, chosen.frame if chosen is not None else None
        ),
    )
    return Stored(frame, evened(frame), sampled, chosen)


def seek(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    requests: int,
) -> tuple[float, Causes]:
    """Return (0.0, the causes of a window of so many requests), sought now among at most `MOST_CAUSE_REQUESTS` of them."""
    stored = sampled_requests(con, window, slo, requests)
    frame, even, sampled, chosen = stored
    found = diagnose(
        even,
        slo,
        stored.lookups(con, slo),
        baseline=chosen,
        budgets=budgets,
        coverage=sampled.coverage_of(even),
    )
    learned, why_none = indicators(con, frame, slo)
    return 0.0, Causes(
        found.known or NO_CAUSES,
        learned,
        why_none,
        crossed(con, frame, found.verdict.onset, requests),
        rooms_of(even, slo, partial=sampled.partial),
    )


class Background:
    """Causes for the reports of a server: sought one question after the other, told with their age once they are there."""

    def __init__(
        self, reading: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
    ) -> None:
        self._reading = reading
        self._found: Later[Causes] = Later("overrun-causes", FRESH_S, after_s=AFTER_S)
        self._lately: Later[Causes] = Later(
            "overrun-causes-lately", FRESH_LATELY_S, after_s=AFTER_S
        )

    def __call__(
        self,
        con: duckdb.DuckDBPyConnection,
        window: Window,
        slo: Slo,
        budgets: Configured | None,
        requests: int,
    ) -> tuple[float, Causes] | None:
        """Return (age in seconds, causes) of this question, else of the same one a step earlier, else None; and have them sought where that is due."""

        now, *before = _keys(window, slo, budgets)
        job = self._job(window, slo, budgets, requests)
        return self._found.get(now, job) or next(
            (last for key in before if (last := self._found.last(key)) is not None), None
        )

    def lately(
        self, window: Window, slo: Slo, budgets: Configured | None, requests: int
    ) -> tuple[float, Causes] | None:
        """Return (age in seconds, causes) of a window that is answered at once where somebody asked the same moments ago, None otherwise; and renew them."""
        now, *before = _keys(window, slo, budgets)
        known = [last for key in (now, *before) if (last := self._lately.last(key)) is not None]
        newest = min(known, key=lambda last: last[0], default=None)
        if newest is None or newest[0] > MOST_LATELY_S:
            return None
        if newest[0] > FRESH_LATELY_S:
            self._lately.get(now, self._job(window, slo, budgets, requests))
        return newest

    def remember(
        self, window: Window, slo: Slo, budgets: Configured | None, causes: Causes, took_s: float
    ) -> None:
        """Keep the causes that came with a report, which took so many seconds."""
        self._lately.put(_keys(window, slo, budgets)[0], causes, took_s)

    def _job(
        self, window: Window, slo: Slo, budgets: Configured | None, requests: int
    ) -> Callable[[], Causes]:
        def job() -> Causes:
            with self._reading() as own:
                return seek(own, window, slo, budgets, requests)[1]

        return job


def _keys(window: Window, slo: Slo, budgets: Configured | None) -> list[tuple[object, ...]]:
    """The question of a window, and those of the windows it may have been a step earlier: one that follows the clock moves with each report, by less than
    a tenth, and one of which only one side does becomes longer or shorter."""
    asked = (
        replace(window, start=None, end=None),
        slo,
        None
        if budgets is None
        else tuple((name, *sorted(table.items())) for name, table in budgets.items()),
    )
    if window.start is None or window.end is None:
        return [(*asked, window.start, window.end)]
    minutes, end_s = (
        round((window.end - window.start).total_seconds() / 60.0),
        window.end.timestamp(),
    )
    return [
        (*asked, length, int(end_s // max(60.0, 6.0 * length)) - steps)
        for steps in (0, 1)
        for length in (minutes, minutes + 1, minutes - 1)
    ]


def drawn(sampled: Sampling, *frames: RequestFrame | None) -> pl.Series | None:
    """The traces that were drawn of a selection so that each stands for as many requests (`evened`): rules look at the calls of no others. None for all."""
    if not sampled.estimated:
        return None
    keyed = [frame.having(("trace_key",)).rows for frame in frames if frame is not None]
    keys = [rows["trace_key"] for rows in keyed if "trace_key" in rows.columns]
    return pl.concat(keys).unique() if len(keys) == len(keyed) else None


def lookups(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    slo: Slo,
    simulate: Simulate | None,
    among: pl.Series | None = None,
) -> Lookups:
    """What rules may look up, of the requests of a frame; of the traces `among` (keys) alone where they are given."""

    def calls(period: Period, origin: datetime) -> pl.DataFrame:
        found = load_evidence_calls(con, period.start, period.end, origin)
        return found if among is None else found.filter(pl.col("trace_key").is_in(among.implode()))

    def spans(period: Period, origin: datetime, every: int, traces: pl.Series) -> pl.DataFrame:
        if among is not None:
            every, traces = 0, _both(among, every, traces)
        return load_evidence_spans(
            con, period.start, period.end, origin, every, traces, frame.one_in
        )

    return Lookups(
        trace_ids=lambda rows: load_trace_ids(con, rows),
        calls=functools.cache(calls),
        spans=spans,
        traits=lambda period, origin, n, pattern: load_evidence_call_traits(
            con, period.start, period.end, origin, n, pattern, frame.one_in
        ),
        explain=functools.partial(explain, con),
        older=functools.cache(lambda: why_none(con, frame, slo)),
        simulated=None
        if simulate is None
        else lambda metric, causes, period: simulate(
            con, frame.window, slo, metric, causes, period
        ),
    )


def _both(among: pl.Series, every: int, traces: pl.Series) -> pl.Series:
    """Those of some traces (keys) that are one in `every` (0: none), or are among others."""
    kept = among.is_in(traces.implode())
    return among.filter(kept | (among % every == 0) if every else kept)


def crossed(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, onset: datetime | None, requests: int
) -> Edges | None:
    """The edges between services in a window of so many requests; None without bounds."""
    return (
        edges(con, frame.start, frame.end, onset, requests) if frame.start and frame.end else None
    )
