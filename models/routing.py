"""Would it pay to route or order requests by their length? Policies of a router, replayed on the user's own trace.

A plain model of continuous-batching engines serves the recorded arrivals under each policy. Costs and units: seconds.
Method and the figures that the suite holds it to: sections on routing of docs/PREDICTOR.md. The model leaves out chunked
prefill, preemption and the attention penalty of mixed lengths: read the differences as directions, not decimals.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from overrun.analysis.words.finding import say_ratio
from overrun.models.dataset import prepare
from overrun.models.predict import Predictor
from overrun.models.replay import Record

Floats = NDArray[np.float64]
Policy = Literal[
    "round_robin",
    "least_requests",
    "least_input",
    "least_predicted",
    "shortest_first",
    "aged_shortest_first",
    "lanes",
]
POLICIES: Final[tuple[Policy, ...]] = (
    "round_robin", "least_requests", "least_input", "least_predicted", "shortest_first", "aged_shortest_first", "lanes")  # fmt: skip
# The yardstick: what most routers do.
BASELINE: Final[Policy] = "least_requests"
# A second of waiting takes this many seconds off the predicted work: without it a long request can wait for ever.
AGING: Final = 0.3


@dataclass(frozen=True, slots=True)
class Engines:
    """Equal instances: a step takes step_s + sequence_s x batch + context_s x context tokens, a prompt prefill_s a token, blocking.

    `slots` sequences run at once on each, within `kv_tokens` reserved in full.
    """

    instances: int = 4
    slots: int = 32
    kv_tokens: int = 48_000
    step_s: float = 0.015
    sequence_s: float = 0.000_15
    context_s: float = 50e-9
    prefill_s: float = 0.000_1

    def work_s(self, input_tokens: Floats, output_tokens: Floats) -> Floats:
        """Return what each request takes of an instance's time when the instance is full."""
        share = self.step_s / self.slots + self.sequence_s
        return np.asarray(
            self.prefill_s * input_tokens + output_tokens * (share + self.context_s * input_tokens)
        )


@dataclass(frozen=True, slots=True)
class Served:
    """Seconds from arrival to the first token and to the end, shape (requests,)."""

    ttft_s: Floats
    e2e_s: Floats


class _Instance:
    """One engine: what waits, what runs, and what it still owes."""

    __slots__ = ("busy", "context", "free_kv", "load", "now", "running", "steps", "waiting")

    def __init__(self, engines: Engines) -> None:
        self.waiting: list[tuple[float, int]] = []
        # Running sequences by the step in which they end.
        self.running: list[tuple[int, int]] = []
        self.steps = 0
        self.now = 0.0
        self.busy = False
        self.context = 0.0
        self.free_kv = engines.kv_tokens
        self.load = 0.0


# Steps that an instance takes before it looks for newcomers again: 10 steps are 0.2 s, a tenth of the differences read here.
_STRETCH: Final = 10


