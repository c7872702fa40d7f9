"""Would it pay to route or order requests by their length? Policies of a router, replayed by the simulator of the what-ifs.

The engines are those that a recording was calibrated on (`overrun.analysis.simulator`), or engines of a stated size with the costs of `STATED` where only a
trace is known. Each policy is compared with least requests under the same arrivals. Times are seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from overrun.analysis.simulator import placement
from overrun.analysis.simulator.batching import LEAST_LOAD
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Calls, Costs, Run, Setup, apart, simulate
from overrun.analysis.words.finding import say_count, say_ratio
from overrun.models.dataset import prepare
from overrun.models.predict import Predictor
from overrun.models.replay import Record

Floats = NDArray[np.float64]
# The policies by the names of this command, and what they are called in a what-if.
POLICIES: Final[Mapping[str, placement.Policy]] = {
    "round_robin": "round_robin",
    "least_requests": "least_load",
    "least_input": "by_input",
    "least_predicted": "least_work",
    "shortest_first": "shortest_first",
    "aged_shortest_first": "aged_shortest_first",
    "lanes": "lanes",
}
# Those that no expected length changes.
LENGTHLESS: Final = ("round_robin", "least_requests", "least_input")
# The yardstick: what most routers do.
BASELINE: Final = "least_requests"
# Seconds of an engine that nobody measured: a step of 15 ms, 0.15 ms a sequence, 50 ns a token of context, 0.1 ms a prompt token; own default.
STATED: Final = Costs(
    prefill_token=1e-4, attention=0.0, step=0.015, kv_token=50e-9, sequence=1.5e-4
)
DEFAULT_LOAD: Final = 0.9
_LOADS: Final = (0.05, 1.5)
_MIN_REQUESTS: Final = 300
# Smaller gains than this are within what a simulation cannot settle.
_WORTH: Final = 0.10
# The newest requests that are replayed.
MAX_REQUESTS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """The engines behind the router: settings and costs of the simulator, how many calls share a step of a busy one, and what they are, in words."""

    setup: Setup
    costs: Costs
    running: int
    said: str

    @classmethod
    def stated(cls, instances: int = 4, slots: int = 32, kv_tokens: int = 48_000) -> Fleet:
        """Equal engines of a stated size: `slots` sequences run at once on each, within `kv_tokens`."""
        size = (
            f"{say_count(instances, 'engine')} with {slots} slots and {kv_tokens:,} KV tokens each"
        )
        return cls(
            Setup(replicas=instances, max_sequences=slots, kv_tokens=kv_tokens),
            STATED,
            slots,
            f"Simulated: {size} and assumed costs. Give --db to simulate the engines of a recording.",
        )

    @classmethod
    def calibrated(cls, engine: Engine) -> Fleet:
        """The engines of a recording."""
        pool, error = engine.pool, engine.identity_error.get("e2e_p95", float("nan"))
        return cls(
            replace(engine.setup, router=LEAST_LOAD),
            engine.costs,
            max(1, pool.most_running),
            f"Simulated: {say_count(engine.setup.replicas, 'engine')} calibrated on {say_count(len(pool), 'recorded call')}; "
            f"their replay is {say_ratio(error)} off the recorded E2E P95.",
        )


def calls_of(arrival_s: Floats, input_tokens: Floats, output_tokens: Floats) -> Calls:
    """Return requests of which nothing else is known; arrays of shape (requests,)."""
    n = len(arrival_s)
    none = np.full(n, -1, dtype=np.int64)
    return Calls(
        arrival_s=arrival_s - (arrival_s[0] if n else 0.0),
        after=none,
        prompt_tokens=np.maximum(input_tokens, 1).astype(np.int64),
        cached_tokens=np.zeros(n, dtype=np.int64),
        output_tokens=np.maximum(output_tokens, 1).astype(np.int64),
        replica=none,
        pool_from=np.zeros(n, dtype=np.int64),
        pool_to=np.full(n, 1 << 20, dtype=np.int64),
        weight=np.ones(n),
        gated=np.zeros(n, np.bool_),
        **apart(n),
    )


def replay(
    calls: Calls, expected: Floats, policy: str, fleet: Fleet, arrived_s: Floats | None = None
) -> Run:
    """Return how each call fares under `policy`.

    `expected` output tokens are all that a policy knows of the answer; `arrived_s` is when each call came (default: as `calls` say).
    """
    came = calls.arrival_s if arrived_s is None else arrived_s
    setup = replace(fleet.setup, router=LEAST_LOAD)
    asked = POLICIES[policy], calls, setup, fleet.costs, expected, came, fleet.running
    return simulate(*placement.placed(*asked), fleet.costs)


def needed_s(calls: Calls, fleet: Fleet) -> float:
    """Return how long the engines take for these calls when none ever waits for another to come: the time that makes a load of 1."""
    n = len(calls)
    at_once = replace(calls, arrival_s=np.zeros(n), **apart(n), after=np.full(n, -1))
    run = simulate(at_once, replace(fleet.setup, router=LEAST_LOAD), fleet.costs)
    # Until the last call is admitted all engines are full; then they run empty, which no lasting load does.
    full = float(run.scheduled_s.max())
    if full <= 0.0:
        return float(run.end_s.max())
    fresh = calls.prompt_tokens - calls.cached_tokens
    share = fleet.costs.sequence + fleet.costs.step / fleet.running
    work = fresh * fleet.costs.prefill_token + calls.output_tokens * share
    took = np.maximum(run.end_s - run.scheduled_s, 1e-9)
    done = work * np.clip((full - run.scheduled_s) / took, 0.0, 1.0)
    return full * float(work.sum() / done.sum())


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's percentiles in seconds, and its change against least-requests as a ratio (-0.3: 30 % less).

    `short_p50` is the E2E median of the third of the requests with the shortest answers, `long_p99` the E2E P99 of the longest tenth.
    """

    policy: str
    known: Literal["predicted", "oracle"]
    seconds: Mapping[str, float]
    change: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What routing by length would do to a trace: one row per policy, the best one, the sentence to show, and which engine was simulated."""

    load: float
    outcomes: tuple[Outcome, ...]
    best: Outcome | None
    sentence: str
    engine: str


def evaluate(
    calls: Calls,
    predicted: Floats,
    fleet: Fleet | None = None,
    load: float | None = DEFAULT_LOAD,
    arrived_s: Floats | None = None,
) -> Evaluation:
    """Return the effect of each policy on these calls.

    Their arrivals are stretched so that the engines are loaded to `load` (0.05..1.5); None leaves them as they were. `predicted` has the expected output
    tokens of each call, `arrived_s` when it came.

    Raises:
        ValueError: fewer than 300 calls (no P99), arrays of different lengths, or a load out of range.
    """
    if len(predicted) != len(calls) or len(calls) < _MIN_REQUESTS:
        raise ValueError(
            f"{len(calls)} requests, expected at least {_MIN_REQUESTS} with arrival, input, output and prediction each: take a longer window"
        )
    if load is not None and not _LOADS[0] <= load <= _LOADS[1]:
        raise ValueError(f"load is {load}, expected {_LOADS[0]} to {_LOADS[1]}")
    fleet = fleet or Fleet.stated()
    came = calls.arrival_s if arrived_s is None else arrived_s
    calls, came, load = _loaded(calls, came, needed_s(calls, fleet), load)
    outputs = calls.output_tokens.astype(np.float64)
    base = _percentiles(replay(calls, predicted, BASELINE, fleet, came), outputs)
    outcomes = []
    for policy in POLICIES:
        known: tuple[Literal["predicted", "oracle"], Floats]
        for known in (("predicted", predicted), ("oracle", outputs)):
            if known[0] == "oracle" and policy in LENGTHLESS:
                continue
            seconds = _percentiles(replay(calls, known[1], policy, fleet, came), outputs)
            change = {
                name: value / base[name] - 1.0 if base[name] else 0.0
                for name, value in seconds.items()
            }
            outcomes.append(Outcome(policy, known[0], seconds, change))
    best = _best(outcomes)
    return Evaluation(load, tuple(outcomes), best, _sentence(best, load), fleet.said)


def _loaded(
    calls: Calls, came: Floats, needed: float, load: float | None
) -> tuple[Calls, Floats, float]:
    """The calls at a load, when each comes then, and the load."""
    span = float(came.max() - came.min())
    if load is None:
        return calls, came, needed / span if span > 0.0 else _LOADS[1]
    factor = needed / load / span if span > 0.0 else 0.0
    first = float(came.min())
    arrival = np.where(calls.after >= 0, calls.arrival_s, (calls.arrival_s - first) * factor)
    return replace(calls, arrival_s=arrival), (came - first) * factor, load


def _percentiles(run: Run, output_tokens: Floats) -> dict[str, float]:
    third, tenth = np.quantile(output_tokens, (1 / 3, 0.9))
    out = {
        f"{name}_p{level}": float(np.quantile(seconds, level / 100))
        for name, seconds in (("ttft", run.ttft_s), ("e2e", run.e2e_s))
        for level in (50, 95, 99)
    }
    out["short_p50"] = float(np.median(run.e2e_s[output_tokens <= third]))
    out["long_p99"] = float(np.quantile(run.e2e_s[output_tokens >= tenth], 0.99))
    return out


def _best(outcomes: Sequence[Outcome]) -> Outcome | None:
    """The policy a router could really run that lowers E2E P50, E2E P99 or TTFT P99 the most; None if none is worth it."""
    real = [one for one in outcomes if one.known == "predicted" and one.policy != BASELINE]
    gain = {
        id(one): -min(one.change[name] for name in ("e2e_p50", "e2e_p99", "ttft_p99"))
        for one in real
    }
    best = max(real, key=lambda one: gain[id(one)])
    return best if gain[id(best)] >= _WORTH else None


def _sentence(best: Outcome | None, load: float) -> str:
    if best is None:
        told = f"At {say_ratio(load)} load no policy that uses lengths lowers E2E P50, E2E P99 or TTFT P99 by {say_ratio(_WORTH)} or more"
        return f"{told}: routing by length does not help here."
    change = best.change
    named = {"e2e_p50": "E2E P50", "e2e_p99": "E2E P99", "ttft_p99": "TTFT P99"}
    changes = ", ".join(
        f"{words} by {100.0 * change[name]:+.0f} %" for name, words in named.items()
    )
    said = f"At {say_ratio(load)} load {best.policy.replace('_', ' ')} changes {changes}"
    if change["e2e_p99"] > 0.05 or change["ttft_p99"] > 0.05:
        return f"{said}: the median gains at the expense of the tail."
    return f"{said}."


def describe(made: Evaluation) -> list[str]:
    """Return the evaluation as text: the answer, then a row per policy, changes in percent against least requests."""
    names = ("ttft_p50", "ttft_p99", "e2e_p50", "e2e_p99", "short_p50", "long_p99")
    lines = [
        f"{'policy':<20}{'lengths':<10}"
        + "".join(f"{name.replace('_', ' '):>10}" for name in names)
    ]
    for one in made.outcomes:
        changed = "".join(
            f"{one.seconds[name]:>8.2f} s"
            if one.policy == BASELINE
            else f"{100.0 * one.change[name]:>+8.0f} %"
            for name in names
        )
        known = "-" if one.policy in LENGTHLESS else one.known
        lines.append(f"{one.policy[:19]:<20}{known:<10}{changed}")
    return [made.sentence, "", *lines, "", made.engine]


def as_json(made: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values."""
    rows = [
        {
            "policy": one.policy,
            "known": one.known,
            "seconds": dict(one.seconds),
            "change": dict(one.change),
        }
        for one in made.outcomes
    ]
    return {
        "load": made.load,
        "baseline": BASELINE,
        "outcomes": rows,
        "best": made.best.policy if made.best else None,
        "sentence": made.sentence,
        "engine": made.engine,
    }


