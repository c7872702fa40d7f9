"""Are all kernels compiled? Compiling takes seconds, once per machine and version; then they come from a cache.

A kernel is compiled for the exact types that it is called with (memory that may be written to is another type), so one small trace goes the way of all
others instead of kernels being called with made-up arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.assembly.nesting import Nesting, calls_inside, is_below
from overrun.analysis.simulator import engine
from overrun.collector.config import Settings
from overrun.collector.decode import items
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.normalise.spans import example_body
from overrun.collector.process.compiled import read_only
from overrun.collector.store.database import open_store

ARRIVING: Final = "arriving"  # the argument of a process that compiles what arriving telemetry meets, and leaves the processor to others


def compile_apart() -> int:
    """Compile what arriving telemetry meets in a process of its own, into the cache that this one reads; its exit code.

    It ends with this process, however this one ends: its standard input closes then.
    """
    command = [sys.executable, "-m", "overrun.analysis.front.kernel_warmup", ARRIVING]
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing)
    try:
        return process.wait()
    finally:
        if process.stdin is not None:
            process.stdin.close()


def _end_with_parent() -> None:
    """Wait for the end of standard input, which is that of the process that wanted the kernels: half a minute of compiling must not outlive it."""
    while os.read(0, 1):
        pass
    os._exit(1)


def warm(settings: Settings) -> None:
    """Compile what arriving telemetry meets, from its bytes to its request row, in a store in memory."""
    pipeline = Pipeline(
        open_store(Path(":memory:"), create=True),
        replace(settings.collector, decoder="fast"),
        settings.privacy,
        assemble,
        settings.words,
    )
    try:
        Nesting(np.full(1, -1, dtype=np.int64))
        is_below(0, 0, np.full(1, -1, dtype=np.int64))
        calls_inside(*map(read_only, np.zeros((2, 1), dtype=np.int64) - 1))
        items.count("traces", example_body(), 1)
        items.count_json(b"{}")
        pipeline.writer.submit(TRACES, example_body()).result()
        pipeline.drain()
    finally:
        pipeline.close()


if __name__ == "__main__":
    if ARRIVING in sys.argv[1:]:
        if hasattr(os, "nice"):
            os.nice(10)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        warm(Settings())
    else:
        warm(Settings())
        engine.warm()