class _Fleet:
    """The instances, and how each request fares; arrays of shape (requests,), `weight` is what a request adds to its instance's load."""

    def __init__(
        self,
        arrival_s: Floats,
        input_tokens: Floats,
        output_tokens: Floats,
        weight: Floats,
        engines: Engines,
    ) -> None:
        self._arrival_s, self._input_tokens, self._weight, self._engines = (
            arrival_s,
            input_tokens,
            weight,
            engines,
        )
        self._generated = np.maximum(output_tokens, 1).astype(np.int64)
        self.instances = [_Instance(engines) for _ in range(engines.instances)]
        self.served = Served(np.full(len(arrival_s), np.nan), np.full(len(arrival_s), np.nan))
        # When an instance's stretch ends, and its number.
        self._events: list[tuple[float, int]] = []

    def send(self, index: int, key: float, candidates: Sequence[_Instance]) -> None:
        """Let request `index` arrive: it waits at the least loaded candidate, the smallest key first."""
        now = float(self._arrival_s[index])
        self.advance(now)
        one = min(candidates, key=lambda instance: instance.load)
        one.load += self._weight[index]
        heapq.heappush(one.waiting, (key, index))
        if not one.busy:
            one.now = max(one.now, now)
            self._step(self.instances.index(one))

    def advance(self, until: float) -> None:
        """Run every instance up to `until`."""
        while self._events and self._events[0][0] <= until:
            _, number = heapq.heappop(self._events)
            self._finish(self.instances[number])
            self._step(number)

    def _step(self, number: int) -> None:
        one = self.instances[number]
        self._admit(one)
        one.busy = bool(one.running)
        if one.busy:
            heapq.heappush(self._events, (self._run(one), number))

    def _admit(self, one: _Instance) -> None:
        """Give seats to who waits, in order of their keys, as long as seats and cache last; one alone always fits."""
        while one.waiting and len(one.running) < self._engines.slots:
            index = one.waiting[0][1]
            wanted = int(self._input_tokens[index] + self._generated[index])
            if wanted > one.free_kv and one.running:
                break
            heapq.heappop(one.waiting)
            one.free_kv -= wanted
            one.now += self._engines.prefill_s * float(self._input_tokens[index])
            self.served.ttft_s[index] = one.now + self._engines.step_s - self._arrival_s[index]
            one.context += float(self._input_tokens[index])
            heapq.heappush(one.running, (one.steps + int(self._generated[index]), index))

    def _run(self, one: _Instance) -> float:
        """Take steps to the next end, at most a stretch: where a seat is free a newcomer must not wait for longer. Returns the time then."""
        batch = len(one.running)
        steps = min(one.running[0][0] - one.steps, _STRETCH)
        context = one.context + batch * (steps - 1) / 2
        one.now += steps * (
            self._engines.step_s
            + self._engines.sequence_s * batch
            + self._engines.context_s * context
        )
        one.steps += steps
        one.context += batch * steps
        return one.now

    def _finish(self, one: _Instance) -> None:
        while one.running and one.running[0][0] <= one.steps:
            _, index = heapq.heappop(one.running)
            tokens = float(self._input_tokens[index] + self._generated[index])
            self.served.e2e_s[index] = one.now - self._arrival_s[index]
            one.free_kv += int(tokens)
            one.context -= tokens
            one.load -= self._weight[index]


def replay(
    arrival_s: Floats,
    input_tokens: Floats,
    output_tokens: Floats,
    predicted: Floats,
    policy: Policy,
    engines: Engines,
) -> Served:
    """Return how each request fares under `policy`; arrays of shape (requests,) in order of arrival.

    `predicted` output tokens are all a policy knows of the answer; `output_tokens` is what the engine then generates.
    """
    keys = _keys(arrival_s, input_tokens, predicted, policy, engines)
    fleet = _Fleet(
        arrival_s,
        input_tokens,
        output_tokens,
        _weights(input_tokens, predicted, policy, engines),
        engines,
    )
    short = predicted <= np.median(predicted) if len(predicted) else np.zeros(0, dtype=bool)
    for index in range(len(arrival_s)):
        fleet.send(
            index,
            float(keys[index]),
            _candidates(fleet.instances, policy, index, bool(short[index])),
        )
    fleet.advance(np.inf)
    return fleet.served


def _weights(input_tokens: Floats, predicted: Floats, policy: Policy, engines: Engines) -> Floats:
    """What a request adds to the load by which instances are compared: one, or its known or predicted work in seconds."""
    if policy == "least_input":
        return engines.work_s(input_tokens, np.zeros(len(input_tokens)))
    if policy in ("least_predicted", "lanes"):
        return engines.work_s(input_tokens, predicted)
    return np.ones(len(input_tokens))


def _keys(
    arrival_s: Floats, input_tokens: Floats, predicted: Floats, policy: Policy, engines: Engines
) -> Floats:
    """What is served first at an instance: the smallest arrival, or the least time that the request would take alone.

    A wait that takes AGING off the work per second is the same as an arrival that adds it, so keys never change places.
    """
    if policy not in ("shortest_first", "aged_shortest_first"):
        return arrival_s
    alone = engines.prefill_s * input_tokens + predicted * engines.step_s
    return np.asarray(alone + AGING * arrival_s if policy == "aged_shortest_first" else alone)


def _candidates(
    instances: list[_Instance], policy: Policy, index: int, short: bool
) -> Sequence[_Instance]:
    """The instances that may take a request."""
    if policy == "round_robin":
        return [instances[index % len(instances)]]
    if policy == "lanes" and len(instances) > 1:
        half = len(instances) // 2
        return instances[:half] if short else instances[half:]
    return instances


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's percentiles in seconds, and its change against least-requests as a ratio (-0.3: 30 % less).

    `short_p50` is the E2E median of the third of the requests with the shortest answers, `long_p99` the E2E P99 of the longest tenth.
    """

    policy: Policy
    known: Literal["predicted", "oracle"]
    seconds: Mapping[str, float]
    change: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What routing by length would do to a trace: one row per policy, the best one, and the sentence to show."""

    load: float
    outcomes: tuple[Outcome, ...]
    best: Outcome | None
    sentence: str


