"""What does the product say about one simulated window? Makes it, takes it in by the importer's road, asks as an outsider would, and scores the answer."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from overrun.analysis.front import commands
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.file_import import import_files
from overrun.analysis.front.question_table import REPORT
from overrun.analysis.front.report import Report, from_json
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.window import make_window
from overrun.analysis.whatif import catalogue as whatifs
from overrun.analysis.whatif.facts import Facts, load_facts
from overrun.analysis.whatif.prediction import Effect, WhatIfError
from overrun.analysis.words.slo import parse_slo
from overrun.collector.config import Settings, load
from overrun.collector.store import database as stores
from overrun.sample_traces.simulate import Job, make, write
from tests.benchmarks import fault_baselines
from tests.benchmarks.fault_ablations import ablate, lasting
from tests.benchmarks.fault_fixes import BestFix, best_fix

# An onset in the recording's books and the first request that it touched may be this far apart.
_ONSET_SLACK_S: Final = 5.0
# Seconds after the onset at which the report is asked for again, until it names the cause.
DELAYS_S: Final = (15, 30, 45, 60, 90, 120, 180, 240)


class WhatIf(msgspec.Struct):
    """One predicted quantile beside the simulated truth, in ms; `after` is null where the product gave no figure.

    `again` is the truth of the same requests with other hiccups of the engines: no answer can be nearer than these two are to each other.
    """

    fix: str
    method: str
    metric: str
    quantile: float
    before: float
    truth: float
    after: float | None
    interval: tuple[float, float] | None
    naive: float | None = None
    why: str = ""
    again: float | None = None


class Result(msgspec.Struct):
    """One case: what was right, what was said, and what the simple methods said of the same window."""

    scenario: str
    severity: str | None
    seed: int
    client_only: bool
    confounders: list[str]
    breach: float | None
    causes: list[str]
    accepted: list[str]
    stages: list[str]
    chain: list[str]
    status: str
    stage: str | None
    cause: str | None
    ranked_stages: list[str]
    findings: list[tuple[str, str, float]]
    sentence: str
    reasons: dict[str, str]
    onset_error_s: float | None
    delay_s: float | None
    baselines: dict[str, tuple[str, str]]
    whatifs: list[WhatIf]
    seconds: dict[str, float]
    asked: str = "whole"
    best_fix: BestFix | None = None
    alone: list[float] = []
    path: bool | None = None
    ablation: str | None = None
    requests: int = 0
    needed: int = 0
    """Fewest requests of which the judged percentile can be told."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong in this window."""
        return self.severity is None

    @property
    def alarm(self) -> bool:
        """Whether the product cried: a verdict other than within budget, or a finding of warning or worse."""
        return self.status in ("over_budget", "failing", "traffic_lost") or any(
            severity != "info" for _, severity, _ in self.findings
        )

    @property
    def answered(self) -> bool:
        """Whether a fault was told of: over budget, or worse than before within it."""
        return self.status == "over_budget" or self.cause is not None

    @property
    def refused(self) -> bool:
        """Whether so little was recorded that the right answer is that it is too little, and that was said."""
        return (
            self.requests < self.needed
            and self.status in ("not_enough_data", "possibly_over_budget", "within_budget")
            and not self.named
        )

    def stage_right(self, first: int) -> bool:
        """Whether a right stage is among the first so many named."""
        if self.refused:
            return True
        named = (
            list(dict.fromkeys([*([self.stage] if self.stage else []), *self.ranked_stages]))
            if self.answered
            else []
        )
        return bool(set(named[:first]) & set(self.stages))

    def cause_right(self, first: int) -> bool:
        """Whether a right cause is among the first so many named; "none" among the right ones means that naming nothing is right, too.

        So is "not enough data" of fewer requests than the judged percentile needs."""
        if not self.answered:
            return self.refused
        named = list(dict.fromkeys([*([self.cause] if self.cause else []), *self.named]))[:first]
        right = {*self.causes, *self.accepted}
        return bool(set(named) & right) or ("none" in right and not named)

    @property
    def named(self) -> list[str]:
        """Rules that were found, best first, without mere information."""
        told = self.status not in ("possibly_over_budget", "within_budget")
        return [rule for rule, severity, _ in self.findings if severity != "info" or not told]

    @property
    def set_right(self) -> bool:
        """Whether exactly the causes were named, what follows from them left aside."""
        return self.answered and set(self.named) - {*self.chain, *self.accepted} == set(
            self.causes
        ) - {"none"}


