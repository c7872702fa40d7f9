"""One step that a file goes through, in a process that may be killed in its midst: prints `begin` right before it and `done` after it.

python -m tests.benchmarks.crash_steps migrate|erase|fold|open FILE
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

LEAVING: Final = "user-who-leaves-7f3a91"  # erased by `erase`

Step = Callable[[Path], object]


def _migrate() -> Step:
    from overrun.collector.lifecycle.migrate import migrate

    return migrate


def _erase() -> Step:
    from overrun.collector.lifecycle.forget import forget_in_file

    return lambda path: forget_in_file(path, user=LEAVING)


def _open() -> Step:
    from overrun.collector.store.database import open_store

    return lambda path: open_store(path, create=False).close()


def _fold() -> Step:
    from overrun.analysis.assembly.assemble import assemble
    from overrun.collector.config import CollectorSettings, PrivacySettings
    from overrun.collector.ingest.pipeline import Pipeline
    from overrun.collector.lifecycle.rollups import roll_up
    from overrun.collector.store.database import open_store
    from overrun.collector.store.proof import Claims

    def fold(path: Path) -> None:
        settings = CollectorSettings(db=str(path), quiet_s=3600.0)
        pipeline = Pipeline(open_store(path, create=False), settings, PrivacySettings(), assemble)
        more = True
        while more:
            claims = Claims()
            step = partial(roll_up, now_ns=time.time_ns(), claims=claims)
            more = pipeline.writer.call(step, claims).result()
        pipeline.close()

    return fold


# What makes each step ready; imports are no part of it.
STEPS: Final[dict[str, Callable[[], Step]]] = {
    "migrate": _migrate,
    "erase": _erase,
    "fold": _fold,
    "open": _open,
}


def main() -> None:
    """Run one step."""
    name, path = sys.argv[1:]
    step = STEPS[name]()
    print("begin", flush=True)
    step(Path(path))
    print("done", flush=True)


if __name__ == "__main__":
    main()
