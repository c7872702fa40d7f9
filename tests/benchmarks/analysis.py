"""How long do the questions of the dashboard and the command line take over stores of growing size, and how much memory?

    make bench-analysis ARGS="--requests 10000 100000 1000000"

Each size runs in a process of its own on a synthetic store (analysis_store.py, one day, 10 spans a request), each question `--repeats` times; the best wall
time and its CPU time are printed as a Markdown table. The machine is shared: compare columns of one run, and CPU rather than wall.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from overrun.analysis.front.report import build
from overrun.analysis.numbers.comparison.cohorts import cohorts
from overrun.analysis.numbers.over_time.heatmap import heatmap
from overrun.analysis.numbers.over_time.history import history
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.stages.budget import StageTimes, budgets_for, stage_rows, stage_times
from overrun.analysis.numbers.window import FIRST_TOKEN_PATH, FOR_RULES, Window, load
from overrun.analysis.words.slo import parse_slo
from overrun.collector.lifecycle.rollups import roll_up
from tests.benchmarks.analysis_store import END, make
from tests.benchmarks.results import Figure, add_write_flag, measured, record

SLO = parse_slo("chat")
DAYS = 30.0
TRACES = 20_000
# What a report reads of a request beside its stage times.
_NOT_OF_STAGES = (
    *FOR_RULES,
    *FIRST_TOKEN_PATH,
    "service",
    "route",
    "model",
    "tenant",
    "version",
    "error",
    "error_type",
    "engine_only",
    "ttft_ms",
    "ttft_source",
    "itl_ms",
    "tpot_ms",
    "output_tokens",
    "max_tokens",
    "llm_calls",
    "attempts",
    "truncated",
    "input_tokens",
    "sampling",
    "sample_weight",
    "spans",
    "inferred_ms",
    "clipped_spans",
    "skewed_spans",
)


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--one",
        type=Path,
        help="measure this size here, in the given folder (used by the benchmark itself)",
    )
    add_write_flag(parser)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(_measure(arguments.requests[0], arguments.repeats, arguments.one)))
        return
    print(
        f"Run of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, "
        f"duckdb {duckdb.__version__}.\n"
    )
    columns = {n: _in_process(n, arguments.repeats) for n in arguments.requests}
    names = list(next(iter(columns.values())))
    print(
        "| question | "
        + " | ".join(f"{n:,} requests" for n in columns)
        + " |\n|---|"
        + "---|" * len(columns)
    )
    for name in names:
        print(f"| {name} | " + " | ".join(columns[n][name] for n in columns) + " |")
    if arguments.write:
        best = f"best of {arguments.repeats}, but one run with findings and of cohorts"
        cells = [
            (n, f"{name[0].upper()}{name[1:]}: {n:,} requests", cell)
            for n, column in columns.items()
            for name, cell in column.items()
        ]
        record(
            "analysis", [figure(what, cell, best, page=n >= 1_000_000) for n, what, cell in cells]
        )


def figure(what: str, cell: str, conditions: str, *, page: bool = True) -> Figure:
    """A cell of the table, such as `689 ms (CPU 873)`, as a figure for docs/results."""
    value, unit, *cpu = re.findall(r"[\d,]+|ms|MB", cell.partition(" rows")[0])
    more = {"CPU": int(cpu[0].replace(",", ""))} if "CPU" in cell else None
    return measured(
        what,
        int(value.replace(",", "")),
        unit,
        more=more,
        script="make bench-analysis",
        conditions=conditions,
        page=page,
    )


def _in_process(n: int, repeats: int) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="overrun-bench-") as folder:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.analysis",
            "--requests",
            str(n),
            "--repeats",
            str(repeats),
            "--one",
            folder,
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _measure(n: int, repeats: int, folder: Path) -> dict[str, str]:
    out: dict[str, str] = {}
    path = folder / "bench.db"
    store = make(path, n, 1.0)
    everything, start = Window(), END - timedelta(days=min(1.0, TRACES / n))
    with store.reading() as con:
        out["report without findings"] = _timed(
            lambda: build(con, everything, SLO, with_findings=False), repeats
        )
        out["report with findings"] = _timed(lambda: build(con, everything, SLO), 1)
        out["percentiles of every stage, at most 20,000 traces"] = _timed(
            lambda: _stages(con, Window(start=start)), repeats
        )
        out["series of E2E"] = _timed(lambda: series(con, everything, SLO, "e2e"), repeats)
        out["heat map of E2E"] = _timed(lambda: heatmap(con, everything, SLO, "e2e"), repeats)
        out["cohorts of slow requests"] = _timed(lambda: cohorts(con, everything, SLO, "e2e"), 1)
    out["file"] = f"{path.stat().st_size / 1e6:,.0f} MB"
    store.close()
    store = make(folder / "month.db", n, DAYS, spans=False)
    now_ns = int((END + timedelta(days=1)).timestamp()) * 10**9
    store.connection.begin()
    while roll_up(store.connection, now_ns):
        pass
    store.connection.commit()
    rows = store.connection.execute("select count(*) from rollups").fetchall()[0][0]
    with store.reading() as con:
        out["30 days of E2E through rollups"] = (
            _timed(lambda: history(con, Window(), "e2e"), repeats) + f" ({rows:,} rows)"
        )
    out["peak memory of the process"] = (
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB"
    )
    store.close()
    return out


def _stages(con: duckdb.DuckDBPyConnection, window: Window) -> StageTimes:
    every = load(con, window, without=_NOT_OF_STAGES, points=False)
    times = stage_times(every.rows, "e2e")
    stage_rows(times, budgets_for(SLO, "e2e"), times.take(times.total_ms > 2_500.0), {}, {})
    return times


def _timed(question: Callable[[], object], repeats: int) -> str:
    best: tuple[float, float] | None = None
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        question()
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
        best = spent if best is None else min(best, spent)
    assert best is not None
    return f"{1000.0 * best[0]:,.0f} ms (CPU {1000.0 * best[1]:,.0f})"


if __name__ == "__main__":
    main()
