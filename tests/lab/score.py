"""Hold the product's words against what the client saw: stage, cause, advice, percentiles, what-if."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tests.lab import lengths
from tests.lab.drawn import named
from tests.lab.experiments import Experiment
from tests.lab.phases import Phase

METRICS = ("ttft", "e2e")
LIMIT_FACTOR = 1.6  # the limit that a team would set: the healthy P95 and some room


# Above these a capture says more of the machine than of the engine, and is not counted: a twentieth of the steps; a tenth of a second, which is a tenth of a usual answer.
MOST_LATE_STEPS, MOST_LATE_MS = 0.05, 100.0
LEAST_WORSE = 1.2  # a fault whose undoing gains less than a sixth is none that anybody could name
STEP_TOLERANCE = 1.1  # a step is late above this many times of what the pace gave it


class Predicted(msgspec.Struct, kw_only=True):
    """A what-if against the phase in which the fix ran. Milliseconds at P95.

    `before` and `after` are what the client saw; `reported` is what the product reports of the fixed phase, from the server's spans, which begin
    when the request has arrived.
    """

    metric: str
    before: float
    after: float
    reported: float | None = None
    predicted: float | None
    interval: tuple[float, float] | None
    refused: str = ""


class Score(msgspec.Struct, kw_only=True):
    """One repetition of one experiment."""

    experiment: str
    repetition: str
    stage: str | None
    cause: str | None
    advice: list[str]
    stage_right: bool
    cause_right: bool
    advice_right: bool
    percentile_error_ms: dict[str, float]  # the report's P95 minus the client's, of the fault
    predicted: list[Predicted]
    promised: list[
        lengths.Promised
    ] = []  # what `overrun routing` promised of the policy of the fixed phase
    quiet_windows: int = 0  # stretches in which nothing is wrong
    alarms: list[str] = []  # what was said of them that it should not
    worse_ratio: float = 0.0  # the client's P95 in the fault over that of the fixed phase (of the healthy one where lengths route), of the metric that it harms most
    again: dict[
        str, float
    ] = {}  # where the fixed set-up is the healthy one: how far their P95 lie apart, by the client
    late_steps: float = 0.0  # share of the engines' steps that the machine held up
    late_sends_ms: float = 0.0  # P99 over all phases of how much later than due a request was sent

    @property
    def disturbed(self) -> bool:
        """Whether other work on the machine reached into it: its truth is then no engine's."""
        return self.late_steps > MOST_LATE_STEPS or self.late_sends_ms > MOST_LATE_MS

    @property
    def harmless(self) -> bool:
        """Whether the fault harms nobody: then there is nothing to name."""
        return self.worse_ratio < LEAST_WORSE


def overrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The product's command line, in this environment."""
    return subprocess.run(
        [sys.executable, "-m", "overrun", *arguments], capture_output=True, text=True, check=False
    )


def p95(phase: Phase, metric: str) -> float:
    """What the client saw, in ms; failed requests do not count."""
    values = [getattr(one, f"{metric}_ms") for one in phase.seen if one.error is None]
    return float(np.percentile([value for value in values if value is not None], 95))


def read(folder: Path, name: str) -> Phase:
    """The truth of a phase."""
    return msgspec.json.decode((folder / name / "truth.json.txt").read_bytes(), type=Phase)


def window(phase: Phase) -> tuple[str, ...]:
    """The flags that choose a phase's time."""
    begin, end = (
        datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for t in (phase.begin_unix - 1, phase.end_unix + 2)
    )
    return ("--from", begin, "--to", end)


def limits(healthy: Phase) -> str:
    """The SLO of the healthy stretch with some room."""
    return " ".join(f"{m}:{p95(healthy, m) * LIMIT_FACTOR:.0f}" for m in METRICS)


def what_if(
    experiment: Experiment, folder: Path, fault: Phase, fixed: Phase, slo: str
) -> list[Predicted]:
    """The predicted P95 of both metrics, each beside the measured one."""
    found = []
    db = folder / "score-healthy-fault.db"
    latency = report_of(store(folder, "fixed"), fixed, slo)["latency"]
    for metric in METRICS if experiment.whatif else ():
        done = overrun(
            *("whatif", *experiment.whatif, "--db", str(db), *window(fault)),
            *("--slo", slo, "--metric", metric, "--output", "json"),
        )
        measured = {"before": p95(fault, metric), "after": p95(fixed, metric)}
        answer: dict[str, Any] = msgspec.json.decode(done.stdout) if done.returncode == 0 else {}
        rows = [
            row
            for row in answer.get("effects", ())
            if (row["metric"], row["quantile"]) == (metric, 0.95) and row["after"] is not None
        ]
        reasons = answer.get("reasons") or {"stopped": done.stderr.strip()[-300:]}
        found.append(
            Predicted(
                metric=metric,
                **measured,
                reported=(latency.get(f"{metric}_ms") or {}).get("p95"),
                predicted=rows[0]["after"] if rows else None,
                interval=tuple(rows[0]["interval"]) if rows and rows[0]["interval"] else None,
                refused="" if rows else "; ".join(reasons.values()),
            )
        )
    return found


def routing(
    experiment: Experiment, folder: Path, fault: Phase, fixed: Phase
) -> list[lengths.Promised]:
    """What `overrun routing` promises on the fault's calls, beside what the client measured; the predictor never saw them."""
    if not experiment.policies:
        return []
    usual, policy = experiment.policies
    seed = int(folder.name)
    artifact = lengths.trained(experiment.fault.load, seed, folder)
    db = store(folder, "fault")
    done = overrun("routing", "--artifact", str(artifact), "--db", str(db), "--output", "json")
    if done.returncode:
        raise RuntimeError(f"no answer of routing: {done.stderr[-500:]}")
    before, after = (lengths.figures(phase.seen) for phase in (fault, fixed))
    return lengths.promised(msgspec.json.decode(done.stdout), policy, usual, before, after)


