"""Two data-parallel ranks on one page, one of them stuck."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    def ranks(step: int) -> str:
        first, second = (
            page(step, labels=f'engine="{rank}"', tokens=0 if rank else 1_500, histograms=False)
            for rank in (0, 1)
        )
        return first + "".join(
            f"{line}\n" for line in second.splitlines() if not line.startswith("#")
        )

    write(folder / "pages" / "gpu0", ranks)
