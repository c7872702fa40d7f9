"""Names that no table knows, then named in overrun.toml."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import write


def make(folder: Path) -> None:
    write(
        folder / "pages" / "own",
        lambda step: (
            f"# TYPE acme_queue_len gauge\nacme_queue_len 12\n# TYPE other_len gauge\nother_len {step}\npython_info 1\n"
        ),
    )
