"""Kernels that are not compiled yet are run as Python: the same answers, at once, and whatever arrives meanwhile is stored."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.decode import items
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.spans import Rules, normalize
from tests.analysis.assembly.assembling import spans_of
from tests.benchmarks import payload
from tests.benchmarks.sent import compare, known
from tests.collector.conftest import PROTOBUF
from tests.collector.oracle_otlp import RECORDINGS, bodies, plain_columns
from tests.conftest import ROOT, StartServer
from tests.waiting import until

AS_PYTHON = """
from overrun.collector.process import compiled
compiled.interpret(True)
from tests.collector.process.test_without_compiled_kernels import digest
print(digest())
assert compiled.any_absent()
from overrun.analysis.front import serve
from overrun.collector.config import Settings
serve.compile_apart = lambda: 1  # compiling fails: nobody waits for a compiler afterwards either
serve._warm(Settings())
assert compiled.any_absent()
print(digest())
"""


def digest() -> str:
    """All that is read of some recordings and of made spans, down to their requests."""
    made = [one.data for one in payload.make(60, end_ns=1_790_000_000_000_000_000).bodies]
    recorded = [data for name in RECORDINGS for data in bodies(name)[:1] if len(data) < 20_000]
    out = hashlib.md5(usedforsecurity=False)
    for data in [*made, *recorded[:8]]:
        raw = decode_spans([data])
        found = normalize(raw, Rules(salt=b"salt"))
        requests = assemble(spans_of(data))
        parts = (found.spans, found.events, found.links, requests.requests, requests.llm_calls)
        tables = [part.to_pydict() for part in parts]
        counted = items.count("traces", data, 10**6)
        out.update(repr((plain_columns(raw), tables, found.shapes, counted)).encode())
    return out.hexdigest()


def without_kernels(folder: Path) -> dict[str, str]:
    """The environment of a process that finds no compiled kernel."""
    return {"NUMBA_CACHE_DIR": str(folder / "numba")}


def running_children(pid: int) -> list[str]:
    """The process ids of what a process started (Linux). Threads that end meanwhile are left out."""
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text().split()
    return found


def test_kernels_as_python_answer_as_compiled_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_PYTHON],
        env=os.environ | without_kernels(tmp_path) | {"PYTHONWARNINGS": "error"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.stdout.split() == 2 * [digest()], done.stderr
    [warning] = [line for line in done.stderr.splitlines() if "compiling for" not in line]
    assert "no compiled code after compiling" in warning
    assert not list(tmp_path.glob("numba/**/*.nbi")), "a kernel was compiled"


def test_no_compiling_is_on_the_way_of_the_first_request(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(
        tmp_path / "t.db", environment=without_kernels(tmp_path) | {"OVERRUN_QUIET_S": "0.1"}
    )
    compiling = until(lambda: running_children(server.process.pid))
    os.kill(int(compiling[0]), signal.SIGSTOP)  # it compiles nothing until the requests are there
    made = payload.make(120, end_ns=time.time_ns(), spans_per_body=60)
    with httpx.Client(base_url=server.http, trust_env=False, verify=False, timeout=600) as client:
        for body in made.bodies:
            answer = client.post("/v1/traces", content=body.data, headers=PROTOBUF)
            assert answer.status_code == 200
        until(lambda: client.get("/api/v1/holdings").json()["requests"] == made.traces)
    os.kill(int(compiling[0]), signal.SIGCONT)
    assert any("compiling for this machine" in line for line in server.said)
    assert not any("at full speed" in line for line in server.said)
    assert server.stop() == 0
    until(lambda: not Path(f"/proc/{compiling[0]}").exists())  # it ends with its server
    found = compare(tmp_path / "t.db", [known(body.data) for body in made.bodies])
    assert found.right, found
