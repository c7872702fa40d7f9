"""NIM: vLLM's names without a prefix."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    write(
        folder / "pages" / "gpu0",
        lambda step: (
            page(step, slow_from=20, waiting=12.0, prefix="")
            + "# TYPE num_request_max gauge\nnum_request_max 256\n"
        ),
    )
