"""What does the product do, shown on recorded traffic? A private server on free ports, the recordings over real OTLP, one verdict each.

The recordings and the program that sends them are `sample_traces`, which is run as a program of its own: nothing of ours imports it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx

from overrun.analysis.front import report as reports
from overrun.analysis.front import report_brief
from overrun.analysis.words.times import rfc3339
from overrun.collector.errors import CollectorError

# The recordings that the demo shows; the first is the incident that the README tells of.
RECORDINGS = (
    "vllm-spans",
    "vllm-joined",
    "semconv-genai-openai",
    "semconv-openai-v2",
    "sglang-spans",
    "openinference-openai",
    "openinference-langgraph",
    "openinference-langgraph-double",
    "openllmetry",
    "langfuse",
    "vercel-ai-sdk",
    "mlflow",
    "litellm-sdk",
    "pydantic-ai-logfire",
    "vector-db-db-semconv",
)
# A recording with fewer requests has no percentile (P50 needs 6): it is told in a line.
_FEW = 6
# What goes wrong in the live application, and for how many seconds it is under load: with --once it has to end soon.
INCIDENT = "slow-retrieval"
_ONCE_S, _LIVE_S = 5, 50
_SETTLE_S = 60.0
_LAST_WORDS_S = 5.0


class Shown(Protocol):
    """A dashboard's process."""

    def wait(self) -> int: ...
    def terminate(self) -> None: ...


Show = Callable[[str, dict[str, str]], Shown]


@dataclass(frozen=True, slots=True)
class Application:
    """The demo application's process and when it was started."""

    process: subprocess.Popen[bytes]
    started: datetime


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of the demo."""

    grpc: str
    http: str


@contextmanager
def private_server(folder: Path) -> Iterator[Server]:
    """`overrun serve` on free ports with a database in `folder`, ended with the block."""
    command = [
        sys.executable,
        "-m",
        "overrun",
        "serve",
        "--db",
        str(folder / "demo.db"),
        "--grpc-port",
        "0",
        "--http-port",
        "0",
    ]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=folder
    )
    # Keeps its standard error flowing.
    reader = threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True)
    try:
        server = _ready(process)
        reader.start()
        yield server
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


def _ready(process: subprocess.Popen[str]) -> Server:
    """Read the server's standard error up to its `ready` line."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if line.startswith("ready "):
            found = dict(part.split("=", 1) for part in line.split()[1:])
            return Server(grpc=found["grpc"], http=found["http"])
    raise CollectorError("the demo's server did not start: " + " ".join(said[-3:]))


def run(*, once: bool, say: Callable[[str], None], show: Show | None) -> None:
    """Send the recordings and print a verdict each; then the same for a live application with an incident switched on.

    `show(url, query)` puts the dashboard of the server at `url` before the person, opened on `query`, and returns what ends it; None does
    without. What is shown stays until the person ends it (KeyboardInterrupt). `once` keeps the live application short.

    Raises:
        CollectorError: the server did not start or the recordings could not be sent.
    """
    with (
        tempfile.TemporaryDirectory(prefix="overrun-demo-") as folder,
        private_server(Path(folder)) as server,
    ):
        base = f"http://{server.http}"
        print(
            f"sending {len(RECORDINGS)} recordings to a private server at {base}", file=sys.stderr
        )
        sent = _send(base)
        sent_at = time.time()
        application = _start_application(base, _ONCE_S if once else _LIVE_S)
        try:
            _settled(base, sent_at)
            for row in sent:
                _tell(base, row, say)
            shown = (
                show(base, {"from": sent[0]["from"], "to": sent[0]["to"], "slo": sent[0]["slo"]})
                if show
                else None
            )
            try:
                _finish(base, application, say)
                if shown:
                    print("the dashboard stays open until Ctrl-C", file=sys.stderr)
                    shown.wait()
            finally:
                if shown:
                    shown.terminate()
                    shown.wait()
        finally:
            application.process.terminate()
            application.process.wait()


def _start_application(base: str, seconds: int) -> Application:
    """The instrumented RAG service of sample_traces, under load, its vector search turning slow half way through."""
    command = [
        sys.executable,
        "-m",
        "overrun.sample_traces.app.run",
        "--endpoint",
        base,
        "--duration",
        str(seconds),
        "--incident",
        INCIDENT,
    ]
    print(
        f"starting the demo application for about {seconds} s ({INCIDENT} half way through)",
        file=sys.stderr,
    )
    started = datetime.now(UTC)
    return Application(
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), started
    )


def _finish(base: str, application: Application, say: Callable[[str], None]) -> None:
    """Wait for the application's last answer and tell the verdict on its requests."""
    if application.process.wait() != 0:
        raise CollectorError("the demo application could not deliver its telemetry")
    _settled(base, time.time())
    window = {
        "from": application.started.isoformat(),
        "to": datetime.now(UTC).isoformat(),
        "service": "rag-demo",
    }
    _tell(
        base,
        {
            "title": f"A live RAG application with {INCIDENT.replace('-', ' ')}",
            "name": "sample_traces.app",
            "slo": "chat",
            **window,
        },
        say,
    )


def _send(base: str) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "overrun.sample_traces.replay",
        "--endpoint",
        base,
        "--recording",
        *RECORDINGS,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise CollectorError(f"the recordings could not be sent: {done.stderr.strip()[-500:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["recordings"]
    return [row | _whole_seconds(row) for row in rows]


def _whole_seconds(row: dict[str, Any]) -> dict[str, str]:
    """The window of a row, widened to what the dashboard's time fields show whole; the next recording is two minutes away."""
    begin, end = (datetime.fromisoformat(row[side]) for side in ("from", "to"))
    return {"from": rfc3339(begin), "to": rfc3339(end + timedelta(seconds=1))}


def _settled(base: str, until: float) -> None:
    """Wait until every trace whose last span came by then (Unix s) is assembled; newer ones may still be on their way."""
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        waiting = httpx.get(f"{base}/readyz", timeout=10, trust_env=False).json()
        if waiting["assembled_until"] >= until or not waiting["pending_traces"]:
            return
        time.sleep(0.1)
    raise CollectorError(f"the recordings were sent, but not assembled within {_SETTLE_S:.0f} s")


def _tell(base: str, row: dict[str, Any], say: Callable[[str], None]) -> None:
    question: dict[str, str] = {
        name: row[name] for name in ("from", "to", "slo", "service") if name in row
    }
    answer = httpx.get(f"{base}/api/v1/report", params=question, timeout=60, trust_env=False)
    if answer.status_code != httpx.codes.OK:
        raise CollectorError(f"no report on {row['name']}: {answer.text[:300]}")
    found = reports.from_json(answer.content)
    say(f"== {row['title']} ({row['name']}, judged by {row['slo']})")
    if found.window.requests < _FEW:
        say(
            f"requests: {found.window.requests}, model calls: {found.window.llm_calls}, spans: {found.window.spans}. {found.verdict.sentence}"
        )
    else:
        say(report_brief.render(found))
    say("")
