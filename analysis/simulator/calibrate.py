"""What does a step of this engine cost? Fits the simulator to the recording by replaying its arrivals, and reports how well that fits.

The settings without telemetry (scheduler, token budget, seats) and the coefficients of the step are chosen so that the replay gives the
recorded TTFT, decode time and E2E: mean absolute log error over calls and over their quantiles, by Nelder and Mead from two starts. Regression on
span totals alone is biased by a third on TTFT, because the batches that a call met are not in its span; it is one of the starts.

Three figures show its reliability: the identity replay (the recording through the fitted engine), the hold-out (fitted on the first two
thirds, scored on the rest), and refits on resampled blocks of time, whose answers to a what-if spread as the coefficients are uncertain.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.simulator.batching import CHUNK, FITTING
from overrun.analysis.simulator.capacity_limits import suggested, with_limits
from overrun.analysis.simulator.conversations import remembered
from overrun.analysis.simulator.engine import (
    NO_KNEE,
    Costs,
    Run,
    Setup,
    asked_of,
    simulate,
    simulate_asked,
)
from overrun.analysis.simulator.nelder_mead import minimise
from overrun.analysis.simulator.pool import UNLIMITED_KV, Pool
from overrun.analysis.simulator.step_cost_regression import (
    BatchKnee,
    batch_knee,
    odd_one,
    regression,
)
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import SEED

# Evaluations of the replay: from each start, each alternative setting, last search, polish on the whole recording, hold-out, each refit. In tests
# against another cost law the error falls until about a thousand in all.
FIRST, ALTERNATIVE, LAST, POLISH, HOLDOUT, REFIT = 240, 70, 300, 80, 240, 60
REFITS: Final = 8
# Nelder and Mead over seven coefficients need eight evaluations to begin with and some to move.
LEAST_EVALUATIONS: Final = 30
BLOCKS: Final = 12
# An alternative setting must lower the error by this part to be believed over the default.
BETTER: Final = 0.9
# Settings beside the default that are looked at as closely as it; own default.
_RIVALS: Final = 2
# Parts of a KV capacity that waits suggest between which it is looked for; own default.
_AROUND_KV: Final = tuple(np.linspace(0.9, 1.06, 33).tolist())
# Calls that a search replays: enough for its quantiles, few enough for seconds. Longer recordings are searched on their busiest stretch.
STRETCH: Final = 3000
# The gate of the identity replay: E2E quantiles within 10 %, TTFT P99 within 20 %.
E2E_GATE: Final = 0.10
TTFT_GATE: Final = 0.20
_E2E: Final = (("e2e_p50", E2E_GATE), ("e2e_p95", E2E_GATE), ("e2e_p99", E2E_GATE))
_TTFT: Final = (("ttft_p99", TTFT_GATE),)
# What no figure is given without: an engine that misses the body of the recording is none of its kind. Other quantiles are each judged by themselves.
_BODY: Final = (("e2e_p50", E2E_GATE), ("e2e_p95", E2E_GATE))
_EACH: Final = (
    ("e2e_p99", E2E_GATE),
    ("ttft_p50", TTFT_GATE),
    ("ttft_p95", TTFT_GATE),
    ("ttft_p99", TTFT_GATE),
)
# Tokens of whole prompts that a step reads together at the least, where they are read first; own default. A longer one is read by itself.
WHOLE_BUDGET: Final = 8192
TOKEN_BUDGETS: Final = (512, 1024, 2048, 4096, 8192, 16_384)
_QUANTILES: Final = np.array([0.5, 0.75, 0.9, 0.95, 0.99])
_LEAST_S: Final = 1e-4
# Slowest replica's step over the quickest's from which they are no equals; own default, above what the noise of medians makes.
UNEVEN: Final = 1.2
# Parts of the pace that recorded rates tell of an odd replica from which it is looked for; own default: told low, more often than not by less than half.
_PACES: Final = (1.0, 1.6, 2.5)
# Calls of a new replica that show whether it is slow at first, and those of the others that its pace is compared with; own defaults.
_EARLY, _OTHERS = 10, 50
# Half-lives in seconds and factors from which the search for a new replica's way to its pace begins, and its evaluations.
_WARM_S, _COLD = (10.0, 30.0, 90.0, 270.0), (0.5, 1.5, 5.0)
_WARMING: Final = 60
# Sizes around the knee of the recorded rates (as parts of it) that are searched for the best replay, and the steps of that; own defaults.
_AROUND, _CLIMB = (0.85, 0.92, 1.0, 1.08), (2, 1, 1)
# Knees and starts, the likeliest, that are looked at more closely; own default.
_GLANCES: Final = 8
# How far the part of a step that every batch takes is moved, in log units, to see whether the recording separates it from the part that grows with the batch, and how much
# worse the replay may be then; own defaults.
_SPLIT, _AS_GOOD = 0.35, 1.1
# Parts of what a step loses by that which its sequences may make up for, and the least that is left of what they take themselves.
_SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
_LEAST_LEFT: Final = 0.05
# A cost that the search has driven to nothing still has a logarithm.
_NEARLY_NONE_S: Final = 1e-12
_STEP_ALONE: Final = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
# The error of a replay below which none is better than another: clocks and rounding make as much; own default.
_CLOSE: Final = 0.02
# Weight of the quantiles when a first fit does not pass the gate; own default.
_INSIST: Final = 5.0
# Pulls coefficients that the data does not settle towards those of the regression, too weakly to move the others: past capacity the replay alone
# trades the step against the batch, and errs by a third on what fewer calls would meet.
_PRIOR: Final = 0.02
# The part of a step's lesser bound from which searches begin; own default.
_PART: Final = 0.2
# That part as far as engines are known: a cubic mean of two equal bounds is 1.26 times each; of a mixed step's kernels, those that read weights hide behind
# their own arithmetic and those that read KV do not. Then others on either side, own defaults, each begun from one before it.
_PARTS: Final = ((0.3, None), (0.15, 0.3), (0.0, 0.15), (0.5, 0.3), (0.75, 0.5))
# Coefficients of the regression, before that part.
_TOLD: Final = 6
# Calls of before the window that are replayed beside it; own default. They are asked where the engine that was fitted to the window replays their E2E P50 or
# P95 further off than that (TTFT P50 twice as far), and believed where an engine of both replays them no further off than the gate allows.
EARLIER: Final = 500
# Calls of the window that a search for an engine of both replays, on their busiest stretch; own default, as the search is as long as all others together.
JOINT: Final = 800
_SAME: Final = 0.03
# How many times as badly as by an engine of its own the window may be replayed then: searches for one that suits both end a fifth above the least; own
# default.
_WORSE: Final = 1.25
# How many times as badly as by another machine before and now an engine of both may replay them halfway through its search: the rest lowers it by less.
_HOPELESS: Final = 1.2
# KV capacities, the likeliest, that are looked at more closely; own default.
_LIKELY: Final = 3


@dataclass(frozen=True)
class Engine:
    """A calibrated pool. `identity` is the replay of the recording, `refits` other coefficients that fit resampled recordings about as well.

    `identity_error` and `holdout_error` are |replay / recorded - 1| by name (`e2e_p50`, ..., `ttft_p99`); `gate` is the reason why the engine must not be
    used, None when it passed; `withheld` why single quantiles must not be, by the same names: a percentile is tested on as many calls as it needs.
    `unseen` engines were guessed from what their clients saw (`whatif.unseen`).
    `knee` is where recorded token rates break, if the engine has one: that of `setup` is the one that replays best, a little below where noise, which a replay
    has not, tips an engine over its knee.
    """

    pool: Pool
    setup: Setup
    costs: Costs
    refits: tuple[Costs, ...]
    identity: Run
    identity_error: dict[str, float]
    holdout_error: dict[str, float]
    gate: str | None
    withheld: dict[str, str]
    seconds: float
    unseen: bool = False
    knee: BatchKnee | None = None


class Replay:
    """The error of a replay against some calls of the recording (`rows`, repeats count): the function that calibration makes small.

    Mean absolute log error of TTFT, decode time and E2E over calls, plus that of the quantiles of TTFT and E2E.
    """

    def __init__(self, pool: Pool, rows: IntArray, quantile_weight: float = 1.0) -> None:
        self._asked, self._rows, self._weight = asked_of(pool.calls), rows, quantile_weight
        ttft, e2e = pool.ttft_s[rows], pool.e2e_s[rows]
        self._true = np.log(np.maximum(np.stack([ttft, e2e - ttft, e2e]), _LEAST_S))
        self._at = np.round(_QUANTILES * (len(rows) - 1)).astype(np.int64)
        self._quantiles = np.sort(self._true[[0, 2]], axis=1)[:, self._at]

    def error(self, setup: Setup, costs: Costs) -> float:
        """Replay with these settings and coefficients."""
        run = simulate_asked(self._asked, setup, costs)
        # In place, and without NumPy's own functions for means: of a short recording that takes as long as the replay.
        ours = np.empty_like(self._true)
        ours[0], ours[2] = run.ttft_s[self._rows], run.e2e_s[self._rows]
        np.subtract(ours[2], ours[0], out=ours[1])
        np.log(np.maximum(ours, _LEAST_S, out=ours), out=ours)
        quantiles = np.sort(ours[::2], axis=1)[:, self._at]
        total = self._apart(ours, self._true) + self._weight * self._apart(
            quantiles, self._quantiles
        )
        return total if np.isfinite(total) else 1e6

    @staticmethod
    def _apart(ours: FloatArray, true: FloatArray) -> float:
        """The mean absolute difference of each row, and the sum of these."""
        each = np.subtract(ours, true)
        np.abs(each, out=each)
        return float((np.add.reduce(each, axis=1) / each.shape[1]).sum())


def fit(
    pool: Pool,
    *,
    rows: IntArray | None = None,
    setup: Setup | None = None,
    earlier: Pool | None = None,
    progress: Callable[[float], None] = lambda share: None,
    refits: int = REFITS,
    effort: float = 1.0,
) -> Engine:
    """Calibrate one pool on some of its calls (all of them by default); seconds on one core. `progress` gets the share done.

    With `setup` the engine's settings are known and only what a step costs is searched for. `earlier` are calls that the same engines may have served before
    (`_Earlier`). `effort` below 1 searches with fewer evaluations, on a shorter stretch.
    """
    begun = time.perf_counter()
    rng = np.random.default_rng(SEED)
    every = np.flatnonzero(pool.told) if rows is None else rows
    part, inside = _stretch(pool, every, round(STRETCH * effort))
    # A step costs what it costs on replicas that are warm; how the others came to that is separated.
    cold = _joined(part)
    whole, inside = inside, inside[~cold[inside]]
    search = _Search(part, inside, effort)
    known = setup is not None
    setup, at = (
        (setup, search.from_starts(Replay(part, inside), setup, FIRST)[0])
        if setup is not None
        else search.settings(progress)
    )
    for _ in range(2):
        setup = replace(setup, speed=_speeds(part, setup, costs_of(at), ~cold))
        at, _ = search.minimise(Replay(part, inside), setup, at, 0.25, LAST)
        # Costs that were fitted as if all replicas were alike have taken a part of a slow one's time: with its speed known it is separated once more.
        if max(setup.speed) < UNEVEN * min(setup.speed):
            break
    at = search.hidden(setup, at)
    setup = replace(setup, speed=_speeds(part, setup, costs_of(at), ~cold))
    # Only then: a slow replica's calls look like those of large batches.
    bend = None
    if not known:
        setup, at, bend = search.bent(setup, at)
    across = (
        None
        if earlier is None or known
        else search.across(_Earlier(earlier, setup, at, effort), setup, at)
    )
    calm, setup, at, bend = across or (None, setup, at, bend)
    if part is not pool:
        at, _ = search.minimise(
            _beside(Replay(pool, every[~_joined(pool)[every]]), calm), setup, at, 0.1, POLISH
        )
    if cold.any():
        setup = _warming(part, whole[cold[whole]], setup, costs_of(at))
    if _gate(errors(pool, simulate(pool.calls, setup, costs_of(at)), every), _E2E + _TTFT):
        at = search.insist(setup, at)
    progress(0.6)
    seen, unseen = _parted(part, inside)
    trained = _Search(part, seen, effort).from_starts(
        _beside(Replay(part, seen), calm), setup, HOLDOUT
    )[0]
    holdout = errors(part, simulate(part.calls, setup, costs_of(trained)), unseen)
    progress(0.7)
    others = []
    refits = max(3, round(refits * effort))
    for k in range(refits):
        others.append(
            costs_of(
                search.otherwise(
                    _beside(Replay(part, _resampled(part, inside, rng)), calm),
                    setup,
                    at,
                    _SPLIT if k % 2 else -_SPLIT,
                )
            )
        )
        progress(0.7 + 0.3 * (k + 1) / refits)
    calls, setup = remembered(pool.drawn().calls, setup, costs_of(at), every)
    pool = replace(pool, calls=calls)
    identity = simulate(pool.calls, setup, costs_of(at))
    error = errors(pool, identity, every)
    return Engine(
        pool,
        setup,
        costs_of(at),
        tuple(others),
        identity,
        error,
        holdout,
        _gate(error, _BODY),
        _withheld(error, len(every)),
        time.perf_counter() - begun,
        knee=bend,
    )


class _Earlier:
    """Calls of before the window, which met other batches: what a step costs in those, if the engines were the same.

    Whether they were is seen in the replay: one engine has to replay both, these better than one whose steps were all quicker or slower by one factor than
    in the window (another machine, another model). Seats (as many as ever ran), drafts and the pace of each replica are those of before, the scheduler is the
    window's or one with chunks, the one that suits them best.
    """

    def __init__(self, pool: Pool, setup: Setup, at: FloatArray, effort: float) -> None:
        warm = np.flatnonzero(~_joined(pool) & pool.told)
        self.pool, self._rows = _stretch(pool, warm, round(EARLIER * effort))
        self._replay = Replay(self.pool, self._rows)
        self.seen = (self.pool, self._rows)
        own = with_limits(pool, pool.setup())
        own = replace(own, max_sequences=min(own.max_sequences, pool.most_running))
        self._setup = replace(
            own, prefill_first=setup.prefill_first, token_budget=setup.token_budget
        )
        self._setup = replace(
            self._setup,
            speed=_speeds(
                self.pool,
                _bent_as(self._setup, setup),
                costs_of(at),
                np.ones(len(self.pool), np.bool_),
            ),
        )

    def error(self, setup: Setup, costs: Costs) -> float:
        """Of a replay by an engine with these costs and the knee of `setup`."""
        return self._replay.error(_bent_as(self._setup, setup), costs)

    def schedulers(self) -> Iterator[_Earlier]:
        """The same calls with prompts in chunks of some size."""
        for most in TOKEN_BUDGETS:
            other = copy.copy(self)
            other._setup = replace(self._setup, prefill_first=False, token_budget=most)
            if other._setup != self._setup:
                yield other

    def off(self, setup: Setup, costs: Costs) -> float:
        """How far such a replay is off at E2E P50 or P95, or half as far as at TTFT P50, which may err twice as much: the greatest."""
        error = errors(
            self.pool, simulate(self.pool.calls, _bent_as(self._setup, setup), costs), self._rows
        )
        return max(error["e2e_p50"], error["e2e_p95"], error["ttft_p50"] * E2E_GATE / TTFT_GATE)

    def scaled(self, setup: Setup, costs: Costs) -> float:
        """The least error of engines like that whose steps all take some factor longer."""
        return min(
            self.error(setup, costs.scaled(float(factor)))
            for factor in np.exp(np.linspace(-0.8, 0.8, 17))
        )


def _bent_as(setup: Setup, other: Setup) -> Setup:
    return replace(setup, knee=other.knee, knee_s=other.knee_s)


class _Both:
    """The error of a replay of the window and of what ran before it."""

    def __init__(self, window: Replay, calm: _Earlier) -> None:
        self._window, self._calm = window, calm

    def error(self, setup: Setup, costs: Costs) -> float:
        """The sum of both."""
        return self._window.error(setup, costs) + self._calm.error(setup, costs)


def _beside(window: Replay, calm: _Earlier | None) -> Replay | _Both:
    return window if calm is None else _Both(window, calm)


def trial(
    pool: Pool, rows: IntArray
) -> Callable[[Setup, int, FloatArray | None], tuple[FloatArray, float]]:
    """Return what tries settings on the calls `rows` (a stretch of `STRETCH` of them): the coefficients and the least error of a replay that so many
    evaluations find, from given coefficients on or from those that the recording suggests."""
    pool, rows = _stretch(pool, rows)
    search, replay = _Search(pool, rows), Replay(pool, rows)

    def tried(setup: Setup, evaluations: int, at: FloatArray | None) -> tuple[FloatArray, float]:
        start, width = (
            (search.scaled(replay, setup, search.start), 0.4) if at is None else (at, 0.3)
        )
        return search.minimise(replay, setup, start, width, evaluations)

    return tried


def parted(engine: Engine) -> Engine:
    """Return the engine with the usual part of a step's lesser bound beside the greater, and as refits one with each part that replays the recording about as
    well.

    A search shows little of that part: what it adds to steps with chunks of one size the other coefficients make up for. Steps with smaller chunks, and so more
    of them, tell them apart. A part as far from the usual one as none at all is taken for it where its replay is a fifth better.
    """
    pool, rows = _stretch(engine.pool, np.flatnonzero(~_joined(engine.pool)), JOINT)
    search, replay = _Search(pool, rows), Replay(pool, rows)
    found = dict[float, tuple[FloatArray, float]]()
    for part, near in _PARTS:
        starts = [_log(engine.costs), search.start] if near is None else [found[near][0]]
        found[part] = min(
            (search.pinned(replay, engine.setup, start, part) for start in starts),
            key=lambda one: one[1],
        )
    least = min(error for _, error in found.values())
    kept = {
        part: costs_of(at)
        for part, (at, error) in found.items()
        if error <= _WORSE * max(least, _CLOSE)
    }
    usual = _PARTS[0][0]

    def unlikely(part: float) -> float:
        return found[part][1] * (1.0 + (_WORSE - 1.0) * ((part - usual) / usual) ** 2)

    return replace(engine, costs=kept[min(kept, key=unlikely)], refits=tuple(kept.values()))


def errors(pool: Pool, run: Run, rows: IntArray) -> dict[str, float]:
    """Return |replay / recorded - 1| of E2E and TTFT quantiles over some calls of the pool."""
    out = {}
    for name, ours, true in (("e2e", run.e2e_s, pool.e2e_s), ("ttft", run.ttft_s, pool.ttft_s)):
        for percentile in (50, 95, 99):
            got, wanted = (
                np.nanpercentile(ours[rows], percentile),
                np.percentile(true[rows], percentile),
            )
            out[f"{name}_p{percentile}"] = float(abs(got / max(wanted, _LEAST_S) - 1.0))
    return out


def costs_of(at: FloatArray) -> Costs:
    """The coefficients at a point of the search, whose axes are their logarithms, and the overlap as it is."""
    told = np.exp(np.minimum(np.maximum(at[:_TOLD], -40.0), 5.0)).tolist()
    told.append(min(max(float(at[_TOLD]), 0.0), 1.0))
    return Costs(*told)


def _gate(error: dict[str, float], gates: tuple[tuple[str, float], ...]) -> str | None:
    for name, most in gates:
        if not error[name] <= most:
            metric, percentile = name.upper().split("_")
            return (
                f"the calibrated engine replays the recording's {metric} {percentile} {100.0 * error[name]:.0f} % off (at most {100.0 * most:.0f} % is "
                "accepted): something outside the simulator's model shapes these times"
            )
    return None


def _withheld(error: dict[str, float], n: int) -> dict[str, str]:
    """Return the quantiles that must not be used, with the reason: those that the replay misses, and those that n calls are too few to test."""
    found = {}
    for name, most in _EACH:
        percentile = float(name.split("_p")[1])
        if n < min_n(percentile):
            found[name] = (
                f"P{percentile:g} needs at least {min_n(percentile)} calls to be tested in a replay, there are {n}"
            )
        elif (why := _gate(error, ((name, most),))) is not None:
            found[name] = why
    return found


@dataclass(frozen=True)
class _Tried:
    """Settings, the coefficients that suit them, and the error of the replay with both."""

    setup: Setup
    at: FloatArray
    worth: float


def _worth(tried: _Tried) -> float:
    return tried.worth


class _Search:
    """The search for settings and coefficients of one pool on `rows`, from two starts: moments of the recording, and a regression."""

    def __init__(self, pool: Pool, rows: IntArray, effort: float = 1.0) -> None:
        self._pool = pool
        self._rows = rows
        self._effort = effort
        self._replay = Replay(pool, rows)
        # What is held out shows nothing, not even a place to start from; that it was in the batches of the others is known to the engine's gauges.
        self._told = (
            pool
            if len(np.unique(rows)) == int(pool.told.sum())
            else pool.take(_with_guessed(pool, np.unique(rows)))
        )
        read = regression(pool, np.unique(rows))
        moments = _moments(self._told)
        # A coefficient that the regression puts at zero would be a place to come back from only by chance.
        self._starts = [
            moments,
            *([] if read is None else [np.maximum(_log(read), moments - np.log(10.0))]),
        ]

    @property
    def start(self) -> FloatArray:
        """Where searches begin that have no better place."""
        first: FloatArray = self._starts[0]
        return first

    def minimise(
        self,
        replay: Replay | _Both | _Earlier,
        setup: Setup,
        at: FloatArray,
        width: float,
        evaluations: int,
    ) -> tuple[FloatArray, float]:
        """Nelder and Mead from `at`, with a weak pull to the last start."""

        def value(point: FloatArray) -> float:
            return replay.error(setup, costs_of(point)) + self._pull(point)

        return minimise(
            value,
            at,
            np.full(len(at), width),
            max(LEAST_EVALUATIONS, round(evaluations * self._effort)),
        )

    def pinned(
        self, replay: Replay, setup: Setup, at: FloatArray, part: float
    ) -> tuple[FloatArray, float]:
        """The coefficients that suit a given part of a step's lesser bound, searched for from others on, and the error of the replay."""

        def value(point: FloatArray) -> float:
            return replay.error(setup, costs_of(np.append(point, part))) + self._pull(point)

        start = self.scaled(replay, setup, np.append(at[:_TOLD], part))[:_TOLD]
        point, error = minimise(value, start, np.full(_TOLD, 0.3), LAST)
        return np.append(point, part), error

    def _pull(self, point: FloatArray) -> float:
        """What is added to the error for coefficients that are far from the last start."""
        return _PRIOR * float((((point[:_TOLD] - self._starts[-1][:_TOLD]) / 2.0) ** 2).sum())

    def from_starts(
        self, replay: Replay | _Both, setup: Setup, evaluations: int
    ) -> tuple[FloatArray, float]:
        """The better of the two searches, looked at once more with a fresh simplex (one that has shrunk early does not come back)."""
        found = [
            self.minimise(replay, setup, self.scaled(replay, setup, start), 0.4, evaluations)
            for start in self._starts
        ]
        return self.minimise(replay, setup, min(found, key=lambda one: one[1])[0], 0.3, evaluations)

    def insist(self, setup: Setup, at: FloatArray) -> FloatArray:
        """Search on with the quantiles weighted: near capacity few calls make the tail, and their own errors hide in the mean."""
        replay = Replay(self._pool, self._rows, _INSIST)
        found = [self.minimise(replay, setup, near, 0.3, LAST) for near in (at, *self._starts)]
        return self.minimise(replay, setup, min(found, key=lambda one: one[1])[0], 0.15, LAST)[0]

    def otherwise(
        self, replay: Replay | _Both, setup: Setup, at: FloatArray, split: float
    ) -> FloatArray:
        """Other coefficients that suit these calls about as well: with another part of a step that every batch takes, where the recording leaves that open."""
        near, least = self.minimise(replay, setup, at, 0.15, REFIT)
        moved = [near + split * _STEP_ALONE for _ in _SHARES]
        lost = np.exp(near[2]) * (1.0 - np.exp(split)) / self._batch(setup)
        for point, share in zip(moved, _SHARES, strict=True):
            point[4] = np.log(
                max(_LEAST_LEFT * np.exp(near[4]), np.exp(near[4]) + share * lost, _NEARLY_NONE_S)
            )
        start = min(moved, key=lambda point: replay.error(setup, costs_of(point)))
        other, worth = self.minimise(replay, setup, start, 0.15, REFIT)
        return other if worth <= _AS_GOOD * max(least, _CLOSE) else near

    def _batch(self, setup: Setup) -> float:
        """Sequences that decode together at a usual time, per replica."""
        pool, rows = self._pool, self._rows
        seconds = float(pool.ended_s[rows].max() - pool.arrived_s[rows].min()) * setup.replicas
        return float(
            np.clip(
                (pool.e2e_s - pool.ttft_s)[rows].sum() / max(seconds, _LEAST_S),
                1.0,
                setup.max_sequences,
            )
        )

    def scaled(self, replay: Replay | _Both, setup: Setup, start: FloatArray) -> FloatArray:
        """The start with all step times multiplied by the factor that suits best: near capacity everything hangs on it."""
        steps = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
        tried = [start + shift * steps for shift in np.linspace(-0.4, 0.4, 9)]
        return min(tried, key=lambda point: replay.error(setup, costs_of(point)))

    def settings(self, progress: Callable[[float], None]) -> tuple[Setup, FloatArray]:
        """Fit the coefficients with the default settings, then try others and keep what lowers the error clearly.

        A limit that waits suggest may be none, and coefficients that suit one setting hide another one: the likeliest settings are looked at as closely as
        the default, and the limit again with the scheduler that was found.
        """
        free = self._pool.setup()
        limits = [*suggested(self._told, free), free]
        default = self.first(limits)
        if (paced := self.paced(limits)) is not None and paced.worth < BETTER * default.worth:
            default, limits = paced, [replace(limit, speed=paced.setup.speed) for limit in limits]
        default = self.reserved(self.sized(default, free))
        progress(0.25)
        tried: list[_Tried] = []
        for change in _schedulers(self._told):
            other = change(default.setup)
            if other == default.setup:
                continue
            # Costs that suit chunks are no place to begin from where decoding stands still.
            another = other.prefill_first and not default.setup.prefill_first
            at = default.at if another else min([default, *tried], key=_worth).at
            tried.append(
                _Tried(
                    other,
                    *(
                        self.from_starts(self._replay, other, ALTERNATIVE)
                        if another
                        else self.minimise(self._replay, other, at, 0.4, ALTERNATIVE)
                    ),
                )
            )
        near = [
            one for one in sorted(tried, key=_worth)[:_RIVALS] if one.worth < default.worth / BETTER
        ]
        best = min([self.again(one) for one in near], key=_worth, default=default)
        found = best if near and best.worth < BETTER * self.again(default).worth else default
        for limit in limits:
            setup = replace(
                found.setup, max_sequences=limit.max_sequences, kv_tokens=limit.kv_tokens
            )
            if setup != found.setup:
                found = min(
                    found,
                    _Tried(setup, *self.minimise(self._replay, setup, found.at, 0.4, LAST)),
                    key=_worth,
                )
        found = self.reserved(self.sized(found, free))
        progress(0.5)
        return found.setup, found.at

    def first(self, setups: list[Setup]) -> _Tried:
        """The best of these settings: by a whole search where there is one, else by a short one each and a longer one from the best."""
        if len(setups) == 1:
            return _Tried(setups[0], *self.from_starts(self._replay, setups[0], FIRST))
        return self.again(
            min(
                (
                    _Tried(setup, *self.from_starts(self._replay, setup, ALTERNATIVE))
                    for setup in setups
                ),
                key=_worth,
            )
        )

    def paced(self, limits: list[Setup]) -> _Tried | None:
        """The best of these settings if recorded rates show one replica that is much slower or faster than the others, with its pace; None if there is none.

        What fills that one alone explains nothing of the others, and no limit suits it without its pace: both are looked for at once.
        """
        odd = odd_one(self._pool, np.unique(self._rows))
        if odd is None:
            return None
        replica, pace, costs = odd

        def setup_of(limit: Setup, point: FloatArray) -> Setup:
            speed = np.ones(limit.replicas)
            speed[replica] = np.exp(point[-1])
            return replace(limit, speed=tuple((speed / np.median(speed)).tolist()))

        def searched(
            limit: Setup, start: FloatArray, evaluations: int
        ) -> tuple[float, FloatArray, Setup]:
            most = max(LEAST_EVALUATIONS, round(evaluations * self._effort))
            point, error = minimise(
                lambda point: self._replay.error(setup_of(limit, point), costs_of(point[:-1])),
                start,
                np.full(len(start), 0.3),
                most,
            )
            return error, point, limit

        start = np.maximum(_log(costs), self._starts[0] - np.log(10.0))
        starts = [
            np.append(start, np.log(pace) + np.sign(np.log(pace)) * np.log(part)) for part in _PACES
        ]
        _, point, limit = min(
            (searched(limit, point, 2 * ALTERNATIVE) for limit in limits for point in starts),
            key=lambda one: one[0],
        )
        error, point, limit = searched(limit, point, FIRST)
        return _Tried(setup_of(limit, point), point[:-1], error)

    def sized(self, found: _Tried, free: Setup) -> _Tried:
        """The settings with the KV capacity that replays best, of those around one that waits suggest: a hundredth more or less preempts other calls."""
        if found.setup.kv_tokens == free.kv_tokens:
            return found
        sizes = [
            replace(found.setup, kv_tokens=round(part * found.setup.kv_tokens))
            for part in _AROUND_KV
        ]
        near = sorted(sizes, key=lambda setup: self._replay.error(setup, costs_of(found.at)))[
            :_LIKELY
        ]
        found = min(
            [
                found,
                *(
                    _Tried(setup, *self.minimise(self._replay, setup, found.at, 0.3, ALTERNATIVE))
                    for setup in near
                ),
            ],
            key=_worth,
        )
        return self.again(found)

    def reserved(self, found: _Tried) -> _Tried:
        """The settings with the way to reserve KV that replays best, if clearly."""
        others = (
            _Tried(other, *self.minimise(self._replay, other, found.at, 0.3, ALTERNATIVE))
            for other in _reserved(self._pool, found.setup, costs_of(found.at))
        )
        best = min(others, key=_worth, default=found)
        return best if best.worth < BETTER * found.worth else found

    def again(self, one: _Tried) -> _Tried:
        """The same settings after a further search with a fresh simplex."""
        return min(
            one,
            _Tried(one.setup, *self.minimise(self._replay, one.setup, one.at, 0.3, FIRST)),
            key=_worth,
        )

    def hidden(self, setup: Setup, at: FloatArray) -> FloatArray:
        """The coefficients with more or with less of a step's lesser bound beside the greater, where others that suit it lower the error."""
        other = at.copy()
        other[_TOLD] = 0.0 if other[_TOLD] > _PART else 2.0 * _PART
        tried = [self.minimise(self._replay, setup, start, 0.3, LAST) for start in (at, other)]
        return min(tried, key=lambda one: one[1])[0]

    def bent(self, setup: Setup, at: FloatArray) -> tuple[Setup, FloatArray, BatchKnee | None]:
        """The setup with a batch size above which steps take longer, where that lowers the error clearly, and the knee in the recorded rates.

        Paces of replicas that were fitted without a knee may hide one that some of them passed and others did not: replicas that are alike are tried too.
        """
        seen = batch_knee((self._pool, np.unique(self._rows)))
        if seen is None:
            return setup, at, None
        uneven = max(setup.speed) >= UNEVEN * min(setup.speed)
        worth, setup, at, bend = self._bent(setup, at, seen)
        if uneven:
            other = self._bent(
                replace(setup, speed=(1.0,) * len(setup.speed), knee=NO_KNEE, knee_s=0.0), at, seen
            )
            if other[-1] is not None and other[0] < BETTER * worth:
                _, setup, at, bend = other
        return setup, at, bend

    def _bent(
        self, setup: Setup, at: FloatArray, seen: BatchKnee
    ) -> tuple[float, Setup, FloatArray, BatchKnee | None]:
        """The least error, with the knee where that lowers it clearly, and what has it."""
        setup_of = self._kneed(setup)
        start = np.maximum(_log(seen.costs), self._starts[0] - np.log(10.0))
        best = self._glanced(self._replay, setup_of, seen, (at, start))
        plain = self._plain(setup, at)
        if best[0] < plain[0] / BETTER:
            # Each size has coefficients of its own that suit it and hide the next one: climb with theirs, in steps that shrink.
            best = self._climbed(self._replay, setup_of, best)
            best = min(best, self._knee(self._replay, setup_of, best[1], best[2], LAST), key=_error)
            plain = min(plain, self._plain(setup, best[2][:-1]), key=lambda one: one[0])
        if best[0] < BETTER * plain[0]:
            return best[0], setup_of(best[2], best[1]), best[2][:-1], seen
        return plain[0], setup, plain[1], None

    def across(
        self, calm: _Earlier, setup: Setup, at: FloatArray
    ) -> tuple[_Earlier, Setup, FloatArray, BatchKnee | None] | None:
        """What ran before the window, and the setup and the coefficients of one engine that replays both; None without one that does so well.

        It may have a knee between the batches of before and those of now.
        """
        if calm.off(setup, costs_of(at)) <= _SAME:
            return None
        # A search from what suits the window alone does not come to what suits both, where that has a knee: what suits the calls before is another start.
        smooth, setup_of = replace(setup, knee=NO_KNEE, knee_s=0.0), self._kneed(setup)
        own, least = self.minimise(calm, smooth, at, 0.3, LAST)
        for other in calm.schedulers():
            near, error = self.minimise(other, smooth, own, 0.3, ALTERNATIVE)
            if error < BETTER * least:
                calm, own, least = other, near, error
        window, alone = self._shorter(), self._replay.error(setup, costs_of(at))
        both = _Both(window, calm)
        plain, worth = min(
            (self.minimise(both, smooth, start, 0.3, ALTERNATIVE) for start in (at, own)),
            key=lambda one: one[1],
        )
        plain, worth = self.minimise(both, smooth, plain, 0.2, LAST)
        changed = window.error(setup, costs_of(at)) + calm.scaled(setup, costs_of(at))
        found = straight = (worth, NO_KNEE, np.append(plain, -np.inf))
        seen = batch_knee((self._pool, np.unique(self._rows)), calm.seen)
        if seen is not None:
            found = self._glanced(both, setup_of, seen, (at, own))
        if min(found[0], worth) > _HOPELESS * changed:
            return None
        if seen is not None:
            _, size, point = self._climbed(both, setup_of, found)
            found = min(
                (
                    self._knee(both, setup_of, size, point, LAST)
                    for size in sorted({size, seen.size})
                ),
                key=_error,
            )
            found = found if found[0] < BETTER * worth else straight
        bent, near = setup_of(found[2], found[1]), found[2][:-1]
        told = (
            self._replay.error(bent, costs_of(near)) <= _WORSE * max(alone, _CLOSE)
            and calm.off(bent, costs_of(near)) <= E2E_GATE
        )
        told = (
            told
            and _gate(
                errors(self._pool, simulate(self._pool.calls, bent, costs_of(near)), self._rows),
                _E2E + _TTFT,
            )
            is None
        )
        return (
            (calm, bent, near, None if found[1] == NO_KNEE else seen)
            if told and both.error(bent, costs_of(near)) < BETTER * changed
            else None
        )

    def _glanced(
        self,
        replay: Replay | _Both,
        setup_of: Callable[[FloatArray, int], Setup],
        seen: BatchKnee,
        starts: tuple[FloatArray, ...],
    ) -> tuple[float, int, FloatArray]:
        """The best knee around the one in the recorded rates, from these coefficients on."""
        points = [np.append(start, np.log(seen.jump_s)) for start in starts]
        glances = [
            (replay.error(setup_of(point, size), costs_of(point[:-1])), size, point)
            for size in _around(seen)
            for point in points
        ]
        return min(
            (
                self._knee(replay, setup_of, size, point, ALTERNATIVE)
                for _, size, point in sorted(glances, key=_error)[:_GLANCES]
            ),
            key=_error,
        )

    def _climbed(
        self,
        replay: Replay | _Both,
        setup_of: Callable[[FloatArray, int], Setup],
        best: tuple[float, int, FloatArray],
    ) -> tuple[float, int, FloatArray]:
        for step in _CLIMB:
            best = min(
                [
                    best,
                    *(
                        self._knee(
                            replay, setup_of, max(1, best[1] + way * step), best[2], ALTERNATIVE
                        )
                        for way in (-1, 1)
                    ),
                ],
                key=_error,
            )
        return best

    def _shorter(self) -> Replay:
        return (
            self._replay
            if len(self._rows) <= JOINT
            else Replay(*_stretch(self._pool, np.unique(self._rows), JOINT))
        )

    @staticmethod
    def _kneed(setup: Setup) -> Callable[[FloatArray, int], Setup]:
        return lambda point, size: replace(setup, knee=size, knee_s=float(np.exp(point[-1])))

    def _knee(
        self,
        replay: Replay | _Both,
        setup_of: Callable[[FloatArray, int], Setup],
        size: int,
        start: FloatArray,
        evaluations: int,
    ) -> tuple[float, int, FloatArray]:
        """The coefficients and the jump for a knee of this size: the error of the replay, the size and the point."""
        most = max(LEAST_EVALUATIONS, round(evaluations * self._effort))
        point, error = minimise(
            lambda point: replay.error(setup_of(point, size), costs_of(point[:-1])),
            start,
            np.full(len(start), 0.25),
            most,
        )
        return error, size, point

    def _plain(self, setup: Setup, at: FloatArray) -> tuple[float, FloatArray]:
        """The error without a knee, and the coefficients, after as deep a search: what that finds is no knee."""
        point, _ = self.minimise(self._replay, setup, at, 0.25, LAST)
        return self._replay.error(setup, costs_of(point)), point


