"""Does `overrun diagnose` name an incident from a Prometheus that scraped an engine, with nothing else installed?

A real llama.cpp server with one slot and a real Prometheus (every 15 s): two minutes of one caller with pauses, then ten minutes of eight callers at once.
`make lab-llama` builds the server; Debian has the Prometheus. Loopback alone, bounded in time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import numpy as np

from tests.benchmarks.results import ROOT, Figure, add_write_flag, measured, record
from tests.lab.servers import Engine, Server, free_port, start_llama

SCRIPT: Final = "tests/benchmarks/engine_incident.py"
SCRAPE_S: Final = 15
CALLERS: Final = 8
PROMPT: Final = " ".join(f"w{number}" for number in range(200))
OUTPUT_TOKENS: Final = 60
RIGHT: Final = ("under_capacity", "too_few_seats")  # more calls than its one slot serves


@dataclass
class Seen:
    """What the callers saw: times of whole answers in seconds."""

    answers_s: list[float] = field(default_factory=list)
    failed: int = 0

    def p95(self) -> float:
        """The P95 in seconds, NaN where nothing was answered."""
        return float(np.percentile(self.answers_s, 95)) if self.answers_s else float("nan")


@dataclass
class Run:
    """What was seen, and when the run and its incident began (RFC 3339) and it ended."""

    calm: Seen
    busy: Seen
    start: str
    begun: str
    end: str


def call_until(url: str, end: float, pause_s: float, seen: Seen) -> None:
    """One caller: calls one after the other, until `end`."""
    wanted = {"prompt": PROMPT, "n_predict": OUTPUT_TOKENS, "cache_prompt": False, "stream": False}
    with httpx.Client(base_url=url, timeout=120.0) as client:
        while time.monotonic() < end:
            begin = time.monotonic()
            try:
                client.post("/completion", json=wanted).raise_for_status()
                seen.answers_s.append(time.monotonic() - begin)
            except httpx.HTTPError:
                seen.failed += 1
            time.sleep(pause_s)


def call(url: str, callers: int, seconds: float, pause_s: float) -> Seen:
    """So many callers at once for so long."""
    seen, end = Seen(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=call_until, args=(url, end, pause_s, seen)) for _ in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def start_prometheus(folder: Path, engine: int | None) -> Server:
    """A Prometheus over the folder's samples that scrapes the engine at a port, if any."""
    found = shutil.which("prometheus") or str(ROOT / ".venv/prometheus/usr/bin/prometheus")
    port = free_port()
    job = f"{{job_name: llama, static_configs: [{{targets: ['127.0.0.1:{engine}']}}]}}"
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {SCRAPE_S}s, scrape_timeout: 10s}}\n"
        f"scrape_configs: [{job if engine else ''}]\n"
    )
    command = [
        found,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Server("Prometheus", command, port, folder / "prometheus.log", {})


def diagnose(url: str, run: Run, output: str) -> str:
    """What the command prints for the minutes of a run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "overrun", "report", f"prometheus:{url}"),
            *("--from", run.start, "--to", run.end, "--output", output),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"overrun diagnose ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def measure(environment: Path, folder: Path, calm_s: float, incident_s: float) -> Run:
    """Calm and incident beside a Prometheus; what it stored stays in the folder."""
    flags = ("-np", "1", "-c", "2048")
    servers = [start_llama(environment, Engine(flags=flags), folder, free_port())]
    try:
        servers[0].wait("/health")
        servers.append(start_prometheus(folder, servers[0].port))
        servers[1].wait("/-/ready")
        start = datetime.now(UTC)
        calm = call(servers[0].url, 1, calm_s, 2.0)
        begun = datetime.now(UTC)
        busy = call(servers[0].url, CALLERS, incident_s, 0.0)
        moments = (at.isoformat() for at in (start, begun, datetime.now(UTC)))
        return Run(calm, busy, *moments)
    finally:
        for server in servers:
            server.stop()


def main() -> None:
    """Run it all, print the report, record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv" / "lab")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "engine-incident")
    parser.add_argument("--calm-s", type=float, default=120.0)
    parser.add_argument("--incident-s", type=float, default=600.0)
    parser.add_argument("--again", action="store_true", help="ask of the last run once more")
    add_write_flag(parser)
    flags = parser.parse_args()
    kept = flags.folder / "run.json"
    if not flags.again:
        shutil.rmtree(flags.folder, ignore_errors=True)
        flags.folder.mkdir(parents=True)
        made = measure(flags.environment, flags.folder, flags.calm_s, flags.incident_s)
        kept.write_bytes(msgspec.json.encode(made))
    run = msgspec.json.decode(kept.read_bytes(), type=Run)
    prometheus = start_prometheus(flags.folder, None)
    try:
        prometheus.wait("/-/ready")
        print(diagnose(prometheus.url, run, "text"))
        report = msgspec.json.decode(diagnose(prometheus.url, run, "json"))
    finally:
        prometheus.stop()
    figure = figure_of(run, report["verdict"])
    print(figure)
    if flags.write:
        record("first_look", [figure])


def figure_of(run: Run, verdict: dict[str, Any]) -> Figure:
    """What came of it."""
    onset = verdict["onset"]
    late = datetime.fromisoformat(onset) - datetime.fromisoformat(run.begun) if onset else None
    return measured(
        "Prometheus beside one llama.cpp server, ten minutes of eight callers on its one slot: stage and cause named",
        int(verdict["stage"] == "queue" and verdict["cause"] in RIGHT),
        of=1,
        more={
            "P95 before, s": round(run.calm.p95(), 2),
            "P95 in the incident, s": round(run.busy.p95(), 2),
            "answers in the incident": len(run.busy.answers_s),
            "stage": str(verdict["stage"]),
            "cause": str(verdict["cause"]),
            "onset after it began, s": "not dated" if late is None else round(late.total_seconds()),
        },
        script=SCRIPT,
        conditions="nothing installed but Prometheus 2.42, which scraped every 15 s; overrun diagnose of the twelve minutes",
    )


if __name__ == "__main__":
    main()
