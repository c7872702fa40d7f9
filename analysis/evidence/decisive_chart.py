"""Which picture shows a cause? One chart a rule: its deciding fact over time, value by value, or replica by replica, and the few facts that stand beside it.

A chart is measured on what the case has read already. Courses run from the baseline, where it lies right before the judged period, to the end of that period.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import token_costs
from overrun.analysis.evidence.fact import Unit
from overrun.analysis.evidence.fleet import replicas
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.evidence.tenant_load import work_by_tenant
from overrun.analysis.evidence.token_speed import MIN_TOKENS
from overrun.analysis.numbers.over_time.series import step_at_least
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import printable

# Points of a course, calls behind each of them on average, and the fewest behind a mean that is drawn; own defaults: a line that can be followed.
_MOST_POINTS: Final = 60
_WANTED_N: Final = 20
_LEAST_N: Final = 5
# Requests from which a step has a P95.
_LEAST_P95: Final = 20
# Bars of a chart, and calls behind each.
_MOST_BARS: Final = 10
_LEAST_BAR: Final = 10
# A baseline that ends longer before the period than this part of it is another time, which no line should bridge.
_MOST_GAP: Final = 0.5


class Line(msgspec.Struct, kw_only=True):
    """A line of a course: a value per step, null where too little is known of it."""

    name: str
    values: list[float | None]


class Bar(msgspec.Struct, kw_only=True):
    """A value before and now of one group: a replica, a tenant, a range of lengths; `n` are the calls of now. Null is unknown."""

    name: str
    before: float | None
    now: float | None
    n: int


class Chart(msgspec.Struct, kw_only=True):
    """The picture of a deciding fact: `lines` over time in steps of `step_s` from `start`, or `bars` by `among`.

    `unit` as of facts. `limit` is a value to hold the lines against, `limit_name` says which. Null and empty: not of this kind.
    """

    kind: Literal["course", "bars"]
    title: str
    unit: Unit
    start: datetime | None = None
    step_s: int = 0
    lines: list[Line] = []
    among: str = ""
    bars: list[Bar] = []
    limit: float | None = None
    limit_name: str = ""


@dataclass(frozen=True)
class Steps:
    """Steps of time and the calls in them: `at` (n,) is the step of each call."""

    calls: Calls
    origin: datetime
    step_s: int
    first: int
    n: int
    at: IntArray

    @property
    def start(self) -> datetime:
        """When the first step begins."""
        return datetime.fromtimestamp(self.first * self.step_s, self.origin.tzinfo)

    def place(self, times_s: FloatArray) -> IntArray:
        """The step of each time (seconds after the origin), -1 outside or unknown."""
        seconds = np.where(np.isnan(times_s), -1e18, times_s) + self.origin.timestamp()
        at = np.floor_divide(seconds, self.step_s).astype(np.int64) - self.first
        return np.where((at >= 0) & (at < self.n), at, -1)

    def ratio(self, part: FloatArray, whole: FloatArray) -> list[float | None]:
        """Sum of `part` over sum of `whole` per step, of the calls of which both are known."""
        both = known(part, whole)
        counts = np.bincount(self.at[both], minlength=self.n)
        above = np.bincount(self.at[both], part[both], self.n)
        below = np.bincount(self.at[both], whole[both], self.n)
        return [
            float(a / b) if n >= _LEAST_N and b > 0.0 else None
            for a, b, n in zip(above, below, counts, strict=True)
        ]

    def mean(self, values: FloatArray) -> list[float | None]:
        """Mean per step of the known values."""
        return self.ratio(values, np.where(np.isnan(values), np.nan, 1.0))

    def rate(self, times_s: FloatArray, weight: float) -> list[float | None]:
        """How many of these times fall into a second of each step; the last step, which the window may cut, is left out."""
        at = self.place(times_s)
        counts = np.bincount(at[at >= 0], minlength=self.n) * weight / self.step_s
        return [float(one) for one in counts[:-1]] + [None]


def steps_of(case: Case) -> Steps | None:
    """The served calls of the period, with those of the baseline where it lies right before; None below two steps."""
    now, before = case.served
    frames = [now.frame]
    if before is not None and case.baseline is not None:
        gap = (case.period.start - case.baseline.end).total_seconds()
        if gap <= _MOST_GAP * case.period.seconds:
            frames.insert(0, before.frame)
    calls = Calls(pl.concat(frames, how="vertical_relaxed").sort("start_s"))
    if len(calls) < 2 * _LEAST_N:
        return None
    starts = calls.of("start_s") + case.origin.timestamp()
    span = float(starts[-1] - starts[0])
    step = step_at_least(max(span / _MOST_POINTS, _WANTED_N * span / len(calls), 1.0))
    first = int(starts[0] // step)
    n = int(starts[-1] // step) - first + 1
    at = np.floor_divide(starts, step).astype(np.int64) - first
    return None if n < 2 else Steps(calls, case.origin, step, first, n, at)


Draw = Callable[[Case], Chart | None]


def _course(title: str, unit: Unit, of: Callable[[Case, Steps], list[Line]]) -> Draw:
    def draw(case: Case) -> Chart | None:
        steps = steps_of(case)
        if steps is None:
            return None
        lines = [
            line for line in of(case, steps) if sum(one is not None for one in line.values) > 1
        ]
        if not lines:
            return None
        return Chart(
            kind="course",
            title=title,
            unit=unit,
            start=steps.start,
            step_s=steps.step_s,
            lines=lines,
        )

    return draw


def _arrived_and_admitted(case: Case, steps: Steps) -> list[Line]:
    """Calls that were sent and calls that were taken up, per second; without engine telemetry, calls that got their first token."""
    calls, weight = steps.calls, float(case.every)
    taken, name = (
        (calls.scheduled_s, "taken up by the engine")
        if calls.has_engine.any()
        else (calls.first_s, "first token came")
    )
    return [
        Line(name="arrived", values=steps.rate(calls.of("start_s"), weight)),
        Line(name=name, values=steps.rate(taken, weight)),
    ]


def _hits(case: Case, steps: Steps) -> list[Line]:
    calls = steps.calls
    if not known(calls.of("cached_tokens")).any():
        return []
    return [
        Line(
            name="input that a cache held",
            values=steps.ratio(calls.cached_tokens, calls.of("input_tokens")),
        )
    ]


def _asked_again(case: Case, steps: Steps) -> list[Line]:
    repeat = attempts(steps.calls).repeat
    at = steps.calls.of("start_s")
    weight = float(case.every)
    return [
        Line(name="all calls", values=steps.rate(at, weight)),
        Line(name="repeats of an earlier call", values=steps.rate(at[repeat], weight)),
    ]


def _per_call(name: str, of: Callable[[Calls], FloatArray]) -> Callable[[Case, Steps], list[Line]]:
    return lambda case, steps: [Line(name=name, values=steps.mean(of(steps.calls)))]


def _calls_per_request(case: Case, steps: Steps) -> list[Line]:
    first = steps.calls.frame.select(pl.col("trace_key").is_first_distinct()).to_series()
    values = steps.ratio(np.ones(len(steps.calls)), first.to_numpy().astype(np.float64))
    return [Line(name="model calls of a request", values=values)]


def _pace(calls: Calls) -> FloatArray:
    return np.where(calls.of("output_tokens") >= MIN_TOKENS, calls.token_ms, np.nan)


def _gauge(
    indicator: str,
    title: str,
    unit: Unit,
    how: Literal["max", "min", "mean"],
    limit: float | None = None,
) -> Draw:
    """The samples of an engine's indicator over time, engines put together."""

    def draw(case: Case) -> Chart | None:
        points = case.points.filter(pl.col("indicator") == indicator)
        if points.height < 2:
            return None
        seconds = points["time_us"].to_numpy() / 1e6
        span = float(np.ptp(seconds))
        step = step_at_least(max(span / _MOST_POINTS, 1.0))
        first = int(seconds.min() // step)
        grouped = points.with_columns(
            step=pl.Series(np.floor_divide(seconds, step).astype(np.int64) - first)
        ).group_by("step")
        value = pl.col("value")
        found = dict(
            grouped.agg(
                {"max": value.max(), "min": value.min(), "mean": value.mean()}[how]
            ).iter_rows()
        )
        values = [found.get(at) for at in range(int(seconds.max() // step) - first + 1)]
        if len(found) < 2:
            return None
        return Chart(
            kind="course",
            title=title,
            unit=unit,
            start=datetime.fromtimestamp(first * step, case.origin.tzinfo),
            step_s=step,
            lines=[Line(name=title, values=values)],
            limit=limit,
            limit_name="full" if limit is not None else "",
        )

    return draw


def _lengths(column: str, title: str) -> Draw:
    """How calls are distributed over ranges of a length, before and now."""

    def draw(case: Case) -> Chart | None:
        now, before = case.served
        sides = [side.of(column) for side in (now, before) if side is not None]
        values = [side[~np.isnan(side)] for side in sides]
        if min(len(one) for one in values) < _LEAST_BAR:
            return None
        edges = _edges(np.concatenate(values))
        bars = []
        for low, high in itertools.pairwise(edges):
            inside = [(one >= low) & (one < high) for one in values]
            if not any(one.any() for one in inside):
                continue
            bars.append(
                Bar(
                    name=_range(low, high),
                    now=float(inside[0].mean()),
                    before=float(inside[1].mean()) if len(inside) > 1 else None,
                    n=int(inside[0].sum()),
                )
            )
        return Chart(kind="bars", title=title, unit="ratio", among="tokens of a call", bars=bars)

    return draw


def _edges(values: FloatArray) -> list[float]:
    """Edges of at most `_MOST_BARS` ranges between the ends of most values, in equal factors where these lie far apart."""
    low, high = (float(at) for at in np.percentile(values, [1.0, 99.0]))
    wide = low > 0.0 and high / low > 8.0  # three doublings
    inner = (
        np.geomspace(low, high, _MOST_BARS + 1) if wide else np.linspace(low, high, _MOST_BARS + 1)
    )[1:-1]
    return [-np.inf, *sorted({float(f"{edge:.2g}") for edge in inner}), np.inf]


def _range(low: float, high: float) -> str:
    if np.isinf(low):
        return f"below {high:,.0f}"
    return f"from {low:,.0f}" if np.isinf(high) else f"{low:,.0f} to {high:,.0f}"


def _by_work(
    x: Callable[[Calls], FloatArray], y: Callable[[Calls], FloatArray], title: str, among: str
) -> Draw:
    """A time by ranges of what goes on beside a call: equal numbers of calls in each range, before and now."""

    def draw(case: Case) -> Chart | None:
        now, before = case.served
        sides = [(x(side), y(side)) for side in (now, before) if side is not None]
        pairs = [(a[known(a, b)], b[known(a, b)]) for a, b in sides]
        if len(pairs[0][0]) < _MOST_BARS * _LEAST_BAR:
            return None
        inner = np.unique(np.percentile(pairs[0][0], np.linspace(0.0, 100.0, 7)[1:-1]))
        edges = [-np.inf, *(float(f"{one:.2g}") for one in inner), np.inf]
        bars = []
        for low, high in itertools.pairwise(edges):
            sums = [b[(a >= low) & (a < high)] for a, b in pairs]
            if len(sums[0]) < _LEAST_BAR:
                continue
            bars.append(
                Bar(
                    name=_range(low, high),
                    now=float(np.mean(sums[0])),
                    before=float(np.mean(sums[1]))
                    if len(sums) > 1 and len(sums[1]) >= _LEAST_BAR
                    else None,
                    n=len(sums[0]),
                )
            )
        return Chart(kind="bars", title=title, unit="ms", among=among, bars=bars) if bars else None

    return draw


def _replica_by_replica(title: str, unit: Unit, of: Literal["pace", "share"]) -> Draw:
    """Each replica of the slow requests' model: its time over what its work usually takes, or its share of the work."""

    def draw(case: Case) -> Chart | None:
        now = replicas(case.calls, case.slowest_model)
        if len(now) < 2:
            return None
        before = (
            {one.name: one for one in replicas(case.calls_before, case.slowest_model)}
            if case.calls_before is not None
            else {}
        )

        def value(one: object) -> float | None:
            if one is None:
                return None
            return float(np.exp(one.pace)) if of == "pace" else one.share  # type: ignore[attr-defined]

        bars = [
            Bar(
                name=printable(one.name),
                now=value(one),
                before=value(before.get(one.name)),
                n=one.calls,
            )
            for one in sorted(now, key=lambda one: -(value(one) or 0.0))[:_MOST_BARS]
        ]
        return Chart(kind="bars", title=title, unit=unit, among="replica", bars=bars)

    return draw


def _tenants(case: Case) -> Chart | None:
    """The work of each tenant as a part of all work before."""
    before = case.calls_before
    if before is None or case.baseline is None:
        return None
    costs = token_costs(before, case.calls)
    now, then = (
        work_by_tenant(side, *costs, period.seconds)
        for side, period in ((case.calls, case.period), (before, case.baseline))
    )
    whole = sum(then.values())
    if len(now) < 2 or whole <= 0.0:
        return None
    names = sorted(now, key=lambda name: -now[name])[:_MOST_BARS]
    counted = dict(case.calls.frame["tenant"].value_counts().iter_rows())
    bars = [
        Bar(
            name=printable(name),
            now=now[name] / whole,
            before=then.get(name, 0.0) / whole,
            n=int(counted.get(name, 0)),
        )
        for name in names
    ]
    return Chart(
        kind="bars",
        title="Engine work of each tenant, all work before = 1",
        unit="times",
        among="tenant",
        bars=bars,
    )


def stage_over_time(case: Case, stage: str) -> Chart | None:
    """The time of one stage in the judged requests: its mean and its P95 per step."""
    starts = case.rows["start_us"].to_numpy() / 1e6
    spent = case.times.ms.get(stage)
    if spent is None or len(starts) < 2 * _LEAST_P95:
        return None
    span = float(np.ptp(starts))
    step = step_at_least(max(span / _MOST_POINTS, 1.5 * _LEAST_P95 * span / len(starts), 1.0))
    first = int(starts.min() // step)
    at = np.floor_divide(starts, step).astype(np.int64) - first
    n = int(at.max()) + 1
    groups: list[FloatArray] = [spent[at == one] for one in range(n)]
    if n < 2:
        return None
    mean = [float(one.mean()) if len(one) >= _LEAST_N else None for one in groups]
    high = [float(np.percentile(one, 95.0)) if len(one) >= _LEAST_P95 else None for one in groups]
    words = stage.replace("_", " ") if stage != "other" else "no span"
    return Chart(
        kind="course",
        title=f"Time of a request in {words}",
        unit="ms",
        start=datetime.fromtimestamp(first * step, case.origin.tzinfo),
        step_s=step,
        lines=[Line(name="P95", values=high), Line(name="mean", values=mean)],
    )


def _has(calls: Calls, hit: BoolArray) -> FloatArray:
    return np.where(hit, 1.0, 0.0)


def _failed(calls: Calls) -> FloatArray:
    return _has(calls, calls.of("error") == 1.0)


_ADMITTED: Final = _course(
    "Model calls per second: arrived, and taken up", "per_s", _arrived_and_admitted
)
_PACE: Final = _course("Time per output token", "ms", _per_call("mean", _pace))
_LOAD: Final = ("arrivals", "input", "output", "waiting", "kv_usage")
_SPEED: Final = ("pace", "pace_equal_load", "batch", "read_meanwhile")


@dataclass(frozen=True)
class Shown:
    """What stands beside a finding: its chart (None: its stage over time), and the names of its facts, the deciding one first."""

    draw: Draw | None
    facts: tuple[str, ...]


# Rules that are not listed show their stage over time.
OF_RULE: Final[Mapping[str, Shown]] = {
    "under_capacity": Shown(_ADMITTED, _LOAD),
    "burst_arrivals": Shown(_ADMITTED, ("bursts", *_LOAD)),
    "too_few_seats": Shown(_ADMITTED, ("in_flight", *_LOAD)),
    "gateway_queue": Shown(_ADMITTED, ("in_flight", "arrivals", "engine_gap")),
    "client_throttled": Shown(_ADMITTED, ("in_flight", "waited_inside", "engine_gap", "arrivals")),
    "provider_queueing": Shown(_ADMITTED, ("first_equal_load", "arrivals", "input", "refusals")),
    "prefix_cache_lost": Shown(
        _course("Input tokens that a cache held", "ratio", _hits),
        ("cache", "input", "read_meanwhile", "pace", "arrivals"),
    ),
    "long_outputs": Shown(
        _lengths("output_tokens", "Share of calls by output tokens"),
        ("output", "output_slow", "reasoning", "batch", "cut_answers"),
    ),
    "prompt_bloat": Shown(
        _lengths("input_tokens", "Share of calls by input tokens"),
        ("input", "input_slow", "cache", "read_meanwhile"),
    ),
    "huge_context": Shown(
        _lengths("input_tokens", "Share of calls by input tokens"),
        ("input", "input_slow", "cache", "read_meanwhile"),
    ),
    "mixed_lengths": Shown(
        _by_work(
            lambda calls: calls.prefill_meanwhile,
            _pace,
            "Time per output token by what is read for others",
            "input tokens/s read for others meanwhile",
        ),
        ("read_meanwhile", "pace", "input", "batch"),
    ),
    "decode_stall": Shown(
        _by_work(
            lambda calls: calls.prefill_meanwhile,
            _pace,
            "Time per output token by what is read for others",
            "input tokens/s read for others meanwhile",
        ),
        ("read_meanwhile", "pace", "input", "batch"),
    ),
    "batch_past_knee": Shown(
        _by_work(
            lambda calls: np.where(calls.has_engine, calls.running, np.nan),
            _pace,
            "Time per output token by calls in the batch",
            "calls in the batch",
        ),
        _SPEED,
    ),
    "token_rate_sag": Shown(_PACE, _SPEED),
    "model_changed": Shown(_PACE, (*_SPEED, "output")),
    "engine_pauses": Shown(_PACE, _SPEED),
    "speculation_not_paying": Shown(
        _gauge("spec_accept_length", "Tokens of a step with drafts", "tokens", "mean"),
        ("drafts", *_SPEED),
    ),
    "kv_pressure": Shown(
        _gauge("kv_cache_usage", "KV cache in use", "ratio", "max", 1.0),
        ("kv_usage", "preemptions", "kv_capacity", "input", "output"),
    ),
    "gpu_throttled": Shown(
        _gauge("gpu_clock", "Clock of the slowest GPU", "hz", "min"), ("clock", *_SPEED)
    ),
    "straggler_replica": Shown(
        _replica_by_replica("Time for the same work, 1 = as usual", "times", "pace"),
        ("replica_pace", "replica_share", "pace", "batch"),
    ),
    "hot_replica": Shown(
        _replica_by_replica("Share of the work", "ratio", "share"),
        ("replica_share", "replica_pace", "waiting", "arrivals"),
    ),
    "noisy_tenant": Shown(_tenants, ("tenant_share", "arrivals", "input", "output", "waiting")),
    "retry_storm": Shown(
        _course(
            "Model calls per second, and those that repeat an earlier one", "per_s", _asked_again
        ),
        ("attempts", "arrivals", "refusals", "failures", "lost_inside"),
    ),
    "agent_loop": Shown(
        _course("Model calls of a request", "calls", _calls_per_request),
        ("repeats", "input", "output", "arrivals"),
    ),
    "sequential_calls": Shown(
        _course("Model calls of a request", "calls", _calls_per_request),
        ("repeats", "input", "output", "arrivals"),
    ),
    "cold_start": Shown(None, ("arrivals", "first_equal_load", "engine_gap")),
    "connection_churn": Shown(None, ("silence", "engine_gap", "constant", "waited_inside")),
    "stalled_connection": Shown(None, ("constant", "silence", "engine_gap", "lost_inside")),
    "cross_region": Shown(None, ("engine_gap", "waited_inside", "arrivals")),
    "missing_cancellation": Shown(
        _course("Calls that failed or were given up", "ratio", _per_call("share", _failed)),
        ("for_nobody", "failures", "arrivals", "batch"),
    ),
    "provider_spikes": Shown(None, ("first_equal_load", "pace_equal_load", "refusals", "arrivals")),
    "not_streaming": Shown(None, ("first_against_end", "output", "pace")),
    "one_kind_of_call": Shown(None, ("kind", "arrivals", "input", "output")),
    "slow_dependency": Shown(None, ("arrivals", "repeats", "failures")),
}
# Where a rule has no facts of its own.
USUAL: Final = ("arrivals", "input", "output", "pace", "in_flight")
MOST_FACTS: Final = 5


def chart_of(case: Case, rule: str, stage: str) -> Chart | None:
    """The chart of a rule's deciding fact; its stage over time where that cannot be measured here, or the rule has none of its own."""
    shown = OF_RULE.get(rule)
    own = shown.draw(case) if shown is not None and shown.draw is not None else None
    return own or stage_over_time(case, stage)
