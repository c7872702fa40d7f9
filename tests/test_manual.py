"""Do the manual page, the examples and the completion of a shell know the commands as they are?"""

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from overrun import cli, command_table, manual

GROUP = typer.main.get_command(cli.app)


def test_every_command_is_on_the_page_with_its_flags() -> None:
    page = manual.page(GROUP, "1.2.3")
    root = GROUP.make_context("overrun", [], resilient_parsing=True)
    for name in GROUP.list_commands(root):
        assert f'.SS "overrun {name}"' in page
    for flag in ("--slo", "--grpc-port", "--artifact", "--hit-ratio"):
        assert flag.replace("-", r"\-") in page
    assert page.count(r"\-\-workload") < 20  # not again for each of the what-ifs
    assert '"overrun 1.2.3"' in page.splitlines()[0]


def test_no_line_of_the_page_is_a_request_by_accident() -> None:
    known = {"TH", "SH", "SS", "PP", "TP", "B", "RS", "RE", "nf", "fi"}
    page = manual.page(GROUP, "1")
    assert {found[1] for found in re.finditer(r"(?m)^[.']([A-Za-z]*)", page)} <= known
    assert manual._plain(".x -y\\") == r"\&.x \-y\e"


@pytest.mark.parametrize(
    "example", [one for some in command_table.EXAMPLES.values() for one in some]
)
def test_examples_can_be_typed(example: str) -> None:
    program, *words = shlex.split(re.split(" [|<>] ", example)[0])
    assert program == "overrun"
    command, context = GROUP, GROUP.make_context("overrun", [], resilient_parsing=True)
    while hasattr(command, "list_commands"):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None
        command = found
    command.make_context(name, words, parent=context)


def test_examples_stand_at_the_end_of_the_help() -> None:
    shown = CliRunner().invoke(cli.app, ["report", "--help"]).stdout
    assert shown.split("Examples:")[1].split() == " ".join(command_table.EXAMPLES["report"]).split()


def test_a_shell_is_taught_and_answered() -> None:
    for shell in manual.SHELLS:
        assert manual.COMPLETE in CliRunner().invoke(cli.app, ["admin", "completion", shell]).stdout
    refused = CliRunner().invoke(cli.app, ["admin", "completion", "csh"])
    assert (refused.exit_code, "bash, zsh, fish" in refused.output) == (2, True)
    asked = {"COMP_WORDS": "overrun rep", "COMP_CWORD": "1", manual.COMPLETE: "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "overrun"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["report"]


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"CLICOLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour_is_where_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, coloured: bool
) -> None:
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    assert cli._coloured() is coloured