def _around(seen: BatchKnee) -> list[int]:
    """Sizes that may be the knee; engines record their graphs for multiples of eight (vLLM's capture sizes): what lies there lies there exactly."""
    whole = {size for size in range(8, seen.most + 1, 8) if size >= seen.least}
    return sorted({max(1, round(part * seen.size)) for part in _AROUND} | whole)


def _error(found: tuple[float, int, FloatArray]) -> float:
    return found[0]


def _schedulers(pool: Pool) -> Iterator[Callable[[Setup], Setup]]:
    for budget in sorted({WHOLE_BUDGET, max(WHOLE_BUDGET, int(pool.calls.prompt_tokens.max()))}):
        yield lambda s, b=budget: replace(s, prefill_first=True, token_budget=b)  # type: ignore[misc]
    for budget in TOKEN_BUDGETS:
        yield lambda s, b=budget: s if s.prefill_first else replace(s, token_budget=b)  # type: ignore[misc]


def _reserved(pool: Pool, setup: Setup, costs: Costs) -> Iterator[Setup]:
    """Other ways to hand out KV, where the replay shows that it is ever full."""
    roomy = simulate(pool.calls, replace(setup, kv_tokens=UNLIMITED_KV), costs)
    if not np.array_equal(roomy.end_s, simulate(pool.calls, setup, costs).end_s, equal_nan=True):
        for reserve, resumes in ((CHUNK, True), (CHUNK, False), (FITTING, True)):
            yield replace(setup, reserve=reserve, resumes=resumes)


