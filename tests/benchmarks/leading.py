"""Does an alert learned on the first part of a window warn of the breaches of the rest, and better than fixed thresholds?

Simulated windows in which requests miss their limits again and again (bursts, load and caches near their limit). The report's best alert is learned on the
first two thirds and scored on the last third, beside what the report says of it (on data held out), what it reaches where it was learned, and the fixed "KV
usage above 90 %" and "a request waits". Of the alerts that the report recommends the same apart. With `--waves` also what an alert of the simulated load
itself would be worth, which no arrivals blur, with the threshold of each kind of window chosen afterwards on the very parts that it is scored on: a bound.

    python -m tests.benchmarks.leading --seeds 3
    python -m tests.benchmarks.leading --waves --seeds 3     # load that comes and goes (`tests.benchmarks.waves`) instead of faults
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.evidence.alert_choice import f1
from overrun.analysis.evidence.derived_indicators import arrivals, deviations, step_times
from overrun.analysis.evidence.engine_overview import indicators
from overrun.analysis.evidence.leading_indicators import (
    FALLING,
    Breaches,
    Scored,
    breaches,
    joined,
    score,
)
from overrun.analysis.front.file_import import import_files
from overrun.analysis.numbers.outcomes.goodput import judge
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.numbers.window import RequestFrame, load, make_window
from overrun.analysis.words.slo import Slo, parse_slo
from overrun.collector.config import load as load_settings
from overrun.collector.store import database as stores
from overrun.sample_traces.simulate import Job, Made, make, write
from tests.benchmarks.results import Figure, add_write_flag, measured, record
from tests.benchmarks.waves import WAVES, load_of, waves

SCENARIOS: Final = (
    "burst_arrivals",
    "under_capacity",
    "kv_pressure",
    "growth_and_bloat",
    "prefix_cache_lost",
    "noisy_tenant",
)
DURATION_S: Final = 2400.0
BOUND = "the simulated load itself, threshold chosen afterwards"
_LEARNED_PART: Final = 2.0 / 3.0
FLATTERED = "the best where it was learned, on later data"
LEARNED, SAID, IN_SAMPLE = (
    "learned, on later data",
    "the same, as the report says (held out)",
    "the same, on what it was learned on",
)
RECOMMENDED, RECOMMENDED_SAID = "recommended, on later data", "the same, as the report says"
# Loads tried, as shares of the usual one, and the step at which the load is read.
_BOUND_LOADS: Final = (0.8, 2.6, 91)
_BOUND_STEP_S: Final = 5.0
FIXED: Final = {
    "KV usage above 90 %": ("kv_cache_usage", 0.9),
    "a request waits": ("queue_depth", 0.5),
}


def scored(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo, name: str, threshold: float
) -> Scored | None:
    """What an alert is worth on a window, every alert wrong where nothing breaches there; None where the indicator was not recorded."""
    starts = frame.rows["start_us"].to_numpy()
    origin = int(starts.min())
    found = breaches(starts, judge(frame.rows, slo).bad, 1.0 - slo.goodput_target, origin)
    onsets = found.onsets[found.onsets > found.first_s]
    steps = step_times(con, frame.start, frame.end, None)
    points = pl.concat(
        [frame.points, arrivals(starts), *([] if steps is None else [steps, deviations(steps)])]
    ).filter(pl.col("indicator") == name)
    if not points.height:
        return None
    return score(
        *joined(points, name, origin), -threshold if name in FALLING else threshold, onsets, found
    )


def one(made: Made) -> tuple[dict[str, Scored | None], Breaches]:
    """The alerts of one simulated window by name, scored on its last third, and on what it was learned on (none where that teaches none that leads), and
    the breaches of the last third, in seconds since the window's start."""
    with tempfile.TemporaryDirectory(prefix="overrun-leading-") as place:
        folder = Path(place)
        write(made, folder / "otlp")
        truth: dict[str, Any] = json.loads((folder / "otlp" / "truth.json").read_bytes())
        settings = load_settings(flags={"collector.db": str(folder / "case.db")})
        import_files(
            sorted((folder / "otlp").glob("*.pb")),
            settings,
            url=None,
            progress=lambda done, of: None,
        )
        start, end = (datetime.fromisoformat(truth[name]) for name in ("start", "end"))
        middle = start + timedelta(seconds=_LEARNED_PART * (end - start).total_seconds())
        slo = parse_slo(truth["slo"])
        store = stores.open_store(folder / "case.db", create=False)
        try:
            with store.reading() as con:
                first, rest = (
                    load(
                        con,
                        make_window(
                            now=end, from_=a.isoformat(), to=b.isoformat(), baseline="none"
                        ),
                    )
                    for a, b in ((start, middle), (middle, end))
                )
                began = int(start.timestamp() * 1e6)
                return _worth(con, first, rest, slo), breaches(
                    rest.rows["start_us"].to_numpy(),
                    judge(rest.rows, slo).bad,
                    1.0 - slo.goodput_target,
                    began,
                )
        finally:
            store.close()


