"""vLLM's router tells of the servers behind it in a label."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def make(folder: Path) -> None:
    def router(step: int) -> str:
        first, second = (
            page(
                step,
                labels=f'server="http://10.0.0.{n}:8000"',
                slow_from=20 if n == 2 else None,
                waiting=12.0,
            )
            for n in (1, 2)
        )
        return first + "".join(
            f"{line}\n" for line in second.splitlines() if not line.startswith("#")
        )

    write(folder / "pages" / "router", router)
