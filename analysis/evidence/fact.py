"""What is a fact? One factor of latency before and now, each with its interval and sample size, and the milliseconds of the excess that it accounts for.

Intervals are 95 % percentile-bootstrap intervals over stretches of time (`bootstrap.Drawn`), because what happens at one moment has much in common. A
change is clear where its own interval leaves out "no change". Factors overlap: two of them may account for the same milliseconds, so they do not add up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from overrun.analysis.numbers.latency.percentiles import quantile
from overrun.analysis.numbers.statistics.bootstrap import Drawn
from overrun.analysis.numbers.statistics.proportion import Z_95, wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import SEED, say_ms, say_ratio

Unit = Literal["ms", "tokens", "per_s", "ratio", "times", "calls", "hz"]
# Replicates of a bootstrap: the ends of a 95 % interval are the tenth and the last but ten of them; as for shares of the excess.
RESAMPLES: Final = 400
# Values of one side below which its mean has no interval worth showing; the usual least group for means.
MIN_VALUES: Final = 30
NO_BASELINE: Final = "no baseline: there is nothing to compare with"
# Shares are compared by their difference, everything else by its ratio.
_BY_DIFFERENCE: Final = ("ratio",)


class Side(msgspec.Struct, kw_only=True):
    """A value with its 95 % interval (null where it has none) and the number of calls, requests or samples behind it."""

    value: float
    interval: tuple[float, float] | None
    n: int


class Fact(msgspec.Struct, kw_only=True):
    """One factor before and now.

    `unit` is ms, tokens, per_s, ratio (0..1), times, calls or hz. `change` is now over before, of a `ratio` now minus before; `clear` says whether its
    interval leaves out no change. `excess_ms` is what the factor accounts for of a slow request's excess, in ms per stage, `excess_total_ms` their sum;
    both ends of `excess_interval` follow those of the change. Null has its reason in `reasons`.
    """

    name: str
    label: str
    among: str
    unit: Unit
    before: Side | None = None
    now: Side | None = None
    change: float | None = None
    change_interval: tuple[float, float] | None = None
    clear: bool | None = None
    excess_ms: dict[str, float] = {}
    excess_total_ms: float | None = None
    excess_interval: tuple[float, float] | None = None
    source: str = ""
    reasons: dict[str, str] = {}


class Draws(NamedTuple):
    """A value, its bootstrap replicates (shape (RESAMPLES,); None where only the value is known), and what it was computed from."""

    value: float
    draws: FloatArray | None
    n: int


class Measured(NamedTuple):
    """Both sides of a factor; `before` is a reason where it is not known."""

    now: Draws
    before: Draws | str = NO_BASELINE


class Sample:
    """Rows of one side by their start (microseconds), with the stretches of time that are drawn for them once."""

    def __init__(self, start_us: IntArray) -> None:
        self._start_us = start_us

    @functools.cached_property
    def _drawn(self) -> Drawn:
        # The two sides of a comparison must not draw alike.
        seed = [SEED, abs(int(self._start_us.min()))]
        return Drawn.of(self._start_us, np.random.default_rng(seed), RESAMPLES)

    def mean(self, values: FloatArray, least: int = MIN_VALUES) -> Draws | None:
        """Return the mean of the known values (shape (n,), NaN unknown), None below `least` of them."""
        known = ~np.isnan(values)
        return self.ratio(np.where(known, values, 0.0), known.astype(np.float64), known, least)

    def ratio(
        self,
        part: FloatArray,
        whole: FloatArray,
        known: BoolArray | None = None,
        least: int = MIN_VALUES,
    ) -> Draws | None:
        """Return sum(part) / sum(whole), None below `least` known rows, or where the whole is 0."""
        n = len(part) if known is None else int(known.sum())
        below = float(whole.sum())
        if n < least or below == 0.0:
            return None
        return Draws(float(part.sum()) / below, self._drawn.ratios(part, whole), n)

    def rate(self, counts: FloatArray) -> Draws | None:
        """Return sum(counts) per second between the first and the last start, None below `MIN_VALUES` rows."""
        seconds = float(np.ptp(self._start_us)) / 1e6 if len(counts) else 0.0
        if len(counts) < MIN_VALUES or seconds <= 0.0:
            return None
        return Draws(float(counts.sum()) / seconds, self._drawn.rates(counts), len(counts))


def part_of(hits: int, n: int) -> Draws | None:
    """Return a share by its number of cases; replicates follow Wilson's score interval (normal on the logit scale). None for no case."""
    if n == 0:
        return None
    low, high = wilson(hits, n)
    rng = np.random.default_rng([SEED, hits, n])
    logit = [math.log(edge / (1.0 - edge)) for edge in (max(low, 1e-9), min(high, 1.0 - 1e-9))]
    spread = rng.normal(0.5 * sum(logit), (logit[1] - logit[0]) / (2.0 * Z_95), RESAMPLES)
    return Draws(hits / n, 1.0 / (1.0 + np.exp(-spread)), n)


