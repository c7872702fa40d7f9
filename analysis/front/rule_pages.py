"""What does the page of a rule say? Its docstring as Markdown:
`python -m overrun.analysis.front.rule_pages docs/rules` writes one file per rule and an index."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Final

from overrun.analysis.diagnosis.causal_graph import BRINGS, MAY_DRIVE, NODES, mermaid
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


def graph() -> str:
    """Return the page of the causal graph: its drawing, and the fact that shows each cause and state."""
    rows = [
        f"| {f'[{name}]({name}.md)' if node.kind == 'cause' else name} | {node.label} | {node.fact or '-'} | {', '.join(BRINGS.get(name, ())) or '-'} | "
        f"{', '.join(MAY_DRIVE.get(name, ())) or '-'} |"
        for name, node in NODES.items()
        if node.kind != "stage"
    ]
    return "\n".join(
        [
            "# What brings about what",
            "",
            "Causes are boxes, states that they lead to are rounded, stages that lose the time are hexagons. A solid arrow: the one comes with the other, whose",
            "signature it therefore shows as well. A dashed arrow: it may come of it, and counts only where a finding shows that something else drives it. Causes",
            "are ranked from the roots of this graph down ([DIAGNOSIS](../DIAGNOSIS.md)), and `verdict.path` of a report is the way that was taken.",
            "",
            "```mermaid",
            mermaid().rstrip(),
            "```",
            "",
            "| node | meaning | fact that shows it (`overrun explain facts`) | brings | may drive |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "Written from `analysis/diagnosis/causal_graph.py` by `make pages`.",
            "",
        ]
    )


def pages() -> dict[str, str]:
    """Return every file of the folder by its name: one page per rule, README.md with a line for each, and the causal graph."""
    out = {f"{name}.md": page(name, module) for name, module in rules().items()}
    lines = [
        f"- [{name}]({name}.md): {(module.__doc__ or '').partition(': ')[2].partition(chr(10))[0]}"
        for name, module in rules().items()
    ]
    return out | {
        "GRAPH.md": graph(),
        "README.md": "# Diagnoses\n\n"
        + "\n".join(lines)
        + "\n\nWhat brings about what: [GRAPH](GRAPH.md). How causes are ranked and what each was checked with: [DIAGNOSIS](../DIAGNOSIS.md).\n",
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
