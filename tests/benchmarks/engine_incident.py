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

from tests.benchmarks.results import ROOT, add_write_flag, measured, record
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


def start_prometheus(folder: Path, engine: Server) -> Server:
    """A Prometheus that scrapes one engine."""
    found = shutil.which("prometheus") or str(ROOT / ".venv/prometheus/usr/bin/prometheus")
    port = free_port()
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {SCRAPE_S}s, scrape_timeout: 10s}}\n"
        f"scrape_configs: [{{job_name: llama, static_configs: [{{targets: ['127.0.0.1:{engine.port}']}}]}}]\n"
    )
    command = [
        found,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Server("Prometheus", command, port, folder / "prometheus.log", {})


def diagnose(url: str, minutes: int, output: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "overrun", "diagnose", f"prometheus:{url}"),
            *("--since", f"{minutes}m", "--output", output),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"overrun diagnose ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    """Run it all, print the report, record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv" / "lab")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "engine-incident")
    parser.add_argument("--calm-s", type=float, default=120.0)
    parser.add_argument("--incident-s", type=float, default=600.0)
    parser.add_argument("--keep-s", type=float, default=0.0, help="Prometheus stays so long")
    add_write_flag(parser)
    flags = parser.parse_args()
    shutil.rmtree(flags.folder, ignore_errors=True)
    flags.folder.mkdir(parents=True)
    engine = start_llama(
        flags.environment, Engine(flags=("-np", "1", "-c", "2048")), flags.folder, free_port()
    )
    servers = [engine]
    try:
        engine.wait("/health")
        prometheus = start_prometheus(flags.folder, engine)
        servers.append(prometheus)
        prometheus.wait("/-/ready")
        calm = call(engine.url, 1, flags.calm_s, 2.0)
        begun = datetime.now(UTC)
        busy = call(engine.url, CALLERS, flags.incident_s, 0.0)
        (flags.folder / "seen.json").write_bytes(msgspec.json.encode([calm, busy]))
        minutes = round((flags.calm_s + flags.incident_s) / 60)
        print(f"incident began at {begun:%H:%M:%S} UTC, Prometheus at {prometheus.url}")
        print(diagnose(prometheus.url, minutes, "text"))
        report = msgspec.json.decode(diagnose(prometheus.url, minutes, "json"))
        (flags.folder / "report.json").write_bytes(msgspec.json.encode(report))
        report_figures(flags.write, calm, busy, begun, report)
        time.sleep(flags.keep_s)
    finally:
        for server in servers:
            server.stop()


def report_figures(
    write: bool, calm: Seen, busy: Seen, begun: datetime, report: dict[str, Any]
) -> None:
    """Print and record what came of it."""
    verdict = report["verdict"]
    onset = datetime.fromisoformat(verdict["onset"]).timestamp() if verdict["onset"] else 0.0
    print(f"calm: {len(calm.answers_s)} answers, P95 {calm.p95():.2f} s, {calm.failed} failed")
    print(f"incident: {len(busy.answers_s)} answers, P95 {busy.p95():.2f} s, {busy.failed} failed")
    print(verdict)
    if not write:
        return
    figure = measured(
        "Prometheus beside one llama.cpp server, ten minutes of eight callers on its one slot: stage and cause named",
        int(verdict["stage"] == "queue" and verdict["cause"] in RIGHT),
        of=1,
        more={
            "P95 before, s": round(calm.p95(), 2),
            "P95 in the incident, s": round(busy.p95(), 2),
            "answers in the incident": len(busy.answers_s),
            "stage": str(verdict.get("stage")),
            "cause": str(verdict.get("cause")),
            "onset after it began, s": round(onset - begun.timestamp()),
        },
        script=SCRIPT,
        conditions="nothing installed but Prometheus 2.42, which scraped every 15 s; overrun diagnose prometheus:URL --since 12m",
    )
    record("first_look", [figure])


if __name__ == "__main__":
    main()