def _worth(
    con: duckdb.DuckDBPyConnection, first: RequestFrame, rest: RequestFrame, slo: Slo
) -> dict[str, Scored | None]:
    learned, _ = indicators(con, first, slo)
    if not learned or learned[0].lags:
        return {}
    best = learned[0]
    later = scored(con, rest, slo, best.indicator, best.threshold)
    if later is None:
        return {LEARNED: None}
    out: dict[str, Scored | None] = {
        LEARNED: later,
        SAID: best,
        IN_SAMPLE: scored(con, first, slo, best.indicator, best.threshold),
    }
    # As reports chose until 2026-11-24: by what each indicator reached where it was learned.
    best = max(
        (i for i in learned if not i.lags),
        key=lambda i: float(f1(np.array(i.learned_precision or 0.0), np.array(i.learned_recall))),
    )
    out[FLATTERED] = scored(con, rest, slo, best.indicator, best.threshold)
    if learned[0].recommended:
        out |= {RECOMMENDED: later, RECOMMENDED_SAID: learned[0]}
    return out | {
        said: scored(con, rest, slo, name, threshold) for said, (name, threshold) in FIXED.items()
    }


def bound(found: dict[str, list[tuple[int, Breaches]]]) -> list[Scored]:
    """What alerts of the load itself are worth on windows (seed, breaches) of each kind, at the threshold that is best for all windows of the kind."""
    out: list[Scored] = []
    for name, windows in found.items():
        tries = []
        for threshold in np.linspace(*_BOUND_LOADS):
            made = []
            for seed, rest in windows:
                at, load_ = (np.array(part) for part in load_of(name, seed))
                seconds = np.arange(rest.first_s, rest.last_s, _BOUND_STEP_S)
                values = (
                    load_[np.maximum(np.searchsorted(at, seconds, side="right") - 1, 0)]
                    if len(at)
                    else np.zeros(len(seconds))
                )
                made.append(
                    score(
                        seconds,
                        values,
                        float(threshold),
                        rest.onsets[rest.onsets > rest.first_s],
                        rest,
                    )
                )
            tries.append(made)
        out += (
            max(tries, key=_pooled)
            if any(len(load_of(name, seed)[0]) for seed, _ in windows)
            else []
        )
    return out


def _pooled(rows: Iterable[Scored]) -> float:
    counts = np.array(
        [[(i.precision or 0.0) * i.alerts, i.alerts, i.recall * i.events, i.events] for i in rows]
    ).sum(axis=0)
    return float(f1(counts[0] / max(counts[1], 1.0), counts[2] / max(counts[3], 1.0)))


