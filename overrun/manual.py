"""How does the manual page read, and what completes a command line? Both made from the commands themselves, so that they know every flag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from overrun.command_table import EXAMPLES, PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")
COMPLETE: Final = "_OVERRUN_COMPLETE"
_VARIABLES: Final = (
    ("OVERRUN_READ_TOKEN", "the token with which commands ask a server"),
    ("OVERRUN_INGEST_TOKEN", "the token with which `overrun store import --url` sends to a server"),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "whether the report is coloured"),
)
CODES: Final = (
    ("0", "done"),
    (
        "1",
        "answered, and the answer is no: a gate failed, a lake is not whole, a receiver refused, the demo could not run",
    ),
    ("2", "bad input, nothing to answer about, or a source that does not answer"),
    ("130", "ended by Ctrl-C"),
    ("141", "the reader of the output has gone"),
)


def completion(shell: str) -> str:
    """Return the script that teaches a shell to complete the command; it asks the command itself."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name=PROGRAM, complete_var=COMPLETE, shell=shell)


def learn_to_complete() -> None:
    """Make the process answer a shell that asks what could come next."""
    from typer._completion_classes import completion_init

    completion_init()


def page(group: Any, version: str) -> str:
    """Return the manual page in roff of a group of commands, those of subordinate groups named by both words."""
    root = group.make_context(PROGRAM, [], resilient_parsing=True)
    lines = [
        f'.TH OVERRUN 1 "" "overrun {version}" "User Commands"',
        *(".SH NAME", rf"overrun \- {_plain(group.help.rstrip('.'))}"),
        *(".SH SYNOPSIS", r".B overrun", r"\fICOMMAND\fR [\fIOPTIONS\fR]"),
        *(".SH DESCRIPTION", _plain(group.help)),
        ".SH COMMANDS",
    ]
    for name, command, context, known in _commands(group, root):
        lines += _command(name, command, context, known)
    lines += [".SH ENVIRONMENT", *_listed(_VARIABLES), ".SH EXIT STATUS", *_listed(CODES)]
    return "\n".join(lines)


def _commands(
    group: Any, context: Any, before: str = ""
) -> Iterator[tuple[str, Any, Any, frozenset[str]]]:
    """Each command with the flags that need no description, for those of its group before it have the same."""
    known: frozenset[str] = frozenset()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        # A command that is missing an argument is described all the same.
        own = command.context_class(command, info_name=name, parent=context)
        yield f"{before}{name}", command, own, known
        if before:
            known |= {text for row in _rows(command, own) for text in row}
        if hasattr(command, "list_commands"):
            yield from _commands(command, own, f"{before}{name} ")


def _rows(command: Any, context: Any) -> list[tuple[str, str]]:
    rows = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    return [row for row in rows if row is not None and "--help" not in row[0]]


def _command(name: str, command: Any, context: Any, known: frozenset[str]) -> list[str]:
    lines = [f'.SS "{PROGRAM} {name}"', *_paragraphs(command.help or "")]
    lines += _listed(row for row in _rows(command, context) if not known.issuperset(row))
    shown = EXAMPLES.get(name, ())
    if shown:
        lines += [".PP", "Examples:", ".nf", *(f".RS\n{_plain(one)}\n.RE" for one in shown), ".fi"]
    return lines


def _paragraphs(text: str) -> list[str]:
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip("\n"))]
    return [line for part in parts if part for line in (".PP", _plain(part))]


def _listed(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [
        line
        for name, text in rows
        for line in (".TP", rf"\fB{_plain(name)}\fR", _plain(" ".join(text.split())))
    ]


def _plain(text: str) -> str:
    """Text in which roff finds no request: backslashes, hyphens and a dot or quote at the start of a line are escaped."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", escaped)