@dataclass(frozen=True)
class Options:
    """How a case is asked: with what-ifs, with the search for the earliest verdict, with every fix tried in the true world; `keep` is where the
    recordings stay for the next run, `ablation` what they are to lack (`fault_ablations`)."""

    whatif: bool = True
    delay: bool = False
    best_fix: bool = False
    keep: Path | None = None
    ablation: str | None = None


def run(job: Job, options: Options) -> Result:
    """One case from nothing to its score; what it stores is gone afterwards unless a folder to keep it is given."""
    clock = _Clock()
    job = lasting(job, options.ablation)
    with _place(job, options) as place:
        db = place / (f"{options.ablation}.db" if options.ablation else "case.db")
        settings = load(flags={"collector.db": str(db)})
        truth = _recorded(job, options, place, settings, db, clock)
        asked, parameters = _question(job, truth, options.ablation)
        report = _report(parameters, settings, db)
        clock.lap("report")
        baselines = fault_baselines.answers(db, report, truth["slo"])
        path = _path(db, report, truth)
        predicted = _whatifs(db, truth) if options.whatif and truth["fixes"] else []
        clock.lap("whatif")
        best = (
            best_fix(job, report, truth)
            if options.best_fix and truth["causes"] and not job.client_only
            else None
        )
        clock.lap("fixes")
        delay = (
            _delay(parameters, settings, db, truth)
            if options.delay and truth["onset"] and truth["causes"]
            else None
        )
        clock.lap("delay")
    verdict = report.verdict
    onset = datetime.fromisoformat(truth["onset"]) if truth["onset"] else None
    return Result(
        scenario=job.scenario,
        severity=truth["severity"],
        seed=job.seed,
        client_only=job.client_only,
        confounders=truth["confounders"],
        breach=truth["breach_ratio"]["after"],
        causes=truth["causes"],
        accepted=truth["accepted"],
        stages=truth["stages"],
        chain=truth.get("chain", []),
        status=verdict.status,
        stage=verdict.stage,
        cause=verdict.cause,
        ranked_stages=_ranked(report),
        findings=[(f.rule, f.severity, f.confidence) for f in report.findings],
        sentence=verdict.sentence,
        reasons={k: v for k, v in report.reasons.items() if k.startswith("findings")},
        onset_error_s=(verdict.onset - onset).total_seconds() if verdict.onset and onset else None,
        delay_s=delay,
        baselines=baselines,
        whatifs=predicted,
        seconds=clock.laps,
        asked=asked,
        best_fix=best,
        alone=truth.get("alone", []),
        path=path,
        ablation=options.ablation,
        requests=report.window.requests,
        needed=min_n(parse_slo(truth["slo"]).percentile),
    )


@contextlib.contextmanager
def _place(job: Job, options: Options) -> Iterator[Path]:
    if options.keep is None:
        with tempfile.TemporaryDirectory(prefix="overrun-faults-") as temporary:
            yield Path(temporary)
        return
    parts = (
        job.scenario,
        job.severity,
        str(job.seed),
        "client" if job.client_only else "full",
        f"{job.duration_s:g}",
        "fixes" if options.whatif else "",
    )
    place = options.keep / "-".join(part for part in parts if part)
    place.mkdir(parents=True, exist_ok=True)
    yield place


def _recorded(
    job: Job, options: Options, place: Path, settings: Settings, db: Path, clock: _Clock
) -> dict[str, Any]:
    """The truth of a case whose store stands at `db`: made now, or kept by an earlier run, of which an ablation takes the export requests."""
    kept, traces = place / "truth.json", place / "otlp"
    if not kept.exists() or (options.ablation and not db.exists() and not traces.exists()):
        write(make(replace(job, fixes=job.fixes and options.whatif)), traces)
        shutil.copy(traces / "truth.json", kept)
        clock.lap("simulate")
    if not db.exists():
        source = traces if options.ablation is None else place / options.ablation
        if options.ablation is not None:
            ablate(options.ablation, traces, source)
        import_files([*sorted(source.glob("*.pb"))], settings, url=None, progress=_silent)
        shutil.rmtree(source)
        clock.lap("import")
    truth: dict[str, Any] = json.loads(kept.read_bytes())
    return truth


class _Clock:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.laps[name], self._last = round(now - self._last, 2), now


def _silent(_done: int, _all: int) -> None:
    """Progress that nobody looks at."""


def _question(
    job: Job, truth: dict[str, Any], ablation: str | None
) -> tuple[str, dict[str, str | None]]:
    """Half of the outsiders ask about all there is, the other half about the last five minutes, as after an alert. Of a few requests all are asked about."""
    parameters: dict[str, str | None] = {"slo": truth["slo"]}
    if job.seed % 2 == 0 or ablation == "few":
        return "whole", parameters
    middle = datetime.fromisoformat(truth["end"]) - timedelta(seconds=0.55 * job.duration_s)
    return "last", parameters | {"from": middle.isoformat(), "to": truth["end"]}


