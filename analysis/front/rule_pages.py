"""What does the page of a rule say? Its docstring as Markdown:
`python -m overrun.analysis.front.rule_pages docs/rules` writes one file per rule and an index."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Final

from overrun.analysis.diagnosis.rules import rules

HEADINGS: Final = ("Detects", "Why it hurts", "Evidence", "Fix", "False alarms", "Source")


def page(name: str, module: ModuleType) -> str:
    """Return a rule's page: the title, what it is in one sentence, then one section per heading."""
    summary, _, rest = (module.__doc__ or "").partition("\n")
    parts = [f"# {name}", summary.partition(": ")[2].strip()]
    for block in rest.strip("\n").split("\n\n"):
        heading, _, text = block.partition("\n")
        if heading in HEADINGS:
            parts += [f"## {heading}", textwrap.dedent(text).strip()]
        else:
            parts.append(textwrap.dedent(block).strip())
    return (
        "\n\n".join(parts)
        + f"\n\nWritten from the docstring of `analysis/diagnosis/rules/{name}.py` by `make pages`.\n"
    )


def pages() -> dict[str, str]:
    """Return every file of the folder by its name: one page per rule, and README.md with a line for each."""
    out = {f"{name}.md": page(name, module) for name, module in rules().items()}
    lines = [
        f"- [{name}]({name}.md): {(module.__doc__ or '').partition(': ')[2].partition(chr(10))[0]}"
        for name, module in rules().items()
    ]
    return out | {
        "README.md": "# Diagnoses\n\n"
        + "\n".join(lines)
        + "\n\nHow they are ranked and what each was checked with: [DIAGNOSIS](../DIAGNOSIS.md).\n"
    }


def write(folder: Path) -> None:
    """Write the pages and remove those of rules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for stale in folder.glob("*.md"):
        if stale.name not in wanted:
            stale.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/rules"))