def _moments(pool: Pool) -> FloatArray:
    """Log coefficients to begin with: a step from the quickest tenth of token times, a prompt token from calls that did not wait."""
    tokens = pool.calls.output_tokens
    decoding = tokens > 1
    token_s = (
        (pool.e2e_s - pool.ttft_s)[decoding] * pool.accepted / (tokens[decoding] - 1)
        if decoding.any()
        else np.array([0.01])
    )
    step = max(_LEAST_S, float(np.quantile(token_s, 0.1)) * 0.8)
    fresh = np.maximum(1, pool.calls.prompt_tokens - pool.calls.cached_tokens)
    reading = np.maximum(pool.ttft_s - pool.queue_s, _LEAST_S)
    prefill = max(1e-8, float(np.quantile(reading / fresh, 0.3)))
    context = float(pool.calls.prompt_tokens.mean()) + 1.0
    batch = max(1.0, pool.most_running / 2.0)
    return _log(
        Costs(
            prefill,
            0.1 * prefill / context,
            step,
            0.2 * step / (batch * context),
            0.05 * step / batch,
            0.3 * step,
            _PART,
        )
    )


def _log(costs: Costs) -> FloatArray:
    told = [
        costs.prefill_token,
        costs.attention,
        costs.step,
        costs.kv_token,
        costs.sequence,
        costs.call,
    ]
    at: FloatArray = np.append(np.log(np.array(told)), costs.overlap)
    return at


