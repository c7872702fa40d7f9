"""Which figures of the fault benchmark are kept? Its headlines, for docs/results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import partial

from tests.benchmarks.fault_case import Result, WhatIf
from tests.benchmarks.fault_tables import DIRECTION, JUDGED, NEARLY, counted
from tests.benchmarks.results import Figure, measured

METHODS = {
    "simulated": "simulated",
    "exact": "exact",
    "resampled": "resampled",
    "estimate": "estimated",
}


def diagnosis(results: Iterable[Result], *, script: str, conditions: str) -> list[Figure]:
    """How often stage and cause were right, whether healthy windows stayed silent, and how soon."""
    cases = counted(results)
    faults, healthy = [r for r in cases if not r.healthy], [r for r in cases if r.healthy]
    figure = partial(measured, script=script, conditions=conditions)
    out = []
    for client in (False, True):
        for severity in ("easy", "medium", "hard"):
            chosen = [r for r in faults if (r.client_only, r.severity) == (client, severity)]
            if chosen:
                what = f"Cause named first, {severity}" + (
                    ", clients' telemetry alone" if client else ""
                )
                out.append(figure(what, sum(r.cause_right(1) for r in chosen), of=len(chosen)))
    full = [r for r in faults if not r.client_only]
    if full:
        stages, sets = sum(r.stage_right(1) for r in full), sum(r.set_right for r in full)
        out.append(figure("Stage named first", stages, of=len(full)))
        out.append(figure("All causes named and no other", sets, of=len(full)))
    if healthy:
        alarms = sum(r.alarm for r in healthy)
        out.append(figure("Healthy windows with an alarm", alarms, of=len(healthy)))
    if errors := sorted(abs(r.onset_error_s) for r in faults if r.onset_error_s is not None):
        more = {"P90": round(_p90(errors))}
        what = "Onset: distance from the true moment, median"
        out.append(figure(what, round(statistics.median(errors)), "s", more=more))
    if delays := [r.delay_s for r in faults if r.delay_s is not None]:
        what = "From the onset to the first report that names the cause, median"
        out.append(figure(what, round(statistics.median(delays)), "s"))
    regrets = [r.best_fix.regret for r in full if r.best_fix is not None]
    if scored := [regret for regret in regrets if regret is not None]:
        what = "Fix of the verdict is the best, or within 10 % of it, in the true world"
        out.append(figure(what, sum(regret <= NEARLY for regret in scored), of=len(scored)))
    return out


def whatifs(results: Iterable[Result], *, script: str, conditions: str) -> list[Figure]:
    """Errors of the predicted fixes by the class of their method, and how many were answered."""
    found = [w for r in counted(results) if not r.healthy and not r.client_only for w in r.whatifs]
    out = []
    for method, name in METHODS.items():
        for metric, quantile in JUDGED:
            key = (method, metric, quantile)
            given = [
                w for w in found if (w.method, w.metric, w.quantile) == key and w.after is not None
            ]
            if given:
                what = f"Error of {name} what-ifs, {metric.upper()} P{100 * quantile:g}"
                value, more = _error(given)
                text = f"{conditions}, {len(given)} fixes"
                out.append(
                    measured(
                        what,
                        value,
                        "%",
                        more=more,
                        script=script,
                        conditions=text,
                        page=quantile == JUDGED[-1][1],
                    )
                )
    if asked := [w for w in found if (w.metric, w.quantile) == JUDGED[-1]]:
        answered = sum(w.after is not None for w in asked)
        text = f"the others are refused with the reason; {conditions}"
        out.append(
            measured(
                "Fixes that were answered", answered, of=len(asked), script=script, conditions=text
            )
        )
    return out


def _error(given: Sequence[WhatIf]) -> tuple[float, dict[str, float | str]]:
    """Median of |predicted / true - 1| in percent, with its P90, coverage and direction."""
    errors = sorted(abs((w.after or 0.0) - w.truth) / w.truth for w in given)
    sure = [(w.interval, w.truth) for w in given if w.interval is not None]
    inside = sum(interval[0] <= truth <= interval[1] for interval, truth in sure)
    moved = [w for w in given if abs(w.truth - w.before) > DIRECTION * w.before]
    right = sum((w.truth < w.before) == ((w.after or 0.0) < w.before) for w in moved)
    more: dict[str, float | str] = {
        "P90": round(100.0 * _p90(errors), 1),
        "inside": f"{inside} of {len(sure)}",
    }
    if moved:
        more["direction"] = f"{right} of {len(moved)}"
    return round(100.0 * statistics.median(errors), 1), more


def _p90(ascending: Sequence[float]) -> float:
    """The least value that nine in ten do not exceed."""
    return ascending[math.ceil(0.9 * len(ascending)) - 1]