def predicted_medians(records: Sequence[Record], predictor: Predictor) -> Floats:
    """Return the P50 of each record as a router would have had it: what had finished by its arrival was observed, nothing later."""
    medians = np.empty(len(records))
    running: list[tuple[float, int]] = []
    for index, record in enumerate(records):
        while running and running[0][0] <= record.request.time_s:
            done = records[heapq.heappop(running)[1]]
            predictor.observe(_row(done), done.output_tokens)
        medians[index] = predictor.predict(_row(record))["p50"]
        heapq.heappush(running, (record.finished_s, index))
    return medians


def _row(record: Record) -> dict[str, Any]:
    own = record.request
    names = (
        "route",
        "model",
        "input_tokens",
        "max_tokens",
        "temperature",
        "stream",
        "turn",
        "session",
        "tenant",
        "prefix_hash",
    )
    values = {"time": own.time_s} | {name: getattr(own, name) for name in names}
    return {name: None if value != value else value for name, value in values.items()}


def evaluate_trace(
    frame: pl.DataFrame, artifact: Path, fleet: Fleet, load: float | None
) -> Evaluation:
    """Return the evaluation of a table of requests (columns of `overrun.models.sources.COLUMNS`) with the predictions of `artifact`.

    Raises:
        ArtifactError: it does not load. TooFewRowsError: fewer than 300 usable requests. ValueError: as `evaluate`.
    """
    data = prepare(frame, min_rows=_MIN_REQUESTS, max_rows=MAX_REQUESTS, test_share=0.3)
    predicted = predicted_medians(data.records, Predictor.load(artifact))
    arrival = np.array([record.request.time_s for record in data.records])
    inputs = np.where(
        np.isnan(data.inputs),
        np.nanmedian(data.inputs) if not np.isnan(data.inputs).all() else 0.0,
        data.inputs,
    )
    return evaluate(calls_of(arrival, inputs, data.outputs), predicted, fleet, load)


def evaluate_recorded(
    frame: pl.DataFrame,
    start_us: NDArray[np.int64],
    engine: Engine,
    artifact: Path,
    load: float | None,
) -> Evaluation:
    """Return the evaluation of the calls that an engine was calibrated on, with their prefix caches and conversations.

    `frame` are the same calls as a table of requests, for the predictions; `start_us` is the start of each call of the recording.

    Raises:
        ArtifactError, TooFewRowsError, ValueError: as `evaluate_trace`.
    """
    data = prepare(frame, min_rows=_MIN_REQUESTS, max_rows=len(frame), test_share=0.3)
    medians = predicted_medians(data.records, Predictor.load(artifact))
    found = {
        (round(record.request.time_s * 1e6), int(record.output_tokens)): float(median)
        for record, median in zip(data.records, medians, strict=True)
    }
    pool = engine.pool
    keys = zip(start_us[pool.rows].tolist(), pool.calls.output_tokens.tolist(), strict=True)
    # A call that is in no table of requests (it failed) is expected to be as long as most.
    predicted = np.array([found.get(key, float(np.median(medians))) for key in keys])
    return evaluate(pool.calls, predicted, Fleet.calibrated(engine), load, pool.arrived_s)
