"""Writes one simulated window with a known fault as OTLP files and its truth:
`python -m overrun.sample_traces.simulate SCENARIO --severity medium --seed 7 --out DIR`.

Out: `DIR/NNN.traces.pb`, `DIR/NNN.metrics.pb` (export requests in protobuf) and `DIR/truth.json`: causes, stages, onset, who is affected, and the
latency of the same requests without the fault and with each of its fixes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from overrun.sample_traces.simulator import otlp
from overrun.sample_traces.simulator.confounders import Confounded, confound
from overrun.sample_traces.simulator.faults import FURTHER, SCENARIOS
from overrun.sample_traces.simulator.pairs import AND, find
from overrun.sample_traces.simulator.run import Window, simulate
from overrun.sample_traces.simulator.scenarios import (
    BANDS,
    BREACH,
    HEALTHY,
    SEVERITIES,
    Fault,
    Scenario,
)
from overrun.sample_traces.simulator.settings import Settings, Telemetry
from overrun.sample_traces.simulator.traffic import NOISY, Plan
from overrun.sample_traces.simulator.truth import breach_ratio, latency, users

DURATION_S: Final = 600.0
START: Final = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
_GROWING: Final = ("under_capacity", "burst_arrivals", "retry_storm", "growth_and_bloat")
# Simulations that the search for an amount may take.
_TRIES: Final = 7
_TIGHTER: Final = " percentile:99 goodput_target:0.99"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to make. A healthy window has no severity."""

    scenario: str
    severity: str = "medium"
    seed: int = 1
    client_only: bool = False
    metrics_only: bool = False
    confounders: bool = True
    sampling: float = 1.0
    duration_s: float = DURATION_S
    fixes: bool = True
    amount: float | None = None
    """How strong the fault is; None: as calibrated for its severity."""
    tuned: bool = False
    """Whether the amount is looked for anew, for this seed and its confounders, where the calibrated one misses the severity's band."""


@dataclass(frozen=True)
class Made:
    """A window and its truth."""

    window: Window
    telemetry: Telemetry
    truth: dict[str, Any]


def make(job: Job) -> Made:
    """Simulate a job; ValueError names an unknown scenario or severity and the known ones."""
    scenario = find(job.scenario)
    if scenario is None and job.scenario not in HEALTHY:
        known = ", ".join([*SCENARIOS, *FURTHER, *HEALTHY])
        raise ValueError(
            f"there is no scenario {job.scenario!r}; known: {known}, and two joined by a plus"
        )
    if job.severity not in SEVERITIES:
        raise ValueError(f"severity is {job.severity!r}, it must be one of {', '.join(SEVERITIES)}")
    onset_s = round(
        job.duration_s * (0.4 + 0.1 * random.Random(f"onset/{job.scenario}/{job.seed}").random()), 3
    )
    telemetry = Telemetry(
        engine_spans=not job.client_only,
        engine_metrics=not job.client_only,
        traces=not job.metrics_only,
        sampling=job.sampling,
    )
    if job.tuned and scenario is not None and job.amount is None:
        job = replace(job, amount=tuned(job, scenario, onset_s))
    plan = _plan(job, onset_s)
    names: tuple[str, ...] = ()
    if scenario is not None:
        telemetry = replace(telemetry, chunk_events=scenario.chunk_events)
    confounded = _confounded(job, plan, telemetry)
    if confounded is not None:
        plan, telemetry, names = confounded.plan, confounded.telemetry, confounded.names
    window = simulate(
        plan,
        duration_s=job.duration_s,
        seed=job.seed,
        telemetry=telemetry,
        start_ns=_ns(START),
        name=f"{job.scenario}/{job.severity}/{job.client_only}/{job.duration_s:g}",
    )
    truth = _facts(job, window, telemetry, onset_s, names)
    if scenario is not None:
        truth |= _answer(job, scenario, plan, telemetry, onset_s)
    return Made(window, telemetry, truth)


