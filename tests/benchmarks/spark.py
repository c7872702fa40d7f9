"""Does a Spark cluster answer as DuckDB does, and what does each cost? A real cluster of one master and two workers on loopback, over the same hourly files.

`make bench-spark` runs it with the Python that has Spark: `.venv/spark/bin/python -m tests.benchmarks.spark`. Two days of synthetic requests (analysis_store.py)
are exported by the hour; the second day is compared with the first. The lines of docs/SCALE.md for Spark are run over the same folder.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import polars as pl

from overrun.analysis.front.batch.report import BatchReport, On, export_training, report
from overrun.analysis.front.commands import HoursOfFile
from overrun.analysis.front.hourly_files import HourlyFiles
from overrun.analysis.front.questions import Question
from overrun.analysis.numbers.window import Window
from overrun.collector.config import Settings
from tests.benchmarks import results
from tests.benchmarks.analysis_store import END, make

SCRIPT: Final = "make bench-spark"
# Sums of the same n numbers in another order differ by n x 2e-16 of their size at most: 2e-10 for a million.
BOUND: Final = 1e-9
DAYS: Final = 2.0
WORKERS: Final = 2
# Small heaps: a query needs no more, whatever the files hold.
SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> None:
    """Make the files, ask both engines, and print or record what they say and cost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    results.add_write_flag(parser)
    asked = parser.parse_args()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory(prefix="overrun-spark-") as name:
        folder = _hourly(Path(name), asked.requests)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        print(f"{asked.requests:,} requests in {size / 1e6:,.0f} MB of hourly files")
        figures = _figures(folder, Path(name), f"{asked.requests:,} requests, {size / 1e6:,.0f} MB")
    for figure in figures:
        print(figure.what, figure.value, figure.unit, dict(figure.more))
    if asked.write:
        results.record("spark", figures)


def _hourly(folder: Path, requests: int) -> Path:
    """The files that `overrun export --folder` writes of a synthetic store."""
    store = make(folder / "two_days.db", requests, DAYS, spans=False, calls=True)
    out = folder / "lake"
    try:
        HourlyFiles(out).write(
            HoursOfFile(store, Settings()), ("requests", "llm-calls"), {}, datetime.now(UTC)
        )
    finally:
        store.close()
    return out


def _figures(folder: Path, scratch: Path, of: str) -> list[results.Figure]:
    day = timedelta(days=DAYS / 2)
    texts = {"from": f"{END - day:%Y-%m-%dT%H:%M:%SZ}", "to": f"{END:%Y-%m-%dT%H:%M:%SZ}"}
    question = Question.read({**texts, "baseline": "previous"}, Settings(), now=END)
    with ExitStack() as stack:
        master = stack.enter_context(cluster(scratch))
        here, there = On(), On("spark", master, SETTINGS)
        made: dict[str, BatchReport] = {}
        trained: dict[str, pl.DataFrame] = {}
        spent: dict[str, tuple[float, float]] = {}
        for on in (here, there):
            with measured(spent, on.engine):
                made[on.engine] = report(folder, question, on)
            out = scratch / f"{on.engine}.parquet"
            with measured(spent, f"{on.engine} training"):
                export_training(folder, Window(workload="all"), 200_000, out, on)
            trained[on.engine] = pl.read_parquet(out)
    apart = compared(made["duckdb"], made["spark"])
    equal = trained["duckdb"].equals(trained["spark"].cast(trained["duckdb"].schema))
    lines = snippet_runs(folder)
    if apart > BOUND or not equal or not lines:
        raise SystemExit(
            f"the engines differ: {apart:.1e} relative, training set equal: {equal}, lines of the page: {lines}"
        )
    parts = {
        name: {"CPU": round(cpu, 1), "wall": round(wall, 1)} for name, (wall, cpu) in spent.items()
    }
    return [
        results.measured(
            "Largest relative difference of a mean between Spark and DuckDB",
            float(f"{apart:.1e}"),
            more={"counts, percentiles and texts": "equal"},
            script=SCRIPT,
            conditions=f"{of} in two days",
        ),
        *(
            results.measured(
                f"{what}, {'DuckDB on one node' if engine == 'duckdb' else 'Spark, 1 master and 2 workers'}, CPU",
                parts[name]["CPU"],
                "s",
                more={"wall, s": parts[name]["wall"]},
                script=SCRIPT,
                conditions=f"{of} in two days",
            )
            for what, suffix in (
                ("Report over two periods", ""),
                ("Training set of the newest 200,000 calls", " training"),
            )
            for engine in ("duckdb", "spark")
            for name in (f"{engine}{suffix}",)
        ),
        results.measured(
            "Training set, rows equal",
            trained["duckdb"].height,
            of=trained["duckdb"].height,
            script=SCRIPT,
            page=False,
        ),
        results.measured(
            "Lines of docs/SCALE.md for Spark, hours equal to DuckDB's",
            lines,
            of=lines,
            script=SCRIPT,
            page=False,
        ),
    ]


