"""Does what docs/TELEMETRY.md tells people to paste hold? Snippets are parsed, our own commands are known, links lead somewhere."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overrun.cli import app

PAGE = (Path(__file__).parents[1] / "docs" / "TELEMETRY.md").read_text(encoding="utf-8")
HOW = PAGE.partition("## How do I connect ...")[2].partition("\n## ")[0]
SNIPPETS = re.findall(r"```(\w+)\n(.*?)```", HOW, re.DOTALL)
COMMANDS = [
    line
    for kind, text in SNIPPETS
    if kind == "sh"
    for line in text.splitlines()
    if line.startswith("overrun ")
]


def test_each_way_has_a_snippet_of_at_most_eight_lines() -> None:
    ways = HOW.split("\n### ")[1:]
    assert len(ways) >= 8
    for way in ways:
        snippets = re.findall(r"```\w+\n(.*?)```", way, re.DOTALL)
        assert len(snippets) == 1, way[:40]
        assert len(snippets[0].splitlines()) <= 8, way[:40]


@pytest.mark.parametrize(("kind", "text"), SNIPPETS)
def test_snippets_can_be_read(kind: str, text: str) -> None:
    if kind == "python":
        ast.parse(text)
    elif kind == "yaml":
        assert all(re.fullmatch(r"(?:  )*[\w/-]+:(?: \S.*)?", line) for line in text.splitlines())
    elif kind == "sh":
        assert all(shlex.split(line) for line in text.splitlines())
    else:
        assert kind in ("js", "properties")


@pytest.mark.parametrize("command", COMMANDS)
def test_our_own_commands_have_the_flags_that_are_named(command: str) -> None:
    _, name, *rest = shlex.split(command)
    told = CliRunner().invoke(app, [name, "--help"], terminal_width=200).output
    for flag in (word for word in rest if word.startswith("--")):
        assert flag in told


def test_links_within_the_page_lead_to_a_heading() -> None:
    headings = {
        re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= headings
