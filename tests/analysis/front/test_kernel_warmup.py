"""After the warm-up nothing is compiled any more, whatever arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

# In a process of its own: here, other tests have had everything compiled.
PROGRAM = """
import sys, time
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.kernel_warmup import warm
from overrun.collector.config import Settings
from overrun.collector.sources.importer import find_files, read_bodies
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.store.database import open_store
from overrun.collector.ingest.writer import METRICS, TRACES
from tests.benchmarks.payload import make

def compiled():
    ours = [m for name, m in sys.modules.items() if name.startswith(("overrun.collector.", "overrun.analysis."))]
    return {(d.py_func.__module__, d.py_func.__name__, str(s)) for m in ours for d in vars(m).values() if isinstance(d, Dispatcher) for s in d.signatures}

settings = Settings()
warm(settings)
before = compiled()
pipeline = Pipeline(open_store(Path(sys.argv[1]) / "some.db", create=True), settings.collector, settings.privacy, assemble)
bodies = [(TRACES, body.data) for body in make(2_000, end_ns=time.time_ns()).bodies]
for path in find_files([Path(name) for name in sys.argv[2:]]):
    bodies += [({"traces": TRACES, "metrics": METRICS}[signal], body) for signal, body in read_bodies(path) if signal != "logs"]
for signal, body in bodies:
    pipeline.writer.submit(signal, body).result()
pipeline.drain()
again = pipeline.writer.submit(TRACES, bodies[0][1]).result().duplicate
pipeline.close()
print(len(before), again, *sorted(compiled() - before), sep="\\n")
"""


def test_what_arrives_finds_every_kernel_compiled(tmp_path: Path) -> None:
    recordings = [
        ROOT / "sample_traces" / "recordings" / name
        for name in ("vllm-joined", "sglang-spans", "langfuse", "vercel-ai-sdk", "litellm-sdk")
    ]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *map(str, recordings)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    kernels, again, *late = done.stdout.splitlines()
    assert int(kernels) > 10
    assert again == "True"
    assert late == []