def evaluate(
    arrival_s: Floats,
    input_tokens: Floats,
    output_tokens: Floats,
    predicted: Floats,
    engines: Engines | None = None,
    load: float = 0.9,
) -> Evaluation:
    """Return the effect of each policy on this trace, its arrivals stretched so that the instances are loaded to `load` (0..1.5).

    Raises:
        ValueError: fewer than 300 requests (no P99), arrays of different lengths, or a load out of range.
    """
    if (
        len({len(arrival_s), len(input_tokens), len(output_tokens), len(predicted)}) != 1
        or len(arrival_s) < _MIN_REQUESTS
    ):
        raise ValueError(
            f"{len(arrival_s)} requests, wanted at least {_MIN_REQUESTS} with arrival, input, output and prediction each: take a longer window"
        )
    if not 0.05 <= load <= 1.5:
        raise ValueError(f"load is {load}, wanted 0.05 to 1.5")
    engines = engines or Engines()
    stretched = _loaded(
        arrival_s, engines.work_s(input_tokens, output_tokens), engines.instances, load
    )
    served = {
        (BASELINE, "predicted"): replay(
            stretched, input_tokens, output_tokens, predicted, BASELINE, engines
        )
    }
    base = _percentiles(served[BASELINE, "predicted"], output_tokens)
    outcomes = []
    for policy in POLICIES:
        for known, lengths in (("predicted", predicted), ("oracle", output_tokens)):
            if known == "oracle" and policy in ("round_robin", "least_requests", "least_input"):
                continue
            seconds = _percentiles(
                replay(stretched, input_tokens, output_tokens, lengths, policy, engines),
                output_tokens,
            )
            change = {
                name: value / base[name] - 1.0 if base[name] else 0.0
                for name, value in seconds.items()
            }
            outcomes.append(
                Outcome(policy, "oracle" if known == "oracle" else "predicted", seconds, change)
            )
    best = _best(outcomes)
    return Evaluation(load, tuple(outcomes), best, _sentence(best, load))


_MIN_REQUESTS: Final = 300
# Smaller gains than this are within what the model cannot tell.
_WORTH: Final = 0.10


def _loaded(arrival_s: Floats, work_s: Floats, instances: int, load: float) -> Floats:
    span = float(arrival_s[-1] - arrival_s[0])
    wanted = float(work_s.sum()) / (instances * load)
    return np.asarray(
        (arrival_s - arrival_s[0]) * (wanted / span) if span > 0 else np.zeros(len(arrival_s))
    )


def _percentiles(served: Served, output_tokens: Floats) -> dict[str, float]:
    third, tenth = np.quantile(output_tokens, (1 / 3, 0.9))
    out = {
        f"ttft_p{level}": float(np.quantile(served.ttft_s, level / 100)) for level in (50, 95, 99)
    }
    out |= {
        f"e2e_p{level}": float(np.quantile(served.e2e_s, level / 100)) for level in (50, 95, 99)
    }
    out["short_p50"] = float(np.median(served.e2e_s[output_tokens <= third]))
    out["long_p99"] = float(np.quantile(served.e2e_s[output_tokens >= tenth], 0.99))
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
        told = f"At {say_ratio(load)} load no policy that looks at lengths lowers E2E P50, E2E P99 or TTFT P99 by {say_ratio(_WORTH)} or more"
        return f"{told}: routing by length would not pay here."
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
    """Return the evaluation as text: a row per policy, changes in percent against least requests."""
    names = (
        "ttft_p50",
        "ttft_p95",
        "ttft_p99",
        "e2e_p50",
        "e2e_p95",
        "e2e_p99",
        "short_p50",
        "long_p99",
    )
    lines = [f"{'policy':<22}{'lengths':<11}" + "".join(f"{name:>11}" for name in names)]
    for one in made.outcomes:
        changed = "".join(
            f"{one.seconds[name]:>10.2f}s"
            if one.policy == BASELINE
            else f"{100.0 * one.change[name]:>+9.0f} %"
            for name in names
        )
        lines.append(
            f"{one.policy:<22}{'-' if one.policy in POLICIES[:3] else one.known:<11}{changed}"
        )
    return [
        *lines,
        "",
        made.sentence,
        "A model of the engines, not a measurement: directions, not decimals.",
    ]


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
    frame: pl.DataFrame, artifact: Path, engines: Engines, load: float
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
    return evaluate(arrival, inputs, data.outputs, predicted, engines, load)


# The newest requests that are replayed: about five seconds.
MAX_REQUESTS: Final = 20_000
