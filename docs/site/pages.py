"""What does the site have beside the files of docs/? Pages made from the README, the settings and the API, and links between documents."""

import json
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from overrun.analysis.diagnosis.causal_graph import BRINGS, MAY_DRIVE, NODES, mermaid
from overrun.analysis.diagnosis.rules import rules
from overrun.analysis.front import export_columns, hourly_files
from overrun.analysis.front.openapi import openapi
from overrun.collector import config as settings
from overrun.collector.store.database import open_store

ROOT = Path(__file__).parents[2]
# Documents that stand elsewhere in the checkout, and their names on the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "tests/lab/README.md": "LABORATORY.md",
}
# A folder or an index that the site shows as another page.
INSTEAD = {
    "docs/README.md": "index.md",
    "docs/results": "BENCHMARKS.md",
    "docs/screenshots": "DASHBOARD.md",
    "analysis/diagnosis/rules": "rules/index.md",
    "analysis/diagnosis/causal_graph.py": "rules/GRAPH.md",
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    made = {site: (ROOT / path).read_text(encoding="utf-8") for path, site in ELSEWHERE.items()}
    made["index.md"] = f"---\nhide: [navigation]\n---\n{made['index.md']}"
    made |= {f"rules/{name}": text for name, text in rule_pages().items()}
    made["SETTINGS.md"] = settings_page()
    made["API.md"] = api_page()
    made["COLUMNS.md"] = columns_page()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The document with links that lead to pages of the site; a file that is no page is named without a link."""
    places = {site: path for path, site in ELSEWHERE.items()}
    here = page.file.src_uri
    folder = (ROOT / places.get(here, f"docs/{here}")).parent

    def led(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if not target.is_relative_to(ROOT):
            return match[0]
        path = target.relative_to(ROOT).as_posix()
        site = INSTEAD.get(path) or ELSEWHERE.get(path) or path.removeprefix("docs/")
        return "../" * here.count("/") + site

    markdown = re.sub(
        r"\[([^\]]*)\]\((?:\.\./)*((?:deploy|sample_traces|prometheus-rules)[^)]*)\)",
        r"`\2`",
        markdown,
    )
    return _LINK.sub(led, markdown)


def settings_page() -> str:
    """Every setting of the collector: its key, its default, its bounds and what the source says of it."""
    lines = [
        "# Settings",
        "",
        "Generated from the settings themselves. A flag wins over the environment (`OVERRUN_` and the key in capitals), the environment over the",
        "file (`--config overrun.toml`), and the file over the default. `overrun admin config` prints the values in force and their sources.",
        "Tables of limits, budgets, prices, scraping and alerts: [OPERATIONS](OPERATIONS.md#settings) and [ALERTS](ALERTS.md).",
    ]
    remarks = dict(_remarks(Path(settings.__file__)))
    for table, kind in settings._TABLES.items():
        lines += [
            "",
            f"## [{table}]",
            "",
            "| key | default | allowed | |",
            "|---|---|---|---|",
        ]
        for field in fields(kind):
            default = getattr(kind(), field.name)
            shown = list(default) if isinstance(default, tuple) else default
            lines.append(
                f"| `{field.name}` | `{json.dumps(shown)}` | {_allowed(field.name)} | {remarks.get(field.name, '')} |"
            )
    return "\n".join([*lines, ""])


def _allowed(key: str) -> str:
    if choices := settings._CHOICES.get(key):
        return ", ".join(f"`{choice}`" for choice in choices)
    if bounds := settings._BOUNDS.get(key):
        return f"{bounds[0]:,.6g} to {bounds[1]:,.10g}"
    return ""


def _remarks(path: Path) -> Iterator[tuple[str, str]]:
    """(key, comment) of each annotated field: what stands above it and behind it."""
    above: list[str] = []
    key = ""
    behind: list[str] = []
    with path.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type == tokenize.COMMENT:
                (behind if key else above).append(token.string.lstrip("# "))
            elif token.type == tokenize.NAME and re.match(rf"    {token.string}: ", token.line):
                key = key or token.string
            elif token.type == tokenize.NEWLINE:
                if key:
                    text = " ".join([*above, *behind])
                    yield key, text[:1].upper() + text[1:].replace("|", "\\|")
                key, above, behind = "", [], []


def api_page() -> str:
    """Every route with its parameters, from the document that a server gives at /openapi.json."""
    document: dict[str, Any] = json.loads(openapi())
    lines = [
        "# HTTP API",
        "",
        "Generated from the description that each server gives at `/openapi.json` (OpenAPI 3.1). Windows and filters are the same everywhere:",
        "[OPERATIONS](OPERATIONS.md#windows-and-filters). With tokens set, send `Authorization: Bearer TOKEN`.",
    ]
    described: dict[str, str] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            named = [p for p in operation.get("parameters", []) if "name" in p]
            described |= {p["name"]: p.get("description", "") for p in named}
            lines += [
                "",
                f"## `{method.upper()} {path}`",
                "",
                operation.get("summary", ""),
                "",
                f"Answers {', '.join(operation['responses'])}.",
            ]
            if named:
                names = (f"`{parameter['name']}`" for parameter in named)
                lines += ["", f"Parameters: {', '.join(names)}."]
    lines += ["", "## Parameters", "", "| name | meaning |", "|---|---|"]
    lines += [
        f"| `{name}` | {text.replace('|', chr(92) + '|')} |"
        for name, text in sorted(described.items())
    ]
    return "\n".join([*lines, ""])


def columns_page() -> str:
    """Every column of the exported files: its type, and its meaning from where the export is made."""
    lines = [
        "# Columns of exported files",
        "",
        "Generated from the export itself. The files by the hour, and how they are read, are in [SCALE](SCALE.md#open-data-an-hour-a-file); the words are in",
        "[GLOSSARY](GLOSSARY.md). A null means that nobody reported a value; it never means 0. `overrun store export KIND` gives the same columns as JSON lines or CSV.",
        "The folders add two columns: `hour`, the hour of UTC in which the row starts, and `shard`, the store that it is from.",
    ]
    store = open_store(Path(":memory:"), create=True)
    with store.reading() as con:
        for kind, row in export_columns.ROW.items():
            apart = "" if kind in hourly_files.KINDS else " Written only when it is named."
            lines += [
                "",
                f"## {kind}",
                "",
                row + apart,
                "",
                "| column | type | meaning |",
                "|---|---|---|",
            ]
            lines += [
                f"| `{c.name}` | {c.type} | {c.meaning} |"
                for c in export_columns.columns(con, kind)
            ]
    store.close()
    return "\n".join([*lines, ""])


HEADINGS: Final = ("Detects", "Why it hurts", "Evidence", "Fix", "False alarms", "Source")


def rule_page(name: str, module: ModuleType) -> str:
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
        + f"\n\nWritten from the docstring of `analysis/diagnosis/rules/{name}.py`.\n"
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
            "Written from `analysis/diagnosis/causal_graph.py`.",
            "",
        ]
    )


def rule_pages() -> dict[str, str]:
    """Return every file of the folder by its name: one page per rule, README.md with a line for each, and the causal graph."""
    out = {f"{name}.md": rule_page(name, module) for name, module in rules().items()}
    lines = [
        f"- [{name}]({name}.md): {(module.__doc__ or '').partition(': ')[2].partition(chr(10))[0]}"
        for name, module in rules().items()
    ]
    return out | {
        "GRAPH.md": graph(),
        "index.md": "# Diagnoses\n\n"
        + "\n".join(lines)
        + "\n\nWhat brings about what: [GRAPH](GRAPH.md). How causes are ranked and what each was checked with: [DIAGNOSIS](../DIAGNOSIS.md).\n",
    }
