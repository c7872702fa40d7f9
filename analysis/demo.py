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
from pathlib import Path
from typing import Any

import httpx

from analysis import report as reports
from analysis import text
from collector.errors import CollectorError

# The recordings that the demo shows; the first is the incident that the README tells of.
RECORDINGS = ("vllm-spans", "vllm-joined", "semconv-genai-openai", "semconv-openai-v2", "sglang-spans")
_START_S, _SETTLE_S = 60.0, 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server of the demo."""

    grpc: str
    http: str


@contextmanager
def private_server(folder: Path) -> Iterator[Server]:
    """`overrun serve` on free ports with a database in `folder`, ended with the block."""
    command = [sys.executable, "-m", "overrun", "serve", "--db", str(folder / "demo.db"), "--grpc-port", "0", "--http-port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=folder)
    try:
        yield _ready(process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[str]) -> Server:
    """Read the server's standard error up to its `ready` line, and keep it flowing afterwards."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip())
        if line.startswith("ready "):
            threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
            found = dict(part.split("=", 1) for part in line.split()[1:])
            return Server(grpc=found["grpc"], http=found["http"])
    raise CollectorError("the demo's server did not start: " + " ".join(said[-3:]))


def run(*, once: bool, dashboard: bool, say: Callable[[str], None]) -> None:
    """Send the recordings, print a verdict each.

    Raises:
        CollectorError: the server did not start or the recordings could not be sent.
    """
    with tempfile.TemporaryDirectory(prefix="overrun-demo-") as folder, private_server(Path(folder)) as server:
        base = f"http://{server.http}"
        print(f"sending {len(RECORDINGS)} recordings to a private server at {base}", file=sys.stderr)
        sent = _send(base)
        _settled(base)
        for row in sent:
            _tell(base, row, say)


def _send(base: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "sample_traces.replay", "--endpoint", base, "--recording", *RECORDINGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise CollectorError(f"the recordings could not be sent: {done.stderr.strip()[-500:]}")
    rows: list[dict[str, Any]] = json.loads(done.stdout)["recordings"]
    return rows


def _settled(base: str) -> None:
    """Wait until every trace that was sent is assembled."""
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        if not httpx.get(f"{base}/readyz", timeout=10, trust_env=False).json()["pending_traces"]:
            return
        time.sleep(0.1)
    raise CollectorError(f"the recordings were sent, but not assembled within {_SETTLE_S:.0f} s")


def _tell(base: str, row: dict[str, Any], say: Callable[[str], None]) -> None:
    question = {"from": row["from"], "to": row["to"], "slo": row["slo"], "baseline": "none"}
    answer = httpx.get(f"{base}/api/v1/report", params=question, timeout=60, trust_env=False)
    if answer.status_code != httpx.codes.OK:
        raise CollectorError(f"no report on {row['name']}: {answer.text[:300]}")
    say(f"== {row['title']} ({row['name']}, judged by {row['slo']})")
    say(text.render(reports.from_json(answer.content), width=110))
    say("")
