"""A fork of vLLM under a prefix of its own."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    write(
        folder / "pages" / "gpu0",
        lambda step: page(step, slow_from=20, waiting=12.0, prefix="fastdeploy:"),
    )
