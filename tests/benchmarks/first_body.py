"""How long do the first body and its requests wait on a machine that has compiled nothing yet? A server without compiled kernels, and bodies of 512 spans.

python -m tests.benchmarks.first_body            # in each of the surroundings that people start it in
python -m tests.benchmarks.first_body --write    # records them in docs/results/ingest.json

Wall times depend on what else the machine does (its load is recorded), seconds of CPU hardly.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from tests.benchmarks import payload, results
from tests.benchmarks.hardening import cpu_s
from tests.benchmarks.sent import compare, known
from tests.conftest import ServerProcess

BODIES = 4
HEADERS = {"content-type": "application/x-protobuf"}
# What the environment of a server is, from an empty folder of its own.
SURROUNDINGS: Final[dict[str, Callable[[Path], dict[str, str]]]] = {
    "a new home": lambda folder: {"HOME": str(folder / "home")},
    "a home that cannot be written": lambda folder: {
        "HOME": str(folder / "file" / "home"),
        "TMPDIR": str(folder),
    },
    "the cache folder of a systemd unit": lambda folder: {
        "HOME": "/",
        "CACHE_DIRECTORY": str(folder / "home"),
    },
}


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds, each with the server's seconds of CPU in it."""

    start: tuple[float, float]  # from its start until it says ready
    answers: list[tuple[float, float]]  # of each body, from sending it
    requests: tuple[
        float, float
    ]  # from sending the first body until all of its requests were there


def run(folder: Path, environment: dict[str, str]) -> Waited:
    """Start a server, send bodies, and compare what it stored with what was sent. AssertionError: a body was refused, or something is missing."""
    (folder / "home").mkdir()
    (folder / "file").touch()
    began = time.monotonic()
    server = ServerProcess(folder / "t.db", environment=environment)
    pid = server.process.pid
    started = (time.monotonic() - began, cpu_s(pid))
    made = payload.make(BODIES * payload.SPANS_PER_BODY, end_ns=time.time_ns()).bodies
    answers = []
    with httpx.Client(base_url=server.http, trust_env=False, verify=False, timeout=600) as client:
        first, spent_first = time.monotonic(), cpu_s(pid)
        for body in made:
            asked, spent = time.monotonic(), cpu_s(pid)
            answer = client.post("/v1/traces", content=body.data, headers=HEADERS)
            assert answer.status_code == 200, answer.text
            answers.append((time.monotonic() - asked, cpu_s(pid) - spent))
            if body is made[0]:
                while client.get("/readyz").json()["pending_traces"]:
                    time.sleep(0.1)
                seen = (time.monotonic() - first, cpu_s(pid) - spent_first)
    compiled = any("at full speed" in line for line in server.said)
    assert not compiled, "the kernels were compiled before the last body: nothing was measured"
    server.stop()
    found = compare(folder / "t.db", [known(body.data) for body in made])
    assert found.right, found
    return Waited(started, answers, seen)


def figure(name: str, waited: Waited) -> results.Figure:
    """The row of one of the surroundings."""
    wall_s, spent_s = waited.answers[0]
    later = [spent for _, spent in waited.answers[1:]]
    return results.measured(
        f"First acknowledgement without compiled kernels, CPU of the server: {name}",
        round(spent_s, 2),
        "s",
        more={
            "wall, s": round(wall_s, 2),
            "next bodies, CPU s": round(sum(later) / len(later), 2),
            "its requests after, s": round(waited.requests[0], 2),
            "its requests after, CPU s": round(waited.requests[1], 2),
            "start, s": round(waited.start[0], 2),
            "start, CPU s": round(waited.start[1], 2),
        },
        script="python -m tests.benchmarks.first_body",
        conditions="bodies of 512 spans, machine shared, another process of the server compiles meanwhile",
    )


def main() -> None:
    """Print what each body took, and record the first of each surroundings with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    figures = []
    for name, environment in SURROUNDINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            waited = run(Path(folder), environment(Path(folder)))
        figures.append(figure(name, waited))
        print(f"{name}: ready after {waited.start[0]:.2f} s ({waited.start[1]:.2f} s of CPU), then")
        for wall_s, spent_s in waited.answers:
            print(f"    {wall_s:.2f} s, {spent_s:.2f} s of CPU")
        print(
            f"    requests of the first body: after {waited.requests[0]:.2f} s, {waited.requests[1]:.2f} s of CPU"
        )
    if chosen.write:
        results.record("ingest", figures)


if __name__ == "__main__":
    main()