def table(found: dict[str, list[Scored]]) -> str:
    """Alerts and breaches of all windows together with Wilson intervals, a row a method."""
    out = [
        "| alert | windows | alerts | precision | in a breach's first minute | breaches | recall | lead, median of windows |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        alerts, events = sum(i.alerts for i in rows), sum(i.events for i in rows)
        right = sum((i.precision or 0.0) * i.alerts for i in rows)
        told = sum(i.recall * i.events for i in rows)
        leads = [i.lead_s_median for i in rows if i.lead_s_median is not None]
        out.append(
            f"| {name} | {len(rows)} | {alerts} | {_share(right, alerts)} | {sum(i.late for i in rows)} | {events} | {_share(told, events)} | "
            f"{f'{statistics.median(leads):.0f} s' if leads else '-'} |"
        )
    return "\n".join(out)


def _share(hits: float, n: int) -> str:
    if not n:
        return "-"
    low, high = wilson(round(hits), n)
    return f"{hits / n:.2f} ({low:.2f}-{high:.2f})"


def figures(found: dict[str, list[Scored]], kind: str, script: str) -> list[Figure]:
    """The learned alert and the fixed ones as figures for docs/results, where they alerted at all."""
    out = []
    alerted = {LEARNED: "learned alert on later data"} | {
        name: f"fixed alert '{name}'" for name in FIXED
    }
    for name, alert in alerted.items():
        rows = found[name]
        alerts, events = sum(i.alerts for i in rows), sum(i.events for i in rows)
        if alerts and events:
            right, told = (
                sum((i.precision or 0.0) * i.alerts for i in rows),
                sum(i.recall * i.events for i in rows),
            )
            conditions = f"{len(rows)} windows, {alerts} alerts, {events} breaches"
            out.append(
                measured(
                    f"Precision of the {alert}: {kind}",
                    round(right / alerts, 2),
                    more={"recall": round(told / events, 2)},
                    script=script,
                    conditions=conditions,
                )
            )
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the windows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", action="append", choices=(*SCENARIOS, *WAVES))
    parser.add_argument(
        "--waves", action="store_true", help="the windows of `tests.benchmarks.waves`"
    )
    parser.add_argument("--seed", type=int, default=32001, help="the first one")
    parser.add_argument("--seeds", type=int, default=1)
    add_write_flag(parser)
    given = parser.parse_args(arguments)
    found: dict[str, list[Scored]] = {
        name: []
        for name in (LEARNED, SAID, IN_SAMPLE, FLATTERED, RECOMMENDED, RECOMMENDED_SAID, *FIXED)
    }
    windows: dict[str, list[tuple[int, Breaches]]] = {}
    for scenario in given.scenario or (WAVES if given.waves else SCENARIOS):
        for seed in range(given.seed, given.seed + given.seeds):
            alerts, rest = one(
                waves(scenario, seed)
                if scenario in WAVES
                else make(
                    Job(
                        scenario=scenario,
                        severity="medium",
                        seed=seed,
                        duration_s=DURATION_S,
                        fixes=False,
                        tuned=True,
                    )
                )
            )
            if scenario in WAVES:
                windows.setdefault(scenario, []).append((seed, rest))
            for name, row in alerts.items():
                said = (
                    "-"
                    if row is None
                    else f"{row.alerts} alerts, precision {row.precision}; {row.events} breaches, recall {row.recall:.2f}"
                )
                print(f"{scenario} {seed} {name}: {said}", file=sys.stderr, flush=True)
                if row is not None:
                    found[name].append(row)
            if not alerts:
                print(
                    f"{scenario} {seed}: nothing leads in its first part",
                    file=sys.stderr,
                    flush=True,
                )
    scores = found | ({BOUND: bound(windows)} if windows else {})
    print(table(scores))
    if given.write:
        kind = f"load in waves, seeds from {given.seed}" if given.waves else "faults"
        script = f"python -m tests.benchmarks.leading {'--waves ' if given.waves else ''}--seed {given.seed} --seeds {given.seeds}"
        record("leading", figures(scores, kind, script))
    return 0


if __name__ == "__main__":
    sys.exit(main())
