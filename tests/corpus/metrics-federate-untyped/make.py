"""A federating Prometheus: everything untyped, two engines on one page."""

from pathlib import Path

from tests.analysis.diagnosis.engine_pages import page, write


def untyped(text: str) -> str:
    """As `/federate` writes it: every series a family of unknown type."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = dict.fromkeys(line.split("{")[0] for line in lines)
    return "".join(
        f"# TYPE {name} untyped\n"
        + "".join(f"{line}\n" for line in lines if line.split("{")[0] == name)
        for name in names
    )


def make(folder: Path) -> None:
    def both(step: int) -> str:
        sick = page(step, slow_from=20, waiting=12.0, labels='instance="gpu-1:8000",job="vllm"')
        return untyped(page(step, labels='instance="gpu-0:8000",job="vllm"') + sick)

    write(folder / "pages" / "prometheus", both)