def with_error(value: float, error: float, n: int) -> Draws:
    """Return a positive value whose error is normal on the log scale."""
    rng = np.random.default_rng([SEED, n])
    return Draws(value, value * np.exp(rng.normal(0.0, error, RESAMPLES)), n)


def only(value: float, n: int) -> Draws:
    """Return a value without an interval."""
    return Draws(value, None, n)


@dataclass(frozen=True)
class Row:
    """One line of the table of facts.

    `measure` returns both sides, or why the factor is not known. `accounts` returns milliseconds of the excess per stage, or why these are not known; a row
    without it accounts for none by itself. `falls`: a value that falls makes requests slower. `against` says of what the two sides are.
    """

    label: str
    unit: Unit
    measure: Callable[[Any], Measured | str]
    source: str
    accounts: Callable[[Any], Mapping[str, float] | str] | None = None
    falls: bool = False
    among: str = "all calls"


@dataclass(frozen=True)
class Table:
    """Which facts there are: `rows` by name, and functions that return further rows for what a case holds (stages, operations)."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    further: tuple[Callable[[Any], Mapping[str, Row]], ...] = ()


class Facts:
    """The facts of one case, each computed once and only if asked for."""

    def __init__(self, case: Any, table: Table) -> None:
        self._case, self._table = case, table
        self._known: dict[str, Fact] = {}
        self._further: dict[int, Mapping[str, Row]] = {}

    def __getitem__(self, name: str) -> Fact:
        if name not in self._known:
            row = self._row(name)
            if row is None:
                raise KeyError(name)
            self._known[name] = fact_of(name, row, self._case)
        return self._known[name]

    def __iter__(self) -> Iterator[Fact]:
        further = (name for rows in self._each_further() for name in rows)
        return (self[name] for name in (*further, *self._table.rows))

    def worse(self, name: str) -> bool:
        """Return whether a fact changed clearly and to the worse; False of one that this case does not have."""
        row = self._row(name)
        if row is None:
            return False
        fact = self[name]
        if not fact.clear or fact.change is None:
            return False
        return (fact.change < (0.0 if fact.unit in _BY_DIFFERENCE else 1.0)) == row.falls

    def _row(self, name: str) -> Row | None:
        if name in self._table.rows:
            return self._table.rows[name]
        return next((rows[name] for rows in self._each_further() if name in rows), None)

    def _each_further(self) -> Iterator[Mapping[str, Row]]:
        """The further rows, of one function after the other: a stage is found without reading the spans that operations need."""
        for at, rows in enumerate(self._table.further):
            if at not in self._further:
                self._further[at] = rows(self._case)
            yield self._further[at]

    def excess(self, *names: str) -> dict[str, float]:
        """Return the milliseconds per stage that these facts together account for."""
        out: dict[str, float] = {}
        for name in names:
            for stage, ms in self[name].excess_ms.items():
                out[stage] = out.get(stage, 0.0) + ms
        return out


def fact_of(name: str, row: Row, case: Any) -> Fact:
    """Return a row's fact for a case."""
    fact = Fact(
        name=name, label=row.label, among=row.among, unit=row.unit, source=row.source, reasons={}
    )
    measured = row.measure(case)
    if isinstance(measured, str):
        fact.reasons |= dict.fromkeys(("before", "now"), measured)
    else:
        _compare(fact, measured)
    for missing in ("change", "change_interval", "clear"):
        if getattr(fact, missing) is None:
            why = fact.reasons.get("now") or fact.reasons.get("before") or "no interval is known"
            fact.reasons.setdefault(missing, fact.reasons.get("change", why))
    _account(fact, row, case)
    return fact


