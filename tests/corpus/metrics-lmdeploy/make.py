"""LMDeploy: vLLM's names under its own prefix."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    write(
        folder / "pages" / "gpu0",
        lambda step: page(
            step, slow_from=20, waiting=12.0, prefix="lmdeploy:", labels='engine="0"'
        ),
    )
