"""A page without TYPE lines."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    def bare(step: int) -> str:
        return "".join(
            f"{line}\n"
            for line in page(step, slow_from=20, waiting=12.0).splitlines()
            if not line.startswith("#")
        )

    write(folder / "pages" / "gpu0", bare)
