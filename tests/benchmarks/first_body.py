"""How long do the first body and its requests wait on a machine that has compiled nothing yet? A server with an empty cache of kernels, and bodies of 512 spans.

python -m tests.benchmarks.first_body
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import httpx

from tests.benchmarks import payload, results
from tests.benchmarks.hardening import cpu_s
from tests.benchmarks.sent import compare, known
from tests.conftest import ServerProcess

BODIES = 4
HEADERS = {"content-type": "application/x-protobuf"}


def run(folder: Path) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Seconds and seconds of CPU until each body was answered; and from sending the first body until its requests were there, before the next one came."""
    environment = {"NUMBA_CACHE_DIR": str(folder / "numba")}
    server = ServerProcess(folder / "t.db", environment=environment)
    made = payload.make(BODIES * payload.SPANS_PER_BODY, end_ns=time.time_ns()).bodies
    took = []
    with httpx.Client(base_url=server.http, trust_env=False, verify=False, timeout=600) as client:
        began, started = time.monotonic(), cpu_s(server.process.pid)
        for body in made:
            asked, spent = time.monotonic(), cpu_s(server.process.pid)
            answer = client.post("/v1/traces", content=body.data, headers=HEADERS)
            assert answer.status_code == 200, answer.text
            took.append((time.monotonic() - asked, cpu_s(server.process.pid) - spent))
            while body is made[0] and client.get("/readyz").json()["pending_traces"]:
                time.sleep(0.1)
            if body is made[0]:
                seen = (time.monotonic() - began, cpu_s(server.process.pid) - started)
    server.stop()
    found = compare(folder / "t.db", [known(body.data) for body in made])
    assert found.right, found
    return took, seen


def main() -> None:
    """Print what each body took, and record the first with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took, seen = run(Path(folder))
    for wall_s, spent_s in took:
        print(f"{wall_s:.2f} s, {spent_s:.2f} s of CPU")
    print(f"requests of the first body: after {seen[0]:.2f} s, {seen[1]:.2f} s of CPU")
    if chosen.write:
        figure = results.measured(
            "First acknowledgement without compiled kernels, CPU of the server",
            round(took[0][1], 2),
            "s",
            more={
                "wall, s": round(took[0][0], 2),
                "next bodies, CPU s": round(sum(s for _, s in took[1:]) / (len(took) - 1), 2),
                "its requests after, s": round(seen[0], 2),
                "its requests after, CPU s": round(seen[1], 2),
            },
            script="python -m tests.benchmarks.first_body",
            conditions="bodies of 512 spans, machine shared; before, it waited for 24 s of compiling",
        )
        results.record("ingest", [figure])


if __name__ == "__main__":
    main()