def _joined(pool: Pool) -> BoolArray:
    """The calls of replicas that joined during the recording and wrote their first answers slowly; none where no new one is slow at first."""
    none, replica = np.zeros(len(pool), np.bool_), pool.calls.replica
    born = np.array(pool.born_s)
    if not np.isfinite(born).any():
        return none
    new: BoolArray = (replica >= 0) & np.isfinite(born[np.maximum(replica, 0)])
    writes = pool.calls.output_tokens > 1
    token_s = (pool.e2e_s - pool.ttft_s) / np.maximum(pool.calls.output_tokens - 1, 1)
    first = np.zeros(len(pool), np.bool_)
    for r in np.flatnonzero(np.isfinite(born)):
        mine = np.flatnonzero(writes & (replica == r))
        first[mine[np.argsort(pool.arrived_s[mine], kind="stable")[:_EARLY]]] = True
    others = writes & ~new
    if (
        int(first.sum()) < _EARLY
        or int(others.sum()) < _OTHERS
        or not np.median(token_s[first]) > UNEVEN * np.median(token_s[others])
    ):
        return none
    return new


def _warming(pool: Pool, rows: IntArray, setup: Setup, costs: Costs) -> Setup:
    """The setup with how cold new replicas (calls `rows`) were and how soon they were warm, so that the replay gives their calls."""
    replay = Replay(pool, rows)

    def made(point: FloatArray) -> Setup:
        return replace(setup, cold=float(np.exp(point[0])), warm_s=float(np.exp(point[1])))

    starts = [np.log(np.array([factor, seconds])) for factor in _COLD for seconds in _WARM_S]
    start = min(starts, key=lambda point: replay.error(made(point), costs))
    return made(
        minimise(
            lambda point: replay.error(made(point), costs), start, np.array([0.4, 0.4]), _WARMING
        )[0]
    )