def compared(one: BatchReport, other: BatchReport) -> float:
    """By how much the means of two reports differ at most, relative. Counts, percentiles and texts must be equal."""
    apart = 0.0
    for (path, a), (_, b) in zip(
        leaves(msgspec.to_builtins(one)), leaves(msgspec.to_builtins(other)), strict=True
    ):
        if a == b or path == "/engine":
            continue
        last = path.rsplit("/", 1)[-1]
        if not isinstance(a, float) or not isinstance(b, float) or re.match(r"p\d", last):
            raise SystemExit(f"{path}: DuckDB {a!r}, Spark {b!r}")
        scale = max(abs(a), abs(b), 1.0)  # differences of means are near 0
        apart = max(apart, abs(a - b) / scale)
    return apart


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested objects, with the way to each."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value):
            yield from leaves(part, f"{path}/{at}")
    else:
        yield path, value


@contextmanager
def measured(spent: dict[str, tuple[float, float]], name: str) -> Iterator[None]:
    """Note wall and CPU seconds of a piece of work: of this process and of all that it has started."""
    wall, cpu = time.perf_counter(), cpu_of_all()
    yield
    spent[name] = time.perf_counter() - wall, cpu_of_all() - cpu
    print(name, spent[name], flush=True)


def cpu_of_all() -> float:
    """CPU seconds of this process and its descendants, those that have ended too."""
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))

    def ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return sum(spent for pid, spent in ticks.items() if ours(pid)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone cluster on loopback; yields the address of its master."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "384m"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    master = f"spark://127.0.0.1:{port}"
    kinds: list[list[str]] = [
        ["org.apache.spark.deploy.master.Master", "--port", str(port)],
        *(
            [
                "org.apache.spark.deploy.worker.Worker",
                "--cores",
                "1",
                "--memory",
                "900m",
                "--work-dir",
                str(folder / f"worker-{k}"),
                master,
            ]
            for k in range(WORKERS)
        ),
    ]
    with ExitStack() as stack:
        for kind, *flags in kinds:
            log = stack.enter_context((folder / f"{kind.rpartition('.')[2]}.log").open("ab"))
            process = subprocess.Popen(
                [
                    home / "bin" / "spark-class",
                    kind,
                    "--host",
                    "127.0.0.1",
                    "--webui-port",
                    "0",
                    *flags,
                ],
                env=environment,
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        _wait_for_workers(folder / "Master.log")
        yield master


def _wait_for_workers(log: Path, most_s: float = 120.0) -> None:
    until = time.monotonic() + most_s
    while log.read_text().count("Registering worker") < WORKERS:
        if time.monotonic() > until:
            raise SystemExit(f"the cluster did not come up:\n{log.read_text()[-2000:]}")
        time.sleep(0.5)


def snippet_runs(folder: Path) -> int:
    """Run the lines of docs/SCALE.md for Spark in a process of their own; returns how many hours they show as DuckDB does, 0 where any differs."""
    page = (results.ROOT / "docs" / "SCALE.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(from pyspark.*?)```", page, re.DOTALL)
    assert found is not None
    done = subprocess.run(
        [sys.executable, "-c", found[1]],
        cwd=folder.parent,  # where the folder is called lake
        env={
            **os.environ,
            "PYSPARK_SUBMIT_ARGS": "--master local[1] --driver-memory 1g pyspark-shell",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shown = dict(re.findall(r"\|\s*(\d{4}-\d\d-\d\dT\d\d)\s*\|\s*([\d.E]+)\s*\|", done.stdout))
    expected: Mapping[str, float] = dict(
        duckdb.read_parquet(f"{folder}/requests/*/*/*.parquet", hive_partitioning=True)
        .aggregate("hour, max(e2e_ms)")
        .fetchall()
    )
    right = [
        hour
        for hour, value in shown.items()
        if abs(float(value) - expected[hour]) <= 1e-9 * expected[hour]
    ]
    return len(right) if len(right) == len(shown) else 0


if __name__ == "__main__":
    main()