def tuned(job: Job, scenario: Scenario, onset_s: float) -> float:
    """The amount whose share of requests over the limit after the onset lies in the severity's band, by bisection.

    Where none is found it is the nearest one that does harm, else the nearest one. Near capacity that share hangs on the very arrivals: an amount that was
    calibrated on other seeds may do nothing, or everything, and a storm of retries has no middle at all.
    """
    low, high = BANDS[job.severity]
    known: dict[float, float] = {}
    amount = scenario.amount(job.severity)
    for _ in range(_TRIES):
        plan = _seen(job, _plan(replace(job, amount=amount), onset_s))
        window = simulate(
            plan,
            duration_s=job.duration_s,
            seed=job.seed,
            telemetry=Telemetry(engine_metrics=False),
        )
        known[amount] = (
            breach_ratio(users(window.outcomes, onset_s, job.duration_s), scenario.slo) or 0.0
        )
        if low <= known[amount] <= high:
            return amount
        below = max((a for a, share in known.items() if share < low), default=scenario.bounds[0])
        above = min(
            (a for a, share in known.items() if share > high and a > below),
            default=scenario.bounds[1],
        )
        amount = float(f"{(below + above) / 2.0:.4g}")
        if amount in known:
            break
    return min(
        known,
        key=lambda one: (known[one] < BANDS["hard"][0], abs(known[one] - BREACH[job.severity])),
    )


def _confounded(job: Job, plan: Plan, telemetry: Telemetry) -> Confounded | None:
    scenario = find(job.scenario)
    if not job.confounders or (scenario is None and job.scenario != "healthy"):
        return None
    return confound(
        plan,
        telemetry,
        f"{job.scenario}/{job.seed}",
        growth_allowed=scenario is not None and not {*scenario.id.split(AND)} & {*_GROWING},
    )


def _seen(job: Job, plan: Plan) -> Plan:
    confounded = _confounded(job, plan, Telemetry(engine_metrics=False))
    return confounded.plan if confounded else plan


def _plan(job: Job, onset_s: float, fault: Fault | None = None) -> Plan:
    """The world before and after the onset; `fault` instead of the scenario's own."""
    scenario = find(job.scenario)
    if scenario is not None:
        amount = scenario.amount(job.severity) if job.amount is None else job.amount
        return [(0.0, scenario.world), (onset_s, (fault or scenario.fault)(scenario.world, amount))]
    healthy = HEALTHY[job.scenario]
    second = healthy.second(healthy.world)
    return (
        [(0.0, healthy.world)]
        if second == healthy.world
        else [(0.0, healthy.world), (onset_s, second)]
    )


def _facts(
    job: Job, window: Window, telemetry: Telemetry, onset_s: float, names: tuple[str, ...]
) -> dict[str, Any]:
    """What holds for every window."""
    scenario = find(job.scenario)
    slo = (scenario or HEALTHY[job.scenario]).slo
    if job.severity != "easy" and scenario is not None and "percentile" not in slo:
        slo += _TIGHTER
    before, after = (
        users(window.outcomes, 0.0, onset_s),
        users(window.outcomes, onset_s, job.duration_s),
    )
    return {
        "scenario": job.scenario,
        "severity": job.severity if scenario is not None else None,
        "amount": job.amount,
        "seed": job.seed,
        "client_only": job.client_only,
        "slo": slo,
        "start": START.isoformat(),
        "end": (START + timedelta(seconds=job.duration_s)).isoformat(),
        "confounders": list(names),
        "sampling": telemetry.sampling,
        "requests": window.arrivals,
        "breach_ratio": {"before": breach_ratio(before, slo), "after": breach_ratio(after, slo)},
        "latency": {"before": latency(before), "after": latency(after)},
        "causes": [],
        "accepted": [],
        "stages": [],
        "onset": None,
        "fixes": [],
    }


def latency_with(
    job: Job, onset_s: float, change: Callable[[Settings, Settings], Settings | None]
) -> dict[str, Any] | None:
    """Latency after the onset of the same window with its faulty world changed: `change` is given the world before the onset and that after it.

    None where it changes nothing (None). The job has to say its amount.
    """
    plan = _seen(job, _plan(job, onset_s))
    at, faulty = plan[-1]
    world = change(plan[-2][1], faulty)
    if world is None:
        return None
    window = simulate(
        [*plan[:-1], (at, world)],
        duration_s=job.duration_s,
        seed=job.seed,
        telemetry=Telemetry(engine_metrics=False),
    )
    return latency(users(window.outcomes, onset_s, job.duration_s))