def _compare(fact: Fact, measured: Measured) -> None:
    """Fill in both sides and the change between them. In place."""
    now, before = measured
    fact.now = _side(now)
    if isinstance(before, str):
        fact.reasons["before"] = before
        return
    fact.before = _side(before)
    by_difference = fact.unit in _BY_DIFFERENCE
    if not by_difference and before.value == 0.0:
        fact.reasons["change"] = "it was 0 before"
        return
    fact.change = now.value - before.value if by_difference else now.value / before.value
    if now.draws is None or before.draws is None:
        return
    if by_difference:
        draws = now.draws - before.draws
    else:
        draws = np.divide(
            now.draws, before.draws, out=np.full(RESAMPLES, np.nan), where=before.draws != 0.0
        )
    fact.change_interval = _interval(draws)
    if fact.change_interval is not None:
        low, high = fact.change_interval
        same = 0.0 if by_difference else 1.0
        fact.clear = not low <= same <= high


def _account(fact: Fact, row: Row, case: Any) -> None:
    """Fill in what the factor accounts for. In place."""
    if row.accounts is None:
        why: Mapping[str, float] | str = "it accounts for no time by itself"
    else:
        why = row.accounts(case)
    if isinstance(why, str):
        fact.reasons |= dict.fromkeys(("excess_total_ms", "excess_interval"), why)
        return
    fact.excess_ms = {
        stage: min(ms, case.excess_ms(stage)) for stage, ms in why.items() if ms > 0.0
    }
    whole = sum(fact.excess_ms.values())
    fact.excess_total_ms = whole
    fact.excess_interval = _follows(fact, whole, row)
    if fact.excess_interval is None:
        fact.reasons["excess_interval"] = (
            "the change of all is no measure of it" if fact.change_interval else "no change known"
        )


def _follows(fact: Fact, whole: float, row: Row) -> tuple[float, float] | None:
    """Return the interval of an excess in proportion to that of the change (of a ratio on the log scale); None where the change has none, or the wrong sign."""
    if fact.change is None or fact.change_interval is None:
        return None
    if fact.unit in _BY_DIFFERENCE:
        middle, *ends = fact.change, *fact.change_interval
    else:
        middle, *ends = (
            math.log(max(ratio, 1e-9)) for ratio in (fact.change, *fact.change_interval)
        )
    if row.falls:
        middle, ends = -middle, [-end for end in reversed(ends)]
    if middle <= 0.0:
        return (0.0, 0.0) if whole == 0.0 else None
    low, high = (max(0.0, whole * end / middle) for end in ends)
    return low, high


def standard_errors(fact: Fact) -> float | None:
    """Return by how many of its standard errors a fact changed (of a ratio on the log scale), a quarter of its interval's width each; None without an interval."""
    if fact.change is None or fact.change_interval is None:
        return None
    change, *ends = (
        (value if fact.unit in _BY_DIFFERENCE else math.log(max(value, 1e-9)))
        for value in (fact.change, *fact.change_interval)
    )
    return abs(change) / max((ends[1] - ends[0]) / (2.0 * Z_95), 1e-9)


def _side(draws: Draws) -> Side:
    return Side(
        value=draws.value,
        interval=None if draws.draws is None else _interval(draws.draws),
        n=draws.n,
    )


def _interval(draws: FloatArray) -> tuple[float, float] | None:
    known = draws[np.isfinite(draws)]
    if len(known) < RESAMPLES // 2:
        return None
    return quantile(known, 0.025), quantile(known, 0.975)


def say_value(value: float, unit: Unit) -> str:
    """Return a value of a fact in words: `377 ms`, `92 %`, `6.28/s`, `1.31 times`, `2,490 MHz`; a bare number of tokens or calls, which the label names."""
    if unit == "ms":
        return say_ms(value)
    if unit == "ratio":
        return say_ratio(value)
    if unit == "hz":
        return f"{value / 1e6:,.0f} MHz"
    if unit == "tokens":
        return f"{value:,.0f}"
    said = f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"
    return f"{said}{'/s' if unit == 'per_s' else ' times' if unit == 'times' else ''}"
