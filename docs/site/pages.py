"""What does the site have beside the files of docs/? Pages made from the README, the settings and the API, and links between documents."""

import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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
    "docs/rules": "rules/index.md",
    "docs/rules/README.md": "rules/index.md",
}
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    made = {site: (ROOT / path).read_text(encoding="utf-8") for path, site in ELSEWHERE.items()}
    made["index.md"] = f"---\nhide: [navigation]\n---\n{made['index.md']}"
    made["rules/index.md"] = (ROOT / "docs/rules/README.md").read_text(encoding="utf-8")
    made["SETTINGS.md"] = settings_page()
    made["API.md"] = api_page()
    made["COLUMNS.md"] = columns_page()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The document with links that lead to pages of the site; a file that is no page is named without a link."""
    places = {site: path for path, site in ELSEWHERE.items()}
    places["rules/index.md"] = "docs/rules/README.md"
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
