"""What does the product do, shown on recorded incidents? A private server on free ports, the recordings over real OTLP, five lines each.

The recordings and the program that sends them are `sample_traces`, which is run as a program of its own: nothing of ours imports it.
However slow the machine is, the demo waits: it gives up where the server has ended, or after a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import httpx

from overrun.analysis.front import report as reports
from overrun.analysis.front import report_brief
from overrun.analysis.words.finding import say_count
from overrun.analysis.words.times import rfc3339
from overrun.collector.errors import CollectorError

# The dashboard opens on the first.
INCIDENTS: Final = ("sim-prefix-cache-lost", "vllm-spans", "sim-slow-vector-store")
# What other SDKs and engines send: most have too few requests for a percentile.
OTHERS: Final = (
    *("vllm-joined", "semconv-genai-openai", "semconv-openai-v2", "sglang-spans"),
    *(
        "openinference-openai",
        "openinference-langgraph",
        "openinference-langgraph-double",
        "openllmetry",
    ),
    *("langfuse", "vercel-ai-sdk", "mlflow", "litellm-sdk"),
    *("pydantic-ai-logfire", "vector-db-db-semconv"),
)
PATIENCE_S: Final = 900.0
# One question waits so long before it is asked again.
_ASK_AGAIN_S: Final = 30.0
# Simulated gains are waited for so long in all; without them a report has those of the findings, and the dashboard shows the others when they are there.
_SIMULATED_S: Final = 6.0
_LAST_WORDS_S: Final = 5.0


class Shown(Protocol):
    """A dashboard that is starting."""

    def open(self, query: dict[str, str]) -> str:
        """Wait until it answers, put it before the person, opened on `query`, and return its address."""

    def wait(self) -> int: ...
    def terminate(self) -> None: ...


Show = Callable[[str], Shown]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of the demo."""

    process: subprocess.Popen[str]
    base: str


@contextmanager
def private_server(db: Path) -> Iterator[Server]:
    """`overrun serve` of a database on free ports, ended with the block. It lets nothing go."""
    ports = ("--grpc-port", "0", "--http-port", "0")
    command = [sys.executable, "-m", "overrun", "serve", "--db", str(db.resolve()), *ports]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OVERRUN_MAX_AGE_DAYS": "0", "OVERRUN_DB_MAX_SIZE": "0"},
    )
    # Keeps its standard error flowing.
    reader = threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True)
    try:
        base = _ready(process)
        reader.start()
        yield Server(process, base)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # With a thread that still runs at this process's end, DuckDB's binding prints screens of what it takes for leaks.
        if reader.ident is not None:
            reader.join(_LAST_WORDS_S)


def _ready(process: subprocess.Popen[str]) -> str:
    """Read the server's standard error up to its `ready` line; returns its address."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if line.startswith("ready "):
            found = dict(part.split("=", 1) for part in line.split()[1:])
            return f"http://{found['http']}"
    raise CollectorError("the server did not start: " + " ".join(said[-3:]))


def run(
    *, everything: bool, say: Callable[[str], None], show: Show | None, width: int, colour: bool
) -> None:
    """Send the three incidents and print five lines each; with `everything` the other recordings too, most of them in one line.

    `show(url)` starts the dashboard of the server at `url`, which is opened on the first incident; None does without. What is shown stays until the person
    ends it (KeyboardInterrupt).

    Raises:
        CollectorError: the server did not start or ended, or the recordings could not be sent.
    """
    names = (*INCIDENTS, *(OTHERS if everything else ()))
    with (
        tempfile.TemporaryDirectory(prefix="overrun-demo-") as folder,
        private_server(Path(folder) / "demo.db") as server,
    ):
        print(
            f"sending {len(names)} recordings to a private server at {server.base}", file=sys.stderr
        )
        shown = show(server.base) if show else None
        try:
            sent = _send(server.base, names)
            _settled(server, time.time())
            deadline = time.monotonic() + _SIMULATED_S
            for number, row in enumerate(sent, start=1):
                say(f"{number}. {row['title']}")
                say(f"{_told(_report(server, row, deadline), width, colour)}\n")
            if shown:
                page = shown.open({name: sent[0][name] for name in ("from", "to", "slo")})
                print(f"dashboard: {page} (open until Ctrl-C)", file=sys.stderr)
                shown.wait()
        finally:
            if shown:
                shown.terminate()
                shown.wait()


def _told(found: reports.Report, width: int, colour: bool) -> str:
    """Five lines of a report, one where there are too few requests for a verdict."""
    if found.verdict.status in ("not_enough_data", "no_data"):
        window = found.window
        held = (
            say_count(window.requests, "request"),
            say_count(window.llm_calls, "model call"),
            say_count(window.spans, "span"),
        )
        return f"{', '.join(held)}: too few requests for a verdict"
    return report_brief.summary(found, width=width, colour=colour)


def _send(base: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    replay = [sys.executable, "-m", "overrun.sample_traces.replay", "--endpoint", base]
    command = [*replay, "--recording", *names]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CollectorError(
            f"the recordings could not be sent within {PATIENCE_S:.0f} s: try again when the machine is less busy"
        ) from error
    if done.returncode != 0:
        raise CollectorError(f"the recordings could not be sent: {done.stderr.strip()[-500:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["recordings"]
    return [row | _whole_seconds(row) for row in rows]


def _whole_seconds(row: dict[str, Any]) -> dict[str, str]:
    """The window of a row, widened to what the dashboard's time fields show whole; the next recording is two minutes away."""
    begin, end = (datetime.fromisoformat(row[side]) for side in ("from", "to"))
    return {"from": rfc3339(begin), "to": rfc3339(end + timedelta(seconds=1))}


def _settled(server: Server, until: float) -> None:
    """Wait until every trace whose last span came by then (Unix s) is assembled; newer ones may still be on their way."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        waiting = _asked(server, "/readyz", {}).json()
        if waiting["assembled_until"] >= until or not waiting["pending_traces"]:
            return
        time.sleep(0.1)
    raise CollectorError(f"the recordings were sent, but not assembled within {PATIENCE_S:.0f} s")


def _report(server: Server, row: dict[str, Any], deadline: float) -> reports.Report:
    """The report on a recording, once its fixes are simulated or the time (monotonic) is over."""
    while True:
        answer = _asked(
            server, "/api/v1/report", {name: row[name] for name in ("from", "to", "slo")}
        )
        if answer.status_code != httpx.codes.OK:
            raise CollectorError(f"no report on {row['name']}: {answer.text[:300]}")
        found = reports.from_json(answer.content)
        if not reports.unfinished(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def _asked(server: Server, path: str, question: dict[str, str]) -> httpx.Response:
    """The server's answer, however long it takes; a server that has ended gives none."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return httpx.get(
                f"{server.base}{path}", params=question, timeout=_ASK_AGAIN_S, trust_env=False
            )
        except httpx.TransportError as error:
            code = server.process.poll()
            if code is not None:
                raise CollectorError(f"the demo's server ended (exit code {code})") from error
            if time.monotonic() > deadline:
                raise CollectorError(
                    f"the demo's server gave no answer within {PATIENCE_S:.0f} s: try again when the machine is less busy"
                ) from error
            print("the machine is busy: still waiting for the server", file=sys.stderr)
            time.sleep(1.0)