def _report(parameters: dict[str, str | None], settings: Settings, db: Path) -> Report:
    return from_json(commands.ask(Asked.read(REPORT, parameters, Source(settings, db))).encode())


def _path(db: Path, report: Report, truth: dict[str, Any]) -> bool | None:
    """Whether the chain from cause to requests is the injected one: the finding has a right stage, and each exemplar began after the onset and spent more in
    that stage than half of the requests before. None where no right cause was named, or no request came before."""
    found = next((one for one in report.findings if one.rule == report.verdict.cause), None)
    if found is None or found.rule not in truth["causes"] or not truth["onset"]:
        return None
    if found.stage not in truth["stages"] or not found.exemplars:
        return False
    onset = datetime.fromisoformat(truth["onset"])
    store = stores.open_store(db, create=False)
    try:
        with store.reading() as con:
            requests = con.execute(
                f"select trace_id, start, {found.stage}_ms from v_requests where {found.stage}_ms is not null"
            ).fetchall()
    finally:
        store.close()
    before = [ms for _, start, ms in requests if start < onset]
    shown = [(start, ms) for trace, start, ms in requests if trace in found.exemplars]
    if not before:
        return None
    return bool(shown) and all(
        start >= onset - timedelta(seconds=_ONSET_SLACK_S) and ms > statistics.median(before)
        for start, ms in shown
    )


def _ranked(report: Report) -> list[str]:
    rows = [row for row in report.stages if row.stage]
    return [
        str(row.stage)
        for row in sorted(rows, key=lambda row: (row.typical_ms or 0.0) - (row.tail_ms or 0.0))
    ]


def _delay(
    parameters: dict[str, str | None], settings: Settings, db: Path, truth: dict[str, Any]
) -> float | None:
    """Seconds from the onset to the first report that names a right cause over the requests that had begun by then; null if none does."""
    onset = datetime.fromisoformat(truth["onset"])
    for delay_s in DELAYS_S:
        until = onset + timedelta(seconds=delay_s)
        report = _report(
            {"slo": parameters["slo"], "from": truth["start"], "to": until.isoformat()},
            settings,
            db,
        )
        if report.verdict.status == "over_budget" and report.verdict.cause in truth["causes"]:
            return float(delay_s)
    return None


def _whatifs(db: Path, truth: dict[str, Any]) -> list[WhatIf]:
    """Every fix of the truth asked of the product over the faulty part of the window, with the truth's parameters."""
    found: list[WhatIf] = []
    store = stores.open_store(db, create=False)
    try:
        with store.reading() as con:
            window = make_window(
                now=datetime.now(UTC), from_=truth["onset"], to=truth["end"], baseline="none"
            )
            facts = load_facts(con, window, parse_slo(truth["slo"]), "e2e")
            for fix in (f for f in truth["fixes"] if f["fix"] != "restore"):
                texts = {
                    name: value if isinstance(value, str) else f"{value:g}"
                    for name, value in fix["parameters"].items()
                }
                found += _asked(facts, fix, texts, truth)
    finally:
        store.close()
    return found


def _asked(
    facts: Facts, fix: dict[str, Any], texts: dict[str, str], truth: dict[str, Any]
) -> list[WhatIf]:
    effects: dict[tuple[str, float], Effect] = {}
    method = "none"
    try:
        answer = whatifs.ask(facts, fix["fix"], texts)
        effects |= {(e.metric, e.quantile): e for e in answer.effects}
        method, why = answer.method, "; ".join(answer.reasons.values())[:200]
    except WhatIfError as error:
        why = str(error)[:200]
    rows = []
    for metric in ("ttft", "e2e"):
        before, after = truth["latency"]["after"][f"{metric}_ms"], fix["latency"][f"{metric}_ms"]
        if before is None or after is None:
            continue
        again = fix.get("again", {}).get(f"{metric}_ms") or {}
        naive = fault_baselines.naive_after(facts, fix) if metric == "e2e" else {}
        for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            effect = effects.get((metric, quantile))
            told = "; ".join(effect.reasons.values())[:200] if effect and effect.reasons else why
            rows.append(
                WhatIf(
                    fix["fix"],
                    method,
                    metric,
                    quantile,
                    before[name],
                    after[name],
                    effect.after if effect else None,
                    effect.interval if effect else None,
                    naive.get(quantile),
                    told,
                    again.get(name),
                )
            )
    return rows
