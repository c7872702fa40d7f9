"""What do calls meet that come sooner because something before them is quicker? A factor on what arithmetic says, from the calibrated engines.

Arithmetic leaves each call what it took, but calls that come at other moments meet other batches, though no call asks for more or less: near an engine's
capacity slower ones, elsewhere a new draw of which calls meet, which moves the tail by as much as chance does. The recorded calls are replayed twice, as they
came and as they would come, and stand in for the recorded calls of the requests after the fix. The result of the second replay is weighed against the arithmetic;
the error of the first one shows what replays do not know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from overrun.analysis.numbers.latency.percentiles import sorted_quantile
from overrun.analysis.simulator.batching import LEAST_LOAD
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Costs, simulate
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Batches, Times
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import SEED

# Calls that move by less than this (mean over calls, ms) meet the batches that they met; a step of an engine takes as long.
LEAST_MS: Final = 10.0
# Resamples that show a factor's spread.
_DRAWS: Final = 100


def batches(facts: Facts, after: Times, sooner_ms: FloatArray) -> Batches | None:
    """Return the factor on a quantile of `after` (the requests' times by arithmetic), where each call comes `sooner_ms` (shape of the calls) than it did, and
    how widely that is spread.

    None without engine telemetry its times, where its replay does not give the recording back, or where calls hardly move.
    """
    if not facts.calls["engine_e2e_ms"].count() or float(np.abs(sooner_ms).mean()) < LEAST_MS:
        return None
    engines, why = facts.engines
    if why is not None or not engines or any(engine.unseen for engine in engines):
        return None
    sides = [
        (_with(facts, after, engines, None, draw), _with(facts, after, engines, sooner_ms, draw))
        for draw in (None, *range(len(engines[0].refits)))
    ]

    def factor(metric: str, quantile: float) -> tuple[float, float]:
        told, olds, news = (
            after.of(metric),
            [old.of(metric) for old, _ in sides],
            [new.of(metric) for _, new in sides],
        )
        redrawn = _sampled(olds[0], news[0], quantile)
        spread = float(
            np.std([_log_ratio(old, new, quantile) for old, new in zip(olds, news, strict=True)])
        )
        unknown = float(np.hypot(_sampled(told, olds[0], quantile), spread))
        # By how much the replay of the recorded calls is off counts as far as that is no chance (James and Stein).
        off = float(np.mean([_log_ratio(told, old, quantile) for old in olds]))
        moved = float(np.mean([_log_ratio(told, new, quantile) for new in news])) - (
            off * max(0.0, 1.0 - (unknown / off) ** 2) if off else 0.0
        )
        # The mean of the results of arithmetic and replay, weighed by what each does not know: what other batches do, and the replay's own error.
        meets = max(moved**2, redrawn**2)
        share = meets / max(meets + unknown**2, 1e-12)
        return share * moved, float(np.hypot((1.0 - share) * redrawn, share * unknown))

    return factor


def _log_ratio(old: FloatArray, new: FloatArray, q: float) -> float:
    """Logarithm of what a quantile becomes."""
    return float(np.log(_quantile(new, q) / _quantile(old, q)))


def _sampled(old: FloatArray, new: FloatArray, q: float) -> float:
    """Standard deviation of that logarithm over other requests of the kind: the same ones drawn for both."""
    known = np.flatnonzero(~np.isnan(old) & ~np.isnan(new))
    rng, drawn = np.random.default_rng(SEED), []
    for _ in range(_DRAWS if len(known) else 0):
        chosen = rng.choice(known, len(known))
        drawn.append(_log_ratio(old[chosen], new[chosen], q))
    return float(np.std(drawn)) if drawn else 0.0


def sooner_ms(facts: Facts, before_ms: FloatArray, whole_ms: FloatArray) -> FloatArray:
    """Return how much sooner each call comes (ms, shape of the calls) where so much is saved before its request's first token, and in all (ms, by request).

    The call that answers comes sooner by all of the former, those before it by as much of it as of that time has passed when they begin, those behind it in
    the same way by the rest.
    """
    row, start = facts.request_of, facts.calls["start_us"].to_numpy() / 1000.0
    mine, at = row >= 0, np.maximum(row, 0)
    begun, end = (
        facts.requests["start_us"].to_numpy() / 1000.0,
        facts.requests["start_us"].to_numpy() / 1000.0 + facts.ms("e2e_ms"),
    )
    known, answers = facts.answering >= 0, end.copy()
    answers[known] = start[facts.answering[known]]
    ahead = np.where(
        start >= answers[at],
        1.0,
        np.clip((start - begun[at]) / np.maximum(answers - begun, 1e-3)[at], 0.0, 1.0),
    )
    behind = np.clip((start - answers[at]) / np.maximum(end - answers, 1e-3)[at], 0.0, 1.0)
    sooner: FloatArray = np.where(
        mine, ahead * before_ms[at] + behind * np.maximum(whole_ms - before_ms, 0.0)[at], 0.0
    )
    return sooner


def _with(
    facts: Facts,
    after: Times,
    engines: list[Engine],
    sooner_ms: FloatArray | None,
    draw: int | None,
) -> Times:
    """The requests' times after the fix with the calls' own times as the engines replay them: as they came, or sooner."""
    whole, first = np.zeros(facts.calls.height), np.zeros(facts.calls.height)
    for engine in engines:
        pool, setup = engine.pool, engine.setup
        calls = pool.calls
        if sooner_ms is not None:
            shift, chained = sooner_ms[pool.rows] / 1000.0, calls.after >= 0
            # What follows another call comes sooner by what its own pause got shorter.
            gap = calls.arrival_s - np.where(
                chained, shift - shift[np.maximum(calls.after, 0)], shift
            )
            calls = replace(calls, arrival_s=np.where(chained, np.maximum(gap, 0.0), gap))
        costs: Costs = engine.costs if draw is None else engine.refits[draw]
        run = simulate(
            calls, replace(setup, router=LEAST_LOAD) if pool.router == LEAST_LOAD else setup, costs
        )
        whole[pool.rows], first[pool.rows] = (
            1000.0 * (run.e2e_s - pool.e2e_s),
            1000.0 * (run.ttft_s - pool.ttft_s),
        )
    ttft, e2e = facts.per_request(whole, first)
    return Times(np.maximum(after.ttft + ttft, 0.0), np.maximum(after.e2e + e2e, 0.0), after.tpot)


def _quantile(values: FloatArray, q: float) -> float:
    told = np.sort(values[~np.isnan(values)])
    return max(1e-3, sorted_quantile(told, q)) if len(told) else 1.0
