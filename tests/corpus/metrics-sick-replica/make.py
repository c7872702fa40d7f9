"""Two pages, one engine is sick."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    write(folder / "pages" / "gpu-0", lambda step: page(step))
    write(folder / "pages" / "gpu-1", lambda step: page(step, slow_from=20, waiting=12.0))