def _answer(
    job: Job, scenario: Scenario, plan: Plan, telemetry: Telemetry, onset_s: float
) -> dict[str, Any]:
    """The right answer, and the same window without the fault and with each fix (twice, the second time with other hiccups of the engines)."""

    def again(states: Plan, dice: int = 0) -> dict[str, Any]:
        quiet = replace(telemetry, engine_metrics=False, chunk_events=False)
        window = simulate(
            states, duration_s=job.duration_s, seed=job.seed, telemetry=quiet, dice=dice
        )
        after = users(window.outcomes, onset_s, job.duration_s)
        return latency(after) | {"breach_ratio": breach_ratio(after, scenario.slo)}

    seen_causes, seen_stages = (
        (scenario.client_causes, scenario.client_stages)
        if job.client_only
        else (scenario.causes, scenario.stages)
    )
    at, faulty = plan[-1]
    out: dict[str, Any] = {
        "title": scenario.title,
        "number": scenario.number,
        "causes": list(seen_causes),
        "accepted": list(scenario.accepted),
        "stages": list(seen_stages),
        "chain": list(scenario.chain),
        "true_cause": list(scenario.causes),
        "onset": (START + timedelta(seconds=onset_s)).isoformat(),
        "onset_s": onset_s,
        "affected": {
            "route": faulty.route,
            "service": faulty.service,
            "model": faulty.provider_model if faulty.provider else faulty.model,
            "tenant": NOISY if faulty.noisy_share else None,
            "instance": _slowest(faulty.slow),
        },
    }
    if scenario.alone:
        out["alone"] = [
            again(_seen(job, _plan(job, onset_s, fault)))["breach_ratio"]
            for fault in scenario.alone
        ]
    if job.fixes:
        # The world before the onset, for what only the fault turned; the confounders of the second half stay.
        fixes = scenario.fixes(plan[-2][1], faulty)
        fixed = [(fix, [*plan[:-1], (at, fix.apply(faulty))]) for fix in fixes]
        out["fixes"] = [
            {
                "fix": fix.id,
                "parameters": fix.parameters,
                "latency": again(states),
                "again": again(states, 1),
            }
            for fix, states in fixed
        ]
    return out


def _slowest(slow: tuple[float, ...]) -> str | None:
    return otlp.engine_instance(max(range(len(slow)), key=lambda k: slow[k])) if slow else None


def _ns(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000


def write(made: Made, folder: Path) -> None:
    """Write the export requests and the truth of a window."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("*.traces.pb"), *folder.glob("*.metrics.pb")]:
        stale.unlink()
    spans = otlp.seen(made.window.spans, made.telemetry, int(made.truth["seed"]))
    for number, body in enumerate(otlp.trace_bodies(spans, made.telemetry, _ns(START)), 1):
        (folder / f"{number:03d}.traces.pb").write_bytes(body.SerializeToString())
    for number, metrics in enumerate(otlp.metric_bodies(made.window.scrapes), 1):
        (folder / f"{number:03d}.metrics.pb").write_bytes(metrics.SerializeToString())
    (folder / "truth.json").write_text(json.dumps(made.truth, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 2 for a scenario or severity that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "scenario",
        help="one of: "
        + ", ".join([*SCENARIOS, *FURTHER, *HEALTHY])
        + "; or two of the former joined by a plus",
    )
    parser.add_argument(
        "--severity",
        default="medium",
        help="easy, medium or hard: about 30, 10 or 3.5 %% of requests over the limit after the onset",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the OTLP files and truth.json"
    )
    parser.add_argument(
        "--client-only", action="store_true", help="no engine spans and no engine metrics"
    )
    parser.add_argument("--metrics-only", action="store_true", help="engine metrics and no spans")
    parser.add_argument(
        "--no-confounders", action="store_true", help="nothing but the fault changes"
    )
    parser.add_argument(
        "--no-fixes", action="store_true", help="do not simulate what the fixes would do"
    )
    parser.add_argument(
        "--tuned",
        action="store_true",
        help="look for the strength that gives the severity's share with this very seed",
    )
    parser.add_argument(
        "--sampling", type=float, default=1.0, help="share of traces kept by their heads"
    )
    parser.add_argument(
        "--duration", type=float, default=DURATION_S, help="seconds; the onset is near the middle"
    )
    given = parser.parse_args(arguments)
    job = Job(
        scenario=given.scenario,
        severity=given.severity,
        seed=given.seed,
        client_only=given.client_only,
        metrics_only=given.metrics_only,
        confounders=not given.no_confounders,
        sampling=given.sampling,
        duration_s=given.duration,
        fixes=not given.no_fixes,
        tuned=given.tuned,
    )
    try:
        made = make(job)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    write(made, given.out)
    print(
        json.dumps(
            {
                "out": str(given.out),
                "requests": made.truth["requests"],
                "breach_ratio": made.truth["breach_ratio"],
                "causes": made.truth["causes"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
