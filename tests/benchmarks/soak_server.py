"""`overrun` with a wall clock that can be set from outside: as many nanoseconds ahead as the file says that is named first.

    python -m tests.benchmarks.soak_server CLOCK serve --db FILE ...

What `datetime` reads and what DuckDB reads stays as it is.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def main() -> None:
    """Set the clock, then run the command line."""
    clock = Path(sys.argv.pop(1))
    real_s, real_ns = time.time, time.time_ns

    def ahead_ns() -> int:
        try:
            return int(clock.read_text(encoding="ascii") or 0)
        except FileNotFoundError:
            return 0

    time.time_ns = lambda: real_ns() + ahead_ns()
    time.time = lambda: real_s() + ahead_ns() / 1e9
    # Only now: who holds `time.time_ns` as a default holds the clock that can be set.
    from overrun.cli import main as overrun

    overrun()


if __name__ == "__main__":
    main()