def _speeds(pool: Pool, setup: Setup, costs: Costs, among: BoolArray) -> tuple[float, ...]:
    """How much longer each replica's steps take than the median replica's: as set, times the median ratio of recorded to simulated decode time of the
    calls `among`."""
    if setup.replicas == 1:
        return (1.0,)
    run = simulate(pool.calls, setup, costs)
    ours, true = run.end_s - run.first_s, pool.e2e_s - pool.ttft_s
    known = among & (pool.calls.output_tokens > 1) & (ours > 0.0) & (true > 0.0)
    factor = np.ones(setup.replicas)
    factor[: len(setup.speed)] = setup.speed[: setup.replicas]
    for r in range(setup.replicas):
        mine = known & (pool.calls.replica == r)
        if int(mine.sum()) >= 10:
            factor[r] *= float(np.median(true[mine] / ours[mine]))
    return tuple((factor / np.median(factor)).tolist())


def _stretch(pool: Pool, rows: IntArray, most: int = STRETCH) -> tuple[Pool, IntArray]:
    """The pool itself, or the stretch of `most` of the rows that waited longest, each beginning where few calls were in flight; and the rows to score."""
    if len(rows) <= most:
        return pool, rows
    begun = pool.arrived_s[rows]
    order = np.argsort(begun, kind="stable")
    in_flight = np.searchsorted(np.sort(pool.arrived_s), begun[order]) - np.searchsorted(
        np.sort(pool.ended_s), begun[order]
    )
    starts = [
        int(block[np.argmin(in_flight[block])])
        for block in np.array_split(np.arange(len(rows) - most + 1), 8)
        if len(block)
    ]
    first = max(
        starts, key=lambda at: float(pool.queue_s[rows[order[at : at + most]]].mean()) + 1e-9 * at
    )
    chosen = np.sort(rows[order[first : first + most]])
    every = _with_guessed(pool, chosen)
    return pool.take(every), np.searchsorted(every, chosen)


def _with_guessed(pool: Pool, rows: IntArray) -> IntArray:
    """The rows, and those of the calls without an engine's span that came among them."""
    at = pool.arrived_s
    every: IntArray = np.union1d(
        rows, np.flatnonzero(~pool.told & (at >= at[rows].min()) & (at <= at[rows].max()))
    )
    return every


def _parted(pool: Pool, rows: IntArray) -> tuple[IntArray, IntArray]:
    """The rows that ended in the first two thirds, and the others."""
    ended = pool.ended_s[rows]
    early: BoolArray = ended <= np.quantile(ended, 2.0 / 3.0)
    return rows[early], rows[~early]


def _resampled(pool: Pool, rows: IntArray, rng: np.random.Generator) -> IntArray:
    """Rows of `BLOCKS` blocks of time drawn with replacement: neighbours share their batches, so they are drawn together."""
    blocks = np.array_split(rows[np.argsort(pool.ended_s[rows], kind="stable")], BLOCKS)
    return np.concatenate([blocks[k] for k in rng.integers(0, BLOCKS, BLOCKS)])