def alarm(report: dict[str, Any]) -> str:
    """What a report raises where nothing is wrong; empty where it keeps quiet."""
    loud = [f["rule"] for f in report["findings"] if f["severity"] != "info"]
    status = report["verdict"]["status"]
    if status in ("over_budget", "failing", "traffic_lost"):
        loud.insert(0, status)
    return " ".join(loud)


def store(folder: Path, *phases: str) -> Path:
    """A new database with these phases, beside them."""
    db = folder / f"score-{'-'.join(phases)}.db"
    for old in folder.glob(f"{db.name}*"):
        old.unlink()
    taken = overrun("import", *(str(folder / phase) for phase in phases), "--db", str(db))
    if taken.returncode:
        raise RuntimeError(f"import of {folder} failed: {taken.stderr[-500:]}")
    return db


def report_of(db: Path, phase: Phase, slo: str) -> dict[str, Any]:
    """The report on a phase, as JSON."""
    asked = overrun("report", "--db", str(db), *window(phase), "--slo", slo, "--output", "json")
    if not asked.stdout:
        raise RuntimeError(f"no report: {asked.stderr[-500:]}")
    found: dict[str, Any] = msgspec.json.decode(asked.stdout)
    return found


def quiet_windows(folder: Path, experiment: Experiment, slo: str) -> list[str]:
    """What is raised in the second half of the healthy phase, and in the fixed one where it is the healthy set-up again."""
    healthy = read(folder, "healthy")
    middle = (healthy.begin_unix + healthy.end_unix) / 2
    second = msgspec.structs.replace(healthy, begin_unix=middle)
    found = [alarm(report_of(store(folder, "healthy"), second, slo))]
    if experiment.fixed == experiment.healthy:
        both = store(folder, "healthy", "fixed")
        found.append(alarm(report_of(both, read(folder, "fixed"), slo)))
    return found


def repeated(experiment: Experiment, healthy: Phase, fixed: Phase) -> dict[str, float]:
    """Per metric |fixed / healthy - 1| of the client's P95, where both are one set-up on the same arrivals and lengths: no smaller error means anything."""
    if experiment.fixed != experiment.healthy:
        return {}
    return {m: abs(p95(fixed, m) / p95(healthy, m) - 1.0) for m in METRICS}


def late_steps(folder: Path, phases: Sequence[Phase]) -> float:
    """Share of the steps within the phases that took longer than the pace gave them; 0 without records of steps.

    A recording holds the share alone.
    """
    if (about := folder / "about.json").exists():
        return float(msgspec.json.decode(about.read_bytes())["late_steps"])
    rows = [
        [float(part) for part in line.split()]
        for path in folder.glob("steps-*.txt")
        for line in path.read_text().splitlines()
        if len(line.split()) == 7  # the last one may be cut
    ]
    inside = [row for row in rows if any(p.begin_unix <= row[0] <= p.end_unix for p in phases)]
    late = sum(row[6] > STEP_TOLERANCE * row[4] for row in inside)
    return late / len(inside) if inside else 0.0


def score(folder: Path) -> Score:
    """One repetition: `folder` holds healthy/, fault/, fixed/ below a folder with the experiment's name."""
    experiment = named(folder.parent.name)
    if experiment is None:
        raise KeyError(f"{folder.parent.name} is no experiment")
    healthy, fault, fixed = (read(folder, name) for name in ("healthy", "fault", "fixed"))
    db = store(folder, "healthy", "fault")
    slo = limits(healthy)
    report = report_of(db, fault, slo)
    (folder / "report.json.txt").write_bytes(msgspec.json.encode(report))
    verdict = report["verdict"]
    advice = advised(report["findings"])
    latency = report["latency"]
    quiet = quiet_windows(folder, experiment, slo)
    # A policy of routing undoes nothing: what it is compared with is the healthy stretch.
    undone = healthy if experiment.policies else fixed
    return Score(
        experiment=experiment.name,
        repetition=folder.name,
        stage=verdict["stage"],
        cause=verdict["cause"],
        advice=advice,
        stage_right=verdict["stage"] == experiment.stage,
        cause_right=verdict["cause"] in experiment.causes,
        advice_right=bool(advice) and advice[0] in experiment.advice,
        percentile_error_ms={
            m: found - p95(fault, m)
            for m in METRICS
            if (found := (latency.get(f"{m}_ms") or {}).get("p95")) is not None
        },
        predicted=what_if(experiment, folder, fault, fixed, slo),
        promised=routing(experiment, folder, fault, fixed),
        quiet_windows=len(quiet),
        alarms=[said for said in quiet if said],
        worse_ratio=max(p95(fault, m) / p95(undone, m) for m in METRICS),
        again=repeated(experiment, healthy, fixed),
        late_steps=late_steps(folder, (healthy, fault, fixed)),
        late_sends_ms=float(
            np.percentile([o.late_ms for p in (healthy, fault, fixed) for o in p.seen], 99)
        ),
    )


def advised(findings: Sequence[dict[str, Any]]) -> list[str]:
    """The findings' fixes, best first: their what-ifs, or ids where nothing simulates them."""
    fixes = [finding["fix"] for finding in findings if finding.get("fix")]
    return [fix.get("whatif") or fix["id"] for fix in fixes]
