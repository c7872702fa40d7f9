"""Does the server answer as /openapi.json describes? Schemathesis asks every operation of the document, of a real server over a recording.

Schemathesis has an environment of its own (`make check-api`). All its checks run but one: that every request whose values each fit the document is accepted.
Which values go together (`since` or `from`, a range that ends after it begins, a limit for the metric that is asked for) cannot be written in OpenAPI; the
server refuses such requests with the 400 that the document describes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from overrun.sample_traces import replay
from tests.benchmarks import results
from tests.conftest import ServerProcess

PROGRAM: Final = Path(sys.prefix) / "schemathesis" / "bin" / "schemathesis"
LEFT_OUT: Final = "positive_data_acceptance"
# A what-if over a large recording fits the engines for half a minute each time; over a small one it is answered or refused at once.
RUNS: Final = (
    ("sim-prefix-cache-lost", ("--exclude-path-regex", r"whatif/\{fix\}")),
    ("vllm-joined", ("--include-path-regex", r"whatif/\{fix\}")),
)
PHASES: Final = "examples,coverage,fuzzing,stateful"


def send(server: ServerProcess, name: str) -> None:
    """Send a recording to the server, its times moved so that it ends now."""
    recording = replay.load(name)
    first, last = replay.extent(recording.payloads)
    [window] = replay.lay_out([(name, first, last)], time.time_ns(), 0)
    for payload in recording.payloads:
        replay.shift(payload, window.offset_ns)
        answer = httpx.post(
            f"{server.http}/v1/{payload.signal}",
            content=payload.request.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
            trust_env=False,
            timeout=60,
        )
        answer.raise_for_status()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _pending(server):
        time.sleep(0.2)


def _pending(server: ServerProcess) -> int:
    ready: dict[str, Any] = httpx.get(f"{server.http}/readyz", trust_env=False).json()
    return int(ready.get("pending_traces", 0))


def asked(server: ServerProcess, examples: int, more: tuple[str, ...]) -> tuple[int, int, str]:
    """Run Schemathesis; returns its cases, its failures and what it printed."""
    command = [
        *(str(PROGRAM), "run", f"{server.http}/openapi.json", "--no-color"),
        *("--phases", PHASES, "--checks", "all", "--exclude-checks", LEFT_OUT),
        *("--max-examples", str(examples), "--request-timeout", "120"),
        *more,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=server.db.parent
    )
    said = done.stdout + done.stderr
    cases = re.search(r"([\d,]+) generated", said)
    failures = re.search(r"found ([\d,]+) unique failure", said)
    if cases is None or done.returncode not in (0, 1):
        raise RuntimeError(f"Schemathesis ended with {done.returncode}:\n{said[-3000:]}")
    return _number(cases[1]), _number(failures[1]) if failures else done.returncode, said


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def main() -> int:
    """Run it over each recording, and print or record cases and failures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="most examples per operation")
    results.add_write_flag(parser)
    options = parser.parse_args()
    cases = failures = operations = 0
    for name, more in RUNS:
        with tempfile.TemporaryDirectory(prefix="overrun-api-") as folder:
            server = ServerProcess(Path(folder) / "t.db")
            try:
                send(server, name)
                document = httpx.get(f"{server.http}/openapi.json", trust_env=False).content
                made, failed, said = asked(server, options.examples, more)
            finally:
                server.stop()
        if failed:
            print(said)
        print(f"{name}: {made:,} cases, {failed} failures")
        cases, failures = cases + made, failures + failed
        operations = len(msgspec.json.decode(document)["paths"])
    if options.write:
        results.record(
            "api",
            [
                results.measured(
                    "Answers that are not as /openapi.json describes them",
                    failures,
                    of=cases,
                    script="make check-api",
                    conditions=f"Schemathesis over {operations} paths, all checks but {LEFT_OUT}",
                )
            ],
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
