"""What do calls meet that come sooner because something before them is quicker? A factor on what arithmetic says, from the calibrated engines.

Arithmetic leaves each call what it took. Near an engine's capacity calls that come at other moments meet other batches, though no call asks for more or less.
The recorded calls are replayed twice, as they came and as they would come; both replays stand in for the recorded calls of the requests after the fix, and the
ratio of their quantiles is the factor. One replay is as noisy as the other, so the tail is not widened by what a replay does not know.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.latency import FloatArray, sorted_quantile
from analysis.whatif.batching import LEAST_LOAD
from analysis.whatif.calibrate import Engine
from analysis.whatif.engine import Costs, simulate
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Batches, Times

# Calls that move by less than this (mean over calls, ms) meet the batches that they met; a step of an engine takes as long.
LEAST_MS = 10.0
# Standard deviations of the refits' factors that the interval covers on either side: 90 %.
_WIDE = 1.645


def batches(facts: Facts, after: Times, sooner_ms: FloatArray) -> Batches | None:
    """Return the factor on a quantile of `after` (the requests' times by arithmetic) where each call comes `sooner_ms` (shape of the calls) than it did.

    None where no engine tells its times, where its replay does not give the recording back, or where calls hardly move.
    """
    if not facts.calls["engine_e2e_ms"].count() or float(np.abs(sooner_ms).mean()) < LEAST_MS:
        return None
    engines, why = facts.engines
    if why is not None or not engines or any(engine.unseen for engine in engines):
        return None
    sides = [(_with(facts, after, engines, None, draw), _with(facts, after, engines, sooner_ms, draw)) for draw in (None, *range(len(engines[0].refits)))]

    def factor(metric: str, quantile: float) -> tuple[float, float, float]:
        found = [_quantile(new.of(metric), quantile) / max(_quantile(old.of(metric), quantile), 1e-3) for old, new in sides]
        middle, wide = found[0], _WIDE * float(np.std(found)) if len(found) > 1 else 0.0
        return middle, min(1.0, middle) - wide, max(1.0, middle) + wide

    return factor


def _with(facts: Facts, after: Times, engines: list[Engine], sooner_ms: FloatArray | None, draw: int | None) -> Times:
    """The requests' times after the fix with the calls' own times as the engines replay them: as they came, or sooner."""
    whole, first = np.zeros(facts.calls.height), np.zeros(facts.calls.height)
    for engine in engines:
        pool, setup = engine.pool, engine.setup
        calls = pool.calls
        if sooner_ms is not None:
            shift, chained = sooner_ms[pool.rows] / 1000.0, calls.after >= 0
            # What follows another call comes sooner by what its own pause got shorter.
            gap = calls.arrival_s - np.where(chained, shift - shift[np.maximum(calls.after, 0)], shift)
            calls = replace(calls, arrival_s=np.where(chained, np.maximum(gap, 0.0), gap))
        costs: Costs = engine.costs if draw is None else engine.refits[draw]
        run = simulate(calls, replace(setup, router=LEAST_LOAD) if pool.router == LEAST_LOAD else setup, costs)
        whole[pool.rows], first[pool.rows] = 1000.0 * (run.e2e_s - pool.e2e_s), 1000.0 * (run.ttft_s - pool.ttft_s)
    ttft, e2e = facts.per_request(whole, first)
    return Times(np.maximum(after.ttft + ttft, 0.0), np.maximum(after.e2e + e2e, 0.0), after.tpot)


def _quantile(values: FloatArray, q: float) -> float:
    told = np.sort(values[~np.isnan(values)])
    return sorted_quantile(told, q) if len(told) else 1.0
