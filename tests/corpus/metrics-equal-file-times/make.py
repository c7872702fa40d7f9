"""Pages whose files all have the time of a copy, and the same with their times in their names."""

import os
from pathlib import Path

from tests.analysis.diagnosis.engine_pages import EVERY_S, T0, page, write


def make(folder: Path) -> None:
    made = write(folder / "copied" / "gpu0", lambda step: page(step, slow_from=20, waiting=12.0))
    named = folder / "named" / "gpu0"
    named.mkdir(parents=True)
    for at, path in enumerate(sorted(made.iterdir()), start=1):
        (named / f"{T0 + EVERY_S * at}.prom").write_text(path.read_text())
        os.utime(path, (T0, T0))
